//! `task`: get, list, cancel and subscribe.

use std::collections::BTreeMap;

use peregrine::{
    client::{Answer, ListTasks},
    model::{TaskState, time::parse_rfc3339},
};
use serde_json::value::RawValue;

use super::{
    super::{eprint, failure::CommandFailure, print, settings::OutputFormat, text::state_word},
    CalledAgent, Invocation,
    explain::failure,
    invocation::flag,
    send,
    show::{self, AnswerShape, FollowedStream},
    wait,
};

/// Shows a task; with `--wait`, after it has ended or needs input.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn get(agent: &CalledAgent, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let history = on.flag_number::<u32>("history")?;
    let id = &on.words[0];
    let answer = match on.settings.is_on("wait")? {
        true => wait::poll(agent, on, id, wait::LOST_MAX).await?,
        false => {
            let answer = wait::get(agent, on, id, history).await;
            answer.map_err(|error| failure(on, error))?
        }
    };
    wait::note_answer(on, &answer);
    show::answer(on, &answer, AnswerShape::AsItIs, history.is_some());
    Ok(())
}

/// Cancels a task and shows its new state.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn cancel(agent: &CalledAgent, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let answer = agent.client.cancel_task(&on.words[0], on.metadata()?).await;
    let answer = answer.map_err(|error| failure(on, error))?;
    show::answer(on, &answer, AnswerShape::AsItIs, false);
    Ok(())
}

/// Follows a task: event by event with `--stream`, otherwise to its end.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn subscribe(agent: &CalledAgent, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let after = on.flag_number("last-event-id")?;
    let mut stream = match agent.client.subscribe(&on.words[0], after).await {
        Ok(stream) => stream,
        Err(error) => return Err(failure(on, error)),
    };
    let mut followed = FollowedStream::of(&on.words[0]);
    let ended = wait::follow(on, &mut stream, &mut followed).await;
    let task_id = if followed.state.is_some() { followed.task_id.as_str() } else { "" };
    followed.has_lost = send::check_stream_lost(on, ended, task_id)?;
    send::finish(agent, on, &mut followed, AnswerShape::AsItIs).await
}

/// Lists a page of tasks; with `--stream`, one task a line.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn list(agent: &CalledAgent, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let answer = agent.client.list_tasks(&wanted(on)?).await;
    let answer = answer.map_err(|error| failure(on, error))?;
    match on.format {
        OutputFormat::Json => list_json(on, &answer),
        OutputFormat::Text => {
            let mut output = on.text();
            let Some(page) = answer.page() else { return Ok(()) };
            for (view, _) in page.tasks() {
                output.task(view, on.flag("history").is_some());
            }
            output.field("Total", &page.total_size.to_string());
            if !page.next_page_token.is_empty() {
                output.field("Next", &next_page(on, &page.next_page_token.to_str()));
            }
            print(&output.text);
            Ok(())
        }
    }
}

/// The command that shows the next page.
fn next_page(on: &Invocation<'_>, token: &str) -> String {
    let mut rest = flag("page-token", token);
    for name in ["status", "page-size", "after", "history"] {
        if let Some(value) = on.flag(name) {
            rest.push_str(&format!(" {}", flag(name, value)));
        }
    }
    if on.flags.get_flag("artifacts") {
        rest.push_str(" --artifacts");
    }
    if let Some(id) = on.settings.text("context-id") {
        rest.push_str(&format!(" {}", flag("context-id", id)));
    }
    on.command("task list", &rest)
}

/// The filter in the flags.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn wanted(on: &Invocation<'_>) -> Result<ListTasks, CommandFailure> {
    let status = on.flag("status").map(state_of).transpose()?;
    let after = |text| {
        let wrong = || {
            CommandFailure::usage(format!(
                "--after {text:?} must be a time such as 2026-01-31T12:00:00Z"
            ))
        };
        parse_rfc3339(text).ok_or_else(wrong)
    };
    Ok(ListTasks {
        context_id: on.settings.text("context-id").map(str::to_owned),
        status,
        page_size: on.flag_number("page-size")?,
        page_token: on.flag("page-token").map(str::to_owned),
        history: on.flag_number("history")?,
        after_ms: on.flag("after").map(after).transpose()?,
        include_artifacts: on.flags.get_flag("artifacts"),
    })
}

/// Parses a state: its short name or its wire name, in any case.
fn state_of(text: &str) -> Result<TaskState, CommandFailure> {
    let word = text.to_ascii_uppercase().replace('-', "_");
    let word = word.strip_prefix("TASK_STATE_").unwrap_or(&word);
    // No task has this state: an agent would ignore such a filter.
    let states = || TaskState::ALL.into_iter().filter(|state| *state != TaskState::Unspecified);
    states().find(|state| state_word(*state) == word).ok_or_else(|| {
        let words = states().map(state_word).collect::<Vec<_>>().join(", ");
        CommandFailure::usage(format!("--status {text:?} must be one of {words}"))
    })
}

fn list_json(on: &Invocation<'_>, answer: &Answer) -> Result<(), CommandFailure> {
    let mut json = Vec::new();
    answer.write_json(&mut json);
    if !on.is_streaming {
        on.print_json(&json);
        return Ok(());
    }
    // Cut out, not parsed, because the content between the brackets is printed as received.
    let members: BTreeMap<&str, &RawValue> = serde_json::from_slice(&json).unwrap_or_default();
    let tasks = members.get("tasks").map_or("[]", |tasks| tasks.get());
    let tasks: Vec<&RawValue> = serde_json::from_str(tasks).unwrap_or_default();
    for task in tasks {
        on.print_json(task.get().as_bytes());
    }
    // A line is only a task, so the next command does not appear among the lines.
    let token = answer.page().map(|page| page.next_page_token.to_str());
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        eprint(&format!("Next: {}\n", next_page(on, &token)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_state_is_parsed_from_short_and_wire_names() {
        for text in ["WORKING", "working", "TASK_STATE_WORKING"] {
            assert_eq!(state_of(text), Ok(TaskState::Working));
        }
        assert_eq!(state_of("input-required"), Ok(TaskState::InputRequired));
        assert!(state_of("done").unwrap_err().message.contains("must be one of"));
    }
}
