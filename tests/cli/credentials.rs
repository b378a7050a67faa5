//! Credentials: where they are sent, what the output shows of them, and how the client obtains
//! them.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use crate::{
    agent::echo,
    certificates::Authority,
    fake::{Fake, ReceivedRequest, card, ok, status},
    run::{User, assert_floor, field},
    support::binary::Binary,
};

fn message(request: &ReceivedRequest) -> Vec<u8> {
    request.result(&json!({ "message": {
        "messageId": "m-1", "role": "ROLE_AGENT", "parts": [{ "text": "hello" }],
    } }))
}

/// An agent with these members in its card, which answers every caller.
fn agent(members: Value) -> Fake {
    Fake::start(move |request, _, url| match request.rpc() {
        "" => ok("application/json", &card(url, &members)),
        _ => message(request),
    })
}

fn scheme(name: &str, scheme: Value) -> Value {
    json!({
        "securitySchemes": { name: scheme },
        "securityRequirements": [{ "schemes": { name: { "list": [] } } }],
    })
}

/// The fields and the target of the last call.
fn last(fake: &Fake) -> ReceivedRequest {
    fake.requests().into_iter().rfind(|request| request.method == "POST").unwrap()
}

#[test]
fn credentials_are_sent_as_the_card_declares() {
    let bearer = agent(scheme("b", json!({ "httpAuthSecurityScheme": { "scheme": "Bearer" } })));
    User::of(&bearer.url).with("A2ACLI_BEARER", "t-1").ok(&["send", "x"]);
    assert_eq!(last(&bearer).field("authorization"), Some("Bearer t-1"));
    User::of(&bearer.url).with("A2ACLI_BEARER", "t-1").ok(&["send", "x", "--bearer", "t-2"]);
    assert_eq!(last(&bearer).field("authorization"), Some("Bearer t-2"));
    let basic = agent(scheme("b", json!({ "httpAuthSecurityScheme": { "scheme": "Basic" } })));
    User::of(&basic.url).ok(&["send", "x", "--basic", "me:pass"]);
    assert_eq!(last(&basic).field("authorization"), Some("Basic bWU6cGFzcw=="));
    for location in ["header", "query", "cookie"] {
        let key = json!({ "apiKeySecurityScheme": { "location": location, "name": "x-a" } });
        let fake = agent(scheme("k", key));
        User::of(&fake.url).with("A2ACLI_API_KEY", "k-1").ok(&["send", "x"]);
        let request = last(&fake);
        let is_there = match location {
            "header" => request.field("x-a") == Some("k-1"),
            "query" => request.target.ends_with("?x-a=k-1"),
            _ => request.field("cookie") == Some("x-a=k-1"),
        };
        assert!(is_there, "{location}: {request:?}");
        // The card itself is public: the request has no credential.
        let card = &fake.requests()[0];
        assert!(card.field("x-a").is_none() && card.field("cookie").is_none(), "{card:?}");
        assert!(!card.target.contains("k-1"), "{card:?}");
    }
    // A card that requires a key gets no token, and nothing is sent without the key.
    let key = json!({ "apiKeySecurityScheme": { "location": "header", "name": "x-a" } });
    let fake = agent(scheme("k", key));
    let user = User::of(&fake.url).with("A2ACLI_BEARER", "t-1");
    let error = user.failure(&["send", "x"], "A2ACLI_ERR_CREDENTIALS_MISSING", 4);
    assert!(error["hint"].as_str().unwrap().contains("A2ACLI_API_KEY"), "{error}");
    assert!(fake.requests().iter().all(|request| request.method == "GET"));
}

