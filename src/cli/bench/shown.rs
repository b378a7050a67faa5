//! Formats the progress of a run as the texts and rows of values that a terminal shows.

use std::{collections::BTreeMap, time::Duration};

use peregrine::load::{LoadRun, LoadSlice};

/// The progress of a run, as shown.
#[derive(Default)]
pub struct ShownRun {
    /// The URL and the interface of the agent, and the name of the plan.
    pub title: String,
    /// Time since the start.
    pub elapsed: Duration,
    /// Time of the whole run, warm-up included.
    pub length: Duration,
    warmup: Duration,
    /// The current rate of due calls; `None`: a closed loop.
    wanted: Option<f64>,
    unanswered: u64,
    /// Length of a slice.
    slice: Duration,
    /// Calls per second in each complete slice.
    pub rates: Vec<f64>,
    /// The p99 of each complete slice in microseconds; 0: the slice has no successful call.
    pub p99_us: Vec<u64>,
    /// The last complete slice.
    last: Option<LoadSlice>,
    calls: u64,
    events: u64,
    /// Failed calls, by kind.
    pub errors: BTreeMap<String, u64>,
}

impl ShownRun {
    /// A run that has not reported anything yet.
    pub fn new(title: String) -> ShownRun {
        ShownRun { title, ..ShownRun::default() }
    }

    /// Updates the progress from the run.
    pub fn update(&mut self, run: &LoadRun) {
        let plan = run.plan();
        self.length = plan.warmup + plan.duration;
        self.warmup = plan.warmup;
        self.elapsed = run.elapsed();
        self.wanted = plan.rate_at(self.elapsed);
        self.unanswered = run.in_flight();
        let progress = run.progress(self.rates.len());
        self.slice = progress.slice;
        (self.calls, self.events, self.errors) = (progress.calls, progress.events, progress.errors);
        let seconds = progress.slice.as_secs_f64().max(1e-9);
        let whole = (self.elapsed.as_secs_f64() / seconds) as usize;
        for slice in progress.slices {
            // The current slice is incomplete and would look like a dip.
            if self.rates.len() < whole {
                self.rates.push(slice.calls as f64 / seconds);
                self.p99_us.push(slice.latency.value_at_quantile(0.99) / 1_000);
                self.last = Some(slice);
            }
        }
    }

    /// The elapsed time.
    pub fn time_line(&self) -> String {
        if self.elapsed > self.length {
            return "waiting for the last answers".to_owned();
        }
        let remaining = self.length.saturating_sub(self.elapsed).as_secs_f64().ceil();
        let phase = if self.elapsed < self.warmup { "warm-up, " } else { "" };
        let (at, length) = (self.elapsed.as_secs(), self.length.as_secs_f64());
        format!("{phase}{at} s of {length:.0} s, {remaining:.0} s left")
    }

    /// Rates and counts.
    pub fn rate_line(&self) -> String {
        let reached = self.rates.last().map_or_else(|| "–".to_owned(), |rate| format!("{rate:.0}"));
        let wanted = match self.wanted {
            Some(wanted) => format!("wanted {wanted:.0} calls/s, reached {reached}"),
            None => format!("reached {reached} calls/s"),
        };
        let events = match self.events {
            0 => String::new(),
            events => format!(", {events} events"),
        };
        format!("{wanted}; {} unanswered; {} calls{events}", self.unanswered, self.calls)
    }

    /// Latencies of the last slice.
    pub fn latency_line(&self) -> String {
        let Some(last) = self.last.as_ref().filter(|last| !last.latency.is_empty()) else {
            return format!("no call succeeded in the last {:.0} s", self.slice.as_secs_f64());
        };
        let ms = |share: f64| last.latency.value_at_quantile(share) as f64 / 1e6;
        let max = last.latency.max() as f64 / 1e6;
        format!(
            "p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, max {max:.3} ms",
            ms(0.5),
            ms(0.99),
            ms(0.999)
        )
    }

    /// Everything in one line, for output without a view.
    pub fn line(&self) -> String {
        let ms = |share: f64| {
            let last = self.last.as_ref().map(|last| last.latency.value_at_quantile(share));
            last.unwrap_or_default() as f64 / 1e6
        };
        format!(
            "{:>5.0} s  {:>8.0} calls/s  p50 {:.3} ms  p99 {:.3} ms  {} unanswered  {} errors\n",
            self.elapsed.as_secs_f64(),
            self.rates.last().copied().unwrap_or_default(),
            ms(0.5),
            ms(0.99),
            self.unanswered,
            self.errors.values().sum::<u64>()
        )
    }
}
