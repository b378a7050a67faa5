//! `card`: get, lint and verify.

use serde_json::{Value, json};

use crate::{
    agent::echo,
    fake::{Fake, card, ok, status},
    run::{User, assert_floor},
};

#[test]
fn card_get_prints_name_interface_and_signatures() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    let output = user.ok(&["card", "get"]);
    assert_floor(&output.out);
    assert_eq!(output.field("Name"), "echo");
    assert_eq!(output.field("Streaming"), "yes");
    assert!(output.field("Interface").starts_with("JSONRPC http://"), "{output:?}");
    assert_eq!((output.field("Signatures"), output.field("Signature")), ("0", "absent"));
    let card = user.json(&["card", "get"]);
    assert_eq!(card["name"], "echo");
    assert!(card["supportedInterfaces"].is_array(), "{card}");
    assert_eq!(user.ok(&["card", "get", "--stream", "-o", "json"]).lines().len(), 1);
    assert_eq!(user.ok(&["card", "get", &url]).out, output.out);
}

#[test]
fn card_is_found_below_a_url_that_refuses_get() {
    let page = status("200 OK", "text/html", "<html>");
    let health = ok("application/json", "{\"status\":\"ok\"}");
    let stream = status("200 OK", "text/event-stream", "data: {}\n\n");
    let refusals =
        ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "405 Method Not Allowed"];
    let refusals = refusals.map(|line| status(line, "text/plain", "no"));
    for refusal in refusals.into_iter().chain([page, health, stream]) {
        let shown = String::from_utf8_lossy(&refusal).into_owned();
        let fake = Fake::start(move |request, _, url| match request.target.as_str() {
            "/agents/a/.well-known/agent-card.json" => {
                ok("application/json", &card(url, &json!({})))
            }
            _ => refusal.clone(),
        });
        let user = User::of(&format!("{}/agents/a", fake.url));
        assert_eq!(user.ok(&["card", "get"]).field("Name"), "fake", "{shown}");
    }
    // If no URL has a card, a refusal explains more than the later 404.
    let fake = Fake::start(|request, _, _| match request.target.as_str() {
        "/rpc" => status("401 Unauthorized", "text/plain", "no"),
        _ => status("404 Not Found", "text/plain", "no"),
    });
    let user = User::of(&format!("{}/rpc", fake.url));
    user.failure(&["card", "get"], "A2ACLI_ERR_CREDENTIALS_MISSING", 4);
}

#[test]
fn card_of_0_3_is_printed_as_a_1_0_card() {
    let (_server, url) = echo(&["--card", "v03"]);
    // Printed as a 1.0 card, the only type of card in the output.
    let card = User::of(&url).json(&["card", "get"]);
    assert_eq!(card["supportedInterfaces"][0]["protocolVersion"], "0.3.0", "{card}");
    assert!(card.get("protocolVersion").is_none(), "{card}");
}

#[test]
fn card_get_validate_reports_schema_errors() {
    let (_server, url) = echo(&[]);
    let output = User::of(&url).ok(&["card", "get", "--validate", "-o", "json"]);
    assert_eq!(
        (output.document()["name"].as_str(), &*output.err),
        (Some("echo"), "the card is valid\n")
    );
    let output = User::of(&url).ok(&["card", "get", "--validate"]);
    assert_floor(&output.out);
    assert_eq!(output.field("Schema"), "valid");
    let user = User::new();
    user.write("work/bad.json", "{\"name\":\"x\",\"supportedInterfaces\":[{\"url\":3}]}");
    let words = ["card", "get", "bad.json", "--validate"];
    let error = user.failure(&words, "A2ACLI_ERR_CARD_INVALID", 1);
    assert!(error["message"].as_str().unwrap().contains("and 8 more"), "{error}");
    assert!(error["hint"].as_str().unwrap().starts_with("peregrine card lint"), "{error}");
}

#[test]
fn lint_lists_all_findings_and_fails_only_on_errors() {
    let (_server, url) = echo(&[]);
    let output = User::of(&url).ok(&["card", "lint"]);
    assert_floor(&output.out);
    assert_eq!(output.field("Errors"), "0");
    let user = User::new();
    user.write("work/bad.json", "{\"name\":\"x\",\"skills\":[{}]}");
    let output = user.run(&["card", "lint", "bad.json"]);
    assert_eq!(output.code, Some(1));
    assert_floor(&output.out);
    assert!(output.out.contains("Error: skills[0]") && output.err.is_empty(), "{output:?}");
    let output = user.run(&["card", "lint", "bad.json", "-o", "json"]);
    assert_eq!(output.code, Some(1));
    let findings = output.document()["findings"].clone();
    let errors = findings.as_array().unwrap().iter().filter(|one| one["level"] == "error");
    assert!(errors.count() > 2, "{findings}");
    // A file that is not a card has one finding, and a missing file none.
    user.write("work/none.json", "no");
    assert!(user.run(&["card", "lint", "none.json"]).out.contains("Errors: 1\n"));
    user.failure(&["card", "lint", "nowhere.json"], "A2ACLI_ERR_CARD_NOT_FOUND", 3);
    for words in [&["card", "get", "none.json"][..], &["send", "-a", "none.json", "x"]] {
        let error = user.failure(words, "A2ACLI_ERR_CARD_INVALID", 1);
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("none.json: the agent card is not JSON"), "{error}");
    }
}