#[test]
fn credentials_without_effect_give_a_warning() {
    let bearer = || scheme("b", json!({ "httpAuthSecurityScheme": { "scheme": "Bearer" } }));
    let both = json!({ "securitySchemes": {
        "b": { "httpAuthSecurityScheme": { "scheme": "Bearer" } },
        "k": { "apiKeySecurityScheme": { "location": "header", "name": "x-a" } },
    } });
    const KEY: &[&str] = &["--api-key", "k-1"];
    const BEARER: &[&str] = &["--bearer", "t-1"];
    const OWN: &[&str] = &["--svc-param", "authorization:own"];
    let no_scheme = "is not sent: the card has no scheme for it";
    for (members, flags, warned) in [
        (json!({}), [KEY, &[]], format!("--api-key {no_scheme}")),
        (bearer(), [KEY, BEARER], format!("--api-key {no_scheme}")),
        (bearer(), [BEARER, &["--basic", "me:pass"]], format!("--basic {no_scheme}")),
        (
            both,
            [KEY, BEARER],
            "--api-key is not sent: another credential is sent, which the card accepts as well"
                .to_owned(),
        ),
        (
            bearer(),
            [BEARER, OWN],
            "--bearer is not sent: --svc-param authorization replaces it".to_owned(),
        ),
        (bearer(), [BEARER, &[]], String::new()),
        (json!({}), [BEARER, &[]], String::new()),
    ] {
        let fake = agent(members);
        let words = [&["send", &fake.url, "x", "-o", "json"], flags[0], flags[1]].concat();
        let output = User::new().ok(&words);
        output.document();
        let lines: Vec<&str> = output.err.lines().collect();
        let expected = format!("peregrine: warning: {warned}");
        let expected = if warned.is_empty() { vec![] } else { vec![expected.as_str()] };
        assert_eq!(lines, expected, "{words:?}");
    }
    // Under the name of its variable.
    let user = User::of(&agent(json!({})).url).with("A2ACLI_API_KEY", "k-1");
    let output = user.ok(&["send", "x"]);
    assert!(output.err.contains("A2ACLI_API_KEY in the environment is not sent"), "{output:?}");
}

#[test]
fn unavailable_requested_binding_gives_a_warning() {
    let fake = agent(json!({}));
    let stderr = |user: User, words: &[&str]| {
        let words = [&["send", &fake.url, "x"], words].concat();
        user.ok(&words).err
    };
    let line = "peregrine: warning: --transport: the card has no grpc that can be called here; \
                jsonrpc is used\n";
    let flags = ["--transport", "grpc", "--transport", "jsonrpc"];
    assert_eq!(stderr(User::new(), &flags), line);
    assert_eq!(stderr(User::new(), &flags[..2]), line);
    assert_eq!(stderr(User::new(), &[flags[2], flags[3], flags[0], flags[1]]), "");
    // A list for many agents is applied as well.
    let standing = |list| User::new().with("A2ACLI_TRANSPORT", list);
    assert_eq!(stderr(standing("grpc,jsonrpc"), &[]), "");
    assert!(stderr(standing("grpc,rest"), &[]).contains("no grpc, http+json that can"));
}

#[test]
fn masking_a_short_secret_leaves_other_text_readable() {
    for (location, shown) in
        [("header", "> x-a: ***\n"), ("query", "?x-a=***\n"), ("cookie", "> Cookie: ***\n")]
    {
        let key = json!({ "apiKeySecurityScheme": { "location": location, "name": "x-a" } });
        let fake = agent(scheme("k", key));
        let words = ["send", &fake.url, "x", "--api-key", "a", "--svc-param", "x-b:e", "--debug"];
        let output = User::new().ok(&words);
        assert!(output.err.contains(shown) && output.err.contains("> x-b: ***\n"), "{output:?}");
        assert!(output.err.contains("\"method\":\"SendMessage\""), "{output:?}");
        assert!(output.err.contains("\"text\":\"hello\""), "{output:?}");
    }
    let fake = agent(json!({}));
    let output = User::new().ok(&["send", &fake.url, "x", "--bearer", "a", "--debug"]);
    assert!(output.err.contains("> Authorization: ***\n"), "{output:?}");
    assert!(output.err.contains("> Accept: application/json\n"), "{output:?}");
}

#[test]
fn secret_repeated_in_an_agent_error_is_masked() {
    let fake = Fake::start(|request, _, url| match request.rpc() {
        "" => ok("application/json", &card(url, &json!({}))),
        _ => {
            let token = request.field("authorization").and_then(|value| value.split(' ').nth(1));
            let line = format!("nobody has {}", token.unwrap_or_default());
            let error = json!({ "code": -32602, "message": line });
            let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
            ok("application/json", &body.to_string())
        }
    });
    let user = User::of(&fake.url);
    let own = "Authorization: Bearer hidden-token";
    for words in [["--bearer", "hidden-token"], ["--svc-param", own]] {
        let words = [&["send", "x"], &words[..]].concat();
        let output = user.run(&words);
        assert!(
            output.err.contains("nobody has ***") && !output.err.contains("hidden"),
            "{output:?}"
        );
        let output = user.run(&[&words[..], &["-o", "json"]].concat());
        assert!(
            output.out.contains("nobody has ***") && !output.out.contains("hidden"),
            "{output:?}"
        );
        let output = user.run(&[&words[..], &["--debug"]].concat());
        assert!(
            output.err.contains("nobody has ***") && !output.err.contains("hidden"),
            "{output:?}"
        );
    }
}

