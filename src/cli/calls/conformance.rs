//! `conformance`: checks a live agent against requirements of the A2A TCK, or runs the TCK itself.
//!
//! Invariant: each check has the name that the kit gives its requirement. The kit needs an agent
//! that understands its messages; any other agent is checked only for behaviour that does not
//! depend on the message. A check is skipped with a reason if it is impossible, if the agent's
//! version does not require it, or if it is known to stop servers. No call is larger, deeper or
//! more frequent than a call of an ordinary client.

use peregrine::{
    client::{
        Answer, ClientError, ClientErrorKind, EventKind, ListTasks, SendRequest, card::validate,
    },
    model::{Generation, TaskState},
};
use serde_json::{Value, json};

use super::{
    super::{
        failure::{CommandFailure, FailureCode},
        print,
        settings::OutputFormat,
        text::state_word,
    },
    CalledAgent, Invocation, agent,
    explain::failure,
    kit,
};

/// The id of a task that no agent has.
const NO_TASK: &str = "00000000-0000-4000-8000-00000000c0de";
/// The default text of a message.
const TEXT: &str = "hello";
/// Maximum number of events to read from a stream; an agent may send more.
const EVENTS_MAX: usize = 10_000;
/// Reason to skip checks of behaviour that versions before 1.0 leave open.
const ONLY_V1: &str = "only A2A 1.0 defines it, and the agent speaks an older version";
/// Reason to skip checks of behaviour that 0.1 defines differently.
const ONLY_LATER: &str = "A2A 0.1 defines it differently";
/// Reason to skip subscriptions to a task that sends no events: a server that accepts one keeps it
/// after the client has closed it, which stopped a whole server (a2a-python#1136).
const ONLY_AGGRESSIVE: &str =
    "only with --aggressive: a server that accepts the subscription may stop serving";

/// The outcome of a check.
enum CheckOutcome {
    Pass,
    Fail(String),
    Skip(&'static str),
}

use CheckOutcome::{Fail, Pass, Skip};

/// The finished checks: requirement, description, outcome.
#[derive(Default)]
struct ConformanceReport(Vec<(&'static str, &'static str, CheckOutcome)>);

/// The task that the first message created.
struct MadeTask {
    id: String,
    state: TaskState,
}

/// Checks an agent.
///
/// # Errors
/// A [`CommandFailure`]: the agent cannot be called, or a check failed.
pub async fn check(on: &Invocation<'_>) -> Result<(), CommandFailure> {
    if let Some(folder) = on.flag("tck") {
        return by_kit(on, folder).await;
    }
    let (json, _) = agent::card_json(on).await?;
    let agent = CalledAgent::of(on).await?;
    let mut report = ConformanceReport::default();
    let outcome = validate(&json).first().map_or(Pass, |finding| Fail(finding.sentence()));
    report.note("CARD-STRUCT-001", "the card has all required members", outcome);
    let made = report.messages(&agent, on).await;
    report.unknown_task(&agent, on).await;
    report.made_task(&agent, on, made.as_ref()).await;
    report.lists(&agent, on, made.as_ref()).await;
    report.streams(&agent, on, made.as_ref()).await;
    report.show(on);
    match report.0.iter().any(|(.., outcome)| matches!(outcome, Fail(_))) {
        true => Err(CommandFailure::reported(FailureCode::Internal)),
        false => Ok(()),
    }
}

/// Runs the official kit on the agent; its output goes to stderr.
async fn by_kit(on: &Invocation<'_>, folder: &str) -> Result<(), CommandFailure> {
    let is_pass = kit::run(on, folder).await?;
    let mut report = ConformanceReport::default();
    let outcome = if is_pass { Pass } else { Fail("see the TCK's output".to_owned()) };
    report.note("TCK", "the requirements of level MUST", outcome);
    report.show(on);
    if is_pass { Ok(()) } else { Err(CommandFailure::reported(FailureCode::Internal)) }
}

impl ConformanceReport {
    fn note(&mut self, requirement: &'static str, title: &'static str, outcome: CheckOutcome) {
        self.0.push((requirement, title, outcome));
    }

