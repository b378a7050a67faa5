//! The options of `bench`.

use std::{
    fs,
    io::{self, Read},
    net::SocketAddr,
    path::Path,
    time::Duration,
};

use clap::Command;
use peregrine::{
    client::ClientLimits,
    load::{
        Arrivals, CallLimits, CheckLevel, LoadOperation, LoadPace, LoadPlan, Objective,
        PayloadShape, PayloadSize, PlannedCall, ProcessSample, RateSpan, WebhookTarget, Workload,
        arrivals, read_recording,
    },
};

use super::{
    super::{
        calls::Invocation,
        command::{flag, switch},
        failure::CommandFailure,
        settings::{OutputFormat, milliseconds},
    },
    sweep::Sweep,
};

const HELP: &str = "Calls are due at --rate, independent of the agent, and latency counts from \
                    the due time: a slow agent cannot improve its own figures. --concurrency \
                    makes calls one after the other instead. A call times out after 30 s unless \
                    --timeout is given. docs/bench.md explains how to measure honestly, and what \
                    agents do for stream:N and hold:MS:N. Exit codes: 0 done; 1 failure, such as \
                    an assertion that does not hold; 2 wrong usage; 3 no answer, or no card; 4 no \
                    or wrong credentials.";

/// Default calls per second.
const RATE: f64 = 100.0;
/// Maximum bytes of a workload or a recording.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Maximum threads.
const WORKERS_MAX: usize = 1_024;
/// Maximum clients, calls in flight, and streams.
const CALLS_MAX: usize = 1_000_000;
/// Rounds with several agents: fewer do not show random variation; more are not needed.
const ROUNDS: std::ops::RangeInclusive<usize> = 3..=1_000;
/// The calls of `mixed`, by weight.
const MIXED: &str = "send=50,get=30,stream=10,list=5,cancel=5";

/// The requested runs and reports.
pub struct BenchPlan<'i> {
    /// The phases, in the order in which they run.
    pub phases: Vec<LoadPlan>,
    /// The rates of the single phase.
    pub sweep: Option<Sweep>,
    /// The objectives of each rate in a sweep.
    pub objectives: Vec<Objective>,
    /// Assertions; a failed one makes the exit code 1.
    pub assertions: Vec<Objective>,
    /// Files of reports.
    pub reports: Vec<&'i Path>,
    /// The processes of the servers, in the order of the targets.
    pub pids: Vec<u32>,
    /// Agents that get the same load as the first agent, in rounds.
    pub compared: Vec<&'i str>,
    /// True: the minimal server is one of the targets.
    pub has_floor: bool,
    /// Rounds, if several agents are compared.
    pub rounds: usize,
    /// The file for the recorded calls.
    pub record: Option<&'i Path>,
    /// The receiver of webhooks.
    pub webhooks: Option<WebhookTarget>,
    /// True: a terminal shows the live view.
    pub is_live: bool,
}

