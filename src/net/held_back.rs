//! Output that must not be sent yet, because the state it shows is not durable.
//!
//! Invariant: `free | first | second`, in the order of the output. Free bytes may be sent; the
//! first part waits for one record, and the second part, all later output, for a newer record. So
//! even endless output is sent part by part.

use std::{sync::Arc, task::Context};

use crate::service::tap::{DurableWait, Tap};

/// The part of a connection's unsent output that waits for durable records.
#[derive(Default)]
pub(super) struct HeldBack {
    parts: [HeldPart; 2],
    /// The wait of the first part.
    wait: DurableWait,
}

#[derive(Clone, Copy, Default)]
struct HeldPart {
    bytes: usize,
    /// The record that this part waits for.
    record: u64,
}

impl HeldBack {
    /// Makes the newest `bytes` of the output wait for a record.
    pub(super) fn hold(&mut self, bytes: usize, record: u64) {
        let [first, second] = &mut self.parts;
        let part = if first.bytes == 0 { first } else { second };
        part.bytes += bytes;
        part.record = part.record.max(record);
    }

    /// True if output waits.
    pub(super) fn is_some(&self) -> bool {
        self.parts[0].bytes > 0
    }

    /// Returns how many of `unsent` bytes may be sent now. If these are not all, the task of `cx`
    /// is woken when more may be sent.
    pub(super) fn free(
        &mut self,
        unsent: usize,
        tap: Option<&Arc<dyn Tap>>,
        cx: &Context<'_>,
    ) -> usize {
        let Some(tap) = tap else { return unsent };
        while self.is_some() && self.wait.is_durable(&**tap, self.parts[0].record, cx.waker()) {
            self.parts = [self.parts[1], HeldPart::default()];
        }
        unsent.saturating_sub(self.parts[0].bytes + self.parts[1].bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering::Relaxed},
        task::{Wake, Waker},
    };

    use crate::service::{Handle, tap::Record};

    use super::*;

    /// A waker with clones that always compare equal, unlike clones of [`Waker::noop`].
    struct NoWake;

    impl Wake for NoWake {
        fn wake(self: Arc<Self>) {}
    }

    #[derive(Default)]
    struct Durable {
        newest: AtomicU64,
        /// How often a waker was registered.
        registered: AtomicU64,
    }

    impl Tap for Durable {
        fn record(&self, _task: Handle, _record: Record<'_>) -> u64 {
            0
        }

        fn durable(&self) -> u64 {
            self.newest.load(Relaxed)
        }

        fn wait(&self, _number: u64, _wake: &Waker) {
            self.registered.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn output_is_sent_in_order_and_never_waits_for_later_records() {
        let durable = Arc::new(Durable::default());
        let tap: Arc<dyn Tap> = Arc::clone(&durable) as _;
        let (tap, cx) = (Some(&tap), &Context::from_waker(Waker::noop()));
        let mut held = HeldBack::default();
        assert_eq!(held.free(10, tap, cx), 10);
        held.hold(10, 5);
        // New records arrive faster than they become durable.
        let mut unsent = 20;
        for record in 6..100 {
            durable.newest.store(record - 3, Relaxed);
            held.hold(10, record);
            unsent += 10;
            unsent -= held.free(unsent, tap, cx);
            assert!(unsent <= 70, "{unsent}");
        }
        // Output with a durable record waits for the output before it.
        held.hold(10, 1);
        assert!(held.free(unsent + 10, tap, cx) < unsent);
        durable.newest.store(99, Relaxed);
        assert_eq!(held.free(unsent + 10, tap, cx), unsent + 10);
        assert!(!held.is_some());
    }

    #[test]
    fn waker_is_registered_once_per_record() {
        let durable = Arc::new(Durable::default());
        let tap: Arc<dyn Tap> = Arc::clone(&durable) as _;
        let waker = Waker::from(Arc::new(NoWake));
        let (tap, cx) = (Some(&tap), &Context::from_waker(&waker));
        let mut held = HeldBack::default();
        held.hold(10, 5);
        held.hold(10, 6);
        for _ in 0..100 {
            assert_eq!(held.free(20, tap, cx), 0);
        }
        assert_eq!(durable.registered.load(Relaxed), 1);
        durable.newest.store(5, Relaxed);
        for _ in 0..100 {
            assert_eq!(held.free(20, tap, cx), 10);
        }
        assert_eq!(durable.registered.load(Relaxed), 2);
    }
}
