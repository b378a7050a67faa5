//! Tasks of all callers for the operator: `/tasks` and the paths below it, only on `--admin`.
//!
//! A page shows ids, states, names and sizes of tasks, but no content. It has at most 100 tasks;
//! the length of their ids is limited where a client sends them.

use crate::{
    fault::Fault,
    http,
    json::{self, write::push_string},
    limits::Limits,
    model::{TaskState, time::rfc3339},
    op::{Agents, NotOperated, Operated, OperatorFilter, SurveyedTask},
    service::pages::{
        AdminAnswer,
        AdminMethod::{self, Delete, Get, Other, Post},
        AdminRequest, PageAnswer,
    },
};

const JSON: &str = "application/json";

/// The path of the tasks.
const PATH: &str = "/tasks";

/// The text of a task that was failed without a reason.
const REASON_DEFAULT: &str = "the operator of the server ended the task";

const UNKNOWN: &str = "no task has this id";
const SEVERAL: &str = "several tasks have this id: also name an owner or an agent";

/// The meaning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TaskPath {
    All,
    /// `None`: the query has the task's id, since a path cannot hold every id (`http::path`).
    Cancel(Option<String>),
    Fail(Option<String>),
}

impl TaskPath {
    fn read(path: &str) -> Option<TaskPath> {
        let rest = path.strip_prefix(PATH)?;
        if rest.is_empty() {
            return Some(TaskPath::All);
        }
        let rest = rest.strip_prefix('/')?;
        let (id, verb) = match rest.split_once('/') {
            Some((id, verb)) => {
                let id = http::path::segment(id).ok().filter(|id| !id.is_empty())?;
                (Some(id.into_owned()), verb)
            }
            None => (None, rest),
        };
        match verb {
            "cancel" => Some(TaskPath::Cancel(id)),
            "fail" => Some(TaskPath::Fail(id)),
            _ => None,
        }
    }

    const fn methods(&self) -> &'static [AdminMethod] {
        match self {
            TaskPath::All => &[Get],
            TaskPath::Cancel(_) | TaskPath::Fail(_) => &[Post],
        }
    }
}

/// The parameters of a query.
#[derive(Default)]
struct TaskQuery {
    owner: Option<String>,
    agent: Option<String>,
    state: Option<TaskState>,
    page_token: String,
    id: Option<String>,
}

impl TaskQuery {
    /// # Errors
    /// The error text for a 400.
    fn read(query: &str) -> Result<TaskQuery, String> {
        let mut read = TaskQuery::default();
        for pair in http::query::pairs(query) {
            let (name, value) = pair.map_err(|_| "the query must be percent-encoded".to_owned())?;
            match &*name {
                "owner" => read.owner = Some(value.into_owned()),
                "agent" => read.agent = Some(value.into_owned()),
                "id" => read.id = Some(value.into_owned()),
                "pageToken" => read.page_token = value.into_owned(),
                "state" => {
                    let state = state(&value);
                    read.state = Some(state.ok_or_else(|| unknown_state(&value))?);
                }
                _ => return Err(format!("unknown parameter {name:?}")),
            }
        }
        Ok(read)
    }

    /// The id in the path or the query.
    fn id<'a>(&'a self, in_path: &'a Option<String>) -> Result<&'a str, &'static str> {
        match (in_path, &self.id) {
            (Some(id), None) | (None, Some(id)) => Ok(id),
            (None, None) => Err("name the task: in the path, or as ?id="),
            (Some(_), Some(_)) => Err("the task is named twice: use the path or ?id=, not both"),
        }
    }

    fn filter(&self) -> OperatorFilter<'_> {
        let TaskQuery { owner, agent, state, .. } = self;
        OperatorFilter { owner: owner.as_deref(), agent: agent.as_deref(), state: *state }
    }
}

/// The state with this name in A2A 0.3 or 1.0, in any letter case.
fn state(name: &str) -> Option<TaskState> {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let plain = plain.strip_prefix("task-state-").unwrap_or(&plain);
    TaskState::ALL.into_iter().find(|state| state.word() == plain)
}

fn unknown_state(name: &str) -> String {
    let states: Vec<&str> = TaskState::ALL.into_iter().map(TaskState::word).collect();
    format!("unknown state {name:?}; states are {}", states.join(", "))
}

/// Answers a request of the operator.
pub(super) fn answer(
    agents: &Agents,
    limits: &Limits,
    request: AdminRequest<'_>,
    out: &mut Vec<u8>,
) -> AdminAnswer {
    let Some(path) = TaskPath::read(request.path) else { return AdminAnswer::Nowhere };
    let query = TaskQuery::read(request.query);
    let status = match (&path, request.method, query) {
        (TaskPath::All, Get, Ok(query)) => list(agents, &query, out),
        (TaskPath::Cancel(id), Post, Ok(query)) => match query.id(id) {
            Ok(id) => done(agents.cancel_any(&raw(id), query.filter()), id, out),
            Err(why) => refuse(out, 400, why),
        },
        (TaskPath::Fail(id), Post, Ok(query)) => {
            match (query.id(id), reason(request.content, limits)) {
                (Ok(id), Ok(why)) => done(agents.fail_any(&raw(id), query.filter(), &why), id, out),
                (Err(why), _) => refuse(out, 400, why),
                (_, Err(why)) => refuse(out, 400, &why),
            }
        }
        (TaskPath::All, Get, Err(why)) => refuse(out, 400, &why),
        (TaskPath::Cancel(_) | TaskPath::Fail(_), Post, Err(why)) => refuse(out, 400, &why),
        (TaskPath::All, Post | Delete | Other, _)
        | (TaskPath::Cancel(_) | TaskPath::Fail(_), Get | Delete | Other, _) => {
            return AdminAnswer::Allows(path.methods());
        }
    };
    out.push(b'\n');
    AdminAnswer::Page(PageAnswer { status, media: JSON })
}

