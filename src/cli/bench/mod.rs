//! `bench`: puts load on an agent and reports the result.

mod flags;
mod live;
mod merge;
mod rounds;
mod shown;
mod sweep;
mod target;

use std::{
    fs,
    path::Path,
    time::{Instant, SystemTime},
};

use clap::{ArgMatches, Command};
use peregrine::load::{
    FloorServer, SelfTestLine, SelfTestVerdict,
    report::{LoadReport, TargetReport},
    self_test, write_recording,
};

use super::{
    calls::{Invocation, runtime},
    eprint,
    failure::{CommandFailure, FailureCode},
    json_line::json_lines,
    print,
    settings::{OutputFormat, Settings},
};
use flags::BenchPlan;
use target::{BenchTarget, TargetAddress};

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
    let bench = flags::plan(on)?;
    can_be_written(&bench.reports)?;
    let runtime = runtime()?;
    let url = on.settings.text("agent-card").or_else(|| on.settings.text("endpoint"));
    let url = url.unwrap_or_default();
    if let Some(path) = bench.record {
        record(&bench, path)?;
    }
    let address = TargetAddress { url, pid: bench.pids.first().copied() };
    let target = runtime.block_on(BenchTarget::of(on, address, &bench))?;
    let started_at = SystemTime::now();
    let (reports, comparisons) = match bench.sweep {
        Some(sweep) => (vec![sweep.run(&target, &bench, &runtime)?], Vec::new()),
        None if bench.has_floor || !bench.compared.is_empty() => {
            rounds::compare_in_rounds(on, target, &bench, &runtime)?
        }
        None => (phases(&target, &bench, &runtime)?, Vec::new()),
    };
    let mut report = LoadReport::new(reports, started_at, &command_line(&on.settings));
    report.comparisons = comparisons;
    write(&report, &bench.reports, on.format)?;
    asserted(&report, &bench)
}

/// Writes the calls of the single phase to a file.
fn record(bench: &BenchPlan<'_>, path: &Path) -> Result<(), CommandFailure> {
    let [plan] = &bench.phases[..] else {
        let line = "--record supports one phase, and the workload has several";
        return Err(CommandFailure::usage(line));
    };
    let lines = write_recording(plan);
    let lines = lines.map_err(|why| CommandFailure::usage(format!("--record: {why}")))?;
    fs::write(path, lines).map_err(|error| unwritable(path, &error))
}

/// Measures the generator itself, and prints its errors.
///
/// # Errors
/// A [`CommandFailure`]: no threads or sockets are available.
pub fn run_self_test() -> Result<(), CommandFailure> {
    let heads = ["what", "true ms", "reported", "error"];
    print(&format!("{:<58}{:>10}{:>10}{:>10}\n", heads[0], heads[1], heads[2], heads[3]));
    let mut verdict = SelfTestVerdict::default();
    self_test(&mut |line: &SelfTestLine| {
        verdict.add(line);
        let truth = line.true_us.map_or("-".to_owned(), |us| format!("{:.3}", us / 1e3));
        let error = match line.true_us {
            Some(us) if us > 0.0 => format!("{:+.1} %", (line.reported_us / us - 1.0) * 100.0),
            Some(_) | None => String::new(),
        };
        let reported = line.reported_us / 1e3;
        print(&format!("{:<58}{truth:>10}{reported:>10.3}{error:>10}\n", line.what));
    })
    .map_err(internal)?;
    print(&format!("{verdict}\n"));
    Ok(())
}

/// The hidden command that answers with as little work as possible, until its input ends.
///
/// # Errors
/// The error in one line.
pub fn run_floor(flags: &ArgMatches) -> Result<(), String> {
    let bytes = flags.get_one::<String>("bytes").and_then(|bytes| bytes.parse().ok());
    let runtime = runtime().map_err(|failure| failure.message)?;
    // The command ends with its parent process, which closes stdin.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let served = runtime.block_on(async {
        let server = FloorServer::bind(bytes.unwrap_or_default(), None, Instant::now()).await?;
        print(&format!("http://{}\n", server.addr()?));
        server.serve().await
    });
    served.map_err(|error| error.to_string())
}

/// Runs the plans in order.
fn phases(
    target: &BenchTarget<'_>,
    bench: &BenchPlan<'_>,
    runtime: &tokio::runtime::Runtime,
) -> Result<Vec<TargetReport>, CommandFailure> {
    let mut reports = Vec::new();
    for plan in &bench.phases {
        if bench.phases.len() > 1 {
            eprint(&format!("{}\n", plan.name));
        }
        let Some(loaded) = runtime.block_on(target.load(plan))? else { break };
        reports.push(TargetReport::of(&loaded));
        if loaded.is_interrupted {
            break;
        }
    }
    match reports.is_empty() {
        true => Err(internal("interrupted before the calls began".to_owned())),
        false => Ok(reports),
    }
}

/// Rejects unwritable files before the run.
fn can_be_written(files: &[&Path]) -> Result<(), CommandFailure> {
    for path in files {
        let opened = fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| unwritable(path, &error))?;
    }
    Ok(())
}

/// Writes a report to stdout and to the files; an unwritable file does not prevent the others.
fn write(report: &LoadReport, files: &[&Path], format: OutputFormat) -> Result<(), CommandFailure> {
    match format {
        OutputFormat::Json => print(&json_lines(&report.json())),
        OutputFormat::Text => print(&report.text()),
    }
    let mut failed = Ok(());
    for path in files {
        let text = match path.extension().and_then(|end| end.to_str()) {
            Some("html") => report.html(),
            Some("json") => report.json(),
            Some("csv") => report.csv(),
            _ => report.text(),
        };
        if let Err(error) = fs::write(path, text) {
            failed = Err(unwritable(path, &error));
        }
    }
    failed
}

/// Checks the assertions for every target.
///
/// # Errors
/// A [`CommandFailure`]: an assertion fails or was not measured, because no call counted or the
/// user ended the run early.
fn asserted(report: &LoadReport, bench: &BenchPlan<'_>) -> Result<(), CommandFailure> {
    if bench.assertions.is_empty() {
        return Ok(());
    }
    let mut broken = Vec::new();
    let is_whole = bench.sweep.is_some() || report.targets.len() >= bench.phases.len();
    if !is_whole || report.targets.iter().any(|target| target.interrupted) {
        broken.push("the run was ended early".to_owned());
    }
    for target in &report.targets {
        if target.requests == 0 {
            broken.push(format!("{}: no call was counted", target.plan.name));
        }
        let failed = bench.assertions.iter().filter_map(|assertion| assertion.check(target).err());
        broken.extend(failed.map(|line| format!("{}: {line}", target.plan.name)));
    }
    match broken.is_empty() {
        true => Ok(()),
        false => Err(CommandFailure::new(FailureCode::Internal, broken.join("; "))),
    }
}

/// The command line for a report: without the values of secrets.
fn command_line(settings: &Settings) -> String {
    let words = super::words();
    settings.redaction().clean(&format!("peregrine {}", words.join(" ")))
}

fn unwritable(path: &Path, error: &std::io::Error) -> CommandFailure {
    internal(format!("cannot write {}: {error}", path.display()))
}

fn internal(line: String) -> CommandFailure {
    CommandFailure::new(FailureCode::Internal, line)
}
