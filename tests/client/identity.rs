//! The credentials of a call: where they may go, how long they are valid, and which calls share
//! them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use peregrine::client::{
    Client, ClientBuilder, ClientError, ClientErrorKind, ClientLimits, HttpOrigin, HttpRequest,
    ProtocolVersion, SendRequest, TaskAddress, TransportError,
    card::AgentCard,
    credentials::{
        AuthorizationServer, Credentials, CredentialsError, OAuthClient, OAuthError, OAuthSource,
        Secret, fetch_token, refresh_token,
    },
};

use crate::{
    scripted::*,
    stream_faults::{ALL, ItemKind, Over, item, stream},
};

/// A client with this field, of a card from `card_url` with its interface at `url`.
fn with_field(name: &str, url: &str, credentials: Credentials) -> Client<Scripted> {
    let card = AgentCard::read(card("HTTP+JSON", url).as_bytes()).unwrap();
    let card_url = HttpOrigin::parse("https://agent.test/card").unwrap();
    let builder = ClientBuilder::new().credentials(credentials).field(name, "hidden").unwrap();
    builder.connect_over(Scripted::new(|_| Reply::json(MESSAGE)), card, Some(card_url)).unwrap()
}

fn send_hello(client: &Client<Scripted>) -> (Result<(), ClientError>, String) {
    let sent = settled(client.send(&SendRequest::text("hello"))).map(|_| ());
    (sent, client.transport().fields.lock().unwrap().concat())
}

#[test]
fn authentication_fields_go_only_to_allowed_origins() {
    const NAMES: [&str; 4] = ["Authorization", "Cookie", "X-API-Key", "x-auth-token"];
    let elsewhere = [
        ("https://evil.test", CredentialsError::OtherOrigin as fn(_) -> _),
        ("http://agent.test", CredentialsError::OtherOrigin as fn(_) -> _),
    ];
    for name in NAMES {
        for (url, error) in elsewhere {
            let (sent, fields) = send_hello(&with_field(name, url, Credentials::default()));
            let origin = HttpOrigin::parse(url).unwrap().origin;
            let expected = ClientErrorKind::Credentials(error(origin));
            assert_eq!(sent.unwrap_err().kind, expected, "{name} {url}");
            assert_eq!(fields, "");
        }
        let (sent, fields) =
            send_hello(&with_field(name, "https://agent.test/a", Credentials::default()));
        assert!(sent.is_ok() && fields.contains(&format!("{name}: hidden\r\n")), "{fields}");
        let allows_other_origins = Credentials {
            allows_other_origins: true,
            allows_plain_http: true,
            ..Credentials::default()
        };
        let (sent, fields) =
            send_hello(&with_field(name, "http://other.test", allows_other_origins));
        assert!(sent.is_ok() && fields.contains("hidden"), "{fields}");
    }
    // Over plain http to another machine, even if the card came from there.
    let credentials = Credentials { allows_other_origins: true, ..Credentials::default() };
    let (sent, fields) = send_hello(&with_field("Cookie", "http://other.test", credentials));
    let kind = sent.unwrap_err().kind.clone();
    let is_plain = matches!(kind, ClientErrorKind::Credentials(CredentialsError::PlainHttp(_)));
    assert!(is_plain && fields.is_empty(), "{kind:?}");
    // Any other field goes to every origin.
    let (sent, fields) =
        send_hello(&with_field("X-Tenant", "https://evil.test", Credentials::default()));
    assert!(sent.is_ok() && fields.contains("X-Tenant: hidden"));
}

