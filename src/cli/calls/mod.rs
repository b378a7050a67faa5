//! The commands that call an agent.
//!
//! Invariant: one command is one future on one thread. It ends on completion, by `--timeout`, or by
//! Ctrl-C; the last two end the wait, leave the task running, and show how to find the task again.
//! In a `chat` at a terminal they end only the turn.

mod agent;
mod card;
mod card_cache;
mod chat;
mod conformance;
mod download;
mod endpoint;
mod explain;
mod invocation;
mod kit;
mod login;
mod push_config;
mod send;
mod show;
mod talk;
mod task;
mod tokens;
mod trace;
mod unused;
mod wait;

use std::{
    cell::Cell,
    future::Future,
    pin::{Pin, pin},
    rc::Rc,
    task::Poll,
    time::Duration,
};

use clap::ArgMatches;

use super::{
    bench,
    failure::{CommandFailure, FailureCode},
    settings::{OutputFormat, Settings},
};
pub use agent::{CalledAgent, client_tls, file, http_options};
pub use explain::failure as explained;
pub use invocation::Invocation;
use invocation::{CommandForm, ObservedTask, last_word};

/// The commands, and the words of each after the agent.
const FORMS: &[CommandForm] = &[
    form("send", &["\"TEXT\""], true),
    form("card get", &[], false),
    form("card lint", &[], false),
    form("card verify", &[], false),
    form("task get", &["ID"], false),
    form("task list", &[], false),
    form("task cancel", &["ID"], false),
    form("task subscribe", &["ID"], false),
    form("task download", &["ID"], false),
    form("task push-config create", &["TASK"], false),
    form("task push-config get", &["TASK", "CONFIG"], false),
    form("task push-config list", &["TASK"], false),
    form("task push-config delete", &["TASK", "CONFIG"], false),
    form("chat", &[], false),
    form("conformance", &[], false),
    form("bench", &[], false),
    form("auth login", &[], false),
];

const fn form(path: &'static str, words: &'static [&'static str], may_lack: bool) -> CommandForm {
    CommandForm { path, words, may_lack }
}

/// Runs one of the commands.
///
/// # Errors
/// A [`CommandFailure`].
pub fn run(
    path: &str,
    flags: &ArgMatches,
    settings: Settings,
    format: OutputFormat,
) -> Result<(), CommandFailure> {
    let form = FORMS.iter().find(|form| form.path == path);
    let form = form.ok_or_else(|| CommandFailure::usage(format!("unknown command {path}")))?;
    let timeout = settings.time("timeout")?;
    if path == "bench" && flags.get_flag("self-test") {
        return bench::run_self_test();
    }
    let mut on = Invocation::new(flags, settings, format, form)?;
    if path == "bench" {
        return bench::run(&on);
    }
    let runtime = runtime()?;
    // The timeout of a chat applies to each turn.
    let whole = timeout.filter(|_| path != "chat");
    let is_interrupt_handled = Rc::clone(&on.handles_interrupts);
    let ended = runtime.block_on(async {
        until(pin!(call(form.path, &mut on)), whole, &is_interrupt_handled).await
    });
    // Stops waiting for a line.
    runtime.shutdown_background();
    match ended {
        Ended::Itself(result) => result.map_err(|failed| lost(&on, failed)),
        Ended::Late => Err(late(&on, timeout.unwrap_or_default())),
        Ended::Interrupted => Err(interrupted(&on)),
    }
}

/// A runtime on this thread.
///
/// # Errors
/// A [`CommandFailure`]: the system has no resources for a runtime.
pub fn runtime() -> Result<tokio::runtime::Runtime, CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| {
        CommandFailure::new(FailureCode::Internal, format!("cannot start the runtime: {error}"))
    })
}

async fn call(path: &str, on: &mut Invocation<'_>) -> Result<(), CommandFailure> {
    // An invalid message is reported before a call is made.
    let request = if path == "send" { Some(send::request(on)?) } else { None };
    understood(path, on)?;
    unused::warn_of_tenant(on);
    match path {
        "card get" => return card::get(on).await,
        "card lint" => return card::check(on).await,
        "card verify" => return card::check_signatures(on).await,
        "auth login" => return login::login(on).await,
        "conformance" => return conformance::check(on).await,
        _ => {}
    }
    let agent = CalledAgent::of(on).await?;
    match (path, request) {
        ("send", Some(request)) => send::send(&agent, on, &request).await,
        ("task get", _) => task::get(&agent, on).await,
        ("task list", _) => task::list(&agent, on).await,
        ("task cancel", _) => task::cancel(&agent, on).await,
        ("task subscribe", _) => task::subscribe(&agent, on).await,
        ("task download", _) => download::download(&agent, on).await,
        ("task push-config create", _) => push_config::create(&agent, on).await,
        ("task push-config get", _) => push_config::get(&agent, on).await,
        ("task push-config list", _) => push_config::list(&agent, on).await,
        ("task push-config delete", _) => push_config::delete(&agent, on).await,
        ("chat", _) => chat::chat(&agent, on).await,
        (other, _) => Err(CommandFailure::usage(format!("unknown command {other}"))),
    }
}

