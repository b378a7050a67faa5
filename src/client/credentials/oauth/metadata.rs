//! The metadata of an issuer (RFC 8414, OpenID Connect Discovery 1.0).

use serde_json::Value;

use crate::{
    client::{HttpOrigin, HttpUrl},
    json::without_mark,
};

use super::{AuthorizationServer, OAuthError};

/// The URLs of an issuer's metadata, in the order of the requests: RFC 8414 §3.1 puts the issuer's
/// path after the well-known path, OpenID Connect Discovery §4.1 before it.
pub fn metadata_urls(issuer: &HttpUrl) -> [HttpUrl; 2] {
    let path = issuer.path.split('?').next().unwrap_or_default().trim_end_matches('/');
    let at = |path: String| HttpUrl { origin: issuer.origin.clone(), path };
    [
        at(format!("/.well-known/oauth-authorization-server{path}")),
        at(format!("{path}/.well-known/openid-configuration")),
    ]
}

/// Reads the metadata of the requested issuer.
///
/// # Errors
/// [`OAuthError::Issuer`] if the metadata belongs to another issuer (RFC 8414 §3.3),
/// [`OAuthError::PlainHttp`] if an `https` issuer names an `http` endpoint,
/// [`OAuthError::Unreadable`].
pub fn read_metadata(body: &[u8], issuer: &HttpUrl) -> Result<AuthorizationServer, OAuthError> {
    let metadata =
        serde_json::from_slice::<Value>(without_mark(body)).ok().filter(Value::is_object);
    let metadata = metadata.ok_or(OAuthError::Unreadable("the metadata is not a JSON object"))?;
    let text = |name: &str| metadata.get(name).and_then(Value::as_str);
    let named = text("issuer").ok_or(OAuthError::Unreadable("issuer is missing"))?;
    let requested = issuer.to_string();
    // A trailing slash makes no difference: callers type either form.
    let is_requested = HttpOrigin::parse(named).is_ok_and(|named| {
        named.to_string().trim_end_matches('/') == requested.trim_end_matches('/')
    });
    if !is_requested {
        return Err(OAuthError::Issuer(named.chars().take(256).collect()));
    }
    let endpoint = |name: &str| {
        let url = text(name)?;
        Some(HttpOrigin::parse(url).map_err(|_| OAuthError::Unreadable("an endpoint is not a URL")))
    };
    let checked = |url: HttpUrl| match issuer.origin.is_secure() && !url.origin.is_secure() {
        true => Err(OAuthError::PlainHttp(url.origin)),
        false => Ok(url),
    };
    let token_url = endpoint("token_endpoint");
    let token_url = token_url.ok_or(OAuthError::Unreadable("token_endpoint is missing"))??;
    let device_url = endpoint("device_authorization_endpoint").transpose()?;
    Ok(AuthorizationServer {
        token_url: checked(token_url)?,
        device_url: device_url.map(checked).transpose()?,
    })
}
