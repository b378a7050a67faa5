//! WebSocket frames as a strict, pure codec (RFC 6455): reads messages from bytes, and writes
//! frames with payloads. `client` writes a client's frames, the other modules a server's.
//!
//! Invariant: input that RFC 6455 allows an endpoint to refuse is refused as soon as its bytes show
//! the error, and every refusal ([`WsError`]) has the close code that is sent to the peer. The
//! codec uses no HTTP, JSON, clock or socket; no input makes it panic, and [`ReaderRules`] bound
//! its memory.
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
    /// RFC 6455 §5.2: a reserved bit is set, and no extension defines it.
    ReservedBit,
    /// RFC 6455 §5.2: the opcode is reserved.
    OpCode,
    /// RFC 6455 §5.1: a frame of a client is not masked.
    Unmasked,
    /// RFC 6455 §5.1: a frame of a server is masked.
    Masked,
    /// RFC 6455 §5.5: a control frame is fragmented.
    ControlFragment,
    /// RFC 6455 §5.5: a control frame carries more than 125 bytes.
    ControlLength,
    /// RFC 6455 §5.2: a length is 2^63 or more, or not in its shortest form.
    Length,
    /// RFC 6455 §5.4: there is no message to continue.
    NothingToContinue,
    /// RFC 6455 §5.4: a message begins inside another message.
    Interleaved,
    /// RFC 6455 §7.4: a close code that must not be sent, or only one byte of a code.
    CloseCode,
    /// RFC 6455 §8.1: text, or the reason of a close, is not UTF-8.
    Utf8,
    /// A binary message where only text is accepted (RFC 6455 §7.4.1, 1003).
    Binary,
    /// A frame or a message is larger than [`ReaderRules`] allow.
    TooLarge {
        /// The exceeded limit.
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

    /// The reason in one line, short enough for a close frame.
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
