//! Selects the handler of an HTTP request, by media type, path and method. Admission
//! (`admission.rs`) and body limits (`body_limit.rs`) examine the route before.

use crate::{
    binding::{
        CallContext, DecodeBuffers, Handled, UpgradeSlot,
        body_limit::BodyLimit,
        cards, catalog, coded, cors, extended_card, grpc, http_error, jsonrpc, pages, rest,
        route::{NO_AGENT, NOTHING, Route, RouteTarget, path_of, route},
        tenant::{self, TenantNames},
        ws,
    },
    http::{FieldLines, Head, Method, TargetForm, field_lines},
    json::Source,
};

/// Methods at the path of an RPC endpoint or a card.
const RPC_METHODS: FieldLines<'static> = field_lines!("Allow": "POST, OPTIONS");
const CARD_METHODS: FieldLines<'static> = field_lines!("Allow": "GET, HEAD, OPTIONS");
const ALL_METHODS: FieldLines<'static> = field_lines!("Allow": "GET, HEAD, POST, OPTIONS");

/// Handles a request with a complete body. A successful WebSocket handshake is answered and stored
/// in `upgrade`.
#[inline]
pub fn handle<'x>(
    cx: &mut CallContext<'x>,
    head: &'x Head<'x>,
    buffers: &mut DecodeBuffers,
    body: Source<'_>,
    upgrade: UpgradeSlot<'_>,
) -> Handled {
    if cx.peer.is_admin {
        pages::answer_admin(cx, head, body.bytes());
        return Handled::Answered;
    }
    if head.form() == TargetForm::Asterisk {
        cx.writer.empty(204, ALL_METHODS);
        return Handled::Answered;
    }
    if cx.writer.responder.has_trailers() && grpc::is_request(head) {
        return grpc::handle(cx, head, buffers, body.bytes());
    }
    match route(cx.config, cx.service, path_of(head)) {
        Route::Rpc(target) => {
            go_to(cx, target);
            cx.report_admitted();
            cx.name_extensions();
            match head.method() {
                Method::Post if head.is_coded() => {
                    cx.name_codings();
                    let limit = BodyLimit::in_dialect(target.endpoint.dialect, &cx.config.limits);
                    return match coded::decode(head, body.bytes(), limit) {
                        Ok(None) => jsonrpc::handle(cx, buffers, body),
                        Ok(Some(mut decoded)) => jsonrpc::handle(cx, buffers, decoded.source()),
                        Err(refusal) => jsonrpc::refuse_coding(cx, body.bytes().len(), &refusal),
                    };
                }
                Method::Post => return jsonrpc::handle(cx, buffers, body),
                Method::Options => cors::options(cx, head, RPC_METHODS),
                method => match upgrade {
                    Some(slot) if method == Method::Get && ws::is_upgrade(head) => {
                        *slot = ws::upgrade(cx, head);
                    }
                    Some(_) | None => http_error::not_allowed(cx, RPC_METHODS),
                },
            }
        }
        Route::HttpJson(target) => {
            go_to(cx, target.at);
            cx.report_admitted();
            cx.name_extensions();
            if head.is_coded() && head.method() == Method::Post {
                cx.name_codings();
                let limit = BodyLimit::ordinary(&cx.config.limits);
                return match coded::decode(head, body.bytes(), limit) {
                    Ok(None) => rest::handle(cx, head, target, buffers, body),
                    Ok(Some(mut decoded)) => {
                        rest::handle(cx, head, target, buffers, decoded.source())
                    }
                    Err(refusal) => {
                        rest::refuse_coding(cx, head, target, body.bytes().len(), *refusal)
                    }
                };
            }
            return rest::handle(cx, head, target, buffers, body);
        }
        Route::Card { target, by_query } => {
            go_to(cx, target);
            if offers_card(cx, head) {
                cards::answer(cx, head, by_query);
            }
        }
        Route::ExtendedCard(target) => {
            go_to(cx, target);
            if offers_card(cx, head) {
                extended_card::answer(cx, head);
            }
        }
        Route::Catalog(catalog) => catalog::answer(cx, head, catalog),
        Route::Page(page) => pages::answer(cx, head, page),
        Route::NoResource(..) | Route::NoAgent | Route::NotFound
            if cors::is_answered_at_nothing(cx, head) => {}
        Route::NoResource(form, detail) => return rest::not_found(cx, head, form, detail),
        Route::NoAgent => http_error::answer(cx, 404, NO_AGENT),
        Route::NotFound => http_error::answer(cx, 404, NOTHING),
        #[cfg(feature = "test-echo")]
        Route::Echo => {
            return crate::binding::echo::answer(cx, head, body.bytes(), upgrade);
        }
    }
    Handled::Answered
}

/// Stores the endpoint and the agent at the path.
#[inline(always)]
fn go_to<'x>(cx: &mut CallContext<'x>, target: RouteTarget<'x>) {
    let RouteTarget { endpoint, base, tenant } = target;
    (cx.endpoint, cx.base, cx.outside_tenant, cx.agent) = (endpoint, base, tenant, endpoint.agent);
}

/// Whether a card must be sent; otherwise this function has answered the request.
fn offers_card(cx: &mut CallContext<'_>, head: &Head<'_>) -> bool {
    match head.method() {
        Method::Get | Method::Head if cx.outside_tenant.is_none() => return true,
        Method::Get | Method::Head => {
            let names = TenantNames { outside: cx.outside_tenant, inside: None };
            let grant = cx.admission.as_ref().map(|caller| caller.principal.tenants());
            match tenant::addressee(cx.service, &cx.config.tenants, cx.endpoint, names, grant) {
                Ok(addressed) => {
                    cx.endpoint.agent = addressed.agent;
                    return true;
                }
                // The same error as for an unknown path, so that tenants are not revealed.
                Err(_) => http_error::answer(cx, 404, NOTHING),
            }
        }
        Method::Options => cors::options(cx, head, CARD_METHODS),
        _ => http_error::not_allowed(cx, CARD_METHODS),
    }
    false
}
