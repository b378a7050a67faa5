//! `chat`: one turn for each line of the standard input.
//!
//! Invariant: at a terminal the user edits lines after a prompt, and the agent's text appears
//! below. Ctrl-C clears the line or ends the turn, Ctrl-D ends the session; a failed turn does not
//! end it. The history is in memory only, since a line may be a secret. From a pipe, `chat` reads
//! lines until the end of the input, without a prompt, shows events as `send --stream` does, and
//! ends the session at the first failure.

use std::{
    cell::Cell,
    future::Future,
    io::{self, BufRead, IsTerminal},
    pin::pin,
    task::Poll,
    time::Duration,
};

use peregrine::{client::SendRequest, fault::FaultKind, model::TaskState};
use rustyline::{DefaultEditor, error::ReadlineError};

use super::{
    super::{eprint, failure::CommandFailure, print, settings::OutputFormat, text::one_line, warn},
    CalledAgent, Ended, Invocation, interruption,
    invocation::flag,
    late, send,
    show::FollowedStream,
    until,
};

/// Maximum bytes of a line from a pipe.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The prompt of each line at a terminal.
const PROMPT: &str = "> ";

/// Sends each line until the input ends.
///
/// # Errors
/// A [`CommandFailure`]: there is no terminal, a line cannot be read, or, from a pipe, a turn
/// failed.
pub async fn chat(agent: &CalledAgent, on: &mut Invocation<'_>) -> Result<(), CommandFailure> {
    let is_interactive = io::stdin().is_terminal();
    if is_interactive && !io::stdout().is_terminal() {
        let line = "chat needs a terminal, and its output is not one";
        return Err(CommandFailure::usage(line).hint("peregrine send"));
    }
    on.is_streaming = true;
    on.is_talk |= is_interactive && on.format == OutputFormat::Text && !on.is_verbose;
    let mut lines = ChatLines::Pipe;
    if is_interactive {
        lines = ChatLines::Terminal(Box::new(DefaultEditor::new().map_err(unread)?));
        on.handles_interrupts.set(true);
        let name = one_line(&agent.client.card().name);
        eprint(&format!("Chat with {name}; Ctrl-C ends a turn, Ctrl-D ends the chat\n"));
    }
    let timeout = on.settings.time("timeout")?;
    let mut has_turned = false;
    loop {
        let (read, back) = next_line(lines).await?;
        lines = back;
        let line = match read {
            ChatLine::Line(line) if line.trim().is_empty() => continue,
            ChatLine::Line(line) => line,
            ChatLine::Cleared => continue,
            ChatLine::End => {
                if is_interactive {
                    goodbye(on);
                }
                return Ok(());
            }
        };
        let mut turned = turn_within(agent, on, &line, timeout).await;
        if let Err(failed) = &turned
            && has_turned
            && failed.is_over(on)
        {
            warn("the task accepts no more messages; this line starts a new task in its context");
            on.settings.set("task-id", "");
            turned = turn_within(agent, on, &line, timeout).await;
        }
        match turned {
            Ok(()) => has_turned = true,
            Err(failed) if is_interactive => {
                eprint(&failed.failure.text());
                // An unfinished turn that reached the agent is part of the conversation.
                has_turned |= !failed.is_unanswered;
                remember(on);
            }
            Err(failed) => return Err(failed.failure),
        }
    }
}

/// The source of lines.
enum ChatLines {
    Terminal(Box<DefaultEditor>),
    Pipe,
}

/// The result of reading a line.
enum ChatLine {
    Line(String),
    /// Ctrl-C: the line is discarded.
    Cleared,
    End,
}

/// The next line, read on a separate thread so that Ctrl-C is handled meanwhile.
async fn next_line(mut lines: ChatLines) -> Result<(ChatLine, ChatLines), CommandFailure> {
    let is_terminal = matches!(lines, ChatLines::Terminal(_));
    let read = move || lines.read().map(|read| (read, lines));
    let mut read = pin!(tokio::task::spawn_blocking(read));
    let mut interrupt = Box::pin(tokio::signal::ctrl_c());
    let read = std::future::poll_fn(|cx| {
        // A terminal without line editing discards the line itself and sends the signal.
        while is_terminal && matches!(interrupt.as_mut().poll(cx), Poll::Ready(Ok(()))) {
            interrupt.set(tokio::signal::ctrl_c());
            print(&format!("\n{PROMPT}"));
        }
        read.as_mut().poll(cx)
    });
    read.await.map_err(|_| CommandFailure::usage("the standard input cannot be read"))?
}

