//! Reads security schemes and requirements in the forms of cards (wire §1.6), and in the form that
//! the JavaScript SDK 1.3.0 writes: `{"scheme":{"$case":"…","value":{…}}}`.
//!
//! Invariant: if a scheme has a wrapper of 1.0, only the wrapper is read; a `type` next to it is
//! ignored (wire §10, trap 49). Invalid security is not read as "nothing is required".

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::model::Generation;

use super::{
    super::limits::CARD_ENTRIES_MAX, ApiKeyLocation, ApiKeyScheme, CardError, CardProblem,
    HttpAuthScheme, MutualTlsScheme, OAuth2Scheme, OAuthFlow, OAuthFlowKind, OpenIdConnectScheme,
    SecurityRequirement, SecurityScheme, SecuritySchemes, object::CardObject,
};

/// The schemes by their names.
pub(super) fn schemes(card: &CardObject<'_>) -> Result<SecuritySchemes, CardError> {
    let Some(declared) = card.get("securitySchemes") else { return Ok(SecuritySchemes::new()) };
    let Some(declared) = CardObject::of("securitySchemes", declared) else {
        return Err(card.wrong_type("securitySchemes", "an object"));
    };
    let mut schemes = SecuritySchemes::new();
    for (name, value) in declared.members() {
        if schemes.len() == CARD_ENTRIES_MAX {
            let problem = CardProblem::TooMany(CARD_ENTRIES_MAX);
            return Err(CardError::of("securitySchemes", problem));
        }
        let one = CardObject::of(&declared.path(name), value);
        let one = one.ok_or_else(|| declared.wrong_type(name, "an object"))?;
        schemes.insert(name.clone(), scheme(&one)?);
    }
    Ok(schemes)
}

/// The kind of a scheme: a wrapper of 1.0 and a `type` of 0.3, see [`KINDS`].
#[derive(Clone, Copy)]
enum SchemeKind {
    ApiKey,
    Http,
    OAuth2,
    OpenIdConnect,
    MutualTls,
}

const KINDS: &[(SchemeKind, &str, &str)] = &[
    (SchemeKind::ApiKey, "apiKeySecurityScheme", "apiKey"),
    (SchemeKind::Http, "httpAuthSecurityScheme", "http"),
    (SchemeKind::OAuth2, "oauth2SecurityScheme", "oauth2"),
    (SchemeKind::OpenIdConnect, "openIdConnectSecurityScheme", "openIdConnect"),
    (SchemeKind::MutualTls, "mtlsSecurityScheme", "mutualTLS"),
];

fn scheme(object: &CardObject<'_>) -> Result<SecurityScheme, CardError> {
    let wrapped =
        KINDS.iter().find_map(|(kind, wrapper, _)| Some((*kind, object.object(wrapper)?)));
    if let Some((kind, inner)) = wrapped {
        return of_kind(kind, &inner);
    }
    if let Some((case, inner)) = one_of(object, "scheme") {
        return match KINDS.iter().find(|(_, wrapper, _)| *wrapper == case) {
            Some((kind, _, _)) => of_kind(*kind, &inner),
            None => Ok(SecurityScheme::Unknown(case)),
        };
    }
    let name = object.text("type").unwrap_or_default();
    match KINDS.iter().find(|(_, _, of_type)| of_type.eq_ignore_ascii_case(&name)) {
        Some((kind, _, _)) => of_kind(*kind, object),
        None => Ok(SecurityScheme::Unknown(name)),
    }
}

/// The case and the value of a proto oneof, as the JavaScript SDK stores it.
fn one_of<'v>(object: &CardObject<'v>, name: &str) -> Option<(String, CardObject<'v>)> {
    let oneof = object.object(name)?;
    Some((oneof.text("$case")?, oneof.object("value")?))
}

fn of_kind(kind: SchemeKind, object: &CardObject<'_>) -> Result<SecurityScheme, CardError> {
    let text = |name: &str| object.text(name).unwrap_or_default();
    let description = text("description");
    Ok(match kind {
        SchemeKind::ApiKey => {
            let location = object.text_of(&["location", "in"]).unwrap_or_default();
            let location = match location.to_ascii_lowercase().as_str() {
                "header" => ApiKeyLocation::Header,
                "query" => ApiKeyLocation::Query,
                "cookie" => ApiKeyLocation::Cookie,
                _ => return Ok(SecurityScheme::Unknown("apiKey".to_owned())),
            };
            match object.text("name").filter(|name| !name.is_empty()) {
                Some(name) => SecurityScheme::ApiKey(ApiKeyScheme { description, location, name }),
                None => SecurityScheme::Unknown("apiKey".to_owned()),
            }
        }
        SchemeKind::Http => SecurityScheme::Http(HttpAuthScheme {
            description,
            scheme: text("scheme"),
            bearer_format: text("bearerFormat"),
        }),
        SchemeKind::OAuth2 => SecurityScheme::OAuth2(OAuth2Scheme {
            description,
            flows: object.object("flows").map_or_else(Vec::new, |flows| of_flows(&flows)),
            // The proto's name, `oauth2_metadata_url`, as JSON libraries convert it.
            metadata_url: text("oauth2MetadataUrl"),
        }),
        SchemeKind::OpenIdConnect => SecurityScheme::OpenIdConnect(OpenIdConnectScheme {
            description,
            open_id_connect_url: text("openIdConnectUrl"),
        }),
        SchemeKind::MutualTls => SecurityScheme::MutualTls(MutualTlsScheme { description }),
    })
}

