//! The client ends its HTTP/2 connection to a server when it is idle, and when the server has gone
//! silent.

use std::{
    io::Write,
    net::TcpStream,
    sync::{Arc, Mutex, mpsc},
    thread::sleep,
    time::Duration,
};

use peregrine::{
    client::{HttpVersion, TransportError},
    net::HttpClient,
};

use crate::{
    frames::{DATA, END_STREAM, PING, frame, headers, serve},
    wire::*,
};

const H2: Ask<'static> = Ask { version: HttpVersion::Http2, ..GET };

/// A request with short timeouts.
const HASTY: Ask<'static> = Ask { head_ms: 100, idle_ms: 100, ..H2 };

/// A server that calls `answer` with the number of the connection, the stream of a request, and the
/// socket; reports which connections have ended.
fn server(
    answer: impl Fn(usize, u32, &mut TcpStream) + Send + Sync + 'static,
) -> (RawServer, mpsc::Receiver<usize>) {
    let (sender, ended) = mpsc::channel();
    let server = RawServer::new(move |number, mut stream| {
        // It is always the client that ends a connection.
        stream.set_read_timeout(None).unwrap();
        serve(&mut stream, |id, stream| {
            answer(number, id, stream);
            true
        });
        let _ = sender.send(number);
    });
    (server, ended)
}

/// The head of an answer, or the whole answer, depending on `flags`.
fn send_head(stream: &mut TcpStream, id: u32, flags: u8) {
    stream.write_all(&headers(id, flags, &[(":status", "200")])).unwrap();
}

/// The end of an answer.
fn ends(stream: &mut TcpStream, id: u32) {
    stream.write_all(&frame(DATA, END_STREAM, id, b"ok")).unwrap();
}

fn ok(stream: &mut TcpStream, id: u32) {
    send_head(stream, id, 0);
    ends(stream, id);
}

const OK: Result<(u16, &str), TransportError> = Ok((200, "ok"));

async fn send(
    request: &Ask<'_>,
    client: &HttpClient,
    server: &RawServer,
) -> Result<(u16, &'static str), TransportError> {
    let (status, content) = request.whole(client, &server.url()).await?;
    assert_eq!(content, "ok");
    Ok((status, "ok"))
}

/// The next value of a channel, while the test's runtime keeps running.
async fn next<T: Send + 'static>(channel: mpsc::Receiver<T>) -> T {
    let waits = move || channel.recv_timeout(PATIENCE).unwrap();
    tokio::task::spawn_blocking(waits).await.unwrap()
}

fn idle_client() -> HttpClient {
    client_with(|options| options.limits.pool_idle_ms = 40)
}

#[test]
fn idle_connection_is_closed() {
    let (server, ended) = server(|_, id, stream| ok(stream, id));
    run(async {
        let client = idle_client();
        assert_eq!(send(&H2, &client, &server).await, OK);
        // Without another request, and while the client lives.
        assert_eq!(next(ended).await, 0);
        assert_eq!(send(&H2, &client, &server).await, OK);
        assert_eq!(server.connections(), 2);
    });
}

#[test]
fn connection_with_request_in_flight_is_not_idle() {
    let (server, ended) = server(|_, id, stream| match id {
        1 => send_head(stream, 1, 0),
        _ => {
            ok(stream, id);
            ends(stream, 1);
        }
    });
    run(async {
        let client = idle_client();
        let mut long = H2.head(&client, &server.url()).await.unwrap();
        // Time for many checks for idle connections.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(send(&H2, &client, &server).await, OK);
        assert_eq!(body(&mut long).await.unwrap(), b"ok");
        assert_eq!(server.connections(), 1);
        drop(long);
        assert_eq!(next(ended).await, 0);
    });
}

#[test]
fn silent_connection_finishes_requests_but_takes_no_new_ones() {
    let first: Arc<Mutex<Option<TcpStream>>> = Arc::default();
    let (sender, arrived) = mpsc::channel();
    let (server, ended) = server(move |number, id, stream| match (number, id) {
        (0, 1) => ok(stream, 1),
        // Answered once another connection has come.
        (0, 3) => {
            *first.lock().unwrap() = Some(stream.try_clone().unwrap());
            sender.send(()).unwrap();
        }
        (0, _) => {}
        (_, _) => {
            ok(stream, id);
            first.lock().unwrap().take().iter_mut().for_each(|first| ok(first, 3));
        }
    });
    run(async {
        let client = client();
        assert_eq!(send(&H2, &client, &server).await, OK);
        let others = async {
            next(arrived).await;
            let late = send(&HASTY, &client, &server).await;
            assert_eq!(late, Err(TransportError::Timeout("response")));
            assert_eq!(server.connections(), 1);
            for _ in 0..2 {
                assert_eq!(send(&H2, &client, &server).await, OK);
            }
        };
        let (patient, ()) = tokio::join!(send(&H2, &client, &server), others);
        assert_eq!(patient, OK);
        assert_eq!(server.connections(), 2);
        // The first connection has no request left.
        assert_eq!(next(ended).await, 0);
    });
}

#[test]
fn connection_silent_within_content_takes_no_new_request() {
    let (server, _ended) = server(|number, id, stream| match number {
        0 => send_head(stream, id, 0),
        _ => ok(stream, id),
    });
    run(async {
        let client = client();
        let request = Ask { idle_ms: 100, ..H2 };
        let late = send(&request, &client, &server).await;
        assert_eq!(late, Err(TransportError::Timeout("byte of the body")));
        assert_eq!(send(&H2, &client, &server).await, OK);
        assert_eq!(server.connections(), 2);
    });
}

#[test]
fn a_connection_with_traffic_outlives_a_request_timeout() {
    let is_reused = |head_ms| {
        let (server, _ended) = server(|_, id, stream| match id {
            1 => {
                let mut stream = stream.try_clone().unwrap();
                let ping = frame(PING, 1, 0, &[7; 8]);
                std::thread::spawn(move || {
                    while stream.write_all(&ping).is_ok() {
                        sleep(Duration::from_millis(5));
                    }
                });
            }
            _ => ok(stream, id),
        });
        run(async {
            let client = client();
            let request = Ask { head_ms, ..H2 };
            let late = send(&request, &client, &server).await;
            assert_eq!(late, Err(TransportError::Timeout("response")));
            assert_eq!(send(&H2, &client, &server).await, OK);
            server.connections() == 1
        })
    };
    // A machine that stalls for this long may deliver no frame in time.
    assert!([200, 1_000, 5_000].into_iter().any(is_reused));
}
