//! Requests to an authorization server.

use std::fmt;

use url::form_urlencoded::{Serializer, byte_serialize};

use crate::{client::HttpUrl, http::FieldLinesBuf, json::base64};

use super::{AuthorizationServer, OAuthClient, OAuthError, Secret};

/// A POST to an authorization server.
#[derive(Clone, PartialEq, Eq)]
pub struct OAuthRequest {
    /// The endpoint.
    pub url: HttpUrl,
    /// The fields.
    pub fields: FieldLinesBuf,
    /// The content, a form.
    pub body: String,
}

impl fmt::Debug for OAuthRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthRequest").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The grant type of the device flow (RFC 8628 §3.4).
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

impl OAuthClient {
    /// Requests a token for the client itself (RFC 6749 §4.4).
    ///
    /// # Errors
    /// [`OAuthError::NoSecret`], [`OAuthError::PlainHttp`].
    pub fn client_credentials(
        &self,
        server: &AuthorizationServer,
    ) -> Result<OAuthRequest, OAuthError> {
        if self.secret.is_none() {
            return Err(OAuthError::NoSecret);
        }
        let mut form = vec![("grant_type", "client_credentials")];
        let scopes = self.scopes.join(" ");
        form.extend((!scopes.is_empty()).then_some(("scope", scopes.as_str())));
        self.post(&server.token_url, &form)
    }

    /// Requests a new token with the refresh token of the previous one (RFC 6749 §6).
    ///
    /// # Errors
    /// [`OAuthError::PlainHttp`].
    pub fn refresh(
        &self,
        server: &AuthorizationServer,
        refresh: &Secret,
    ) -> Result<OAuthRequest, OAuthError> {
        let form = [("grant_type", "refresh_token"), ("refresh_token", refresh.expose())];
        self.post(&server.token_url, &form)
    }

    /// Requests the codes of the device flow (RFC 8628 §3.1).
    ///
    /// # Errors
    /// [`OAuthError::NoDeviceFlow`], [`OAuthError::PlainHttp`].
    pub fn device_authorization(
        &self,
        server: &AuthorizationServer,
    ) -> Result<OAuthRequest, OAuthError> {
        let url = server.device_url.as_ref().ok_or(OAuthError::NoDeviceFlow)?;
        let scopes = self.scopes.join(" ");
        let scope = (!scopes.is_empty()).then_some(("scope", scopes.as_str()));
        self.post(url, &scope.into_iter().collect::<Vec<_>>())
    }

    /// Requests the token of the device flow (RFC 8628 §3.4).
    ///
    /// # Errors
    /// [`OAuthError::PlainHttp`].
    pub fn device_token(
        &self,
        server: &AuthorizationServer,
        device_code: &Secret,
    ) -> Result<OAuthRequest, OAuthError> {
        let form = [("grant_type", DEVICE_GRANT), ("device_code", device_code.expose())];
        self.post(&server.token_url, &form)
    }

    /// Builds a POST of the form with the client's credentials.
    fn post(&self, url: &HttpUrl, form: &[(&str, &str)]) -> Result<OAuthRequest, OAuthError> {
        let origin = &url.origin;
        if !origin.is_secure() && !origin.is_loopback() && !self.allows_plain_http {
            return Err(OAuthError::PlainHttp(origin.clone()));
        }
        let mut fields = FieldLinesBuf::default();
        fields.push("Content-Type", "application/x-www-form-urlencoded");
        fields.push("Accept", "application/json");
        let mut body = Serializer::new(String::new());
        body.extend_pairs(form);
        match &self.secret {
            Some(secret) if !self.authenticates_in_body => {
                // RFC 6749 §2.3.1: id and secret are encoded as in a form before they are joined.
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encoded(&self.id), encoded(secret.expose()));
                let value = format!("Basic {}", base64::encode(pair.as_bytes()));
                fields.push("Authorization", &value);
            }
            Some(secret) => {
                body.append_pair("client_id", &self.id);
                body.append_pair("client_secret", secret.expose());
            }
            None => {
                body.append_pair("client_id", &self.id);
            }
        }
        Ok(OAuthRequest { url: url.clone(), fields, body: body.finish() })
    }
}
