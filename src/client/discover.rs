//! Reads the card of an agent from its URL (A2A 1.0 §8.2, wire §7.1).

use std::{fmt, sync::Arc};

use super::{
    CallOptions, ClientError, ClientErrorKind, ClientLimits, HttpMethod, HttpOrigin, HttpRequest,
    HttpResponse, HttpUrl, HttpVersion, KnownCard, Transport,
    card::{AgentCard, CardFreshness, card_urls, is_not_there, looks_like_card},
    exchange::{SizeLimit, read_all},
    redirect, retry,
};
use crate::http::{FieldLines, FieldLinesBuf, USER_AGENT, field_lines, media};

const FIELDS: FieldLines<'static> =
    field_lines!("Accept": "application/json", "A2A-Version": "1.0");

/// A document from a card's URL, valid or not.
pub(super) struct FoundDocument {
    pub json: Vec<u8>,
    /// The URL of the document after redirects.
    pub url: HttpUrl,
    is_elsewhere: bool,
    freshness: CardFreshness,
    /// The media type; empty: absent.
    media: String,
}

impl FoundDocument {
    fn read(self, requested: HttpUrl, limits: &ClientLimits) -> Result<KnownCard, ClientError> {
        let FoundDocument { json, url, is_elsewhere, freshness, media } = self;
        let card = AgentCard::read_within(&json, limits.card_bytes_max).map_err(|error| {
            let mut error = ClientError::from(error);
            if !looks_like_card(&json) {
                let answer = NoCardAnswer { status: 200, media };
                error.detail.push_str(&format!(": {url} answered with {answer}"));
            }
            error
        })?;
        let card = Arc::new(card.in_file(&url.path));
        Ok(KnownCard { requested, url, is_elsewhere, card, freshness })
    }
}

/// The options of the requests for a card.
pub(super) struct Discovery<'a, T> {
    pub transport: &'a T,
    pub limits: &'a ClientLimits,
    pub options: &'a CallOptions,
    /// The fields that the user adds to calls; requests for cards have only their `User-Agent`.
    pub user_fields: FieldLines<'a>,
}

/// The response to the GET of a card.
enum Got {
    Card(Box<FoundDocument>),
    /// RFC 9110 §15.4.5: the card has not changed.
    Same {
        url: HttpUrl,
        freshness: CardFreshness,
    },
    /// A status other than 200, or a 200 with content that was not read.
    Other(NoCardAnswer),
}

/// A response without a card.
struct NoCardAnswer {
    status: u16,
    /// The media type; empty: absent.
    media: String,
}

impl fmt::Display for NoCardAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP status {}", self.status)?;
        if self.media.is_empty() { Ok(()) } else { write!(f, ", {}", self.media) }
    }
}

