//! From a path to what is served there.
//!
//! The mounts of the command line first, then the platforms' own prefixes, then the root. Every
//! place that speaks JSON-RPC has its well-known cards below it, and ignores one slash at its end.

use crate::{
    binding::Site,
    dialect::{self, Dialect},
    service::AgentIndex,
};

/// What is served at a path.
#[derive(Clone, Copy)]
pub enum Route<'r> {
    /// JSON-RPC by POST.
    Rpc {
        /// Who speaks here.
        dialect: &'static Dialect,
        /// Who answers here.
        agent: AgentIndex,
    },
    /// An agent's public card by GET; `base` is the path of the agent.
    Card {
        /// Who speaks at the place the card describes.
        dialect: &'static Dialect,
        /// Whose card.
        agent: AgentIndex,
        /// Path of the RPC endpoint the card describes.
        base: &'r str,
        /// The name behind `?assistant_id=` may choose another agent (LangSmith).
        by_query: bool,
    },
    /// The extended card of 0.2 by GET (wire §7.1).
    ExtendedCard {
        /// Who speaks at the place the card describes.
        dialect: &'static Dialect,
        /// Whose card.
        agent: AgentIndex,
        /// Path of the RPC endpoint the card describes.
        base: &'r str,
    },
    /// The framing tests' echo.
    Echo,
    /// An agent's place, but there is no such agent.
    NoAgent,
    /// Nothing.
    NotFound,
}

const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
const EXTENDED: &str = "/agent/authenticatedExtendedCard";

/// Prefixes under which every agent is served by name, and the dialect spoken there.
const BY_NAME: [(&str, &str); 3] =
    [("/agents/", "standard"), ("/a2a/", "langsmith"), ("/api/v1/a2a/", "evo_ai")];

/// Prefix under which dialect a2a-rust puts its tenants (wire §8).
const TENANTS: &str = "/tenants/";

/// Finds what is served at `path`, which is in origin form and has passed `http::path::check`.
pub fn route<'r>(site: &'r Site, path: &'r str) -> Route<'r> {
    if path.len() <= 1 {
        return root(site);
    }
    if site.test_echo.as_deref().is_some_and(|prefix| below(path, prefix).is_some()) {
        return Route::Echo;
    }
    for mount in &site.mounts {
        if let Some(rest) = below(path, &mount.path) {
            let found = match mount.dialect.name {
                "a2a_rust" if rest.starts_with(TENANTS) => tenant(mount.agent, &mount.path, path),
                _ => place(mount.dialect, mount.agent, &mount.path, rest),
            };
            if !matches!(found, Route::NotFound) {
                return found;
            }
        }
    }
    for (prefix, dialect) in BY_NAME {
        if let Some(rest) = path.strip_prefix(prefix) {
            return named(site, dialect, path, rest);
        }
    }
    if path.starts_with(TENANTS) {
        return tenant(AgentIndex(0), "", path);
    }
    place(&dialect::STANDARD, AgentIndex(0), "", path)
}

fn root(site: &Site) -> Route<'_> {
    let mounted = site.mounts.iter().find(|mount| mount.path.is_empty());
    match mounted {
        Some(mount) => Route::Rpc { dialect: mount.dialect, agent: mount.agent },
        None => Route::Rpc { dialect: &dialect::STANDARD, agent: AgentIndex(0) },
    }
}

/// What follows `prefix` in `path`: nothing, or something that begins with a slash.
fn below<'r>(path: &'r str, prefix: &str) -> Option<&'r str> {
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn named<'r>(site: &Site, dialect: &str, path: &'r str, rest: &'r str) -> Route<'r> {
    let name = rest.split('/').next().unwrap_or_default();
    let base = &path[..path.len() - rest.len() + name.len()];
    let dialect = dialect::by_name(dialect).unwrap_or(&dialect::STANDARD);
    match site.agents.get(name) {
        Some(agent) => place(dialect, *agent, base, &rest[name.len()..]),
        None => Route::NoAgent,
    }
}

/// A tenant of dialect a2a-rust below `mount`: a place like any other (wire §8).
fn tenant<'r>(agent: AgentIndex, mount: &str, path: &'r str) -> Route<'r> {
    let from = mount.len() + TENANTS.len();
    let name = path[from..].split('/').next().unwrap_or_default();
    let base = &path[..from + name.len()];
    match dialect::by_name("a2a_rust") {
        Some(dialect) if !name.is_empty() => place(dialect, agent, base, &path[base.len()..]),
        Some(_) | None => Route::NotFound,
    }
}

/// What is served at `rest` below a place that speaks JSON-RPC.
fn place<'r>(
    dialect: &'static Dialect,
    agent: AgentIndex,
    base: &'r str,
    rest: &'r str,
) -> Route<'r> {
    if rest.is_empty() || rest == "/" {
        return Route::Rpc { dialect, agent };
    }
    if WELL_KNOWN.contains(&rest) {
        return Route::Card { dialect, agent, base, by_query: base.is_empty() };
    }
    if rest == EXTENDED {
        return Route::ExtendedCard { dialect, agent, base };
    }
    Route::NotFound
}