#[test]
fn api_key_field_of_the_card_is_treated_as_credential() {
    let card = r#"{"name":"A","supportedInterfaces":[{"url":"https://evil.test","protocolBinding":
        "HTTP+JSON","protocolVersion":"1.0"}],"securitySchemes":{"k":{"apiKeySecurityScheme":
        {"location":"header","name":"x-tenant"}}}}"#;
    let card = AgentCard::read(card.as_bytes()).unwrap();
    let card_url = HttpOrigin::parse("https://agent.test/card").unwrap();
    let builder = ClientBuilder::new().field("X-Tenant", "hidden").unwrap();
    let transport = Scripted::new(|_| Reply::json(MESSAGE));
    let client = builder.connect_over(transport, card, Some(card_url)).unwrap();
    let (sent, fields) = send_hello(&client);
    assert!(matches!(sent.unwrap_err().kind, ClientErrorKind::Credentials(_)));
    assert_eq!(fields, "");
}

fn oauth() -> OAuthClient {
    let token_url = HttpOrigin::parse("https://login.test/token").unwrap();
    let server = AuthorizationServer { token_url, device_url: None };
    let secret = Some(Secret::new("hidden-secret"));
    OAuthClient { secret, ..OAuthClient::new("me", OAuthSource::Server(server)) }
}

/// A client with a token of `login.test`, and its agent at `agent.test`.
fn with_tokens(transport: Scripted, binding: &str) -> Client<Scripted> {
    let card = AgentCard::read(card(binding, "https://agent.test").as_bytes()).unwrap();
    let credentials = Credentials { oauth: Some(oauth()), ..Credentials::default() };
    let limits = ClientLimits { pool_idle_ms: 1_000_000, ..ClientLimits::default() };
    let builder = ClientBuilder::new().credentials(credentials).limits(limits);
    builder.connect_over(transport, card, None).unwrap()
}

