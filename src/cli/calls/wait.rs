//! Waits for a task: by its stream if the agent has one, otherwise by polling.
//!
//! Invariant: a wait ends only when the task has ended or needs input from its client; an
//! unspecified state is neither. After a failed stream the wait continues by polling. One error
//! does not end the wait while a retry may succeed. Ctrl-C and `--timeout` end the wait, never the
//! task.

use std::time::{Duration, Instant};

use peregrine::{
    client::{Answer, ClientError, TaskAddress},
    model::TaskState,
};

use super::{
    super::{
        failure::CommandFailure,
        print,
        settings::{OutputFormat, SettingSource},
    },
    CalledAgent, Invocation,
    agent::AgentStream,
    explain::failure,
    show::FollowedStream,
};

/// The first pause of a wait without a set interval.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after an error.
const LOST_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Maximum time in which only errors occur, so that a dead server is reported within 10 s.
pub const LOST_MAX: Duration = Duration::from_secs(8);
/// As [`LOST_MAX`], for a task that its stream has sent completely.
pub const COLLECTED_LOST_MAX: Duration = Duration::from_secs(1);

/// Polls a task until it has ended or needs input. Temporary errors are retried for `lost_max`;
/// until the agent has named the task, only connection errors are retried.
///
/// # Errors
/// A [`CommandFailure`], for example `TaskNotFoundError`.
pub async fn poll(
    agent: &CalledAgent,
    on: &Invocation<'_>,
    id: &str,
    lost_max: Duration,
) -> Result<Answer, CommandFailure> {
    let history = on.flag_number("history")?;
    let is_named = |task: super::invocation::ObservedTask| {
        task.id == id && task.state != TaskState::Unspecified
    };
    if on.task().is_some_and(is_named) {
        on.begin_wait();
    }
    let interval = on.settings.time("poll-interval")?.unwrap_or(Duration::from_secs(2));
    let is_configured = *on.settings.source("poll-interval") != SettingSource::BuiltIn;
    let mut pause = if is_configured { interval } else { FIRST_PAUSE.min(interval) };
    // The time of the first of consecutive errors, and the pause after the last one.
    let mut lost: Option<(Instant, Duration)> = None;
    loop {
        let begun = Instant::now();
        match get(agent, on, id, history).await {
            Ok(answer) => {
                lost = None;
                if note_answer(on, &answer) {
                    return Ok(answer);
                }
                on.begin_wait();
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(interval);
            }
            Err(error) => {
                let may_pass = error.is_connection_lost() || (on.is_waiting() && error.may_pass());
                let (since, before) = lost.unwrap_or((begun, FIRST_PAUSE));
                let requested = Duration::from_millis(error.retry_after_ms.unwrap_or(0));
                let next = (before * 2).min(LOST_PAUSE_MAX).max(requested);
                if !may_pass || since.elapsed() + next > lost_max {
                    return Err(failure(on, error));
                }
                lost = Some((since, next.min(LOST_PAUSE_MAX)));
                tokio::time::sleep(next).await;
            }
        }
    }
}

/// Reads a task, with its context id if the context is known.
///
/// # Errors
/// [`ClientError`]
pub async fn get(
    agent: &CalledAgent,
    on: &Invocation<'_>,
    id: &str,
    history: Option<u32>,
) -> Result<Answer, ClientError> {
    let task_context = on.task().filter(|task| task.id == id).map(|task| task.context_id);
    let task_context = task_context.filter(|context_id| !context_id.is_empty());
    let context_id = task_context.as_deref().or(on.settings.text("context-id"));
    let task = TaskAddress::new(id);
    let task = context_id.map_or(task, |context_id| task.within(context_id));
    agent.client.get_task(task, history).await
}

/// Remembers the task of an answer; true: the wait is over.
pub fn note_answer(on: &Invocation<'_>, answer: &Answer) -> bool {
    let Some(view) = answer.task() else { return true };
    let state = view.status().state;
    on.note_task(&view.id().to_str(), &view.context_id().to_str(), state);
    state.is_terminal() || state.is_interrupted()
}

/// Follows a stream to its end.
///
/// # Errors
/// The error of the stream, unless the task can still be polled.
pub async fn follow(
    on: &Invocation<'_>,
    stream: &mut AgentStream,
    followed: &mut FollowedStream,
) -> Result<(), ClientError> {
    let is_text = on.format == OutputFormat::Text && !on.is_talk;
    if on.is_streaming && on.is_verbose && is_text {
        let mut output = on.text();
        stream.activated_extensions().for_each(|uri| output.field("Activated extension", uri));
        print(&output.text);
    }
    while let Some(event) = stream.next().await {
        let event = event?;
        followed.take(on, &event);
        if !followed.task_id.is_empty() && !followed.is_message {
            on.begin_wait();
        }
        if followed.is_settled {
            break;
        }
    }
    Ok(())
}
