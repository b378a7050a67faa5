//! The counters of one worker.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    fault::FaultKind,
    histogram::{EVENTS, Histogram, TIMES_NS},
    service::{
        AgentIndex,
        observe::{AnsweredCall, AuthOutcome, CallEnd, CallRecord, CallRefusal, StreamRecord},
    },
};

use super::{BINDINGS, GENERATIONS, OPS, generation_number, op_number};

/// Kinds of refusals of one worker that are counted by agent; further kinds are counted for an
/// agent without a name.
pub(super) const REFUSALS_MAX: usize = 4_096;

/// Agents with separate durations; the durations of other agents are counted together. The
/// histograms of an agent are many lines of a page, and 9 KiB in each worker that has answered its
/// calls.
pub(super) const TIMED_AGENTS_MAX: usize = 64;

/// The agent of refusals beyond [`REFUSALS_MAX`], and of calls of an agent without a counter.
pub(super) const NO_AGENT: AgentIndex = AgentIndex(u16::MAX);

/// The labels of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RefusalKey {
    pub(super) agent: u16,
    /// Numbers of the operation, the binding, the generation and the kind.
    pub(super) numbers: [u8; 4],
}

pub(super) type Durations = [[Histogram<21>; BINDINGS]; OPS];
type Answered = [[[AtomicU64; GENERATIONS]; BINDINGS]; OPS];

/// The counters of one worker for an agent.
struct AgentCounters {
    answered: Answered,
    durations: Durations,
}

impl Default for AgentCounters {
    fn default() -> AgentCounters {
        AgentCounters { answered: Answered::default(), durations: durations() }
    }
}

fn durations() -> Durations {
    std::array::from_fn(|_| std::array::from_fn(|_| Histogram::new(&TIMES_NS)))
}

/// The counters of one worker.
pub(super) struct WorkerCounters {
    /// Calls of the first [`TIMED_AGENTS_MAX`] agents.
    timed: Box<[OnceLock<Box<AgentCounters>>]>,
    /// Answered calls of the other agents; the last entry is for all agents without an entry.
    answered: Box<[OnceLock<Box<Answered>>]>,
    /// Durations of the calls of the other agents.
    durations: Box<Durations>,
    refused: Mutex<BTreeMap<RefusalKey, u64>>,
    limits: Mutex<BTreeMap<&'static str, u64>>,
    pub(super) first_event: Histogram<21>,
    pub(super) lag: Histogram<7>,
    pub(super) events: AtomicU64,
    pub(super) resumed: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) ends: [AtomicU64; CallEnd::ALL.len()],
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    pub(super) callers: [AtomicU64; AuthOutcome::COUNT],
}

impl WorkerCounters {
    pub(super) fn new(agents_max: usize) -> WorkerCounters {
        let timed = agents_max.min(TIMED_AGENTS_MAX);
        WorkerCounters {
            timed: (0..timed).map(|_| OnceLock::new()).collect(),
            answered: (timed..=agents_max).map(|_| OnceLock::new()).collect(),
            durations: Box::new(durations()),
            refused: Mutex::default(),
            limits: Mutex::default(),
            first_event: Histogram::new(&TIMES_NS),
            lag: Histogram::new(&EVENTS),
            events: AtomicU64::default(),
            resumed: AtomicU64::default(),
            waited: AtomicU64::default(),
            ends: Default::default(),
            bytes_in: AtomicU64::default(),
            bytes_out: AtomicU64::default(),
            callers: Default::default(),
        }
    }

    /// Counts an answered call and its duration.
    #[inline]
    pub(super) fn count_answered(&self, call: &AnsweredCall, elapsed_ns: u64) {
        let numbers = [call.op as usize, call.binding as usize, generation_number(call.generation)];
        self.add_bytes(call.bytes_in, call.bytes_out);
        self.add_answered(call.agent, numbers);
        self.durations(call.agent)[numbers[0]][numbers[1]].count(elapsed_ns);
    }

    /// Counts a call that has ended now.
    pub(super) fn count(&self, call: &CallRecord, now_ns: u64) {
        let (op, binding) = (op_number(call.op), call.binding as usize);
        match call.refusal {
            None => {
                self.add_answered(call.agent, [op, binding, generation_number(call.generation)]);
            }
            Some(refusal) => self.count_refused(call, refusal),
        }
        self.add_bytes(call.bytes_in, call.bytes_out);
        let elapsed_ns = now_ns.saturating_sub(call.began_ns);
        self.durations(call.agent)[op][binding].count(elapsed_ns);
        if call.waited {
            self.count_waited(call);
        }
    }

    #[inline(always)]
    fn add_bytes(&self, bytes_in: u64, bytes_out: u64) {
        self.bytes_in.fetch_add(bytes_in, Relaxed);
        self.bytes_out.fetch_add(bytes_out, Relaxed);
    }

