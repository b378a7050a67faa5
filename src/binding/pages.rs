//! The pages about the server, and their access rules.
//!
//! Invariant: liveness and readiness are for every client. Counters, and the reason for not being
//! ready, are for the operator: on the admin listener, with the scope `a2a:admin`, or from this
//! machine. A peer on this machine may be a proxy with a remote client, or a browser with a foreign
//! web page. So a request counts as remote if it was forwarded, was sent by a page of another
//! origin, or has an unknown host. CORS never applies to these pages. All other admin operations
//! exist only on the admin listener: a loopback or unix listener accepts every request, any other
//! listener requires the scope `a2a:admin`. Web pages can never change anything there.

use crate::{
    auth::{AuthRefusal, ScopeSet},
    binding::{CallContext, ServerConfig, hosts, http_error, responder::Content, route::NOTHING},
    fault::{Fault, FaultKind},
    http::{Field, FieldLines, FieldLinesBuf, Head, Method, field_lines},
    service::pages::{AdminAnswer, AdminMethod, AdminRequest, PageAnswer, ServerPage},
};

const METHODS: FieldLines<'static> = field_lines!("Allow": "GET, HEAD, OPTIONS");
const NO_STORE: FieldLines<'static> = field_lines!("Cache-Control": "no-store");

/// The error for clients other than the operator.
const NOT_YOURS: &str = "this page is for the operator: request it from this machine, on --admin, \
                         or with the scope a2a:admin";

/// The error for an admin operation without the scope, on a listener that other machines can reach.
const NEEDS_SCOPE: &str = "admin operations on this listener need a credential with the scope \
    a2a:admin; a loopback or unix --admin needs none";

/// The error for an admin operation of a web page.
const NO_PAGES: &str = "web pages may not send admin operations";

/// Header fields of forwarded requests.
const FORWARDED: [&str; 6] =
    ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via"];

/// The page at a path, if the listeners of the agents serve pages.
#[inline]
pub fn agent_listener_page(config: &ServerConfig, path: &str) -> Option<ServerPage> {
    let pages = config.pages.as_ref()?;
    let page = ServerPage::at(path)?;
    pages.are_on_agent_listeners().then_some(page)
}

/// Answers a request on the admin listener.
#[cold]
pub fn answer_admin(cx: &mut CallContext<'_>, head: &Head<'_>, content: &[u8]) {
    match ServerPage::at(head.path()) {
        Some(page) => answer(cx, head, page),
        None => administer(cx, head, content),
    }
}

/// Answers an admin operation.
fn administer(cx: &mut CallContext<'_>, head: &Head<'_>, content: &[u8]) {
    cx.writer.fields = FieldLinesBuf::default();
    if !cx.peer.is_loopback && !has_admin_scope(cx) {
        return refuse(cx, NEEDS_SCOPE);
    }
    let nothing = AdminAnswer::Nowhere;
    let mut body = Vec::new();
    let mut execute = |method| {
        let query = head.query().unwrap_or_default();
        let (peer, operator) =
            (cx.peer.remote, cx.admission.as_ref().map(|by| by.principal.owner()));
        let path = head.path();
        let request = AdminRequest { method, path, query, content, peer, operator };
        cx.config.pages.as_ref().map_or(nothing, |pages| pages.administer(request, &mut body))
    };
    let found = match head.method() {
        Method::Get | Method::Head => execute(AdminMethod::Get),
        Method::Post | Method::Delete if is_of_a_page(head) => {
            let fault = Fault::because(FaultKind::PermissionDenied, NO_PAGES);
            return http_error::refuse(cx, &fault);
        }
        Method::Post => execute(AdminMethod::Post),
        Method::Delete => execute(AdminMethod::Delete),
        Method::Options
        | Method::Put
        | Method::Patch
        | Method::Trace
        | Method::Connect
        | Method::Other => execute(AdminMethod::Other),
    };
    match found {
        AdminAnswer::Page(answer) => page(cx, answer, &mut body),
        AdminAnswer::Allows(methods) => {
            http_error::not_allowed(cx, allow(methods).get());
        }
        AdminAnswer::Nowhere => http_error::answer(cx, 404, NOTHING),
    }
}

fn allow(methods: &[AdminMethod]) -> FieldLinesBuf {
    let name = |method: &AdminMethod| match method {
        AdminMethod::Get => Some("GET, HEAD"),
        AdminMethod::Post => Some("POST"),
        AdminMethod::Delete => Some("DELETE"),
        AdminMethod::Other => None,
    };
    let mut allow = FieldLinesBuf::default();
    allow.push("Allow", &methods.iter().filter_map(name).collect::<Vec<_>>().join(", "));
    allow
}

fn page(cx: &mut CallContext<'_>, answer: PageAnswer, body: &mut Vec<u8>) {
    cx.writer.begin(answer.status, answer.media, NO_STORE, Content::Whole);
    cx.writer.out.append(body);
    cx.writer.finish();
}

/// Answers a request for a page.
#[cold]
pub fn answer(cx: &mut CallContext<'_>, head: &Head<'_>, page: ServerPage) {
    // CORS applies only to agents.
    cx.writer.fields = FieldLinesBuf::default();
    match head.method() {
        Method::Get | Method::Head => {}
        Method::Options => return cx.writer.empty(204, METHODS),
        _ => return http_error::not_allowed(cx, METHODS),
    }
    let is_trusted = is_trusted(cx, head);
    if page == ServerPage::Metrics && !is_trusted {
        return refuse(cx, NOT_YOURS);
    }
    let mut body = Vec::new();
    let pages = cx.config.pages.as_ref();
    match pages.and_then(|pages| pages.write(page, is_trusted, &mut body)) {
        Some(answer) => self::page(cx, answer, &mut body),
        None => http_error::answer(cx, 404, NOTHING),
    }
}

/// Answers 401 with a challenge if callers are authenticated and the request has no credential;
/// otherwise 403.
fn refuse(cx: &mut CallContext<'_>, why: &'static str) {
    let is_unknown = cx.config.access.gate.is_some() && cx.admission.is_none();
    let kind = if is_unknown { FaultKind::Unauthenticated } else { FaultKind::PermissionDenied };
    if is_unknown {
        cx.challenge(&AuthRefusal::Missing);
    }
    http_error::refuse(cx, &Fault::because(kind, why));
}

fn is_trusted(cx: &CallContext<'_>, head: &Head<'_>) -> bool {
    cx.peer.is_admin || has_admin_scope(cx) || is_from_here(cx, head)
}

fn has_admin_scope(cx: &CallContext<'_>) -> bool {
    let admission = cx.admission.as_ref();
    admission.is_some_and(|by| by.principal.scopes().has(ScopeSet::ADMIN))
}

/// Whether a request comes from this machine, and was not forwarded.
fn is_from_here(cx: &CallContext<'_>, head: &Head<'_>) -> bool {
    let address = cx.peer.remote;
    address.is_some_and(|address| address.to_canonical().is_loopback())
        && FORWARDED.iter().all(|name| head.values(name).next().is_none())
        && !is_of_a_page(head)
        && hosts::know_all(cx.config, head, cx.peer.local)
}

/// Whether a request was sent by a web page of another origin. For a page of this server, browsers
/// send no `Origin` (Fetch, §3.1), and `Sec-Fetch-Site` is `none` or `same-origin` (Fetch Metadata,
/// §2.2).
fn is_of_a_page(head: &Head<'_>) -> bool {
    let is_own = |site: &[u8]| matches!(site, b"none" | b"same-origin");
    head.value(Field::Origin).is_some() || !head.values("Sec-Fetch-Site").all(is_own)
}
