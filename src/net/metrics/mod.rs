//! The counters of a server's calls, for `/metrics`.
//!
//! Invariant: an answered call costs some additions to its worker's counters, without a lock, a map
//! or a string; a refusal, which is rare, may take a lock of its worker. Sums are computed when an
//! operator reads them. No label is an id or a value that a peer has chosen, and the number of
//! labels is bounded.

mod counters;
mod families;
mod process;
mod upstreams;

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;

use crate::{
    model::{Generation, Op},
    service::{
        AgentIndex,
        observe::{AnsweredCall, AuthOutcome, CallBinding, CallRecord, LimitHit},
    },
};

use counters::WorkerCounters;
pub(super) use families::{Family, FamilyKind, text};
pub(super) use process::families as process_families;
pub(super) use upstreams::families as upstream_families;

/// The number of operations, plus one for requests without one.
const OPS: usize = Op::ALL.len() + 1;
const GENERATIONS: usize = 3;
const BINDINGS: usize = CallBinding::ALL.len();

/// The name of an unknown operation.
const OTHER: &str = "_OTHER";

/// The counters of a server's calls.
pub(super) struct Metrics {
    workers: Box<[CachePadded<WorkerCounters>]>,
}

impl Metrics {
    /// Counters for this many workers and names of agents.
    pub(super) fn new(workers: usize, agents_max: usize) -> Metrics {
        let worker = |_| CachePadded::new(WorkerCounters::new(agents_max));
        Metrics { workers: (0..workers.max(1)).map(worker).collect() }
    }

    /// Counts a call that has ended now, on the observer's clock.
    #[inline]
    pub(super) fn count(&self, call: &CallRecord, now_ns: u64) {
        self.of(call.worker).count(call, now_ns);
    }

    /// Counts an answered call and its duration.
    #[inline]
    pub(super) fn count_answered(&self, call: &AnsweredCall, elapsed_ns: u64) {
        self.of(call.worker).count_answered(call, elapsed_ns);
    }

    /// Counts a refusal of a request that is not a call.
    pub(super) fn count_limit(&self, hit: &LimitHit<'_>) {
        self.of(hit.worker).count_limit(hit.limit);
    }

    /// Counts an outcome of authentication.
    pub(super) fn count_caller(&self, worker: usize, outcome: AuthOutcome) {
        self.of(worker).count_caller(outcome);
    }

    fn of(&self, worker: usize) -> &WorkerCounters {
        // Calls outside of the workers share the counters of the first worker.
        self.workers.get(worker).unwrap_or(&self.workers[0])
    }

    /// Calls that were refused because of a limit, by its name.
    pub(super) fn by_limit(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        self.workers.iter().for_each(|worker| worker.add_limits(&mut sums));
        sums
    }

    /// The families of calls; `name` returns the name of an agent.
    pub(super) fn families(&self, name: impl Fn(AgentIndex) -> Option<String>) -> Vec<Family> {
        let workers = || self.workers.iter().map(|worker| &**worker);
        families::of_calls(workers, &name)
    }
}

/// The number of an operation, below [`OPS`].
fn op_number(op: Option<Op>) -> usize {
    op.map_or(OPS - 1, |op| op as usize)
}

/// The name of an operation, in metrics and logs.
#[cfg(any(feature = "logs", feature = "otlp"))]
pub(super) fn op_name(op: Option<Op>) -> &'static str {
    OP_NAMES[op_number(op)]
}

/// The name of a generation, in metrics and logs.
#[cfg(any(feature = "logs", feature = "otlp"))]
pub(super) fn generation_name(generation: Generation) -> &'static str {
    GENERATION_NAMES[generation_number(generation)]
}

/// The names of the operations by their numbers.
const OP_NAMES: [&str; OPS] = {
    let mut names = [OTHER; OPS];
    let mut number = 0;
    while number < Op::ALL.len() {
        names[number] = Op::ALL[number].name();
        number += 1;
    }
    names
};

fn generation_number(generation: Generation) -> usize {
    match generation {
        Generation::V01 => 0,
        Generation::V03 => 1,
        Generation::V1 => 2,
    }
}

