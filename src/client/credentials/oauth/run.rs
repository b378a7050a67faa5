//! The flows over a transport.
//!
//! Invariant: redirects are not followed, so a secret is sent only to URLs that the caller named.
//! An error contains no secret, even if the server repeats one. A request has `head_ms` for its
//! whole answer.

use url::form_urlencoded::byte_serialize;

use crate::{
    client::{
        ClientLimits, HttpMethod, HttpRequest, HttpResponse, HttpUrl, HttpVersion, Transport,
        TransportError,
        exchange::{SizeLimit, read_all},
    },
    http::{FieldLines, FieldLinesBuf},
    json::base64,
};

use super::{
    AuthorizationServer, DeviceCode, DevicePoll, OAuthClient, OAuthError, OAuthRequest,
    OAuthSource, Secret, Token, metadata_urls, read_device_code, read_metadata, read_token,
};

/// Maximum bytes of a document of an authorization server: 256 KiB. Metadata has up to 10 KiB.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// A status and a body.
type Answer = (u16, Vec<u8>);

/// The endpoints of a client's source: the named URLs, or those in the issuer's metadata.
///
/// # Errors
/// [`OAuthError`]
pub async fn resolve_server<T: Transport>(
    transport: &T,
    client: &OAuthClient,
    limits: &ClientLimits,
) -> Result<AuthorizationServer, OAuthError> {
    let issuer = match &client.source {
        OAuthSource::Server(server) => return Ok(server.clone()),
        OAuthSource::Issuer(issuer) => issuer,
    };
    let origin = &issuer.origin;
    if !origin.is_secure() && !origin.is_loopback() && !client.allows_plain_http {
        return Err(OAuthError::PlainHttp(origin.clone()));
    }
    let mut fields = FieldLinesBuf::default();
    fields.push("Accept", "application/json");
    let [of_oauth, of_openid] = metadata_urls(issuer);
    let get = |url| send_request(transport, HttpMethod::Get, url, fields.get(), b"", limits);
    let (mut status, mut body) = get(&of_oauth).await?;
    if status != 200 {
        (status, body) = get(&of_openid).await?;
    }
    if status != 200 {
        return Err(OAuthError::Status(status));
    }
    read_metadata(&body, issuer)
}

/// Fetches a token for the client itself.
///
/// # Errors
/// [`OAuthError`]
pub async fn fetch_token<T: Transport>(
    transport: &T,
    client: &OAuthClient,
    limits: &ClientLimits,
) -> Result<Token, OAuthError> {
    let server = resolve_server(transport, client, limits).await?;
    let request = client.client_credentials(&server)?;
    let (status, body) = oauth_exchange(transport, &request, limits).await?;
    read_token(status, &body, transport.now()).map_err(|error| client.hide(error, None))
}

/// Fetches a new token with a refresh token, which remains valid unless the server returns another
/// one (RFC 6749 §6).
///
/// # Errors
/// [`OAuthError`]
pub async fn refresh_token<T: Transport>(
    transport: &T,
    client: &OAuthClient,
    server: &AuthorizationServer,
    refresh: Secret,
    limits: &ClientLimits,
) -> Result<Token, OAuthError> {
    let request = client.refresh(server, &refresh)?;
    let (status, body) = oauth_exchange(transport, &request, limits).await?;
    match read_token(status, &body, transport.now()) {
        Ok(token) => Ok(Token { refresh: token.refresh.or(Some(refresh)), ..token }),
        Err(error) => Err(client.hide(error, Some(&refresh))),
    }
}

/// Fetches the codes of the device flow (RFC 8628 §3.1).
///
/// # Errors
/// [`OAuthError`]
pub async fn fetch_device_code<T: Transport>(
    transport: &T,
    client: &OAuthClient,
    server: &AuthorizationServer,
    limits: &ClientLimits,
) -> Result<DeviceCode, OAuthError> {
    let request = client.device_authorization(server)?;
    let (status, body) = oauth_exchange(transport, &request, limits).await?;
    read_device_code(status, &body).map_err(|error| client.hide(error, None))
}

