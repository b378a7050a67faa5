//! Finds the resource at a path.
//!
//! The order is: mounts of the operator, prefixes of platforms, the root. Every endpoint has its
//! card at the well-known paths below it, and ignores one trailing slash.

use crate::{
    binding::{
        Endpoint, ServerConfig, cards,
        catalog::{self, Catalog},
        pages,
        rest::{
            RestTarget,
            path::{self, RouteMatch},
        },
    },
    dialect::{self, Dialect, rest::HttpJson},
    http::Head,
    service::{Service, pages::ServerPage},
};

/// The endpoint at a path, and the tenant in the path.
#[derive(Clone, Copy)]
pub struct RouteTarget<'r> {
    /// The dialect and the agent.
    pub endpoint: Endpoint,
    /// The path of the endpoint, including the tenant if there is one.
    pub base: &'r str,
    /// The name of the tenant in the path.
    pub tenant: Option<&'r str>,
}

/// The resource at a path.
#[derive(Clone, Copy)]
pub enum Route<'r> {
    /// JSON-RPC by POST.
    Rpc(RouteTarget<'r>),
    /// An agent's public card by GET.
    Card {
        /// The endpoint that the card describes.
        target: RouteTarget<'r>,
        /// True: a query parameter may name another agent (`Routes::card_query`).
        by_query: bool,
    },
    /// The extended card of 0.2 by GET (wire §7.1).
    ExtendedCard(RouteTarget<'r>),
    /// A list of agents or keys, by GET.
    Catalog(Catalog),
    /// HTTP+JSON.
    HttpJson(RestTarget<'r>),
    /// An unknown path of HTTP+JSON, with the form and the text of the error.
    NoResource(&'static HttpJson, &'static str),
    /// The echo endpoint for framing tests.
    #[cfg(feature = "test-echo")]
    Echo,
    /// A page about the server.
    Page(ServerPage),
    /// A path with the name of an agent that does not exist.
    NoAgent,
    /// An unknown path.
    NotFound,
}

const WELL_KNOWN: [&str; 2] = [cards::WELL_KNOWN, "/.well-known/agent.json"];
/// The error at the path of an agent that does not exist.
pub const NO_AGENT: &str = "no agent has this name";
/// The error at an unknown path, and at the card of an unknown tenant.
pub const NOTHING: &str = "nothing is served at this path";
const EXTENDED: &str = "/agent/authenticatedExtendedCard";

/// The path of a request. The most frequent paths, the root and the card, need no UTF-8 check.
#[inline(always)]
pub fn path_of<'h>(head: &Head<'h>) -> &'h str {
    let bytes = head.path_bytes();
    if bytes == b"/" {
        return "/";
    }
    let well_known = WELL_KNOWN.into_iter().find(|path| path.as_bytes() == bytes);
    well_known.unwrap_or_else(|| head.path())
}

/// Finds the resource at `path`, which is in origin form and has passed `http::path::check`.
#[inline(always)] // Most clients call the root.
pub fn route<'r>(config: &'r ServerConfig, service: &dyn Service, path: &'r str) -> Route<'r> {
    if path.len() <= 1 { root(config) } else { below_root(config, service, path) }
}

fn below_root<'r>(config: &'r ServerConfig, service: &dyn Service, path: &'r str) -> Route<'r> {
    #[cfg(feature = "test-echo")]
    if config.test_echo.as_deref().is_some_and(|prefix| below(path, prefix).is_some()) {
        return Route::Echo;
    }
    if let Some(page) = pages::agent_listener_page(config, path) {
        return Route::Page(page);
    }
    for mount in &config.mounts {
        // A mount at the root does not contain the paths with names of agents.
        if mount.path.is_empty() && is_by_name(path) {
            continue;
        }
        if let Some(rest) = below(path, &mount.path) {
            let found = below_target(at(mount.endpoint, &mount.path), path, rest);
            if !matches!(found, Route::NotFound) {
                return found;
            }
        }
    }
    if let Some(catalog) = catalog::at(config, path) {
        return Route::Catalog(catalog);
    }
    if path.starts_with("/.") && config.mounts.is_empty() {
        // A card of the root: no path of an agent or a tenant begins with a dot.
        return below_endpoint(at(Endpoint::DEFAULT, ""), path);
    }
    for dialect in dialect::ALL {
        let by_name = dialect.routes.by_name.and_then(|prefix| path.strip_prefix(prefix));
        if let Some(rest) = by_name {
            return named(service, dialect, path, rest);
        }
        if let Some(found) = tenant(Endpoint::root(dialect), path, path) {
            return found;
        }
    }
    // A path below a mount belongs to the mount; its first segment is not a tenant of the default
    // agent.
    if config.mounts.iter().any(|mount| below(path, &mount.path).is_some()) {
        return Route::NotFound;
    }
    below_endpoint(at(Endpoint::DEFAULT, ""), path)
}

