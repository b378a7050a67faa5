//! Faulty HTTP/1.1 servers: each fault gives a named error, no request hangs, and no connection
//! leaks.

use std::{io::Write, time::Duration};

use peregrine::client::TransportError;

use crate::{http_fault_cases::cases, wire::*};

/// Whether it is the expected error; of an error with a sentence only the name is compared.
fn is_kind(error: &TransportError, expected: &TransportError) -> bool {
    match (error, expected) {
        (TransportError::Malformed(_), TransportError::Malformed(_)) => true,
        (error, expected) => error == expected,
    }
}

/// Long enough for a busy machine, and short enough for a test.
const REQUEST: Ask<'static> = Ask { head_ms: 300, idle_ms: 300, is_repeatable: false, ..GET };

#[test]
fn each_http_fault_gives_a_named_error() {
    for (case, answer, after, expected) in cases() {
        let server = RawServer::saying(answer, after);
        run(async {
            let client = client();
            for _ in 0..2 {
                let error = REQUEST.whole(&client, &server.url()).await.unwrap_err();
                assert!(is_kind(&error, &expected), "{case}: {error:?}");
            }
        });
        assert_eq!(server.connections(), 2, "{case}: such a connection is not used again");
    }
}

#[test]
fn endless_response_is_rejected_at_its_limit() {
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
fn trickling_response_head_times_out() {
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
        let error = REQUEST.whole(&client(), &server.url()).await;
        assert_eq!(error, Err(TransportError::Timeout("response")));
    });
}