/// Adds the options to the command.
pub fn command(command: Command) -> Command {
    let scenario = "send, get, stream, subscribe, batch, list, cancel, push, resume or mixed; or \
                    a mixture, such as send=3,stream=1 [default: send]";
    let workload = "Phases from a file, or the built-in a2a-bench-1, instead of a scenario";
    command
        .arg(flag("scenario", "NAME", scenario))
        .arg(flag("workload", "NAME|FILE", workload))
        .arg(flag("rate", "N", "Calls a second [default: 100]"))
        .arg(flag(
            "arrivals",
            "constant|poisson",
            "Distribution of the times between calls [default: constant]",
        ))
        .arg(flag(
            "burstiness",
            "SHAPE",
            "Shape of gamma arrivals: 1 is poisson, below 1 is bursty",
        ))
        .arg(flag("ramp", "FROM:TO", "A rate that changes linearly from one to the other"))
        .arg(flag("sweep", "FROM:TO:STEPS", "Several rates, one run of --duration each"))
        .arg(switch("find-max", "Find the highest rate that meets --slo, starting at --rate"))
        .arg(flag("slo", "LIST", "Objectives, such as p99<20ms,first_event_p99<50ms,errors=0"))
        .arg(flag(
            "assert",
            "OBJECTIVE",
            "Exit with 1 if this objective is not met; may be repeated",
        ))
        .arg(flag("in-flight", "N", "Maximum number of unanswered calls [default: 1000]"))
        .arg(flag(
            "concurrency",
            "N",
            "Closed loop: this many concurrent calls on each of --connections",
        ))
        .arg(flag("connections", "N", "HTTP/2 connections, or HTTP/1.1 clients [default: 1]"))
        .arg(flag("duration", "TIME", "Duration of the measurement [default: 10s]"))
        .arg(flag("warmup", "TIME", "Warm-up before the measurement [default: 1s]"))
        .arg(flag("requests", "N", "Maximum number of calls"))
        .arg(flag("workers", "N", "Threads of the generator [default: 1]"))
        .arg(flag("seed", "N", "The same seed makes the same calls [default: 1]"))
        .arg(flag(
            "payload",
            "SIZE",
            "Bytes of a text: N, FROM..TO or lognormal:MEDIAN:SIGMA [default: 64]",
        ))
        .arg(flag(
            "shape",
            "text|data|file",
            "Kind of part that carries the text: text, data or file [default: text]",
        ))
        .arg(flag("events", "N", "Events of each stream [default: 22]"))
        .arg(flag("chunk-bytes", "N", "Minimum bytes of each chunk of a stream"))
        .arg(flag("hold", "TIME", "How long subscribe and resume hold a task [default: 200ms]"))
        .arg(flag("subscribers", "N", "Streams on each task, for subscribe [default: 10]"))
        .arg(flag("batch", "N", "Calls of each batch [default: 10]"))
        .arg(flag(
            "check",
            "full|sample|off",
            "Which answers are checked: full, sample or off [default: full]",
        ))
        .arg(flag(
            "webhook-listen",
            "ADDR",
            "Address on which push receives webhooks [default: 127.0.0.1:0]",
        ))
        .arg(flag(
            "webhook-url",
            "URL",
            "URL by which the server reaches --webhook-listen [default: its address]",
        ))
        .arg(flag(
            "pid",
            "PID",
            "Process of the server on this machine, to measure it as well; one for each target, \
             in order",
        ))
        .arg(flag("compare", "URL", "Put the same load on this agent in rounds; may be repeated"))
        .arg(flag("rounds", "N", "Rounds of --compare and --floor [default: 5]"))
        .arg(switch("floor", "Compare with a server that does the least work an answer needs"))
        .arg(flag("record", "FILE", "Record the calls with their times, as lines of JSON"))
        .arg(flag("replay", "FILE", "Replay the calls of a --record file instead of a scenario"))
        .arg(switch("self-test", "Measure the generator on this machine; no agent is called"))
        .arg(flag("live", "true|false", "A live view on a terminal [default: true]"))
        .arg(flag("out", "FILE", "A report: .html, .json, .csv or .txt; may be repeated"))
        .after_help(HELP)
        .after_long_help(HELP)
}

/// Builds the plan from the flags.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn plan<'i>(on: &Invocation<'i>) -> Result<BenchPlan<'i>, CommandFailure> {
    let objectives = match on.flag("slo") {
        Some(text) => Objective::list(text).map_err(|why| wrong("slo", &why))?,
        None => Vec::new(),
    };
    let mut limits = CallLimits::default();
    objectives.iter().for_each(|objective| objective.limit_calls(&mut limits));
    let usual = LoadPlan::new(Vec::new(), pace(on)?, time(on, "duration", "10s")?);
    let connections = up_to(on, "connections", usual.connections, CALLS_MAX)?;
    // A few calls would all fall into the warm-up.
    let warmup = if on.flag("requests").is_some() { "0s" } else { "1s" };
    let base = LoadPlan {
        warmup: time(on, "warmup", warmup)?,
        requests_max: on.flag_number("requests")?,
        in_flight_max: match usual.pace {
            LoadPace::Rate(_) => up_to(on, "in-flight", usual.in_flight_max, CALLS_MAX)?,
            LoadPace::Closed => {
                let each = up_to(on, "concurrency", 1, CALLS_MAX)?;
                each.saturating_mul(connections).min(CALLS_MAX)
            }
        },
        connections,
        call_timeout: on.settings.time("timeout")?.unwrap_or(usual.call_timeout),
        workers: up_to(on, "workers", usual.workers, WORKERS_MAX)?,
        seed: on.flag_number("seed")?.unwrap_or(usual.seed),
        check: check(on)?,
        limits,
        ..usual
    };
    let base_workers = base.workers;
    let phases = phases(on, base)?;
    let sweep = sweep(on, &phases, &objectives)?;
    if on.flags.get_flag("floor") {
        floor_can(&phases)?;
    }
    let has_others = on.flag("compare").is_some() || on.flags.get_flag("floor");
    if sweep.is_some() && has_others {
        return Err(wrong("compare", "a sweep needs exactly one agent"));
    }
    excluded(on)?;
    let rounds = up_to(on, "rounds", 5, *ROUNDS.end())?;
    if !ROUNDS.contains(&rounds) {
        let why = "must be at least 3: fewer rounds do not show the random variation";
        return Err(wrong("rounds", why));
    }
    let assertions = on.flag_list("assert").into_iter().map(Objective::parse);
    let assertions: Result<Vec<Objective>, String> = assertions.collect();
    Ok(BenchPlan {
        phases,
        sweep,
        objectives,
        assertions: assertions.map_err(|why| wrong("assert", &why))?,
        reports: report_files(on.flag_list("out").into_iter())?,
        pids: pids(on)?,
        compared: on.flag_list("compare"),
        has_floor: on.flags.get_flag("floor"),
        rounds,
        record: on.flag("record").map(Path::new),
        webhooks: webhooks(on, base_workers)?,
        is_live: is_live(on)?,
    })
}