/// The generations by their numbers.
const GENERATION_NAMES: [&str; GENERATIONS] = ["0.1", "0.3", "1.0"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fault::FaultKind,
        service::observe::{CallEnd, CallRefusal, StreamRecord},
    };

    fn call(agent: u16, op: Option<Op>) -> CallRecord {
        CallRecord {
            worker: 0,
            binding: CallBinding::Grpc,
            op,
            generation: Generation::V1,
            agent: AgentIndex(agent),
            refusal: None,
            status: 0,
            began_ns: 0,
            waited: false,
            bytes_in: 10,
            bytes_out: 20,
            stream: None,
            end: CallEnd::Complete,
            details: None,
            refused: None,
        }
    }

    fn page(metrics: &Metrics) -> String {
        text(metrics.families(|agent| (agent.0 < 2).then(|| format!("agent {}", agent.0))))
    }

    #[test]
    fn operation_numbers_map_to_their_names() {
        for (op, name) in [
            (Some(Op::Send), "SendMessage"),
            (Some(Op::Subscribe), "SubscribeToTask"),
            (Some(Op::ExtendedCard), "GetExtendedAgentCard"),
            (None, OTHER),
        ] {
            assert_eq!(OP_NAMES[op_number(op)], name);
        }
    }

    #[test]
    fn metrics_sum_workers_and_merge_unnamed_agents() {
        let metrics = Metrics::new(2, 4);
        for (worker, agent) in [(0, 0), (1, 0), (1, 1), (0, 2), (1, 3), (0, 999)] {
            metrics.count(&CallRecord { worker, ..call(agent, Some(Op::Get)) }, 1);
        }
        let text = page(&metrics);
        let line = |agent: &str, count: u64| {
            let labels = format!(
                "rpc_method=\"GetTask\",rpc_system=\"grpc\",version=\"1.0\",agent=\"{agent}\",\
                 outcome=\"ok\""
            );
            let line = format!("peregrine_calls_total{{{labels}}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        };
        line("agent 0", 2);
        line("agent 1", 1);
        line(OTHER, 3);
        let line = |agent: &str, count: u64| {
            let labels = format!("rpc_method=\"GetTask\",rpc_system=\"grpc\",agent=\"{agent}\"");
            let line = format!("rpc_server_call_duration_seconds_count{{{labels}}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        };
        line("agent 0", 2);
        line("agent 1", 1);
        line(OTHER, 3);
    }

    #[test]
    fn durations_beyond_64_agents_are_merged() {
        let metrics = Metrics::new(1, 100);
        for agent in 0..101 {
            metrics.count(&call(agent, Some(Op::Get)), 1);
            let answered = AnsweredCall {
                worker: 0,
                binding: CallBinding::Grpc,
                op: Op::Get,
                generation: Generation::V1,
                agent: AgentIndex(agent),
                began_ns: 0,
                bytes_in: 1,
                bytes_out: 1,
            };
            metrics.count_answered(&answered, 1);
        }
        let text = text(metrics.families(|agent| (agent.0 < 100).then(|| agent.0.to_string())));
        let counts = |name: &str| -> Vec<(bool, u64)> {
            let lines = text.lines().filter(|line| line.starts_with(name));
            let of_other = |line: &str| line.contains("agent=\"_OTHER\"");
            let count = |line: &str| line.rsplit(' ').next().unwrap().parse().unwrap();
            lines.map(|line| (of_other(line), count(line))).collect()
        };
        let mut durations = counts("rpc_server_call_duration_seconds_count");
        durations.sort_unstable();
        let expected = [vec![(false, 2); counters::TIMED_AGENTS_MAX], vec![(true, 74)]].concat();
        assert_eq!(durations, expected);
        // Calls are still counted for each agent.
        let calls = counts("peregrine_calls_total");
        assert_eq!(calls.len(), 101);
        assert!(calls.iter().all(|(_, count)| *count == 2), "{calls:?}");
    }

    #[test]
    fn refusals_are_counted_by_kind_and_by_limit_and_are_bounded() {
        let metrics = Metrics::new(1, 10_000);
        let refusal = CallRefusal { kind: FaultKind::Overloaded, limit: Some("tasks_max") };
        for agent in 0..10_000 {
            let refusal = Some(refusal);
            metrics.count(&CallRecord { refusal, ..call(agent, Some(Op::Send)) }, 1);
        }
        assert_eq!(metrics.by_limit(), BTreeMap::from([("tasks_max", 10_000)]));
        let refused = metrics.workers[0].refusals();
        assert!(refused.len() <= counters::REFUSALS_MAX + 1, "{}", refused.len());
        assert_eq!(refused.values().sum::<u64>(), 10_000);
        assert!(page(&metrics).contains("outcome=\"RESOURCE_EXHAUSTED\"} "));
    }

    #[test]
    fn streams_and_callers_are_counted() {
        let metrics = Metrics::new(1, 4);
        let stream = StreamRecord {
            first_event_ns: Some(30_000),
            events: 7,
            lag_max: 5,
            lag: 0,
            resumed: true,
        };
        let record = CallRecord {
            waited: true,
            stream: Some(stream),
            end: CallEnd::ClientLeft,
            ..call(0, Some(Op::Subscribe))
        };
        metrics.count(&record, 1);
        AuthOutcome::all().for_each(|outcome| metrics.count_caller(0, outcome));
        let text = page(&metrics);
        for line in [
            "peregrine_streams_ended_total{reason=\"client_left\"} 1\n",
            "peregrine_streams_resumed_total 1\n",
            "peregrine_stream_events_total 7\n",
            "peregrine_stream_lag_events_sum 5.0\n",
            "peregrine_time_to_first_event_seconds_bucket{le=\"5e-05\"} 1\n",
            "peregrine_callers_total{outcome=\"admitted\",kind=\"jwt\"} 1\n",
            "peregrine_callers_total{outcome=\"too_many\",kind=\"\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
