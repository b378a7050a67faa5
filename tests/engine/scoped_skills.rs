//! Skills for callers with certain scopes only: shown on the extended card, in each form, and never
//! on the public one.

use std::sync::Arc;

use peregrine::{
    agent::{Profile, Skill, echo::Echo},
    auth::Authenticator,
    engine::{Mount, Setup},
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{get_with, post, rpc},
    callers::ByName,
    reply::Reply,
};

fn profile() -> Profile {
    let skill = |id: &str, scopes: &[&str]| Skill {
        id: id.to_owned(),
        name: id.to_owned(),
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        ..Skill::default()
    };
    let mut profile = Profile::new("artist", "Has skills of all kinds.");
    profile.skills =
        vec![skill("open", &[]), skill("draw", &["art"]), skill("paint", &["art", "oil"])];
    profile
}

fn setup() -> Setup {
    let mount = |path: &str, dialect: &str| Mount {
        path: path.to_owned(),
        dialect: dialect.to_owned(),
        agent: None,
    };
    let mounts = vec![mount("/evo", "evo_ai")];
    Setup { agents: vec![(profile(), Arc::new(Echo))], mounts, ..Setup::default() }
}

fn lab() -> Lab {
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    Lab::new(Setup { authenticator, ..setup() })
}

/// A path, and the method of JSON-RPC; without it: a GET request.
#[derive(Clone, Copy, Debug)]
struct Way {
    path: &'static str,
    method: &'static str,
}

/// Each way to request the extended card over HTTP.
const WAYS: [Way; 9] = [
    Way { path: "/", method: "GetExtendedAgentCard" },
    Way { path: "/", method: "agent/getAuthenticatedExtendedCard" },
    Way { path: "/", method: "agent/authenticatedExtendedCard" },
    Way { path: "/agents/artist", method: "GetExtendedAgentCard" },
    Way { path: "/evo", method: "agent/authenticatedExtendedCard" },
    Way { path: "/extendedAgentCard", method: "" },
    Way { path: "/v1/card", method: "" },
    Way { path: "/agent/authenticatedExtendedCard", method: "" },
    Way { path: "/agents/artist/agent/authenticatedExtendedCard", method: "" },
];

fn get_card(lab: &mut Lab, way: Way, token: &str, lines: &str) -> Reply {
    let Way { path, method } = way;
    let authorization = format!("Bearer {token}");
    match method {
        "" => lab.ask(&get_with(path, &format!("Authorization: {authorization}\r\n{lines}"))),
        _ => {
            let fields = [("Authorization", &*authorization)];
            lab.ask(&post(path, &fields, &rpc(method, &Value::Null)))
        }
    }
}

fn card(reply: &Reply) -> Value {
    let json = reply.json();
    if json["result"].is_object() { json["result"].clone() } else { json }
}

fn skills(card: &Value) -> Vec<&str> {
    let skills = card["skills"].as_array().unwrap_or_else(|| panic!("{card}"));
    skills.iter().map(|skill| skill["id"].as_str().unwrap()).collect()
}

fn public(lab: &mut Lab, token: &str) {
    for path in
        ["/.well-known/agent-card.json", "/.well-known/agent.json", "/evo/.well-known/agent.json"]
    {
        let reply = lab.ask(&get_with(path, &format!("Authorization: Bearer {token}\r\n")));
        assert_eq!(skills(&reply.json()), ["open"], "{path}");
        assert!(reply.field("cache-control").unwrap().starts_with("public"));
    }
}

#[test]
fn a_skill_is_shown_to_callers_that_have_all_of_its_scopes() {
    let mut lab = lab();
    // Alternating, so that a card cached for one caller could reach another.
    for _ in 0..2 {
        for (token, shown) in [
            ("alice art,oil", &["open", "draw", "paint"][..]),
            ("bob", &["open"]),
            ("carol art,a2a:read", &["open", "draw"]),
            ("dave oil,artist", &["open"]),
        ] {
            for way in WAYS {
                let reply = get_card(&mut lab, way, token, "");
                assert_eq!(reply.status, 200, "{way:?}");
                assert_eq!(skills(&card(&reply)), shown, "{way:?} {token}");
                assert!(!reply.text().contains("\"scopes\""), "{way:?}");
            }
            public(&mut lab, token);
        }
    }
    assert_eq!(get_card(&mut lab, WAYS[7], "wrong", "").status, 401);
}

