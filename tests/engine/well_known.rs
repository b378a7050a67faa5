//! Agent cards over HTTP: their paths, their contents, and their caching.

use std::sync::Arc;

use peregrine::{
    agent::{Profile, echo::Echo},
    binding::interfaces::{Binding, Interface},
    dialect::card::CardForm,
    engine::{Mount, Setup, Tenants},
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{V1, get, get_with, post, rpc, say},
    echo,
};

const PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

fn two_agents() -> Lab {
    let bob = Profile::new("bob", "The other one");
    let agents = vec![echo(), (bob, Arc::new(Echo))];
    Lab::new(Setup { agents, extended_card: true, tenants: Tenants::Any, ..Setup::default() })
}

#[test]
fn both_well_known_paths_serve_one_card() {
    let mut lab = Lab::echo();
    let [new, old] = PATHS.map(|path| lab.ask(&get(path)));
    assert_eq!((new.status, &new.fields, &new.body), (200, &old.fields, &old.body));
    let card = new.json();
    // The fields for clients of 1.0, and the fields for clients of 0.3 and 0.1.
    for key in ["name", "description", "version", "supportedInterfaces", "capabilities", "skills"] {
        assert!(card.get(key).is_some(), "{key}");
    }
    for key in ["url", "protocolVersion", "preferredTransport", "defaultInputModes"] {
        assert!(card.get(key).is_some(), "{key}");
    }
    assert_eq!(card["capabilities"]["streaming"], true);
}

#[test]
fn each_agent_has_its_card_below_its_path() {
    let mut lab = two_agents();
    for (base, name, url) in [
        ("", "echo", "http://a.example/"),
        ("/agents/echo", "echo", "http://a.example/agents/echo"),
        ("/agents/bob", "bob", "http://a.example/agents/bob"),
        ("/a2a/bob", "bob", "http://a.example/a2a/bob"),
        ("/api/v1/a2a/bob", "bob", "http://a.example/api/v1/a2a/bob"),
        ("/tenants/t-1", "echo", "http://a.example/tenants/t-1"),
        ("/tenants/bob", "bob", "http://a.example/tenants/bob"),
        ("/agents/bob/tenants/t-1", "bob", "http://a.example/agents/bob/tenants/t-1"),
    ] {
        for path in PATHS {
            let card = lab.ask(&get(&format!("{base}{path}"))).json();
            assert_eq!(card["name"], name, "{base}");
            assert_eq!(card["supportedInterfaces"][0]["url"], url);
            assert_eq!(card["url"], url, "{base}");
        }
        // The URL on the card is served.
        let path = url.trim_start_matches("http://a.example");
        lab.ask(&post(
            path,
            &[("Accept", "*/*")],
            &rpc("tasks/get", &json!({"id": "x", "contextId": "c"})),
        ));
    }
    for path in PATHS {
        assert_eq!(lab.ask(&get(&format!("/agents/nobody{path}"))).status, 404);
        // LangSmith selects the card by `assistant_id`.
        let card = lab.ask(&get(&format!("{path}?assistant_id=bob"))).json();
        assert_eq!(card["url"], "http://a.example/a2a/bob");
    }
}

#[test]
fn card_url_uses_the_request_host_or_the_public_url() {
    let mut lab = Lab::echo();
    let hosts = ["b.example:8080", "[::1]:9", "127.0.0.1:3000"];
    for host in hosts.iter().chain(&hosts) {
        let request = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", PATHS[0]);
        let card = lab.ask(request.as_bytes()).json();
        assert_eq!(card["url"], format!("http://{host}/"));
    }
    let card = lab.ask(format!("GET {} HTTP/1.0\r\n\r\n", PATHS[0]).as_bytes()).json();
    assert_eq!(card["url"], "http://127.0.0.1:3000/");
    // An unchecked host is not taken from a forwarded header.
    let forged =
        get_with(PATHS[0], "X-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\n");
    assert_eq!(lab.ask(&forged).json()["url"], "http://a.example/");
    let public_url = Some("https://mesh.example/base/".to_owned());
    let allow_hosts = vec!["a.example".to_owned()];
    let mut lab = Lab::new(Setup { public_url, allow_hosts, ..Setup::default() });
    // The card does not depend on the request.
    assert_eq!(lab.ask(&get(PATHS[0])).field("vary"), None);
    assert_eq!(lab.ask(&get(PATHS[0])).json()["url"], "https://mesh.example/base/");
    let named = lab.ask(&get(&format!("/agents/echo{}", PATHS[0]))).json();
    assert_eq!(named["url"], "https://mesh.example/base/agents/echo");
}