impl ChatLines {
    fn read(&mut self) -> Result<ChatLine, CommandFailure> {
        let ChatLines::Terminal(editor) = self else { return piped_line(io::stdin().lock()) };
        match editor.readline(PROMPT) {
            Ok(line) => {
                if !line.trim().is_empty() {
                    // The line is sent even if it cannot be added to the history.
                    let _ = editor.add_history_entry(&line);
                }
                Ok(ChatLine::Line(line))
            }
            Err(ReadlineError::Interrupted) => Ok(ChatLine::Cleared),
            Err(ReadlineError::Eof) => Ok(ChatLine::End),
            Err(error) => Err(unread(error)),
        }
    }
}

fn piped_line(stdin: impl BufRead) -> Result<ChatLine, CommandFailure> {
    let mut line = String::new();
    match stdin.take(LINE_BYTES_MAX).read_line(&mut line).map_err(unread)? {
        0 => Ok(ChatLine::End),
        _ => Ok(ChatLine::Line(line.trim_end_matches(['\n', '\r']).to_owned())),
    }
}

fn unread(error: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::usage(format!("cannot read a line: {error}"))
}

/// Shows the command that continues the conversation, because this command stores nothing (the
/// command line's specification, §6.3).
pub fn goodbye(on: &Invocation<'_>) {
    on.print_task();
    let Some(task) = on.task().filter(|_| on.format == OutputFormat::Text) else { return };
    let mut output = on.text();
    if task.state.is_interrupted() {
        output.field("Next", &on.resume(&task.id));
    } else if !task.context_id.is_empty() {
        let rest = flag("context-id", &task.context_id);
        output.field("Next", &on.command("chat", &rest));
    }
    print(&output.text);
}

/// A failed turn.
struct FailedTurn {
    failure: CommandFailure,
    /// True: the agent has not reacted to the line.
    is_unanswered: bool,
}

impl FailedTurn {
    /// True: the task that waited after the previous turn has ended meanwhile.
    fn is_over(&self, on: &Invocation<'_>) -> bool {
        use FaultKind::{TaskNotFound, TaskTerminal, UnsupportedOperation};
        let is_named = |kind: FaultKind| self.failure.code.name() == kind.error_name();
        let is_closed =
            [TaskTerminal, TaskNotFound, UnsupportedOperation].into_iter().any(is_named);
        self.is_unanswered && is_closed && on.settings.text("task-id").is_some()
    }
}

/// One turn with a time limit; Ctrl-C at a terminal ends the turn. Its task continues.
async fn turn_within(
    agent: &CalledAgent,
    on: &mut Invocation<'_>,
    line: &str,
    timeout: Option<Duration>,
) -> Result<(), FailedTurn> {
    let before = on.task();
    let is_interrupt_handled = Cell::new(!on.handles_interrupts.get());
    let ended = until(pin!(turn(agent, on, line)), timeout, &is_interrupt_handled).await;
    let failure = match ended {
        Ended::Itself(turned) => return turned,
        Ended::Late => late(on, timeout.unwrap_or_default()),
        Ended::Interrupted => {
            // Ends the line of the received text and of the ^C that the terminal echoes.
            eprint("\n");
            interruption(on, on.task().filter(|_| on.task() != before))
        }
    };
    Err(FailedTurn { failure, is_unanswered: false })
}

/// One turn. It continues the conversation, and its task if the task waits for an answer.
async fn turn(agent: &CalledAgent, on: &mut Invocation<'_>, line: &str) -> Result<(), FailedTurn> {
    let failed = |failure, is_unanswered| FailedTurn { failure, is_unanswered };
    let request = send::addressed(on, SendRequest::text(line));
    let request = request.map_err(|failure| failed(failure, false))?;
    let mut followed = FollowedStream::after_message(on);
    if agent.client.card().streams() {
        let before = on.task();
        let sent = send::send_and_follow(agent, on, &request, &mut followed).await;
        if let Err(failure) = sent {
            // Without a stream the answer names the task; before the answer, only the command line
            // does.
            let has_new_state = on.task() != before
                && on.task().is_some_and(|task| task.state != TaskState::Unspecified);
            return Err(failed(failure, followed.task_id.is_empty() && !has_new_state));
        }
    } else if let Err(failure) = send::send(agent, on, &request).await {
        // The state is unspecified until an answer has arrived.
        let is_unanswered = on.task().is_some_and(|task| task.state == TaskState::Unspecified);
        return Err(failed(failure, is_unanswered));
    }
    remember(on);
    Ok(())
}

/// Makes the next line continue the conversation, and the task if it waits for an answer.
fn remember(on: &mut Invocation<'_>) {
    let Some(task) = on.task() else { return };
    if !task.context_id.is_empty() {
        on.settings.set("context-id", &task.context_id);
    }
    let id = if task.state.is_interrupted() { task.id.as_str() } else { "" };
    on.settings.set("task-id", id);
}
