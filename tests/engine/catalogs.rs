//! `/agents` and the catalog of RFC 9727 list the served agents and follow changes.

use std::sync::Arc;

use peregrine::{
    agent::{Profile, echo::Echo},
    engine::{Cors, Mount, Setup},
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{get, get_with, post},
    echo,
    reply::Reply,
};

const AGENTS: &str = "/agents";
const CATALOG: &str = "/.well-known/api-catalog";
const LINKSET: &str =
    r#"application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727""#;

fn bob() -> Profile {
    let mut bob = Profile::new("bob", "The \"other\" one.");
    bob.documentation_url = Some("https://o/docs".to_owned());
    bob.version = "7".to_owned();
    bob
}

fn mount(path: &str, dialect: &str) -> Mount {
    let agent = Some("bob".to_owned());
    Mount { path: path.to_owned(), dialect: dialect.to_owned(), agent }
}

fn lab(mounts: Vec<Mount>) -> Lab {
    let agents = vec![echo(), (bob(), Arc::new(Echo))];
    Lab::new(Setup { agents, mounts, ..Setup::default() })
}

fn names(lab: &mut Lab) -> Vec<String> {
    let list = lab.ask(&get(AGENTS)).json();
    let named = list["agents"].as_array().unwrap().iter();
    named.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn linkset(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.field("content-type"), Some(LINKSET));
    let mut json: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(json.as_object().unwrap().len(), 1);
    match json["linkset"].take() {
        Value::Array(contexts) => contexts,
        other => panic!("{other}"),
    }
}

#[test]
fn every_agent_is_listed_with_its_card_and_its_endpoint() {
    let mut lab = lab(vec![mount("/evo", "evo_ai")]);
    let list = lab.ask(&get(AGENTS)).json();
    let listed = list["agents"].as_array().unwrap();
    assert_eq!(listed.len(), 3);
    assert_eq!(
        listed[1],
        json!({
            "name": "bob", "description": "The \"other\" one.", "version": "7",
            "url": "http://a.example/agents/bob",
            "cardUrl": "http://a.example/agents/bob/.well-known/agent-card.json",
        })
    );
    assert_eq!(
        (&listed[0]["name"], &listed[0]["url"]),
        (&json!("echo"), &json!("http://a.example/"))
    );
    assert_eq!((&listed[2]["name"], &listed[2]["dialect"]), (&json!("bob"), &json!("evo_ai")));
    // Each card is at its listed path and names the listed endpoint.
    for one in listed {
        let path = one["cardUrl"].as_str().unwrap().strip_prefix("http://a.example").unwrap();
        let card = lab.ask(&get(path)).json();
        assert_eq!((&card["name"], &card["version"]), (&one["name"], &one["version"]));
        let named = card["supportedInterfaces"].as_array().unwrap().iter();
        assert!(named.map(|one| &one["url"]).any(|url| *url == one["url"]), "{card}");
    }
}