/// Binding, version and URL of each interface.
fn interfaces(card: &Value) -> Vec<(&str, &str, &str)> {
    let list = card["supportedInterfaces"].as_array().unwrap();
    list.iter()
        .map(|it| {
            let [binding, version, url] =
                ["protocolBinding", "protocolVersion", "url"].map(|key| it[key].as_str().unwrap());
            (binding, version, url)
        })
        .collect()
}

/// A lab of two agents with these interfaces on their cards.
#[cfg(feature = "grpc")]
fn listing(words: &[(Binding, Option<&str>)], form: CardForm) -> Lab {
    let bob = Profile::new("bob", "The other one");
    let own = |(binding, url): &(Binding, Option<&str>)| Interface {
        binding: *binding,
        url: url.map(str::to_owned),
    };
    let interfaces = words.iter().map(own).collect();
    let agents = vec![echo(), (bob, Arc::new(Echo))];
    let tenants = Tenants::Any;
    Lab::new(Setup { agents, interfaces, card: form, tenants, ..Setup::default() })
}

fn card(lab: &mut Lab, base: &str) -> Value {
    lab.ask(&get(&format!("{base}{}", PATHS[0]))).json()
}

#[test]
fn tenant_card_reveals_only_whether_the_name_is_configured() {
    let named = |names: &[&str]| Tenants::Named(names.iter().map(|name| (*name).into()).collect());
    for (tenants, agents, has_card) in [
        (named(&["acme", "other"]), 2, &["acme", "other", "bob"][..]),
        (Tenants::Any, 2, &["acme", "other", "bob", "else"]),
        (Tenants::OfOneAgent, 2, &["bob"]),
        (Tenants::OfOneAgent, 1, &["acme", "other", "bob", "else"]),
    ] {
        let bob = (Profile::new("bob", "The other one"), Arc::new(Echo) as _);
        let all = vec![echo(), bob].into_iter().take(agents).collect();
        let mut lab = Lab::new(Setup { agents: all, tenants, ..Setup::default() });
        // One of the tenants has a task; an invalid name has none.
        lab.ask(&post("/tenants/acme", &[], &rpc("SendMessage", &V1.params(say("hi")))));
        let agent_paths =
            if agents == 2 { &["", "/agents/echo", "/agents/bob"][..] } else { &[""] };
        for (agent_path, path) in
            agent_paths.iter().flat_map(|agent_path| PATHS.map(|path| (agent_path, path)))
        {
            let nothing = lab.ask(&get("/nothing/here"));
            for name in ["acme", "other", "bob", "else", ".x", "a%20b"] {
                let reply = lab.ask(&get(&format!("{agent_path}/tenants/{name}{path}")));
                // Another agent is not a tenant of this agent.
                let is_elsewhere = agents == 2 && name == "bob" && *agent_path == "/agents/echo";
                if !has_card.contains(&name) || is_elsewhere {
                    assert_eq!(
                        (reply.status, &reply.body),
                        (404, &nothing.body),
                        "{agent_path} {name}"
                    );
                    assert_eq!(reply.fields, nothing.fields, "{agent_path} {name}");
                    continue;
                }
                let is_bob = agents == 2 && (name == "bob" || *agent_path == "/agents/bob");
                assert_eq!(reply.json()["name"], if is_bob { "bob" } else { "echo" });
                if !is_bob && name != "acme" {
                    let acme = lab.ask(&get(&format!("{agent_path}/tenants/acme{path}")));
                    let renamed = acme.text().replace("/tenants/acme", &format!("/tenants/{name}"));
                    assert_eq!(reply.text(), renamed, "{agent_path} {name}");
                }
            }
        }
    }
}

