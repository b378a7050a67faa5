//! `bench`: load on an agent, and a report of how it held.

mod flags;
mod sweep;
mod target;

use std::{fs, io::Write, path::Path, time::SystemTime};

use peregrine::load::{
    LoadPlan, Objective,
    report::{LoadReport, TargetReport},
};

use super::{
    calls::Invocation,
    failure::{CommandFailure, FailureCode},
    say,
    settings::OutputFormat,
    tell,
};
use flags::BenchPlan;
use target::BenchTarget;

pub use flags::command;

/// Puts load on the agent.
///
/// # Errors
/// A [`CommandFailure`]: the agent cannot be called, a report cannot be written, or an assertion
/// does not hold.
pub fn run(on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let asked = flags::plan(on)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| internal(format!("the system has no room: {error}")))?;
    let url = on.settings.text("agent-card").or_else(|| on.settings.text("endpoint"));
    let url = url.unwrap_or_default();
    let target = runtime.block_on(BenchTarget::of(on, url, &asked))?;
    let started_at = SystemTime::now();
    let reports = match asked.sweep {
        Some(sweep) => vec![sweep.run(&target, &asked, &runtime)?],
        None => phases(&target, &asked, &runtime)?,
    };
    let report = LoadReport::new(reports, started_at, &command_line(on));
    write(on, &report, &asked.reports)?;
    asserted(&report, &asked.assertions)
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

/// Writes what was measured to the files and to stdout.
fn write(on: &Invocation<'_>, report: &LoadReport, files: &[&Path]) -> Result<(), CommandFailure> {
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

/// What a plan of a phase is made from, where a workload says nothing else.
fn named(plan: LoadPlan) -> LoadPlan {
    let names: Vec<&str> = plan.calls.iter().map(|call| call.operation.name()).collect();
    LoadPlan { name: names.join(", "), ..plan }
}
