//! Pages of other origins: answers to preflights, and which answers they may read.

use peregrine::{
    agent::{Profile, echo::Echo},
    engine::{BuildError, Cors, CorsError, Setup, Start},
    service,
};
use serde_json::json;
use std::sync::Arc;

use crate::support::{
    Lab,
    ask::{V1, V03, get, get_with, post, rpc, say},
    echo,
    reply::Reply,
};

const APP: &str = "https://app.example";
const OTHER: &str = "https://app.example.evil";
const CARD: &str = "/.well-known/agent-card.json";

fn cors(origins: &[&str]) -> Cors {
    let origins = origins.iter().map(|&origin| origin.to_owned()).collect();
    Cors { origins, ..Cors::default() }
}

fn lab(cors: Cors) -> Lab {
    let mut shown = Profile::new("shown", "Is shown a field.");
    shown.fields = vec!["X-Session".to_owned(), "traceparent".to_owned()];
    let agents = vec![echo(), (shown, Arc::new(Echo))];
    Lab::new(Setup { agents, cors, extended_card: true, ..Setup::default() })
}

fn preflight(path: &str, origin: &str, lines: &str) -> Vec<u8> {
    format!(
        "OPTIONS {path} HTTP/1.1\r\nHost: a.example\r\nOrigin: {origin}\r\n\
         Access-Control-Request-Method: POST\r\n{lines}\r\n"
    )
    .into_bytes()
}

/// Asserts that an answer allows `origin` to read it and varies by origin for caches.
fn assert_cors_fields(reply: &Reply, origin: Option<&str>, what: &str) {
    assert_eq!(reply.field("access-control-allow-origin"), origin, "{what}: {reply:?}");
    let vary = reply.field("vary").unwrap_or_default();
    assert!(vary.split(", ").any(|name| name == "Origin"), "{what}: {vary}");
    let exposed = reply.field("access-control-expose-headers");
    assert_eq!(exposed.is_some(), origin.is_some(), "{what}");
}

#[test]
fn every_route_answers_a_preflight_with_its_methods() {
    let mut lab = lab(cors(&["http://b", APP]));
    for (path, methods) in [
        ("/", "POST, OPTIONS"),
        ("/agents/shown", "POST, OPTIONS"),
        (CARD, "GET, HEAD, OPTIONS"),
        ("/agents/shown/.well-known/agent.json", "GET, HEAD, OPTIONS"),
        ("/agent/authenticatedExtendedCard", "GET, HEAD, OPTIONS"),
        ("/message:send", "POST, OPTIONS"),
        ("/v1/message:stream", "POST, OPTIONS"),
        ("/nothing", "GET, HEAD, POST, DELETE, OPTIONS"),
        ("/v1/nothing", "GET, HEAD, POST, DELETE, OPTIONS"),
        ("/agents/nobody", "GET, HEAD, POST, DELETE, OPTIONS"),
    ] {
        let reply = lab.ask(&preflight(path, APP, ""));
        assert_eq!(reply.status, 204, "{path}");
        assert_cors_fields(&reply, Some(APP), path);
        assert_eq!(reply.field("access-control-allow-methods"), Some(methods), "{path}");
        assert_eq!(reply.field("access-control-max-age"), Some("7200"));
        assert_eq!(reply.field("access-control-allow-credentials"), None);
        assert_eq!(reply.field("access-control-allow-private-network"), None);
        let headers = reply.field("access-control-allow-headers").unwrap();
        for name in [
            "Content-Type",
            "Accept",
            "Authorization",
            "A2A-Version",
            "A2A-Extensions",
            "X-A2A-Extensions",
            "Last-Event-ID",
            "X-API-Key",
            "Idempotency-Key",
            "Prefer",
            "Request-Timeout",
            "traceparent",
            "tracestate",
        ] {
            assert_eq!(headers.split(", ").filter(|one| *one == name).count(), 1, "{name}");
        }
        // Pages may send the fields that this agent's profile names.
        let is_shown = path.starts_with("/agents/shown");
        assert_eq!(headers.split(", ").any(|one| one == "X-Session"), is_shown, "{path}");
    }
    let lists = lab.ask(&preflight("/tasks/x", APP, ""));
    assert!(lists.field("access-control-allow-methods").unwrap().contains("GET"));
}

