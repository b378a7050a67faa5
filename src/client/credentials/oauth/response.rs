//! Responses of an authorization server.
//!
//! Invariant: a token is a bearer token (RFC 6750); any other type is rejected. An error retains
//! the server's code and description without control characters, which a terminal could obey.

use serde_json::Value;

use crate::{client::HttpOrigin, json::without_mark, service::Now};

use super::{OAuthError, Secret};

/// An access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The text to send.
    pub access: Secret,
    /// When it expires, in ms since the Unix epoch; `None`: the server does not state it.
    pub expires_at_unix_ms: Option<u64>,
    /// The refresh token.
    pub refresh: Option<Secret>,
    /// When to renew the token: before it expires, so that it does not expire in flight.
    pub renew_at_unix_ms: Option<u64>,
}

impl Token {
    /// Whether the token can be used without a renewal.
    pub fn is_fresh(&self, now: Now) -> bool {
        self.renew_at_unix_ms.is_none_or(|renew_at| now.unix_ms < renew_at)
    }
}

/// Ms before the expiry at which a token is renewed: 30 s, or half of its life if that is less.
const RENEW_MS: u64 = 30_000;

/// Reads the answer to a request for a token (RFC 6749 §5, RFC 8628 §3.5).
///
/// # Errors
/// [`OAuthError`]
pub fn read_token(status: u16, body: &[u8], now: Now) -> Result<Token, OAuthError> {
    let object = read(status, body)?;
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let access = text("access_token").filter(|token| !token.is_empty());
    let access = access.ok_or(OAuthError::Unreadable("access_token is missing"))?;
    if !access.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(OAuthError::Unreadable("access_token cannot be sent"));
    }
    // RFC 6749 §7.1: a client must not use a token of a type that it does not understand.
    if !text("token_type").unwrap_or("bearer").eq_ignore_ascii_case("bearer") {
        return Err(OAuthError::Unreadable("token_type is not Bearer"));
    }
    let life_ms = seconds(&object, "expires_in").map(|seconds| seconds.saturating_mul(1_000));
    let renew_at = |life_ms: u64| now.unix_ms.saturating_add(life_ms - RENEW_MS.min(life_ms / 2));
    Ok(Token {
        access: Secret::new(access),
        expires_at_unix_ms: life_ms.map(|life_ms| now.unix_ms.saturating_add(life_ms)),
        refresh: text("refresh_token").filter(|text| !text.is_empty()).map(Secret::new),
        renew_at_unix_ms: life_ms.map(renew_at),
    })
}

/// The codes of the device flow (RFC 8628 §3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCode {
    /// The code with which the client requests the token.
    pub device_code: Secret,
    /// The code that the user types.
    pub user_code: String,
    /// The page on which the user types the code.
    pub verification_url: String,
    /// The same page with the code in its URL.
    pub verification_url_complete: Option<String>,
    /// Milliseconds until the codes expire: at most half an hour.
    pub life_ms: u64,
    /// Milliseconds between two requests.
    pub interval_ms: u64,
}

/// Reads the answer to a request for the codes of the device flow.
///
/// # Errors
/// [`OAuthError`]
pub fn read_device_code(status: u16, body: &[u8]) -> Result<DeviceCode, OAuthError> {
    const LIFE_S_MAX: u64 = 30 * 60;
    let object = read(status, body)?;
    let text = |names: &[&str]| {
        let found = names.iter().find_map(|name| object.get(*name).and_then(Value::as_str));
        found.filter(|text| !text.is_empty() && !text.chars().any(char::is_control))
    };
    let device_code = text(&["device_code"]);
    let device_code = device_code.ok_or(OAuthError::Unreadable("device_code is missing"))?;
    let user_code = text(&["user_code"]).ok_or(OAuthError::Unreadable("user_code is missing"))?;
    // Servers older than the RFC write `url`.
    let verification_url = text(&["verification_uri", "verification_url"]);
    let verification_url = verification_url.filter(|url| HttpOrigin::parse(url).is_ok());
    let no_url = OAuthError::Unreadable("verification_uri is missing or not a URL");
    Ok(DeviceCode {
        device_code: Secret::new(device_code),
        user_code: user_code.to_owned(),
        verification_url: verification_url.ok_or(no_url)?.to_owned(),
        verification_url_complete: text(&["verification_uri_complete"])
            .filter(|url| HttpOrigin::parse(url).is_ok())
            .map(str::to_owned),
        life_ms: seconds(&object, "expires_in").unwrap_or(LIFE_S_MAX).min(LIFE_S_MAX) * 1_000,
        // RFC 8628 §3.2: the default is five seconds.
        interval_ms: seconds(&object, "interval").unwrap_or(5).clamp(1, 60) * 1_000,
    })
}

/// The schedule of token requests in the device flow (RFC 8628 §3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePoll {
    interval_ms: u64,
    due_ms: u64,
}

impl DevicePoll {
    /// The schedule for codes received at `now`.
    pub fn new(code: &DeviceCode, now: Now) -> DevicePoll {
        let due_ms = now.mono_ms.saturating_add(code.life_ms);
        DevicePoll { interval_ms: code.interval_ms, due_ms }
    }

    /// When to send the next request, in ms of [`Now::mono_ms`]. `last` is the error of the
    /// previous request.
    ///
    /// # Errors
    /// [`OAuthError::Expired`] if the codes have expired by that time, and `last` if it is final.
    pub fn next_ms(&mut self, last: Option<OAuthError>, now: Now) -> Result<u64, OAuthError> {
        match last {
            None | Some(OAuthError::Pending) => {}
            Some(OAuthError::SlowDown) => self.interval_ms += 5_000,
            // RFC 8628 §3.5: after a timeout a client polls less often.
            Some(OAuthError::Transport(_)) => {
                self.interval_ms = self.interval_ms.saturating_mul(2).min(60_000);
            }
            Some(error) => return Err(error),
        }
        let next = now.mono_ms.saturating_add(self.interval_ms);
        if next < self.due_ms { Ok(next) } else { Err(OAuthError::Expired) }
    }
}

/// The JSON object of a successful response.
fn read(status: u16, body: &[u8]) -> Result<Value, OAuthError> {
    let object = serde_json::from_slice::<Value>(without_mark(body)).ok().filter(Value::is_object);
    let code = object.as_ref().and_then(|object| object.get("error")).and_then(Value::as_str);
    match (object.as_ref(), code, status) {
        (Some(object), Some(code), _) => Err(refused(code, object)),
        (_, _, 200 | 201) => object.ok_or(OAuthError::Unreadable("the body is not a JSON object")),
        _ => Err(OAuthError::Status(status)),
    }
}

fn refused(code: &str, object: &Value) -> OAuthError {
    match code {
        "authorization_pending" => OAuthError::Pending,
        "slow_down" => OAuthError::SlowDown,
        "access_denied" => OAuthError::Denied,
        "expired_token" => OAuthError::Expired,
        _ => {
            let description = object.get("error_description").and_then(Value::as_str);
            let description = plain(description.unwrap_or_default(), 256);
            OAuthError::Refused { code: plain(code, 64), description }
        }
    }
}

fn plain(text: &str, chars_max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(chars_max).collect()
}

/// A number of seconds, which some servers write as text.
fn seconds(object: &Value, name: &str) -> Option<u64> {
    match object.get(name)? {
        Value::Number(number) => number.as_u64().or_else(|| {
            let seconds = number.as_f64().filter(|seconds| (0.0..1e12).contains(seconds))?;
            format!("{seconds:.0}").parse().ok()
        }),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