/// Rejects options that others would override.
fn excluded(on: &Invocation<'_>) -> Result<(), CommandFailure> {
    const PAIRS: [(&str, &str); 5] = [
        ("rate", "ramp"),
        ("rate", "sweep"),
        ("in-flight", "concurrency"),
        ("concurrency", "find-max"),
        ("ramp", "find-max"),
    ];
    let is_set = |name: &str| match name {
        "find-max" => on.flags.get_flag(name),
        _ => on.flag(name).is_some(),
    };
    match PAIRS.into_iter().find(|(one, other)| is_set(one) && is_set(other)) {
        Some((one, other)) => Err(wrong(one, &format!("cannot be combined with --{other}"))),
        None => Ok(()),
    }
}

fn pids(on: &Invocation<'_>) -> Result<Vec<u32>, CommandFailure> {
    let pid = |text: &str| {
        let pid = text.parse().ok().filter(|pid| ProcessSample::of(*pid).is_some());
        pid.ok_or_else(|| wrong("pid", &format!("{text:?} is not a process on this machine")))
    };
    on.flag_list("pid").into_iter().map(pid).collect()
}

/// Rejects operations that the minimal server does not have.
fn floor_can(phases: &[LoadPlan]) -> Result<(), CommandFailure> {
    let is_supported =
        |call: &PlannedCall| matches!(call.operation, LoadOperation::Send | LoadOperation::Get);
    match phases.iter().flat_map(|plan| &plan.calls).find(|call| !is_supported(call)) {
        Some(call) => {
            let name = call.operation.name();
            Err(wrong("floor", &format!("supports send and get, not {name}")))
        }
        None => Ok(()),
    }
}

/// The calls of a recording.
fn recorded(name: &str, base: &LoadPlan) -> Result<LoadPlan, CommandFailure> {
    let text = read_text(name);
    let text = text.map_err(|error| wrong("replay", &format!("cannot read {name}: {error}")))?;
    let plan = read_recording(&text, base);
    plan.map_err(|why| wrong("replay", &format!("{name}: {why}")))
}

fn phases(on: &Invocation<'_>, base: LoadPlan) -> Result<Vec<LoadPlan>, CommandFailure> {
    if let Some(name) = on.flag("replay") {
        let alone = ["scenario", "workload", "rate", "ramp", "sweep", "concurrency", "duration"];
        if let Some(other) = alone.into_iter().find(|other| on.flag(other).is_some()) {
            return Err(wrong(other, "the --replay file defines it"));
        }
        return Ok(vec![recorded(name, &base)?]);
    }
    let Some(name) = on.flag("workload") else {
        let text = on.flag("scenario").unwrap_or("send");
        let calls = calls(on, if text == "mixed" { MIXED } else { text })?;
        return Ok(vec![base.with_calls(calls)]);
    };
    let mut alone = ["scenario", "payload", "shape", "events", "chunk-bytes", "hold"].into_iter();
    if let Some(other) = alone.find(|other| on.flag(other).is_some()) {
        return Err(wrong(other, "the --workload file defines it"));
    }
    let workload = match Workload::known(name) {
        Some(workload) => workload,
        None => match read_text(name) {
            Ok(text) => Workload::parse(&text),
            Err(error) => {
                let names: Vec<&str> = Workload::names().collect();
                let why = format!("{name:?} must be {} or a file: {error}", names.join(", "));
                return Err(wrong("workload", &why));
            }
        },
    };
    let plans = workload.and_then(|workload| workload.plans(&base));
    let mut plans = plans.map_err(|why| wrong("workload", &format!("{name}: {why}")))?;
    // Flags apply to all phases.
    let is_set = |name: &str| on.flag(name).is_some();
    for plan in &mut plans {
        if ["rate", "ramp", "concurrency"].into_iter().any(is_set) {
            plan.pace = base.pace;
        }
        if ["in-flight", "concurrency"].into_iter().any(is_set) {
            plan.in_flight_max = base.in_flight_max;
        }
        if is_set("duration") {
            plan.duration = base.duration;
        }
        if is_set("warmup") {
            plan.warmup = base.warmup;
        }
    }
    Ok(plans)
}

