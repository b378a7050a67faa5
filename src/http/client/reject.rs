//! Why the bytes of a response were refused.
//!
//! Each variant is a reason that only responses have, with one sentence; [`ResponseReject::Common`]
//! has the reasons that requests share. After a refusal the framing of the connection is unknown,
//! so the connection is closed and nothing after the refused bytes is read (RFC 9112 §6.3, §9.6).

use crate::http::Reject;

/// Why a server's bytes are not an acceptable HTTP/1.x response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseReject {
    /// The first line is not `HTTP/1.1 SP 3DIGIT SP [reason]` (RFC 9112 §4).
    StatusLine,
    /// The version is neither HTTP/1.0 nor HTTP/1.1 (RFC 9112 §2.3).
    Version,
    /// The status is below 100 (RFC 9110 §15).
    Status,
    /// The head is larger than allowed.
    HeadTooLarge,
    /// The head has more field lines than allowed.
    TooManyFields,
    /// A reason that requests share: a line, a length or a chunk.
    Common(Reject),
}

impl ResponseReject {
    /// One sentence, without text from the server.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::StatusLine => "The response does not begin with a status line.",
            Self::Version => "The version must be `HTTP/1.1` or `HTTP/1.0`.",
            Self::Status => "The status is below 100.",
            Self::HeadTooLarge => "The response head is too large (response_head_bytes_max).",
            Self::TooManyFields => "The response head has too many fields (response_fields_max).",
            Self::Common(reject) => reject.reason(),
        }
    }

    /// The limit that the response exceeds; `None`: the response is malformed.
    pub fn limit(self) -> Option<&'static str> {
        match self {
            Self::StatusLine | Self::Version | Self::Status => None,
            Self::HeadTooLarge => Some("response_head_bytes_max"),
            Self::TooManyFields => Some("response_fields_max"),
            Self::Common(Reject::BodyTooLarge | Reject::LengthAbsurd) => Some("body_bytes_max"),
            Self::Common(Reject::TrailersTooLarge) => Some("response_head_bytes_max"),
            Self::Common(_) => None,
        }
    }
}

impl From<Reject> for ResponseReject {
    fn from(reject: Reject) -> ResponseReject {
        ResponseReject::Common(reject)
    }
}

impl std::fmt::Display for ResponseReject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for ResponseReject {}
