//! Messages to the operator on stderr while a server runs and when it ends: one line each, and only
//! under `Server::run`.

#[cfg(any(feature = "tls", feature = "metrics"))]
use std::net::IpAddr;
use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{self, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

#[cfg(feature = "metrics")]
use crate::limits::callers::{PEER_FAILURE_WINDOW_MS, PEER_FAILURES_MAX};
#[cfg(feature = "logs")]
use crate::service::pages::AdminMethod;
use crate::{agent::AgentFailure, engine::Waiting, service::pages::AdminRequest};

use super::{
    line_rate::{LineRate, LineVerdict},
    server_state::ServerState,
    slow_turn::SlowTurn,
};

/// Writes one line to the log, or to stderr without a log.
pub(crate) fn info(line: &dyn Display) {
    #[cfg(feature = "logs")]
    if tracing::dispatcher::has_been_set() {
        return tracing::info!(target: "peregrine", "{line}");
    }
    // Without stderr the line is dropped.
    let _ = writeln!(io::stderr(), "peregrine: {line}");
}

/// Writes one warning to the log, or to stderr without a log.
pub(super) fn warn(line: &dyn Display) {
    #[cfg(feature = "logs")]
    if tracing::dispatcher::has_been_set() {
        return note(line);
    }
    info(line);
}

/// Writes one line only to the log; without a log the line is dropped.
#[cfg(feature = "logs")]
fn note(line: &dyn Display) {
    tracing::warn!(target: "peregrine", "{line}");
}

#[cfg(not(feature = "logs"))]
fn note(_: &dyn Display) {}

/// Refusals by limits: at most one log line a second for each limit, and the limits with recent
/// refusals, for `/readyz`.
#[derive(Default)]
pub(super) struct LimitReports(Mutex<BTreeMap<&'static str, LimitReport>>);

/// The last refusal by a limit.
struct LimitReport {
    gate: OncePerSecond,
    at: Instant,
    owner: Option<Box<str>>,
}

/// How long a refusal counts as recent.
const RECENT: Duration = Duration::from_secs(10);

/// Bytes of an owner's name that are retained: the caller's name may be longer.
const OWNER_BYTES_MAX: usize = 256;

impl LimitReports {
    /// Notes a refusal; `owner`: the owner of the request, if known.
    pub(super) fn hit(&self, limit: &'static str, owner: Option<&str>) {
        let now = Instant::now();
        let owner = owner.map(|owner| owner.get(..OWNER_BYTES_MAX).unwrap_or(owner));
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = OncePerSecond::NEVER;
        let report = limits.entry(limit).or_insert(LimitReport { gate, at: now, owner: None });
        report.at = now;
        if report.owner.as_deref() != owner {
            report.owner = owner.map(Into::into);
        }
        let Some(others) = report.gate.allow_line(now) else { return };
        drop(limits);
        let others = and_others(others);
        match owner {
            Some(owner) => note(&format_args!("{} reached {limit}{others}", caller(owner))),
            None => note(&format_args!("the limit {limit} was reached{others}")),
        }
    }

    /// The limits that have refused something within the last ten seconds, and the owner of the
    /// last refused request.
    pub(super) fn recent(&self) -> Vec<(&'static str, Option<Box<str>>)> {
        let limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |report: &&LimitReport| report.at.elapsed() < RECENT;
        let recent = limits.iter().filter(|(_, report)| is_recent(report));
        recent.map(|(limit, report)| (*limit, report.owner.clone())).collect()
    }
}

/// Allows one line of a kind in a second.
#[cfg(any(feature = "tls", feature = "otlp", feature = "client", feature = "metrics"))]
struct LineGate(Mutex<OncePerSecond>);

#[cfg(any(feature = "tls", feature = "otlp", feature = "client", feature = "metrics"))]
impl LineGate {
    const fn new() -> LineGate {
        LineGate(Mutex::new(OncePerSecond::NEVER))
    }

    fn note(&self, line: &dyn Display) {
        let passes =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).allow_line(Instant::now());
        if let Some(others) = passes {
            note(&format_args!("{line}{}", and_others(others)));
        }
    }
}

/// Reports that a handshake of TLS with an address failed, at most once a second.
#[cfg(feature = "tls")]
pub(super) fn handshake(address: Option<IpAddr>, error: &dyn Display) {
    static HANDSHAKES: LineGate = LineGate::new();
    match address.map(|address| address.to_canonical()) {
        Some(by) => HANDSHAKES.note(&format_args!("a TLS handshake with {by} has failed: {error}")),
        None => HANDSHAKES.note(&format_args!("a TLS handshake has failed: {error}")),
    }
}

/// Reports that an address is slowed down for its wrong credentials, at most once a second.
#[cfg(feature = "metrics")]
pub(super) fn peer_slowed(address: IpAddr) {
    static SLOWED: LineGate = LineGate::new();
    let (address, seconds) = (address.to_canonical(), PEER_FAILURE_WINDOW_MS / 1_000);
    SLOWED.note(&format_args!(
        "the address {address} is slowed: it sent {PEER_FAILURES_MAX} wrong credentials within \
         {seconds} s"
    ));
}

/// Reports that the keys of an issuer could not be fetched, at most once a second.
#[cfg(all(feature = "auth", feature = "client"))]
pub(super) fn keys_not_fetched(url: &str, why: &dyn Display) {
    static FAILED: LineGate = LineGate::new();
    FAILED.note(&format_args!("cannot fetch keys from {url}: {why}"));
}

/// Reports that a delivery to a webhook has failed, or that its receiver refuses further
/// deliveries, at most once a second; only the origin of the URL is shown.
#[cfg(feature = "push")]
pub(super) fn not_posted(origin: &str, why: &dyn Display) {
    static FAILED: LineGate = LineGate::new();
    FAILED.note(&format_args!("a post to the webhook at {origin} failed: {why}"));
}

/// Reports that a webhook has stopped, at most once a second.
#[cfg(feature = "push")]
pub(super) fn webhook_stopped(letter: &crate::push::DeadLetter) {
    static STOPPED: LineGate = LineGate::new();
    let crate::push::DeadLetter { number, origin, why, error, .. } = letter;
    let why = why.name();
    STOPPED.note(&format_args!(
        "a webhook at {origin} has stopped ({why}), dead letter {number}: {error}"
    ));
}

/// Reports that the collector of traces did not accept spans, at most once a second.
#[cfg(feature = "otlp")]
pub(super) fn traces_lost(why: &dyn Display) {
    static LOST: LineGate = LineGate::new();
    LOST.note(&format_args!("the collector of traces did not accept spans, which are lost: {why}"));
}

/// Waits for a limited time until the log is written.
pub(super) fn flush() {
    #[cfg(feature = "logs")]
    super::log::flush();
}

/// Lines that the log could not take.
#[cfg(feature = "metrics")]
pub(super) fn lost_lines() -> u64 {
    #[cfg(feature = "logs")]
    let lost = super::log::lost_lines();
    #[cfg(not(feature = "logs"))]
    let lost = 0;
    lost
}

/// Allows one line of a kind in a second, and counts the others.
struct OncePerSecond {
    last: Option<Instant>,
    others: u64,
}

impl OncePerSecond {
    const NEVER: OncePerSecond = OncePerSecond { last: None, others: 0 };

    /// Returns the number of suppressed lines since the last line, if a line is allowed now.
    fn allow_line(&mut self, now: Instant) -> Option<u64> {
        let is_soon = |last: Instant| now.duration_since(last) < Duration::from_secs(1);
        if self.last.is_some_and(is_soon) {
            self.others += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.others))
    }
}