/// The calls of a scenario: `send`, or `send=3,stream=1`.
fn calls(on: &Invocation<'_>, text: &str) -> Result<Vec<PlannedCall>, CommandFailure> {
    let payload = PayloadSize::parse(on.flag("payload").unwrap_or("64"));
    let payload = payload.map_err(|why| wrong("payload", &why))?;
    let shape = PayloadShape::parse(on.flag("shape").unwrap_or("text"));
    let shape = shape.map_err(|why| wrong("shape", &why))?;
    let one = |text: &str| {
        let (name, weight) = text.split_once('=').unwrap_or((text, "1"));
        let all: Vec<&str> = LoadOperation::ALL.into_iter().map(LoadOperation::name).collect();
        let operation = LoadOperation::of_name(name.trim()).ok_or_else(|| {
            wrong("scenario", &format!("{name:?} must be one of {}, mixed", all.join(", ")))
        })?;
        let weight =
            weight.parse::<f64>().ok().filter(|weight| *weight > 0.0 && weight.is_finite());
        let usual = PlannedCall::new(operation);
        Ok(PlannedCall {
            weight: weight
                .ok_or_else(|| wrong("scenario", &format!("{text:?} needs a weight above 0")))?,
            payload,
            shape,
            events: up_to(on, "events", usual.events as usize, CALLS_MAX)? as u64,
            chunk_bytes: on.flag_number("chunk-bytes")?.unwrap_or(usual.chunk_bytes),
            hold: time(on, "hold", "200ms")?,
            subscribers: {
                up_to(on, "subscribers", usual.subscribers, PlannedCall::SUBSCRIBERS_MAX)?
            },
            batch: up_to(on, "batch", usual.batch, PlannedCall::BATCH_MAX)?,
            ..usual
        })
    };
    text.split(',').map(one).collect()
}

fn pace(on: &Invocation<'_>) -> Result<LoadPace, CommandFailure> {
    if on.flag("concurrency").is_some() {
        let mut others = ["rate", "ramp", "sweep", "arrivals", "burstiness"].into_iter();
        return match others.find(|name| on.flag(name).is_some()) {
            Some(name) => {
                let line = format!("--concurrency is a closed loop, which does not use --{name}");
                Err(CommandFailure::usage(line))
            }
            None => Ok(LoadPace::Closed),
        };
    }
    let arrivals = arrivals(on.flag("arrivals"), on.flag_number("burstiness")?);
    let name = if on.flag("burstiness").is_some() { "burstiness" } else { "arrivals" };
    let arrivals: Arrivals = arrivals.map_err(|why| wrong(name, &why))?;
    if let Some(text) = on.flag("ramp") {
        let rates = text.split_once(':').and_then(|(from, to)| Some((rate(from)?, rate(to)?)));
        let (from, to) =
            rates.ok_or_else(|| wrong("ramp", &format!("{text:?} must be FROM:TO, two rates")))?;
        return Ok(LoadPace::Rate(RateSpan { from, to, arrivals }));
    }
    let rate = match on.flag("rate") {
        None => RATE,
        Some(text) => rate(text).ok_or_else(|| {
            wrong(
                "rate",
                &format!("{text:?} must be a rate above 0 and up to {:.0}", RateSpan::RATE_MAX),
            )
        })?,
    };
    Ok(LoadPace::Rate(RateSpan::steady(rate, arrivals)))
}

fn rate(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= RateSpan::RATE_MAX)
}