    /// Two messages, each for a new task.
    async fn messages(&mut self, agent: &CalledAgent, on: &Invocation<'_>) -> Option<MadeTask> {
        let request = SendRequest::text(on.flag("text").unwrap_or(TEXT));
        let answer = agent.client.send(&request).await.map_err(|error| name(on, error));
        let outcome = match &answer {
            Ok(answer) if answer.task().is_some() || answer.message().is_some() => Pass,
            Ok(_) => Fail("the answer is neither a task nor a message".to_owned()),
            Err(name) => Fail(name.clone()),
        };
        self.note("CORE-SEND-001", "a message is answered with a task or a message", outcome);
        let answer = answer.ok()?;
        let view = answer.task()?;
        let (id, state) = (view.id().to_str().into_owned(), view.status().state);
        on.note_task(&id, &view.context_id().to_str(), state);
        let is_whole = !id.is_empty() && state != TaskState::Unspecified;
        let outcome = match is_whole {
            true => Pass,
            false => Fail("the id or the state of the task is missing".to_owned()),
        };
        self.note("DM-TASK-001", "a task has an id and a state", outcome);
        let outcome = match state.is_terminal() || state.is_interrupted() {
            true => Pass,
            // `tasks/send` may return at once.
            false if is_v01(agent) => Skip(ONLY_LATER),
            false => Fail(format!("the task is {}", state_word(state))),
        };
        const WAITS: &str = "a blocking call is answered when the task ends or needs input";
        self.note("CORE-EXECUTION-MODE-001", WAITS, outcome);
        let again = agent.client.send(&request).await.map_err(|error| name(on, error));
        let outcome = match again {
            Ok(again) => match again.task_id().is_none_or(|other| *other.to_str() != *id) {
                true => Pass,
                false => Fail("the second message was added to the task of the first".to_owned()),
            },
            Err(name) => Fail(name),
        };
        self.note("CORE-MULTI-003", "each new task has a new id", outcome);
        Some(MadeTask { id, state })
    }

    /// Checks on a task that does not exist.
    async fn unknown_task(&mut self, agent: &CalledAgent, on: &Invocation<'_>) {
        const NOT_FOUND: &[&str] = &["TaskNotFoundError"];
        let (client, hello) = (&agent.client, SendRequest::text(TEXT).task_id(NO_TASK));
        let got = refused(on, client.get_task(NO_TASK, None).await, NOT_FOUND);
        self.note("CORE-GET-002", "reading an unknown task is TaskNotFoundError", got);
        let got = refused(on, client.cancel_task(NO_TASK, None).await, NOT_FOUND);
        self.note("CORE-CANCEL-003", "canceling an unknown task is TaskNotFoundError", got);
        // Clients of 0.1 choose task ids, so a message with an unknown id starts a task.
        let got = match is_v01(agent) {
            true => Skip(ONLY_LATER),
            false => refused(on, client.send(&hello).await, NOT_FOUND),
        };
        self.note("CORE-MULTI-004", "a message to an unknown task is TaskNotFoundError", got);
    }

    /// Checks on the task that was created.
    async fn made_task(
        &mut self,
        agent: &CalledAgent,
        on: &Invocation<'_>,
        made: Option<&MadeTask>,
    ) {
        const READ: (&str, &str) = ("CORE-GET-001", "a task is read under its id");
        const HISTORY: (&str, &str) = ("CORE-HIST-002", "the history is no longer than requested");
        const SEND: (&str, &str) =
            ("CORE-SEND-002", "a message to a task that has ended is refused");
        const CANCEL: (&str, &str) =
            ("CORE-CANCEL-002", "canceling a task that has ended is TaskNotCancelableError");
        let Some(made) = made else {
            for (requirement, title) in [READ, HISTORY, SEND, CANCEL] {
                self.note(requirement, title, Skip("no task was created"));
            }
            return;
        };
        let got = agent.client.get_task(&made.id, Some(1)).await.map_err(|error| name(on, error));
        let outcome = match &got {
            Ok(got) if got.task_id().is_some_and(|id| *id.to_str() == *made.id) => Pass,
            Ok(_) => Fail("another task was returned".to_owned()),
            Err(name) => Fail(name.clone()),
        };
        self.note(READ.0, READ.1, outcome);
        let count = got.ok().and_then(|got| got.task().map(|view| view.history(None).count()));
        let outcome = match count {
            Some(0 | 1) => Pass,
            Some(count) => Fail(format!("{count} messages were returned instead of 1")),
            None => Skip("the task could not be read"),
        };
        self.note(HISTORY.0, HISTORY.1, outcome);
        if !made.state.is_terminal() {
            self.note(SEND.0, SEND.1, Skip("the task has not ended"));
            self.note(CANCEL.0, CANCEL.1, Skip("the task has not ended"));
            return;
        }
        let outcome = match is_v1(agent) {
            true => {
                let more = SendRequest::text(TEXT).task_id(&*made.id);
                refused(on, agent.client.send(&more).await, &["UnsupportedOperationError"])
            }
            false => Skip(ONLY_V1),
        };
        self.note(SEND.0, SEND.1, outcome);
        let got = agent.client.cancel_task(&made.id, None).await;
        // A2A 1.0 §3.1.5: canceling is idempotent, so canceling a canceled task may succeed.
        let outcome = match (made.state, got) {
            (TaskState::Canceled, Ok(_)) => Pass,
            (_, got) => refused(on, got, &["TaskNotCancelableError"]),
        };
        self.note(CANCEL.0, CANCEL.1, outcome);
    }

