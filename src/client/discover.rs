//! Reading the card of an agent from its URL (A2A 1.0 §8.2, wire §7.1).

use std::sync::Arc;

use super::{
    CallOptions, ClientError, ClientErrorKind, ClientLimits, HttpMethod, HttpOrigin, HttpRequest,
    HttpResponse, HttpUrl, HttpVersion, KnownCard, Transport,
    card::{AgentCard, CardFreshness, card_urls, is_not_there},
    exchange::read_all,
    redirect,
};
use crate::http::{FieldLines, FieldLinesBuf, field_lines};

const FIELDS: FieldLines<'static> =
    field_lines!("Accept": "application/json", "A2A-Version": "1.0");

/// A card as it came from its URL, whatever it is.
pub(super) struct FoundDocument {
    pub json: Vec<u8>,
    /// Where it came from at last.
    pub url: HttpUrl,
    is_elsewhere: bool,
    freshness: CardFreshness,
}

impl FoundDocument {
    fn read(self, asked: HttpUrl, limits: &ClientLimits) -> Result<KnownCard, ClientError> {
        let FoundDocument { json, url, is_elsewhere, freshness } = self;
        let card = Arc::new(AgentCard::read_within(&json, limits.card_bytes_max)?);
        Ok(KnownCard { asked, url, is_elsewhere, card, freshness })
    }
}

/// The card of the agent at `url`: the one that is known of it, if that is still good, or else as
/// it is read from there; see [`card_urls`].
pub(super) async fn find<T: Transport>(
    transport: &T,
    url: &str,
    known: Option<&KnownCard>,
    limits: &ClientLimits,
    options: &CallOptions,
) -> Result<KnownCard, ClientError> {
    let asked = HttpOrigin::parse(url)?;
    if let Some(known) = known.filter(|known| known.asked == asked) {
        return renew(transport, known, limits, options).await;
    }
    find_document(transport, &asked, limits, options).await?.read(asked, limits)
}

/// Reads the card of the agent at `asked` without looking at what came.
pub(super) async fn find_document<T: Transport>(
    transport: &T,
    asked: &HttpUrl,
    limits: &ClientLimits,
    options: &CallOptions,
) -> Result<FoundDocument, ClientError> {
    let mut status = 404;
    for place in card_urls(asked) {
        match get(transport, place, None, limits, options).await? {
            Got::Card(found) => return Ok(*found),
            Got::Same { .. } => {}
            Got::Status(other) if is_not_there(other) => status = other,
            Got::Status(401) => {
                const WHY: &str = "the card is only for callers who say who they are";
                return Err(ClientError::because(ClientErrorKind::Unauthorized, WHY));
            }
            Got::Status(other) => return Err(no_card(asked, other)),
        }
    }
    Err(no_card(asked, status))
}

#[cold]
fn no_card(asked: &HttpUrl, status: u16) -> ClientError {
    let detail = match status {
        500.. => format!("the card at {asked} cannot be read for now: HTTP status {status}"),
        _ => format!("there is no card at {asked}: HTTP status {status}"),
    };
    ClientError::because(ClientErrorKind::NoCard(status), detail)
}

/// What a GET of a card comes to.
enum Got {
    Card(Box<FoundDocument>),
    /// RFC 9110 §15.4.5: it has not changed.
    Same {
        url: HttpUrl,
        freshness: CardFreshness,
    },
    Status(u16),
}

/// A card that is known, as long as it is fresh; then what its server says of it now. The same card
/// is the same `Arc`. Where it came from at last is asked, and when there is no card any more, all
/// begins anew.
pub(super) async fn renew<T: Transport>(
    transport: &T,
    known: &KnownCard,
    limits: &ClientLimits,
    options: &CallOptions,
) -> Result<KnownCard, ClientError> {
    if known.freshness.is_fresh(transport.now()) {
        return Ok(known.clone());
    }
    let asked = known.asked.clone();
    match get(transport, known.url.clone(), Some(known), limits, options).await {
        Ok(Got::Card(found)) => return found.read(asked, limits),
        Ok(Got::Same { url, freshness }) => {
            return Ok(KnownCard { url, freshness, ..known.clone() });
        }
        Ok(Got::Status(_)) => {}
        // It leads nowhere; where the caller asked may be led elsewhere by now.
        Err(error) if matches!(error.kind, ClientErrorKind::Redirect(_)) => {}
        Err(error) => return Err(error),
    }
    find_document(transport, &asked, limits, options).await?.read(asked, limits)
}

/// One GET, and the redirects that it is answered with. `known` is a card that came from `url`, to
/// which redirects may have led.
async fn get<T: Transport>(
    transport: &T,
    mut url: HttpUrl,
    mut known: Option<&KnownCard>,
    limits: &ClientLimits,
    options: &CallOptions,
) -> Result<Got, ClientError> {
    let due_ms = transport.mono_ms().saturating_add(options.call_ms);
    let mut redirects = 0;
    // Whoever was led here by another origin has not come back by asking again.
    let mut is_elsewhere = known.is_some_and(|known| known.is_elsewhere);
    let mut fields = FieldLinesBuf::from(FIELDS);
    if let Some(known) = known {
        known.freshness.ask(&mut fields);
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
                // What one server has named a card by means nothing to another one, and may name
                // who asks.
                (known, fields) = (None, FieldLinesBuf::from(FIELDS));
            }
            url = next.url;
            redirects += 1;
            continue;
        }
        if let Some(known) = known.filter(|_| status == 304) {
            let now = transport.now();
            let freshness = known.freshness.clone().renewed(|name| response.field(name), now);
            return Ok(Got::Same { url, freshness });
        }
        if status != 200 {
            return Ok(Got::Status(status));
        }
        let mut json = Vec::new();
        let limit = (limits.card_bytes_max, "card_bytes_max");
        read_all(transport, &mut response, &mut json, limit, due_ms).await?;
        let freshness = CardFreshness::of(|name| response.field(name), transport.now());
        return Ok(Got::Card(Box::new(FoundDocument { json, url, is_elsewhere, freshness })));
    }
}

/// True for the same host by TLS, both at the port of their scheme.
fn is_upgrade(from: &HttpOrigin, to: &HttpOrigin) -> bool {
    let is_same_host = from.host() == to.host();
    is_same_host && !from.is_secure() && from.port() == 80 && to.is_secure() && to.port() == 443
}

/// RFC 9110 §5.1 and §5.5.
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
        format!("{name:?} is no field that can be added, or its value has other characters");
    Err(ClientError::because(ClientErrorKind::InvalidField, detail))
}
