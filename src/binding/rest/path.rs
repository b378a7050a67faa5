//! The paths of HTTP+JSON below an endpoint (wire §3.1): fixed paths first, then paths with a
//! tenant.
//!
//! Colons are literal. Segments are not percent-decoded, except ids by their reader. A tenant is
//! any first segment, or any segment after `/tenants/`.

use crate::{
    dialect::rest::HttpJson,
    http::{FieldLines, Method, field_lines},
    model::{Generation, Op},
};

/// The resource that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestResource<'r> {
    /// `/message:send`
    Send,
    /// `/message:stream`
    Stream,
    /// `/tasks`
    Tasks,
    /// `/tasks/{id}`
    Task(&'r str),
    /// `/tasks/{id}:cancel`
    Cancel(&'r str),
    /// `/tasks/{id}:subscribe`, or `/tasks/{id}/subscribe` as in a2a-rs
    Subscribe(&'r str),
    /// `/tasks/{id}/pushNotificationConfigs`
    Configs(&'r str),
    /// `/tasks/{id}/pushNotificationConfigs/{config}`
    Config(&'r str, &'r str),
    /// `/extendedAgentCard`; in 0.3 `/card`
    Card,
}

/// The result of matching a path below an endpoint.
#[derive(Clone, Copy)]
pub enum RouteMatch<'r> {
    /// A resource, the form of the path's generation, and the tenant in the path.
    Found(RestResource<'r>, &'static HttpJson, Option<&'r str>),
    /// An unknown path that begins like a path of HTTP+JSON.
    NotFound(&'static HttpJson),
    /// Not a path of HTTP+JSON.
    Other,
}

impl<'r> RestResource<'r> {
    /// The operation of a method on the resource; HEAD is handled like GET, except for streams.
    pub fn op(self, method: Method) -> Option<Op> {
        let op = match (self, method) {
            (RestResource::Send, Method::Post) => Op::Send,
            (RestResource::Stream, Method::Post) => Op::Stream,
            (RestResource::Tasks, Method::Get | Method::Head) => Op::List,
            (RestResource::Task(_), Method::Get | Method::Head) => Op::Get,
            (RestResource::Cancel(_), Method::Post) => Op::Cancel,
            // Wire §10, trap 1: the text of the specification has POST, its proto GET.
            (RestResource::Subscribe(_), Method::Get | Method::Post) => Op::Subscribe,
            (RestResource::Configs(_), Method::Post) => Op::PushSet,
            (RestResource::Configs(_), Method::Get | Method::Head) => Op::PushList,
            (RestResource::Config(..), Method::Get | Method::Head) => Op::PushGet,
            (RestResource::Config(..), Method::Delete) => Op::PushDelete,
            (RestResource::Card, Method::Get | Method::Head) => Op::ExtendedCard,
            _ => return None,
        };
        Some(op)
    }

    /// The field `Allow`, with the methods of the resource.
    pub fn allow(self) -> FieldLines<'static> {
        match self {
            RestResource::Send | RestResource::Stream | RestResource::Cancel(_) => {
                field_lines!("Allow": "POST, OPTIONS")
            }
            RestResource::Tasks | RestResource::Task(_) | RestResource::Card => {
                field_lines!("Allow": "GET, HEAD, OPTIONS")
            }
            RestResource::Subscribe(_) => field_lines!("Allow": "GET, POST, OPTIONS"),
            RestResource::Configs(_) => field_lines!("Allow": "GET, HEAD, POST, OPTIONS"),
            RestResource::Config(..) => field_lines!("Allow": "GET, HEAD, DELETE, OPTIONS"),
        }
    }

    /// The task id in the path, still percent-encoded.
    pub fn task(self) -> Option<&'r str> {
        match self {
            RestResource::Task(id) | RestResource::Cancel(id) | RestResource::Subscribe(id) => {
                Some(id)
            }
            RestResource::Configs(id) | RestResource::Config(id, _) => Some(id),
            RestResource::Send
            | RestResource::Stream
            | RestResource::Tasks
            | RestResource::Card => None,
        }
    }

    /// The id of the push configuration in the path, still percent-encoded.
    pub fn config(self) -> Option<&'r str> {
        match self {
            RestResource::Config(_, id) => Some(id),
            RestResource::Task(_)
            | RestResource::Cancel(_)
            | RestResource::Subscribe(_)
            | RestResource::Configs(_)
            | RestResource::Send
            | RestResource::Stream
            | RestResource::Tasks
            | RestResource::Card => None,
        }
    }
}

/// The form of this generation, if `forms` has it.
pub fn form(forms: &[&'static HttpJson], generation: Generation) -> Option<&'static HttpJson> {
    forms.iter().copied().find(|form| form.generation == generation)
}

/// Finds the resource at `rest`, the path below an endpoint that has these forms.
#[inline(never)]
pub fn find<'r>(forms: &[&'static HttpJson], rest: &'r str) -> RouteMatch<'r> {
    let (new, old) = (form(forms, Generation::V1), form(forms, Generation::V03));
    if let Some(new) = new
        && let Some(resource) = resource(rest, "/extendedAgentCard")
    {
        return RouteMatch::Found(resource, new, None);
    }
    if let Some(old) = old
        && let Some(resource) = rest.strip_prefix("/v1").and_then(|rest| resource(rest, "/card"))
    {
        return RouteMatch::Found(resource, old, None);
    }
    let Some(new) = new else { return RouteMatch::Other };
    for prefix in ["/tenants/", "/"] {
        let Some(named) = rest.strip_prefix(prefix) else { continue };
        let tail = after_segment(named);
        if let Some(resource) = resource(tail, "/extendedAgentCard") {
            let tenant = &named[..named.len() - tail.len()];
            // If the endpoint supports 0.3, `v1` is the prefix of its paths and not a tenant.
            let is_old = old.is_some() && prefix == "/" && tenant == "v1";
            return RouteMatch::Found(resource, new, Some(tenant).filter(|_| !is_old));
        }
    }
    match old {
        Some(old) if rest.starts_with("/v1/") => RouteMatch::NotFound(old),
        _ if is_rest_path(rest)
            || is_rest_path(after_segment(rest.get(1..).unwrap_or_default())) =>
        {
            RouteMatch::NotFound(new)
        }
        _ => RouteMatch::Other,
    }
}

/// The path after the first segment, with its leading slash; empty if the segment is empty.
fn after_segment(rest: &str) -> &str {
    match rest.find('/') {
        None | Some(0) => "",
        Some(at) => &rest[at..],
    }
}

/// Whether a path begins like a path of HTTP+JSON.
fn is_rest_path(rest: &str) -> bool {
    ["/tasks/", "/message:", "/extendedAgentCard/"].iter().any(|start| rest.starts_with(start))
}

/// The resource at a path, where `card` is the path of the card.
fn resource<'r>(rest: &'r str, card: &str) -> Option<RestResource<'r>> {
    if let Some(task) = rest.strip_prefix("/tasks") {
        return if task.is_empty() {
            Some(RestResource::Tasks)
        } else {
            of_task(task.strip_prefix('/')?)
        };
    }
    match rest {
        "/message:send" => Some(RestResource::Send),
        "/message:stream" => Some(RestResource::Stream),
        _ if rest == card => Some(RestResource::Card),
        _ => None,
    }
}

