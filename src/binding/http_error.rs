//! Errors outside of calls: about a head, a path or a method.
//!
//! Requests over gRPC or HTTP+JSON get errors in the format of these bindings; other requests get a
//! JSON-RPC error with a null id and an HTTP status. Errors of calls are written by their dialect
//! instead.

use crate::{
    binding::{
        CallContext,
        answer::ResponseWriter,
        responder::{Content, retry_after},
    },
    fault::Fault,
    http::{FieldLines, media},
    json::write::push_string,
    rpc,
};

/// Answers a request with an error about its path, and reports it.
pub fn answer(cx: &mut CallContext<'_>, status: u16, detail: &'static str) {
    refuse_under(cx, status, detail, FieldLines::NONE);
}

/// RFC 9110 §15.5.6: 405 lists the allowed methods, in the field `allow`.
pub fn not_allowed(cx: &mut CallContext<'_>, allow: FieldLines<'_>) {
    refuse_under(cx, 405, "the method is not allowed at this path; see the field Allow", allow);
}

/// Answers a request that is rejected because of its caller, not its path, and reports it.
pub fn refuse(cx: &mut CallContext<'_>, fault: &Fault) {
    cx.report_request_refused(fault.kind.row().status.http(), fault.message(), fault.limit_hit());
    write_fault(&mut cx.writer, fault);
}

/// Answers a request with an error that has additional fields, and reports it.
#[cold]
pub fn refuse_under(
    cx: &mut CallContext<'_>,
    status: u16,
    detail: &'static str,
    fields: FieldLines<'_>,
) {
    cx.report_request_refused(status, detail, None);
    write(&mut cx.writer, status, detail, fields);
}

/// Writes the error of a fault.
pub fn write_fault(writer: &mut ResponseWriter<'_>, fault: &Fault) {
    let status = fault.kind.row().status.http();
    write(writer, status, fault.message(), retry_after(status, fault.retry_s).get());
}

/// Writes an error that has additional fields.
pub fn write(writer: &mut ResponseWriter<'_>, status: u16, detail: &str, fields: FieldLines<'_>) {
    writer.begin(status, media::JSON, fields, Content::Whole);
    let out = &mut *writer.out;
    rpc::open_error(out, rpc::NULL_ID);
    out.extend_from_slice(b"{\"code\":-32600,\"message\":");
    push_string(out, detail);
    out.push(b'}');
    rpc::close(out);
    writer.finish();
}
