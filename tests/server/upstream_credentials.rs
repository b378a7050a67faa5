//! How a gateway authenticates to its upstream agents: OAuth tokens and client certificates.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use peregrine::json::base64;
use ring::hmac;
use serde_json::{Value, json};

use crate::certificates::Authority;
use crate::support::{
    ask::{V1, post, rpc, say, text_of},
    binary::{Binary, eventually},
    by_hand::{ByHand, answer},
    reply::Reply,
};

/// The secret that the issuer and its servers share.
const SECRET: &str = "a-secret-of-thirty-two-bytes-ok!";
/// `gateway:hidden-secret` in base64.
const BASIC: &str = "Basic Z2F0ZXdheTpoaWRkZW4tc2VjcmV0";

/// A token of the issuer for `name`, valid for this long.
pub fn token(name: &str, lives_s: i64) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({"iss": "https://issuer.example", "sub": name,
        "exp": now_s.saturating_add_signed(lives_s), "scope": "a2a:send a2a:read a2a:cancel"});
    let part = |value: Value| base64url(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(json!({"alg": "HS256", "typ": "JWT"})), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    format!("{signed}.{}", base64url(hmac::sign(&key, signed.as_bytes()).as_ref()))
}

fn base64url(bytes: &[u8]) -> String {
    base64::encode(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// A file of a test, deleted on drop.
pub struct TestFile(pub PathBuf);

impl TestFile {
    pub fn new(name: &str, text: &str) -> TestFile {
        let path = std::env::temp_dir().join(format!("peregrine-{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        TestFile(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A server with this configuration and these flags.
pub fn configured(test: &str, text: &str, flags: &[&str]) -> Binary {
    let file = TestFile::new(test, text);
    Binary::start_plain(&[&["--config", file.path()], flags].concat())
}

/// An agent that needs a token of the issuer.
pub fn guarded(test: &str) -> Binary {
    let text = format!(
        "[auth]\nask_scopes = true\n[[auth.issuers]]\nissuer = \"https://issuer.example\"\n\
         secret = \"{SECRET}\"\n[agents.echo]\nkind = \"echo\"\n"
    );
    configured(test, &text, &[])
}

/// A token endpoint that returns `token` of the number of the request.
fn token_endpoint(token: impl Fn(usize) -> Value + Send + Sync + 'static) -> ByHand {
    let requests = AtomicUsize::new(0);
    ByHand::new(move |request, stream| {
        let is_client = request.head.lines().any(|line| line == format!("Authorization: {BASIC}"));
        let answered = match is_client {
            true => {
                let body = token(requests.fetch_add(1, Relaxed)).to_string();
                answer("200 OK", "application/json", &body)
            }
            false => answer("401 No", "application/json", r#"{"error":"invalid_client"}"#),
        };
        stream.write_all(answered.as_bytes()).unwrap();
    })
}

/// The keys of `upstream` for a client of a token endpoint.
fn oauth_keys(endpoint: &ByHand, secret: &str) -> String {
    format!(
        "token_url = \"http://{}/token\"\nclient_id = \"gateway\"\nclient_secret = \"{secret}\"\n\
         scopes = [\"a2a:send\"]\n",
        endpoint.addr
    )
}

fn gateway(test: &str, upstream: &Binary, keys: &str) -> Binary {
    let url = format!("http://{}", upstream.addr());
    let text = format!("[agents.remote.upstream]\nurl = \"{url}\"\n{keys}");
    configured(test, &text, &["--workers", "2"])
}

pub fn send(server: &Binary, fields: &[(&str, &str)], text: &str) -> Reply {
    let fields = [&[("A2A-Version", "1.0")], fields].concat();
    let mut line = server.connect();
    line.write(&post("/", &fields, &rpc(V1.send(), &V1.params(say(text)))));
    line.reply()
}

fn assert_pong(server: &Binary) {
    let reply = send(server, &[], "ping");
    assert!(reply.text().contains("pong"), "{}", reply.text());
}

#[test]
fn one_oauth_token_serves_all_workers_of_a_gateway() {
    let endpoint = token_endpoint(|_| {
        let token = token("gateway", 600);
        json!({"access_token": token, "token_type": "Bearer", "expires_in": 600})
    });
    let upstream = guarded("oauth-agent");
    assert_eq!(send(&upstream, &[], "ping").status, 401);
    let gateway = gateway("oauth", &upstream, &oauth_keys(&endpoint, "hidden-secret"));
    // Each on its own connection, so that every worker gets some.
    for _ in 0..16 {
        assert_pong(&gateway);
    }
    assert!(endpoint.request().head.starts_with("POST /token "));
    assert!(!endpoint.has_request());
}

#[test]
fn a_rejected_oauth_token_is_replaced_once() {
    let tokens = [token("gateway", -600), token("gateway", 600)];
    let endpoint = token_endpoint(
        move |number| json!({"access_token": tokens[number.min(1)], "expires_in": 600}),
    );
    let upstream = guarded("oauth-again-agent");
    let gateway = gateway("oauth-again", &upstream, &oauth_keys(&endpoint, "hidden-secret"));
    assert_pong(&gateway);
    assert_pong(&gateway);
    let fetched = [endpoint.has_request(), endpoint.has_request(), endpoint.has_request()];
    assert_eq!(fetched, [true, true, false]);
}

#[test]
fn oauth_token_is_renewed_before_it_expires() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let endpoint = token_endpoint(move |_| {
        count.fetch_add(1, Relaxed);
        // The token itself lasts longer: the agent never answers with 401.
        json!({"access_token": token("gateway", 600), "expires_in": 1})
    });
    let upstream = guarded("oauth-renewed-agent");
    let gateway = gateway("oauth-renewed", &upstream, &oauth_keys(&endpoint, "hidden-secret"));
    eventually("another token is fetched", || {
        assert_pong(&gateway);
        requests.load(Relaxed) > 1
    });
}

#[test]
fn failed_oauth_token_request_is_reported_without_secret() {
    let endpoint = token_endpoint(|_| json!({"access_token": "unused"}));
    let upstream = guarded("oauth-refused-agent");
    let gateway = gateway("oauth-refused", &upstream, &oauth_keys(&endpoint, "wrong-secret"));
    let reply = send(&gateway, &[], "ping");
    assert!(reply.text().contains("invalid_client"), "{}", reply.text());
    assert!(!reply.text().contains("wrong-secret"), "{}", reply.text());
}

#[test]
fn http_function_receives_an_oauth_token() {
    let endpoint =
        token_endpoint(|number| json!({"access_token": format!("t-{number}"), "expires_in": 600}));
    let function = ByHand::new(|request, stream| {
        let is_second = request.head.lines().any(|line| line == "Authorization: Bearer t-1");
        let answered = match is_second {
            true => answer("200 OK", "application/json", r#"{"message":"done"}"#),
            false => answer("401 No", "text/plain", ""),
        };
        stream.write_all(answered.as_bytes()).unwrap();
    });
    let keys = oauth_keys(&endpoint, "hidden-secret");
    let text = format!(
        "[agents.a]\nkind = \"http\"\n[agents.a.upstream]\nurl = \"http://{}/\"\n{keys}",
        function.addr
    );
    let server = configured("oauth-function", &text, &[]);
    for _ in 0..2 {
        assert_eq!(text_of(&send(&server, &[], "hi").result()["message"]), "done");
    }
    let fetched = [endpoint.has_request(), endpoint.has_request(), endpoint.has_request()];
    assert_eq!(fetched, [true, true, false]);
}

#[test]
fn gateway_presents_client_certificate_to_upstream() {
    let authority = Authority::new("upstream");
    let (cert, client) = (authority.server("server"), authority.client("gateway", Some("g"), &[]));
    let [ca, cert, key, client_cert, client_key] =
        [&authority.file(), &cert.cert_file, &cert.key_file, &client.cert_file, &client.key_file]
            .map(|file| file.to_str().unwrap().to_owned());
    let flags = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca];
    let upstream = Binary::start_with(&flags, Stdio::inherit());
    let url = format!("https://{}", upstream.addr());
    let with = |test: &str, keys: &str| {
        let text = format!("[agents.remote.upstream]\nurl = \"{url}\"\n{keys}");
        configured(test, &text, &[])
    };
    let identity = format!("cert = \"{client_cert}\"\nkey = \"{client_key}\"\n");
    let ca = format!("ca = \"{ca}\"\n");
    assert_pong(&with("mtls", &format!("{ca}{identity}")));
    for (test, keys) in [("mtls-no-ca", &identity), ("mtls-no-cert", &ca)] {
        let reply = send(&with(test, keys), &[], "ping");
        assert!(!reply.text().contains("pong"), "{}", reply.text());
    }
}

/// The keys of an upstream agent that forwards `Authorization`.
const PASS: &str = "pass_authorization = true\n";

/// The fields of a call with this credential.
fn as_caller(token: &str) -> [(&str, &str); 1] {
    [("Authorization", token)]
}

#[test]
fn forwarded_authorization_authenticates_the_caller_upstream() {
    let upstream = guarded("pass-agent");
    let bearer = format!("Bearer {}", token("alice", 600));
    let caller = as_caller(&bearer);
    let passes = gateway("pass", &upstream, PASS);
    let reply = send(&passes, &caller, "ping");
    assert!(reply.text().contains("pong"), "{}", reply.text());
    let refused = send(&passes, &[], "ping");
    assert!(
        refused.text().contains("the upstream agent rejected the caller"),
        "{}",
        refused.text()
    );
    let mut line = passes.connect();
    let message = V1.params(say("ping")).to_string();
    line.write(&post("/message:send", &[("A2A-Version", "1.0")], &message));
    assert_eq!(line.reply().status, 401);
    let refused = send(&gateway("pass-off", &upstream, ""), &caller, "ping");
    assert!(!refused.text().contains("pong"), "{}", refused.text());
}

#[test]
fn cancel_forwards_the_credential_of_its_own_caller() {
    let upstream = guarded("pass-cancel-agent");
    let gateway = gateway("pass-cancel", &upstream, PASS);
    let bearer = format!("Bearer {}", token("alice", 600));
    let call = |fields: &[(&str, &str)], method: &str, params: &Value| {
        let fields = [&[("A2A-Version", "1.0")], fields].concat();
        let mut line = gateway.connect();
        line.write(&post("/", &fields, &rpc(method, params)));
        line
    };
    let mut stream = call(&as_caller(&bearer), V1.stream(), &V1.params(say("hold:600000:1")));
    stream.read_until("TASK_STATE_SUBMITTED");
    let id = stream.peek().unwrap().events()[0].result()["task"]["id"].clone();
    let refused = call(&[], V1.cancel(), &json!({"id": id})).reply();
    assert!(refused.text().contains("the upstream agent rejected"), "{}", refused.text());
    let canceled = call(&as_caller(&bearer), V1.cancel(), &json!({"id": id})).reply();
    assert_eq!(canceled.result()["status"]["state"], "TASK_STATE_CANCELED", "{}", canceled.text());
}

#[test]
fn only_authorization_is_forwarded_and_only_if_enabled() {
    let fields = [
        ("Authorization", "Basic YTpi"),
        ("Cookie", "a=hidden-1"),
        ("X-API-Key", "hidden-2"),
        ("Proxy-Authorization", "hidden-3"),
    ];
    let function = ByHand::new(|_, stream| {
        let answered = answer("200 OK", "application/json", r#"{"message":"done"}"#);
        stream.write_all(answered.as_bytes()).unwrap();
    });
    let url = format!("http://{}/", function.addr);
    for (test, keys) in [("pass-function", PASS), ("pass-function-off", "")] {
        let text =
            format!("[agents.a]\nkind = \"http\"\n[agents.a.upstream]\nurl = \"{url}\"\n{keys}");
        assert_eq!(send(&configured(test, &text, &[]), &fields, "hi").status, 200);
        let request = function.request();
        let is_passed = request.head.lines().any(|line| line == "Authorization: Basic YTpi");
        assert_eq!(is_passed, !keys.is_empty(), "{}", request.head);
        let whole = format!("{}{}", request.head, request.body);
        assert!(!whole.contains("hidden") && !request.body.to_string().contains("YTpi"), "{whole}");
    }
}

#[test]
fn pass_authorization_without_auth_logs_a_warning() {
    let table = format!("[agents.r.upstream]\nurl = \"http://127.0.0.1:1\"\n{PASS}");
    let auth = format!(
        "[auth]\n[[auth.issuers]]\nissuer = \"https://issuer.example\"\nsecret = \"{SECRET}\"\n"
    );
    for (test, auth, is_warned) in [("warned", "", true), ("unwarned", auth.as_str(), false)] {
        let config = TestFile::new(&format!("pass-{test}"), &format!("{auth}{table}"));
        let log = TestFile::new(&format!("pass-{test}-said"), "");
        let stderr = fs::File::create(&log.0).unwrap();
        let server = Binary::start_with(&["--config", config.path()], stderr.into());
        drop(server);
        let log = fs::read_to_string(&log.0).unwrap();
        assert_eq!(log.contains("pass_authorization without [auth]"), is_warned, "{log}");
    }
}