#[test]
fn card_lists_only_json_rpc_and_http_json_by_default() {
    let mut lab = two_agents();
    for (base, rpc, rest) in [
        ("", "http://a.example/", "http://a.example"),
        ("/agents/bob", "http://a.example/agents/bob", "http://a.example/agents/bob"),
        ("/tenants/t", "http://a.example/tenants/t", "http://a.example/tenants/t"),
    ] {
        let card = card(&mut lab, base);
        let both = [("JSONRPC", rpc), ("HTTP+JSON", rest)];
        let expected: Vec<_> = ["1.0", "0.3"]
            .into_iter()
            .flat_map(|version| both.map(|(binding, url)| (binding, version, url)))
            .collect();
        assert_eq!(interfaces(&card), expected);
        let others = both.map(|(binding, url)| json!({"url": url, "transport": binding}));
        assert_eq!((&card["url"], &card["additionalInterfaces"]), (&json!(rpc), &json!(others)));
        // Each listed URL is served: clients of 0.3 append `/v1` themselves.
        let path = rest.trim_start_matches("http://a.example");
        assert_eq!(lab.ask(&get(&format!("{path}/tasks"))).status, 200);
        assert_eq!(lab.ask(&get(&format!("{path}/v1/tasks"))).status, 200);
    }
    // The platforms have only JSON-RPC.
    for (base, versions) in [("/a2a/bob", &["1.0", "0.3"][..]), ("/api/v1/a2a/bob", &["0.3"])] {
        let (card, url) = (card(&mut lab, base), format!("http://a.example{base}"));
        let rows: Vec<_> = versions.iter().map(|version| ("JSONRPC", *version, &*url)).collect();
        assert_eq!(interfaces(&card), rows);
        assert_eq!(card["additionalInterfaces"].as_array().unwrap().len(), 1);
    }
}

#[cfg(feature = "grpc")]
#[test]
fn configured_interfaces_are_listed_in_configured_order() {
    let list = [(Binding::Grpc, None), (Binding::WebSocket, None), (Binding::JsonRpc, None)];
    let ws = "https://a2a-protocol.org/bindings/websocket";
    let mut lab = listing(&list, CardForm::Hybrid);
    let root = card(&mut lab, "");
    let rows = |version, rpc, socket| {
        [("GRPC", version, "a.example:80"), (ws, version, socket), ("JSONRPC", version, rpc)]
    };
    let both = |rpc, socket| [rows("1.0", rpc, socket), rows("0.3", rpc, socket)].concat();
    assert_eq!(interfaces(&root), both("http://a.example/", "ws://a.example/"));
    assert_eq!(
        (&root["url"], &root["preferredTransport"]),
        (&json!("a.example:80"), &json!("GRPC"))
    );
    // gRPC has no paths: it uses the tenant instead, which 0.3 lacks.
    let (rpc, socket) = ("http://a.example/agents/bob", "ws://a.example/agents/bob");
    let bob = card(&mut lab, "/agents/bob");
    let expected = [&rows("1.0", rpc, socket)[..], &rows("0.3", rpc, socket)[1..]].concat();
    assert_eq!(interfaces(&bob), expected);
    for one in bob["supportedInterfaces"].as_array().unwrap() {
        let tenant = (one["protocolBinding"] == "GRPC").then(|| json!("bob"));
        assert_eq!(one.get("tenant"), tenant.as_ref());
    }
    assert_eq!((&bob["url"], &bob["preferredTransport"]), (&json!(socket), &json!(ws)));
    // The same holds for a tenant; with both, gRPC cannot be listed.
    let (rpc, socket) = ("http://a.example/tenants/t", "ws://a.example/tenants/t");
    let tenant = card(&mut lab, "/tenants/t");
    let expected = [&rows("1.0", rpc, socket)[..], &rows("0.3", rpc, socket)[1..]].concat();
    assert_eq!(interfaces(&tenant), expected);
    let first = &tenant["supportedInterfaces"][0];
    assert_eq!((&first["protocolBinding"], &first["tenant"]), (&json!("GRPC"), &json!("t")));
    let both = card(&mut lab, "/agents/bob/tenants/t");
    assert!(interfaces(&both).iter().all(|(binding, ..)| *binding != "GRPC"), "{both}");
    // The strict forms list the same.
    for form in [CardForm::V1, CardForm::V03] {
        let mut lab = listing(&list, form);
        let strict = card(&mut lab, "/agents/bob");
        for key in ["supportedInterfaces", "url", "preferredTransport", "additionalInterfaces"] {
            if let Some(value) = strict.get(key) {
                assert_eq!(value, &bob[key], "{form:?}");
            }
        }
        assert_eq!(strict.get("url").is_some(), form == CardForm::V03);
    }
}