    async fn lists(&mut self, agent: &CalledAgent, on: &Invocation<'_>, made: Option<&MadeTask>) {
        const TITLE: &str = "tasks are listed by pages, the newest first, without artifacts";
        let list = ListTasks { page_size: Some(2), ..ListTasks::default() };
        let outcome = match agent.client.list_tasks(&list).await {
            Err(error) if matches!(error.kind, ClientErrorKind::NotExpressible(_)) => {
                Skip("this binding of this version has no ListTasks")
            }
            Err(error) => Fail(name(on, error)),
            Ok(answer) => {
                let tasks = || answer.page().into_iter().flat_map(|page| page.tasks());
                let times: Vec<u64> = tasks().map(|(view, _)| view.status().at_ms).collect();
                let artifacts = tasks().any(|(view, _)| view.artifacts().next().is_some());
                match times.as_slice() {
                    [] if made.is_some() => Fail("the new task is not in the list".to_owned()),
                    [_, _, _, ..] => Fail("the page has more tasks than requested".to_owned()),
                    times if !times.is_sorted_by(|a, b| a >= b) => {
                        Fail("the oldest task comes first".to_owned())
                    }
                    _ if artifacts => {
                        Fail("artifacts were returned without being requested".to_owned())
                    }
                    _ => Pass,
                }
            }
        };
        self.note("CORE-LIST-003", TITLE, outcome);
    }

    async fn streams(&mut self, agent: &CalledAgent, on: &Invocation<'_>, made: Option<&MadeTask>) {
        const STREAM: (&str, &str) = (
            "CORE-STREAM-003",
            "a stream is one message, or begins with a task and lasts until it ends or needs input",
        );
        const UNKNOWN: (&str, &str) =
            ("STREAM-SUB-004", "subscribing to an unknown task is TaskNotFoundError");
        const ENDED: (&str, &str) =
            ("STREAM-SUB-003", "subscribing to a task that has ended is UnsupportedOperationError");
        if !agent.client.card().streams() {
            for (requirement, title) in [STREAM, UNKNOWN, ENDED] {
                self.note(requirement, title, Skip("the card declares no streams"));
            }
            return;
        }
        let outcome = stream(agent, on).await;
        self.note(STREAM.0, STREAM.1, outcome);
        if !on.flags.get_flag("aggressive") {
            for (requirement, title) in [UNKNOWN, ENDED] {
                self.note(requirement, title, Skip(ONLY_AGGRESSIVE));
            }
            return;
        }
        let outcome = subscribed(agent, on, NO_TASK, "TaskNotFoundError").await;
        self.note(UNKNOWN.0, UNKNOWN.1, outcome);
        let outcome = match made.filter(|made| made.state.is_terminal()) {
            Some(_) if !is_v1(agent) => Skip(ONLY_V1),
            Some(made) => subscribed(agent, on, &made.id, "UnsupportedOperationError").await,
            None => Skip("no task has ended"),
        };
        self.note(ENDED.0, ENDED.1, outcome);
    }

