//! `bench`: load on an agent, and a report of how it held.

mod flags;
mod live;
mod merge;
mod rounds;
mod shown;
mod sweep;
mod target;

use std::{
    fs,
    io::Write,
    path::Path,
    time::{Instant, SystemTime},
};

use clap::{ArgMatches, Command};
use peregrine::load::{
    FloorServer, Objective, SelfTestLine,
    report::{LoadReport, TargetReport},
    self_test, write_recording,
};

use super::{
    calls::{Invocation, runtime},
    failure::{CommandFailure, FailureCode},
    say,
    settings::{OutputFormat, Settings},
    tell,
};
use flags::BenchPlan;
use target::{BenchTarget, TargetPlace};

pub use merge::run as run_report;
pub use rounds::FLOOR_COMMAND;

/// Adds the options and the inner command to the command.
pub fn command(command: Command) -> Command {
    flags::command(command).subcommand(merge::command())
}

/// Puts load on the agent.
///
/// # Errors
/// A [`CommandFailure`]: the agent cannot be called, a report cannot be written, or an assertion
/// does not hold.
pub fn run(on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let asked = flags::plan(on)?;
    let runtime = runtime()?;
    let url = on.settings.text("agent-card").or_else(|| on.settings.text("endpoint"));
    let url = url.unwrap_or_default();
    if let Some(path) = asked.record {
        record(&asked, path)?;
    }
    let place = TargetPlace { url, pid: asked.pids.first().copied() };
    let target = runtime.block_on(BenchTarget::of(on, place, &asked))?;
    let started_at = SystemTime::now();
    let (reports, comparisons) = match asked.sweep {
        Some(sweep) => (vec![sweep.run(&target, &asked, &runtime)?], Vec::new()),
        None if asked.has_floor || !asked.compared.is_empty() => {
            rounds::compare_in_rounds(on, target, &asked, &runtime)?
        }
        None => (phases(&target, &asked, &runtime)?, Vec::new()),
    };
    let mut report = LoadReport::new(reports, started_at, &command_line(&on.settings));
    report.comparisons = comparisons;
    write(&report, &asked.reports, on.format)?;
    asserted(&report, &asked.assertions)
}

/// Writes the calls of the one phase to a file.
fn record(asked: &BenchPlan<'_>, path: &Path) -> Result<(), CommandFailure> {
    let [plan] = &asked.phases[..] else {
        let line = "--record is of one phase, and the workload has several";
        return Err(CommandFailure::usage(line));
    };
    let Some(lines) = write_recording(plan) else {
        let line = "--record is of calls at a rate; in a closed loop the answers decide the times";
        return Err(CommandFailure::usage(line));
    };
    fs::write(path, lines).map_err(|error| unwritable(path, &error))
}

/// Measures the generator itself, and prints what it adds.
///
/// # Errors
/// A [`CommandFailure`]: there is no room for threads or sockets.
pub fn run_self_test() -> Result<(), CommandFailure> {
    let heads = ["what", "true ms", "reported", "error"];
    say(&format!("{:<58}{:>10}{:>10}{:>10}\n", heads[0], heads[1], heads[2], heads[3]));
    self_test(&mut |line: &SelfTestLine| {
        let truth = line.true_us.map_or("-".to_owned(), |us| format!("{:.3}", us / 1e3));
        let error = match line.true_us {
            Some(us) if us > 0.0 => format!("{:+.1} %", (line.reported_us / us - 1.0) * 100.0),
            Some(_) | None => String::new(),
        };
        let reported = line.reported_us / 1e3;
        say(&format!("{:<58}{truth:>10}{reported:>10.3}{error:>10}\n", line.what));
    })
    .map_err(internal)
}

/// The hidden command that answers with as little work as possible, until its input ends.
///
/// # Errors
/// What is wrong, in one line.
pub fn run_floor(flags: &ArgMatches) -> Result<(), String> {
    let bytes = flags.get_one::<String>("bytes").and_then(|bytes| bytes.parse().ok());
    let runtime = runtime().map_err(|failure| failure.message)?;
    // It ends with the process that has started it.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let served = runtime.block_on(async {
        let server = FloorServer::bind(bytes.unwrap_or_default(), None, Instant::now()).await?;
        say(&format!("http://{}\n", server.addr()?));
        server.serve().await
    });
    served.map_err(|error| error.to_string())
}

/// Runs one plan after the other.
fn phases(
    target: &BenchTarget<'_>,
    asked: &BenchPlan<'_>,
    runtime: &tokio::runtime::Runtime,
) -> Result<Vec<TargetReport>, CommandFailure> {
    let mut reports = Vec::new();
    for plan in &asked.phases {
        if asked.phases.len() > 1 {
            tell(&format!("{}\n", plan.name));
        }
        let loaded = runtime.block_on(target.load(plan))?;
        reports.push(TargetReport::of(&loaded.target));
        if loaded.is_interrupted {
            break;
        }
    }
    Ok(reports)
}

/// Writes a report to the files and to stdout.
fn write(report: &LoadReport, files: &[&Path], format: OutputFormat) -> Result<(), CommandFailure> {
    for path in files {
        let text = match path.extension().and_then(|end| end.to_str()) {
            Some("html") => report.html(),
            Some("json") => report.json(),
            Some("csv") => report.csv(),
            _ => report.text(),
        };
        let mut file = fs::File::create(path).map_err(|error| unwritable(path, &error))?;
        file.write_all(text.as_bytes()).map_err(|error| unwritable(path, &error))?;
    }
    match format {
        OutputFormat::Json => say(&format!("{}\n", report.json())),
        OutputFormat::Text => say(&report.text()),
    }
    Ok(())
}

/// Checks what the user asserts of every target.
fn asserted(report: &LoadReport, assertions: &[Objective]) -> Result<(), CommandFailure> {
    let mut broken = Vec::new();
    for target in &report.targets {
        let failed = assertions.iter().filter_map(|assertion| assertion.check(target).err());
        broken.extend(failed.map(|line| format!("{}: {line}", target.plan.name)));
    }
    match broken.is_empty() {
        true => Ok(()),
        false => Err(CommandFailure::new(FailureCode::Internal, broken.join("; "))),
    }
}

/// The command line as a report shows it: without the values of secrets.
fn command_line(settings: &Settings) -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    settings.redaction().clean(&format!("peregrine {}", words.join(" ")))
}

fn unwritable(path: &Path, error: &std::io::Error) -> CommandFailure {
    internal(format!("cannot write {}: {error}", path.display()))
}

fn internal(line: String) -> CommandFailure {
    CommandFailure::new(FailureCode::Internal, line)
}