fn sweep(
    on: &Invocation<'_>,
    phases: &[LoadPlan],
    objectives: &[Objective],
) -> Result<Option<Sweep>, CommandFailure> {
    let finds_max = on.flags.get_flag("find-max");
    let sweep = match (on.flag("sweep"), finds_max) {
        (None, false) => return Ok(None),
        (Some(_), true) => return Err(wrong("find-max", "cannot be combined with --sweep")),
        (Some(text), false) => {
            let numbers: Vec<&str> = text.split(':').collect();
            let steps = |text: &str| text.parse::<usize>().ok().filter(|steps| *steps >= 2);
            let sweep = match numbers[..] {
                [from, to, count] => rate(from).zip(rate(to)).zip(steps(count)),
                _ => None,
            };
            let ((from, to), steps) = sweep.ok_or_else(|| {
                wrong("sweep", &format!("{text:?} must be FROM:TO:STEPS, with at least 2 steps"))
            })?;
            Sweep::Steps { from, to, steps }
        }
        (None, true) if objectives.is_empty() => {
            return Err(wrong("find-max", "needs objectives: add --slo, such as --slo 'p99<20ms'"));
        }
        (None, true) => {
            let from = on.flag("rate").and_then(rate).unwrap_or(RATE);
            Sweep::FindMax { from }
        }
    };
    match phases.len() {
        1 => Ok(Some(sweep)),
        _ => Err(wrong("workload", "a sweep needs one phase, and the workload has several")),
    }
}

fn check(on: &Invocation<'_>) -> Result<CheckLevel, CommandFailure> {
    match on.flag("check") {
        None | Some("full") => Ok(CheckLevel::Full),
        Some("sample") => Ok(CheckLevel::Sample),
        Some("off") => Ok(CheckLevel::Off),
        Some(text) => Err(wrong("check", &format!("{text:?} must be full, sample or off"))),
    }
}

fn is_live(on: &Invocation<'_>) -> Result<bool, CommandFailure> {
    match on.flag("live") {
        None | Some("true") => Ok(on.format == OutputFormat::Text),
        Some("false") => Ok(false),
        Some(text) => Err(wrong("live", &format!("{text:?} must be true or false"))),
    }
}

fn webhooks(on: &Invocation<'_>, workers: usize) -> Result<Option<WebhookTarget>, CommandFailure> {
    let text = on.flag("webhook-listen").unwrap_or("127.0.0.1:0");
    let listen: SocketAddr = text.parse().map_err(|_| {
        wrong("webhook-listen", &format!("{text:?} must be an address such as 0.0.0.0:9100"))
    })?;
    if workers > 1 && listen.port() != 0 {
        let why = "each of several --workers has its own receiver: use port 0";
        return Err(wrong("webhook-listen", why));
    }
    Ok(Some(WebhookTarget { listen, url: on.flag("webhook-url").map(str::to_owned) }))
}

/// The files of reports.
///
/// # Errors
/// A [`CommandFailure`] of usage: a file name without a known report format.
pub fn report_files<'i>(
    texts: impl Iterator<Item = &'i str>,
) -> Result<Vec<&'i Path>, CommandFailure> {
    let file = |text: &'i str| {
        let path = Path::new(text);
        match path.extension().and_then(|end| end.to_str()) {
            Some("html" | "json" | "csv" | "txt") => Ok(path),
            _ => Err(wrong("out", &format!("{text:?} must end with .html, .json, .csv or .txt"))),
        }
    };
    texts.map(file).collect()
}

/// The client's limits, with as many connections as calls in flight.
pub fn limits(plan: &LoadPlan) -> ClientLimits {
    let usual = ClientLimits::default();
    ClientLimits { pool_per_origin_max: plan.in_flight_max.max(usual.pool_per_origin_max), ..usual }
}

/// The number of an option, from 1 to its maximum.
fn up_to(
    on: &Invocation<'_>,
    name: &str,
    default: usize,
    most: usize,
) -> Result<usize, CommandFailure> {
    match on.flag_number(name)?.unwrap_or(default) {
        0 => Err(wrong(name, "must be at least 1")),
        number if number > most => Err(wrong(name, &format!("must be at most {most}"))),
        number => Ok(number),
    }
}

/// The text of a file of limited length.
///
/// # Errors
/// The file cannot be read, is not text, or is longer than 1 GiB.
pub fn read_text(name: &str) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(name)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("larger than {FILE_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

fn time(on: &Invocation<'_>, name: &str, default: &str) -> Result<Duration, CommandFailure> {
    let text = on.flag(name).unwrap_or(default);
    let ms = milliseconds(text);
    let time = ms.map(Duration::from_millis).filter(|time| *time <= LoadPlan::TIME_MAX);
    time.ok_or_else(|| wrong(name, &format!("{text:?} must be a time such as 500ms, 30s or 5m")))
}

fn wrong(name: &str, why: &str) -> CommandFailure {
    CommandFailure::usage(format!("--{name}: {why}"))
}
