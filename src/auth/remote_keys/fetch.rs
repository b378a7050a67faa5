//! One fetch of keys: its request, and the meaning of its response.
//!
//! Invariant: a document is used as a whole or not at all; an unreadable document changes no key.

use std::{fmt, sync::Arc, task::Waker};

use serde_json::Value;

use crate::{
    auth::{jwt::object, token_keys::TokenKeys},
    limits::callers::{ISSUER_DOCUMENT_BYTES_MAX, ISSUER_REFRESH_MS_MAX, ISSUER_REFRESH_MS_MIN},
    service::Now,
};

use super::{RemoteKeys, location::check_url};

/// A document to fetch with GET, following redirects as [`KeyFetch::may_go_to`] allows.
pub struct KeyFetch {
    pub(super) source: Arc<RemoteKeys>,
    pub(super) number: u64,
    pub(super) url: String,
    /// True: the document is the metadata, not the keys.
    pub(super) is_metadata: bool,
    pub(super) due_ms: u64,
}

/// A fetched document: the content of a 200.
#[derive(Clone, Debug, Default)]
pub struct FetchedDocument {
    /// The content, at most [`ISSUER_DOCUMENT_BYTES_MAX`] + 1 bytes.
    pub content: Vec<u8>,
    /// The value of `Cache-Control`.
    pub cache_control: Option<String>,
}

impl fmt::Debug for KeyFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFetch").field("url", &self.url).finish_non_exhaustive()
    }
}

impl KeyFetch {
    /// The URL to fetch.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// When the fetch times out, in ms of [`Now::mono_ms`].
    pub fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Whether a redirect may lead to `url`. Plain HTTP on this machine is allowed only if the
    /// first URL was plain HTTP as well.
    pub fn may_go_to(&self, url: &str) -> bool {
        check_url(url).is_ok_and(|is_plain| !is_plain || self.source.is_plain)
    }

    /// Completes the fetch with the document or the error; returns the next fetch, if any.
    pub fn end(self, now: Now, fetched: Result<FetchedDocument, String>) -> Option<KeyFetch> {
        let fetched =
            fetched.and_then(|document| match document.content.len() > ISSUER_DOCUMENT_BYTES_MAX {
                true => Err("the document is too long".to_owned()),
                false => Ok(document),
            });
        let problem = match fetched {
            Err(problem) => problem,
            Ok(document) if self.is_metadata => match self.keys_url(&document.content) {
                Ok(url) => return Some(KeyFetch { url, is_metadata: false, ..self }),
                Err(problem) => problem,
            },
            Ok(document) => match TokenKeys::read_set(&document.content) {
                Ok(keys) => {
                    let cache_control = document.cache_control.as_deref();
                    self.source.take(self.number, now, keys, cache_control);
                    return None;
                }
                Err(error) => error.to_string(),
            },
        };
        let woken = self.source.state().fail(self.number, now, problem);
        woken.into_iter().for_each(Waker::wake);
        None
    }

    /// OpenID Connect Discovery 1.0 §4.3: the issuer must be exactly the requested one.
    fn keys_url(&self, metadata: &[u8]) -> Result<String, String> {
        let metadata =
            object(metadata).map_err(|_| "the metadata is not a JSON object".to_owned())?;
        if metadata.get("issuer").and_then(Value::as_str) != Some(self.source.issuer.as_str()) {
            return Err("the metadata belongs to another issuer".to_owned());
        }
        let url = metadata.get("jwks_uri").and_then(Value::as_str);
        let url = url.ok_or_else(|| "the metadata has no jwks_uri".to_owned())?;
        match self.may_go_to(url) {
            true => Ok(url.to_owned()),
            false => Err("the jwks_uri of the metadata is not an https URL".to_owned()),
        }
    }
}

/// RFC 9111 §5.2.2: the number of ms for which the keys are fresh.
pub(super) fn fresh_ms(cache_control: Option<&str>, default_ms: u64) -> u64 {
    let directives = cache_control.unwrap_or_default().split(',').map(str::trim);
    let mut fresh_ms = None;
    for directive in directives {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" => fresh_ms = Some(0),
            "max-age" => {
                let seconds = value.trim().trim_matches('"').parse::<u64>().ok();
                let ms = seconds.map(|seconds| seconds.saturating_mul(1000));
                fresh_ms = fresh_ms.or(ms);
            }
            _ => {}
        }
    }
    let clamped = |ms: u64| ms.clamp(ISSUER_REFRESH_MS_MIN, ISSUER_REFRESH_MS_MAX);
    fresh_ms.map_or(default_ms, clamped)
}
