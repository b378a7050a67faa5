//! The progress of a run, without the histograms of the report, so that it can be polled often.

use std::{collections::BTreeMap, time::Duration};

use super::{LoadMeasures, LoadSlice, measures::add_slices};

/// The results of a run so far.
#[derive(Clone, Debug, Default)]
pub struct LoadProgress {
    /// Time slices, from the requested one to the current one.
    pub slices: Vec<LoadSlice>,
    /// Length of a slice.
    pub slice: Duration,
    /// Counted calls, good or failed.
    pub calls: u64,
    /// Counted events of streams.
    pub events: u64,
    /// Failed calls, by kind.
    pub errors: BTreeMap<String, u64>,
}

impl LoadProgress {
    /// Adds the results of a worker; slices count from `from`.
    pub(super) fn add(&mut self, measures: &LoadMeasures, from: usize) {
        self.slice = measures.slice;
        for operation in &measures.operations {
            self.calls += operation.calls();
            self.events += operation.events;
            for (kind, count) in &operation.errors {
                *self.errors.entry(kind.clone()).or_default() += count;
            }
        }
        add_slices(&mut self.slices, measures.slices.get(from..).unwrap_or_default());
    }
}
