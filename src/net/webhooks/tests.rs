//! Tests of the webhook worker with an outbox of a few deliveries, and receivers on real sockets.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{Condvar, mpsc},
};

use crate::{
    limits::webhooks::WEBHOOK_ANSWER_BYTES_MAX,
    push::{TargetError, outbox::PostRequest},
};

use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::Waker,
};

use super::*;

/// An outbox that sends its deliveries one after the other, and records their outcomes.
#[derive(Default)]
struct FakeOutbox {
    posts: Mutex<FakePosts>,
    changed: Condvar,
    /// True: no address may be connected to.
    is_closed: bool,
    /// The hosts and addresses that `check_address` was called for.
    checked: Mutex<Vec<(String, IpAddr, bool)>>,
}

#[derive(Default)]
struct FakePosts {
    waiting: VecDeque<String>,
    is_in_flight: bool,
    outcomes: Vec<PostOutcome>,
    waker: Option<Waker>,
    made: usize,
}

impl FakeOutbox {
    fn put(&self, url: &str) {
        let mut posts = self.posts.lock().unwrap();
        posts.waiting.push_back(url.to_owned());
        posts.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Delivers to all of these URLs, one after the other, and returns the outcomes.
    fn post(&self, urls: &[&str]) -> Vec<PostOutcome> {
        urls.iter().for_each(|url| self.put(url));
        self.outcomes(urls.len())
    }

    /// Waits for `count` outcomes.
    fn outcomes(&self, count: usize) -> Vec<PostOutcome> {
        let posts = self.posts.lock().unwrap();
        let is_waiting = |posts: &mut FakePosts| posts.outcomes.len() < count;
        let mut posts = self.changed.wait_while(posts, is_waiting).unwrap();
        std::mem::take(&mut posts.outcomes)
    }
}

impl Outbox for FakeOutbox {
    fn next(&self, _: Now, wake: &Waker, request: &mut PostRequest) -> NextRequest {
        let mut posts = self.posts.lock().unwrap();
        posts.waker = Some(wake.clone());
        if posts.is_in_flight {
            return NextRequest::Never;
        }
        let Some(url) = posts.waiting.pop_front() else { return NextRequest::Never };
        posts.is_in_flight = true;
        posts.made += 1;
        request.url.replace_range(.., &url);
        request.fields.clear();
        request.fields.push("Content-Type", "application/json");
        request.fields.push("X-Id", "a");
        request.body.clear();
        request.body.extend_from_slice(b"{\"n\":1}");
        request.upto = posts.made as u64;
        NextRequest::Post
    }

    fn done(&self, request: &PostRequest, outcome: PostOutcome, _: Now, _: u64) {
        let mut posts = self.posts.lock().unwrap();
        assert!(std::mem::take(&mut posts.is_in_flight), "the outcome was reported twice");
        assert_eq!(request.upto, posts.made as u64);
        posts.outcomes.push(outcome);
        self.changed.notify_all();
    }

