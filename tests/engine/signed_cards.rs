//! Signed cards: each form verifies, and the server signs only URLs named by the operator.

use std::sync::Arc;

use peregrine::{
    agent::{Profile, echo::Echo},
    client::card::{
        AgentCard, CardKeys, SIGNING_KEYS_MAX, SignatureOutcome, SigningKeyError, SigningKeys,
        verify,
    },
    dialect::card::CardForm,
    engine::{Mount, Setup, Tenants},
    model::{CardRequirement, CardScheme, CardSecurity, Extension, JsonObjectBuf},
};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{get, get_with, post, rpc_id},
    echo,
};

const CARD: &str = "/.well-known/agent-card.json";
const JWKS: &str = "/.well-known/jwks.json";

fn pem(algorithm: &'static SignatureAlgorithm) -> String {
    KeyPair::generate_for(algorithm).unwrap().serialize_pem()
}

/// Two keys of different algorithms, the second with a name.
fn keys() -> SigningKeys {
    let mut keys = SigningKeys::default();
    keys.add(pem(&PKCS_ECDSA_P256_SHA256).as_bytes(), None).unwrap();
    keys.add(pem(&PKCS_ED25519).as_bytes(), Some("next \"one\"")).unwrap();
    keys
}

fn setup() -> Setup {
    let mut profile = Echo::profile();
    profile.description = "Sagt — ja, wörtlich — zurück.".to_owned();
    profile.skills[0].tags = Vec::new();
    profile.skills[0].security = vec![CardRequirement::of("key", [])];
    let params = JsonObjectBuf::parse(r#"{"z":1.50,"a":[],"n":-0.0,"big":1e21}"#).ok();
    profile.extensions =
        vec![Extension { uri: "urn:x".to_owned(), params, ..Extension::default() }];
    Setup {
        agents: vec![(profile, Arc::new(Echo))],
        card_signer: Some(Arc::new(keys())),
        public_url: Some("https://agents.example/x".to_owned()),
        allow_hosts: vec!["a.example".to_owned()],
        extended_card: true,
        security: CardSecurity {
            schemes: vec![CardScheme::api_key("key", "X-API-Key"), CardScheme::mutual_tls("mtls")],
            requirements: vec![CardRequirement::of("key", []), CardRequirement::of("mtls", [])],
        },
        ..Setup::default()
    }
}

fn public(lab: &mut Lab) -> CardKeys {
    CardKeys::read(&lab.ask(&get(JWKS)).body).unwrap()
}

/// Asserts that each signature of a card is valid on its own, and returns their number.
fn assert_each_verifies(card: &Value, keys: &CardKeys) -> usize {
    let outcome =
        |card: &Value| verify(&AgentCard::read(card.to_string().as_bytes()).unwrap(), keys);
    let signatures = card["signatures"].as_array().unwrap();
    for signature in signatures {
        let mut one = card.clone();
        one["signatures"] = json!([signature]);
        assert!(matches!(outcome(&one), SignatureOutcome::Verified { .. }), "{:?}", outcome(&one));
        let mut changed = one.clone();
        changed["version"] = "6.6.6".into();
        assert!(matches!(outcome(&changed), SignatureOutcome::Unverifiable(_)));
    }
    signatures.len()
}

#[test]
fn every_card_form_is_signed_with_every_key() {
    for form in [CardForm::V1, CardForm::V03, CardForm::Hybrid] {
        let mut lab = Lab::new(Setup { card: form, ..setup() });
        let keys = public(&mut lab);
        let card = lab.ask(&get(CARD)).json();
        // Each key makes at most as many signatures as a verifier reads, each different.
        let count = assert_each_verifies(&card, &keys);
        assert!(count >= 2 && count.is_multiple_of(2) && count <= 16, "{form:?}: {count}");
        let header = |at: usize| {
            let protected = card["signatures"][at]["protected"].as_str().unwrap();
            let alphabet = protected.replace('-', "+").replace('_', "/");
            let bytes = peregrine::json::base64::decode(&alphabet).unwrap();
            serde_json::from_slice::<Value>(&bytes).unwrap()
        };
        assert_eq!((&header(0)["alg"], &header(0)["typ"]), (&json!("ES256"), &json!("JOSE")));
        let last = header(count - 1);
        assert_eq!(last, json!({"alg": "EdDSA", "kid": "next \"one\"", "typ": "JOSE"}));
        for (method, params) in [
            ("GetExtendedAgentCard", json!({})),
            ("agent/getAuthenticatedExtendedCard", Value::Null),
        ] {
            let fields = [("A2A-Version", "1.0")];
            let fields = if params.is_null() { &fields[..0] } else { &fields[..] };
            let card = lab.ask(&post("/", fields, &rpc_id("1", method, &params))).result();
            assert!(assert_each_verifies(&card, &keys) >= 2, "{method}");
        }
    }
}

#[test]
fn card_is_signed_once_for_all_workers_and_after_each_change() {
    let [mut one, mut two] = Lab::pair(setup());
    let first = one.ask(&get(CARD));
    assert_eq!(first.field("etag"), two.ask(&get(CARD)).field("etag"));
    assert_eq!(first.body, two.ask(&get(CARD)).body);
    let agents = one.engine.agents().unwrap().clone();
    let mut profile = Profile::new("echo", "Another.");
    profile.skills[0].security = vec![CardRequirement::of("mtls", [])];
    agents.replace(profile, Arc::new(Echo)).unwrap();
    let second = one.ask(&get(CARD));
    assert_ne!(first.field("etag"), second.field("etag"));
    let keys = public(&mut one);
    assert!(assert_each_verifies(&second.json(), &keys) >= 2);
}

#[test]
fn card_is_signed_only_for_urls_named_by_the_operator() {
    let named = |hosts: &[&str]| Setup {
        public_url: None,
        allow_hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        ..setup()
    };
    let card = |host: &str, lines: &str| {
        format!("GET {CARD} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n").into_bytes()
    };
    let mut lab = Lab::new(named(&["a.example", "*"]));
    for (host, is_signed) in [
        ("a.example", true),
        // The port on which the server listens.
        ("a.example:3000", true),
        ("a.example:3001", false),
        ("A.example", false),
        ("a.example.evil", false),
        ("evil.example", false),
        ("localhost", false),
        ("127.0.0.1:3000", false),
    ] {
        let card = lab.ask(&card(host, "")).json();
        assert!(card["supportedInterfaces"][0]["url"].as_str().unwrap().contains(host));
        assert_eq!(card.get("signatures").is_some(), is_signed, "{host}");
    }
    let mut trusting = Lab::new(Setup { trust_forwarded: true, ..named(&["a.example"]) });
    for (lines, is_signed) in [
        ("X-Forwarded-Proto: https\r\n", true),
        ("X-Forwarded-Host: a.example\r\n", true),
        ("X-Forwarded-Host: localhost\r\n", false),
        ("X-Forwarded-Prefix: /elsewhere\r\n", false),
    ] {
        let card = trusting.ask(&card("a.example", lines)).json();
        assert_eq!(card.get("signatures").is_some(), is_signed, "{lines}");
    }
    // The card names the configured public URL, whatever the request's host.
    let mut public_url = Lab::new(setup());
    let card = public_url.ask(&card("localhost", "")).json();
    assert_eq!(card["url"], "https://agents.example/x/");
    assert!(card.get("signatures").is_some());
}

#[test]
fn card_of_an_unconfigured_tenant_is_not_signed() {
    let (path, dialect) = ("/m".to_owned(), "a2a_rust".to_owned());
    let mounts = vec![Mount { path, dialect, agent: None }];
    let mut lab = Lab::new(Setup { tenants: Tenants::Any, mounts, ..setup() });
    for (base, is_signed) in [
        ("", true),
        ("/agents/echo", true),
        ("/m", true),
        ("/tenants/acme", false),
        ("/m/tenants/acme", false),
        // A name that the operator has configured is not a client's tenant.
        ("/tenants/echo", true),
    ] {
        let card = lab.ask(&get(&format!("{base}{CARD}"))).json();
        assert_eq!(card["name"], "echo", "{base}");
        assert_eq!(card.get("signatures").is_some(), is_signed, "{base}");
        let fields = [("A2A-Version", "1.0")];
        let body = rpc_id("1", "GetExtendedAgentCard", &json!({}));
        let path = if base.is_empty() { "/" } else { base };
        let card = lab.ask(&post(path, &fields, &body)).json();
        let signatures = card["result"].as_object().map(|card| card.contains_key("signatures"));
        assert_eq!(signatures, Some(is_signed), "{base} {card}");
    }
}

#[test]
fn jwks_serves_public_signing_keys_or_404_without_keys() {
    let mut lab = Lab::new(setup());
    let reply = lab.ask(&get(JWKS));
    assert_eq!(reply.field("content-type"), Some("application/jwk-set+json"));
    let etag = reply.field("etag").unwrap();
    let again = lab.ask(&get_with(JWKS, &format!("If-None-Match: {etag}\r\n")));
    assert_eq!(again.status, 304);
    let jwks: Value = serde_json::from_slice(&reply.body).unwrap();
    let keys = jwks["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2);
    for key in keys {
        assert!(key.get("d").is_none() && key["use"] == "sig", "{key}");
    }
    assert_eq!((&keys[0]["alg"], &keys[1]["alg"]), (&json!("ES256"), &json!("EdDSA")));
    let mut off = Lab::new(Setup { agents: vec![echo()], ..Setup::default() });
    assert_eq!(off.ask(&get(JWKS)).status, 404);
    assert!(off.ask(&get(CARD)).json().get("signatures").is_none());
}

#[test]
fn invalid_signing_keys_are_rejected_and_debug_hides_keys() {
    let mut keys = keys();
    let pem = pem(&PKCS_ED25519);
    let add = |keys: &mut SigningKeys, pem: &str, kid| keys.add(pem.as_bytes(), kid).err();
    let secret = pem.lines().nth(1).unwrap();
    let same = SigningKeyError::SameKid("next \"one\"".to_owned());
    assert_eq!(add(&mut keys, &pem, Some("next \"one\"")), Some(same));
    assert_eq!(add(&mut keys, "", None), Some(SigningKeyError::NoKey));
    let public = pem.replace("PRIVATE", "PUBLIC");
    assert_eq!(add(&mut keys, &public, None), Some(SigningKeyError::NoKey));
    let broken = pem.replace(secret, &secret[..20]);
    assert_eq!(add(&mut keys, &broken, None), Some(SigningKeyError::Kind));
    let other = self::pem(&rcgen::PKCS_ECDSA_P384_SHA384);
    assert_eq!(add(&mut keys, &other, None), Some(SigningKeyError::Kind));
    assert_eq!(add(&mut keys, &pem, None), None);
    assert_eq!(add(&mut keys, &self::pem(&PKCS_ED25519), None), None);
    assert_eq!(keys.kids().count(), SIGNING_KEYS_MAX);
    assert_eq!(add(&mut keys, &self::pem(&PKCS_ED25519), None), Some(SigningKeyError::TooMany));
    assert!(!format!("{keys:?}").contains(secret));
}

#[cfg(feature = "push")]
#[test]
fn jwks_lists_webhook_keys_after_card_keys() {
    use peregrine::{client::WebhookKeys, push::signature::PostSigner};

    let mut webhooks = WebhookKeys::default();
    webhooks.add(pem(&PKCS_ECDSA_P256_SHA256).as_bytes()).unwrap();
    webhooks.add(pem(&PKCS_ED25519).as_bytes()).unwrap();
    let kids: Vec<String> = webhooks.kids().map(str::to_owned).collect();
    let alone = webhooks.jwks().to_vec();
    let webhooks: Arc<dyn PostSigner> = Arc::new(webhooks);
    let signs_posts = |setup| Setup { webhook_signer: Some(Arc::clone(&webhooks)), ..setup };
    let mut lab = Lab::new(signs_posts(setup()));
    let jwks: Value = serde_json::from_slice(&lab.ask(&get(JWKS)).body).unwrap();
    let keys = jwks["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 4);
    assert!(keys[2..].iter().map(|key| key["kid"].as_str().unwrap()).eq(kids.iter()));
    assert!(keys.iter().all(|key| key["use"] == "sig" && key.get("d").is_none()));
    // Cards are not signed with the webhook keys.
    let card = lab.ask(&get(CARD)).json();
    assert!(assert_each_verifies(&card, &public(&mut lab)) >= 2);
    let mut lab = Lab::new(signs_posts(Setup { agents: vec![echo()], ..Setup::default() }));
    assert_eq!(lab.ask(&get(JWKS)).body, alone);
    assert!(lab.ask(&get(CARD)).json().get("signatures").is_none());
}
