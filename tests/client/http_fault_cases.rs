//! Faulty answers of servers over HTTP/1.1, and the client's error for each.

use std::net::TcpStream;

use peregrine::client::TransportError;

use super::wire::hold;

const CUT_BEFORE: TransportError = TransportError::Closed { before_response: true };
const CUT: TransportError = TransportError::Closed { before_response: false };

/// The case's name, the server's answer, what it does afterwards, and the client's error.
pub type Case = (&'static str, &'static [u8], fn(TcpStream), TransportError);

/// Head and content, complete except for the fault.
pub fn cases() -> Vec<Case> {
    const BAD: TransportError = TransportError::Malformed("");
    let large = TransportError::TooLarge;
    let end: fn(TcpStream) = drop;
    vec![
        ("nothing", b"", end, CUT_BEFORE),
        ("half a status line", b"HTTP/1.1 20", end, CUT),
        ("half a head", b"HTTP/1.1 200 OK\r\nContent-Le", end, CUT),
        ("half a length", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", end, CUT),
        ("half a chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", end, CUT),
        (
            "no last chunk",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
            end,
            CUT,
        ),
        ("interim alone", b"HTTP/1.1 100 Continue\r\n\r\n", end, CUT),
        ("stalls", b"HTTP/1.1 200 OK\r\nConte", hold, TransportError::Timeout("response")),
        (
            "stalls in its content",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            hold,
            TransportError::Timeout("byte of the body"),
        ),
        ("garbage", b"\x16\x03\x01\x02 garbage\r\n\r\n", hold, BAD),
        ("another protocol", b"220 mail.example ESMTP\r\n", hold, BAD),
        ("another version", b"HTTP/2.0 200 OK\r\n\r\n", hold, BAD),
        ("bare line feeds", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", hold, BAD),
        ("a folded line", b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n", hold, BAD),
        (
            "two lengths",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
            hold,
            BAD,
        ),
        (
            "a length and chunks",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            hold,
            BAD,
        ),
        ("a negative length", b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", hold, BAD),
        (
            "a chunk of letters",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
            hold,
            BAD,
        ),
        (
            "a chunk that is longer",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
            hold,
            BAD,
        ),
        (
            "a terabyte",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n",
            hold,
            large("body_bytes_max"),
        ),
        (
            "an upgrade that nobody asked for",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            hold,
            BAD,
        ),
        (
            "an unknown coding",
            b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nok",
            hold,
            TransportError::Coding("only gzip and deflate are supported"),
        ),
    ]
}