#[test]
fn unlisted_origin_gets_no_access_control_headers() {
    let mut lab = lab(cors(&[APP]));
    for origin in [OTHER, "https://app.exampl", "https://APP.example", "http://app.example", "null"]
    {
        let reply = lab.ask(&preflight("/", origin, ""));
        assert_eq!(reply.status, 204);
        assert_cors_fields(&reply, None, origin);
        assert_eq!(reply.field("access-control-allow-methods"), None, "{origin}");
        assert_eq!(lab.ask(&preflight("/nothing", origin, "")).status, 404, "{origin}");
        assert_cors_fields(
            &lab.ask(&get_with(CARD, &format!("Origin: {origin}\r\n"))),
            None,
            origin,
        );
    }
    // OPTIONS without a requested method is not a preflight; without `Origin` the request is not
    // from a page.
    let plain = format!("OPTIONS / HTTP/1.1\r\nHost: a.example\r\nOrigin: {APP}\r\n\r\n");
    let reply = lab.ask(plain.as_bytes());
    assert_eq!(reply.field("access-control-allow-methods"), None);
    assert_eq!(reply.field("allow"), Some("POST, OPTIONS"));
    assert_cors_fields(&lab.ask(&get(CARD)), None, "no origin");
}

#[test]
fn every_response_has_cors_headers_for_a_listed_origin() {
    let mut lab = lab(cors(&["https://b", APP]));
    let from = [("Origin", APP), ("A2A-Version", "1.0")];
    let send = V1.params(say("hi"));
    let (stream, slow) = (V1.params(say("stream:3")), V1.params(say("hold:200:1")));
    let lines = format!("Origin: {APP}\r\n");
    for (what, status, request) in [
        ("JSON-RPC", 200, post("/", &from, &rpc(V1.send(), &send))),
        ("an error", 200, post("/", &from, &rpc("GetTask", &json!({"id": "x"})))),
        ("no JSON", 200, post("/", &from, "{")),
        ("a stream", 200, post("/", &from, &rpc(V1.stream(), &stream))),
        ("HTTP+JSON", 200, post("/message:send", &from, &send.to_string())),
        ("an error of HTTP+JSON", 404, get_with("/tasks/x", &lines)),
        ("a stream of HTTP+JSON", 200, post("/message:stream", &from, &stream.to_string())),
        ("0.3", 200, post("/", &from[..1], &rpc(V03.send(), &V03.params(say("hi"))))),
        ("a card", 200, get_with(CARD, &lines)),
        ("an extended card", 200, get_with("/agent/authenticatedExtendedCard", &lines)),
        ("no path", 404, get_with("/nothing", &lines)),
        ("no agent", 404, get_with("/agents/nobody", &lines)),
        ("no method", 405, get_with("/", &lines)),
        ("a method of a card", 405, post(CARD, &from, "")),
        ("no media type", 400, post("/message:send", &[from[0], ("Content-Type", "a/b")], "x")),
    ] {
        let reply = lab.ask(&request);
        assert_eq!(reply.status, status, "{what}");
        assert_cors_fields(&reply, Some(APP), what);
    }
    let etag = lab.ask(&get(CARD)).field("etag").unwrap().to_owned();
    let unchanged = lab.ask(&get_with(CARD, &format!("{lines}If-None-Match: {etag}\r\n")));
    assert_eq!(unchanged.status, 304);
    assert_cors_fields(&unchanged, Some(APP), "an unchanged card");
    // A deferred answer, and an answer with extensions.
    let peer = lab.open();
    lab.write(peer, &post("/", &from, &rpc(V1.send(), &slow)));
    assert!(lab.try_reply(peer).is_none());
    lab.pass(1_000);
    assert_cors_fields(&lab.reply(peer), Some(APP), "an answer that waits");
    let named = [from[0], from[1], ("A2A-Extensions", "urn:nothing")];
    assert_cors_fields(
        &lab.ask(&post("/", &named, &rpc(V1.send(), &send))),
        Some(APP),
        "extensions",
    );
}