impl<T: Transport> Discovery<'_, T> {
    /// The card of the agent at `url`: the cached one if it is still valid, otherwise a new one;
    /// see [`card_urls`].
    pub async fn find(
        &self,
        url: &str,
        cached: Option<&KnownCard>,
    ) -> Result<KnownCard, ClientError> {
        let requested = HttpOrigin::parse(url)?;
        if let Some(cached) = cached.filter(|cached| cached.requested == requested) {
            return self.renew(cached).await;
        }
        self.find_document(&requested).await?.read(requested, self.limits)
    }

    /// Reads the card of the agent at `requested`. A document that does not look like a card is
    /// returned only if no URL has a document that does.
    pub async fn find_document(&self, requested: &HttpUrl) -> Result<FoundDocument, ClientError> {
        let mut other_document = None;
        let mut refusal = NoCardAnswer { status: 404, media: String::new() };
        for url in card_urls(requested) {
            let is_of_cards = is_card_url(&url);
            match self.get(url, None).await? {
                Got::Card(found) if looks_like_card(&found.json) => return Ok(*found),
                Got::Card(found) => {
                    other_document.get_or_insert(found);
                }
                Got::Same { .. } => {}
                // The card exists, but needs authentication.
                Got::Other(refused) if refused.status == 401 && is_of_cards => {
                    return Err(unauthorized());
                }
                // The URL for calls rejects a GET, or a proxy in front of it does. A 401 or 403
                // explains more than the 404 of another URL.
                Got::Other(refused) if is_not_there(refused.status) => {
                    if !matches!(refusal.status, 401 | 403) {
                        refusal = refused;
                    }
                }
                Got::Other(refused) => return Err(no_card(requested, &refused)),
            }
        }
        match other_document {
            Some(found) => Ok(*found),
            None if refusal.status == 401 => Err(unauthorized()),
            None => Err(no_card(requested, &refusal)),
        }
    }

    /// The cached card if it is fresh, otherwise the result of its revalidation. An unchanged card
    /// is the same `Arc`. The request goes to the last URL of the card; if this URL has no card any
    /// more, a new discovery starts.
    pub async fn renew(&self, cached: &KnownCard) -> Result<KnownCard, ClientError> {
        if cached.freshness.is_fresh(self.transport.now()) {
            return Ok(cached.clone());
        }
        let requested = cached.requested.clone();
        match self.get(cached.url.clone(), Some(cached)).await {
            Ok(Got::Card(found)) if looks_like_card(&found.json) => {
                return found.read(requested, self.limits);
            }
            Ok(Got::Same { url, freshness }) => {
                return Ok(KnownCard { url, freshness, ..cached.clone() });
            }
            Ok(Got::Card(_) | Got::Other(_)) => {}
            // The redirect is invalid; the URL that the caller named may have another one by now.
            Err(error) if matches!(error.kind, ClientErrorKind::Redirect(_)) => {}
            Err(error) => return Err(error),
        }
        self.find_document(&requested).await?.read(requested, self.limits)
    }

    /// The fields of a request for a card.
    fn fields(&self) -> FieldLinesBuf {
        let mut fields = FieldLinesBuf::from(FIELDS);
        let is_user_agent = |name: &str| name.eq_ignore_ascii_case(USER_AGENT.0);
        let users = self.user_fields.iter().find(|(name, _)| is_user_agent(name));
        fields.push(USER_AGENT.0, users.unwrap_or(USER_AGENT).1);
        fields
    }

    /// Sends a GET and follows its redirects. If a server is not ready and sends `Retry-After` (RFC
    /// 9110 §10.2.3), the request is repeated at that time. `cached` is a cached card from `url`,
    /// perhaps after redirects.
    async fn get(
        &self,
        mut url: HttpUrl,
        mut cached: Option<&KnownCard>,
    ) -> Result<Got, ClientError> {
        let Discovery { transport, limits, options, .. } = *self;
        let due_ms = transport.mono_ms().saturating_add(options.call_ms);
        let (mut redirects, mut attempts) = (0, 0);
        // A revalidation does not undo the effect of an earlier redirect to another origin.
        let mut is_elsewhere = cached.is_some_and(|cached| cached.is_elsewhere);
        let mut fields = self.fields();
        if let Some(cached) = cached {
            cached.freshness.ask(&mut fields);
        }
        loop {
            let request = HttpRequest {
                method: HttpMethod::Get,
                origin: &url.origin,
                target: &url.path,
                fields: fields.get(),
                body: b"",
                version: HttpVersion::Any,
                head_due_ms: due_ms,
                body_idle_ms: limits.idle_ms,
                is_repeatable: true,
            };
            let mut response = transport.request(request).await?;
            let status = response.status();
            if redirect::is_redirect(status) {
                let location = response.field("location");
                let most = limits.redirects_max;
                let next = redirect::next(HttpMethod::Get, &url, location, redirects, most)?;
                is_elsewhere |= next.is_other_origin && !is_upgrade(&url.origin, &next.url.origin);
                if next.is_other_origin {
                    // Validators have a meaning only for their server, and may identify the caller.
                    (cached, fields) = (None, self.fields());
                }
                url = next.url;
                redirects += 1;
                continue;
            }
            if let Some(cached) = cached.filter(|_| status == 304) {
                let now = transport.now();
                let freshness = cached.freshness.clone().renewed(|name| response.field(name), now);
                return Ok(Got::Same { url, freshness });
            }
            if matches!(status, 429 | 503)
                && let Some(field) = response.field("retry-after")
            {
                let (now, random) = (transport.now(), transport.random());
                let requested_ms = retry::retry_after_ms(field, now.unix_ms);
                attempts += 1;
                let next_ms = requested_ms.and_then(|_| {
                    options.backoff.next_ms(attempts, requested_ms, random, now, Some(due_ms))
                });
                if let Some(next_ms) = next_ms {
                    drop(response);
                    transport.sleep_until(next_ms).await;
                    continue;
                }
            }
            let media = media_of(&response);
            // A stream of events would never end.
            if status != 200 || media == media::EVENT_STREAM {
                return Ok(Got::Other(NoCardAnswer { status, media }));
            }
            let mut json = Vec::new();
            let limit = SizeLimit { bytes_max: limits.card_bytes_max, name: "card_bytes_max" };
            read_all(transport, &mut response, &mut json, limit, due_ms).await?;
            let freshness = CardFreshness::of(|name| response.field(name), transport.now());
            let found = FoundDocument { json, url, is_elsewhere, freshness, media };
            return Ok(Got::Card(Box::new(found)));
        }
    }
}