fn token(number: u64) -> Reply {
    Reply::json(&format!(r#"{{"access_token":"token-{number}","expires_in":100}}"#))
}

fn is_for_token(request: &HttpRequest<'_>) -> bool {
    request.origin.to_string() == "https://login.test"
}

fn requests_to(client: &Client<Scripted>, origin: &str) -> usize {
    let requests = client.transport().requests.lock().unwrap();
    requests.iter().filter(|url| url.starts_with(origin)).count()
}

#[test]
fn refused_token_that_expires_is_renewed_only_once() {
    let (fetched, clock) = (AtomicU64::new(0), Arc::new(AtomicU64::new(1)));
    let time = Arc::clone(&clock);
    let transport = Scripted::with_clock(&clock, move |request| {
        if is_for_token(request) {
            return token(fetched.fetch_add(1, Relaxed) + 1);
        }
        let lines = String::from_utf8(request.fields.lines().to_vec()).unwrap();
        if lines.contains("token-1\r\n") {
            // The token expires while it is refused.
            time.store(80_000, Relaxed);
            return Reply::of(401, &[], "");
        }
        Reply::json(MESSAGE)
    });
    let client = with_tokens(transport, "HTTP+JSON");
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    // The client does not fetch a token only to drop it.
    assert_eq!(requests_to(&client, "https://login.test"), 2);
}

/// A refusal of a token: by the head of the response, or in gRPC by the trailers.
fn unauthorized(over: Over, is_late: bool) -> Reply {
    const END: (&str, &str) = ("grpc-status", "16");
    let media = ("content-type", "application/grpc");
    match (over, is_late) {
        (Over::Grpc, false) => Reply::of(200, &[media, END], ""),
        (Over::Grpc, true) => Reply::of(200, &[media], "").trailers(&[END]),
        (Over::JsonRpc | Over::Rest | Over::WebSocket, _) => Reply::of(401, &[], ""),
    }
}

/// The number of a JSON-RPC call: `{"jsonrpc":"2.0","id":"7"`.
fn rpc_id(request: &HttpRequest<'_>) -> u64 {
    let body = String::from_utf8_lossy(request.body);
    body.split('"').nth(7).unwrap().parse().unwrap()
}

/// The only answer to a call, or the whole of a stream, which is the second to be opened.
fn answered(over: Over, request: &HttpRequest<'_>, is_stream: bool) -> Reply {
    let id = match (over, is_stream) {
        (Over::JsonRpc, _) => rpc_id(request),
        (_, false) => 1,
        (_, true) => 2,
    };
    let answer = item(over, ItemKind::Task, id);
    match (over, is_stream) {
        (Over::JsonRpc, false) => {
            Reply::json(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{TASK}}}"#))
        }
        (Over::Rest, false) => Reply::json(TASK),
        (_, _) => {
            stream(over, request, vec![Piece::Bytes(answer)]).trailers(&[("grpc-status", "0")])
        }
    }
}

#[test]
fn a_token_that_is_refused_is_renewed_once_over_each_binding() {
    for over in ALL {
        for (is_stream, is_late) in [(false, false), (false, true), (true, false), (true, true)] {
            let call = |transport| {
                let client = with_tokens(transport, over.binding());
                let request = SendRequest::text("hello");
                let error = settled(async {
                    if !is_stream {
                        return client.send(&request).await.map(drop).err();
                    }
                    match client.stream(&request).await {
                        Ok(mut stream) => stream.next().await.expect("an item").map(drop).err(),
                        Err(error) => Some(error),
                    }
                });
                let counts = ["login", "agent"]
                    .map(|host| requests_to(&client, &format!("https://{host}.test")));
                (error.map(|error| error.kind.clone()), counts)
            };
            let fetched = AtomicU64::new(0);
            let renews = Scripted::new(move |request| {
                if is_for_token(request) {
                    return token(fetched.fetch_add(1, Relaxed) + 1);
                }
                let lines = String::from_utf8(request.fields.lines().to_vec()).unwrap();
                match lines.contains("token-1\r\n") {
                    true => unauthorized(over, is_late),
                    false => answered(over, request, is_stream),
                }
            });
            let case = format!("{over:?} {is_stream} {is_late}");
            assert_eq!(call(renews), (None, [2, 2]), "{case}");
            // The client tries twice, and no more, if the server refuses every token.
            let refuses = Scripted::new(move |request| match is_for_token(request) {
                true => token(1),
                false => unauthorized(over, is_late),
            });
            let unauthorized = Some(ClientErrorKind::Unauthorized);
            assert_eq!(call(refuses), (unauthorized, [2, 2]), "{case}");
        }
    }
}

/// A stream that refuses the token by its first item, or in gRPC by the trailers.
fn refused_late(over: Over, request: &HttpRequest<'_>, number: u64) -> Reply {
    const ERROR: &str = r#""error":{"code":401,"status":"UNAUTHENTICATED","message":"who?"}"#;
    let response = format!(r#"{{"jsonrpc":"2.0","id":"{number}",{ERROR}}}"#);
    let pieces = match over {
        Over::WebSocket => vec![frame(&response)],
        Over::Rest => vec![Piece::Bytes(format!("data: {{{ERROR}}}\n\n").into())],
        Over::JsonRpc => vec![Piece::Bytes(format!("data: {response}\n\n").into())],
        Over::Grpc => return unauthorized(over, true),
    };
    stream(over, request, pieces)
}

/// Follows a stream over connections that are answered by `script`: `T` the task, `A` an artifact,
/// both and then a break, `R` a token that is refused late, `H` refused by the head, `B`
/// overloaded. Returns the error, and how often the token endpoint and the agent were called.
fn resumed(over: Over, script: &'static str) -> (Option<ClientErrorKind>, [usize; 2]) {
    let (fetched, opened) = (AtomicU64::new(0), AtomicU64::new(0));
    let client = with_tokens(
        Scripted::new(move |request| {
            if is_for_token(request) {
                return token(fetched.fetch_add(1, Relaxed) + 1);
            }
            let number = opened.fetch_add(1, Relaxed) + 1;
            let kind = match script.as_bytes().get(number as usize - 1) {
                Some(b'T') => ItemKind::Task,
                Some(b'A') => ItemKind::Artifact("t", number as usize),
                Some(b'R') => return refused_late(over, request, number),
                Some(b'H') => return unauthorized(over, false),
                Some(b'B') => return Reply::of(429, &[], ""),
                Some(_) | None => return Reply::of(418, &[], ""),
            };
            let piece = Piece::Bytes(item(over, kind, number));
            stream(over, request, vec![piece, Piece::Break])
        }),
        over.binding(),
    );
    let error = settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        loop {
            match stream.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Some(error),
                None => return None,
            }
        }
    });
    let counts =
        ["login", "agent"].map(|host| requests_to(&client, &format!("https://{host}.test")));
    (error.map(|error| error.kind.clone()), counts)
}

