//! Output that may not leave yet: what it shows is not durable.
//!
//! Law: `free | first | second`, in the order of the output. What is free may leave; the first part
//! waits for its record, and everything written meanwhile for another. So whatever is said without
//! end still leaves, part by part.

use std::{sync::Arc, task::Context};

use crate::service::tap::Tap;

/// What of a connection's unsent output waits. One word, for the many connections where nothing
/// does.
#[derive(Default)]
pub(super) struct HeldBack(Option<Box<[Part; 2]>>);

#[derive(Clone, Copy, Default)]
struct Part {
    bytes: usize,
    /// The record that it waits for.
    record: u64,
}

impl HeldBack {
    /// True when these bytes, the newest of the output, must wait. They do, from now on.
    pub(super) fn holds(
        &mut self,
        bytes: usize,
        record: u64,
        tap: Option<&Arc<dyn Tap>>,
        cx: &Context<'_>,
    ) -> bool {
        let Some(tap) = tap.filter(|_| bytes > 0) else { return false };
        if self.0.is_none() && is_durable(&**tap, record, cx) {
            return false;
        }
        let [first, second] = &mut **self.0.get_or_insert_default();
        let part = if first.bytes == 0 { first } else { second };
        part.bytes += bytes;
        part.record = record;
        true
    }

    /// How many of `unsent` bytes may leave now; otherwise the task of `cx` is woken when more may.
    pub(super) fn free(
        &mut self,
        unsent: usize,
        tap: Option<&Arc<dyn Tap>>,
        cx: &Context<'_>,
    ) -> usize {
        let (Some(parts), Some(tap)) = (&mut self.0, tap) else { return unsent };
        while parts[0].bytes > 0 && is_durable(&**tap, parts[0].record, cx) {
            **parts = [parts[1], Part::default()];
        }
        let held = parts[0].bytes + parts[1].bytes;
        if held == 0 {
            self.0 = None;
        }
        unsent.saturating_sub(held)
    }

    /// True when something waits.
    #[cfg(test)]
    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

/// True when a record is durable; otherwise the task of `cx` is woken when it is.
pub(super) fn is_durable(tap: &dyn Tap, record: u64, cx: &Context<'_>) -> bool {
    if tap.durable() >= record {
        return true;
    }
    tap.wait(record, cx.waker());
    false
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering::Relaxed},
        task::Waker,
    };

    use crate::service::{Handle, tap::Record};

    use super::*;

    #[derive(Default)]
    struct Durable(AtomicU64);

    impl Tap for Durable {
        fn record(&self, _task: Handle, _record: Record<'_>) {}

        fn recorded(&self) -> u64 {
            0
        }

        fn durable(&self) -> u64 {
            self.0.load(Relaxed)
        }

        fn wait(&self, _number: u64, _wake: &Waker) {}
    }

    #[test]
    fn output_leaves_in_its_order_and_nothing_waits_for_what_comes_later() {
        let durable = Arc::new(Durable::default());
        let tap: Arc<dyn Tap> = Arc::clone(&durable) as _;
        let (tap, cx) = (Some(&tap), &Context::from_waker(Waker::noop()));
        let mut held = HeldBack::default();
        assert!(!held.holds(10, 0, tap, cx) && held.holds(10, 5, tap, cx));
        // Newer records come faster than they are durable.
        let mut unsent = 20;
        for record in 6..100 {
            durable.0.store(record - 3, Relaxed);
            assert!(held.holds(10, record, tap, cx));
            unsent += 10;
            unsent -= held.free(unsent, tap, cx);
            assert!(unsent <= 70, "{unsent}");
        }
        // What is durable already waits for what was said before.
        assert!(held.holds(10, 1, tap, cx));
        durable.0.store(99, Relaxed);
        assert_eq!(held.free(unsent + 10, tap, cx), unsent + 10);
        assert!(!held.is_some() && !held.holds(10, 99, tap, cx));
    }
}