#[cfg(feature = "grpc")]
#[test]
fn card_falls_back_to_json_rpc_where_grpc_cannot_be_listed() {
    let mut lab = listing(&[(Binding::Grpc, None)], CardForm::Hybrid);
    let bob = "http://a.example/agents/bob";
    let rows = [("GRPC", "1.0", "a.example:80"), ("JSONRPC", "0.3", bob)];
    assert_eq!(interfaces(&card(&mut lab, "/agents/bob")), rows);
    // The platforms have no gRPC.
    let url = "http://a.example/a2a/bob";
    let rows = [("JSONRPC", "1.0", url), ("JSONRPC", "0.3", url)];
    assert_eq!(interfaces(&card(&mut lab, "/a2a/bob")), rows);
    let tenant = "http://a.example/tenants/t";
    let rows = [("GRPC", "1.0", "a.example:80"), ("JSONRPC", "0.3", tenant)];
    assert_eq!(interfaces(&card(&mut lab, "/tenants/t")), rows);
}

#[cfg(feature = "grpc")]
#[test]
fn operator_url_is_listed_with_agent_paths_appended() {
    let list = [
        (Binding::JsonRpc, Some("https://rpc.example/a/")),
        (Binding::HttpJson, Some("https://rest.example")),
        (Binding::Grpc, Some("http://grpc.example:9")),
        (Binding::WebSocket, Some("wss://ws.example/s")),
    ];
    let mut lab = listing(&list, CardForm::V1);
    let urls = |card: &Value| -> Vec<String> {
        interfaces(card).iter().filter(|one| one.1 == "1.0").map(|one| one.2.to_owned()).collect()
    };
    assert_eq!(urls(&card(&mut lab, "")), list.map(|(_, url)| url.unwrap()));
    assert_eq!(
        urls(&card(&mut lab, "/agents/bob")),
        [
            "https://rpc.example/a/agents/bob",
            "https://rest.example/agents/bob",
            "http://grpc.example:9",
            "wss://ws.example/s/agents/bob",
        ]
    );
    // A dialect that lists only JSON-RPC uses the operator's URL as well.
    assert_eq!(
        card(&mut lab, "/a2a/bob")["supportedInterfaces"][0]["url"],
        "https://rpc.example/a/a2a/bob"
    );
}

