//! WebSocket frames as a strict, pure codec (RFC 6455): bytes to messages, payloads to frames; a
//! server's frames here, a client's in `client`.
//!
//! Invariant: input that RFC 6455 allows an endpoint to refuse is refused, as early as the bytes
//! show it, and every refusal ([`WsError`]) has the close code that is sent to the peer. Nothing
//! here knows HTTP, JSON, a clock or a socket; no bytes can make it panic, and memory is bounded by
//! the [`ReaderRules`].
//!
//! In scope: the accept key, frames, masking, messages cut into fragments, UTF-8 across fragments,
//! close codes. Out of scope: the handshake's heads (`binding`, `crate::client`), when to ping and
//! when to close (`engine`), extensions, which are never negotiated.

pub mod accept;
#[cfg(any(feature = "client", feature = "internals"))]
pub mod client;
pub mod frame;
pub mod mask;
pub mod reader;

pub use accept::accept;
pub use frame::{FrameMark, Header, OpCode, begin, cancel, close, control, finish};
pub use reader::{Reader, ReaderRules, WsEvent};

/// Why a peer's frames are refused; each reason has a close code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WsError {
    /// RFC 6455 §5.2: a reserved bit without an extension that gives it a meaning.
    ReservedBit,
    /// RFC 6455 §5.2: an opcode that is reserved.
    OpCode,
    /// RFC 6455 §5.1: a client masks every frame.
    Unmasked,
    /// RFC 6455 §5.1: a server masks no frame.
    Masked,
    /// RFC 6455 §5.5: a control frame is not cut into fragments.
    ControlFragment,
    /// RFC 6455 §5.5: a control frame carries at most 125 bytes.
    ControlLength,
    /// RFC 6455 §5.2: a length is below 2^63, and in its shortest form.
    Length,
    /// RFC 6455 §5.4: there is no message to continue.
    NothingToContinue,
    /// RFC 6455 §5.4: a message begins inside of another one.
    Interleaved,
    /// RFC 6455 §7.4: a close code that no peer may send, or half of one.
    CloseCode,
    /// RFC 6455 §8.1: text, or the reason of a close, is not UTF-8.
    Utf8,
    /// A message of bytes where only text is taken (RFC 6455 §7.4.1, 1003).
    Binary,
    /// A frame or a message is beyond [`ReaderRules`].
    TooLarge {
        /// The limit that it exceeds.
        limit: &'static str,
    },
}

impl WsError {
    /// The close code of this error (RFC 6455 §7.4.1).
    pub const fn code(self) -> u16 {
        match self {
            WsError::Binary => code::UNSUPPORTED,
            WsError::Utf8 => code::INVALID,
            WsError::TooLarge { .. } => code::TOO_LARGE,
            WsError::ReservedBit
            | WsError::OpCode
            | WsError::Unmasked
            | WsError::Masked
            | WsError::ControlFragment
            | WsError::ControlLength
            | WsError::Length
            | WsError::NothingToContinue
            | WsError::Interleaved
            | WsError::CloseCode => code::PROTOCOL,
        }
    }

    /// One line for a human; it fits a close frame.
    pub const fn reason(self) -> &'static str {
        match self {
            WsError::ReservedBit => "a reserved bit is set",
            WsError::OpCode => "the opcode is reserved",
            WsError::Unmasked => "a client must mask its frames",
            WsError::Masked => "a server must not mask its frames",
            WsError::ControlFragment => "a control frame must not be fragmented",
            WsError::ControlLength => "a control frame is too long",
            WsError::Length => "the length is not in its shortest form",
            WsError::NothingToContinue => "there is no message to continue",
            WsError::Interleaved => "a message begins inside another message",
            WsError::CloseCode => "the close code must not be sent",
            WsError::Utf8 => "the text is not UTF-8",
            WsError::Binary => "only text messages are accepted",
            WsError::TooLarge { .. } => "the message is too large",
        }
    }
}

impl std::fmt::Display for WsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for WsError {}

/// Close codes that we send (RFC 6455 §7.4.1).
pub mod code {
    /// The server ends.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer broke the protocol.
    pub const PROTOCOL: u16 = 1002;
    /// A kind of message that is not accepted.
    pub const UNSUPPORTED: u16 = 1003;
    /// A payload that does not match its opcode.
    pub const INVALID: u16 = 1007;
    /// The peer broke a rule of the server.
    pub const POLICY: u16 = 1008;
    /// The peer's credential is invalid or has expired (IANA, WebSocket Close Code Number
    /// Registry).
    pub const UNAUTHORIZED: u16 = 3000;
    /// A frame or a message beyond its limit.
    pub const TOO_LARGE: u16 = 1009;
}

/// Whether a peer may send this close code (RFC 6455 §7.4.2, and IANA's registry: 1012 to 1014).
pub const fn is_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