/// An endpoint without a tenant in its path.
const fn at(endpoint: Endpoint, base: &str) -> RouteTarget<'_> {
    RouteTarget { endpoint, base, tenant: None }
}

#[inline(always)]
fn root(config: &ServerConfig) -> Route<'_> {
    let mounted = config.mounts.iter().find(|mount| mount.path.is_empty());
    Route::Rpc(at(mounted.map_or(Endpoint::DEFAULT, |mount| mount.endpoint), ""))
}

/// The part of `path` after `prefix`; it is empty or begins with a slash.
fn below<'r>(path: &'r str, prefix: &str) -> Option<&'r str> {
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn named<'r>(
    service: &dyn Service,
    dialect: &'static Dialect,
    path: &'r str,
    rest: &'r str,
) -> Route<'r> {
    let name = rest.split('/').next().unwrap_or_default();
    let base = &path[..path.len() - rest.len() + name.len()];
    match service.agent(name) {
        Some(agent) => {
            below_target(at(Endpoint::own(dialect, agent), base), path, &rest[name.len()..])
        }
        None => match path::find(dialect.routes.rest, &rest[name.len()..]) {
            RouteMatch::Found(_, form, _) | RouteMatch::NotFound(form) => {
                Route::NoResource(form, NO_AGENT)
            }
            RouteMatch::Other => Route::NoAgent,
        },
    }
}

/// The resource at `rest`, the end of `path`, below an endpoint or one of its tenants.
fn below_target<'r>(target: RouteTarget<'r>, path: &'r str, rest: &'r str) -> Route<'r> {
    tenant(target.endpoint, path, rest).unwrap_or_else(|| below_endpoint(target, rest))
}

/// The resource below a tenant, if the dialect has tenants and `rest`, the end of `path`, names
/// one.
#[inline(always)] // Most dialects have no tenants.
fn tenant<'r>(endpoint: Endpoint, path: &'r str, rest: &'r str) -> Option<Route<'r>> {
    tenant_of(endpoint, path, rest.strip_prefix(endpoint.dialect.routes.tenants?)?)
}

/// The resource below the tenant that `named`, the end of `path`, begins with.
fn tenant_of<'r>(endpoint: Endpoint, path: &'r str, named: &'r str) -> Option<Route<'r>> {
    let name = named.split('/').next().filter(|name| !name.is_empty())?;
    let base = &path[..path.len() - named.len() + name.len()];
    Some(below_endpoint(RouteTarget { endpoint, base, tenant: Some(name) }, &named[name.len()..]))
}

/// The resource at `rest` below an endpoint.
#[inline]
fn below_endpoint<'r>(target: RouteTarget<'r>, rest: &'r str) -> Route<'r> {
    if rest.is_empty() || rest == "/" {
        return Route::Rpc(target);
    }
    if WELL_KNOWN.contains(&rest) {
        return Route::Card { target, by_query: target.base.is_empty() };
    }
    if rest == EXTENDED {
        return Route::ExtendedCard(target);
    }
    match path::find(target.endpoint.dialect.routes.rest, rest) {
        // A path must not name two tenants.
        RouteMatch::Found(_, form, Some(_)) if target.tenant.is_some() => {
            Route::NoResource(form, NOTHING)
        }
        RouteMatch::Found(resource, form, tenant) => {
            let tenant = target.tenant.or(tenant);
            Route::HttpJson(RestTarget { at: RouteTarget { tenant, ..target }, resource, form })
        }
        RouteMatch::NotFound(form) => Route::NoResource(form, NOTHING),
        RouteMatch::Other => Route::NotFound,
    }
}

fn is_by_name(path: &str) -> bool {
    let prefixes = dialect::ALL.iter().filter_map(|dialect| dialect.routes.by_name);
    prefixes.into_iter().any(|prefix| path.starts_with(prefix))
}
