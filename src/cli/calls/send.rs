//! `send`: sends a message to an agent and shows the outcome.

use std::{io, time::Duration};

use peregrine::{
    client::{ClientError, SendRequest},
    model::{MessageBuf, TaskState},
};

use super::{
    super::{
        failure::CommandFailure,
        parts::{self, NamedPart},
        settings::{OutputFormat, SettingSource},
        warn,
    },
    CalledAgent, Invocation,
    agent::uri_list,
    explain::failure,
    push_config,
    show::{self, AnswerShape, FollowedStream},
    wait,
};

/// The message in the arguments.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn request(on: &Invocation<'_>) -> Result<SendRequest, CommandFailure> {
    let all = on.flags.get_many::<String>(parts::WORDS).map_or(0, Iterator::count);
    let mut named = parts::named(on.flags, all - on.words.len())?;
    if named.is_empty() && parts::is_piped() {
        named.push(NamedPart::standard_input());
    }
    if named.is_empty() {
        let line = "nothing to send";
        return Err(CommandFailure::usage(line).hint("peregrine send -a REF \"TEXT\""));
    }
    let parts = parts::read(&named, &mut io::stdin().lock())?;
    let mut message = MessageBuf::agent(&parts);
    for uri in uri_list(on) {
        message = message.extension(uri);
    }
    let request = addressed(on, SendRequest::of(message))?;
    Ok(match push_config::receiver(on, "push-")? {
        Some(config) => request.push(config),
        None => request,
    })
}

/// The request, completed by the settings.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn addressed(
    on: &Invocation<'_>,
    mut request: SendRequest,
) -> Result<SendRequest, CommandFailure> {
    if let Some(id) = on.settings.text("task-id") {
        request = request.task_id(id);
    }
    if let Some(id) = on.settings.text("context-id") {
        request = request.context_id(id);
    }
    if let Some(metadata) = on.metadata()? {
        request = request.metadata(metadata);
    }
    if let Some(most) = on.flag_number("history")? {
        request = request.history(most);
    }
    Ok(request)
}

/// Rejects `--stream` together with `--async`.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn streams(on: &Invocation<'_>, waits: bool) -> Result<(), CommandFailure> {
    match on.is_streaming && !waits && *on.settings.source("async") == SettingSource::Flag {
        true => Err(CommandFailure::usage("--stream and --async cannot be combined")),
        false => Ok(()),
    }
}

/// Sends a message and shows the outcome.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn send(
    agent: &CalledAgent,
    on: &Invocation<'_>,
    request: &SendRequest,
) -> Result<(), CommandFailure> {
    let waits = on.settings.waits()?;
    if !on.is_streaming && !waits {
        let answer = agent.client.send(&request.clone().return_immediately()).await;
        let answer = answer.map_err(|error| failure(on, error))?;
        wait::note_answer(on, &answer);
        show::answer(on, &answer, AnswerShape::AsItIs, on.flag("history").is_some());
        return Ok(());
    }
    if !agent.client.card().streams() {
        return send_and_poll(agent, on, request).await;
    }
    let mut followed = FollowedStream::after_message(on);
    send_and_follow(agent, on, request, &mut followed).await
}

/// Sends to an agent that streams, and shows events as they arrive or the outcome at the end.
///
/// # Errors
/// A [`CommandFailure`]. If the agent has named the task, `followed` has it.
pub async fn send_and_follow(
    agent: &CalledAgent,
    on: &Invocation<'_>,
    request: &SendRequest,
    followed: &mut FollowedStream,
) -> Result<(), CommandFailure> {
    let mut stream = match agent.client.stream(request).await {
        Ok(stream) => stream,
        Err(error) if error.refuses_stream() => {
            return send_and_poll(agent, on, request).await;
        }
        Err(error) => return Err(failure(on, error)),
    };
    let ended = wait::follow(on, &mut stream, followed).await;
    if let Err(error) = &ended
        && error.refuses_stream()
        && followed.task_id.is_empty()
    {
        return send_and_poll(agent, on, request).await;
    }
    followed.has_lost = check_stream_lost(on, ended, &followed.task_id)?;
    finish(agent, on, followed, AnswerShape::Wrapped).await
}

/// Decides what to do after a stream ended; true: its server was unreachable for too long. If
/// reading the task may help, it warns and returns false.
///
/// # Errors
/// The error of the stream in all other cases.
pub fn check_stream_lost(
    on: &Invocation<'_>,
    ended: Result<(), ClientError>,
    task_id: &str,
) -> Result<bool, CommandFailure> {
    match ended {
        Ok(()) => Ok(false),
        Err(error) if task_id.is_empty() || (error.fault().is_some() && !error.may_pass()) => {
            Err(failure(on, error))
        }
        Err(error) if error.is_connection_lost() => Ok(true),
        Err(error) => {
            let line = on.settings.redaction().without_secrets(&error.to_string());
            warn(&format!("the stream cannot be resumed: {line}; the task is read instead"));
            Ok(false)
        }
    }
}

/// Shows the end of a stream. If the stream broke, shows the task as `GetTask` returns it.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn finish(
    agent: &CalledAgent,
    on: &Invocation<'_>,
    followed: &mut FollowedStream,
    shape: AnswerShape,
) -> Result<(), CommandFailure> {
    if followed.is_message || (on.is_streaming && followed.is_settled) {
        followed.end(on);
        return Ok(());
    }
    let history = on.flag_number::<u32>("history")?;
    let lost_max = match (followed.has_lost, followed.is_fully_collected()) {
        (true, _) => Duration::ZERO,
        (false, true) => wait::COLLECTED_LOST_MAX,
        (false, false) => wait::LOST_MAX,
    };
    let answer = match wait::poll(agent, on, &followed.task_id, lost_max).await {
        Ok(answer) => answer,
        // Some agents store no tasks, or have no operation to read them.
        Err(failure) if followed.is_fully_collected() => {
            let (name, line) = (failure.code.name(), failure.message);
            warn(&format!(
                "the task cannot be read ({name}: {line}); the content of its stream is shown"
            ));
            followed.show_collected(on, shape, history.is_some());
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    let shape = if on.is_streaming { AnswerShape::Wrapped } else { shape };
    show::answer(on, &answer, shape, history.is_some());
    Ok(())
}

/// Sends without a stream, and polls the task until the wait ends.
async fn send_and_poll(
    agent: &CalledAgent,
    on: &Invocation<'_>,
    request: &SendRequest,
) -> Result<(), CommandFailure> {
    let answer = match on.settings.text("task-id") {
        // The first snapshot of the task may be older than the message.
        Some(id) => {
            on.note_task(id, "", TaskState::Unspecified);
            agent.client.send(request).await
        }
        None => agent.client.send(&agent.client.early(request)).await,
    };
    let mut answer = answer.map_err(|error| failure(on, error))?;
    let history = on.flag_number::<u32>("history")?;
    let mut shape = AnswerShape::AsItIs;
    if !wait::note_answer(on, &answer) {
        if on.is_streaming && on.format == OutputFormat::Json {
            let mut json = Vec::new();
            answer.write_json(&mut json);
            on.print_json(&json);
        }
        let id = answer.task_id().map(|id| id.to_str().into_owned()).unwrap_or_default();
        answer = wait::poll(agent, on, &id, wait::LOST_MAX).await?;
        shape = AnswerShape::Wrapped;
    }
    show::answer(on, &answer, shape, history.is_some());
    Ok(())
}