#[test]
fn batch_and_websocket_cards_show_scoped_skills() {
    let mut lab = lab();
    let call = rpc("GetExtendedAgentCard", &Value::Null);
    for (token, shown) in [("alice art", &["open", "draw"][..]), ("bob", &["open"])] {
        let authorization = format!("Bearer {token}");
        let fields = [("Authorization", &*authorization)];
        let answers = lab.ask(&post("/", &fields, &format!("[{call},{call}]"))).json();
        assert_eq!(skills(&answers[1]["result"]), shown);
        let peer = lab.socket("/", &format!("Authorization: {authorization}\r\n"));
        assert_eq!(skills(&lab.say(peer, &call)[0]["result"]), shown);
    }
}

#[test]
fn scoped_card_is_not_cached_across_callers() {
    let mut lab = lab();
    for way in [WAYS[7], WAYS[8]] {
        let alice = get_card(&mut lab, way, "alice art", "");
        assert_eq!(alice.field("cache-control"), Some("private, no-cache"));
        assert!(alice.field("last-modified").is_none());
        let matching = format!("If-None-Match: {}\r\n", alice.field("etag").unwrap());
        assert_eq!(get_card(&mut lab, way, "alice art", &matching).status, 304);
        let since = "If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT\r\n";
        for lines in [&*matching, since] {
            let bob = get_card(&mut lab, way, "bob", lines);
            assert_eq!((bob.status, skills(&bob.json())), (200, vec!["open"]));
            assert_ne!(bob.field("etag"), alice.field("etag"));
        }
    }
    let rest = get_card(&mut lab, WAYS[5], "alice art", "");
    assert_eq!(rest.field("cache-control"), Some("no-store"));
}

#[test]
fn skill_scopes_use_the_security_format_of_each_generation() {
    let mut lab = lab();
    let token = "alice art,oil";
    let new = card(&get_card(&mut lab, WAYS[0], token, ""));
    let requirements = |scopes: &[&str]| {
        json!([
            {"schemes": {"token": {"list": scopes}}},
            {"schemes": {"key": {"list": scopes}}},
        ])
    };
    assert!(new["skills"][0]["securityRequirements"].is_null());
    assert_eq!(new["skills"][1]["securityRequirements"], requirements(&["art"]));
    assert_eq!(new["skills"][2]["securityRequirements"], requirements(&["art", "oil"]));
    for way in [WAYS[1], WAYS[6], WAYS[7]] {
        let old = card(&get_card(&mut lab, way, token, ""));
        assert!(old["skills"][0]["security"].is_null());
        assert_eq!(old["skills"][1]["security"], json!([{"token": ["art"]}, {"key": ["art"]}]));
        assert!(old["skills"][1]["securityRequirements"].is_null());
    }
}

#[test]
fn server_without_authentication_hides_scoped_skills() {
    // Without authentication all callers get the extended card.
    let mut lab = Lab::new(Setup { extended_card: true, ..setup() });
    for way in WAYS {
        let reply = get_card(&mut lab, way, "alice art,oil", "");
        assert_eq!(skills(&card(&reply)), ["open"], "{way:?}");
    }
    public(&mut lab, "alice art,oil");
}

#[test]
fn extended_card_path_requires_the_scopes_of_its_call() {
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let special = Profile { scopes: vec!["special".to_owned()], ..profile() };
    let agents: Vec<(Profile, Arc<dyn peregrine::agent::Agent>)> = vec![(special, Arc::new(Echo))];
    let mut lab = Lab::new(Setup { authenticator, requires_scopes: true, agents, ..setup() });
    for (token, status) in
        [("alice a2a:read,special", 200), ("alice a2a:send,special", 403), ("alice a2a:read", 403)]
    {
        for way in [WAYS[3], WAYS[5], WAYS[7]] {
            assert_eq!(get_card(&mut lab, way, token, "").status, status, "{way:?} {token}");
        }
    }
}