/// A caller by its kind and name: `API key "robot"`.
fn caller(owner: &str) -> String {
    match owner.strip_prefix("key  ") {
        Some(name) => format!("API key {name:?}"),
        None => format!("caller {owner:?}"),
    }
}

fn and_others(others: u64) -> String {
    if others == 0 { String::new() } else { format!(" ({} times)", others + 1) }
}

/// Logs an operator's change, or attempted change.
#[cfg(feature = "logs")]
pub(super) fn operated(request: &AdminRequest<'_>, status: u16) {
    let AdminRequest { method, path, query, peer, operator, .. } = *request;
    let method = if method == AdminMethod::Delete { "DELETE" } else { "POST" };
    let peer = peer.map_or("a Unix socket".to_owned(), |peer| peer.to_canonical().to_string());
    let operator = operator.map(|name| format!(" ({name:?})")).unwrap_or_default();
    let mark = if query.is_empty() { "" } else { "?" };
    tracing::info!(
        target: "peregrine",
        "an operator at {peer}{operator}: {method} {path}{mark}{query}: {status}"
    );
}

#[cfg(not(feature = "logs"))]
pub(super) fn operated(_: &AdminRequest<'_>, _: u16) {}

/// Reports that an agent has blocked its worker.
pub(super) fn slow_turn(slow: &SlowTurn) {
    let SlowTurn { agent, ms } = slow;
    info(&format_args!("the agent {agent:?} blocked a worker for {ms} ms; other calls waited"));
}

/// Maximum lines for failures of agents in one second, because clients can cause failures.
const FAILURE_LINES_MAX: u32 = 100;

/// Reports that an agent has returned an error, or has panicked.
pub(crate) fn agent_failure(failure: &AgentFailure) {
    static RATE: Mutex<LineRate> = Mutex::new(LineRate::NEW);
    let mut rate = RATE.lock().unwrap_or_else(PoisonError::into_inner);
    let LineVerdict { is_written, skipped } = rate.take(Instant::now(), FAILURE_LINES_MAX);
    drop(rate);
    if skipped > 0 {
        warn(&format_args!("{skipped} failures of agents were not logged"));
    }
    if !is_written {
        return;
    }
    let AgentFailure { agent, task_id, text, reference, is_panic, .. } = failure;
    let how = if *is_panic { "panicked" } else { "failed" };
    warn(&format_args!(
        "the agent {agent:?} {how} on task {task_id:?}, reference {reference}: {text:?}"
    ));
}

/// Reports the work that a starting drain waits for.
pub(super) fn draining(server: &ServerState) {
    let engine = &server.engine;
    let open = server.connections.count();
    let (tasks, seconds) = (engine.unfinished_tasks(), seconds(server.live.drain_ms()));
    info(&format_args!(
        "draining, for {seconds} at most: {}, {}; {}",
        list(&engine.waiting()),
        count(open, "open connection"),
        count(tasks, "unfinished task"),
    ));
}

/// Reports the work that a finished drain has cut, and the data that is lost with the process.
pub(super) fn drained(server: &ServerState) {
    let cut = server.cut.get().copied().unwrap_or_default();
    let seconds = seconds(server.live.drain_ms());
    let tasks = count(server.lost_tasks(), "unfinished task");
    let lost = format!("{tasks} lost{}", unposted(server));
    if cut == Waiting::default() {
        info(&format_args!("drained; {lost}"));
    } else {
        info(&format_args!("the drain timed out after {seconds}: {} cut; {lost}", list(&cut)));
    }
}

/// Reports that a drain has ended tasks, and that the webhooks of these tasks are notified.
#[cfg(feature = "push")]
pub(super) fn ended_for_webhooks(tasks: usize) {
    if tasks > 0 {
        let tasks = count(tasks, "unfinished task");
        info(&format_args!("draining: {tasks} with webhooks failed; their webhooks are notified"));
    }
}

/// Webhooks that are lost with undelivered events.
#[cfg(feature = "push")]
fn unposted(server: &ServerState) -> String {
    match server.engine.webhooks().map(|webhooks| webhooks.stats(0).pending) {
        Some(pending @ 1..) => {
            format!("; {} did not receive all posts", count(pending, "webhook"))
        }
        _ => String::new(),
    }
}

#[cfg(not(feature = "push"))]
fn unposted(_: &ServerState) -> String {
    String::new()
}

fn list(waiting: &Waiting) -> String {
    let (calls, streams) = (count(waiting.calls, "waiting call"), count(waiting.streams, "stream"));
    format!("{calls}, {streams}")
}

fn count(number: usize, name: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {name}{plural}")
}

fn seconds(ms: u64) -> String {
    format!("{} s", ms as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_lines_are_limited_to_one_a_second_and_counted() {
        let (mut once, begin) = (OncePerSecond::NEVER, Instant::now());
        let passed: Vec<_> = [0, 1, 999, 1_000, 1_001, 3_000]
            .map(|ms| once.allow_line(begin + Duration::from_millis(ms)))
            .into();
        assert_eq!(passed, [Some(0), None, None, Some(2), None, Some(1)]);
        assert_eq!((and_others(0), and_others(1)), (String::new(), " (2 times)".to_owned()));
        assert_eq!(caller("key  robot"), "API key \"robot\"");
    }

    #[test]
    fn the_last_refusal_of_each_limit_names_its_owner() {
        let reports = LimitReports::default();
        reports.hit("tasks_max", None);
        reports.hit("quotas.streams", Some("key  alice"));
        reports.hit("quotas.streams", Some("key  bob"));
        let recent = [("quotas.streams", Some("key  bob".into())), ("tasks_max", None)];
        assert_eq!(reports.recent(), recent);
    }

    #[test]
    fn report_numbers_have_units_and_plurals() {
        let waiting = Waiting { calls: 1, streams: 2 };
        assert_eq!(list(&waiting), "1 waiting call, 2 streams");
        assert_eq!((seconds(10_000), seconds(200)), ("10 s".to_owned(), "0.2 s".to_owned()));
    }
}
