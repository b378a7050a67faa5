//! The card names the served interfaces, and every pair returns the same extended card.

use serde_json::{Value, json};

use super::{
    client::{Call, Op},
    http::{Http, Http1, Request},
    message_spec::text_spec,
    model::{V01, V1},
    server::Server,
    variants::{Speaker, VARIANTS, Variant, every_way},
};

/// Every binding, the default one first.
const ALL: [&str; 2] = ["--interfaces", "jsonrpc,http+json,grpc,websocket"];

fn extended(server: &Server, variant: Variant) -> Value {
    let card = server.client(variant).link.call(&Call::new(Op::ExtendedCard, json!({})));
    card.unwrap_or_else(|fault| panic!("{variant:?}: {fault:?}"))
}

#[test]
fn extended_card_is_equal_across_bindings_and_versions() {
    let server = Server::with(&[ALL[0], ALL[1], "--extended-card"]);
    let expected = extended(&server, super::variants::OBSERVER);
    // Wire §1.3: 0.1 has none.
    for variant in every_way().filter(|variant| variant.generation != V01) {
        let card = extended(&server, variant);
        for member in ["name", "description", "version", "skills"] {
            assert_eq!(card[member], expected[member], "{variant:?}: {card}");
        }
        assert_eq!(card["capabilities"]["streaming"], true, "{variant:?}: {card}");
        // Our client converts every card to 1.0.
        let is_v1 = variant.generation == V1;
        let names_all = is_v1 || variant.speaker == Speaker::Client;
        assert_eq!(card.get("supportedInterfaces").is_some(), names_all, "{variant:?}: {card}");
        if is_v1 {
            assert_eq!(card["supportedInterfaces"], expected["supportedInterfaces"], "{variant:?}");
        }
    }
}

/// An entry of the public card: URL, binding, version.
fn entries(server: &Server) -> Vec<(String, String, String)> {
    let reply = Http1::new(&server.endpoint).fetch(&Request {
        method: "GET",
        target: "/.well-known/agent-card.json".to_owned(),
        fields: Vec::new(),
        body: None,
    });
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let entry = |one: &Value| {
        (text(&one["url"]), text(&one["protocolBinding"]), text(&one["protocolVersion"]))
    };
    reply.json()["supportedInterfaces"].as_array().expect("a list").iter().map(entry).collect()
}

#[test]
fn the_card_lists_exactly_the_served_interfaces() {
    for server in Server::both("cards", &ALL) {
        assert_true(&server);
    }
}

fn assert_true(server: &Server) {
    let entries = entries(server);
    let versions: Vec<&str> = entries.iter().map(|entry| &*entry.2).collect();
    assert!(versions.is_sorted_by(|a, b| a >= b), "1.0 first: {versions:?}");
    let mut named = 0;
    for &variant in VARIANTS {
        let Some((binding, version, url)) = variant.interface(&server.endpoint) else { continue };
        let entry = (url, binding.to_owned(), version.to_owned());
        assert!(entries.contains(&entry), "{variant:?}: {entry:?} in {entries:?}");
        server.client(variant).send(&text_spec("ping")).expect("an answer");
        named += 1;
    }
    assert_eq!(entries.len(), named, "nothing but what was tried: {entries:?}");
}
