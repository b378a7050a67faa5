//! `chat`: turns from the lines of the standard input.
//!
//! Law: at a terminal a prompt stands on stderr and the agent's words alone on stdout, and behind
//! the last of them how to go on; from a pipe lines are taken until its end and events are shown as
//! `send --stream` does. Where the output is no terminal there are no prompts.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use peregrine::{client::SendRequest, fault::FaultKind, model::TaskState};

use super::{
    super::{failure::CommandFailure, say, settings::OutputFormat, tell, text::one_line, warn},
    CalledAgent, Invocation,
    explain::failure,
    invocation::flag,
    late, send,
    show::FollowedStream,
    wait,
};

/// The longest line, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Talks until the input ends.
///
/// # Errors
/// A [`CommandFailure`]: there is no terminal, a line cannot be read, or, without prompts,
/// a turn could not be taken.
pub async fn chat(agent: &CalledAgent, on: &mut Invocation<'_>) -> Result<(), CommandFailure> {
    let is_asked = io::stdin().is_terminal();
    if is_asked && !io::stdout().is_terminal() {
        let line = "chat asks for lines, and its output is no terminal";
        return Err(CommandFailure::usage(line).hint("peregrine send"));
    }
    on.is_streaming = true;
    on.is_talk |= is_asked && on.format == OutputFormat::Text && !on.is_verbose;
    if is_asked {
        let name = one_line(&agent.client.card().name);
        tell(&format!("Talking with {name}; Ctrl-D ends it\n"));
    }
    let timeout = on.settings.time("timeout")?;
    let mut has_turned = false;
    loop {
        let mut prompt = is_asked.then(Prompt::show);
        // On a thread of its own, so that Ctrl-C is heard meanwhile.
        let read = tokio::task::spawn_blocking(|| line(io::stdin().lock())).await;
        let read =
            read.map_err(|_| CommandFailure::usage("the standard input cannot be read"))??;
        let Some(line) = read else {
            drop(prompt);
            if is_asked {
                goodbye(on);
            }
            return Ok(());
        };
        if let Some(prompt) = &mut prompt {
            prompt.is_answered = true;
        }
        if line.trim().is_empty() {
            continue;
        }
        let mut turned = turn_within(agent, on, &line, timeout).await;
        if let Err(failed) = &turned
            && has_turned
            && failed.is_over(on)
        {
            warn("the task takes no more; the line begins another one in its conversation");
            on.settings.say("task-id", "");
            turned = turn_within(agent, on, &line, timeout).await;
        }
        match turned {
            Ok(()) => has_turned = true,
            Err(failed) if is_asked => tell(&failed.failure.text()),
            Err(failed) => return Err(failed.failure),
        }
    }
}

/// A prompt. Whatever is said next stands on a line of its own: behind an answer it does, and where
/// there is none, at the end of the input, at Ctrl-C, or when the time is over, the line is ended.
struct Prompt {
    is_answered: bool,
}

impl Prompt {
    fn show() -> Prompt {
        // Without a prompt the line is taken as well.
        let _ = io::stderr().write_all(b"> ");
        Prompt { is_answered: false }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if !self.is_answered {
            tell("\n");
        }
    }
}

/// How to go on later: nothing is remembered (the command line's specification, §6.3).
pub fn goodbye(on: &Invocation<'_>) {
    on.say_known();
    let Some(task) = on.known().filter(|_| on.format == OutputFormat::Text) else { return };
    let mut output = on.text();
    if task.state.is_interrupted() {
        output.field("Next", &on.resume(&task.id));
    } else if !task.context_id.is_empty() {
        let rest = flag("context-id", &task.context_id);
        output.field("Next", &on.command("chat", &rest));
    }
    say(&output.text);
}

fn line(stdin: impl BufRead) -> Result<Option<String>, CommandFailure> {
    let mut line = String::new();
    let read = stdin.take(LINE_BYTES_MAX).read_line(&mut line);
    let count =
        read.map_err(|error| CommandFailure::usage(format!("cannot read a line: {error}")))?;
    Ok((count > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
}

/// A turn that could not be taken.
struct FailedTurn {
    failure: CommandFailure,
    /// True: the agent has said nothing of the line.
    is_unheard: bool,
}

impl FailedTurn {
    /// True: the task that the turn before left waiting has ended by itself.
    fn is_over(&self, on: &Invocation<'_>) -> bool {
        use FaultKind::{TaskNotFound, TaskTerminal, UnsupportedOperation};
        let is_named = |kind: FaultKind| self.failure.code.name() == kind.error_name();
        let is_gone = [TaskTerminal, TaskNotFound, UnsupportedOperation].into_iter().any(is_named);
        self.is_unheard && is_gone && on.settings.text("task-id").is_some()
    }
}

/// One turn, which has this time.
async fn turn_within(
    agent: &CalledAgent,
    on: &mut Invocation<'_>,
    line: &str,
    timeout: Option<Duration>,
) -> Result<(), FailedTurn> {
    let Some(timeout) = timeout else { return turn(agent, on, line).await };
    match tokio::time::timeout(timeout, turn(agent, on, line)).await {
        Ok(turned) => turned,
        Err(_) => Err(FailedTurn { failure: late(on, timeout), is_unheard: false }),
    }
}

/// One turn: the conversation goes on, and the task as long as it waits for an answer.
async fn turn(agent: &CalledAgent, on: &mut Invocation<'_>, line: &str) -> Result<(), FailedTurn> {
    let failed = |failure, is_unheard| FailedTurn { failure, is_unheard };
    let request = send::addressed(on, SendRequest::text(line));
    let request = request.map_err(|failure| failed(failure, false))?;
    let mut followed = FollowedStream::after_message(on);
    if agent.client.card().streams() {
        let stream = agent.client.stream(&request).await;
        let mut stream = stream.map_err(|error| failed(failure(on, error), true))?;
        if let Err(error) = wait::follow(on, &mut stream, &mut followed).await {
            return Err(failed(failure(on, error), followed.task_id.is_empty()));
        }
        followed.end(on);
    } else if let Err(failure) = send::send(agent, on, &request).await {
        // Any answer says another state.
        let is_unheard = on.known().is_some_and(|task| task.state == TaskState::Unspecified);
        return Err(failed(failure, is_unheard));
    }
    let Some(task) = on.known() else { return Ok(()) };
    if !task.context_id.is_empty() {
        on.settings.say("context-id", &task.context_id);
    }
    let id = if task.state.is_interrupted() { task.id.as_str() } else { "" };
    on.settings.say("task-id", id);
    Ok(())
}
