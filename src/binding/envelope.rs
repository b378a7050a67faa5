//! The envelope of a result or an error: a JSON-RPC response, a gRPC frame, or none.

use crate::{
    binding::grpc::{fields::other::json_payload, frame, unwritable},
    pb::Writer,
    rpc,
};

/// The envelope for the answer to one request.
#[derive(Clone, Copy)]
pub enum Envelope<'a> {
    /// A JSON-RPC response to the request with this id, copied from the body.
    Rpc(&'a [u8]),
    /// No envelope: over HTTP+JSON the result is the body, and an error has its own format.
    Bare,
    /// The frame of a gRPC message. An error has no message, but a status in the trailers.
    Grpc {
        /// True: the message is a `JsonPayload` around JSON (dialect a2a_rust).
        in_json: bool,
    },
}

/// A size in bytes that is sufficient for most answers in JSON.
const JSON_GUESS: usize = 512;

impl Envelope<'_> {
    /// Opens a response with a result; append the result, then call [`Envelope::close`].
    #[inline(always)]
    pub fn open_result(self, out: &mut Vec<u8>) {
        match self {
            Envelope::Rpc(id) => rpc::open_result(out, id),
            Envelope::Bare => {}
            Envelope::Grpc { in_json } => {
                unwritable::forget();
                let _ = frame::begin(out);
                if in_json {
                    let _ = Writer(out).open(json_payload::DATA, JSON_GUESS);
                }
            }
        }
    }

    /// Opens a response with an error; append the error, then call [`Envelope::close`].
    pub fn open_error(self, out: &mut Vec<u8>) {
        if let Envelope::Rpc(id) = self {
            rpc::open_error(out, id);
        }
    }

    /// Ends a response that was opened at the offset `start`.
    #[inline(always)] // Called for each event of a stream.
    pub fn close(self, out: &mut Vec<u8>, start: usize) {
        match self {
            Envelope::Rpc(_) => rpc::close(out),
            Envelope::Bare => {}
            Envelope::Grpc { in_json } => {
                if in_json {
                    close_json(out, start + frame::PREFIX);
                }
                frame::finish(out, frame::begun_at(start));
            }
        }
    }
}

/// Ends the `JsonPayload` that was opened at this offset.
#[inline(never)] // Rarely used: only one dialect has it.
fn close_json(out: &mut Vec<u8>, at: usize) {
    let payload = Writer::opened_at(at, json_payload::DATA, JSON_GUESS);
    Writer(out).close(payload);
}