#[test]
fn forwarded_headers_are_used_only_with_trust_forwarded() {
    let forwarded = "X-Forwarded-Proto: https\r\nX-Forwarded-Host: mesh.example:8443, inner\r\n\
                     X-Forwarded-Prefix: /a2a-agents/\r\n";
    let mut lab = Lab::echo();
    assert_eq!(lab.ask(&get_with(PATHS[0], forwarded)).json()["url"], "http://a.example/");
    let setup = Setup { trust_forwarded: true, extended_card: true, ..Setup::default() };
    let mut lab = Lab::new(setup);
    for _ in 0..2 {
        let reply = lab.ask(&get_with(PATHS[0], forwarded));
        assert!(reply.field("vary").unwrap().contains("X-Forwarded-Host"));
        let (card, base) = (reply.json(), "https://mesh.example:8443/a2a-agents");
        assert_eq!(card["url"], format!("{base}/"));
        assert_eq!(interfaces(&card)[1], ("HTTP+JSON", "1.0", base));
        // Another client of the same host does not get that card.
        assert_eq!(lab.ask(&get(PATHS[0])).json()["url"], "http://a.example/");
        let secure = "X-Forwarded-Proto: HTTPS\r\n";
        assert_eq!(lab.ask(&get_with(PATHS[0], secure)).json()["url"], "https://a.example/");
    }
    let extended = get_with("/extendedAgentCard", forwarded);
    assert_eq!(interfaces(&lab.ask(&extended).json())[1].2, "https://mesh.example:8443/a2a-agents");
    // A forwarded port applies unless the host has one or the scheme implies it.
    for (lines, url) in [
        ("X-Forwarded-Proto: https\r\nX-Forwarded-Port: 8443\r\n", "https://a.example:8443/"),
        (
            "X-Forwarded-Proto: https\r\nX-Forwarded-Host: b.example\r\nX-Forwarded-Port: 8443, 1\r\n",
            "https://b.example:8443/",
        ),
        ("X-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\n", "https://a.example/"),
        ("X-Forwarded-Port: 443\r\n", "http://a.example:443/"),
        ("X-Forwarded-Port: 80\r\n", "http://a.example/"),
        ("X-Forwarded-Host: [::1]\r\nX-Forwarded-Port: 9\r\n", "http://[::1]:9/"),
        ("X-Forwarded-Host: b.example:7\r\nX-Forwarded-Port: 9\r\n", "http://b.example:7/"),
        ("X-Forwarded-Port: 0\r\n", "http://a.example/"),
        ("X-Forwarded-Port: 65536\r\n", "http://a.example/"),
        ("X-Forwarded-Port: 9@evil.example\r\n", "http://a.example/"),
    ] {
        assert_eq!(lab.ask(&get_with(PATHS[0], lines)).json()["url"], url, "{lines}");
    }
    // Malformed values are ignored.
    for (lines, url) in [
        ("X-Forwarded-Host: a b\r\n", "http://a.example/"),
        ("X-Forwarded-Host: evil.example/x?\r\n", "http://a.example/"),
        ("X-Forwarded-Host: u@evil.example\r\n", "http://a.example/"),
        ("X-Forwarded-Proto: javascript\r\n", "http://a.example/"),
        ("X-Forwarded-Prefix: x\r\n", "http://a.example/"),
        ("X-Forwarded-Prefix: /../x\r\n", "http://a.example/"),
        ("X-Forwarded-Prefix: /a\"b\r\n", "http://a.example/"),
    ] {
        assert_eq!(lab.ask(&get_with(PATHS[0], lines)).json()["url"], url, "{lines}");
    }
    // The public URL takes precedence.
    let public_url = Some("https://public.example".to_owned());
    let allow_hosts = vec!["*".to_owned()];
    let setup = Setup { trust_forwarded: true, public_url, allow_hosts, ..Setup::default() };
    let mut lab = Lab::new(setup);
    assert_eq!(lab.ask(&get_with(PATHS[0], forwarded)).json()["url"], "https://public.example/");
}

#[test]
fn more_hosts_than_the_card_cache_holds_are_served() {
    let mut lab = Lab::echo();
    for _ in 0..2 {
        for number in 0..50 {
            let request = format!("GET {} HTTP/1.1\r\nHost: h{number}\r\n\r\n", PATHS[0]);
            assert_eq!(lab.ask(request.as_bytes()).json()["url"], format!("http://h{number}/"));
        }
    }
}

