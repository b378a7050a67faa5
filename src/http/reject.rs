//! Why bytes were refused.
//!
//! Each variant is a reason with one status and one sentence. After a refusal the framing of an
//! HTTP/1.x connection is unknown, so the answer has `Connection: close` and nothing after the
//! refused bytes is parsed (RFC 9112 §2.2, §6.3, §9.6). If a head in parts is refused, only its
//! request ends.

/// Why the peer's bytes are not an acceptable HTTP/1.1 request.
///
/// Always answer with [`Reject::status`], then close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// Too many empty lines before the request line (RFC 9112 §2.2).
    EmptyLines,
    /// A line feed without its carriage return (RFC 9112 §2.2).
    BareLineFeed,
    /// A carriage return without its line feed (RFC 9112 §2.2).
    BareCarriageReturn,
    /// A control byte inside the head (RFC 9110 §5.5).
    ControlByte,
    /// The first bytes are not a method token (RFC 9112 §3.1): not HTTP at all.
    MethodInvalid,
    /// The method is longer than any known method (RFC 9112 §3 suggests 501; a word of this length
    /// is garbage).
    MethodTooLong,
    /// The request line is not `method SP target SP version` (RFC 9112 §3).
    RequestLine,
    /// The protocol version is misspelt (RFC 9112 §2.3).
    VersionInvalid,
    /// The major version is not 1; this includes the HTTP/2 preface (RFC 9110 §15.6.6).
    VersionUnsupported,
    /// The target has a byte that is invalid in a URI, or a fragment (RFC 9112 §3.2).
    TargetInvalid,
    /// The target's form does not fit the method (RFC 9112 §3.2).
    TargetForm,
    /// The scheme of an absolute target is neither http nor https (RFC 9112 §3.2.2).
    TargetScheme,
    /// The target's authority is invalid (RFC 9110 §4.2.1, §4.2.4).
    TargetAuthority,
    /// The target is too long (RFC 9112 §3).
    TargetTooLong,
    /// The query is too long (RFC 9112 §3).
    QueryTooLong,
    /// A percent escape is incomplete or not UTF-8 (RFC 3986 §2.1).
    EscapeInvalid,
    /// A path segment is `.` or `..` in any encoding (RFC 3986 §3.3).
    PathDots,
    /// A path segment hides a slash, a backslash or a control byte (RFC 3986 §2.2).
    PathSeparator,
    /// The head is too large (RFC 6585 §5).
    HeadTooLarge,
    /// The head has too many fields (RFC 6585 §5).
    TooManyFields,
    /// A field line has no valid name directly before its colon (RFC 9112 §5.1).
    FieldName,
    /// A field value has an invalid byte (RFC 9110 §5.5).
    FieldValue,
    /// A field is folded over several lines (RFC 9112 §5.2).
    FieldFolded,
    /// A field that identifies the caller appears twice (RFC 9110 §5.3).
    FieldRepeated,
    /// HTTP/1.1 without Host (RFC 9112 §3.2).
    HostMissing,
    /// More than one Host (RFC 9112 §3.2).
    HostRepeated,
    /// Host is not a valid `host [":" port]` (RFC 9112 §3.2, RFC 9110 §7.2).
    HostInvalid,
    /// Content-Length is not one decimal number (RFC 9112 §6.3).
    LengthInvalid,
    /// Content-Length is far above the limit, which suggests a probe (RFC 9112 §6.3).
    LengthAbsurd,
    /// More than one Content-Length (RFC 9112 §6.3).
    LengthRepeated,
    /// Content-Length together with Transfer-Encoding (RFC 9112 §6.1).
    LengthAndEncoding,
    /// Transfer-Encoding is empty, not a list, or does not end in one `chunked` (RFC 9112 §6.3).
    EncodingInvalid,
    /// More than one Transfer-Encoding line (RFC 9112 §6.1).
    EncodingRepeated,
    /// A transfer coding other than `chunked` (RFC 9112 §6.1).
    EncodingUnknown,
    /// Transfer-Encoding in an HTTP/1.0 message (RFC 9112 §6.1).
    EncodingOnHttp10,
    /// The body is larger than allowed (RFC 9110 §15.5.14).
    BodyTooLarge,
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    ExpectationUnknown,
    /// A chunk size is not 1 to 16 hexadecimal digits (RFC 9112 §7.1).
    ChunkSize,
    /// A chunk extension does not match its grammar (RFC 9112 §7.1.1).
    ChunkExtension,
    /// A chunk line is too long (RFC 9112 §7.1.1).
    ChunkLineTooLong,
    /// Chunk lines are larger than their data (RFC 9112 §7.1.1).
    ChunkOverhead,
    /// Chunk data is not followed by CRLF (RFC 9112 §7.1).
    ChunkData,
    /// A trailer field is malformed (RFC 9112 §7.1.2).
    TrailerInvalid,
    /// The trailer section is too large (RFC 6585 §5).
    TrailersTooLarge,
}

