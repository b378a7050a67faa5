//! The wire families of gRPC: the readers of requests and the writers of answers of each service.
//!
//! Two families are protocol buffers; the third is the JSON of 1.0 in a protocol buffer (dialect
//! a2a_rust). [`Envelope`] frames the answers of these writers; for a fault they write only the
//! status details.

use crate::{
    binding::{envelope::Envelope, jsonrpc::parse_fault, scratch::DecodeBuffers, tenant},
    dialect::{self, Encode, ReadCx, Wire, WriteCx},
    fault::Fault,
    model::{Generation, Reply},
    pb::Fields,
    service::StreamResponse,
};

use super::{
    fields::other::json_payload,
    read::{self, DecodedRequest, malformed},
    status, unwritable, write,
};

/// Reads a request message into a call and the tenant in the message.
///
/// Errors: as [`dialect::Decode`], and `InvalidRequest` when the bytes are not a message.
pub type DecodeMessage =
    for<'p> fn(&ReadCx<'_>, &'p [u8], &'p mut DecodeBuffers) -> Result<DecodedRequest<'p>, Fault>;

/// `lf.a2a.v1`: 1.0.
pub(super) static V1: Wire<DecodeMessage> = Wire {
    decode: |cx, message, buffers| read::call(cx, Generation::V1, message, &mut buffers.pack),
    encode: Encode {
        text: None,
        generation: Generation::V1,
        reply: |out, answer, cx| reply(out, Generation::V1, answer, cx),
        event: |out, item, cx| event(out, Generation::V1, item, cx),
        fault: details,
    },
    #[cfg(feature = "client")]
    calls: dialect::calls::Calls::NoJson,
};

/// `a2a.v1`: 0.3, without error details.
pub(super) static V03: Wire<DecodeMessage> = Wire {
    decode: |cx, message, buffers| read::call(cx, Generation::V03, message, &mut buffers.pack),
    encode: Encode {
        text: None,
        generation: Generation::V03,
        reply: |out, answer, cx| reply(out, Generation::V03, answer, cx),
        event: |out, item, cx| event(out, Generation::V03, item, cx),
        fault: |_, _, _| (),
    },
    #[cfg(feature = "client")]
    calls: dialect::calls::Calls::NoJson,
};

/// `a2a.v1.A2aService`: 1.0 in JSON.
pub(super) static JSON: Wire<DecodeMessage> = Wire {
    decode: in_json,
    encode: Encode { fault: details, ..dialect::V1.encode },
    #[cfg(feature = "client")]
    calls: dialect::calls::Calls::V1,
};

#[inline(always)] // Into the row of each generation.
fn reply(out: &mut Vec<u8>, generation: Generation, reply: &Reply<'_>, cx: &WriteCx<'_>) {
    unwritable::noting(
        || write::reply(out, generation, cx.op, reply),
        |json| (dialect::V1.encode.reply)(json, reply, cx),
    );
}

#[inline(always)] // Into the row of each generation.
fn event(
    out: &mut Vec<u8>,
    generation: Generation,
    item: &StreamResponse<'_>,
    cx: &WriteCx<'_>,
) -> bool {
    unwritable::noting(
        || write::event(out, generation, item, cx.history),
        |json| {
            (dialect::V1.encode.event)(json, item, cx);
        },
    )
}

fn details(out: &mut Vec<u8>, fault: &Fault, _cx: &WriteCx<'_>) {
    status::details(out, fault);
}

/// The envelope of a family's answers.
pub(super) fn envelope(wire: &'static Wire<DecodeMessage>) -> Envelope<'static> {
    Envelope::Grpc { in_json: std::ptr::eq(wire, &JSON) }
}

fn in_json<'p>(
    cx: &ReadCx<'_>,
    message: &'p [u8],
    buffers: &'p mut DecodeBuffers,
) -> Result<DecodedRequest<'p>, Fault> {
    let DecodeBuffers { parser, pack, .. } = buffers;
    // As in JSON-RPC, where the envelope adds a level around the params.
    let depth_max = cx.limits.json_depth_max + 1;
    let payload = parser.parse(payload(message)?, depth_max).map_err(parse_fault)?;
    let call = (dialect::V1.decode)(cx, Some(payload), pack)?;
    let tenant = payload.at(cx.tenant.get()).map(|tenant| tenant.string_raw_str());
    let tenant = tenant.map(|tenant| tenant.ok_or_else(tenant::no_string)).transpose()?;
    Ok(DecodedRequest { call, tenant: tenant.unwrap_or_default() })
}

/// The JSON in a `JsonPayload`; an empty object if the field is not set.
fn payload(message: &[u8]) -> Result<&[u8], Fault> {
    let mut data = &b"{}"[..];
    for field in Fields(message) {
        if let (json_payload::DATA, value) = field.map_err(malformed)? {
            data = value.bytes().map_err(malformed)?;
        }
    }
    Ok(data)
}