#[test]
fn card_is_revalidated_by_etag_or_last_modified() {
    let mut lab = Lab::echo();
    let card = lab.ask(&get(PATHS[0]));
    let field = |name: &str| card.field(name).unwrap_or_else(|| panic!("no {name}")).to_owned();
    let (tag, modified) = (field("etag"), field("last-modified"));
    assert!(field("cache-control").contains("max-age="));
    assert!(field("vary").contains("Host"));
    let revalidate = |lab: &mut Lab, lines: &str| {
        let peer = lab.open();
        lab.write(peer, &get_with(PATHS[0], lines));
        let reply = lab.reply(peer);
        assert!(lab.received(peer).is_empty());
        if reply.status == 304 {
            // RFC 9110 §15.4.5: the fields that a 200 would have had.
            assert_eq!(reply.field("etag"), Some(tag.as_str()));
            assert!(reply.field("cache-control").is_some() && reply.body.is_empty());
        }
        reply.status
    };
    for (lines, status) in [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-None-Match: W/{tag}\r\n"), 304),
        (format!("If-None-Match: \"x\", {tag}\r\n"), 304),
        ("If-None-Match: *\r\n".to_owned(), 304),
        ("If-None-Match: \"x\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {modified}\r\n"), 304),
        ("If-Modified-Since: Mon, 21 Sep 2026 14:13:19 GMT\r\n".to_owned(), 200),
        ("If-Modified-Since: yesterday\r\n".to_owned(), 200),
        // RFC 9110 §13.2.2: the tag decides alone.
        (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {modified}\r\n"), 200),
    ] {
        assert_eq!(revalidate(&mut lab, &lines), status, "{lines}");
    }
    let peer = lab.open();
    lab.write(peer, format!("HEAD {} HTTP/1.1\r\nHost: a.example\r\n\r\n", PATHS[0]).as_bytes());
    let head = lab.head_reply(peer);
    assert_eq!((head.status, head.fields), (200, card.fields));
    assert!(lab.received(peer).is_empty());
}

#[test]
fn extended_card_uses_the_format_of_the_called_generation() {
    let mut lab = two_agents();
    let new = lab.result("GetExtendedAgentCard", &Value::Null);
    assert!(new["supportedInterfaces"].is_array() && new.get("url").is_none(), "pure 1.0: {new}");
    assert_eq!(new["capabilities"]["extendedAgentCard"], true);
    for method in ["agent/getAuthenticatedExtendedCard", "agent/authenticatedExtendedCard"] {
        let old = lab.result(method, &Value::Null);
        assert!(old["url"].is_string() && old.get("supportedInterfaces").is_none(), "{old}");
        assert_eq!(old["supportsAuthenticatedExtendedCard"], true);
    }
    let by_get = lab.ask(&get("/agents/bob/agent/authenticatedExtendedCard")).json();
    assert_eq!(by_get["name"], "bob");
    let reply = lab.ask(&post("/agents/bob/", &[], &rpc("GetExtendedAgentCard", &Value::Null)));
    let card = reply.result();
    assert_eq!(card["supportedInterfaces"][0]["url"], "http://a.example/agents/bob");
}

#[test]
fn disabled_extended_card_is_neither_served_nor_announced() {
    // Without authentication the extended card is off unless the operator turns it on.
    let mut lab = Lab::echo();
    assert_eq!(lab.code("GetExtendedAgentCard", &Value::Null), -32004);
    for method in ["agent/getAuthenticatedExtendedCard", "agent/authenticatedExtendedCard"] {
        assert_eq!(lab.code(method, &Value::Null), -32007, "{method}");
    }
    let card = lab.ask(&get(PATHS[0])).json();
    assert_ne!(card["capabilities"]["extendedAgentCard"], true);
    assert_ne!(card["supportsAuthenticatedExtendedCard"], true);
    let reply = lab.ask(&get("/agent/authenticatedExtendedCard"));
    assert_eq!(reply.status, 404);
    // The error names the options that turn it on.
    let answer = lab.call("GetExtendedAgentCard", &Value::Null);
    for body in [reply.json(), answer] {
        let text = body["error"]["message"].as_str().unwrap().to_owned();
        assert!(text.contains("--extended-card") && text.contains("Setup::extended_card"));
    }
}