/// The resource at the path after `/tasks/`.
fn of_task(rest: &str) -> Option<RestResource<'_>> {
    let Some(slash) = rest.find('/') else {
        let resource = match rest.rsplit_once(':') {
            Some((id, "cancel")) => (id, RestResource::Cancel(id)),
            Some((id, "subscribe")) => (id, RestResource::Subscribe(id)),
            // A colon may be part of an id.
            _ => (rest, RestResource::Task(rest)),
        };
        return (!resource.0.is_empty()).then_some(resource.1);
    };
    let (id, below) = rest.split_at(slash);
    let resource = match below {
        "/subscribe" => RestResource::Subscribe(id),
        "/pushNotificationConfigs" => RestResource::Configs(id),
        _ => {
            let config = below.strip_prefix("/pushNotificationConfigs/")?;
            if config.is_empty() || config.contains('/') {
                return None;
            }
            RestResource::Config(id, config)
        }
    };
    (!id.is_empty()).then_some(resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::rest;

    fn at(path: &str) -> Option<(RestResource<'_>, Generation)> {
        match find(&[&rest::V1, &rest::V03], path) {
            RouteMatch::Found(resource, form, _) => Some((resource, form.generation)),
            RouteMatch::NotFound(_) | RouteMatch::Other => None,
        }
    }

    #[test]
    fn fixed_paths_come_before_tenants() {
        use Generation::{V1, V03};
        for (path, resource, generation) in [
            ("/message:send", RestResource::Send, V1),
            ("/v1/message:send", RestResource::Send, V03),
            ("/acme/message:stream", RestResource::Stream, V1),
            ("/tenants/acme/message:stream", RestResource::Stream, V1),
            ("/tasks", RestResource::Tasks, V1),
            ("/v1/tasks", RestResource::Tasks, V03),
            ("/tasks/tasks", RestResource::Task("tasks"), V1),
            ("/tasks/message:send", RestResource::Task("message:send"), V1),
            ("/tasks/a:cancel", RestResource::Cancel("a"), V1),
            ("/tasks/a:b:cancel", RestResource::Cancel("a:b"), V1),
            ("/tasks/a:b", RestResource::Task("a:b"), V1),
            ("/tasks/a:subscribe", RestResource::Subscribe("a"), V1),
            ("/v1/tasks/a/subscribe", RestResource::Subscribe("a"), V03),
            ("/tasks/a/pushNotificationConfigs", RestResource::Configs("a"), V1),
            ("/t/tasks/a/pushNotificationConfigs/b", RestResource::Config("a", "b"), V1),
            ("/extendedAgentCard", RestResource::Card, V1),
            ("/v1/card", RestResource::Card, V03),
            // 0.3 does not have this path, so it is a path of 1.0, without a tenant.
            ("/v1/extendedAgentCard", RestResource::Card, V1),
        ] {
            assert_eq!(at(path), Some((resource, generation)), "{path}");
        }
    }

    #[test]
    fn unmatched_path_is_not_found_or_not_an_a2a_path() {
        let forms: &[&'static HttpJson] = &[&rest::V1, &rest::V03];
        for path in [
            "/tasks/",
            "/tasks/:cancel",
            "/tasks//subscribe",
            "/tasks/a/b",
            "/tasks/a/pushNotificationConfigs/",
            "/tasks/a/pushNotificationConfigs/b/c",
            "/message:sent",
            "/t/message:sent",
            "/v1/x",
            "/t/tasks/a/b",
        ] {
            assert!(matches!(find(forms, path), RouteMatch::NotFound(_)), "{path}");
        }
        for path in ["/x", "/x/y", "//tasks", "/tenants/t", "/card", "/Tasks", "/a/b/tasks"] {
            assert!(matches!(find(forms, path), RouteMatch::Other), "{path}");
        }
        assert!(matches!(find(&[], "/tasks"), RouteMatch::Other));
        // If the endpoint does not support 0.3, `v1` is an ordinary tenant.
        assert!(matches!(
            find(&[&rest::V1], "/v1/tasks"),
            RouteMatch::Found(RestResource::Tasks, ..)
        ));
    }

    #[test]
    fn allow_lists_exactly_the_methods_with_an_operation() {
        let methods = [
            (Method::Get, "GET"),
            (Method::Head, "HEAD"),
            (Method::Post, "POST"),
            (Method::Delete, "DELETE"),
            (Method::Put, "PUT"),
        ];
        for path in [
            "/message:send",
            "/message:stream",
            "/tasks",
            "/tasks/a",
            "/tasks/a:cancel",
            "/tasks/a:subscribe",
            "/tasks/a/pushNotificationConfigs",
            "/tasks/a/pushNotificationConfigs/b",
            "/extendedAgentCard",
        ] {
            let Some((resource, _)) = at(path) else { panic!("{path}") };
            let allow = String::from_utf8_lossy(resource.allow().lines()).into_owned();
            for (method, name) in methods {
                let names = |word: &str| word == name;
                let listed = allow.trim().split([' ', ',', ':']).any(names);
                assert_eq!(resource.op(method).is_some(), listed, "{path} {name}");
            }
        }
    }
}