impl Reject {
    /// Every reason, for tests that must see each of them.
    #[cfg(any(test, feature = "internals"))]
    pub const ALL: [Self; 44] = {
        use Reject::*;
        [
            EmptyLines,
            BareLineFeed,
            BareCarriageReturn,
            ControlByte,
            MethodInvalid,
            MethodTooLong,
            RequestLine,
            VersionInvalid,
            VersionUnsupported,
            TargetInvalid,
            TargetForm,
            TargetScheme,
            TargetAuthority,
            TargetTooLong,
            QueryTooLong,
            EscapeInvalid,
            PathDots,
            PathSeparator,
            HeadTooLarge,
            TooManyFields,
            FieldName,
            FieldValue,
            FieldFolded,
            FieldRepeated,
            HostMissing,
            HostRepeated,
            HostInvalid,
            LengthInvalid,
            LengthAbsurd,
            LengthRepeated,
            LengthAndEncoding,
            EncodingInvalid,
            EncodingRepeated,
            EncodingUnknown,
            EncodingOnHttp10,
            BodyTooLarge,
            ExpectationUnknown,
            ChunkSize,
            ChunkExtension,
            ChunkLineTooLong,
            ChunkOverhead,
            ChunkData,
            TrailerInvalid,
            TrailersTooLarge,
        ]
    };

    /// The status code of the answer.
    pub const fn status(self) -> u16 {
        self.row().0
    }