/// An id as escaped JSON text.
fn raw(id: &str) -> Vec<u8> {
    let mut raw = Vec::new();
    json::write::push_escaped(&mut raw, id);
    raw
}

/// The member `reason` of a body.
fn reason(content: &[u8], limits: &Limits) -> Result<String, String> {
    if content.iter().all(u8::is_ascii_whitespace) {
        return Ok(REASON_DEFAULT.to_owned());
    }
    let wrong = || "the body must be a JSON object with the string \"reason\"".to_owned();
    let mut parser = json::Parser::new();
    let value = parser.parse(content, limits.json_depth_max).map_err(|_| wrong())?;
    let why = value.get("reason").and_then(|value| value.as_str()).ok_or_else(wrong)?;
    let most = limits.string_bytes_max;
    match why.len() {
        0 => Ok(REASON_DEFAULT.to_owned()),
        len if len > most => Err(format!("reason must not be longer than {most} bytes")),
        _ => Ok(why.into_owned()),
    }
}

fn list(agents: &Agents, query: &TaskQuery, out: &mut Vec<u8>) -> u16 {
    let page = match agents.survey(query.filter(), &query.page_token) {
        Ok(page) => page,
        Err(fault) => return refuse(out, 400, &sentence(&fault)),
    };
    out.extend_from_slice(b"{\"tasks\":[");
    for (at, task) in page.tasks.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(agents, task, out);
    }
    out.extend_from_slice(b"],\"nextPageToken\":");
    push_string(out, page.next.as_str());
    out.extend_from_slice(format!(",\"totalSize\":{}}}", page.total).as_bytes());
    200
}

fn write(agents: &Agents, task: &SurveyedTask, out: &mut Vec<u8>) {
    out.push(b'{');
    for (name, raw) in [("id", &task.id), ("contextId", &task.context_id)] {
        out.extend_from_slice(format!("\"{name}\":\"").as_bytes());
        // The ids are escaped JSON text.
        out.extend_from_slice(raw);
        out.extend_from_slice(b"\",");
    }
    let agent = agents.name_of(task.agent).unwrap_or_default();
    let (tenant, owner) = (task.names.tenant.as_deref(), task.names.owner.as_deref());
    for (name, text) in [
        ("state", task.state.word()),
        ("agent", &agent),
        ("tenant", tenant.unwrap_or_default()),
        ("owner", owner.unwrap_or_default()),
    ] {
        out.extend_from_slice(format!("\"{name}\":").as_bytes());
        push_string(out, text);
        out.push(b',');
    }
    out.extend_from_slice(b"\"statusTime\":\"");
    out.extend_from_slice(&rfc3339(task.since_unix_ms));
    out.extend_from_slice(format!("\",\"bytes\":{}}}", task.bytes).as_bytes());
}

fn done(result: Result<Operated, NotOperated>, id: &str, out: &mut Vec<u8>) -> u16 {
    let operated = match result {
        Ok(operated) => operated,
        Err(NotOperated::Unknown) => return refuse(out, 404, UNKNOWN),
        Err(NotOperated::Several) => return refuse(out, 409, SEVERAL),
        Err(NotOperated::Refused(fault)) => {
            let is_request = fault.field.is_some();
            return refuse(out, if is_request { 400 } else { 409 }, &sentence(&fault));
        }
    };
    out.extend_from_slice(b"{\"id\":");
    push_string(out, id);
    out.extend_from_slice(b",\"state\":");
    push_string(out, operated.state.word());
    out.push(b'}');
    if operated.is_pending { 202 } else { 200 }
}

fn sentence(fault: &Fault) -> String {
    match fault.field {
        Some(field) => format!("{field} {}", fault.message()),
        None => fault.message().to_owned(),
    }
}

fn refuse(out: &mut Vec<u8>, status: u16, why: &str) -> u16 {
    out.extend_from_slice(b"{\"error\":");
    push_string(out, why);
    out.push(b'}');
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_task_paths_are_matched_exactly() {
        for (path, expected) in [
            ("/tasks", Some(TaskPath::All)),
            ("/tasks/a%20b/cancel", Some(TaskPath::Cancel(Some("a b".to_owned())))),
            ("/tasks/7/fail", Some(TaskPath::Fail(Some("7".to_owned())))),
            ("/tasks/cancel", Some(TaskPath::Cancel(None))),
            ("/tasks/", None),
            ("/tasks//fail", None),
            ("/tasks/7", None),
            ("/tasks/7/", None),
            ("/tasks/7/fail/", None),
            ("/tasks/%zz/fail", None),
            ("/taskss", None),
        ] {
            assert_eq!(TaskPath::read(path), expected, "{path}");
        }
    }

    #[test]
    fn task_state_is_parsed_in_every_name_form() {
        for name in ["input-required", "INPUT_REQUIRED", "TASK_STATE_INPUT_REQUIRED"] {
            assert_eq!(state(name), Some(TaskState::InputRequired), "{name}");
        }
        assert_eq!((state("running"), state("")), (None, None));
    }
}