/// Polls for the token of the device flow until the server issues it or finally refuses.
///
/// # Errors
/// [`OAuthError`], but never [`OAuthError::Pending`] or [`OAuthError::SlowDown`].
pub async fn poll_device<T: Transport>(
    transport: &T,
    client: &OAuthClient,
    server: &AuthorizationServer,
    code: &DeviceCode,
    limits: &ClientLimits,
) -> Result<Token, OAuthError> {
    let mut poll = DevicePoll::new(code, transport.now());
    let request = client.device_token(server, &code.device_code)?;
    let mut last = None;
    loop {
        let next_ms = poll.next_ms(last, transport.now())?;
        transport.sleep_until(next_ms).await;
        let answer = oauth_exchange(transport, &request, limits).await;
        let token = answer.map_err(OAuthError::Transport);
        let token = token.and_then(|(status, body)| read_token(status, &body, transport.now()));
        match token {
            Ok(token) => return Ok(token),
            Err(error) => last = Some(client.hide(error, Some(&code.device_code))),
        }
    }
}

/// Sends a request to an authorization server and returns the status and the body.
///
/// # Errors
/// [`TransportError`]
pub async fn oauth_exchange<T: Transport>(
    transport: &T,
    request: &OAuthRequest,
    limits: &ClientLimits,
) -> Result<(u16, Vec<u8>), TransportError> {
    let (url, fields, body) = (&request.url, request.fields.get(), request.body.as_bytes());
    send_request(transport, HttpMethod::Post, url, fields, body, limits).await
}

async fn send_request<T: Transport>(
    transport: &T,
    method: HttpMethod,
    url: &HttpUrl,
    fields: FieldLines<'_>,
    body: &[u8],
    limits: &ClientLimits,
) -> Result<Answer, TransportError> {
    let due_ms = transport.mono_ms().saturating_add(limits.head_ms);
    let request = HttpRequest {
        method,
        origin: &url.origin,
        target: &url.path,
        fields,
        body,
        version: HttpVersion::Any,
        head_due_ms: due_ms,
        body_idle_ms: limits.idle_ms,
        is_repeatable: method == HttpMethod::Get,
    };
    let mut response = transport.request(request).await?;
    let mut read = Vec::new();
    let limit = SizeLimit { bytes_max: DOCUMENT_BYTES_MAX, name: "DOCUMENT_BYTES_MAX" };
    read_all(transport, &mut response, &mut read, limit, due_ms).await?;
    Ok((response.status(), read))
}

impl OAuthClient {
    /// Removes a text of the error that repeats the client's secret or the secret `sent`: in plain
    /// text, encoded as in a form or in `Authorization`, or cut off at the end of the text, because
    /// long texts were shortened.
    pub(super) fn hide(&self, error: OAuthError, sent: Option<&Secret>) -> OAuthError {
        let OAuthError::Refused { mut code, mut description } = error else { return error };
        let secrets = self.secret.iter().chain(sent).map(Secret::expose);
        for secret in secrets.filter(|secret| !secret.is_empty()) {
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let basic =
                |id: &str, secret: &str| base64::encode(format!("{id}:{secret}").as_bytes());
            let in_form = encoded(secret);
            let in_field = [basic(&encoded(&self.id), &in_form), basic(&self.id, secret)];
            for form in [secret, &in_form].into_iter().chain(in_field.iter().map(String::as_str)) {
                let is_in_code = repeats(&code, form);
                if is_in_code || repeats(&description, form) {
                    description.clear();
                }
                if is_in_code {
                    code = "[secret]".to_owned();
                }
            }
        }
        OAuthError::Refused { code, description }
    }
}

/// Whether the text contains a secret, or ends with the first bytes of one.
fn repeats(text: &str, secret: &str) -> bool {
    /// A shorter prefix could be part of any word.
    const BEGUN_BYTES_MIN: usize = 4;
    let mut begun = BEGUN_BYTES_MIN..secret.len();
    text.contains(secret) || begun.any(|len| secret.get(..len).is_some_and(|b| text.ends_with(b)))
}
