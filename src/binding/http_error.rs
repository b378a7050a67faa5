//! Errors below any call: a head, a path or a method that leads to none.
//!
//! Whatever would have been spoken there, the answer is a JSON-RPC error with a null id under an
//! HTTP status of its own. Errors of calls are written in the words of their dialect instead.

use crate::{
    binding::Exchange,
    http::{self, media, response},
    json::write::push_string,
    rpc,
};

/// Answers a request with an error about its path.
pub fn answer(x: &mut Exchange<'_>, status: u16, detail: &'static str) {
    let (date, head_only) = (x.means.scratch.date(x.means.now), is_head(x));
    write(x.means.out, status, detail, &date, b"", x.close, head_only);
}

/// RFC 9110 §15.5.6: 405 names the methods that would do; `allow` is that field's line.
pub fn not_allowed(x: &mut Exchange<'_>, allow: &[u8]) {
    let (date, head_only) = (x.means.scratch.date(x.means.now), is_head(x));
    let detail = "the method is not allowed here";
    write(x.means.out, 405, detail, &date, allow, x.close, head_only);
}

/// Writes an error. For HEAD the content is left out (RFC 9110 §9.3.2).
pub fn write(
    out: &mut Vec<u8>,
    status: u16,
    detail: &'static str,
    date: &[u8; 29],
    extra: &[u8],
    close: bool,
    head_only: bool,
) {
    let mark = response::begin(out, status, media::JSON, date, extra, close);
    rpc::open_error(out, rpc::NULL_ID);
    out.extend_from_slice(b"{\"code\":-32600,\"message\":");
    push_string(out, detail);
    out.push(b'}');
    rpc::close(out);
    if head_only {
        response::finish_head_only(out, mark);
    } else {
        response::finish(out, mark);
    }
}

fn is_head(x: &Exchange<'_>) -> bool {
    x.head.method() == http::Method::Head
}
