//! Who answers a request of HTTP: the one place that decides, by media type, path and method.

use crate::{
    binding::{
        CallContext, DecodeBuffers, Handled, cards, extensions, grpc, http_error, jsonrpc, rest,
        route::{NO_AGENT, NOTHING, Route, path_of, route},
        ws,
    },
    http::{Head, Method, ResponseFields, TargetForm, response_fields},
    json::Source,
};

/// Methods that exist at an RPC path and at a card's path.
const RPC_METHODS: ResponseFields<'static> = response_fields!("Allow": "POST, OPTIONS");
const CARD_METHODS: ResponseFields<'static> = response_fields!("Allow": "GET, HEAD, OPTIONS");
const ALL_METHODS: ResponseFields<'static> = response_fields!("Allow": "GET, HEAD, POST, OPTIONS");

/// Handles a request whose body is complete.
#[inline]
pub fn handle<'x>(
    cx: &mut CallContext<'x>,
    head: &'x Head<'x>,
    buffers: &mut DecodeBuffers,
    body: Source<'_>,
) -> Handled {
    if head.form() == TargetForm::Asterisk {
        cx.writer.empty(204, ALL_METHODS);
        return Handled::Answered;
    }
    if cx.writer.responder.has_trailers() && grpc::is_request(head) {
        return grpc::handle(cx, head, buffers, body.bytes());
    }
    match route(cx.config, cx.service, path_of(head)) {
        Route::Rpc(endpoint) => {
            let path = head.path();
            cx.endpoint = endpoint;
            cx.base = path.strip_suffix('/').unwrap_or(path);
            name_extensions(cx, head);
            match head.method() {
                Method::Post => return jsonrpc::handle(cx, buffers, body),
                Method::Get if ws::is_upgrade(head) => return ws::upgrade(cx, head),
                Method::Options => cx.writer.empty(204, RPC_METHODS),
                _ => http_error::not_allowed(&mut cx.writer, RPC_METHODS),
            }
        }
        Route::HttpJson(target) => {
            (cx.endpoint, cx.base) = (target.endpoint, target.base);
            name_extensions(cx, head);
            return rest::handle(cx, head, target, buffers, body);
        }
        Route::Card { endpoint, base, by_query } => {
            (cx.endpoint, cx.base) = (endpoint, base);
            if offers_card(cx, head) {
                cards::answer(cx, head, by_query);
            }
        }
        Route::ExtendedCard { endpoint, base } => {
            (cx.endpoint, cx.base) = (endpoint, base);
            if offers_card(cx, head) {
                cards::answer_extended(cx, head);
            }
        }
        Route::NoResource(form, detail) => return rest::not_found(cx, head, form, detail),
        Route::NoAgent => http_error::answer(&mut cx.writer, 404, NO_AGENT),
        Route::NotFound => http_error::answer(&mut cx.writer, 404, NOTHING),
        #[cfg(feature = "test-echo")]
        Route::Echo => return crate::binding::echo::answer(cx, head, body.bytes()),
    }
    Handled::Answered
}

/// Whether a card is asked for; otherwise the request is answered.
fn offers_card(cx: &mut CallContext<'_>, head: &Head<'_>) -> bool {
    match head.method() {
        Method::Get | Method::Head => return true,
        Method::Options => cx.writer.empty(204, CARD_METHODS),
        _ => http_error::not_allowed(&mut cx.writer, CARD_METHODS),
    }
    false
}

/// A2A 1.0 §3.2.6: agents hear which extensions are asked for, and the answer names those that are
/// in effect.
#[inline(always)] // Hardly anybody asks for one.
fn name_extensions(cx: &mut CallContext<'_>, head: &Head<'_>) {
    let Some(named) = extensions::joined(head) else { return };
    if let Some(profile) = cx.service.profile(cx.endpoint.agent) {
        cx.writer.fields = extensions::fields(&profile, head);
    }
    cx.extensions = Some(named.into());
}