#[test]
fn the_catalog_is_a_linkset_of_endpoints_and_cards() {
    let mut lab = lab(vec![mount("/evo", "evo_ai")]);
    let reply = lab.ask(&get(CATALOG));
    let contexts = linkset(&reply);
    let catalog_url = format!("http://a.example{CATALOG}");
    assert_eq!(contexts[0]["anchor"], catalog_url);
    let items: Vec<&Value> =
        contexts[0]["item"].as_array().unwrap().iter().map(|item| &item["href"]).collect();
    let anchors: Vec<&Value> = contexts[1..].iter().map(|context| &context["anchor"]).collect();
    assert_eq!(items, anchors);
    assert_eq!(
        anchors,
        ["http://a.example/", "http://a.example/agents/bob", "http://a.example/evo"]
    );
    let card = json!([{
        "href": "http://a.example/agents/bob/.well-known/agent-card.json",
        "type": "application/json",
    }]);
    assert_eq!((&contexts[2]["service-desc"], &contexts[2]["service-meta"]), (&card, &card));
    assert_eq!(contexts[2]["service-doc"], json!([{"href": "https://o/docs"}]));
    assert!(contexts[1].get("service-doc").is_none());
    // RFC 9727 §2: HEAD returns the location of the catalog.
    let peer = lab.open();
    let head = format!("HEAD {CATALOG} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    lab.write(peer, head.as_bytes());
    let head = lab.head_reply(peer);
    assert_eq!(head.fields, reply.fields);
    assert_eq!(head.field("link"), Some(&*format!("<{catalog_url}>; rel=\"api-catalog\"")));
}

#[test]
fn agent_lists_follow_added_and_removed_agents() {
    let mut lab = lab(Vec::new());
    let first = lab.ask(&get(AGENTS));
    assert_eq!(names(&mut lab), ["echo", "bob"]);
    let agents = lab.engine.agents().unwrap().clone();
    lab.pass(5_000);
    agents.add(Profile::new("carol", "The third."), Arc::new(Echo)).unwrap();
    assert_eq!(names(&mut lab), ["echo", "bob", "carol"]);
    agents.remove("bob").unwrap();
    assert_eq!(names(&mut lab), ["echo", "carol"]);
    assert_eq!(linkset(&lab.ask(&get(CATALOG))).len(), 3);
    let now = lab.ask(&get(AGENTS));
    assert_ne!(now.field("etag"), first.field("etag"));
    assert_ne!(now.field("last-modified"), first.field("last-modified"));
    // A replacement with an equal profile changes the date of the list, not its tag.
    lab.pass(5_000);
    agents.replace(Profile::new("carol", "The third."), Arc::new(Echo)).unwrap();
    let again = lab.ask(&get(AGENTS));
    assert_eq!(again.field("etag"), now.field("etag"));
    assert_ne!(again.field("last-modified"), now.field("last-modified"));
}

#[test]
fn agent_lists_support_conditional_requests() {
    let mut lab = lab(Vec::new());
    for path in [AGENTS, CATALOG] {
        let reply = lab.ask(&get(path));
        assert_eq!(reply.field("cache-control"), Some("public, max-age=300"));
        assert_eq!(reply.field("vary"), Some("Host"));
        let (etag, date) = (reply.field("etag").unwrap(), reply.field("last-modified").unwrap());
        for (lines, status) in [
            (format!("If-None-Match: {etag}\r\n"), 304),
            (format!("If-Modified-Since: {date}\r\n"), 304),
            (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n"), 200),
        ] {
            assert_eq!(lab.ask(&get_with(path, &lines)).status, status, "{path} {lines}");
        }
        assert_eq!(lab.ask(&post(path, &[], "{}")).status, 405, "{path}");
        let options = format!("OPTIONS {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let options = lab.ask(options.as_bytes());
        assert_eq!((options.status, options.field("allow")), (204, Some("GET, HEAD, OPTIONS")));
    }
}

#[test]
fn agent_list_respects_mounts_cors_and_public_url() {
    // A mount at this path replaces the list.
    let mut mounted = lab(vec![mount("/agents", "standard")]);
    assert_eq!(mounted.ask(&get(AGENTS)).status, 405);
    // With a mount at the root, the default agent is served at the path of its name.
    let mut root = lab(vec![mount("/", "standard")]);
    let list = root.ask(&get(AGENTS)).json();
    let urls: Vec<&Value> =
        list["agents"].as_array().unwrap().iter().map(|one| &one["url"]).collect();
    assert_eq!(
        urls,
        ["http://a.example/agents/echo", "http://a.example/agents/bob", "http://a.example/"]
    );
    let cors = Cors { origins: vec!["https://p".to_owned()], ..Cors::default() };
    let public_url = Some("https://mesh.example/x".to_owned());
    let allow_hosts = vec!["a.example".to_owned()];
    let mut lab = Lab::new(Setup { cors, public_url, allow_hosts, ..Setup::default() });
    let reply = lab.ask(&get_with(AGENTS, "Origin: https://p\r\n"));
    assert_eq!(reply.field("access-control-allow-origin"), Some("https://p"));
    assert_eq!(reply.field("vary"), Some("Origin"));
    let card = "https://mesh.example/x/.well-known/agent-card.json";
    assert_eq!(reply.json()["agents"][0]["cardUrl"], card);
}
