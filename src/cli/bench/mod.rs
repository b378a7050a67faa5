//! `bench`: load on an agent, and a report of how it held.

mod flags;

use std::{
    fs,
    future::poll_fn,
    io::Write,
    path::Path,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use peregrine::{
    client::{CallOptions, Client, Transport, retry::Backoff},
    load::{LoadPlan, LoadRun, LoadedTarget, ProbedTransport, echoes, report::LoadReport},
    net::{HttpClient, HttpClientOptions},
};

use super::{
    calls::{CalledAgent, Invocation, explained, http_options},
    failure::{CommandFailure, FailureCode},
    say,
    settings::OutputFormat,
    tell, warn,
};

pub use flags::command;

/// How often a line says how the run goes.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Time for the first call, which shows whether the agent answers at all.
const FIRST_CALL: Duration = Duration::from_secs(30);

/// Puts load on the agent.
///
/// # Errors
/// A [`CommandFailure`]: the agent cannot be called, a report cannot be written, or an assertion
/// does not hold.
pub fn run(on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let mut plan = flags::plan(on)?;
    let files = flags::reports(on)?;
    let pid = flags::pid(on)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| internal(format!("the system has no room: {error}")))?;
    let agent = runtime.block_on(first_call(on, &mut plan))?;
    let interface = agent.client.interface();
    let interface = format!("{} {}", interface.binding.name(), interface.version);
    let url = on.settings.text("agent-card").unwrap_or_default();
    let target = runtime.block_on(load(on, &agent, &plan, pid))?;
    let target = target.finish(url, &interface).map_err(internal)?;
    report(on, &[target], &files)
}

/// Calls the agent once, before load hides what is wrong.
async fn first_call(
    on: &Invocation<'_>,
    plan: &mut LoadPlan,
) -> Result<CalledAgent, CommandFailure> {
    let agent = CalledAgent::of(on).await?;
    let answered = tokio::time::timeout(FIRST_CALL, echoes(&agent.client)).await;
    let late = || {
        let line = format!("the agent has not answered within {} s", FIRST_CALL.as_secs());
        CommandFailure::new(FailureCode::Timeout, line)
    };
    plan.echoes = answered.map_err(|_| late())?.map_err(|error| explained(on, error))?;
    Ok(agent)
}

/// Runs the plan, and says meanwhile how it goes. Ctrl-C ends it early.
async fn load(
    on: &Invocation<'_>,
    agent: &CalledAgent,
    plan: &LoadPlan,
    pid: Option<u32>,
) -> Result<LoadRun, CommandFailure> {
    let options = CallOptions {
        call_ms: plan.call_timeout.as_millis() as u64,
        backoff: Backoff { attempts_max: 1, ..Backoff::default() },
        ..CallOptions::default()
    };
    let http = HttpClientOptions { limits: flags::limits(plan), ..http_options(&on.settings)? };
    let client = agent.client.clone();
    let maker = move || worker_client(&client, &http, &options);
    let mut run = LoadRun::start(plan, maker, pid).map_err(internal)?;
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut told = Instant::now();
    while !run.is_over() {
        let mut pause = pin!(tokio::time::sleep(Duration::from_millis(50)));
        let is_interrupted = poll_fn(|cx| match interrupted.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => pause.as_mut().poll(cx).map(|()| false),
        });
        if is_interrupted.await {
            warn("interrupted: the report is of what there is");
            run.stop();
            break;
        }
        run.sample_when_due();
        if told.elapsed() >= LINE_EVERY {
            told = Instant::now();
            tell(&progress(&run));
        }
    }
    Ok(run)
}

/// The client of one worker, with connections of its own.
fn worker_client<T: Transport>(
    client: &Client<T>,
    http: &HttpClientOptions,
    options: &CallOptions,
) -> Result<Client<ProbedTransport<HttpClient>>, String> {
    let inner = HttpClient::new(http.clone()).map_err(|error| error.to_string())?;
    Ok(client.over(ProbedTransport { inner }, options.clone()))
}

/// One line of how the run goes.
fn progress(run: &LoadRun) -> String {
    let measures = run.measures();
    // The last whole slice: the one before the one that is being filled.
    let slice = measures.slices.iter().rev().nth(1).cloned().unwrap_or_default();
    let ms = |quantile: f64| slice.latency.value_at_quantile(quantile) as f64 / 1e6;
    format!(
        "{:>5.0} s  {:>8.0} calls/s  p50 {:.3} ms  p99 {:.3} ms  {} unanswered  {} errors\n",
        run.elapsed().as_secs_f64(),
        slice.calls as f64 / measures.slice.as_secs_f64(),
        ms(0.5),
        ms(0.99),
        run.in_flight(),
        measures.total().failed()
    )
}

/// Writes what was measured, and checks what the user asserts.
fn report(
    on: &Invocation<'_>,
    targets: &[LoadedTarget],
    files: &[&Path],
) -> Result<(), CommandFailure> {
    let report = LoadReport::new(targets, &command_line(on));
    for path in files {
        let text = match path.extension().and_then(|end| end.to_str()) {
            Some("html") => report.html(),
            Some("json") => report.json(),
            _ => report.text(),
        };
        let mut file = fs::File::create(path).map_err(|error| unwritable(path, &error))?;
        file.write_all(text.as_bytes()).map_err(|error| unwritable(path, &error))?;
    }
    match on.format {
        OutputFormat::Json => say(&format!("{}\n", report.json())),
        OutputFormat::Text => say(&report.text()),
    }
    Ok(())
}

/// The command line as a report shows it: without the values of secrets.
fn command_line(on: &Invocation<'_>) -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    on.settings.redaction().clean(&format!("peregrine {}", words.join(" ")))
}

fn unwritable(path: &Path, error: &std::io::Error) -> CommandFailure {
    internal(format!("cannot write {}: {error}", path.display()))
}

fn internal(line: String) -> CommandFailure {
    CommandFailure::new(FailureCode::Internal, line)
}