#[test]
fn rejected_and_missing_credentials_give_different_errors() {
    let fake = Fake::start(|request, _, url| match request.rpc() {
        "" => ok("application/json", &card(url, &json!({}))),
        _ => status("401 Unauthorized", "text/plain", "no"),
    });
    let user = User::of(&fake.url);
    user.failure(&["send", "x"], "A2ACLI_ERR_CREDENTIALS_MISSING", 4);
    user.failure(&["send", "x", "--bearer", "t"], "A2ACLI_ERR_AUTH_FAILED", 4);
}

#[test]
fn interface_tenant_is_sent_with_the_call() {
    for tenant in [None, Some("acme")] {
        let fake = Fake::start(move |request, _, url| match request.rpc() {
            "" => {
                let mut interface = json!({
                    "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0",
                });
                if let Some(tenant) = tenant {
                    interface["tenant"] = json!(tenant);
                }
                ok("application/json", &card(url, &json!({ "supportedInterfaces": [interface] })))
            }
            _ => message(request),
        });
        User::of(&fake.url).ok(&["send", "x"]);
        let sent = last(&fake).body["params"]["tenant"].clone();
        assert_eq!(sent.as_str(), tenant);
        assert_eq!(last(&fake).field("a2a-version"), Some("1.0"));
    }
}

#[test]
fn required_extension_is_declared_in_the_request() {
    let uri = "https://extensions.example/one";
    let fake =
        agent(json!({ "capabilities": { "extensions": [{ "uri": uri, "required": true }] } }));
    User::of(&fake.url).ok(&["send", "x", "--extension", uri]);
    assert_eq!(last(&fake).field("a2a-extensions"), Some(uri));
    assert_eq!(last(&fake).body["params"]["message"]["extensions"], json!([uri]));
}

#[test]
fn activated_extensions_are_printed_except_over_websocket() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/conformance-1.0-extension.toml");
    let all = "jsonrpc,http+json,grpc,websocket";
    let agent = format!("script:{script}");
    let (_server, url) = echo(&["--agent", &agent, "--interfaces", all]);
    let uri = "urn:a2a:tck:required-extension";
    for binding in all.split(',') {
        let user = User::of(&url).with("A2ACLI_TRANSPORT", binding);
        let error = user.failure(&["send", "x"], "ExtensionSupportRequiredError", 1);
        assert_eq!(error["hint"], format!("--extension {uri}"), "{binding}");
        for how in ["--wait", "--async", "--stream"] {
            let words = ["send", "x", how, "--extension", uri, "--verbose", "--debug"];
            let output = user.ok(&words);
            assert_floor(&output.out);
            let activated = field(&output.out, "Activated extension");
            let has_head = binding != "websocket";
            assert_eq!(activated, has_head.then_some(uri), "{binding}: {output:?}");
            let is_shown = output.err.contains(&format!("< a2a-extensions: {uri}\n"));
            assert!(is_shown || !has_head, "{binding}: {output:?}");
        }
    }
}

#[test]
fn traceparent_is_forwarded_with_the_call() {
    let fake = agent(json!({}));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    User::of(&fake.url).ok(&["send", "x", "--traceparent", trace]);
    assert_eq!(last(&fake).field("traceparent"), Some(trace));
    User::of(&fake.url).with("A2ACLI_TRACEPARENT", trace).ok(&["send", "x"]);
    assert_eq!(last(&fake).field("traceparent"), Some(trace));
}

#[test]
fn service_parameters_are_sent_as_header_fields() {
    let fake = agent(json!({}));
    let words = ["send", "x", "--svc-param", "x-trace:a:b", "--svc-param", "x-other:c"];
    User::of(&fake.url).ok(&words);
    assert_eq!(last(&fake).field("x-trace"), Some("a:b"));
    assert_eq!(last(&fake).field("x-other"), Some("c"));
}

/// A server that requires client certificates, and the flags of a client that has one.
struct Secured {
    server: Binary,
    authority: String,
    identity: [String; 4],
}

