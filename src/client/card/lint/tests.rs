//! Cards and their findings.

use super::*;
use crate::client::HttpOrigin;

/// `error member` or `warning member` of each finding.
fn found(json: &str) -> Vec<String> {
    found_at(json, None)
}

fn found_at(json: &str, card_url: Option<&str>) -> Vec<String> {
    let url = card_url.map(|url| HttpOrigin::parse(url).unwrap());
    let findings = lint(json.as_bytes(), url.as_ref());
    let shown = findings.iter().map(|one| {
        let level = if one.level == FindingLevel::Error { "error" } else { "warning" };
        format!("{level} {}", one.member)
    });
    shown.collect()
}

fn errors(findings: &[CardFinding]) -> Vec<&str> {
    let errors = findings.iter().filter(|finding| finding.level == FindingLevel::Error);
    errors.map(|finding| finding.member.as_str()).collect()
}

const V1: &str = r#"{"name":"A","description":"d","supportedInterfaces":[{"url":"https://a/",
    "protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"version":"1","capabilities":{},
    "defaultInputModes":["text/plain"],"defaultOutputModes":["*/*"],"skills":[{"id":"i","name":"n",
    "description":"d","tags":["t"]}]SPLICE}"#;

/// The card of 1.0 with more members.
fn v1(more: &str) -> String {
    V1.replace("SPLICE", more)
}

fn changed(from: &str, to: &str) -> String {
    let card = v1("");
    assert!(card.contains(from), "{from}");
    card.replacen(from, to, 1)
}

#[test]
fn lint_errors_match_a2a_lint() {
    // A2A 0.3 requires `tags`; a2a-lint only recommends them.
    let ours_alone = ["skills[0].tags"];
    let json = include_str!("../../../../tests/data/cards/a2a_lint.json");
    let cases: Vec<Value> = serde_json::from_str(json).unwrap();
    assert!(cases.len() > 70);
    for case in cases {
        let card = case["card"].to_string();
        let theirs: Vec<&str> =
            case["errors"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        let findings = lint(card.as_bytes(), None);
        let ours = errors(&findings);
        for member in &theirs {
            // a2a-lint names the list, we name the entry.
            let is_match = |one: &&str| one == member || one.starts_with(&format!("{member}["));
            assert!(ours.iter().any(is_match), "{member} is missing in {ours:?} of {card}");
        }
        for member in &ours {
            let is_match = |one: &&str| one == member || member.starts_with(&format!("{one}["));
            let is_ours = ours_alone.contains(member);
            assert!(
                is_ours || theirs.iter().any(is_match),
                "{member} is not in {theirs:?}: {card}"
            );
        }
    }
}

#[test]
fn valid_1_0_card_has_no_findings() {
    assert_eq!(found(&v1("")), Vec::<String>::new());
    let signed = r#","signatures":[{"protected":"eyJhbGciOiJFUzI1NiIsImtpZCI6IjEiLCJ0eXAiOiJKT1NFIn0",
        "signature":"AAAA"}],"securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"header",
        "name":"X"}},"o":{"oauth2SecurityScheme":{"flows":{"clientCredentials":{"tokenUrl":
        "https://t/","scopes":{}}}}}},"securityRequirements":[{"schemes":{"k":{},"o":{"list":["s"]}}}]"#;
    assert_eq!(found(&v1(signed)), Vec::<String>::new());
}

