//! The paths of HTTP+JSON below an endpoint (wire §3.1): fixed ones first, then those of a tenant.
//!
//! Colons are literal and segments are taken as they came: only an id is decoded, by who reads it.
//! A tenant is any first segment, or any second one behind `/tenants/`; all share one task space.

use crate::{
    dialect::rest::Rest,
    http::Method,
    model::{Generation, Op},
};

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot<'r> {
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
    /// `/tasks/{id}:subscribe`, or with a slash as a2a-rs has it
    Subscribe(&'r str),
    /// `/tasks/{id}/pushNotificationConfigs`
    Configs(&'r str),
    /// `/tasks/{id}/pushNotificationConfigs/{config}`
    Config(&'r str, &'r str),
    /// `/extendedAgentCard`; in 0.3 `/card`
    Card,
}

/// What stands at a path below an endpoint.
#[derive(Clone, Copy)]
pub enum Sought<'r> {
    /// Something, in the form of the generation whose path it is.
    Found(Spot<'r>, &'static Rest),
    /// Nothing, but it was HTTP+JSON that was meant.
    Lost(&'static Rest),
    /// No path of HTTP+JSON.
    Foreign,
}

impl<'r> Spot<'r> {
    /// What a method does here; HEAD does what GET does where that is a plain answer.
    pub fn op(self, method: Method) -> Option<Op> {
        let op = match (self, method) {
            (Spot::Send, Method::Post) => Op::Send,
            (Spot::Stream, Method::Post) => Op::Stream,
            (Spot::Tasks, Method::Get | Method::Head) => Op::List,
            (Spot::Task(_), Method::Get | Method::Head) => Op::Get,
            (Spot::Cancel(_), Method::Post) => Op::Cancel,
            // Wire §10, trap 1: the text says POST, the proto GET.
            (Spot::Subscribe(_), Method::Get | Method::Post) => Op::Subscribe,
            (Spot::Configs(_), Method::Post) => Op::PushSet,
            (Spot::Configs(_), Method::Get | Method::Head) => Op::PushList,
            (Spot::Config(..), Method::Get | Method::Head) => Op::PushGet,
            (Spot::Config(..), Method::Delete) => Op::PushDelete,
            (Spot::Card, Method::Get | Method::Head) => Op::ExtendedCard,
            _ => return None,
        };
        Some(op)
    }

    /// The `Allow` line: the methods that do something here.
    pub fn allow(self) -> &'static [u8] {
        match self {
            Spot::Send | Spot::Stream | Spot::Cancel(_) => b"Allow: POST, OPTIONS\r\n",
            Spot::Tasks | Spot::Task(_) | Spot::Card => b"Allow: GET, HEAD, OPTIONS\r\n",
            Spot::Subscribe(_) => b"Allow: GET, POST, OPTIONS\r\n",
            Spot::Configs(_) => b"Allow: GET, HEAD, POST, OPTIONS\r\n",
            Spot::Config(..) => b"Allow: GET, HEAD, DELETE, OPTIONS\r\n",
        }
    }

    /// The task id in the path, still percent-encoded.
    pub fn task(self) -> Option<&'r str> {
        match self {
            Spot::Task(id) | Spot::Cancel(id) | Spot::Subscribe(id) => Some(id),
            Spot::Configs(id) | Spot::Config(id, _) => Some(id),
            Spot::Send | Spot::Stream | Spot::Tasks | Spot::Card => None,
        }
    }
}

/// The form of this generation, if an endpoint has it.
pub fn form(forms: &[&'static Rest], generation: Generation) -> Option<&'static Rest> {
    forms.iter().copied().find(|form| form.generation == generation)
}

/// Finds what stands at `rest`, the path below an endpoint that has these forms.
#[inline(never)]
pub fn find<'r>(forms: &[&'static Rest], rest: &'r str) -> Sought<'r> {
    let (new, old) = (form(forms, Generation::V1), form(forms, Generation::V03));
    if let Some(new) = new
        && let Some(spot) = spot(rest, "/extendedAgentCard")
    {
        return Sought::Found(spot, new);
    }
    if let Some(old) = old
        && let Some(spot) = rest.strip_prefix("/v1").and_then(|rest| spot(rest, "/card"))
    {
        return Sought::Found(spot, old);
    }
    let Some(new) = new else { return Sought::Foreign };
    for prefix in ["/tenants/", "/"] {
        let tail = rest.strip_prefix(prefix).map(behind_segment);
        if let Some(spot) = tail.and_then(|tail| spot(tail, "/extendedAgentCard")) {
            return Sought::Found(spot, new);
        }
    }
    match old {
        Some(old) if rest.starts_with("/v1/") => Sought::Lost(old),
        _ if is_meant(rest) || is_meant(behind_segment(rest.get(1..).unwrap_or_default())) => {
            Sought::Lost(new)
        }
        _ => Sought::Foreign,
    }
}

/// What follows the first segment, which is not empty, with its slash; else nothing.
fn behind_segment(rest: &str) -> &str {
    match rest.find('/') {
        None | Some(0) => "",
        Some(at) => &rest[at..],
    }
}

/// Whether a path begins as those of HTTP+JSON do.
fn is_meant(rest: &str) -> bool {
    ["/tasks/", "/message:", "/extendedAgentCard/"].iter().any(|start| rest.starts_with(start))
}

/// The spot at a path, where the card has this one.
fn spot<'r>(rest: &'r str, card: &str) -> Option<Spot<'r>> {
    if let Some(task) = rest.strip_prefix("/tasks") {
        return if task.is_empty() { Some(Spot::Tasks) } else { of_task(task.strip_prefix('/')?) };
    }
    match rest {
        "/message:send" => Some(Spot::Send),
        "/message:stream" => Some(Spot::Stream),
        _ if rest == card => Some(Spot::Card),
        _ => None,
    }
}

