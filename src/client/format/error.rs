//! Errors of responses.

use std::fmt;

use crate::{fault::PeerFault, model::ReadError};

/// A response without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The server answered with an error of A2A or of its binding.
    Fault(Box<PeerFault>),
    /// The server's answer is not a valid result of the call.
    Unreadable(Box<ReadError>),
    /// The response is not A2A: a page of a proxy, a login, an empty body.
    NotA2a {
        /// The HTTP status.
        status: u16,
        /// The media type of the body, at most 64 bytes, or a note that the body is empty; empty:
        /// the server named none.
        media: String,
    },
}

impl From<ReadError> for CallError {
    fn from(error: ReadError) -> CallError {
        CallError::Unreadable(Box::new(error))
    }
}

impl From<PeerFault> for CallError {
    fn from(fault: PeerFault) -> CallError {
        CallError::Fault(Box::new(fault))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Fault(fault) => fault.fmt(f),
            CallError::Unreadable(error) => write!(f, "the response cannot be read: {error}"),
            CallError::NotA2a { status, media } if media.is_empty() => {
                write!(f, "the response is not A2A: HTTP status {status}")
            }
            CallError::NotA2a { status, media } => {
                write!(f, "the response is not A2A: HTTP status {status}, {media}")
            }
        }
    }
}

impl std::error::Error for CallError {}