    #[inline(always)]
    fn add_answered(&self, agent: AgentIndex, [op, binding, generation]: [usize; 3]) {
        let agent = usize::from(agent.0);
        let answered = match self.timed.get(agent) {
            Some(of_agent) => &of_agent.get_or_init(Default::default).answered,
            None => {
                let at = agent.saturating_sub(self.timed.len()).min(self.answered.len() - 1);
                &**self.answered[at].get_or_init(Default::default)
            }
        };
        answered[op][binding][generation].fetch_add(1, Relaxed);
    }

    /// The durations of an agent's calls.
    #[inline(always)]
    fn durations(&self, agent: AgentIndex) -> &Durations {
        match self.timed.get(usize::from(agent.0)) {
            Some(of_agent) => &of_agent.get_or_init(Default::default).durations,
            None => &self.durations,
        }
    }

    /// Calls `each` with the durations of each operation and binding of an agent.
    pub(super) fn each_duration(&self, mut each: impl FnMut(AgentIndex, &Durations)) {
        for (agent, of_agent) in (0..).zip(&self.timed) {
            if let Some(of_agent) = of_agent.get() {
                each(AgentIndex(agent), &of_agent.durations);
            }
        }
        each(NO_AGENT, &self.durations);
    }

    #[inline(never)]
    fn count_waited(&self, call: &CallRecord) {
        self.waited.fetch_add(1, Relaxed);
        let Some(stream) = call.stream else { return };
        let StreamRecord { first_event_ns, events, lag_max, resumed, .. } = stream;
        if let Some(first_ns) = first_event_ns {
            self.first_event.count(first_ns.saturating_sub(call.began_ns));
        }
        self.lag.count(lag_max);
        self.events.fetch_add(events, Relaxed);
        self.resumed.fetch_add(u64::from(resumed), Relaxed);
        self.ends[call.end as usize].fetch_add(1, Relaxed);
    }

    #[cold]
    fn count_refused(&self, call: &CallRecord, refusal: CallRefusal) {
        if let Some(limit) = refusal.limit {
            self.count_limit(limit);
        }
        let kind = FaultKind::ALL.iter().position(|kind| *kind == refusal.kind);
        let numbers = [
            op_number(call.op),
            call.binding as usize,
            generation_number(call.generation),
            kind.unwrap_or_default(),
        ];
        let mut key = RefusalKey { agent: call.agent.0, numbers: numbers.map(|n| n as u8) };
        let mut refused = lock(&self.refused);
        if refused.len() >= REFUSALS_MAX && !refused.contains_key(&key) {
            key.agent = NO_AGENT.0;
        }
        *refused.entry(key).or_default() += 1;
    }

    /// Counts a refusal by a limit.
    pub(super) fn count_limit(&self, limit: &'static str) {
        *lock(&self.limits).entry(limit).or_default() += 1;
    }

    /// Counts an outcome of authentication.
    pub(super) fn count_caller(&self, outcome: AuthOutcome) {
        self.callers[outcome.index()].fetch_add(1, Relaxed);
    }

    /// Calls that were refused.
    pub(super) fn refusals(&self) -> BTreeMap<RefusalKey, u64> {
        lock(&self.refused).clone()
    }

    /// Adds the calls that were refused because of a limit.
    pub(super) fn add_limits(&self, sums: &mut BTreeMap<&'static str, u64>) {
        let limits = lock(&self.limits);
        limits.iter().for_each(|(name, count)| *sums.entry(name).or_default() += count);
    }

    /// Calls `each` with each number of answered calls, with its agent, its operation, its binding
    /// and its generation.
    pub(super) fn each_answered(&self, mut each: impl FnMut(AgentIndex, [usize; 3], u64)) {
        let timed = self.timed.iter().map(|of_agent| Some(&of_agent.get()?.answered));
        let others = self.answered.iter().map(|answered| answered.get().map(|all| &**all));
        let last = self.timed.len() + self.answered.len() - 1;
        for (agent, of_agent) in timed.chain(others).enumerate() {
            let Some(of_agent) = of_agent else { continue };
            let agent = match u16::try_from(agent) {
                Ok(index) if agent < last => AgentIndex(index),
                Ok(_) | Err(_) => NO_AGENT,
            };
            let cells = (0..OPS)
                .flat_map(|op| (0..BINDINGS).map(move |binding| (op, binding)))
                .flat_map(|(op, binding)| (0..GENERATIONS).map(move |g| [op, binding, g]));
            for [op, binding, generation] in cells {
                let count = of_agent[op][binding][generation].load(Relaxed);
                if count > 0 {
                    each(agent, [op, binding, generation], count);
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
