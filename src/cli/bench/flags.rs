//! The options of `bench`.

use std::{path::Path, time::Duration};

use clap::Command;
use peregrine::{
    client::ClientLimits,
    load::{Arrivals, CheckLevel, LoadOperation, LoadPace, LoadPlan},
};

use super::super::{
    calls::Invocation, command::flag, failure::CommandFailure, settings::milliseconds,
};

const HELP: &str = "\
Calls are due at --rate, whatever the agent does, and latency counts from then: a slow agent \
cannot make its own figures better. --concurrency makes calls one after the other instead. \
Exit codes: 0 done; 1 failure; 2 wrong usage; 3 no answer, or no card; 4 no or wrong credentials.";

/// Calls a second if nothing is said.
const RATE: f64 = 100.0;

/// Adds the options to the command.
pub fn command(command: Command) -> Command {
    command
        .arg(flag("scenario", "send|get|stream", "What each call does [default: send]"))
        .arg(flag("rate", "N", "Calls a second [default: 100]"))
        .arg(flag(
            "arrivals",
            "constant|poisson",
            "How the times between calls vary [default: constant]",
        ))
        .arg(flag("burstiness", "SHAPE", "Gamma arrivals: 1 is poisson, less comes in bursts"))
        .arg(flag("in-flight", "N", "Calls unanswered at one time, at most [default: 1000]"))
        .arg(flag("concurrency", "N", "Closed loop: so many calls at once, instead of a rate"))
        .arg(flag("duration", "TIME", "How long calls are counted [default: 10s]"))
        .arg(flag("warmup", "TIME", "How long before that they are not [default: 1s]"))
        .arg(flag("requests", "N", "Calls that are made, at most"))
        .arg(flag("workers", "N", "Threads of the generator [default: 1]"))
        .arg(flag("seed", "N", "The same seed makes the same calls [default: 1]"))
        .arg(flag("payload", "BYTES", "The text of a message [default: 64]"))
        .arg(flag("events", "N", "Events of each stream, 3 at least [default: 22]"))
        .arg(flag("check", "full|sample|off", "How many answers are checked [default: full]"))
        .arg(flag("pid", "PID", "The server's process on this machine, to be measured as well"))
        .arg(flag("out", "FILE", "A report: .html, .json or .txt; may be repeated"))
        .after_help(HELP)
}

/// What is to be done.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn plan(on: &Invocation<'_>) -> Result<LoadPlan, CommandFailure> {
    let scenario = on.flag("scenario").unwrap_or("send");
    let operation = LoadOperation::of_name(scenario)
        .ok_or_else(|| wrong("scenario", scenario, "none of send, get and stream"))?;
    Ok(LoadPlan {
        operations: vec![(operation, 1.0)],
        pace: pace(on)?,
        warmup: time(on, "warmup", "1s")?,
        duration: time(on, "duration", "10s")?,
        requests_max: on.flag_number("requests")?,
        in_flight_max: at_least_one(on, "in-flight", 1_000)?,
        call_timeout: on.settings.time("timeout")?.unwrap_or(Duration::from_secs(30)),
        workers: at_least_one(on, "workers", 1)?,
        seed: on.flag_number("seed")?.unwrap_or(1),
        check: check(on)?,
        payload_bytes: at_least_one(on, "payload", 64)?,
        stream_events: at_least_one(on, "events", 22)?.max(3) as u64,
        echoes: false,
    })
}

fn pace(on: &Invocation<'_>) -> Result<LoadPace, CommandFailure> {
    let rate = on.flag_number::<f64>("rate")?;
    if on.flag("concurrency").is_some() {
        if let Some(name) =
            ["rate", "arrivals", "burstiness"].into_iter().find(|f| on.flag(f).is_some())
        {
            let line = format!("--concurrency is a closed loop, where --{name} means nothing");
            return Err(CommandFailure::usage(line));
        }
        return Ok(LoadPace::Concurrency(at_least_one(on, "concurrency", 1)?));
    }
    let rate = rate.unwrap_or(RATE);
    if !(rate > 0.0 && rate <= 1e7) {
        return Err(wrong("rate", &rate.to_string(), "between 0 and 10,000,000 calls a second"));
    }
    let shape = on.flag_number::<f64>("burstiness")?;
    let arrivals = match (on.flag("arrivals"), shape) {
        (None | Some("gamma"), Some(shape)) if shape > 0.0 && shape.is_finite() => {
            Arrivals::Gamma(shape)
        }
        (None | Some("constant"), None) => Arrivals::Constant,
        (Some("poisson"), None) => Arrivals::Poisson,
        (_, Some(shape)) => {
            return Err(wrong("burstiness", &shape.to_string(), "no shape of gamma arrivals"));
        }
        (Some(text), None) => {
            return Err(wrong(
                "arrivals",
                text,
                "none of constant, poisson and (with --burstiness) gamma",
            ));
        }
    };
    Ok(LoadPace::Rate { rate, arrivals })
}

fn check(on: &Invocation<'_>) -> Result<CheckLevel, CommandFailure> {
    match on.flag("check") {
        None | Some("full") => Ok(CheckLevel::Full),
        Some("sample") => Ok(CheckLevel::Sample),
        Some("off") => Ok(CheckLevel::Off),
        Some(text) => Err(wrong("check", text, "none of full, sample and off")),
    }
}

/// The files of reports.
///
/// # Errors
/// A [`CommandFailure`] of usage: a kind of file that there is no report of.
pub fn reports<'i>(on: &Invocation<'i>) -> Result<Vec<&'i Path>, CommandFailure> {
    let file = |text: &'i str| {
        let path = Path::new(text);
        match path.extension().and_then(|end| end.to_str()) {
            Some("html" | "json" | "txt") => Ok(path),
            _ => Err(wrong("out", text, "a file that ends with .html, .json or .txt")),
        }
    };
    on.flag_list("out").into_iter().map(file).collect()
}

/// The process of the server.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn pid(on: &Invocation<'_>) -> Result<Option<u32>, CommandFailure> {
    on.flag_number("pid")
}

/// What a server may take of the client: as many connections as calls at once.
pub fn limits(plan: &LoadPlan) -> ClientLimits {
    let calls = match plan.pace {
        LoadPace::Rate { .. } => plan.in_flight_max,
        LoadPace::Concurrency(calls) => calls,
    };
    ClientLimits { pool_per_origin_max: calls.max(32), ..ClientLimits::default() }
}

fn at_least_one(on: &Invocation<'_>, name: &str, default: usize) -> Result<usize, CommandFailure> {
    match on.flag_number(name)?.unwrap_or(default) {
        0 => Err(wrong(name, "0", "at least 1")),
        number => Ok(number),
    }
}

fn time(on: &Invocation<'_>, name: &str, default: &str) -> Result<Duration, CommandFailure> {
    let text = on.flag(name).unwrap_or(default);
    let ms = milliseconds(text).ok_or_else(|| wrong(name, text, "no time, as 500ms, 30s or 5m"))?;
    Ok(Duration::from_millis(ms))
}

fn wrong(name: &str, text: &str, what: &str) -> CommandFailure {
    CommandFailure::usage(format!("--{name} {text:?} is {what}"))
}
