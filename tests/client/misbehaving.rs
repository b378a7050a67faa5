//! Servers that misbehave: a clear error by name each time, nothing that hangs, nothing that leaks.

use std::{io::Write, net::TcpStream, time::Duration};

use peregrine::client::TransportError;

use crate::wire::*;

const CUT_BEFORE: TransportError = TransportError::Closed { before_response: true };
const CUT: TransportError = TransportError::Closed { before_response: false };

/// Whether it is the error that was expected; of those with a sentence the name is enough.
fn is_kind(error: &TransportError, expected: &TransportError) -> bool {
    match (error, expected) {
        (TransportError::Malformed(_), TransportError::Malformed(_)) => true,
        (error, expected) => error == expected,
    }
}

/// What a server says to a request, what it does then, and what the client calls it.
type Case = (&'static str, &'static [u8], fn(TcpStream), TransportError);

/// Head and content, whole but for what is wrong with them.
fn cases() -> Vec<Case> {
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
            TransportError::Coding("it is neither gzip nor deflate"),
        ),
    ]
}

/// Patient enough for a machine that is busy, and no longer than a test should take.
const ASK: Ask<'static> = Ask { head_ms: 300, idle_ms: 300, is_repeatable: false, ..GET };

#[test]
fn each_way_to_misbehave_is_an_error_by_name() {
    for (case, answer, after, expected) in cases() {
        let server = RawServer::saying(answer, after);
        run(async {
            let client = client();
            for _ in 0..2 {
                let error = ASK.whole(&client, &server.url()).await.unwrap_err();
                assert!(is_kind(&error, &expected), "{case}: {error:?}");
            }
        });
        assert_eq!(server.connections(), 2, "{case}: such a connection is not used again");
    }
}

#[test]
fn what_has_no_end_is_cut() {
    let endless = |first: &'static [u8], again: &'static [u8]| {
        RawServer::new(move |_, mut stream| {
            read_head(&mut stream);
            let again = again.repeat(1_000);
            let _ = stream.write_all(first);
            while stream.write_all(&again).is_ok() {}
        })
    };
    let cases: [(&[u8], &[u8], &str); 6] = [
        (b"HTTP/1.1 200 OK\r\nX: ", b"yyyy", "response_head_bytes_max"),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", "response_fields_max"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "INTERIM_RESPONSES_MAX"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"zzzz", "body_bytes_max"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nz\r\n", "body_bytes_max"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"X: y\r\n",
            "response_head_bytes_max",
        ),
    ];
    for (first, again, limit) in cases {
        let server = endless(first, again);
        run(async {
            let client = client_with(|options| options.limits.body_bytes_max = 100_000);
            let error = GET.whole(&client, &server.url()).await;
            assert_eq!(error, Err(TransportError::TooLarge(limit)));
        });
    }
}

#[test]
fn bytes_that_trickle_have_no_more_time_than_others() {
    let server = RawServer::new(|_, mut stream| {
        read_head(&mut stream);
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: ".iter().chain(std::iter::repeat(&b'y')) {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    run(async {
        let error = ASK.whole(&client(), &server.url()).await;
        assert_eq!(error, Err(TransportError::Timeout("response")));
    });
}

/// Descriptors of this process, and its memory in KiB.
#[cfg(target_os = "linux")]
fn footprint() -> (usize, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib = line.trim().trim_end_matches("kB").trim().parse().unwrap();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), kib)
}

/// Other tests of this process come and go: a leak of each time would be 10,000 descriptors.
#[cfg(target_os = "linux")]
#[test]
fn ten_thousand_of_them_leave_nothing_behind() {
    let all: Vec<Case> = cases().into_iter().filter(|(.., error)| !is_timeout(error)).collect();
    let count = all.len();
    let server = RawServer::new(move |number, mut stream| {
        let (_, answer, after, _) = &all[number % count];
        if read_request(&mut stream).is_some() && stream.write_all(answer).is_ok() {
            after(stream);
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client();
        let ask = Ask { head_ms: 20_000, idle_ms: 20_000, ..ASK };
        let mut before = (0, 0);
        for number in 0..11_000 {
            if number == 1_000 {
                before = footprint();
            }
            ask.whole(&client, &server.url()).await.unwrap_err();
        }
        let after = footprint();
        assert!(after.0 < before.0 + 1_000, "{before:?} {after:?}");
        assert!(after.1 < before.1 + 50_000, "{before:?} {after:?}");
    });
}

#[cfg(target_os = "linux")]
fn is_timeout(error: &TransportError) -> bool {
    matches!(error, TransportError::Timeout(_))
}
