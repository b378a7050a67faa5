//! How a run goes, without the histograms of the report: cheap enough to be asked for often.

use std::{collections::BTreeMap, time::Duration};

use super::{LoadMeasures, LoadSlice, measures::add_slices};

/// What has come of the calls of a run so far.
#[derive(Clone, Debug, Default)]
pub struct LoadProgress {
    /// Slices of time, from the one that was asked for to the one that is being filled.
    pub slices: Vec<LoadSlice>,
    /// Length of a slice.
    pub slice: Duration,
    /// Calls that are counted, well or not.
    pub calls: u64,
    /// Events of streams that are counted.
    pub events: u64,
    /// Calls that failed, by kind.
    pub errors: BTreeMap<String, u64>,
}

impl LoadProgress {
    /// Adds what a worker has measured, from this slice on.
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
