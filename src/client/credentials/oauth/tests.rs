//! The flows against a transport that answers from a list.

use std::{
    collections::VecDeque,
    future::Future,
    pin::pin,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use super::*;
use crate::{
    client::{ClientLimits, HttpMethod, HttpRequest, HttpResponse, HttpUrl, Transport},
    service::Now,
};

/// Answers in order, and records the requests.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<(u16, String)>>,
    requests: Mutex<Vec<String>>,
    now_ms: AtomicU64,
    /// While true, requests get no answer.
    is_held: AtomicBool,
}

struct Scripted {
    status: u16,
    body: Option<String>,
}

impl HttpResponse for Scripted {
    fn status(&self) -> u16 {
        self.status
    }

    fn field(&self, _: &str) -> Option<&[u8]> {
        None
    }

    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        let Some(mut body) = self.body.take() else { return Poll::Ready(Ok(false)) };
        let rest = body.split_off(room.min(body.len()));
        out.extend_from_slice(body.as_bytes());
        self.body = (!rest.is_empty()).then_some(rest);
        Poll::Ready(Ok(true))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, TransportError>> {
        Poll::Ready(Ok(0))
    }
}

impl Script {
    fn new(answers: &[(u16, &str)]) -> Script {
        let answers = answers.iter().map(|(status, body)| (*status, (*body).to_owned()));
        Script { answers: Mutex::new(answers.collect()), ..Script::default() }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Transport for Script {
    type Response = Scripted;

    async fn request(&self, request: HttpRequest<'_>) -> Result<Scripted, TransportError> {
        let HttpRequest { method, origin, target, fields, body, .. } = request;
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let method = if method == HttpMethod::Post { "POST" } else { "GET" };
        let body = str::from_utf8(body).unwrap();
        let line = format!("{method} {origin}{target} {} {body}", fields.join(" "));
        self.requests.lock().unwrap().push(line);
        std::future::poll_fn(|_| match self.is_held.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
        let answer = self.answers.lock().unwrap().pop_front();
        let (status, body) = answer.ok_or_else(|| TransportError::Connect("no more".to_owned()))?;
        Ok(Scripted { status, body: Some(body) })
    }

    async fn sleep_until(&self, due_ms: u64) {
        self.now_ms.store(due_ms, Ordering::Relaxed);
    }

    fn now(&self) -> Now {
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        Now { mono_ms: now_ms, unix_ms: 1_000_000 + now_ms }
    }

    fn random(&self) -> u128 {
        0
    }
}

/// The script answers at once, so a future is ready at its first poll.
fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is pending"),
    }
}

fn url(text: &str) -> HttpUrl {
    HttpOrigin::parse(text).unwrap()
}

fn server() -> AuthorizationServer {
    AuthorizationServer {
        token_url: url("https://as/token"),
        device_url: Some(url("https://as/device")),
    }
}

fn client() -> OAuthClient {
    OAuthClient {
        secret: Some(Secret::new("s e:c")),
        scopes: vec!["a".to_owned(), "b".to_owned()],
        ..OAuthClient::new("i d", OAuthSource::Server(server()))
    }
}

fn limits() -> ClientLimits {
    ClientLimits::default()
}

const NOW: Now = Now { mono_ms: 0, unix_ms: 1_000_000 };

#[test]
fn client_authenticates_in_header_or_body() {
    let request = client().client_credentials(&server()).unwrap();
    assert_eq!(request.body, "grant_type=client_credentials&scope=a+b");
    let fields = str::from_utf8(request.fields.get().lines()).unwrap().to_owned();
    // The base64 text of "i+d:s+e%3Ac".
    assert!(fields.contains("Authorization: Basic aStkOnMrZSUzQWM=\r\n"), "{fields}");
    let in_body = OAuthClient { authenticates_in_body: true, ..client() };
    let request = in_body.client_credentials(&server()).unwrap();
    assert!(request.body.ends_with("&client_id=i+d&client_secret=s+e%3Ac"), "{}", request.body);
    assert!(!format!("{request:?} {in_body:?}").contains("s e:c"));
    let public = OAuthClient { secret: None, ..client() };
    assert_eq!(public.client_credentials(&server()), Err(OAuthError::NoSecret));
    let request = public.device_authorization(&server()).unwrap();
    assert_eq!(
        (request.url, request.body.as_str()),
        (url("https://as/device"), "scope=a+b&client_id=i+d")
    );
    let code = Secret::new("dc");
    let request = public.device_token(&server(), &code).unwrap();
    let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code&device_code=dc";
    assert_eq!(request.body, format!("{grant}&client_id=i+d"));
    let without = AuthorizationServer { device_url: None, ..server() };
    assert_eq!(public.device_authorization(&without), Err(OAuthError::NoDeviceFlow));
}

#[test]
fn client_secret_over_remote_http_needs_permission() {
    let at = |token_url: &str| AuthorizationServer { token_url: url(token_url), device_url: None };
    let error = client().client_credentials(&at("http://as/token")).unwrap_err();
    assert_eq!(error, OAuthError::PlainHttp(url("http://as/").origin));
    assert!(client().client_credentials(&at("http://127.0.0.1:1/token")).is_ok());
    let allows = OAuthClient { allows_plain_http: true, ..client() };
    assert!(allows.client_credentials(&at("http://as/token")).is_ok());
    let source = OAuthSource::Issuer(url("http://as/"));
    let plain = OAuthClient { source, ..client() };
    let script = Script::new(&[]);
    let error = run(resolve_server(&script, &plain, &limits())).unwrap_err();
    assert!(matches!(error, OAuthError::PlainHttp(_)) && script.requests().is_empty());
}

#[test]
fn token_response_is_read_with_expiry() {
    let read = |body: &str| read_token(200, body.as_bytes(), NOW);
    let token = read(r#"{"access_token":"t","token_type":"bearer","expires_in":3600}"#).unwrap();
    assert_eq!((token.access.expose(), token.refresh.clone()), ("t", None));
    assert_eq!(token.expires_at_unix_ms, Some(4_600_000));
    assert!(token.is_fresh(NOW));
    assert!(token.is_fresh(Now { mono_ms: 0, unix_ms: 4_569_999 }));
    assert!(!token.is_fresh(Now { mono_ms: 0, unix_ms: 4_570_000 }));
    let brief = read(r#"{"access_token":"t","expires_in":"10","refresh_token":"r"}"#).unwrap();
    assert_eq!((brief.renew_at_unix_ms, brief.refresh.is_some()), (Some(1_005_000), true));
    let endless = read(r#"{"access_token":"t","token_type":"Bearer"}"#).unwrap();
    assert!(endless.is_fresh(Now { mono_ms: 0, unix_ms: u64::MAX }));
    for body in ["", "[]", "{}", r#"{"access_token":""}"#, r#"{"access_token":"a\nb"}"#] {
        assert!(matches!(read(body), Err(OAuthError::Unreadable(_))), "{body}");
    }
    let mac = read(r#"{"access_token":"t","token_type":"mac"}"#).unwrap_err();
    assert_eq!(mac, OAuthError::Unreadable("token_type is not Bearer"));
}

#[test]
fn oauth_error_codes_are_mapped_to_errors() {
    let read = |status, body: &str| read_token(status, body.as_bytes(), NOW).unwrap_err();
    for (code, error) in [
        ("authorization_pending", OAuthError::Pending),
        ("slow_down", OAuthError::SlowDown),
        ("access_denied", OAuthError::Denied),
        ("expired_token", OAuthError::Expired),
    ] {
        assert_eq!(read(400, &format!(r#"{{"error":"{code}"}}"#)), error);
        assert_eq!(read(200, &format!(r#"{{"error":"{code}"}}"#)), error);
    }
    let refused = read(401, r#"{"error":"invalid_client","error_description":"no\u001b[2J"}"#);
    let description = "no[2J".to_owned();
    assert_eq!(refused, OAuthError::Refused { code: "invalid_client".to_owned(), description });
    assert_eq!(read(503, "busy"), OAuthError::Status(503));
    assert_eq!(read(302, ""), OAuthError::Status(302));
}

#[test]
fn issuer_metadata_is_read_from_either_well_known_url() {
    let issuer = url("https://as/realms/x/");
    let source = OAuthSource::Issuer(issuer.clone());
    let client = OAuthClient { source, ..client() };
    let metadata = r#"{"issuer":"https://as/realms/x","token_endpoint":"https://t/token",
        "device_authorization_endpoint":"https://t/device"}"#;
    let script = Script::new(&[(404, ""), (200, metadata)]);
    let found = run(resolve_server(&script, &client, &limits())).unwrap();
    assert_eq!(found.token_url, url("https://t/token"));
    assert_eq!(found.device_url, Some(url("https://t/device")));
    let requests = script.requests();
    assert!(requests[0].contains(" https://as/.well-known/oauth-authorization-server/realms/x "));
    assert!(requests[1].contains(" https://as/realms/x/.well-known/openid-configuration "));
    let read = |body: &str| read_metadata(body.as_bytes(), &issuer).unwrap_err();
    let other = r#"{"issuer":"https://evil/","token_endpoint":"https://t/"}"#;
    assert_eq!(read(other), OAuthError::Issuer("https://evil/".to_owned()));
    let plain = r#"{"issuer":"https://as/realms/x","token_endpoint":"http://t/"}"#;
    assert!(matches!(read(plain), OAuthError::PlainHttp(_)));
    for body in ["", "{}", r#"{"issuer":"https://as/realms/x"}"#] {
        assert!(matches!(read(body), OAuthError::Unreadable(_)), "{body}");
    }
}

#[test]
fn device_flow_polls_until_token_denial_or_expiry() {
    let body = r#"{"device_code":"dc","user_code":"AB-CD","verification_uri":"https://v/",
        "verification_uri_complete":"https://v/?c=AB-CD","expires_in":600,"interval":2}"#;
    let code = read_device_code(200, body.as_bytes()).unwrap();
    assert_eq!(
        (code.user_code.as_str(), code.interval_ms, code.life_ms),
        ("AB-CD", 2_000, 600_000)
    );
    assert!(!format!("{code:?}").contains("\"dc\""));
    let script = Script::new(&[
        (400, r#"{"error":"authorization_pending"}"#),
        (400, r#"{"error":"slow_down"}"#),
        (200, r#"{"access_token":"t"}"#),
    ]);
    let token = run(poll_device(&script, &client(), &server(), &code, &limits())).unwrap();
    assert_eq!(token.access.expose(), "t");
    // 2 s, 2 s, and 7 s after `slow_down`.
    assert_eq!(script.now().mono_ms, 11_000);
    let script = Script::new(&[(400, r#"{"error":"access_denied"}"#)]);
    let denied = run(poll_device(&script, &client(), &server(), &code, &limits()));
    assert_eq!(denied.unwrap_err(), OAuthError::Denied);
    // No server answers: the client polls less and less often, and stops when the codes expire.
    let script = Script::new(&[]);
    let expired = run(poll_device(&script, &client(), &server(), &code, &limits()));
    assert_eq!(expired.unwrap_err(), OAuthError::Expired);
    assert!(script.requests().len() < 20);
    for body in ["{}", r#"{"device_code":"d","user_code":"u","verification_uri":"javascript:x"}"#] {
        assert!(read_device_code(200, body.as_bytes()).is_err());
    }
}

#[test]
fn concurrent_callers_share_one_token_request() {
    let script = Script::new(&[(200, r#"{"access_token":"t","expires_in":100}"#)]);
    script.is_held.store(true, Ordering::Relaxed);
    let (cache, client, limits) = (TokenCache::default(), client(), limits());
    let mut first = pin!(cache.token(&script, &client, &limits));
    let mut second = pin!(cache.token(&script, &client, &limits));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(second.as_mut().poll(&mut cx).is_pending());
    script.is_held.store(false, Ordering::Relaxed);
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert!(first.as_mut().poll(&mut cx).is_ready());
    let Poll::Ready(Ok(held)) = second.as_mut().poll(&mut cx) else { panic!("no token") };
    assert_eq!(held.fields().lines(), b"Authorization: Bearer t\r\n");
    assert_eq!(script.requests().len(), 1);
    // The token is used until shortly before it expires, or until the server rejects it.
    assert!(run(cache.token(&script, &client, &limits)).is_ok());
    cache.forget(&held);
    assert!(run(cache.token(&script, &client, &limits)).is_err());
    assert_eq!(script.requests().len(), 2);
}

#[test]
fn waiting_caller_fetches_after_first_is_dropped() {
    let script = Script::new(&[(200, r#"{"access_token":"t"}"#)]);
    script.is_held.store(true, Ordering::Relaxed);
    let (cache, client, limits) = (TokenCache::default(), client(), limits());
    let mut cx = Context::from_waker(Waker::noop());
    let mut second = pin!(cache.token(&script, &client, &limits));
    {
        let mut first = pin!(cache.token(&script, &client, &limits));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
    }
    script.is_held.store(false, Ordering::Relaxed);
    assert!(second.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn a_token_is_renewed_before_it_expires() {
    let answers = [
        (200, r#"{"access_token":"1","expires_in":100,"refresh_token":"r1"}"#),
        (200, r#"{"access_token":"2","expires_in":100}"#),
        (400, r#"{"error":"invalid_grant"}"#),
        (200, r#"{"access_token":"3"}"#),
    ];
    let script = Script::new(&answers);
    let (cache, client, limits) = (TokenCache::default(), client(), limits());
    let token = || run(cache.token(&script, &client, &limits)).unwrap().token.access.clone();
    assert_eq!(token().expose(), "1");
    script.now_ms.store(69_999, Ordering::Relaxed);
    assert_eq!(token().expose(), "1");
    script.now_ms.store(70_000, Ordering::Relaxed);
    assert_eq!(token().expose(), "2");
    script.now_ms.store(150_000, Ordering::Relaxed);
    assert_eq!(token().expose(), "3");
    let requests = script.requests();
    assert!(requests[1].contains("refresh_token=r1") && requests[2].contains("refresh_token=r1"));
    assert!(requests[3].contains("client_credentials"));
}

#[test]
fn token_response_is_bounded_and_error_hides_secret() {
    let long = format!(r#"{{"access_token":"{}"}}"#, "x".repeat(256 * 1024));
    let script = Script::new(&[(200, &long)]);
    let error = run(fetch_token(&script, &client(), &limits())).unwrap_err();
    assert_eq!(error, OAuthError::Transport(TransportError::TooLarge("DOCUMENT_BYTES_MAX")));
    let echo = r#"{"error":"invalid_client","error_description":"wrong: s e:c"}"#;
    let script = Script::new(&[(401, echo)]);
    let error = run(fetch_token(&script, &client(), &limits())).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s e:c"), "{error}");
}

#[test]
fn error_hides_truncated_or_encoded_secret() {
    let secret = "correct-horse-battery-staple";
    let client = OAuthClient { secret: Some(Secret::new(secret)), ..client() };
    let basic = crate::json::base64::encode(format!("{}:{secret}", client.id).as_bytes());
    let cut = format!("{}{secret}", "x".repeat(232));
    let descriptions =
        [cut, format!("the field was Basic {basic}"), format!("{}{basic}", "x".repeat(230))];
    for description in descriptions {
        let echo = serde_json::json!({"error": "invalid_client", "error_description": description});
        let script = Script::new(&[(401, &echo.to_string())]);
        let error = run(fetch_token(&script, &client, &limits())).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains("correct") && !text.contains(&basic[..8]), "{text}");
    }
    let echo = format!(r#"{{"error":"{}{secret}"}}"#, "x".repeat(48));
    let script = Script::new(&[(401, &echo)]);
    let error = run(fetch_token(&script, &client, &limits())).unwrap_err();
    assert!(!format!("{error:?}").contains("correct"), "{error:?}");
}