#[test]
fn a_token_refused_at_a_resumption_is_renewed_once() {
    let unauthorized = Some(ClientErrorKind::Unauthorized);
    // The stream ends with a named error, after all earlier requests.
    let end = Some(ClientErrorKind::NotA2a(418));
    for over in ALL {
        for (script, error, expected) in [
            ("TRT", &end, [2, 4]),
            ("THT", &end, [2, 4]),
            ("TRR", &unauthorized, [2, 3]),
            ("TRH", &unauthorized, [2, 3]),
            ("THR", &unauthorized, [2, 3]),
            // An answer that refuses for now is not progress.
            ("TRBR", &unauthorized, [2, 4]),
            ("TBRT", &end, [2, 5]),
            ("TRTRT", &end, [3, 6]),
        ] {
            let (kind, counts) = resumed(over, script);
            assert_eq!((&kind, counts), (error, expected), "{over:?} {script}");
        }
    }
}

#[test]
fn callers_own_field_replaces_a_credential() {
    let key = r#""x":{"apiKeySecurityScheme":{"location":"header","name":"X-Key"}}"#;
    let bearer = r#""b":{"httpAuthSecurityScheme":{"scheme":"bearer"}}"#;
    let oauth_scheme = r#""o":{"oauth2SecurityScheme":{"flows":{"clientCredentials":{}}}}"#;
    let card = format!(
        r#"{{"name":"A","supportedInterfaces":[{{"url":"https://agent.test","protocolBinding":
        "HTTP+JSON","protocolVersion":"1.0"}}],"securitySchemes":{{{key},{bearer},{oauth_scheme}}}}}"#
    );
    let all = Credentials {
        api_key: Some(Secret::new("planned-key")),
        bearer: Some(Secret::new("planned-bearer")),
        oauth: Some(oauth()),
        ..Credentials::default()
    };
    for (name, replaced) in [("authorization", "Bearer"), ("x-key", "planned-key")] {
        let transport = Scripted::new(|request| match is_for_token(request) {
            true => token(1),
            false => Reply::json(MESSAGE),
        });
        let builder = ClientBuilder::new().credentials(all.clone()).field(name, "own").unwrap();
        let card = AgentCard::read(card.as_bytes()).unwrap();
        let client = builder.connect_over(transport, card, None).unwrap();
        let (sent, fields) = send_hello(&client);
        sent.unwrap();
        let lines = fields.to_ascii_lowercase();
        assert_eq!(lines.matches(&format!("{name}:")).count(), 1, "{fields}");
        assert!(fields.contains(": own\r\n") && !fields.contains(replaced), "{fields}");
        assert_eq!(requests_to(&client, "https://login.test"), 0);
    }
}