    fn check_address(
        &self,
        host: &str,
        address: IpAddr,
        is_own: &dyn Fn(IpAddr) -> bool,
    ) -> Result<(), TargetError> {
        self.checked.lock().unwrap().push((host.to_owned(), address, is_own(address)));
        if self.is_closed { Err(TargetError::Denied) } else { Ok(()) }
    }
}

const LONG_MS: u64 = 60_000;

fn worker(outbox: &Arc<FakeOutbox>, post_ms: u64) -> WebhookWorker {
    let (outbox, options) = (Arc::clone(outbox), HttpClientOptions::default());
    WebhookWorker::start_within(post_ms, outbox, options, || 1).unwrap()
}

/// A receiver; `serve` is called with each connection and its number, from 0.
struct Hook {
    addr: SocketAddr,
    connections: mpsc::Receiver<usize>,
    requests: mpsc::Receiver<String>,
}

type Requests = mpsc::Sender<String>;

impl Hook {
    fn new(serve: impl Fn(usize, TcpStream, &Requests) + Send + Sync + 'static) -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (connected, connections) = mpsc::channel();
        let (request_sender, requests) = mpsc::channel();
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                if connected.send(number).is_err() {
                    return;
                }
                let (serve, request_sender) = (Arc::clone(&serve), request_sender.clone());
                std::thread::spawn(move || serve(number, stream.unwrap(), &request_sender));
            }
        });
        Hook { addr, connections, requests }
    }

    /// A receiver that sends these answers in order, over any number of connections, and repeats
    /// the last answer.
    fn answering(answers: &'static [&'static str]) -> Hook {
        let answered = Mutex::new(0);
        Hook::new(move |_, mut stream, requests| {
            while let Some(request) = read_request(&mut stream) {
                let mut answered = answered.lock().unwrap();
                // Reported before the answer, so that the request is present when the client has
                // the answer.
                requests.send(request).unwrap();
                let answer = answers[(*answered).min(answers.len() - 1)];
                *answered += 1;
                stream.write_all(answer.as_bytes()).unwrap();
            }
        })
    }

    fn url(&self) -> String {
        format!("http://{}/hook?secret=1", self.addr)
    }

    /// Connections and requests so far.
    fn counts(&self) -> (usize, usize) {
        (self.connections.try_iter().count(), self.requests.try_iter().count())
    }
}

/// A request with its content; `None`: the connection has closed.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let begin = request.len();
        if reader.read_line(&mut request).ok()? == 0 {
            return None;
        }
        let line = request[begin..].to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    request.push_str(std::str::from_utf8(&body).unwrap());
    Some(request)
}

fn unwell(why: &str) -> PostOutcome {
    PostOutcome::Unwell { why: why.to_owned(), retry_after_ms: None }
}

fn failed(why: &str) -> PostOutcome {
    PostOutcome::Failed { why: why.to_owned(), retry_after_ms: None }
}