/// Rejects invalid arguments before the first call: after a sent message, the error would hide the
/// outcome of the message.
fn understood(path: &str, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let waits = on.settings.waits()?;
    on.settings.time("poll-interval")?;
    on.flag_number::<u32>("history")?;
    on.flag_number::<u64>("last-event-id")?;
    match path {
        "send" => send::streams(on, waits)?,
        "chat" | "task cancel" => drop(on.metadata()?),
        "task list" => drop(task::wanted(on)?),
        "task push-config create" => drop(push_config::wanted(on)?),
        _ => {}
    }
    Ok(())
}

/// The end of a command, or of a turn in a chat.
enum Ended<R> {
    Itself(R),
    Late,
    Interrupted,
}

/// Runs a command until it ends, times out or is interrupted. `is_interrupt_handled`: while true,
/// other code handles Ctrl-C.
async fn until<R>(
    mut call: Pin<&mut impl Future<Output = R>>,
    timeout: Option<Duration>,
    is_interrupt_handled: &Cell<bool>,
) -> Ended<R> {
    // Longer than any timeout that can be set.
    let forever = Duration::from_secs(10 * 366 * 24 * 3600);
    let mut late = pin!(tokio::time::sleep(timeout.unwrap_or(forever)));
    let mut interrupted = Box::pin(tokio::signal::ctrl_c());
    std::future::poll_fn(|cx| {
        if let Poll::Ready(result) = call.as_mut().poll(cx) {
            return Poll::Ready(Ended::Itself(result));
        }
        // If signals cannot be handled, the default action ends the process.
        while let Poll::Ready(Ok(())) = interrupted.as_mut().poll(cx) {
            if !is_interrupt_handled.get() {
                return Poll::Ready(Ended::Interrupted);
            }
            interrupted.set(tokio::signal::ctrl_c());
        }
        late.as_mut().poll(cx).map(|()| Ended::Late)
    })
    .await
}

/// Adds the task to a failure: the task may continue although the wait for it failed or its agent
/// became unreachable.
fn lost(on: &Invocation<'_>, failed: CommandFailure) -> CommandFailure {
    let is_unreachable = failed.code == FailureCode::Unreachable && failed.hint.is_none();
    let may_continue = is_unreachable || on.is_waiting();
    match on.task().filter(|task| may_continue && !task.state.is_terminal()) {
        Some(task) if !task.id.is_empty() => {
            on.print_task();
            let next = on.command("task get", &format!("--wait {}", last_word(&task.id)));
            let first = failed.hint.clone().filter(|hint| hint != explain::DEBUG);
            failed.hint(first.map_or(next.clone(), |first| format!("{first}; then {next}")))
        }
        Some(_) | None => failed,
    }
}

/// The failure of a timeout.
fn late(on: &Invocation<'_>, timeout: Duration) -> CommandFailure {
    let seconds = timeout.as_secs_f64();
    match on.task() {
        Some(task) if !task.state.is_terminal() => {
            on.print_task();
            let line = format!("{} is still running after {seconds} s", on.named(&task));
            let hint = on.command("task get", &format!("--wait {}", last_word(&task.id)));
            CommandFailure::new(FailureCode::Timeout, line).hint(hint)
        }
        Some(_) => {
            CommandFailure::new(FailureCode::Timeout, format!("timed out after {seconds} s"))
        }
        None => {
            let line = format!("the agent did not respond within {seconds} s");
            CommandFailure::new(FailureCode::Timeout, line)
        }
    }
}

fn interrupted(on: &Invocation<'_>) -> CommandFailure {
    let unfinished = on.task().filter(|task| !task.state.is_terminal());
    match (on.path, &unfinished) {
        ("chat", _) => chat::goodbye(on),
        (_, Some(_)) => on.print_task(),
        (_, None) => {}
    }
    interruption(on, unfinished)
}

/// The failure for Ctrl-C. `task`: the task that continues; `None`: no task does.
fn interruption(on: &Invocation<'_>, task: Option<ObservedTask>) -> CommandFailure {
    match task.filter(|task| !task.state.is_terminal()) {
        Some(task) => {
            let line = format!("interrupted; {} is still running", on.named(&task));
            let cancel = on.command("task cancel", &last_word(&task.id));
            CommandFailure::new(FailureCode::Interrupted, line).hint(cancel)
        }
        None => CommandFailure::new(FailureCode::Interrupted, "interrupted"),
    }
}
