//! Keys of an issuer over sockets: the issuer is dead, slow, correct or wrong, or its answer is too
//! large.

use std::{
    borrow::Cow,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Wake, Waker},
    thread,
    time::Duration,
};

use peregrine::{
    agent::echo::Echo,
    auth::{
        Admission, AuthRefusal, AuthRules, Authenticator, Callers, CredentialKind, IssuerRule,
        KeyLocation, KeySource, KeyStatus, Presented, TokenRules,
    },
    net::{HttpClientOptions, KeyFetcher, Server},
    service::Now,
};

const KEYS: &str = include_str!("../data/tokens/keys.json");
const TOKENS: &str = include_str!("../data/tokens/pyjwt.txt");
/// A time at which the tokens are valid.
const UNIX_MS: u64 = 1_700_000_000_000;

/// The issuer's next answer: its bytes, and whether the issuer closes after them.
type Answer = (Vec<u8>, bool);

/// An issuer that gives scripted answers, and counts requests.
struct Issuer {
    addr: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Issuer {
    fn start() -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let answer = Arc::<Mutex<Answer>>::default();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (next_answer, recorded) = (Arc::clone(&answer), Arc::clone(&requests));
        thread::spawn(move || {
            for peer in listener.incoming() {
                let (next_answer, recorded) = (Arc::clone(&next_answer), Arc::clone(&recorded));
                thread::spawn(move || serve(peer.unwrap(), &next_answer, &recorded));
            }
        });
        Issuer { addr, answer, requests }
    }

    fn set_answer(&self, answer: impl Into<Vec<u8>>) {
        *self.answer.lock().unwrap() = (answer.into(), true);
    }

    fn has(&self, content: &str) {
        self.set_answer(ok(content));
    }

    fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// The [`Callers`] that trust it, by its keys at `/keys`.
    fn callers(&self) -> Arc<Callers> {
        self.callers_at(KeyLocation::Jwks(format!("http://{}/keys", self.addr)), ISSUER)
    }

    fn callers_at(&self, location: KeyLocation, issuer: &str) -> Arc<Callers> {
        let keys = KeySource::Remote { location, refresh_ms: 600_000 };
        let rule = IssuerRule { tokens: TokenRules::new(issuer), keys };
        Arc::new(Callers::new(AuthRules { issuers: vec![rule], ..AuthRules::default() }).unwrap())
    }
}

const ISSUER: &str = "https://issuer.example";

fn ok(content: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len()).into_bytes()
}

fn serve(mut peer: TcpStream, next_answer: &Mutex<Answer>, recorded: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match peer.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let user_agent = concat!("\r\nUser-Agent: peregrine/", env!("CARGO_PKG_VERSION"), "\r\n");
    assert!(head.contains(user_agent), "{head}");
    recorded.lock().unwrap().push(head.lines().next().unwrap().to_owned());
    let (answer, closes) = next_answer.lock().unwrap().clone();
    _ = peer.write_all(&answer);
    if !closes {
        // Until the client closes.
        while let Ok(1..) = peer.read(&mut byte) {}
    }
}

/// The clock of the test, and the callers under test.
#[derive(Default)]
struct Clock {
    ms: AtomicU64,
    woken: Mutex<usize>,
    changed: Condvar,
}

