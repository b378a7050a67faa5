//! Responses that hold one error, in the spelling of whoever is answered.

use crate::{
    binding::{Endpoint, carrier::Carrier},
    dialect::{Dialect, Wire, WriteCx},
    fault::{Fault, FaultKind},
    http::media,
    json::JsonError,
    model::Op,
    rpc,
};

/// What is known of a request that is refused.
#[derive(Clone, Copy)]
pub(super) struct Known<'p> {
    pub(super) id: &'p [u8],
    /// Who writes the fault.
    pub(super) wire: Option<&'static Wire>,
    pub(super) op: Op,
}

impl Known<'_> {
    pub(super) const NOTHING: Known<'static> = Known { id: rpc::NULL_ID, wire: None, op: Op::Send };
}

/// Writes a response that holds one error, under an HTTP status.
pub(super) fn answer_fault(
    out: &mut Vec<u8>,
    date: &[u8; 29],
    close: bool,
    dialect: &Dialect,
    known: Known<'_>,
    fault: &Fault,
    status: u16,
) {
    let mark = Carrier::Response.begin(out, media::JSON, date, b"", close);
    push_fault(out, dialect, known, fault);
    mark.finish_with(out, (status, media::JSON), date, b"", close);
}

pub(super) fn push_fault(out: &mut Vec<u8>, dialect: &Dialect, known: Known<'_>, fault: &Fault) {
    let wire = known.wire.unwrap_or_else(|| dialect.fault_wire(b""));
    rpc::open_error(out, known.id);
    (wire.fault)(out, fault, &WriteCx::new(known.op));
    rpc::close(out);
}

/// Writes the error object that answers what was not even read.
pub fn push_unread(out: &mut Vec<u8>, endpoint: Endpoint, fault: &Fault) {
    push_fault(out, endpoint.dialect, Known::NOTHING, fault);
}

pub(in crate::binding) fn parse_fault(error: JsonError) -> Fault {
    match error {
        JsonError::Empty => Fault::because(FaultKind::Parse, "the body is empty"),
        JsonError::Syntax { offset } => {
            Fault::because(FaultKind::Parse, format!("invalid JSON at byte {offset}"))
        }
        JsonError::Range { .. } => Fault::because(FaultKind::Parse, error.to_string()),
        JsonError::Utf8 => Fault::because(FaultKind::Parse, "the body is not UTF-8"),
        JsonError::Depth => Fault::because(FaultKind::InvalidRequest, "nested too deep"),
        JsonError::Tokens { .. } => {
            Fault::because(FaultKind::InvalidRequest, format!("{error} (json_tokens_max)"))
        }
        JsonError::TooLarge => Fault::because(FaultKind::InvalidRequest, "the body is too large"),
    }
}