#[test]
fn an_answer_about_another_task_is_an_error() {
    let transport =
        Scripted::new(|_| Reply::json(r#"{"id":"t-2","status":{"state":"TASK_STATE_WORKING"}}"#));
    let client = client(transport, "HTTP+JSON", "https://agent.test");
    for answer in [settled(client.get_task("t-1", None)), settled(client.cancel_task("t-1", None))]
    {
        assert_eq!(answer.unwrap_err().kind, ClientErrorKind::OtherTask);
    }
    assert!(settled(client.get_task("t-2", None)).is_ok());
    // Only LangSmith has conversations before its ids.
    for id in ["1t-2", "c-1:t-2"] {
        let error = settled(client.get_task(id, None)).unwrap_err();
        assert_eq!(error.kind, ClientErrorKind::OtherTask, "{id}");
    }
}

#[test]
fn langsmith_task_id_may_have_a_context_prefix() {
    let transport = Scripted::new(|request| {
        let id = rpc_id(request);
        let task = r#"{"kind":"task","id":"t-2","contextId":"c","status":{"state":"working"}}"#;
        Reply::json(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{task}}}"#))
    });
    let card = br#"{"name":"A","url":"http://agent.test/a2a/x","protocolVersion":"0.3.0",
        "preferredTransport":"JSONRPC","capabilities":{"streaming":true},"skills":[]}"#;
    let builder = ClientBuilder::new().version(ProtocolVersion::V0_3).dialect("langsmith");
    let client = builder.connect_over(transport, AgentCard::read(card).unwrap(), None).unwrap();
    let get = |id| settled(client.get_task(TaskAddress::new(id).within("c"), None));
    assert!(get("c:t-2").is_ok() && get("t-2").is_ok());
    assert_eq!(get("ct-2").unwrap_err().kind, ClientErrorKind::OtherTask);
    // Each message creates its own run there.
    assert!(settled(client.send(&SendRequest::text("more").task_id("t-1"))).is_ok());
}

#[test]
fn send_to_a_task_rejects_response_of_another_task() {
    let of = |answer: &'static str| {
        let transport = Scripted::new(move |request| match request.target.ends_with(":send") {
            true => Reply::json(answer),
            false => {
                let media = ("content-type", "text/event-stream");
                Reply::of(200, &[media], &format!("data: {answer}\n\n"))
            }
        });
        client(transport, "HTTP+JSON", "https://agent.test")
    };
    const ARTIFACT: &str = concat!(
        r#"{"artifactUpdate":{"taskId":"t","contextId":"c","#,
        r#""artifact":{"artifactId":"a","parts":[{"text":"x"}]}}}"#
    );
    const ESCAPED: &str =
        r#"{"task":{"id":"\u00fc","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
    let named = |id: &str| SendRequest::text("more").task_id(id);
    let is_other = |client: &Client<Scripted>, request: &SendRequest| {
        let first = settled(async {
            client.stream(request).await.unwrap().next().await.unwrap().map(drop)
        });
        match first {
            Ok(()) => false,
            Err(error) => {
                assert_eq!(error.kind, ClientErrorKind::OtherTask);
                true
            }
        }
    };
    for (answer, id, expected) in [
        (TASK, "t", false),
        (TASK, "t-1", true),
        (ESCAPED, "\u{fc}", false),
        (ESCAPED, "u", true),
        (MESSAGE, "t-1", false),
    ] {
        let sent = settled(of(answer).send(&named(id))).map(drop);
        let error = sent.err().map(|error| error.kind.clone());
        assert_eq!(error, expected.then_some(ClientErrorKind::OtherTask), "{answer} {id}");
        assert_eq!(is_other(&of(answer), &named(id)), expected, "{answer} {id}");
    }
    assert!(is_other(&of(ARTIFACT), &named("t-1")) && !is_other(&of(ARTIFACT), &named("t")));
    assert!(!is_other(&of(TASK), &SendRequest::text("new")));
    // A subscriber may also encode the id differently.
    let client = of(ESCAPED);
    let mut stream = settled(client.subscribe("\u{fc}", None)).unwrap();
    assert!(settled(stream.next()).unwrap().is_ok());
}