impl Wake for Clock {
    fn wake(self: Arc<Clock>) {
        *self.woken.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

struct Test {
    callers: Arc<Callers>,
    clock: Arc<Clock>,
    waker: Waker,
    _fetcher: KeyFetcher,
}

impl Test {
    fn of(callers: Arc<Callers>) -> Test {
        let clock = Arc::<Clock>::default();
        let (waker, time) = (Waker::from(Arc::clone(&clock)), Arc::clone(&clock));
        let mono_ms = move || time.ms.load(Ordering::SeqCst);
        let options = HttpClientOptions::default();
        let fetcher = KeyFetcher::start(Arc::clone(&callers), options, mono_ms).unwrap();
        Test { callers, clock, waker, _fetcher: fetcher }
    }

    fn poll(&self, token: &str) -> Poll<Result<Admission, AuthRefusal>> {
        let secret = Cow::Borrowed(token.as_bytes());
        let presented = Presented { kind: CredentialKind::Jwt, secret, address: None };
        let now = Now { mono_ms: self.clock.ms.load(Ordering::SeqCst), unix_ms: UNIX_MS };
        self.callers.check(&presented, now, &self.waker)
    }

    /// Polls until there is an answer, woken each time.
    fn check(&self, token: &str) -> Result<Admission, AuthRefusal> {
        loop {
            let before = *self.clock.woken.lock().unwrap();
            if let Poll::Ready(checked) = self.poll(token) {
                return checked;
            }
            let woken = self.clock.woken.lock().unwrap();
            drop(self.clock.changed.wait_while(woken, |woken| *woken == before).unwrap());
        }
    }

    fn status(&self) -> KeyStatus {
        self.callers.key_status().remove(0)
    }

    /// Sets the clock, and reloads the rules, since a changed clock wakes nothing.
    fn at(&self, ms: u64) {
        self.clock.ms.store(ms, Ordering::SeqCst);
    }

    /// Waits until the state of the keys satisfies `is_so`.
    fn until(&self, is_so: impl Fn(&KeyStatus) -> bool) {
        while !is_so(&self.status()) {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The token that was signed with EdDSA.
fn token() -> &'static str {
    TOKENS.lines().find(|token| token.starts_with("eyJhbGciOiJFZERTQSI")).unwrap()
}

/// The keys without that of Ed25519.
fn other_keys() -> String {
    let mut keys: serde_json::Value = serde_json::from_str(KEYS).unwrap();
    keys["keys"].as_array_mut().unwrap().retain(|key| key["kid"] != "ed");
    keys.to_string()
}

#[test]
fn keys_are_fetched_once_for_all_waiting_callers() {
    let issuer = Issuer::start();
    issuer.has(KEYS);
    let test = Test::of(issuer.callers());
    thread::scope(|scope| {
        let all = [0; 8].map(|_| scope.spawn(|| test.check(token()).unwrap()));
        for admitted in all {
            let principal = admitted.join().unwrap().principal;
            assert_eq!((principal.name(), principal.issuer()), ("alice", ISSUER));
        }
    });
    assert_eq!(*issuer.requests.lock().unwrap(), ["GET /keys HTTP/1.1"]);
}

#[test]
fn key_rotation_takes_effect_and_unknown_kids_fetch_once() {
    let issuer = Issuer::start();
    issuer.has(&other_keys());
    let test = Test::of(issuer.callers());
    let es256 = TOKENS.lines().find(|token| token.starts_with("eyJhbGciOiJFUzI1NiI")).unwrap();
    let first = test.check(es256).unwrap();
    // A new `kid`: the issuer is requested again, and has it now.
    issuer.has(KEYS);
    let admitted = test.check(token()).unwrap();
    assert_eq!(issuer.request_count(), 2);
    // An unknown `kid`, repeatedly, within a minute and after it.
    let header = base64url(r#"{"alg":"EdDSA","kid":"made-up"}"#);
    let rest = token().split_once('.').unwrap().1;
    let made_up = format!("{header}.{rest}");
    let unknown = AuthRefusal::Wrong("no key of the issuer has the token's kid");
    for _ in 0..1_000 {
        let refused = test.check(&made_up).unwrap_err();
        assert!(matches!(refused, AuthRefusal::Unavailable { retry_s: 60, .. }), "{refused:?}");
    }
    assert_eq!(issuer.request_count(), 2);
    test.at(60_001);
    for _ in 0..1_000 {
        assert_eq!(test.check(&made_up).unwrap_err(), unknown);
    }
    assert_eq!(issuer.request_count(), 3);
    // The key is gone, and with it the callers that it admitted; the other key stays.
    issuer.has(&other_keys());
    test.at(120_002);
    assert_eq!(test.check(&made_up).unwrap_err(), unknown);
    let now = Now { mono_ms: 120_002, unix_ms: UNIX_MS };
    assert!(!admitted.holds(now) && first.holds(now));
    assert_eq!(test.check(token()).unwrap_err(), unknown);
}

fn base64url(text: &str) -> String {
    peregrine::json::base64::encode(text.as_bytes()).trim_end_matches('=').replace('+', "-")
}

/// None of these answers has keys; the next answer that has some is accepted.
#[test]
fn invalid_key_answer_is_retried_until_keys_arrive() {
    let huge = ok(&format!("{KEYS}{}", " ".repeat(256 * 1024)));
    let endless =
        format!("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}", " ".repeat(1 << 20));
    let all = [
        (ok("{\"keys\":"), "must be a JWK set"),
        (ok("{}"), "must be a JWK set"),
        (ok("<html></html>"), "must be a JWK set"),
        (b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n".to_vec(), "HTTP status 503"),
        (b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n".to_vec(), "HTTP status 404"),
        (b"HTTP/1.1 304 x\r\n\r\n".to_vec(), "HTTP status 304"),
        (b"".to_vec(), "closed before"),
        (b"SSH-2.0-x\r\n".to_vec(), "invalid response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec(), "closed inside"),
        (huge, "ISSUER_DOCUMENT_BYTES_MAX"),
        (endless.into_bytes(), "exceeds"),
        (redirect("http://192.0.2.1/keys"), "does not lead to an https URL"),
        (redirect("file:///etc/passwd"), "redirect"),
        (redirect("/keys"), "more than 3 redirects"),
    ];
    thread::scope(|scope| {
        for (bad, problem) in all {
            scope.spawn(move || assert_fetched_again(bad, problem));
        }
    });
}

fn assert_fetched_again(bad: Vec<u8>, problem: &str) {
    let issuer = Issuer::start();
    issuer.set_answer(bad);
    let test = Test::of(issuer.callers());
    let refused = test.check(token()).unwrap_err();
    assert!(matches!(refused, AuthRefusal::Unavailable { .. }), "{refused:?}");
    let message = test.status().problem.unwrap();
    assert!(message.contains(problem), "{message} for {problem}");
    // No caller waits for the second attempt, which is made all the same.
    assert!(matches!(test.poll(token()), Poll::Ready(Err(AuthRefusal::Unavailable { .. }))));
    issuer.has(KEYS);
    test.at(1_000);
    test.until(|status| status.keys.is_some());
    assert_eq!(test.check(token()).unwrap().principal.name(), "alice");
    // Stale ones are better than none.
    issuer.set_answer("");
    test.at(700_000);
    assert_eq!(test.check(token()).unwrap().principal.name(), "alice");
}

fn redirect(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// One issuer accepts no connection, one stops in its answer: the client gives up both within five
/// seconds.
#[test]
fn dead_or_slow_issuer_gives_auth_unavailable() {
    let dead = Issuer::start();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let test = Test::of(dead.callers_at(KeyLocation::Jwks(format!("http://{closed}/")), ISSUER));
    assert!(matches!(test.check(token()), Err(AuthRefusal::Unavailable { .. })));
    assert_eq!(dead.request_count(), 0);
    let slow = Issuer::start();
    *slow.answer.lock().unwrap() =
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{".to_vec(), false);
    let test = Test::of(slow.callers());
    assert!(matches!(test.check(token()), Err(AuthRefusal::Unavailable { .. })));
    assert_eq!(slow.request_count(), 1);
}

#[test]
fn openid_metadata_locates_the_keys() {
    let issuer = Issuer::start();
    let url = format!("http://{}", issuer.addr);
    // One server has both the discovery document and the keys.
    let keys: serde_json::Value = serde_json::from_str(KEYS).unwrap();
    let document = serde_json::json!({
        "issuer": url, "jwks_uri": format!("{url}/jwks"), "keys": keys["keys"],
    });
    issuer.has(&document.to_string());
    let test = Test::of(issuer.callers_at(KeyLocation::OpenId, &url));
    test.until(|status| status.keys == Some(5));
    let requests = ["GET /.well-known/openid-configuration HTTP/1.1", "GET /jwks HTTP/1.1"];
    assert_eq!(*issuer.requests.lock().unwrap(), requests);
    // The tokens come from another issuer.
    let refused = AuthRefusal::Wrong("the issuer of the token is not trusted here");
    assert_eq!(test.check(token()).unwrap_err(), refused);
}

/// A server that fetches keys ends as any other does.
#[test]
fn shutdown_ends_running_key_fetch() {
    let issuer = Issuer::start();
    issuer.has(KEYS);
    let callers = issuer.callers();
    let server = Server::new().agent(Echo::profile(), Echo).listen("127.0.0.1:0").workers(1);
    let running = server.start().unwrap();
    for _ in 0..2 {
        running.fetch_keys(Arc::clone(&callers), HttpClientOptions::default()).unwrap();
    }
    while callers.key_status()[0].keys.is_none() {
        thread::sleep(Duration::from_millis(2));
    }
    running.shutdown();
    running.join();
    // The running fetch held the callers.
    assert_eq!(Arc::strong_count(&callers), 1);
}
