//! What came of calls: counts, histograms and slices of time. Those of workers add up.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use crate::model::must_escape;

/// Of each value, so many decimal digits are kept.
const DIGITS: u8 = 3;
/// The same in slices of time, of which there are many.
const SLICE_DIGITS: u8 = 2;
/// The longest time that a histogram holds: an hour.
const NS_MAX: u64 = 3_600_000_000_000;
/// Slices of a run, at most; longer runs have longer slices.
const SLICES_MAX: u64 = 600;

/// Characters of an example of an error, at most.
const EXAMPLE_CHARS_MAX: usize = 300;

/// A histogram of nanoseconds.
pub type NsHistogram = Histogram<u64>;

/// An empty histogram of nanoseconds.
pub(super) fn ns_histogram() -> NsHistogram {
    histogram_of(DIGITS)
}

fn histogram_of(digits: u8) -> NsHistogram {
    // It grows with what it holds; these digits are valid.
    Histogram::new(digits).unwrap_or_else(|_| unreachable!("0 to 5 digits are valid"))
}

/// Counts a time; one beyond an hour as an hour.
pub(super) fn record(histogram: &mut NsHistogram, ns: u64) {
    // A histogram that grows takes any value.
    let _ = histogram.record(ns.min(NS_MAX));
}

/// Adds all of `other`.
fn add(histogram: &mut NsHistogram, other: &NsHistogram) {
    let _ = histogram.add(other);
}

/// What came of the calls of a worker, or of all of them.
#[derive(Clone, Debug)]
pub struct LoadMeasures {
    /// By operation, in the order of the plan.
    pub operations: Vec<OperationMeasures>,
    /// Slices of time since the beginning, the warm-up included.
    pub slices: Vec<LoadSlice>,
    /// Length of a slice.
    pub slice: Duration,
    /// Good calls that were over while calls counted, of whichever time they were due.
    pub done_in_time: u64,
    /// Calls that began after they were due because as many as allowed were unanswered.
    pub held_back: u64,
    /// Calls that began more than a millisecond after they were due though there was room for them:
    /// the generator was too slow.
    pub late: u64,
    /// Nanoseconds between due and begun of calls for which there was room: the generator's error.
    pub lag: NsHistogram,
    /// Calls that the schedule wanted and that had not begun at the end.
    pub never_sent: u64,
    /// Calls that were unanswered when the user ended the run.
    pub unanswered: u64,
    /// How long the oldest of them had been due then, in nanoseconds.
    pub oldest_unanswered_ns: u64,
    /// All calls that were over, those of the warm-up included.
    pub all_calls: u64,
}

/// What came of the calls of one operation.
#[derive(Clone, Debug)]
pub struct OperationMeasures {
    /// Calls that were answered as they should be.
    pub good: u64,
    /// Calls that were not, by kind of error.
    pub errors: BTreeMap<String, u64>,
    /// One example of each kind of error.
    pub examples: BTreeMap<String, String>,
    /// Nanoseconds from when a call was due to when it was over.
    pub latency: NsHistogram,
    /// Nanoseconds from when a call was sent to when it was over.
    pub service: NsHistogram,
    /// Nanoseconds from when a call was due to the head of its response.
    pub first_byte: NsHistogram,
    /// Nanoseconds from when a stream was due to its first event.
    pub first_event: NsHistogram,
    /// The same to its second event.
    pub second_event: NsHistogram,
    /// Nanoseconds between two events of a stream.
    pub gaps: NsHistogram,
    /// Nanoseconds between the end of the first and of the last stream of one task.
    pub spread: NsHistogram,
    /// Nanoseconds from the last event of a stream to its webhook.
    pub delivery: NsHistogram,
    /// Calls that were good and within the limits of the plan.
    pub within_limits: u64,
    /// Events of streams.
    pub events: u64,
}

/// What happened in a slice of time.
#[derive(Clone, Debug)]
pub struct LoadSlice {
    /// Calls that were over, well or not.
    pub calls: u64,
    /// Calls of those that failed.
    pub errors: u64,
    /// Events of streams.
    pub events: u64,
    /// Nanoseconds from due to over, of the good ones.
    pub latency: NsHistogram,
}

impl LoadMeasures {
    /// Measures of so many operations, of a run that takes `length`.
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

    /// The slice of this time.
    pub(super) fn slice_at(&mut self, now_ns: u64) -> &mut LoadSlice {
        let index = (now_ns / self.slice.as_nanos() as u64) as usize;
        if self.slices.len() <= index {
            self.slices.resize_with(index + 1, LoadSlice::default);
        }
        &mut self.slices[index]
    }

    /// Adds what another worker of the same run has measured.
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

    /// Adds what the same calls have measured in another run after this one. Of that run's slices
    /// `counted` are those in which calls were counted.
    pub(super) fn append(&mut self, mut other: LoadMeasures, counted: std::ops::Range<usize>) {
        let slices = std::mem::take(&mut other.slices);
        self.add(&other);
        let kept = slices.into_iter().take(counted.end).skip(counted.start);
        self.slices.extend(kept);
    }

    /// All operations together.
    pub fn total(&self) -> OperationMeasures {
        let mut total = OperationMeasures::default();
        self.operations.iter().for_each(|operation| total.add(operation));
        total
    }
}

impl OperationMeasures {
    /// Calls that were over, well or not.
    pub fn calls(&self) -> u64 {
        self.good + self.failed()
    }

    /// Calls that failed.
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

/// A text of the agent, short and without what would steer a terminal.
pub(super) fn shown(text: &str) -> String {
    let escaped = |char: char| match must_escape(char) {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    };
    text.chars().take(EXAMPLE_CHARS_MAX).map(escaped).collect()
}

/// Adds slices of the same times.
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
