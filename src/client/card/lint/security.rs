//! Security schemes and requirements: their forms, and that each required scheme is declared.

use serde_json::{Map, Value};

use crate::client::{HttpOrigin, card::OAuthFlowKind};

use super::{
    super::object::CardObject,
    Findings, LintForm,
    check::{kind, path},
};

const V1: &str = "A2A 1.0 §4.5.1";
const V03: &str = "A2A 0.3 §5.5.3";

/// A kind of scheme: its wrapper in 1.0, its `type` in 0.3, the clause, and its required members in
/// 1.0 and in 0.3.
struct Scheme {
    wrapper: &'static str,
    of_type: &'static str,
    clause: &'static str,
    v1_required: &'static [&'static str],
    v03_required: &'static [&'static str],
}

const SCHEMES: &[Scheme] = &[
    Scheme {
        wrapper: "apiKeySecurityScheme",
        of_type: "apiKey",
        clause: "A2A 1.0 §4.5.2",
        v1_required: &["location", "name"],
        v03_required: &["in", "name"],
    },
    Scheme {
        wrapper: "httpAuthSecurityScheme",
        of_type: "http",
        clause: "A2A 1.0 §4.5.3",
        v1_required: &["scheme"],
        v03_required: &["scheme"],
    },
    Scheme {
        wrapper: "oauth2SecurityScheme",
        of_type: "oauth2",
        clause: "A2A 1.0 §4.5.4",
        v1_required: &[],
        v03_required: &[],
    },
    Scheme {
        wrapper: "openIdConnectSecurityScheme",
        of_type: "openIdConnect",
        clause: "A2A 1.0 §4.5.5",
        v1_required: &["openIdConnectUrl"],
        v03_required: &["openIdConnectUrl"],
    },
    Scheme {
        wrapper: "mtlsSecurityScheme",
        of_type: "mutualTLS",
        clause: "A2A 1.0 §4.5.6",
        v1_required: &[],
        v03_required: &[],
    },
];

/// The schemes of a card, each with its path.
fn schemes(card: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    let named = card.get("securitySchemes").or_else(|| card.get("security_schemes"));
    let named = named.and_then(Value::as_object).into_iter().flatten();
    named.map(|(name, value)| (path("securitySchemes", name), value))
}

/// Checks schemes in the wrappers of 1.0.
pub(super) fn schemes_v1(card: &Map<String, Value>, form: LintForm, findings: &mut Findings) {
    for (at, value) in schemes(card) {
        let Some(object) = CardObject::of(&at, value).filter(CardObject::is_object) else {
            findings.schema(&at, V1, format!("{}, not an object", kind(value)));
            continue;
        };
        let wrapped = SCHEMES.iter().filter(|scheme| object.get(scheme.wrapper).is_some());
        let wrapped: Vec<&Scheme> = wrapped.collect();
        let [scheme] = wrapped.as_slice() else {
            let message = match wrapped.is_empty() {
                true => "has no scheme member of 1.0",
                false => "must have one scheme member, and has several",
            };
            findings.schema(&at, V1, message);
            continue;
        };
        if form == LintForm::V1 && object.get("type").is_some() {
            findings.warn(&object.path("type"), V1, "not a member in A2A 1.0");
        }
        let Some(inner) = object.object(scheme.wrapper).filter(CardObject::is_object) else {
            let at = object.path(scheme.wrapper);
            findings.schema(&at, scheme.clause, "not an object");
            continue;
        };
        required(&inner, scheme.v1_required, scheme.clause, findings);
        location(&inner, "location", scheme.clause, findings);
        if scheme.of_type == "oauth2" {
            flows(&inner, scheme.clause, true, findings);
        }
    }
}

/// Checks schemes with a `type`. On a card of 0.3, wrappers as in its proto give a warning.
pub(super) fn schemes_v0(card: &Map<String, Value>, form: LintForm, findings: &mut Findings) {
    for (at, value) in schemes(card) {
        let Some(object) = CardObject::of(&at, value).filter(CardObject::is_object) else {
            findings.schema(&at, V03, format!("{}, not an object", kind(value)));
            continue;
        };
        let is_wrapped = SCHEMES.iter().any(|scheme| object.get(scheme.wrapper).is_some());
        let name = object.text("type");
        let typed = SCHEMES.iter().find(|scheme| Some(scheme.of_type) == name.as_deref());
        match (typed, is_wrapped) {
            (Some(scheme), _) => {
                required(&object, scheme.v03_required, V03, findings);
                location(&object, "in", V03, findings);
                if scheme.of_type == "oauth2" {
                    flows(&object, V03, false, findings);
                }
            }
            // Clients of 0.3 cannot read the scheme, clients of 1.0 can.
            (None, true) => {
                let message = "has the form of the proto, which some clients of 0.3 cannot read";
                if form == LintForm::V03 {
                    findings.warn(&at, V03, message);
                }
            }
            (None, false) => {
                let types: Vec<&str> = SCHEMES.iter().map(|scheme| scheme.of_type).collect();
                let message = format!("its type must be one of {}", types.join(", "));
                findings.schema(&at, V03, message);
            }
        }
    }
}

