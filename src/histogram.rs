//! A histogram: counts of values in buckets. Counting takes two additions and never waits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The upper bounds of times, in nanoseconds: most calls take microseconds; calls that wait for
/// their agents take seconds.
pub const TIMES_NS: [u64; 21] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];

/// The upper bounds of numbers of events.
#[cfg(feature = "metrics")]
pub const EVENTS: [u64; 7] = [0, 1, 4, 16, 64, 256, 1_024];

/// A histogram with `N` bounds, and a last bucket for values above them.
pub struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    below: [AtomicU64; N],
    above: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    pub fn new(bounds: &'static [u64; N]) -> Histogram<N> {
        let below = std::array::from_fn(|_| AtomicU64::new(0));
        Histogram { bounds, below, above: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    /// Counts a value. Small values, by far the most frequent, are found first.
    #[inline]
    pub fn count(&self, value: u64) {
        let at = self.bounds.iter().position(|bound| value <= *bound);
        let bucket = at.map_or(&self.above, |at| &self.below[at]);
        bucket.fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }
}

/// The sum of histograms.
#[cfg(feature = "metrics")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    /// The sum of all values.
    pub sum: u64,
    /// The upper bound and the count of each bucket; the last one has no bound.
    pub buckets: Vec<(u64, u64)>,
}

#[cfg(feature = "metrics")]
impl Sums {
    /// Adds a histogram.
    pub fn add<const N: usize>(&mut self, of: &Histogram<N>) {
        let bounds = of.bounds.iter().copied().chain([u64::MAX]);
        let counts = of.below.iter().chain([&of.above]).map(|count| count.load(Relaxed));
        if self.buckets.is_empty() {
            self.buckets = bounds.map(|bound| (bound, 0)).collect();
        }
        self.buckets.iter_mut().zip(counts).for_each(|(bucket, count)| bucket.1 += count);
        self.sum += of.sum.load(Relaxed);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.1).sum()
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::new(&EVENTS);
        [0, 1, 2, 4, 5, 1_024, 1_025, 1 << 40].into_iter().for_each(|value| histogram.count(value));
        let mut sums = Sums::default();
        sums.add(&histogram);
        sums.add(&histogram);
        let counts: Vec<u64> = sums.buckets.iter().map(|bucket| bucket.1).collect();
        assert_eq!(counts, [2, 2, 4, 2, 0, 0, 2, 4]);
        assert_eq!((sums.count(), sums.sum), (16, 2 * (2_061 + (1 << 40))));
        assert!(TIMES_NS.is_sorted() && EVENTS.is_sorted());
    }
}