/// The media type of a response, in lower case, shortened, and without control characters.
fn media_of<R: HttpResponse>(response: &R) -> String {
    const BYTES_MAX: usize = 64;
    let field = response.field("content-type").unwrap_or_default();
    let media = field.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let plain = media.iter().filter(|byte| byte.is_ascii_graphic()).take(BYTES_MAX);
    plain.map(|byte| char::from(byte.to_ascii_lowercase())).collect()
}

/// Whether the URL is for a card, not for an agent's calls.
fn is_card_url(url: &HttpUrl) -> bool {
    let path = url.path.split('?').next().unwrap_or_default();
    path.ends_with(".json")
}

#[cold]
fn unauthorized() -> ClientError {
    const WHY: &str = "the card requires authentication";
    ClientError::because(ClientErrorKind::Unauthorized, WHY)
}

#[cold]
fn no_card(requested: &HttpUrl, refused: &NoCardAnswer) -> ClientError {
    let detail = match refused.status {
        200 => format!("no card at {requested}: the response is a stream of events"),
        500.. => format!("the card at {requested} is temporarily unavailable: {refused}"),
        _ => format!("no card at {requested}: {refused}"),
    };
    ClientError::because(ClientErrorKind::NoCard(refused.status), detail)
}

/// Whether `to` is the same host over TLS, with both at their default ports.
fn is_upgrade(from: &HttpOrigin, to: &HttpOrigin) -> bool {
    let is_same_host = from.host() == to.host();
    is_same_host && !from.is_secure() && from.port() == 80 && to.is_secure() && to.port() == 443
}

/// Checks a field of the caller (RFC 9110 §5.1, §5.5); the client's own fields are refused.
pub(crate) fn check_field(name: &str, value: &str) -> Result<(), ClientError> {
    const OURS: [&str; 10] = [
        "host",
        "content-length",
        "content-type",
        "accept",
        "transfer-encoding",
        "connection",
        "upgrade",
        "te",
        "a2a-version",
        "last-event-id",
    ];
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_valid = !name.is_empty()
        && name.bytes().all(is_token)
        && !OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name))
        && !value.bytes().any(|byte| byte.is_ascii_control() || !byte.is_ascii());
    if is_valid {
        return Ok(());
    }
    let detail =
        format!("{name:?} is not a field that can be added, or its value has invalid characters");
    Err(ClientError::because(ClientErrorKind::InvalidField, detail))
}