#[test]
fn cached_card_is_revalidated_with_its_etag() {
    let fake =
        Fake::start(|request, _, url| match (request.rpc(), request.field("if-none-match")) {
            ("", Some("\"e-1\"")) => {
                b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n".to_vec()
            }
            ("", _) => {
                let body = card(url, &json!({}));
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: \"e-1\"";
                let length = body.len();
                format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
                    .into_bytes()
            }
            _ => request.result(&json!({ "message": {
            "messageId": "m-1", "role": "ROLE_AGENT", "parts": [{ "text": "hi" }],
        } })),
        });
    let user = User::of(&fake.url);
    for _ in 0..2 {
        assert_eq!(user.ok(&["send", "x"]).block("Text"), "hi");
        assert_eq!(user.json(&["card", "get"])["name"], "fake");
    }
    let requests = fake.requests();
    let conditional = requests.iter().filter(|request| request.method == "GET");
    let conditional: Vec<bool> =
        conditional.map(|request| request.field("if-none-match").is_some()).collect();
    assert_eq!(conditional, [false, true, true, true]);
    let output = user.ok(&["send", "x", "--debug"]);
    assert!(output.err.contains("the cached card has not changed"), "{output:?}");
    user.ok(&["send", "x", "--card-cache=false"]);
    let last = fake.requests().into_iter().rfind(|request| request.method == "GET").unwrap();
    assert!(last.field("if-none-match").is_none(), "{last:?}");
}

#[test]
fn extended_card_is_requested_or_reported_as_unsupported() {
    let (_server, url) = echo(&["--extended-card"]);
    assert_eq!(User::of(&url).json(&["card", "get", "--extended"])["name"], "echo");
    let (_server, url) = echo(&[]);
    User::of(&url).failure(&["card", "get", "--extended"], "UnsupportedOperationError", 1);
}

#[test]
fn extended_card_request_sends_only_declared_credentials() {
    for declares in [true, false] {
        let fake = Fake::start(move |request, _, url| match request.rpc() {
            "" => {
                let mut members = json!({ "capabilities": { "extendedAgentCard": true } });
                if declares {
                    let bearer = json!({ "httpAuthSecurityScheme": { "scheme": "Bearer" } });
                    members["securitySchemes"] = json!({ "b": bearer });
                }
                ok("application/json", &card(url, &members))
            }
            _ => {
                let extended = card("http://127.0.0.1:1", &json!({ "name": "extended" }));
                request.result(&serde_json::from_str(&extended).unwrap())
            }
        });
        let user = User::of(&fake.url).with("A2ACLI_BEARER", "t-1");
        let shown = user.json(&["card", "get", "--extended"]);
        assert_eq!(shown["name"], "extended");
        let request = fake.requests().pop().unwrap();
        assert_eq!(request.field("authorization").is_some(), declares, "{request:?}");
        let public = fake.requests().into_iter().filter(|request| request.method == "GET");
        assert!(public.into_iter().all(|request| request.field("authorization").is_none()));
    }
}

#[test]
fn card_get_reports_the_signature_status() {
    let fixture: Value =
        serde_json::from_str(include_str!("../data/cards/signed_py_1.3.json")).unwrap();
    let user = User::new();
    let card = fixture["cards"][0].to_string();
    user.write("work/card.json", &card);
    user.write("work/changed.json", &card.replace("https://a.example/", "https://b.example/"));
    user.write("work/keys.json", &fixture["keys"].to_string());
    // Without a key the command reports nothing about signatures.
    let output = user.ok(&["card", "get", "card.json"]);
    assert_floor(&output.out);
    let unverifiable =
        "unverifiable: no key was given; peregrine card verify -a card.json --jwks FILE";
    assert_eq!(output.field("Signature"), unverifiable);
    let output = user.ok(&["card", "get", "card.json", "-o", "json"]);
    assert_eq!(output.err, format!("Signature: {unverifiable}\n"));
    let with_keys = |card| ["card", "get", card, "--jwks", "keys.json"];
    let output = user.ok(&with_keys("card.json"));
    assert!(output.field("Signature").starts_with("verified with the key"), "{output:?}");
    let output = user.ok(&[&with_keys("card.json")[..], &["-o", "json"]].concat());
    assert!(output.err.starts_with("Signature: verified") && output.document()["name"].is_string());
    let error = user.failure(&with_keys("changed.json"), "A2ACLI_ERR_CARD_INVALID", 1);
    assert!(error["message"].as_str().unwrap().contains("unverifiable"), "{error}");
    let (_server, url) = echo(&[]);
    let output = user.ok(&["card", "get", &url, "--jwks", "keys.json"]);
    assert_eq!(output.field("Signature"), "absent");
}