#[test]
fn extended_card_is_announced_only_where_a_method_serves_it() {
    let setup = Setup { agents: vec![echo()], extended_card: true, ..Setup::default() };
    let mut lab = Lab::new(setup);
    // LangSmith has only the method of 1.0.
    for (base, has_old) in
        [("", true), ("/api/v1/a2a/echo", true), ("/tenants/t", true), ("/a2a/echo", false)]
    {
        let card = lab.ask(&get(&format!("{base}{}", PATHS[0]))).json();
        assert_eq!(card["capabilities"]["extendedAgentCard"], true, "{base}");
        let old = card.get("supportsAuthenticatedExtendedCard").is_some();
        assert_eq!(old, has_old && card.get("url").is_some(), "{base}");
    }
}

#[test]
fn card_setting_selects_v1_v03_or_hybrid_form() {
    for (form, new, old) in
        [(CardForm::V1, true, false), (CardForm::V03, false, true), (CardForm::Hybrid, true, true)]
    {
        let mut lab = Lab::new(Setup { card: form, ..Setup::default() });
        for path in PATHS {
            let card = lab.ask(&get(path)).json();
            let has = |key: &str| card.get(key).is_some();
            assert_eq!((has("supportedInterfaces"), has("url")), (new, old), "{form:?}");
        }
        // A mount with 1.0 alone does not list 0.3.
        let mounts = vec![Mount { path: "/r".into(), dialect: "a2a_rust".into(), agent: None }];
        let mut lab = Lab::new(Setup { card: form, mounts, ..Setup::default() });
        let card = lab.ask(&get(&format!("/r{}", PATHS[0]))).json();
        assert!(card.get("supportedInterfaces").is_some() && card.get("url").is_none(), "{form:?}");
    }
}

#[test]
fn non_streaming_agent_card_does_not_claim_streaming() {
    let mut non_streaming = echo();
    non_streaming.0.streaming = false;
    let mut lab = Lab::new(Setup { agents: vec![non_streaming], ..Setup::default() });
    let card = lab.ask(&get(PATHS[0])).json();
    assert_ne!(card["capabilities"]["streaming"], true);
}

#[test]
fn each_mount_serves_its_own_card() {
    let mount = |path: &str, dialect: &str| Mount {
        path: path.to_owned(),
        dialect: dialect.to_owned(),
        agent: None,
    };
    let mounts = vec![mount("/old", "rabbithole"), mount("/deep/er", "a2a_rust")];
    let mut lab = Lab::new(Setup { mounts, ..Setup::default() });
    for (base, url) in [
        ("/old", "http://a.example/old"),
        ("/deep/er", "http://a.example/deep/er"),
        ("", "http://a.example/"),
    ] {
        for path in PATHS {
            let card = lab.ask(&get(&format!("{base}{path}"))).json();
            assert_eq!(card["supportedInterfaces"][0]["url"], url);
            // A mount with 0.1 alone does not announce 0.3, but its clients find their URL.
            let is_v03 = card.get("protocolVersion").is_some();
            assert_eq!(
                (is_v03, card.get("additionalInterfaces").is_some()),
                (base.is_empty(), is_v03)
            );
            assert_eq!(card.get("url").is_some(), base != "/deep/er");
        }
    }
    // A prefix matches whole path segments.
    assert_eq!(lab.ask(&get("/older/.well-known/agent.json")).status, 404);
}