#[test]
fn early_rejections_of_a_listed_origin_have_cors_headers() {
    let mut lab = lab(cors(&[APP]));
    let begin = format!("POST / HTTP/1.1\r\nHost: a.example\r\nOrigin: {APP}\r\n");
    for (what, status, request) in [
        ("a body that is too large", 413, format!("{begin}Content-Length: 99999999\r\n\r\n")),
        ("two lengths", 400, format!("{begin}Content-Length: 1\r\nContent-Length: 2\r\n\r\n")),
        ("a large head", 431, format!("{begin}X: {}\r\n\r\n", "x".repeat(20_000))),
        ("a broken chunk", 400, format!("{begin}Transfer-Encoding: chunked\r\n\r\nxyz\r\n")),
    ] {
        let reply = lab.ask(request.as_bytes());
        assert_eq!(reply.status, status, "{what}");
        assert_cors_fields(&reply, Some(APP), what);
        let other = lab.ask(request.replace(APP, OTHER).as_bytes());
        assert_cors_fields(&other, None, what);
    }
    let peer = lab.open();
    lab.write(peer, format!("{begin}Content-Length: 9\r\n\r\n{{").as_bytes());
    lab.pass(31_000);
    let late = lab.reply(peer);
    assert_eq!(late.status, 408);
    assert_cors_fields(&late, Some(APP), "a slow body");
    // The origin of the previous request does not apply to a head that never completes.
    let peer = lab.open();
    lab.write(peer, &get_with(CARD, &format!("Origin: {APP}\r\n")));
    assert_cors_fields(&lab.reply(peer), Some(APP), "a card");
    lab.write(peer, b"GET / HTTP/1.1\r\n");
    lab.pass(11_000);
    let late = lab.reply(peer);
    assert_eq!((late.status, late.field("access-control-allow-origin")), (408, None));
}

#[test]
fn wrong_host_is_421_without_cors_headers() {
    let mut lab = lab(cors(&["*"]));
    let peer = lab.open_to(service::Peer { is_loopback: true, ..service::Peer::default() });
    lab.write(peer, &preflight("/", "http://a.example", ""));
    let reply = lab.reply(peer);
    assert_eq!(reply.status, 421);
    assert_eq!(reply.field("access-control-allow-origin"), None);
}

#[test]
fn star_allows_any_origin_but_not_credentials() {
    let mut any = lab(cors(&["*"]));
    assert_cors_fields(&any.ask(&preflight("/", OTHER, "")), Some("*"), "any");
    let credentials = Cors { credentials: true, max_age_s: 0, ..cors(&[APP]) };
    let mut named = lab(credentials);
    let private_network = "Access-Control-Request-Private-Network: true\r\n";
    let reply = named.ask(&preflight("/", APP, private_network));
    assert_cors_fields(&reply, Some(APP), "named");
    assert_eq!(reply.field("access-control-allow-credentials"), Some("true"));
    assert_eq!(reply.field("access-control-max-age"), Some("0"));
    assert_eq!(reply.field("access-control-allow-private-network"), Some("true"));
    let other = named.ask(&preflight("/", OTHER, private_network));
    assert_eq!(other.field("access-control-allow-credentials"), None);
    assert_eq!(other.field("access-control-allow-private-network"), None);
    let start =
        || Start { secret: 1, unix_ms: Arc::new(|| 0), workers: 1, base_url: String::new() };
    for (cors, error) in [
        (Cors { credentials: true, ..cors(&["*"]) }, CorsError::Credentials),
        (cors(&["https://a/"]), CorsError::Origin("https://a/".to_owned())),
    ] {
        let setup = Setup { agents: vec![echo()], cors, ..Setup::default() };
        assert_eq!(setup.build(start()).err(), Some(BuildError::Cors(error)));
    }
}

#[test]
fn no_cors_headers_without_configured_origins() {
    let (mut off, mut plain) = (Lab::echo(), Lab::echo());
    let request = |lines: &str| get_with(CARD, lines);
    assert_eq!(off.ask(&request(&format!("Origin: {APP}\r\n"))), plain.ask(&request("")));
    let reply = off.ask(&preflight("/", APP, "Access-Control-Request-Private-Network: true\r\n"));
    let names: Vec<&str> = reply.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((reply.status, names), (204, vec!["Date", "Allow"]));
}