    fn show(&self, on: &Invocation<'_>) {
        let count = |word: &str| self.0.iter().filter(|(.., one)| one.word() == word).count();
        let sums =
            [("passed", count("pass")), ("failed", count("fail")), ("skipped", count("skip"))];
        if on.format == OutputFormat::Json {
            let row = |(requirement, title, outcome): &(&str, &str, CheckOutcome)| {
                json!({
                    "requirement": requirement, "title": title,
                    "outcome": outcome.word(), "detail": outcome.detail(),
                })
            };
            let checks: Vec<Value> = self.0.iter().map(row).collect();
            let mut document = json!({ "checks": checks });
            for (name, count) in sums {
                document[name] = json!(count);
            }
            on.print_json(document.to_string().as_bytes());
            return;
        }
        let mut output = on.text();
        for (requirement, title, outcome) in &self.0 {
            let why = outcome.detail().map_or(String::new(), |detail| format!(": {detail}"));
            let label = match outcome {
                Pass => "Pass",
                Fail(_) => "Fail",
                Skip(_) => "Skip",
            };
            output.field(label, &format!("{requirement} {title}{why}"));
        }
        for ((_, count), label) in sums.into_iter().zip(["Passed", "Failed", "Skipped"]) {
            output.field(label, &count.to_string());
        }
        print(&output.text);
    }
}

impl CheckOutcome {
    fn word(&self) -> &'static str {
        match self {
            Pass => "pass",
            Fail(_) => "fail",
            Skip(_) => "skip",
        }
    }

    fn detail(&self) -> Option<&str> {
        match self {
            Pass => None,
            Fail(why) => Some(why),
            Skip(why) => Some(why),
        }
    }
}

/// Whether calls use 1.0, the version of the kit's requirements.
fn is_v1(agent: &CalledAgent) -> bool {
    agent.client.interface().generation == Generation::V1
}

/// Whether calls use 0.1.
fn is_v01(agent: &CalledAgent) -> bool {
    agent.client.interface().generation == Generation::V01
}

/// The name of an error, and the agent's message.
fn name(on: &Invocation<'_>, error: ClientError) -> String {
    let failure = failure(on, error);
    format!("{}: {}", failure.code.name(), failure.message)
}

/// Whether a call was rejected with one of these names.
fn refused(
    on: &Invocation<'_>,
    answer: Result<Answer, ClientError>,
    names: &[&str],
) -> CheckOutcome {
    match answer {
        Ok(_) => Fail("the call succeeded".to_owned()),
        Err(error) => {
            let is_nameless = error.fault().is_some_and(|fault| {
                fault.kind.is_none() && fault.code.is_none() && fault.http == Some(404)
            });
            let failure = failure(on, error);
            match names.contains(&failure.code.name()) {
                true => Pass,
                // A2A 1.0 §11.6: the error has an ErrorInfo with its reason.
                false if is_nameless => {
                    Fail(format!("the error has status 404 and no name: {}", failure.message))
                }
                false => Fail(format!("{}: {}", failure.code.name(), failure.message)),
            }
        }
    }
}

/// Follows a message to the end of its stream.
async fn stream(agent: &CalledAgent, on: &Invocation<'_>) -> CheckOutcome {
    let request = SendRequest::text(on.flag("text").unwrap_or(TEXT));
    let mut stream = match agent.client.stream(&request).await {
        Ok(stream) => stream,
        Err(error) => return Fail(name(on, error)),
    };
    let (mut count, mut is_message, mut state) = (0, false, None);
    while let Some(event) = stream.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Fail(name(on, error)),
        };
        count += 1;
        match event.kind() {
            EventKind::Message(_) => is_message = true,
            EventKind::Task(_) => {}
            // Streams of 0.1 have no tasks.
            EventKind::Change { .. } | EventKind::Gap { .. } if count == 1 && !is_v01(agent) => {
                return Fail("the stream begins with neither a task nor a message".to_owned());
            }
            EventKind::Change { .. } | EventKind::Gap { .. } => {}
        }
        state = event.state().or(state);
        let is_settled = state.is_some_and(|state| state.is_terminal() || state.is_interrupted());
        if is_settled || count >= EVENTS_MAX {
            break;
        }
    }
    match (is_message, count, state) {
        (true, 1, _) => Pass,
        (true, _, _) if is_v1(agent) => Fail("a message is followed by other events".to_owned()),
        // Before 1.0 a stream may have several messages.
        (true, _, _) => Pass,
        (false, _, Some(state)) if state.is_terminal() || state.is_interrupted() => Pass,
        (false, ..) => Fail("the stream ended before its task ended or needed input".to_owned()),
    }
}

/// Whether a subscription is rejected with this name.
async fn subscribed(
    agent: &CalledAgent,
    on: &Invocation<'_>,
    id: &str,
    wanted: &str,
) -> CheckOutcome {
    let mut stream = match agent.client.subscribe(id, None).await {
        Ok(stream) => stream,
        Err(error) => return refused(on, Err(error), &[wanted]),
    };
    match stream.next().await {
        Some(Err(error)) => refused(on, Err(error), &[wanted]),
        Some(Ok(_)) | None => Fail("the call succeeded".to_owned()),
    }
}