fn refused(why: &str) -> PostOutcome {
    PostOutcome::Refused { why: why.to_owned(), retry_after_ms: None }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const EMPTY: &str = "HTTP/1.1 204 No Content\r\n\r\n";

use PostOutcome::{Delivered, Gone};

#[test]
fn deliveries_share_a_connection_and_check_its_address_once() {
    let hook = Hook::answering(&[OK, EMPTY, OK]);
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    let url = hook.url();
    assert_eq!(outbox.post(&[&url, &url, &url]), [Delivered, Delivered, Delivered]);
    let request = hook.requests.recv().unwrap();
    let port = hook.addr.port();
    assert!(request.starts_with("POST /hook?secret=1 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("Host: 127.0.0.1:{port}\r\n")), "{request}");
    assert!(request.contains("\r\nX-Id: a\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"n\":1}"), "{request}");
    assert_eq!(hook.counts(), (1, 2));
    let own = ("127.0.0.1".to_owned(), hook.addr.ip(), true);
    assert_eq!(*outbox.checked.lock().unwrap(), [own]);
}

#[test]
fn connection_is_reused_only_for_its_own_host() {
    let hook = Hook::answering(&[OK]);
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    let (by_address, by_name) = (hook.url(), hook.url().replace("127.0.0.1", "localhost"));
    let urls = [&*by_address, &*by_name, &*by_address, &*by_name];
    assert_eq!(outbox.post(&urls), [Delivered, Delivered, Delivered, Delivered]);
    assert_eq!(hook.counts(), (2, 4));
    let checked = outbox.checked.lock().unwrap();
    assert!(checked.iter().any(|(host, address, _)| host == "localhost" && address.is_loopback()));
}

#[test]
fn cached_origin_matches_no_other_and_keeps_each_urls_path() {
    let hook = Hook::answering(&[OK]);
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    let url = |path: &str| format!("http://{}{path}", hook.addr);
    // The port of the second URL has one more digit than the others, and is invalid or unused.
    let urls = [url("/a?b=/c"), url("0/a"), url("/"), url("#x"), url("?x"), url("/d")];
    let outcomes = outbox.post(&urls.each_ref().map(|url| &**url));
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(*outcome == Delivered, at != 1, "{outcome:?}");
    }
    let targets: Vec<String> = hook.requests.try_iter().collect();
    let targets: Vec<&str> = targets.iter().filter_map(|text| text.split(' ').nth(1)).collect();
    assert_eq!(targets, ["/a?b=/c", "/", "/", "/?x", "/d"]);
}

#[test]
fn failed_delivery_reports_status_and_retry_after() {
    let hook = Hook::answering(&[
        "HTTP/1.1 500 Oh\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
        OK,
        "HTTP/1.1 503 Oh\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 429 Oh\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 Oh\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
    ]);
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    let url = hook.url();
    let mut outcomes = outbox.post(&[&*url; 6]);
    let later = outcomes.remove(4);
    let why = "HTTP status 500".to_owned();
    assert_eq!(
        outcomes,
        [
            PostOutcome::Unwell { why, retry_after_ms: Some(1_000) },
            Delivered,
            unwell("HTTP status 503"),
            unwell("HTTP status 429"),
            Gone,
        ]
    );
    let PostOutcome::Refused { why, retry_after_ms: Some(ms) } = later else { panic!("{later:?}") };
    assert_eq!(why, "HTTP status 404");
    assert!(ms > 1_000_000_000_000, "{ms}");
}

#[test]
fn redirect_is_refused_and_not_followed() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let location = format!("http://{}/", other.local_addr().unwrap());
    let hook = Hook::new(move |_, mut stream, _| {
        for status in [301, 302, 303, 307, 308] {
            let _ = read_request(&mut stream);
            let head = format!("HTTP/1.1 {status} Oh\r\nLocation: {location}\r\n");
            stream.write_all(format!("{head}Content-Length: 0\r\n\r\n").as_bytes()).unwrap();
        }
    });
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    let outcomes = outbox.post(&[&*hook.url(); 5]);
    let statuses = [301, 302, 303, 307, 308];
    assert_eq!(outcomes, statuses.map(|status| refused(&format!("HTTP status {status}"))));
    assert_eq!(other.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn denied_address_fails_without_a_connection() {
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    hook.set_nonblocking(true).unwrap();
    let addr = hook.local_addr().unwrap();
    let outbox = Arc::new(FakeOutbox { is_closed: true, ..FakeOutbox::default() });
    let _worker = worker(&outbox, LONG_MS);
    let url = format!("http://{addr}/hook?secret=1");
    let outcomes = outbox.post(&[&url, "ftp://a.example/secret", "https://no.invalid/secret"]);
    for outcome in &outcomes {
        assert!(matches!(outcome, PostOutcome::Failed { retry_after_ms: None, .. }), "{outcome:?}");
        assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
    }
    let denied = TargetError::Denied.to_string();
    assert_eq!(outcomes[0], failed(&format!("the address is not allowed: {addr}: {denied}")));
    assert_eq!(hook.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn guard_of_the_options_is_called_and_their_proxies_are_not() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let hook = Hook::answering(&[OK]);
    let outbox = Arc::new(FakeOutbox::default());
    let port = hook.addr.port();
    let guard = ConnectGuard::new(move |_, address| match address.port() == port {
        true => Ok(()),
        false => Err("another port".to_owned()),
    });
    let proxies = format!("http://{}", proxy.local_addr().unwrap());
    let proxies = Proxies::from_variables(|name| (name == "http_proxy").then(|| proxies.clone()));
    let proxies = proxies.unwrap();
    let options = HttpClientOptions { guard, proxies, ..HttpClientOptions::default() };
    let shared = Arc::clone(&outbox);
    let _worker = WebhookWorker::start_within(LONG_MS, shared, options, || 1).unwrap();
    let other = format!("http://{}/", proxy.local_addr().unwrap());
    let outcomes = outbox.post(&[&hook.url(), &other]);
    assert_eq!(outcomes[0], Delivered);
    let refused = |why: &str| why.contains("another port");
    assert!(matches!(&outcomes[1], PostOutcome::Failed { why, .. } if refused(why)));
    assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn missing_response_times_out_but_stalled_body_is_delivered() {
    let hook = Hook::new(|number, mut stream, _| {
        let _ = read_request(&mut stream);
        if number == 1 {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").unwrap();
        }
        // Until the webhook worker gives up.
        let _ = stream.read(&mut [0]);
    });
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, 200);
    let url = hook.url();
    assert_eq!(outbox.post(&[&url, &url]), [failed("no response in time"), Delivered]);
    assert_eq!(hook.counts().0, 2);
}

#[test]
fn closed_new_connection_fails_without_retry() {
    let hook = Hook::new(|_, mut stream, requests| {
        requests.send(read_request(&mut stream).unwrap()).unwrap();
    });
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    let closed = failed("the connection closed before the response");
    assert_eq!(outbox.post(&[&hook.url()]), [closed]);
    assert_eq!(hook.counts(), (1, 1));
}

#[test]
fn closed_reused_connection_is_replaced_once() {
    // Each connection sends one answer, except the third, which sends none.
    let hook = Hook::new(|number, mut stream, requests| {
        requests.send(read_request(&mut stream).unwrap()).unwrap();
        if number != 2 {
            stream.write_all(OK.as_bytes()).unwrap();
            if let Some(request) = read_request(&mut stream) {
                requests.send(request).unwrap();
            }
        }
    });
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    let url = hook.url();
    let closed = failed("the connection closed before the response");
    assert_eq!(outbox.post(&[&url, &url, &url]), [Delivered, Delivered, closed]);
    // The second and the third request were sent twice.
    assert_eq!(hook.counts(), (3, 5));
}

#[test]
fn endless_response_body_is_delivered_but_not_reused() {
    let hook = Hook::new(|_, mut stream, _| {
        while read_request(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
            while stream.write_all(chunk.as_bytes()).is_ok() {}
        }
    });
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    let url = hook.url();
    assert_eq!(outbox.post(&[&url, &url]), [Delivered, Delivered]);
    assert_eq!(hook.counts().0, 2);
}

#[test]
fn content_is_read_up_to_its_limit() {
    for (length, connections) in [(WEBHOOK_ANSWER_BYTES_MAX, 1), (WEBHOOK_ANSWER_BYTES_MAX + 1, 2)]
    {
        let hook = Hook::new(move |_, mut stream, _| {
            while read_request(&mut stream).is_some() {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                let _ = stream.write_all(format!("{head}{}", "x".repeat(length)).as_bytes());
            }
        });
        let outbox = Arc::new(FakeOutbox::default());
        let _worker = worker(&outbox, LONG_MS);
        let url = hook.url();
        assert_eq!(outbox.post(&[&url, &url]), [Delivered, Delivered]);
        assert_eq!(hook.counts().0, connections, "{length}");
    }
}

#[test]
fn an_answer_may_come_byte_by_byte() {
    let byte_by_byte = |answer: &'static str| {
        Hook::new(move |_, mut stream, requests| {
            stream.set_nodelay(true).unwrap();
            while let Some(request) = read_request(&mut stream) {
                requests.send(request).unwrap();
                for byte in answer.as_bytes() {
                    stream.write_all(&[*byte]).unwrap();
                }
            }
        })
    };
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    // After an answer without content, the connection is free when the outcome is reported.
    let hook = byte_by_byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let url = hook.url();
    assert_eq!(outbox.post(&[&url, &url]), [Delivered, Delivered]);
    assert_eq!(hook.counts(), (1, 2));
    // The content may arrive after the start of the next delivery; a later delivery finds it read.
    let hook = byte_by_byte(OK);
    let (mut connections, mut posts) = (0, 0);
    while connections == posts {
        assert!(posts < 1_000, "no connection is used again");
        assert_eq!(outbox.post(&[&hook.url()]), [Delivered]);
        let (connected, posted) = hook.counts();
        (connections, posts) = (connections + connected, posts + posted);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn unread_response_body_is_not_validated() {
    let coded = |coding: &str, content: &str| {
        let length = content.len();
        format!("Content-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n{content}")
    };
    let answers = [
        // A complete answer frees its connection, whatever its coding.
        (coded("br", "xx"), 1),
        (coded("gzip", "no gzip"), 1),
        (coded("gzip\r\nContent-Encoding: br", "xx"), 1),
        // Above the limit of a stored body, and longer than any real body.
        ("Content-Length: 100000000\r\n\r\nxx".to_owned(), 2),
        ("Content-Length: 18446744073709551615\r\n\r\nxx".to_owned(), 2),
    ];
    for (answer, connections) in answers {
        let whole = format!("HTTP/1.1 200 OK\r\n{answer}");
        let hook = Hook::new(move |_, mut stream, _| {
            while read_request(&mut stream).is_some() {
                stream.write_all(whole.as_bytes()).unwrap();
            }
        });
        let outbox = Arc::new(FakeOutbox::default());
        let _worker = worker(&outbox, LONG_MS);
        let url = hook.url();
        assert_eq!(outbox.post(&[&url, &url]), [Delivered, Delivered], "{answer}");
        assert_eq!(hook.counts().0, connections, "{answer}");
    }
}

#[test]
fn response_with_invalid_framing_fails() {
    let hook = Hook::answering(&[
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
    ]);
    let outbox = Arc::new(FakeOutbox::default());
    let _worker = worker(&outbox, LONG_MS);
    for outcome in outbox.post(&[&*hook.url(); 3]) {
        assert!(matches!(outcome, PostOutcome::Failed { .. }), "{outcome:?}");
    }
}

#[test]
fn dropped_worker_cancels_delivery_without_an_outcome() {
    let (sender, received) = mpsc::channel();
    let hook = Hook::new(move |_, mut stream, _| {
        sender.send(read_request(&mut stream)).unwrap();
        // Until the webhook worker was dropped.
        sender.send(read_request(&mut stream)).unwrap();
    });
    let outbox = Arc::new(FakeOutbox::default());
    let worker = worker(&outbox, LONG_MS);
    outbox.put(&hook.url());
    assert!(received.recv().unwrap().is_some());
    drop(worker);
    assert!(received.recv().unwrap().is_none());
    let posts = outbox.posts.lock().unwrap();
    assert!(posts.is_in_flight && posts.outcomes.is_empty());
    drop(posts);
    // The webhook worker has released the outbox.
    assert_eq!(Arc::strong_count(&outbox), 1);
}

/// At first the outbox returns `At`, or panics.
#[test]
fn delivery_starts_after_a_pause_or_an_outbox_panic() {
    struct Late(FakeOutbox, AtomicBool, bool);
    impl Outbox for Late {
        fn next(&self, now: Now, wake: &Waker, request: &mut PostRequest) -> NextRequest {
            match self.1.swap(true, Ordering::Relaxed) {
                false if self.2 => panic!("a test of panics in next"),
                false => NextRequest::At(now.mono_ms + 20),
                true => self.0.next(now, wake, request),
            }
        }
        fn done(&self, request: &PostRequest, outcome: PostOutcome, now: Now, random: u64) {
            self.0.done(request, outcome, now, random);
        }
        fn check_address(
            &self,
            host: &str,
            address: IpAddr,
            is_own: &dyn Fn(IpAddr) -> bool,
        ) -> Result<(), TargetError> {
            self.0.check_address(host, address, is_own)
        }
    }
    for panics in [false, true] {
        let hook = Hook::answering(&[OK]);
        let outbox = Arc::new(Late(FakeOutbox::default(), AtomicBool::new(false), panics));
        outbox.0.put(&hook.url());
        let options = HttpClientOptions::default();
        let shared = Arc::clone(&outbox);
        let _worker = WebhookWorker::start(shared, options, || 1).unwrap();
        assert_eq!(outbox.0.outcomes(1), [Delivered]);
    }
}