#[test]
fn schema_violation_is_an_error_with_its_clause() {
    let findings = validate(br#"{"supportedInterfaces":[{"url":7}],"capabilities":[]}"#);
    let shown: Vec<String> = findings.iter().map(CardFinding::to_string).collect();
    let missing = "required and missing (A2A 1.0 §4.4.1)";
    assert_eq!(shown[0], format!("error: name: {missing}"));
    let of_interface = "error: supportedInterfaces[0].url: a number, not a string";
    assert!(shown.contains(&format!("{of_interface} (A2A 1.0 §4.4.6)")), "{shown:#?}");
    for member in ["description", "version", "defaultInputModes", "defaultOutputModes", "skills"] {
        assert!(shown.contains(&format!("error: {member}: {missing}")), "{member}");
    }
    let capabilities = "error: capabilities: an array, not an object (A2A 1.0 §4.4.1)";
    assert!(shown.contains(&capabilities.to_owned()));
    assert!(validate(v1(r#","extra":1"#).as_bytes()).is_empty());
    assert_eq!(errors(&validate(b"[]")), [""]);
    assert_eq!(validate(b"{")[0].clause, "RFC 8259");
    let twice = lint(br#"{"name":1,"name":2}"#, None);
    assert_eq!(errors(&twice), ["name"]);
}

#[test]
fn lint_rules_report_violating_cards() {
    let interface = r#""url":"https://a/""#;
    for (card, finding) in [
        (changed(interface, r#""url":"http://b/""#), "warning supportedInterfaces[0].url"),
        (changed(interface, r#""url":"/rpc""#), "error supportedInterfaces[0].url"),
        (changed(interface, r#""url":"https://0.0.0.0/""#), "warning supportedInterfaces[0].url"),
        (changed(interface, r#""url":"wss://a/""#), "warning supportedInterfaces[0].url"),
        (changed("JSONRPC", "GRPC"), "warning supportedInterfaces[0].url"),
        (changed("JSONRPC", "MQTT"), "error supportedInterfaces[0].protocolBinding"),
        (changed("JSONRPC", "rest"), "error supportedInterfaces[0].protocolBinding"),
        (changed("\"1.0\"", "\"1.0.1\""), "warning supportedInterfaces[0].protocolVersion"),
        (changed("\"1.0\"", "\"v1\""), "warning supportedInterfaces[0].protocolVersion"),
        (changed("\"1.0\"", "\"one\""), "error supportedInterfaces[0].protocolVersion"),
        (changed("*/*", "text"), "warning defaultOutputModes[0]"),
        (changed("[\"t\"]", "[]"), "warning skills[0].tags"),
        (
            changed("\"tags\":", "\"inputModes\":[\"x\"],\"tags\":"),
            "warning skills[0].inputModes[0]",
        ),
        (v1(r#","iconUrl":"/icon""#), "warning iconUrl"),
        (v1(r#","kind":"agent""#), "warning kind"),
        (v1(r#","icon_url":"https://i/""#), "warning iconUrl"),
        (v1(r#","security":[{"k":[]}]"#), "warning security"),
        (
            v1(r#","securityRequirements":[{"schemes":{"k":{}}}]"#),
            "error securityRequirements[0].k",
        ),
        (v1(r#","securityRequirements":[{"k":[]}]"#), "error securityRequirements[0]"),
        (v1(r#","securitySchemes":{"k":{"type":"http","scheme":"x"}}"#), "error securitySchemes.k"),
        (
            v1(
                r#","securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"body","name":"x"}}}"#,
            ),
            "error securitySchemes.k.apiKeySecurityScheme.location",
        ),
        (
            v1(r#","securitySchemes":{"o":{"oauth2SecurityScheme":{"flows":{}}}}"#),
            "error securitySchemes.o.oauth2SecurityScheme.flows",
        ),
        (
            v1(r#","signatures":[{"protected":"e30","signature":"A"}]"#),
            "error signatures[0].protected",
        ),
        (
            v1(
                r#","signatures":[{"protected":"eyJhbGciOiJub25lIiwia2lkIjoiMSJ9","signature":"AA"}]"#,
            ),
            "error signatures[0].protected",
        ),
        (
            v1(r#","signatures":[{"protected":"e30","signature":"++"}]"#),
            "error signatures[0].signature",
        ),
    ] {
        let found = found(&card);
        assert!(found.contains(&finding.to_owned()), "{finding} is not in {found:?} of {card}");
    }
    let twice = r#"},{"id":"i","name":"m","description":"d","tags":["t"]}]"#;
    assert_eq!(found(&changed("}]}", &format!("{twice}}}"))), ["error skills[1].id"]);
}

#[test]
fn contradictory_0_3_card_is_reported() {
    let card = |transport: &str, more: &str| {
        format!(
            r#"{{"protocolVersion":"0.3.0","name":"A","description":"d","url":"https://a/",
            "version":"1","preferredTransport":"{transport}","capabilities":{{}},
            "additionalInterfaces":[{more}],"defaultInputModes":["text/plain"],
            "defaultOutputModes":["text/plain"],"skills":[{{"id":"i","name":"n",
            "description":"d","tags":["t"]}}],"vendorMember":1}}"#
        )
    };
    let main = r#"{"url":"https://a/","transport":"JSONRPC"}"#;
    assert_eq!(found(&card("JSONRPC", main)), Vec::<String>::new());
    assert_eq!(found(&card("HTTP+JSON", main)), ["error preferredTransport"]);
    let other = r#"{"url":"https://b/","transport":"HTTP+JSON"}"#;
    assert_eq!(found(&card("JSONRPC", other)), ["warning additionalInterfaces"]);
}

#[test]
fn card_of_0_1_is_checked_by_0_1_rules() {
    let json = r#"{"name":"A","url":"https://a/","version":"1","capabilities":{},
        "authentication":{"schemes":["Bearer"]},"skills":[{"id":"i","name":"n"}]}"#;
    assert_eq!(found(json), Vec::<String>::new());
    assert_eq!(found(&json.replace("\"version\":\"1\",", "")), ["error version"]);
}

#[test]
fn findings_depend_on_the_card_url() {
    let local = changed("https://a/", "http://127.0.0.1:8080/");
    assert_eq!(found(&local), Vec::<String>::new());
    let far = Some("https://h/.well-known/agent-card.json");
    assert_eq!(found_at(&local, far), ["warning supportedInterfaces[0].url"]);
    let old = Some("https://a/.well-known/agent.json");
    assert_eq!(found_at(&v1(""), old), ["warning "]);
}

#[test]
fn unreadable_card_has_an_error_and_findings_are_bounded() {
    for json in ["", "7", "{}", r#"{"name":"A","url":"u","security":7}"#] {
        assert!(!errors(&lint(json.as_bytes(), None)).is_empty(), "{json}");
    }
    let skills = vec!["7"; 5_000].join(",");
    let members: Vec<String> = (0..50_000).map(|n| format!(",\"{n}\":0")).collect();
    let card = changed("[{\"id\"", &format!("[{skills},{{\"id\""));
    let many = lint(card.replace("\"version\"", "\"v\"").as_bytes(), None);
    assert_eq!(many.len(), FINDINGS_MAX + 1);
    let many = lint(v1(&members.concat()).replace("\"version\"", "\"v\"").as_bytes(), None);
    assert_eq!((errors(&many).len(), many.len()), (1, FINDINGS_MAX + 1));
}