fn of_flows(object: &CardObject<'_>) -> Vec<OAuthFlow> {
    if let Some((case, inner)) = one_of(object, "flow") {
        let kind = OAuthFlowKind::ALL.into_iter().find(|kind| kind.name() == case);
        return kind.map(|kind| of_flow(kind, &inner)).into_iter().collect();
    }
    let of_kind = |kind: OAuthFlowKind| Some(of_flow(kind, &object.object(kind.name())?));
    OAuthFlowKind::ALL.into_iter().filter_map(of_kind).collect()
}

fn of_flow(kind: OAuthFlowKind, object: &CardObject<'_>) -> OAuthFlow {
    use OAuthFlowKind::{AuthorizationCode, ClientCredentials, DeviceCode, Implicit, Password};
    let required = |name: &str| Some(object.text(name).unwrap_or_default());
    let optional = |name: &str| object.text(name).filter(|text| !text.is_empty());
    let scopes = object.object("scopes").map_or_else(BTreeMap::new, |scopes| {
        let texts = scopes
            .members()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
        texts.collect()
    });
    OAuthFlow {
        kind,
        authorization_url: match kind {
            AuthorizationCode => required("authorizationUrl"),
            Implicit => optional("authorizationUrl"),
            ClientCredentials | Password | DeviceCode => None,
        },
        device_authorization_url: match kind {
            DeviceCode => required("deviceAuthorizationUrl"),
            AuthorizationCode | ClientCredentials | Implicit | Password => None,
        },
        token_url: match kind {
            AuthorizationCode | ClientCredentials | DeviceCode => required("tokenUrl"),
            Password => optional("tokenUrl"),
            Implicit => None,
        },
        refresh_url: object.text("refreshUrl").unwrap_or_default(),
        scopes,
        pkce_required: match kind {
            AuthorizationCode => object.flag("pkceRequired").unwrap_or_default(),
            ClientCredentials | Implicit | Password | DeviceCode => false,
        },
    }
}

/// The requirements of the card, or of a skill.
pub(super) fn requirements(object: &CardObject<'_>) -> Result<Vec<SecurityRequirement>, CardError> {
    // 0.3 has the name `security`, as have cards of 1.0 that follow its guide (wire §10, trap 22).
    let named = ["securityRequirements", "security"];
    let Some(name) = named.into_iter().find(|name| object.get(name).is_some()) else {
        return Ok(Vec::new());
    };
    // Lua writes an empty array as an empty object.
    let is_list = |value: &Value| value.is_array() || value.as_object().is_some_and(Map::is_empty);
    if object.get(name).is_some_and(|value| !is_list(value)) {
        return Err(object.wrong_type(name, "an array"));
    }
    let is_v1 = name == named[0];
    let all = object.list(name)?.into_iter();
    all.map(|(member, value)| requirement(&member, value, is_v1)).collect()
}

fn requirement(member: &str, value: &Value, is_v1: bool) -> Result<SecurityRequirement, CardError> {
    let wrong_type = |member: &str| CardError::of(member, CardProblem::Type("an object"));
    let object = CardObject::of(member, value).ok_or_else(|| wrong_type(member))?;
    // A scheme of 0.3 may have the name `schemes`, but its scopes are an array.
    let schemes = match object.get("schemes") {
        Some(Value::Object(_)) => object.object("schemes").unwrap_or(object),
        Some(Value::Array(list)) if is_v1 && list.is_empty() => {
            object.object("schemes").unwrap_or(object)
        }
        Some(_) | None => object,
    };
    let scopes = schemes.members().map(|(name, value)| {
        let list = match value {
            Value::Array(list) => list.as_slice(),
            Value::Object(wrapped) => {
                wrapped.get("list").and_then(Value::as_array).map_or(&[][..], Vec::as_slice)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => &[],
        };
        let texts = list.iter().filter_map(Value::as_str).map(str::to_owned);
        (name.clone(), texts.collect())
    });
    Ok(SecurityRequirement { schemes: scopes.collect() })
}

/// Schemes and requirements, including those of 0.1: its `authentication` has only names of HTTP
/// schemes, and one of the schemes is enough (A2A 0.1, `AgentAuthentication`).
pub(super) fn with_requirements(
    card: &CardObject<'_>,
    generation: Generation,
    mut schemes: SecuritySchemes,
) -> Result<(SecuritySchemes, Vec<SecurityRequirement>), CardError> {
    let mut requirements = requirements(card)?;
    let authentication = card.object("authentication");
    if let (Generation::V01, Some(authentication)) = (generation, authentication) {
        for name in authentication.texts("schemes")? {
            let is_free =
                ["", "none", "public"].iter().any(|free| free.eq_ignore_ascii_case(&name));
            if is_free {
                return Ok((SecuritySchemes::new(), Vec::new()));
            }
            let is_http = ["bearer", "basic"].iter().any(|one| one.eq_ignore_ascii_case(&name));
            let scheme = match is_http {
                true => SecurityScheme::Http(HttpAuthScheme {
                    description: String::new(),
                    scheme: name.clone(),
                    bearer_format: String::new(),
                }),
                false => SecurityScheme::Unknown(name.clone()),
            };
            let schemes_of_it = BTreeMap::from([(name.clone(), Vec::new())]);
            requirements.push(SecurityRequirement { schemes: schemes_of_it });
            schemes.insert(name, scheme);
        }
    }
    Ok((schemes, requirements))
}
