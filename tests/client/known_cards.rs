//! Cached cards: which requests they save, and which cards are trusted with credentials afterwards.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use peregrine::{
    client::{
        Client, ClientBuilder, ClientError, ClientErrorKind, HttpOrigin, HttpRequest, KnownCard,
        SendRequest,
        card::{AgentCard, SignatureError, WELL_KNOWN},
    },
    net::{BlockingClient, HttpClient, HttpClientOptions},
};

use crate::{scripted::*, signed::Signer, wire};

const AGENT: &str = "https://agent.test";
const NEW: &str = "https://agent.test/.well-known/agent-card.json";
const OLD: &str = "https://agent.test/.well-known/agent.json";
/// The target of `AGENT`'s redirects.
const OTHER: &str = "https://other.test/card";
/// The fields of a card that is fresh for a second.
const FIELDS: &[(&str, &str)] = &[("cache-control", "max-age=1"), ("etag", "\"1\"")];

/// A card of this name, with its interface at the origin of the request.
fn named(name: &str, request: &HttpRequest<'_>) -> String {
    card("HTTP+JSON", &request.origin.to_string()).replace(r#""A""#, &format!("{name:?}"))
}

fn serve(name: &str, request: &HttpRequest<'_>) -> Reply {
    Reply::of(200, FIELDS, &named(name, request))
}

fn moved(to: &str) -> Reply {
    Reply::of(302, &[("location", to)], "")
}

/// True: the request has the validator of the card.
fn is_conditional(request: &HttpRequest<'_>) -> bool {
    request.fields.iter().any(|(name, value)| name == "If-None-Match" && value == "\"1\"")
}

/// A client with credentials, made at this time, and its requests for the card.
fn discovered(
    cached: Option<KnownCard>,
    at_ms: u64,
    script: impl Fn(&HttpRequest<'_>) -> Reply + Send + Sync + 'static,
) -> (Result<Client<Scripted>, ClientError>, Vec<String>) {
    let clock = Arc::new(AtomicU64::new(at_ms));
    let transport = Scripted::with_clock(&clock, script);
    let requests = Arc::clone(&transport.requests);
    let mut builder = ClientBuilder::new().field("Authorization", "hidden").unwrap();
    if let Some(cached) = cached {
        builder = builder.known_card(cached);
    }
    let client = settled(builder.discover_over(transport, AGENT));
    let requests = requests.lock().unwrap().clone();
    (client, requests)
}

/// The first card, read at 1 ms.
fn first() -> KnownCard {
    let (client, requests) = discovered(None, 1, |request| serve("first", request));
    assert_eq!(requests, [NEW]);
    client.unwrap().known_card().unwrap()
}

/// The same card, served by another origin than the caller named.
fn first_elsewhere() -> KnownCard {
    let (client, requests) = discovered(None, 1, lead_elsewhere);
    assert_eq!(requests, [NEW, OTHER]);
    client.unwrap().known_card().unwrap()
}

fn lead_elsewhere(request: &HttpRequest<'_>) -> Reply {
    match request.origin.host() {
        "agent.test" => moved(OTHER),
        _ => serve("first", request),
    }
}

fn unrequested(request: &HttpRequest<'_>) -> Reply {
    unreachable!("{} is not asked", request.origin)
}

/// True: the credentials go to the interface.
fn sends_credentials(client: &Client<Scripted>) -> bool {
    let before = client.transport().requests.lock().unwrap().len();
    let sent = settled(client.send(&SendRequest::text("hello")));
    let requests = client.transport().requests.lock().unwrap()[before..].to_vec();
    match sent {
        Err(error) if matches!(error.kind, ClientErrorKind::Credentials(_)) => {
            assert!(requests.is_empty() && !client.interface().is_card_origin);
            false
        }
        _ => {
            assert!(
                requests.iter().all(|request| request.ends_with("with a token")),
                "{requests:?}"
            );
            true
        }
    }
}

#[test]
fn fresh_cached_card_is_not_requested() {
    let (client, requests) = discovered(Some(first()), 1_000, unrequested);
    let client = client.unwrap();
    assert_eq!((&*client.card().name, requests.len()), ("first", 0));
    assert!(!settled(client.refresh_card()).unwrap());
    // The next client has it cached as well, and for no longer than the first.
    let cached = client.known_card();
    let (_, requests) = discovered(cached.clone(), 1_000, unrequested);
    assert_eq!(requests.len(), 0);
    let (_, requests) = discovered(cached, 1_001, |request| serve("second", request));
    assert_eq!(requests.len(), 1);
}

#[test]
fn stale_card_is_revalidated_once_and_is_fresh_again() {
    let (client, requests) = discovered(Some(first()), 5_000, |request| {
        assert!(is_conditional(request));
        Reply::of(304, FIELDS, "")
    });
    let client = client.unwrap();
    assert_eq!((&*client.card().name, requests), ("first", vec![NEW.to_owned()]));
    let (client, requests) = discovered(client.known_card(), 5_999, unrequested);
    assert_eq!((&*client.unwrap().card().name, requests.len()), ("first", 0));
}

/// Within an origin its validators stay valid, and the next request goes to the new URL.
#[test]
fn card_moved_within_its_origin_is_revalidated() {
    const MOVED: &str = "https://agent.test/moved";
    let (client, requests) = discovered(Some(first()), 5_000, |request| {
        match (request.target, is_conditional(request)) {
            ("/moved", true) => Reply::of(304, FIELDS, ""),
            (_, true) => moved("/moved"),
            (_, false) => Reply::json(MESSAGE),
        }
    });
    let client = client.unwrap();
    assert_eq!((&*client.card().name, requests), ("first", [NEW, MOVED].map(str::to_owned).into()));
    assert!(sends_credentials(&client));
    let (_, requests) = discovered(client.known_card(), 9_000, |_| Reply::of(304, FIELDS, ""));
    assert_eq!(requests, [MOVED]);
}

#[test]
fn changed_card_replaces_the_cached_card() {
    let (client, requests) = discovered(Some(first()), 5_000, |request| {
        assert!(is_conditional(request));
        serve("second", request)
    });
    let client = client.unwrap();
    assert_eq!((&*client.card().name, requests), ("second", vec![NEW.to_owned()]));
    let (client, _) = discovered(client.known_card(), 5_999, unrequested);
    assert_eq!(client.unwrap().card().name, "second");
}

/// As if no card were cached: an older server has replaced the new one.
#[test]
fn removed_card_restarts_discovery() {
    for (name, removed) in [
        ("gone", Reply::of as fn(u16, &[(&'static str, &str)], &str) -> Reply),
        ("moved to where nobody follows", |_, _, _| moved("http://plain.test/")),
        ("moved to nowhere", |_, _, _| Reply::of(302, &[], "")),
    ] {
        let (client, requests) = discovered(Some(first()), 5_000, move |request| {
            match (request.target == WELL_KNOWN[0], is_conditional(request)) {
                (true, true) => removed(410, &[], ""),
                (true, false) => Reply::of(404, &[], ""),
                (false, is_conditional) => {
                    assert!(!is_conditional, "it is another card's");
                    serve("old", request)
                }
            }
        });
        let client = client.unwrap();
        assert_eq!(
            (&*client.card().name, requests),
            ("old", [NEW, NEW, OLD].map(str::to_owned).into())
        );
        let (_, requests) = discovered(client.known_card(), 9_000, |request| {
            assert!(is_conditional(request));
            Reply::of(304, &[], "")
        });
        assert_eq!(requests, [OLD], "{name}");
    }
    let (client, requests) = discovered(Some(first()), 5_000, |_| Reply::of(404, &[], ""));
    assert_eq!(client.err().unwrap().kind, ClientErrorKind::NoCard(404));
    assert_eq!(requests, [NEW, NEW, OLD]);
}

/// A machine that can answer for the named origin must not choose which origin gets credentials,
/// even with a cached card.
#[test]
fn cached_card_from_another_origin_stays_untrusted() {
    type Script = fn(&HttpRequest<'_>) -> Reply;
    let cases: [(&str, u64, Script, &[&str]); 6] = [
        ("fresh", 1_000, unrequested, &[]),
        ("304", 5_000, |_| Reply::of(304, FIELDS, ""), &[OTHER]),
        ("200", 5_000, |request| serve("second", request), &[OTHER]),
        (
            "led back",
            5_000,
            |request| match request.origin.host() {
                "other.test" => moved(NEW),
                _ => serve("second", request),
            },
            &[OTHER, NEW],
        ),
        (
            "led on",
            5_000,
            |request| match request.origin.host() {
                "other.test" => moved("https://third.test/card"),
                _ => serve("second", request),
            },
            &[OTHER, "https://third.test/card"],
        ),
        (
            "gone",
            5_000,
            |request| match (request.origin.host(), is_conditional(request)) {
                ("other.test", true) => Reply::of(404, &[], ""),
                _ => lead_elsewhere(request),
            },
            &[OTHER, NEW, OTHER],
        ),
    ];
    for (name, at_ms, script, expected) in cases {
        let (client, requests) = discovered(Some(first_elsewhere()), at_ms, script);
        let client = client.unwrap();
        assert_eq!(requests, expected, "{name}");
        assert!(!sends_credentials(&client), "{name}");
        // Reusing the card does not restore its trust either.
        let (client, _) = discovered(client.known_card(), at_ms, unrequested);
        assert!(!sends_credentials(&client.unwrap()), "{name}");
    }
}

/// A card from the named origin may be redirected elsewhere, and a redirected card is trusted again
/// when the named origin serves the card itself.
#[test]
fn card_trust_follows_the_origin_of_the_latest_fetch() {
    let (client, requests) = discovered(Some(first()), 5_000, lead_elsewhere);
    let client = client.unwrap();
    assert_eq!(requests, [NEW, OTHER]);
    assert!(!sends_credentials(&client));
    let cached = client.known_card();
    let (client, requests) = discovered(cached, 9_000, |request| match request.origin.host() {
        "agent.test" => serve("home", request),
        _ => Reply::of(404, &[], ""),
    });
    assert_eq!(requests, [OTHER, NEW]);
    assert!(sends_credentials(&client.unwrap()));
}

/// A refresh leaves the client's interface unchanged, but its cached card records the new origin
/// for the next client.
#[test]
fn a_refreshed_card_is_cached() {
    let is_moved = Arc::new(AtomicUsize::new(0));
    let moves = Arc::clone(&is_moved);
    let (client, _) = discovered(None, 1, move |request| match moves.load(Relaxed) {
        0 => serve("first", request),
        1 => Reply::of(304, FIELDS, ""),
        _ => lead_elsewhere(request),
    });
    let client = client.unwrap();
    let clock = Arc::clone(&client.transport().now_ms);
    clock.store(5_000, Relaxed);
    is_moved.store(1, Relaxed);
    assert!(!settled(client.refresh_card()).unwrap());
    let (_, requests) = discovered(client.known_card(), 5_999, unrequested);
    assert_eq!(requests.len(), 0);
    clock.store(9_000, Relaxed);
    is_moved.store(2, Relaxed);
    assert!(settled(client.refresh_card()).unwrap());
    let (next, _) = discovered(client.known_card(), 9_000, unrequested);
    assert!(!sends_credentials(&next.unwrap()));
}

#[test]
fn a_card_with_no_store_is_not_cached() {
    let no_store = &[("cache-control", "no-store"), ("etag", "\"1\"")];
    let (client, _) = discovered(None, 1, |request| match is_conditional(request) {
        false => Reply::of(200, no_store, &named("first", request)),
        true => Reply::of(304, &[], ""),
    });
    let client = client.unwrap();
    assert!(client.known_card().is_none());
    // The client itself still revalidates with the card's validator, and a 304 changes nothing.
    assert!(!settled(client.refresh_card()).unwrap());
    assert!(client.known_card().is_none());
    let read = |url: Option<&str>| {
        let card = AgentCard::read(card("HTTP+JSON", AGENT).as_bytes()).unwrap();
        let url = url.map(|url| HttpOrigin::parse(url).unwrap());
        ClientBuilder::new().connect_over(Scripted::new(unrequested), card, url).unwrap()
    };
    assert!(read(None).known_card().is_none());
    // A card that the caller has read from a URL is cached, and requested there.
    let cached = read(Some(AGENT)).known_card();
    let (_, requests) = discovered(cached, 1, |request| serve("first", request));
    assert_eq!(requests, ["https://agent.test/"]);
}

#[test]
fn the_extended_card_is_not_cached() {
    let (client, _) = discovered(None, 1, |request| {
        let public = named("first", request);
        let capabilities = r#""capabilities":{"extendedAgentCard":true,"#;
        let public = public.replace(r#""capabilities":{"#, capabilities);
        match request.target {
            "/extendedAgentCard" => Reply::json(&public.replace("first", "extended")),
            _ => Reply::of(200, FIELDS, &public),
        }
    });
    let client = client.unwrap();
    assert_eq!(settled(client.extended_card()).unwrap().name, "extended");
    assert_eq!(client.card().name, "extended");
    let (next, _) = discovered(client.known_card(), 1, unrequested);
    assert_eq!(next.unwrap().card().name, "first");
}

#[test]
fn cached_card_of_another_url_is_ignored() {
    let builder = |cached| ClientBuilder::new().known_card(cached);
    for (url, is_requested) in [
        ("https://AGENT.test:443", false),
        ("https://agent.test/#card", false),
        ("https://agent.test/a.json", true),
        ("http://agent.test", true),
        ("https://agent.test:444", true),
    ] {
        let transport = Scripted::new(|request| {
            assert!(!is_conditional(request));
            serve("second", request)
        });
        let client = settled(builder(first()).discover_over(transport, url)).unwrap();
        let requests = client.transport().requests.lock().unwrap().len();
        assert_eq!(requests, usize::from(is_requested), "{url}");
    }
}

#[test]
fn cached_card_is_verified_with_the_next_clients_keys() {
    let signer = Signer::new();
    let signed = signer.sign(&crate::signed::card("x"));
    let card = signed.clone();
    let cached =
        discovered(None, 1, move |_| Reply::of(200, FIELDS, &card)).0.unwrap().known_card();
    let unsigned = first();
    for at_ms in [1, 5_000] {
        let found = |signer: &Signer, cached: KnownCard| {
            let clock = Arc::new(AtomicU64::new(at_ms));
            let transport = Scripted::with_clock(&clock, |_| Reply::of(304, &[], ""));
            let builder = ClientBuilder::new().card_keys(signer.keys()).known_card(cached);
            settled(builder.discover_over(transport, AGENT)).map(|_| ()).map_err(|e| e.kind.clone())
        };
        assert_eq!(found(&signer, cached.clone().unwrap()), Ok(()));
        let absent = ClientErrorKind::CardSignature(SignatureError::Absent);
        assert_eq!(found(&signer, unsigned.clone()), Err(absent));
        let other = found(&Signer::new(), cached.clone().unwrap());
        assert!(matches!(other, Err(ClientErrorKind::CardSignature(_))), "{other:?}");
    }
}

/// Over sockets, and from one blocking client to the next.
#[test]
fn blocking_client_uses_the_cached_card() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&heads);
    let server = wire::RawServer::new(move |_, mut stream| {
        while let Some(head) = wire::read_request(&mut stream) {
            received.lock().unwrap().push(head);
            let card = card("HTTP+JSON", AGENT);
            let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length:";
            let reply = format!("{head} {}\r\n\r\n{card}", card.len());
            let _ = std::io::Write::write_all(&mut stream, reply.as_bytes());
        }
    });
    let url = server.url();
    let first = BlockingClient::discover(&url).unwrap();
    let builder = ClientBuilder::new().known_card(first.known_card().unwrap());
    let transport = HttpClient::new(HttpClientOptions::default()).unwrap();
    let second = BlockingClient::build(builder, transport, &url).unwrap();
    assert!(Arc::ptr_eq(&first.card(), &second.card()));
    assert!(!second.refresh_card().unwrap());
    assert_eq!(heads.lock().unwrap().len(), 1);
}
