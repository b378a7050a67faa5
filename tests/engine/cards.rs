//! Each form of a card holds the fields its clients require; the strict forms hold no other fields.

use std::collections::BTreeSet;

use peregrine::{
    agent::{Extension, Profile, Provider},
    dialect::card::{AgentInterface, CardForm, CardOptions, render},
    http::entity_tag::etag,
    model::JsonObjectBuf,
};
use serde_json::{Value, json};

const V1: AgentInterface<'_> =
    AgentInterface { url: "http://h/", binding: "JSONRPC", version: "1.0", tenant: None };
const V03: AgentInterface<'_> = AgentInterface { version: "0.3", url: "http://h/old", ..V1 };
const REST: AgentInterface<'_> =
    AgentInterface { binding: "HTTP+JSON", url: "http://h/v1", tenant: Some("t\"1"), ..V1 };

/// The fields of an object, wire §1.6.
#[derive(Clone, Copy)]
struct Fields {
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const CARD_V1: Fields = Fields {
    required: &[
        "name",
        "description",
        "version",
        "supportedInterfaces",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
    ],
    optional: &[
        "provider",
        "documentationUrl",
        "iconUrl",
        "securitySchemes",
        "securityRequirements",
        "signatures",
    ],
};
const CARD_V03: Fields = Fields {
    required: &[
        "name",
        "description",
        "version",
        "url",
        "protocolVersion",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
        "preferredTransport",
    ],
    optional: &[
        "additionalInterfaces",
        "provider",
        "documentationUrl",
        "iconUrl",
        "securitySchemes",
        "security",
        "supportsAuthenticatedExtendedCard",
        "signatures",
    ],
};
const CAPABILITIES_V1: Fields = Fields {
    required: &[],
    optional: &["streaming", "pushNotifications", "extensions", "extendedAgentCard"],
};
const CAPABILITIES_V03: Fields = Fields {
    required: &[],
    optional: &["streaming", "pushNotifications", "extensions", "stateTransitionHistory"],
};
const INTERFACE_V1: Fields =
    Fields { required: &["url", "protocolBinding", "protocolVersion"], optional: &["tenant"] };
const INTERFACE_V03: Fields = Fields { required: &["url", "transport"], optional: &[] };
const SKILL_V1: Fields = Fields {
    required: &["id", "name", "description", "tags"],
    optional: &["examples", "inputModes", "outputModes", "securityRequirements"],
};
const SKILL_V03: Fields = Fields {
    required: &["id", "name", "description", "tags"],
    optional: &["examples", "inputModes", "outputModes", "security"],
};

fn profile() -> Profile {
    let mut profile = Profile::new("n\"\\\n\u{1}é", "described");
    profile.skills[0].examples = vec!["say \"hi\"".to_owned()];
    profile.skills[0].input_modes = vec!["text/plain".to_owned()];
    profile.skills[0].output_modes = vec!["image/png".to_owned(), "text/plain".to_owned()];
    profile.provider =
        Some(Provider { organization: "O \"1\"".to_owned(), url: "https://o/".to_owned() });
    profile.documentation_url = Some("https://o/docs".to_owned());
    profile.icon_url = Some("https://o/icon.png".to_owned());
    profile.extensions = vec![Extension {
        uri: "urn:x".to_owned(),
        params: Some(JsonObjectBuf::parse(" { \"n\": 1 } ").unwrap()),
        ..Extension::default()
    }];
    profile
}

fn card(form: CardForm) -> Value {
    with(form, CardOptions { extended: true, ..CardOptions::default() })
}

fn with(form: CardForm, options: CardOptions<'_>) -> Value {
    let bytes = render(&profile(), &[V03, V1, REST], form, options);
    serde_json::from_slice(&bytes).expect("a card is JSON")
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn assert_required(value: &Value, fields: Fields) {
    for key in fields.required {
        assert!(value.get(key).is_some(), "{key} is missing in {value}");
    }
}

fn assert_strict(value: &Value, fields: Fields) {
    assert_required(value, fields);
    for key in keys(value) {
        assert!(
            fields.required.contains(&key) || fields.optional.contains(&key),
            "{key} is foreign in {value}"
        );
    }
}

fn each(value: &Value, check: impl Fn(&Value)) {
    let list = value.as_array().expect("an array");
    assert!(!list.is_empty());
    list.iter().for_each(check);
}

#[test]
fn v1_card_has_required_and_no_foreign_fields() {
    for form in [CardForm::V1, CardForm::ExtendedV1] {
        let card = card(form);
        assert_strict(&card, CARD_V1);
        assert_strict(&card["capabilities"], CAPABILITIES_V1);
        each(&card["supportedInterfaces"], |interface| assert_strict(interface, INTERFACE_V1));
        each(&card["skills"], |skill| assert_strict(skill, SKILL_V1));
    }
}

#[test]
fn v03_card_has_required_and_no_foreign_fields() {
    let card = card(CardForm::V03);
    assert_strict(&card, CARD_V03);
    assert_strict(&card["capabilities"], CAPABILITIES_V03);
    each(&card["additionalInterfaces"], |interface| assert_strict(interface, INTERFACE_V03));
    each(&card["skills"], |skill| assert_strict(skill, SKILL_V03));
    assert_eq!(card["protocolVersion"], "0.3.0");
    assert_eq!((&card["url"], &card["preferredTransport"]), (&json!(V03.url), &json!("JSONRPC")));
    let listed = json!([{ "url": "http://h/old", "transport": "JSONRPC" }]);
    assert_eq!(card["additionalInterfaces"], listed);
}

#[test]
fn hybrid_card_is_the_union_of_v1_and_v03() {
    let (hybrid, v1, v03) = (card(CardForm::Hybrid), card(CardForm::V1), card(CardForm::V03));
    assert_required(&hybrid, CARD_V1);
    assert_required(&hybrid, CARD_V03);
    let mut union = v1.clone();
    let old = v03.as_object().expect("an object");
    for (key, value) in old.iter().filter(|(key, _)| *key != "capabilities") {
        assert!(v1.get(key).is_none_or(|same| same == value), "{key} collides");
        union[key] = value.clone();
    }
    for (key, value) in v03["capabilities"].as_object().expect("an object") {
        union["capabilities"][key] = value.clone();
    }
    assert_eq!(hybrid, union);
}

#[test]
fn newer_interfaces_come_first_and_keep_their_tenant() {
    let card = card(CardForm::Hybrid);
    let expected = json!([
        { "url": "http://h/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
        { "url": "http://h/v1", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0",
          "tenant": "t\"1" },
        { "url": "http://h/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3" },
    ]);
    assert_eq!(card["supportedInterfaces"], expected);
}

#[test]
fn v03_card_without_0_3_interfaces_has_the_1_0_url() {
    let bytes = render(&profile(), &[V1], CardForm::V03, CardOptions::default());
    let card: Value = serde_json::from_slice(&bytes).expect("a card is JSON");
    assert_eq!(card["url"], V1.url);
}

#[test]
fn card_capabilities_follow_options_and_profile() {
    let no_extended = CardOptions::default();
    let v1 = card(CardForm::V1);
    assert_eq!(v1["capabilities"]["extendedAgentCard"], true);
    assert_eq!(v1["capabilities"]["pushNotifications"], false);
    assert_eq!(v1["capabilities"]["streaming"], true);
    assert_eq!(with(CardForm::V1, no_extended)["capabilities"]["extendedAgentCard"], false);
    assert_eq!(card(CardForm::V03)["supportsAuthenticatedExtendedCard"], true);
    let key = "supportsAuthenticatedExtendedCard";
    assert!(with(CardForm::V03, no_extended).get(key).is_none());
    assert!(with(CardForm::Hybrid, no_extended).get(key).is_none());
    let mut without_streaming = profile();
    without_streaming.streaming = false;
    let bytes = render(&without_streaming, &[V1], CardForm::Hybrid, no_extended);
    let card: Value = serde_json::from_slice(&bytes).expect("a card is JSON");
    assert_eq!(card["capabilities"]["streaming"], false);
}

#[test]
fn skill_output_modes_default_to_the_agent_output_modes() {
    let mut profile = profile();
    profile.skills[0].output_modes.clear();
    for is_declared in [true, false] {
        if !is_declared {
            profile.output_modes.clear();
        }
        for form in [CardForm::V1, CardForm::V03, CardForm::Hybrid] {
            let bytes = render(&profile, &[V1], form, CardOptions::default());
            let card: Value = serde_json::from_slice(&bytes).expect("a card is JSON");
            each(&card["skills"], |skill| assert_strict(skill, SKILL_V1));
            let skill = &card["skills"][0];
            assert_eq!(skill["inputModes"], json!(profile.skills[0].input_modes));
            let filled_in = is_declared.then_some(&card["defaultOutputModes"]);
            assert_eq!(skill.get("outputModes"), filled_in);
        }
    }
}

#[test]
fn card_text_with_escapes_round_trips() {
    let (card, profile) = (card(CardForm::Hybrid), profile());
    assert_eq!(card["name"], profile.name);
    assert_eq!(card["skills"][0]["examples"], json!(["say \"hi\""]));
    assert_eq!(card["defaultInputModes"], json!(profile.input_modes));
}

#[test]
fn every_card_form_has_provider_extensions_and_skill_modes() {
    for form in [CardForm::V1, CardForm::V03, CardForm::Hybrid, CardForm::ExtendedV1] {
        let card = card(form);
        assert_eq!(card["provider"], json!({ "organization": "O \"1\"", "url": "https://o/" }));
        assert_eq!(card["documentationUrl"], "https://o/docs");
        assert_eq!(card["iconUrl"], "https://o/icon.png");
        assert_eq!(card["skills"][0]["inputModes"], json!(["text/plain"]));
        assert_eq!(card["skills"][0]["outputModes"], json!(["image/png", "text/plain"]));
        let extension = json!({ "uri": "urn:x", "required": false, "params": { "n": 1 } });
        assert_eq!(card["capabilities"]["extensions"], json!([extension]));
        let bytes = render(&Profile::new("n", "d"), &[V1], form, CardOptions::default());
        let plain: Value = serde_json::from_slice(&bytes).expect("a card is JSON");
        for key in ["provider", "documentationUrl", "iconUrl"] {
            assert!(plain.get(key).is_none(), "{key}");
        }
        assert_eq!(plain["skills"][0]["inputModes"], plain["defaultInputModes"]);
        assert_eq!(plain["skills"][0]["outputModes"], plain["defaultOutputModes"]);
    }
}

#[test]
fn equal_cards_have_equal_etags() {
    let bytes = |form| render(&profile(), &[V1, V03], form, CardOptions::default());
    assert_eq!(etag(&bytes(CardForm::V1)), etag(&bytes(CardForm::ExtendedV1)));
    assert_ne!(etag(&bytes(CardForm::V1)), etag(&bytes(CardForm::Hybrid)));
}
