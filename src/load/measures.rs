//! The results of calls: counts, histograms and time slices. Results of several workers are added.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use crate::model::must_escape;

/// Significant decimal digits of each value.
const DIGITS: u8 = 3;
/// Significant decimal digits in time slices, of which there are many.
const SLICE_DIGITS: u8 = 2;
/// The longest time that a histogram counts: an hour.
const NS_MAX: u64 = 3_600_000_000_000;
/// Maximum slices of a run; longer runs have longer slices.
const SLICES_MAX: u64 = 600;

/// Maximum characters of an example of an error.
const EXAMPLE_CHARS_MAX: usize = 300;

/// A histogram of nanoseconds.
pub type NsHistogram = Histogram<u64>;

/// An empty histogram of nanoseconds.
pub(super) fn ns_histogram() -> NsHistogram {
    histogram_of(DIGITS)
}

fn histogram_of(digits: u8) -> NsHistogram {
    // The histogram grows with its values. These numbers of digits are valid.
    Histogram::new(digits).unwrap_or_else(|_| unreachable!("0 to 5 digits are valid"))
}

/// Counts a time; times above an hour count as an hour.
pub(super) fn record(histogram: &mut NsHistogram, ns: u64) {
    // A growing histogram accepts every value.
    let _ = histogram.record(ns.min(NS_MAX));
}

/// Adds all values of `other`.
fn add(histogram: &mut NsHistogram, other: &NsHistogram) {
    let _ = histogram.add(other);
}

/// The results of the calls of a worker, or of all workers.
#[derive(Clone, Debug)]
pub struct LoadMeasures {
    /// By operation, in the order of the plan.
    pub operations: Vec<OperationMeasures>,
    /// Time slices since the start, the warm-up included.
    pub slices: Vec<LoadSlice>,
    /// Length of a slice.
    pub slice: Duration,
    /// Good calls that completed while calls were counted, whenever they were due.
    pub done_in_time: u64,
    /// Calls that began late because the maximum number of calls was in flight.
    pub held_back: u64,
    /// Calls that began more than a millisecond late although the maximum number was not in flight:
    /// the generator was too slow.
    pub late: u64,
    /// Nanoseconds from the due time to the start of calls that no limit held back: the generator's
    /// error.
    pub lag: NsHistogram,
    /// Scheduled calls that had not started at the end.
    pub never_sent: u64,
    /// Calls in flight when the user ended the run.
    pub unanswered: u64,
    /// The time since the oldest of these calls was due, in nanoseconds.
    pub oldest_unanswered_ns: u64,
    /// All completed calls, the warm-up included.
    pub all_calls: u64,
}

/// The results of the calls of one operation.
#[derive(Clone, Debug)]
pub struct OperationMeasures {
    /// Calls with a correct answer.
    pub good: u64,
    /// Failed calls, by kind of error.
    pub errors: BTreeMap<String, u64>,
    /// One example of each kind of error.
    pub examples: BTreeMap<String, String>,
    /// Nanoseconds from the due time to completion.
    pub latency: NsHistogram,
    /// Nanoseconds from sending to completion.
    pub service: NsHistogram,
    /// Nanoseconds from the due time to the head of the response.
    pub first_byte: NsHistogram,
    /// Nanoseconds from the due time to the first event of a stream.
    pub first_event: NsHistogram,
    /// Nanoseconds from the due time to the second event of a stream.
    pub second_event: NsHistogram,
    /// Nanoseconds between two events of a stream.
    pub gaps: NsHistogram,
    /// Nanoseconds between the end of the first stream and the end of the last stream of one task.
    pub spread: NsHistogram,
    /// Nanoseconds from the last event of a stream to its webhook.
    pub delivery: NsHistogram,
    /// Good calls within the plan's limits of a call.
    pub within_limits: u64,
    /// Events of streams.
    pub events: u64,
}

/// The results in a time slice.
#[derive(Clone, Debug)]
pub struct LoadSlice {
    /// Completed calls, good or failed.
    pub calls: u64,
    /// Failed calls.
    pub errors: u64,
    /// Events of streams.
    pub events: u64,
    /// Nanoseconds from the due time to completion, of good calls.
    pub latency: NsHistogram,
}

impl LoadMeasures {
    /// Empty results for `operations` operations, for a run that takes `length`.
    pub fn new(operations: usize, length: Duration) -> LoadMeasures {
        let seconds = length.as_secs().div_ceil(SLICES_MAX).max(1);
        LoadMeasures {
            operations: (0..operations).map(|_| OperationMeasures::default()).collect(),
            slices: Vec::new(),
            slice: Duration::from_secs(seconds),
            done_in_time: 0,
            held_back: 0,
            late: 0,
            lag: ns_histogram(),
            never_sent: 0,
            unanswered: 0,
            oldest_unanswered_ns: 0,
            all_calls: 0,
        }
    }