/// Whether the message was accepted is unknown: the task that it names may not contain it.
#[test]
fn stream_without_events_gives_stream_lost_error() {
    let transport = Scripted::new(|_| Reply::of(200, &[("content-type", "text/event-stream")], ""));
    let client = client(transport, "HTTP+JSON", "https://agent.test");
    let request = SendRequest::text("more").task_id("t");
    let mut stream = settled(client.stream(&request)).unwrap();
    let error = settled(stream.next()).unwrap().map(drop).unwrap_err();
    assert_eq!(error.kind, ClientErrorKind::StreamLost);
    assert_eq!(requests_to(&client, "https://agent.test"), 1);
}

#[test]
fn an_endless_token_answer_times_out() {
    let transport = Scripted::new(|_| {
        let mut reply = token(1);
        reply.pieces.push_back(Piece::Silence);
        reply
    });
    let error = settled(fetch_token(&transport, &oauth(), &ClientLimits::default())).unwrap_err();
    let is_late = matches!(&error, OAuthError::Transport(TransportError::Timeout(_)));
    assert!(is_late, "{error:?}");
}

#[test]
fn secret_in_authorization_server_error_is_redacted() {
    for repeated in ["hidden-secret", "hidden-refresh"] {
        let transport = Scripted::new(move |_| {
            let body = format!(r#"{{"error":"x {repeated}","error_description":"{repeated}!"}}"#);
            Reply::of(400, &[], &body)
        });
        let (client, limits) = (oauth(), ClientLimits::default());
        let OAuthSource::Server(server) = &client.source else { panic!("a server") };
        let refresh = Secret::new("hidden-refresh");
        let renewed = refresh_token(&transport, &client, server, refresh, &limits);
        let error = settled(renewed).unwrap_err();
        assert!(matches!(error, OAuthError::Refused { .. }));
        assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
    }
}

/// A WebSocket for the calls from number `first` on.
fn answering(request: &HttpRequest<'_>, first: u64) -> Reply {
    Reply::socket(request, (first..first + 3).map(|id| vec![result(id, MESSAGE)]).collect())
}

#[test]
fn websocket_is_not_reused_with_other_credentials() {
    let (fetched, opened) = (AtomicU64::new(0), AtomicU64::new(0));
    let clock = Arc::new(AtomicU64::new(1));
    let transport = Scripted::with_clock(&clock, move |request| match is_for_token(request) {
        true => token(fetched.fetch_add(1, Relaxed) + 1),
        // The first session answers two calls, and could answer a third.
        false => answering(request, opened.fetch_add(2, Relaxed) + 1),
    });
    let client = with_tokens(transport, "WEBSOCKET");
    for _ in 0..2 {
        settled(client.send(&SendRequest::text("hello"))).unwrap();
    }
    assert_eq!(requests_to(&client, "https://agent.test"), 1);
    // The token is renewed half a minute before it expires, while the session is still young.
    clock.store(71_000, Relaxed);
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    assert_eq!(requests_to(&client, "https://agent.test"), 2);
    let fields = client.transport().fields.lock().unwrap().concat();
    assert!(fields.contains("token-1\r\n") && fields.contains("token-2\r\n"));
}

#[test]
fn idle_websocket_is_not_reused_after_pool_idle_ms() {
    let (opened, clock) = (AtomicU64::new(0), Arc::new(AtomicU64::new(1)));
    let transport = Scripted::with_clock(&clock, move |request| {
        answering(request, opened.fetch_add(2, Relaxed) + 1)
    });
    let client = client(transport, "WEBSOCKET", "http://agent.test");
    let idle_ms = ClientLimits::default().pool_idle_ms;
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    clock.fetch_add(idle_ms - 1, Relaxed);
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    assert_eq!(requests_to(&client, "http://agent.test"), 1);
    clock.fetch_add(idle_ms, Relaxed);
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    assert_eq!(requests_to(&client, "http://agent.test"), 2);
}

/// A client of a card with these interfaces, in this order.
fn of_interfaces(urls: &[&str], credentials: Credentials, transport: Scripted) -> Client<Scripted> {
    let one = |url: &&str| {
        format!(r#"{{"url":"{url}","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}}"#)
    };
    let all: Vec<String> = urls.iter().map(one).collect();
    let card = format!(
        r#"{{"name":"A","supportedInterfaces":[{}],"securitySchemes":{{"b":{{
        "httpAuthSecurityScheme":{{"scheme":"Bearer"}}}}}},"securityRequirements":[{{"schemes":{{
        "b":{{"list":[]}}}}}}]}}"#,
        all.join(",")
    );
    let card = AgentCard::read(card.as_bytes()).unwrap();
    let card_url = HttpOrigin::parse("https://agent.test/card").unwrap();
    ClientBuilder::new()
        .credentials(credentials)
        .connect_over(transport, card, Some(card_url))
        .unwrap()
}

