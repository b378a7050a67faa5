//! One whole request: where its body ends, and who answers it.

use std::task::Waker;

use crate::{
    binding::{
        Exchange, Handled, Means, Scratch, activated,
        asked::asks_extensions,
        cards, http_error, jsonrpc, rest,
        route::{NO_AGENT, NOTHING, Route, route},
        ws,
    },
    engine::Engine,
    http::{BodyFraming, ChunkLimits, Head, HeadLimits, Method, TargetForm, Version, response},
    json::Source,
    limits::Limits,
    service::{Now, Peer},
};

/// Where the body of a request ends.
#[derive(Clone, Copy)]
pub(super) enum BodyEnd {
    /// At this offset from the start of the head.
    At(usize),
    /// Where its last chunk says.
    Chunked,
}

pub(super) fn body_end(head: &Head<'_>, head_len: usize) -> BodyEnd {
    match head.body() {
        BodyFraming::None => BodyEnd::At(head_len),
        BodyFraming::Length(length) => BodyEnd::At(head_len + length as usize),
        BodyFraming::Chunked => BodyEnd::Chunked,
    }
}

pub(super) fn head_limits(limits: &Limits) -> HeadLimits {
    HeadLimits {
        head_bytes_max: limits.head_bytes_max,
        fields_max: limits.head_fields_max,
        target_bytes_max: limits.target_bytes_max,
        query_bytes_max: limits.query_bytes_max,
        method_bytes_max: limits.method_bytes_max,
        body_bytes_max: limits.body_bytes_max as u64,
    }
}

pub(super) fn chunk_limits(limits: &Limits) -> ChunkLimits {
    ChunkLimits {
        body_bytes_max: limits.body_bytes_max as u64,
        line_bytes_max: limits.chunk_line_bytes_max,
        trailer_bytes_max: limits.trailer_bytes_max,
        overhead_bytes_max: limits.body_bytes_max,
    }
}

/// Methods that exist at an RPC path and at a card's path.
const RPC_METHODS: &[u8] = b"Allow: POST, OPTIONS\r\n";
const CARD_METHODS: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";
const ALL_METHODS: &[u8] = b"Allow: GET, HEAD, POST, OPTIONS\r\n";

/// All that is needed to answer the request of a head.
#[inline(always)]
pub(super) fn exchange<'x>(
    (engine, scratch, out): (&'x Engine, &'x mut Scratch, &'x mut Vec<u8>),
    (now, wake, peer): (Now, &'x Waker, Peer<'x>),
    head: &'x Head<'x>,
) -> Exchange<'x> {
    let (service, site) = (engine.service(), &engine.site);
    let close = !head.keep_alive() || engine.is_draining();
    let means = Means { service, site, scratch, out, now, wake, peer };
    Exchange { means, head, close }
}

/// Handles a request whose body is complete.
pub(super) fn handle(mut x: Exchange<'_>, body: Source<'_>) -> Handled {
    let start = x.means.out.len();
    let mut handled = answer(&mut x, body);
    if x.head.version() == Version::Http10 && !x.close {
        keep_old_client(x.means.out, start, &mut handled);
    }
    if asks_extensions(x.head) {
        name_extensions(&mut x, start, &mut handled);
    }
    handled
}

/// RFC 9112 §9.3: an HTTP/1.0 client that asked to stay may do so if the answer says so, too.
fn keep_old_client(out: &mut Vec<u8>, start: usize, handled: &mut Handled) {
    match handled {
        Handled::Answered => insert_fields(out, start, response::KEEP_ALIVE),
        // A late answer closes: it is written where the version is no longer known.
        Handled::Parked(parked) => parked.close = true,
        // The end of a stream is the end of its connection.
        Handled::AnsweredLast | Handled::Stream(_) => {}
        // RFC 9110 §7.8: HTTP/1.0 is never upgraded.
        Handled::Upgraded(_) => {}
    }
}

/// Wire §1.8: an answer names the extensions that are in effect. Hardly anybody asks for one, so
/// the path is looked up again here and nothing of it kept for this.
#[cold]
fn name_extensions(x: &mut Exchange<'_>, start: usize, handled: &mut Handled) {
    let agent = match route(x.means.site, x.head.path()) {
        Route::Rpc(endpoint) => endpoint.agent,
        Route::Rest(at) => at.endpoint.agent,
        Route::Card { .. } | Route::ExtendedCard { .. } | Route::Lost(..) => return,
        Route::NoAgent | Route::NotFound => return,
        #[cfg(feature = "test-echo")]
        Route::Echo => return,
    };
    let Some(profile) = x.means.service.profile(agent) else { return };
    let fields = activated::fields(&profile, x.head);
    match handled {
        Handled::Parked(parked) => parked.fields = fields,
        _ => insert_fields(x.means.out, start, &fields),
    }
}

/// Inserts fields into the head that begins at `start`, behind its status line.
fn insert_fields(out: &mut Vec<u8>, start: usize, fields: &[u8]) {
    let line_end = out[start..].windows(2).position(|two| two == b"\r\n");
    if let Some(line_end) = line_end {
        let at = start + line_end + 2;
        out.splice(at..at, fields.iter().copied());
    }
}

fn answer(x: &mut Exchange<'_>, body: Source<'_>) -> Handled {
    if x.head.form() == TargetForm::Asterisk {
        no_content(x, ALL_METHODS);
        return Handled::Answered;
    }
    let site = x.means.site;
    let path = x.head.path();
    match route(site, path) {
        Route::Rpc(endpoint) => match x.head.method() {
            Method::Post => return jsonrpc::handle(x, endpoint, body),
            Method::Get if ws::is_upgrade(x.head) => {
                return ws::upgrade(x, endpoint);
            }
            Method::Options => no_content(x, RPC_METHODS),
            _ => http_error::not_allowed(x, RPC_METHODS),
        },
        Route::Card { endpoint, base, by_query } => match x.head.method() {
            Method::Get | Method::Head => {
                cards::answer(x, endpoint, base, by_query);
            }
            Method::Options => no_content(x, CARD_METHODS),
            _ => http_error::not_allowed(x, CARD_METHODS),
        },
        Route::ExtendedCard { endpoint, base } => match x.head.method() {
            Method::Get | Method::Head => {
                cards::answer_extended(x, endpoint, base);
            }
            Method::Options => no_content(x, CARD_METHODS),
            _ => http_error::not_allowed(x, CARD_METHODS),
        },
        #[cfg(feature = "test-echo")]
        Route::Echo => return crate::binding::echo::answer(x, body.bytes()),
        Route::Rest(at) => return rest::handle(x, at, body),
        Route::Lost(form, detail) => return rest::lost(x, form, detail),
        Route::NoAgent => http_error::answer(x, 404, NO_AGENT),
        Route::NotFound => http_error::answer(x, 404, NOTHING),
    }
    Handled::Answered
}

fn no_content(x: &mut Exchange<'_>, allow: &[u8]) {
    let date = x.means.scratch.date(x.means.now);
    response::simple(x.means.out, 204, "", b"", &date, allow, x.close, false);
}