    /// The slice that contains this time.
    pub(super) fn slice_at(&mut self, now_ns: u64) -> &mut LoadSlice {
        let index = (now_ns / self.slice.as_nanos() as u64) as usize;
        if self.slices.len() <= index {
            self.slices.resize_with(index + 1, LoadSlice::default);
        }
        &mut self.slices[index]
    }

    /// Adds the results of another worker of the same run.
    pub fn add(&mut self, other: &LoadMeasures) {
        for (own, other) in self.operations.iter_mut().zip(&other.operations) {
            own.add(other);
        }
        add_slices(&mut self.slices, &other.slices);
        self.done_in_time += other.done_in_time;
        self.held_back += other.held_back;
        self.late += other.late;
        self.never_sent += other.never_sent;
        self.unanswered += other.unanswered;
        self.oldest_unanswered_ns = self.oldest_unanswered_ns.max(other.oldest_unanswered_ns);
        self.all_calls += other.all_calls;
        add(&mut self.lag, &other.lag);
    }

    /// Appends the results of the same calls from a later run. `counted`: the slices of the later
    /// run in which calls were counted.
    pub(super) fn append(&mut self, mut other: LoadMeasures, counted: std::ops::Range<usize>) {
        let slices = std::mem::take(&mut other.slices);
        self.add(&other);
        let counted_slices = slices.into_iter().take(counted.end).skip(counted.start);
        self.slices.extend(counted_slices);
    }

    /// The sum over all operations.
    pub fn total(&self) -> OperationMeasures {
        let mut total = OperationMeasures::default();
        self.operations.iter().for_each(|operation| total.add(operation));
        total
    }
}

impl OperationMeasures {
    /// Completed calls, good or failed.
    pub fn calls(&self) -> u64 {
        self.good + self.failed()
    }

    /// Failed calls.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Counts a failed call.
    pub(super) fn note_error(&mut self, kind: &str, example: impl FnOnce() -> String) {
        match self.errors.get_mut(kind) {
            Some(count) => *count += 1,
            None => {
                self.errors.insert(kind.to_owned(), 1);
                self.examples.insert(kind.to_owned(), shown(&example()));
            }
        }
    }

    fn add(&mut self, other: &OperationMeasures) {
        self.good += other.good;
        self.within_limits += other.within_limits;
        self.events += other.events;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        for (kind, example) in &other.examples {
            self.examples.entry(kind.clone()).or_insert_with(|| example.clone());
        }
        add(&mut self.latency, &other.latency);
        add(&mut self.service, &other.service);
        add(&mut self.first_byte, &other.first_byte);
        add(&mut self.first_event, &other.first_event);
        add(&mut self.second_event, &other.second_event);
        add(&mut self.gaps, &other.gaps);
        add(&mut self.spread, &other.spread);
        add(&mut self.delivery, &other.delivery);
    }
}

/// A text of the agent, shortened and without terminal control characters.
pub(super) fn shown(text: &str) -> String {
    let escaped = |char: char| match must_escape(char) {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    };
    text.chars().take(EXAMPLE_CHARS_MAX).map(escaped).collect()
}

/// Adds slices to the slices of the same times.
pub(super) fn add_slices(slices: &mut Vec<LoadSlice>, others: &[LoadSlice]) {
    if slices.len() < others.len() {
        slices.resize_with(others.len(), LoadSlice::default);
    }
    for (own, other) in slices.iter_mut().zip(others) {
        own.calls += other.calls;
        own.errors += other.errors;
        own.events += other.events;
        add(&mut own.latency, &other.latency);
    }
}

impl Default for OperationMeasures {
    fn default() -> OperationMeasures {
        OperationMeasures {
            good: 0,
            errors: BTreeMap::new(),
            examples: BTreeMap::new(),
            latency: ns_histogram(),
            service: ns_histogram(),
            first_byte: ns_histogram(),
            first_event: ns_histogram(),
            second_event: ns_histogram(),
            gaps: ns_histogram(),
            spread: ns_histogram(),
            delivery: ns_histogram(),
            within_limits: 0,
            events: 0,
        }
    }
}

impl Default for LoadSlice {
    fn default() -> LoadSlice {
        LoadSlice { calls: 0, errors: 0, events: 0, latency: histogram_of(SLICE_DIGITS) }
    }
}