#[test]
fn verify_reports_verified_unverifiable_or_absent() {
    let fixture: Value =
        serde_json::from_str(include_str!("../data/cards/signed_py_1.3.json")).unwrap();
    let user = User::new();
    let card = fixture["cards"][0].to_string();
    user.write("work/card.json", &card);
    user.write("work/changed.json", &card.replace("https://a.example/", "https://b.example/"));
    user.write("work/keys.json", &fixture["keys"].to_string());
    user.write("work/key.pem", fixture["pem"]["es"].as_str().unwrap());
    for flags in [["--jwks", "keys.json"], ["--public-key", "key.pem"]] {
        let verify = |card| [&["card", "verify", card], &flags[..]].concat();
        let output = user.ok(&verify("card.json"));
        assert_floor(&output.out);
        assert!(output.field("Signature").starts_with("verified"), "{output:?}");
        assert_eq!(user.json(&verify("card.json"))["signature"], "verified");
        let output = user.run(&verify("changed.json"));
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.field("Signature").starts_with("unverifiable"), "{output:?}");
    }
    // Without a key the command does not report success; a card need not be signed.
    let output = user.run(&["card", "verify", "card.json"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.field("Signature").starts_with("unverifiable"), "{output:?}");
    assert!(output.err.contains("--jwks FILE"), "{output:?}");
    let (_server, url) = echo(&[]);
    assert_eq!(user.json(&["card", "verify", &url])["signature"], "absent");
    let words = ["card", "verify", "card.json", "--jwks", "none.json"];
    let error = user.failure(&words, "A2ACLI_ERR_USAGE", 2);
    assert!(error["message"].as_str().unwrap().contains("cannot read none.json"), "{error}");
}

#[test]
fn a_server_without_http_is_unreachable() {
    let fake = Fake::start(|_, _, _| b"SSH-2.0-other\r\n".to_vec());
    let error = User::of(&fake.url).failure(&["card", "get"], "A2ACLI_ERR_UNREACHABLE", 3);
    assert!(error["hint"].as_str().unwrap().contains("TLS"), "{error}");
    let fake = Fake::start(|_, _, _| status("500 No", "text/plain", "no"));
    let error = User::of(&fake.url).failure(&["card", "get"], "A2ACLI_ERR_CARD_NOT_FOUND", 3);
    assert!(error["message"].as_str().unwrap().contains("temporarily"), "{error}");
    assert_eq!((&error["a2aCode"], &error["hint"]), (&json!(500), &json!(null)));
}

#[test]
fn signed_card_passes_verification() {
    let user = User::new();
    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    user.write("work/key.pem", &pem.serialize_pem());
    user.write("work/public.pem", &pem.public_key_pem());
    user.write("work/card.json", &card("http://a.example", &json!({})));
    let signed = user.ok(&["card", "sign", "card.json", "--key", "key.pem", "--kid", "k-1"]);
    user.write("work/signed.json", &signed.out);
    let verify = ["card", "verify", "signed.json", "--public-key", "public.pem"];
    let output = user.ok(&verify);
    assert!(output.field("Signature").starts_with("verified with the key \"k-1\""), "{output:?}");
    // Another key adds its signature; existing signatures stay valid.
    user.write("work/other.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    let both = user.ok(&["card", "sign", "signed.json", "--key", "other.pem"]);
    user.write("work/signed.json", &both.out);
    assert!(user.ok(&verify).field("Signature").starts_with("verified with the key"));
    user.write("work/signed.json", &both.out.replace("a.example", "b.example"));
    assert_eq!(user.run(&verify).code, Some(1));
    for (words, expected) in [
        (&["card", "sign", "card.json"][..], "name a key"),
        (&["card", "sign", "card.json", "--key", "public.pem"], "no private key"),
        (&["card", "sign", "card.json", "--key", "nowhere.pem"], "cannot read"),
        (
            &["card", "sign", "card.json", "--key", "key.pem", "--kid", "a", "--kid", "b"],
            "more key ids",
        ),
    ] {
        let failed = user.run(words);
        assert!(failed.code == Some(2) && failed.err.contains(expected), "{failed:?}");
    }
}