/// The spot at what follows `/tasks/`.
fn of_task(rest: &str) -> Option<Spot<'_>> {
    let Some(slash) = rest.find('/') else {
        let spot = match rest.rsplit_once(':') {
            Some((id, "cancel")) => (id, Spot::Cancel(id)),
            Some((id, "subscribe")) => (id, Spot::Subscribe(id)),
            // A colon may be part of an id.
            _ => (rest, Spot::Task(rest)),
        };
        return (!spot.0.is_empty()).then_some(spot.1);
    };
    let (id, below) = rest.split_at(slash);
    let spot = match below {
        "/subscribe" => Spot::Subscribe(id),
        "/pushNotificationConfigs" => Spot::Configs(id),
        _ => {
            let config = below.strip_prefix("/pushNotificationConfigs/")?;
            if config.is_empty() || config.contains('/') {
                return None;
            }
            Spot::Config(id, config)
        }
    };
    (!id.is_empty()).then_some(spot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::rest;

    fn at(path: &str) -> Option<(Spot<'_>, Generation)> {
        match find(&[&rest::V1, &rest::V03], path) {
            Sought::Found(spot, form) => Some((spot, form.generation)),
            Sought::Lost(_) | Sought::Foreign => None,
        }
    }

    #[test]
    fn fixed_paths_come_before_tenants() {
        use Generation::{V1, V03};
        for (path, spot, generation) in [
            ("/message:send", Spot::Send, V1),
            ("/v1/message:send", Spot::Send, V03),
            ("/acme/message:stream", Spot::Stream, V1),
            ("/tenants/acme/message:stream", Spot::Stream, V1),
            ("/tasks", Spot::Tasks, V1),
            ("/v1/tasks", Spot::Tasks, V03),
            ("/tasks/tasks", Spot::Task("tasks"), V1),
            ("/tasks/message:send", Spot::Task("message:send"), V1),
            ("/tasks/a:cancel", Spot::Cancel("a"), V1),
            ("/tasks/a:b:cancel", Spot::Cancel("a:b"), V1),
            ("/tasks/a:b", Spot::Task("a:b"), V1),
            ("/tasks/a:subscribe", Spot::Subscribe("a"), V1),
            ("/v1/tasks/a/subscribe", Spot::Subscribe("a"), V03),
            ("/tasks/a/pushNotificationConfigs", Spot::Configs("a"), V1),
            ("/t/tasks/a/pushNotificationConfigs/b", Spot::Config("a", "b"), V1),
            ("/extendedAgentCard", Spot::Card, V1),
            ("/v1/card", Spot::Card, V03),
            // What 0.3 does not have is the tenant's called `v1`.
            ("/v1/extendedAgentCard", Spot::Card, V1),
        ] {
            assert_eq!(at(path), Some((spot, generation)), "{path}");
        }
    }

    #[test]
    fn what_is_not_there_is_lost_or_foreign() {
        let forms: &[&'static Rest] = &[&rest::V1, &rest::V03];
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
            assert!(matches!(find(forms, path), Sought::Lost(_)), "{path}");
        }
        for path in ["/x", "/x/y", "//tasks", "/tenants/t", "/card", "/Tasks", "/a/b/tasks"] {
            assert!(matches!(find(forms, path), Sought::Foreign), "{path}");
        }
        assert!(matches!(find(&[], "/tasks"), Sought::Foreign));
        // Without 0.3 there is nothing special about `v1`.
        assert!(matches!(find(&[&rest::V1], "/v1/tasks"), Sought::Found(Spot::Tasks, _)));
    }

    #[test]
    fn allow_names_what_has_an_operation() {
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
            let Some((spot, _)) = at(path) else { panic!("{path}") };
            let allow = String::from_utf8_lossy(spot.allow()).into_owned();
            for (method, name) in methods {
                let names = |word: &str| word == name;
                let listed = allow.trim().split([' ', ',', ':']).any(names);
                assert_eq!(spot.op(method).is_some(), listed, "{path} {name}");
            }
        }
    }
}