#[test]
fn a_dead_server_is_reported_within_10_s() {
    // A connection attempt has no longer, and one that took this long is not retried.
    assert!(ClientLimits::default().connect_ms <= 10_000);
    let client = of_interfaces(
        &["https://agent.test/a"],
        Credentials { bearer: Some(Secret::new("t")), ..Credentials::default() },
        Scripted::failing(|_| Some(TransportError::Timeout("connection"))),
    );
    settled(client.send(&SendRequest::text("hello"))).unwrap_err();
    assert_eq!(client.transport().requests.lock().unwrap().len(), 1);
    // A refused attempt is retried for some seconds of the clock.
    let client = of_interfaces(
        &["https://agent.test/a"],
        Credentials { bearer: Some(Secret::new("t")), ..Credentials::default() },
        Scripted::failing(|_| Some(TransportError::Connect("refused".to_owned()))),
    );
    settled(client.send(&SendRequest::text("hello"))).unwrap_err();
    assert!(client.transport().requests.lock().unwrap().len() > 1);
    assert!(client.transport().now_ms.load(Relaxed) < 10_000);
}

#[test]
fn interface_fallback_keeps_tls_and_leaks_no_credentials() {
    let bearer = || Credentials { bearer: Some(Secret::new("hidden")), ..Credentials::default() };
    let is_dead = |request: &HttpRequest<'_>| {
        let is_first = request.origin.to_string() == "https://agent.test";
        is_first.then(|| TransportError::Connect("refused".to_owned()))
    };
    for (second, third) in [
        // Never from TLS to plain http, not even on the way to a third interface.
        ("http://agent.test:81/b", "http://127.0.0.1/c"),
        // Never a credential to another origin.
        ("https://evil.test/b", "https://agent.test.evil.test/c"),
        ("https://agent.test:444/b", "http://agent.test/c"),
    ] {
        let urls = ["https://agent.test/a", second, third];
        let client = of_interfaces(&urls, bearer(), Scripted::failing(is_dead));
        settled(client.send(&SendRequest::text("hello"))).unwrap_err();
        let requests = client.transport().requests.lock().unwrap().clone();
        assert!(
            requests.iter().all(|request| request.starts_with("https://agent.test/")),
            "{requests:?}"
        );
    }
    // Without a credential, another origin with TLS is called.
    let card = card("HTTP+JSON", "https://agent.test/a");
    let second = r#"{"url":"http://other.test/b","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"},
        {"url":"https://other.test/c","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}"#;
    let card = card.replacen("}],", &format!("}},{second}],"), 1);
    let card = AgentCard::read(card.as_bytes()).unwrap();
    let client = ClientBuilder::new().connect_over(Scripted::failing(is_dead), card, None).unwrap();
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    let requests = client.transport().requests.lock().unwrap().clone();
    assert_eq!(requests.last().unwrap(), "https://other.test/c/message:send", "{requests:?}");
    assert!(!requests.iter().any(|request| request.starts_with("http://")), "{requests:?}");
}
