//! What stands around the JSON of a result or an error: that of JSON-RPC, or nothing.

use crate::rpc;

/// One request's envelope.
#[derive(Clone, Copy)]
pub enum Envelope<'a> {
    /// A JSON-RPC response to the request with this id, as it stood in the body.
    Rpc(&'a [u8]),
    /// None: over HTTP+JSON a result is the body, and an error brings its own frame.
    Bare,
}

impl Envelope<'_> {
    /// Opens a response with a result; write the result behind it, then [`Envelope::close`].
    #[inline]
    pub fn open_result(self, out: &mut Vec<u8>) {
        if let Envelope::Rpc(id) = self {
            rpc::open_result(out, id);
        }
    }

    /// Opens a response with an error; write the error behind it, then [`Envelope::close`].
    pub fn open_error(self, out: &mut Vec<u8>) {
        if let Envelope::Rpc(id) = self {
            rpc::open_error(out, id);
        }
    }

    /// Ends a response.
    #[inline]
    pub fn close(self, out: &mut Vec<u8>) {
        if let Envelope::Rpc(_) = self {
            rpc::close(out);
        }
    }
}