impl Secured {
    fn start(test: &str) -> Secured {
        let authority = Authority::new(test);
        let (server, client) =
            (authority.server("server"), authority.client("client", Some("me"), &[]));
        let path = |path: &std::path::Path| path.display().to_string();
        let file = path(&authority.file());
        let (cert, key) = (path(&server.cert_file), path(&server.key_file));
        let flags = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &file];
        let server = Binary::start(&flags);
        let (cert, key) = (path(&client.cert_file), path(&client.key_file));
        let identity = ["--cert".to_owned(), cert, "--key".to_owned(), key];
        Secured { server, authority: file, identity }
    }

    /// `send` with these flags.
    fn send<'w>(&'w self, url: &'w str, flags: &[&'w str]) -> Vec<&'w str> {
        ["send", url, "hello"].into_iter().chain(flags.iter().copied()).collect()
    }

    fn identity(&self) -> Vec<&str> {
        self.identity.iter().map(String::as_str).collect()
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.server.addr().port())
    }
}

#[test]
fn mutual_tls_sends_the_client_certificate() {
    let secured = Secured::start("cli-mutual");
    let (user, url, identity) = (User::new(), secured.url(), secured.identity());
    let authority = ["--ca", secured.authority.as_str()];
    let words = secured.send(&url, &[&authority[..], &identity].concat());
    assert_eq!(user.ok(&words).block("Text"), "hello");
    user.failure(&secured.send(&url, &authority), "A2ACLI_ERR_UNREACHABLE", 3);
    // A certificate of an unknown authority is not trusted.
    user.failure(&secured.send(&url, &identity), "A2ACLI_ERR_UNREACHABLE", 3);
}

#[test]
fn insecure_flag_gives_a_warning() {
    let secured = Secured::start("cli-insecure");
    let (user, url, identity) = (User::new(), secured.url(), secured.identity());
    let flags = [&identity[..], &["--insecure"]].concat();
    let output = user.ok(&secured.send(&url, &flags));
    assert!(output.err.contains("certificates are not verified"), "{output:?}");
    assert!(!output.err.contains("SECURITY"), "{output:?}");
    let flags = [&flags[..], &["--bearer", "hidden"]].concat();
    let output = user.ok(&secured.send(&url, &flags));
    assert!(output.err.contains("SECURITY") && !output.err.contains("hidden"), "{output:?}");
}

/// An agent that requires a token of its own authorization server.
fn guarded() -> Fake {
    Fake::start(|request, number, url| match request.target.as_str() {
        "/device" => ok(
            "application/json",
            &json!({
                "device_code": "hidden-device", "user_code": "ABCD-EFGH",
                "verification_uri": "https://login.example/device", "expires_in": 60, "interval": 1,
            })
            .to_string(),
        ),
        "/token" if number == 1 => status(
            "400 Bad Request",
            "application/json",
            &json!({ "error": "authorization_pending" }).to_string(),
        ),
        "/token" => ok(
            "application/json",
            &json!({
                "access_token": "hidden-access", "token_type": "Bearer", "expires_in": 3600,
            })
            .to_string(),
        ),
        _ if request.method == "GET" => {
            let oauth = json!({ "oauth2SecurityScheme": { "flows": { "deviceCode": {
                "deviceAuthorizationUrl": format!("{url}/device"),
                "tokenUrl": format!("{url}/token"), "scopes": {},
            } } } });
            ok("application/json", &card(url, &scheme("o", oauth)))
        }
        _ if request.field("authorization") == Some("Bearer hidden-access") => {
            match request.body.to_string().contains("repeat it") {
                true => status("500 Internal Server Error", "text/plain", "not for hidden-access"),
                false => message(request),
            }
        }
        _ => status("401 Unauthorized", "text/plain", "no"),
    })
}

