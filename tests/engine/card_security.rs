//! Cards state the security requirements in the fields of each protocol version.

use std::sync::Arc;

use peregrine::{
    agent::{Profile, echo::Echo},
    dialect::card::{AgentInterface, CardForm, CardOptions, V01, render},
    engine::{AgentError, BuildError, Setup, Start},
    model::{CardRequirement, CardScheme, CardSchemeKind, CardSecurity, JsonObjectBuf},
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{get, post, rpc},
    echo,
};

const JSON_RPC: AgentInterface<'_> =
    AgentInterface { url: "http://h/", binding: "JSONRPC", version: "1.0", tenant: None };

fn security() -> CardSecurity {
    let flow = |json: &str| JsonObjectBuf::parse(json).unwrap();
    let flows = vec![
        ("clientCredentials".to_owned(), flow(r#"{"tokenUrl":"https://i/t","scopes":{"a":"A"}}"#)),
        ("password".to_owned(), flow(r#"{"tokenUrl":"https://i/p","scopes":{}}"#)),
    ];
    let kind = CardSchemeKind::OAuth2 { flows, metadata_url: "https://i/m".to_owned() };
    let oauth = CardScheme { name: "oauth".to_owned(), description: "Log in.".to_owned(), kind };
    let both = vec![("key".to_owned(), Vec::new()), ("mtls".to_owned(), Vec::new())];
    CardSecurity {
        schemes: vec![
            CardScheme::api_key("key", "X-API-Key"),
            CardScheme::bearer("bearer", "JWT"),
            CardScheme::open_id_connect("oidc", "https://i/.well-known/openid-configuration"),
            oauth,
            CardScheme::mutual_tls("mtls"),
        ],
        requirements: vec![
            CardRequirement { schemes: both },
            CardRequirement::of("oauth", ["a", "b"]),
        ],
    }
}

fn profile() -> Profile {
    let mut profile = Profile::new("a", "An agent.");
    profile.skills[0].security = vec![CardRequirement::of("bearer", ["draw"])];
    profile
}

fn card(form: CardForm, versions: &[&'static str]) -> Value {
    let interfaces: Vec<_> =
        versions.iter().map(|version| AgentInterface { version, ..JSON_RPC }).collect();
    let security = security();
    let options = CardOptions { security: Some(&security), ..CardOptions::default() };
    serde_json::from_slice(&render(&profile(), &interfaces, form, options)).unwrap()
}

fn schemes_v1() -> Value {
    json!({
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "oidc": {"openIdConnectSecurityScheme":
            {"openIdConnectUrl": "https://i/.well-known/openid-configuration"}},
        "oauth": {"oauth2SecurityScheme": {"description": "Log in.", "flows":
            {"clientCredentials": {"tokenUrl": "https://i/t", "scopes": {"a": "A"}}},
            "oauth2MetadataUrl": "https://i/m"}},
        "mtls": {"mtlsSecurityScheme": {}},
    })
}

fn schemes_v03() -> Value {
    json!({
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "bearer": {"type": "http", "scheme": "Bearer", "bearerFormat": "JWT"},
        "oidc": {"type": "openIdConnect",
            "openIdConnectUrl": "https://i/.well-known/openid-configuration"},
        "oauth": {"type": "oauth2", "description": "Log in.", "flows": {
            "clientCredentials": {"tokenUrl": "https://i/t", "scopes": {"a": "A"}},
            "password": {"tokenUrl": "https://i/p", "scopes": {}}},
            "oauth2MetadataUrl": "https://i/m"},
        "mtls": {"type": "mutualTLS"},
    })
}

fn requirements_v1() -> Value {
    json!([{"schemes": {"key": {}, "mtls": {}}}, {"schemes": {"oauth": {"list": ["a", "b"]}}}])
}

fn requirements_v03() -> Value {
    json!([{"key": [], "mtls": []}, {"oauth": ["a", "b"]}])
}

#[test]
fn strict_card_has_only_the_security_fields_of_its_version() {
    for form in [CardForm::V1, CardForm::ExtendedV1] {
        let v1 = card(form, &["1.0", "0.3"]);
        assert_eq!(
            (&v1["securitySchemes"], &v1["securityRequirements"]),
            (&schemes_v1(), &requirements_v1())
        );
        let skill = json!([{"schemes": {"bearer": {"list": ["draw"]}}}]);
        assert_eq!(v1["skills"][0]["securityRequirements"], skill);
        for foreign in ["security", "authentication"] {
            assert!(v1.get(foreign).is_none() && v1["skills"][0].get(foreign).is_none());
        }
    }
    let v03 = card(CardForm::V03, &["1.0", "0.3"]);
    assert_eq!((&v03["securitySchemes"], &v03["security"]), (&schemes_v03(), &requirements_v03()));
    assert_eq!(v03["skills"][0]["security"], json!([{"bearer": ["draw"]}]));
    for foreign in ["securityRequirements", "authentication"] {
        assert!(v03.get(foreign).is_none() && v03["skills"][0].get(foreign).is_none());
    }
    let v01 = card(CardForm::V03, &[V01]);
    assert_eq!(v01["authentication"], json!({"schemes": ["apiKey", "mutualTLS", "Bearer"]}));
    for foreign in ["securityRequirements", "securitySchemes", "security"] {
        assert!(v01.get(foreign).is_none(), "{foreign}");
    }
}

#[test]
fn hybrid_card_has_security_schemes_in_both_formats() {
    let hybrid = card(CardForm::Hybrid, &["1.0", "0.3"]);
    assert_eq!(hybrid["securitySchemes"], schemes_in_both_spellings());
    assert_eq!(
        (&hybrid["securityRequirements"], &hybrid["security"]),
        (&requirements_v1(), &requirements_v03())
    );
    let skill = &hybrid["skills"][0];
    assert!(skill.get("securityRequirements").is_some() && skill.get("security").is_some());
    assert!(hybrid.get("authentication").is_some());
}

// For HTTP+JSON 0.3 the JavaScript SDK reads the extended card by the proto, the Python SDK by the
// JSON schema.
#[test]
fn extended_card_over_http_json_has_each_scheme_in_both_formats() {
    let (agents, security) = (vec![echo()], security());
    let setup = Setup { agents, security, extended_card: true, ..Setup::default() };
    let mut lab = Lab::new(setup);
    let rest = lab.ask(&get("/v1/card")).json();
    assert_eq!(rest["securitySchemes"], schemes_in_both_spellings());
    assert_eq!(rest["security"], requirements_v03());
    for foreign in ["securityRequirements", "supportedInterfaces", "authentication"] {
        assert!(rest.get(foreign).is_none(), "{foreign}");
    }
    let call = rpc("agent/getAuthenticatedExtendedCard", &json!({}));
    let mut other = lab.ask(&post("/", &[], &call)).json()["result"].take();
    assert_eq!(other["securitySchemes"], schemes_v03());
    other["securitySchemes"] = schemes_in_both_spellings();
    assert_eq!(other, rest, "all else is the same");
}

fn schemes_in_both_spellings() -> Value {
    let mut both = schemes_v1();
    for (name, scheme) in both.as_object_mut().unwrap() {
        let old = schemes_v03()[name].as_object().unwrap().clone();
        scheme.as_object_mut().unwrap().extend(old);
    }
    both
}

#[cfg(feature = "client")]
#[test]
fn client_reads_the_same_security_from_every_card_form() {
    use peregrine::client::card::AgentCard;

    let read = |form| AgentCard::read(card(form, &["1.0", "0.3"]).to_string().as_bytes()).unwrap();
    let (v1, v03, hybrid) = (read(CardForm::V1), read(CardForm::V03), read(CardForm::Hybrid));
    assert_eq!(v1.security_requirements, v03.security_requirements);
    assert_eq!(v1.security_requirements, hybrid.security_requirements);
    assert_eq!(v1.security_schemes, hybrid.security_schemes);
    assert_eq!(v1.skills[0].security_requirements, hybrid.skills[0].security_requirements);
    // 1.0 has one OAuth flow per scheme; the other schemes are unchanged.
    for name in ["key", "bearer", "oidc", "mtls"] {
        assert_eq!(v1.security_schemes[name], v03.security_schemes[name], "{name}");
    }
}

#[test]
fn agent_with_own_security_ignores_the_server_requirements() {
    let mut free = Profile::new("free", "Asks for nothing.");
    free.security = Some(CardSecurity::default());
    let agents = vec![echo(), (free, Arc::new(Echo))];
    let mut lab = Lab::new(Setup { agents, security: security(), ..Setup::default() });
    let card = |lab: &mut Lab, base: &str| {
        lab.ask(&get(&format!("{base}/.well-known/agent-card.json"))).json()
    };
    assert_eq!(card(&mut lab, "")["security"], requirements_v03());
    let free = card(&mut lab, "/agents/free");
    for key in ["securitySchemes", "security", "securityRequirements", "authentication"] {
        assert!(free.get(key).is_none(), "{key}");
    }
    let agents = lab.engine.agents().unwrap();
    let mut wrong = Profile::new("free", "Asks for what is not there.");
    wrong.security = Some(CardSecurity::default());
    wrong.skills[0].security = vec![CardRequirement::of("key", [])];
    let refused = agents.replace(wrong, Arc::new(Echo));
    assert_eq!(refused.err(), Some(AgentError::Security("key".to_owned())));
}

#[test]
fn requirement_with_unknown_scheme_is_a_build_error() {
    let start = Start { secret: 1, unix_ms: Arc::new(|| 0), workers: 1, base_url: String::new() };
    let mut security = security();
    security.requirements.push(CardRequirement::of("nobody", []));
    let setup = Setup { agents: vec![echo()], security, ..Setup::default() };
    assert_eq!(setup.build(start).err(), Some(BuildError::Security("nobody".to_owned())));
}