    /// One sentence for the body of the answer, without text from the peer.
    pub const fn reason(self) -> &'static str {
        self.row().1
    }

    /// The exceeded limit of [`Limits`](crate::limits::Limits), if any.
    pub const fn limit(self) -> Option<&'static str> {
        match self {
            Self::MethodTooLong => Some("method_bytes_max"),
            Self::TargetTooLong => Some("target_bytes_max"),
            Self::QueryTooLong => Some("query_bytes_max"),
            Self::HeadTooLarge => Some("head_bytes_max"),
            Self::TooManyFields => Some("head_fields_max"),
            Self::LengthAbsurd | Self::BodyTooLarge | Self::ChunkOverhead => Some("body_bytes_max"),
            Self::ChunkLineTooLong => Some("chunk_line_bytes_max"),
            Self::TrailersTooLarge => Some("trailer_bytes_max"),
            Self::EmptyLines
            | Self::BareLineFeed
            | Self::BareCarriageReturn
            | Self::ControlByte
            | Self::MethodInvalid
            | Self::RequestLine
            | Self::VersionInvalid
            | Self::VersionUnsupported
            | Self::TargetInvalid
            | Self::TargetForm
            | Self::TargetScheme
            | Self::TargetAuthority
            | Self::EscapeInvalid
            | Self::PathDots
            | Self::PathSeparator
            | Self::FieldName
            | Self::FieldValue
            | Self::FieldFolded
            | Self::FieldRepeated
            | Self::HostMissing
            | Self::HostRepeated
            | Self::HostInvalid
            | Self::LengthInvalid
            | Self::LengthRepeated
            | Self::LengthAndEncoding
            | Self::EncodingInvalid
            | Self::EncodingRepeated
            | Self::EncodingUnknown
            | Self::EncodingOnHttp10
            | Self::ExpectationUnknown
            | Self::ChunkSize
            | Self::ChunkExtension
            | Self::ChunkData
            | Self::TrailerInvalid => None,
        }
    }

    const fn row(self) -> (u16, &'static str) {
        match self {
            Self::EmptyLines => (400, "Too many empty lines before the request line."),
            Self::BareLineFeed => (400, "A line ends in LF alone; HTTP lines end in CRLF."),
            Self::BareCarriageReturn => (400, "A carriage return is not followed by LF."),
            Self::ControlByte => (400, "The head holds a control byte."),
            Self::MethodInvalid => (400, "The request does not begin with a method."),
            Self::MethodTooLong => (400, "The method is longer than any known method."),
            Self::RequestLine => (400, "The request line is not `method target version`."),
            Self::VersionInvalid => (400, "The version is not written `HTTP/1.1`."),
            Self::VersionUnsupported => (505, "Only HTTP/1.1 and HTTP/1.0 are supported."),
            Self::TargetInvalid => (400, "The request target has a byte that no URI may have."),
            Self::TargetForm => (400, "The form of the request target does not fit the method."),
            Self::TargetScheme => (400, "The request target is neither an http nor an https URI."),
            Self::TargetAuthority => (400, "The authority of the request target is invalid."),
            Self::TargetTooLong => (414, "The request target is too long."),
            Self::QueryTooLong => (414, "The query is too long."),
            Self::EscapeInvalid => (400, "A percent escape is invalid."),
            Self::PathDots => (400, "The path holds a dot segment."),
            Self::PathSeparator => (400, "The path has an escaped separator or control byte."),
            Self::HeadTooLarge => (431, "The request head is too large."),
            Self::TooManyFields => (431, "The request head has too many fields."),
            Self::FieldName => (400, "A field line has no valid name before its colon."),
            Self::FieldValue => (400, "A field value holds a control byte."),
            Self::FieldFolded => (400, "A field is folded over several lines."),
            Self::FieldRepeated => (400, "A field that may appear only once appears twice."),
            Self::HostMissing => (400, "The Host field is missing."),
            Self::HostRepeated => (400, "There is more than one Host field."),
            Self::HostInvalid => (400, "The Host field is not a valid host and port."),
            Self::LengthInvalid => (400, "Content-Length is not one decimal number."),
            Self::LengthAbsurd => (400, "Content-Length is far too large (body_bytes_max)."),
            Self::LengthRepeated => (400, "There is more than one Content-Length."),
            Self::LengthAndEncoding => {
                (400, "Content-Length and Transfer-Encoding must not appear together.")
            }
            Self::EncodingInvalid => (400, "Transfer-Encoding does not end in one `chunked`."),
            Self::EncodingRepeated => (400, "There is more than one Transfer-Encoding."),
            Self::EncodingUnknown => (501, "The only supported transfer coding is `chunked`."),
            Self::EncodingOnHttp10 => (400, "HTTP/1.0 must not use Transfer-Encoding."),
            Self::BodyTooLarge => (413, "The body is larger than allowed (body_bytes_max)."),
            Self::ExpectationUnknown => (417, "The only supported expectation is `100-continue`."),
            Self::ChunkSize => (400, "A chunk size is not 1 to 16 hexadecimal digits."),
            Self::ChunkExtension => (400, "A chunk extension is malformed."),
            Self::ChunkLineTooLong => (400, "A chunk line is too long."),
            Self::ChunkOverhead => (400, "The chunk lines are larger than their data."),
            Self::ChunkData => (400, "Chunk data is not followed by CRLF."),
            Self::TrailerInvalid => (400, "A trailer field is malformed."),
            Self::TrailersTooLarge => (431, "The trailer section is too large."),
        }
    }
}

impl std::fmt::Display for Reject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Reject {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_one_sentence_with_an_error_status() {
        for (i, reject) in Reject::ALL.iter().enumerate() {
            assert!((400..=505).contains(&reject.status()), "{reject:?}");
            assert!(reject.reason().ends_with('.') && reject.reason().is_ascii(), "{reject:?}");
            assert!(!Reject::ALL[..i].contains(reject), "{reject:?} is listed twice");
            assert_eq!(*reject as usize, i, "ALL keeps the order of the declaration");
        }
        assert_eq!(Reject::TrailersTooLarge as usize + 1, Reject::ALL.len());
    }
}