fn required(
    object: &CardObject<'_>,
    names: &[&str],
    clause: &'static str,
    findings: &mut Findings,
) {
    for name in names {
        if object.text(name).is_none_or(|text| text.trim().is_empty()) {
            findings.schema(&object.path(name), clause, "required, and missing or empty");
        }
    }
}

fn location(object: &CardObject<'_>, name: &str, clause: &'static str, findings: &mut Findings) {
    let text = object.text(name).filter(|text| !text.is_empty());
    if let Some(text) = text.filter(|text| !["header", "query", "cookie"].contains(&&**text)) {
        let message = format!("{text:?} must be header, query or cookie");
        findings.error(&object.path(name), clause, message);
    }
}

/// Checks the flows of OAuth 2.0: 1.0 allows one flow, and discourages implicit and password.
fn flows(object: &CardObject<'_>, clause: &'static str, is_v1: bool, findings: &mut Findings) {
    let at = object.path("flows");
    let Some(flows) = object.object("flows") else {
        return findings.schema(&at, clause, "required, and missing or not an object");
    };
    let named = OAuthFlowKind::ALL.into_iter();
    let named = named.filter_map(|kind| Some((kind, flows.object(kind.name())?)));
    let named: Vec<(OAuthFlowKind, CardObject<'_>)> = named.collect();
    match named.len() {
        0 => findings.schema(&at, clause, "has no flow"),
        1 => {}
        _ if is_v1 => findings.schema(&at, "A2A 1.0 §4.5.7", "must have one flow, and has several"),
        _ => {}
    }
    for (kind, flow) in named {
        let urls: &[&str] = match kind {
            OAuthFlowKind::AuthorizationCode => &["authorizationUrl", "tokenUrl"],
            OAuthFlowKind::ClientCredentials => &["tokenUrl"],
            OAuthFlowKind::DeviceCode => &["deviceAuthorizationUrl", "tokenUrl"],
            OAuthFlowKind::Implicit | OAuthFlowKind::Password => {
                let message = "OAuth 2.1 has removed this flow";
                findings.warn(&at, "A2A 1.0 §4.5.7", format!("{}: {message}", kind.name()));
                &[]
            }
        };
        required(&flow, urls, clause, findings);
        for name in urls {
            let url = flow.text(name).and_then(|url| HttpOrigin::parse(&url).ok());
            if url.is_some_and(|url| !url.origin.is_secure() && !url.origin.is_loopback()) {
                findings.warn(&flow.path(name), clause, "clients would send secrets without TLS");
            }
        }
        if flow.get("scopes").is_none_or(|scopes| !scopes.is_object()) {
            findings.schema(&flow.path("scopes"), clause, "required, and missing or not a map");
        }
    }
}

/// Checks that every required scheme is declared.
pub(super) fn requirements(card: &Map<String, Value>, form: LintForm, findings: &mut Findings) {
    let of_skill = card.get("skills").and_then(Value::as_array).into_iter().flatten().enumerate();
    let mut objects = vec![(String::new(), card)];
    objects.extend(
        of_skill
            .filter_map(|(index, skill)| Some((format!("skills[{index}]"), skill.as_object()?))),
    );
    let declared = card.get("securitySchemes").or_else(|| card.get("security_schemes"));
    let declared = declared.and_then(Value::as_object);
    for (base, members) in objects {
        for (name, clause) in [("securityRequirements", V1), ("security", V03)] {
            let Some(Value::Array(list)) = members.get(name) else { continue };
            for (index, one) in list.iter().enumerate() {
                let at = format!("{}[{index}]", path(&base, name));
                let Some(one) = one.as_object() else {
                    findings.schema(&at, clause, format!("{}, not an object", kind(one)));
                    continue;
                };
                let wrapped = one.get("schemes").and_then(Value::as_object);
                if name == "securityRequirements" && wrapped.is_none() && !one.is_empty() {
                    findings.schema(&at, V1, "has no schemes object");
                }
                for scheme in wrapped.unwrap_or(one).keys() {
                    if declared.is_none_or(|declared| !declared.contains_key(scheme)) {
                        let message = format!("the scheme {scheme:?} is not declared");
                        findings.error(&path(&at, scheme), clause, message);
                    }
                }
            }
            if form == LintForm::V1 && name == "security" && base.is_empty() {
                let message = "is called securityRequirements in A2A 1.0";
                findings.warn(name, V1, message);
            }
        }
    }
}