#[test]
fn client_credentials_token_is_stored_and_sent() {
    let fake = guarded();
    let user = User::of(&fake.url).with("A2ACLI_CLIENT_SECRET", "hidden-secret");
    let token = format!("{}/token", fake.url);
    let words = ["auth", "login", "--client-id", "me", "--token-url", &token, "--scope", "a b"];
    let output = user.ok(&words);
    assert_eq!(output.field("Token"), "kept");
    assert!(!output.out.contains("hidden") && !output.err.contains("hidden"), "{output:?}");
    let file = user.path("home/.config/a2a-cli/tokens.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let user = user.with("A2ACLI_CLIENT_SECRET", "");
    assert_eq!(user.ok(&["send", "x"]).block("Text"), "hello");
    let output = user.ok(&["send", "x", "--debug"]);
    assert!(
        output.err.contains("Authorization: ***") && !output.err.contains("hidden"),
        "{output:?}"
    );
    // Text that the agent repeats is not a secret of the user.
    for more in [&["--debug"][..], &["-o", "json"]] {
        let output = user.run(&[&["send", "repeat it"], more].concat());
        assert!(!output.err.contains("hidden") && !output.out.contains("hidden"), "{output:?}");
    }
    let output = user.run(&["send", "repeat it", "--debug"]);
    assert!(output.err.contains("not for ***"), "{output:?}");
    // A file that other users can read is rejected.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let error = user.failure(&["send", "x"], "A2ACLI_ERR_USAGE", 2);
    assert!(error["hint"].as_str().unwrap().starts_with("chmod 600"), "{error}");
}

#[test]
fn device_code_token_is_stored_and_sent() {
    let fake = guarded();
    let user = User::of(&fake.url);
    user.failure(&["auth", "login"], "A2ACLI_ERR_USAGE", 2);
    let fake = guarded();
    let user = User::of(&fake.url);
    let device = format!("{}/device", fake.url);
    let token = format!("{}/token", fake.url);
    let output = user.ok(&[
        "auth",
        "login",
        "--client-id",
        "me",
        "--token-url",
        &token,
        "--device-url",
        &device,
    ]);
    assert!(output.err.contains("Open: https://login.example/device"), "{output:?}");
    assert!(output.err.contains("Code: ABCD-EFGH"), "{output:?}");
    assert!(!output.err.contains("hidden") && !output.out.contains("hidden"), "{output:?}");
    assert_eq!(user.ok(&["send", "x"]).block("Text"), "hello");
}

#[test]
fn device_flow_of_the_card_rejects_a_client_secret() {
    let fake = guarded();
    let user = User::of(&fake.url);
    user.ok(&["auth", "login", "--client-id", "me"]);
    assert_eq!(user.ok(&["send", "x"]).block("Text"), "hello");
    let fake = guarded();
    let user = User::of(&fake.url).with("A2ACLI_CLIENT_SECRET", "hidden");
    let words = ["auth", "login", "--client-id", "me", "--flow", "device"];
    user.failure(&words, "A2ACLI_ERR_USAGE", 2);
    assert!(fake.requests().is_empty());
}

#[test]
fn unauthorized_card_request_hints_at_a_local_card_file() {
    let fake = Fake::start(|_, _, _| status("401 Unauthorized", "text/plain", "no"));
    let user = User::of(&fake.url).with("A2ACLI_BEARER", "hidden-token");
    let error = user.failure(&["send", "x"], "A2ACLI_ERR_CREDENTIALS_MISSING", 4);
    assert!(error["hint"].as_str().unwrap().contains("-a ./card.json"), "{error}");
    assert!(fake.requests().iter().all(|request| request.field("authorization").is_none()));
}

#[test]
fn every_request_has_a_user_agent_that_svc_param_overrides() {
    let ours = concat!("peregrine/", env!("CARGO_PKG_VERSION"));
    for (words, expected) in [(&[][..], ours), (&["--svc-param", "user-agent: mine/1"], "mine/1")] {
        let fake = guarded();
        let user = User::of(&fake.url).with("A2ACLI_CLIENT_SECRET", "hidden-secret");
        let token = format!("{}/token", fake.url);
        let login = ["auth", "login", "--client-id", "me", "--token-url", &token];
        user.ok(&[&login[..], words].concat());
        user.ok(&[&["send", "x"], words].concat());
        let requests: Vec<_> = fake
            .requests()
            .iter()
            .map(|request| {
                let named = request.fields.iter().filter(|(name, _)| name == "user-agent");
                let values: Vec<_> = named.map(|(_, value)| value.clone()).collect();
                (format!("{} {}", request.method, request.target), values)
            })
            .collect();
        for needed in ["POST /token", "GET /.well-known/agent-card.json", "POST /"] {
            assert!(requests.iter().any(|(target, _)| target == needed), "{requests:?}");
        }
        assert!(requests.iter().all(|(_, values)| *values == [expected]), "{requests:?}");
    }
    let own = ["send", "x", "--svc-param", "Last-Event-ID: 4"];
    User::of(&guarded().url).failure(&own, "A2ACLI_ERR_USAGE", 2);
}
