//! Calls that share one answer: while the first call waits for a decision, equal calls wait for the
//! same decision.
//!
//! Invariant: all joined calls get the same answer, and no call joins after the answer. The callers
//! count as disconnected when the last of them has disconnected. A silent call, which wants the
//! decision but no answer, never disconnects.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use super::{CallLink, LateAnswer, LateCall, Waiter, late::Charge};

/// The answering side of several calls.
pub struct JoinedCalls(Mutex<Joined>);

struct Joined {
    calls: Vec<Arc<LateCall>>,
    is_answered: bool,
}

/// The one of several calls that is watched to detect when all callers have disconnected.
#[derive(Default)]
pub(crate) struct WatchedCall {
    call: Option<Arc<LateCall>>,
    waiter: Waiter,
}

/// The callers that still want the decision.
pub(crate) enum WantedBy {
    /// A caller waits for the answer; others may wait, too.
    Caller(Arc<LateCall>),
    /// Only silent callers, which want the effect but no answer.
    Silent,
    /// All callers have disconnected or are answered.
    NoCaller,
}

impl JoinedCalls {
    /// A waiting call and its answering side, which more calls may join.
    pub fn first() -> (CallLink, Arc<JoinedCalls>) {
        let (link, call) = CallLink::late();
        let joined = Joined { calls: vec![call], is_answered: false };
        (link, Arc::new(JoinedCalls(Mutex::new(joined))))
    }

    fn lock(&self) -> MutexGuard<'_, Joined> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a waiting call, and holds `charge` for it until it ends; `None`: the calls are
    /// answered, or all callers have disconnected.
    pub(crate) fn join(&self, charge: Charge) -> Option<CallLink> {
        let mut joined = self.lock();
        if joined.is_answered || joined.calls.iter().all(|call| call.has_disconnected()) {
            return None;
        }
        if joined.calls.len() == joined.calls.capacity() {
            joined.forget();
            // Doubles the capacity, so that the cost of the scan is amortized.
            let stay = joined.calls.len();
            joined.calls.reserve(stay);
        }
        let (link, call) = CallLink::late();
        call.count_by(charge);
        joined.calls.push(call);
        Some(link)
    }

    /// Answers all joined calls.
    pub fn answer(&self, answer: impl Fn() -> LateAnswer) {
        let mut joined = self.lock();
        joined.is_answered = true;
        let calls = std::mem::take(&mut joined.calls);
        drop(joined);
        calls.iter().for_each(|call| call.answer(answer()));
    }

    /// True when all callers have disconnected without their answer.
    pub fn all_disconnected(&self) -> bool {
        self.lock().calls.iter().all(|call| call.has_disconnected())
    }

    /// The callers that still want the decision.
    pub(crate) fn wanted_by(&self) -> WantedBy {
        let mut wanted_by = WantedBy::NoCaller;
        for call in &self.lock().calls {
            if call.is_answered() {
                wanted_by = WantedBy::Silent;
            } else if !call.has_disconnected() {
                return WantedBy::Caller(Arc::clone(call));
            }
        }
        wanted_by
    }

    /// Ready when no caller waits for the answer any more; otherwise registers `wake`. True: a
    /// silent caller still wants the decision.
    pub(crate) fn poll_unawaited(&self, watched: &mut WatchedCall, wake: &Waker) -> Poll<bool> {
        loop {
            let WatchedCall { call, waiter } = watched;
            if let Some(call) = call
                && call.poll_over(waiter, wake).is_pending()
            {
                return Poll::Pending;
            }
            let call = match self.wanted_by() {
                WantedBy::Caller(call) => Some(call),
                WantedBy::Silent => return Poll::Ready(true),
                WantedBy::NoCaller => return Poll::Ready(false),
            };
            *watched = WatchedCall { call, waiter: Waiter::default() };
        }
    }
}

impl Joined {
    /// Drops finished calls, except the first silent call, which still wants the decision.
    fn forget(&mut self) {
        let mut has_silent = false;
        self.calls.retain(|call| match call.is_answered() {
            true => !std::mem::replace(&mut has_silent, true),
            false => !call.has_disconnected(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        task::Wake,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::fault::FaultKind;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    fn fault() -> LateAnswer {
        LateAnswer::Fault(FaultKind::Internal.into())
    }

    fn join(calls: &JoinedCalls) -> Option<CallLink> {
        calls.join(Box::new(()))
    }

    #[test]
    fn joined_calls_get_one_answer_and_later_calls_cannot_join() {
        let (first, calls) = JoinedCalls::first();
        let links = [first, join(&calls).unwrap(), join(&calls).unwrap()];
        assert!(links.iter().all(|link| link.poll(Waker::noop()).is_pending()));
        calls.answer(fault);
        for link in &links {
            assert!(matches!(link.poll(Waker::noop()), Poll::Ready(LateAnswer::Fault(_))));
        }
        assert!(join(&calls).is_none());
    }

    #[test]
    fn joined_calls_disconnect_with_the_last_caller() {
        let (first, calls) = JoinedCalls::first();
        let second = join(&calls).unwrap();
        let mut watched = WatchedCall::default();
        let mut is_unawaited = || {
            let polled = calls.poll_unawaited(&mut watched, Waker::noop());
            assert_eq!(polled == Poll::Ready(false), calls.all_disconnected());
            polled.is_ready()
        };
        assert!(!is_unawaited());
        drop(first);
        assert!(!is_unawaited());
        drop(second);
        assert!(is_unawaited());
        assert!(join(&calls).is_none());
    }

    #[test]
    fn disconnected_joined_calls_are_removed() {
        let (_first, calls) = JoinedCalls::first();
        (0..1_000).for_each(|_| drop(join(&calls)));
        assert!(calls.lock().calls.len() <= 8);
    }

    #[test]
    fn joining_and_leaving_rarely_scans_the_waiting_calls() {
        let (first, calls) = JoinedCalls::first();
        let has_one_free_slot = |calls: &JoinedCalls| {
            let joined = calls.lock();
            joined.calls.len() + 1 == joined.calls.capacity()
        };
        let mut links = vec![first];
        while links.len() < 1_000 || !has_one_free_slot(&calls) {
            links.extend(join(&calls));
        }
        let (stay, mut looks) = (links.len(), 0);
        for _ in 0..4 * stay {
            let before = calls.lock().calls.len();
            drop(join(&calls));
            looks += usize::from(calls.lock().calls.len() <= before);
        }
        assert!(looks <= 8, "{looks}");
    }

    #[test]
    fn watcher_is_woken_when_a_caller_turns_silent() {
        let (mut first, calls) = JoinedCalls::first();
        let (mut watched, woken) = (WatchedCall::default(), Arc::new(Woken::default()));
        let wake = Waker::from(Arc::clone(&woken));
        assert_eq!(calls.poll_unawaited(&mut watched, &wake), Poll::Pending);
        first.finish();
        assert!(woken.0.load(Relaxed));
        assert_eq!(calls.poll_unawaited(&mut watched, &wake), Poll::Ready(true));
        assert!(matches!(calls.wanted_by(), WantedBy::Silent) && !calls.all_disconnected());
        // Another waiting caller is watched instead.
        let second = join(&calls).unwrap();
        assert_eq!(calls.poll_unawaited(&mut watched, &wake), Poll::Pending);
        drop(second);
        assert_eq!(calls.poll_unawaited(&mut watched, &wake), Poll::Ready(true));
        calls.answer(fault);
        assert_eq!(calls.poll_unawaited(&mut watched, &wake), Poll::Ready(false));
    }

    #[test]
    fn concurrent_finish_is_not_missed_by_a_new_watcher() {
        const ROUNDS: usize = 20_000;
        let (give, take) = std::sync::mpsc::sync_channel::<CallLink>(1);
        let round_of_other = &AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for (round, mut link) in take.iter().enumerate() {
                    round_of_other.store(round + 1, Relaxed);
                    (0..round % 50).for_each(|_| std::hint::spin_loop());
                    link.finish();
                }
            });
            // Dropping `give` ends the loop of the other thread.
            let give = give;
            for round in 0..ROUNDS {
                let (first, calls) = JoinedCalls::first();
                let (mut watched, woken) = (WatchedCall::default(), Arc::new(Woken::default()));
                let wake = Waker::from(Arc::clone(&woken));
                give.send(first).unwrap();
                while round_of_other.load(Relaxed) <= round {
                    std::thread::yield_now();
                }
                let polled = calls.poll_unawaited(&mut watched, &wake);
                while !matches!(calls.wanted_by(), WantedBy::Silent) {
                    std::thread::yield_now();
                }
                // A wake-up comes immediately after that, if at all.
                let since = Instant::now();
                while polled.is_pending() && !woken.0.load(Relaxed) {
                    assert!(since.elapsed() < Duration::from_secs(20), "{round}");
                    std::thread::yield_now();
                }
            }
        });
    }

    #[test]
    fn silent_calls_are_removed_but_still_want_the_decision() {
        let (first, calls) = JoinedCalls::first();
        let charge = Arc::new(());
        for _ in 0..1_000 {
            calls.join(Box::new(Arc::clone(&charge))).unwrap().finish();
            // The charge of the call is released.
            assert_eq!(Arc::strong_count(&charge), 1);
        }
        assert!(calls.lock().calls.len() <= 8);
        drop(first);
        (0..1_000).for_each(|_| drop(join(&calls)));
        assert!(!calls.all_disconnected() && calls.lock().calls.len() <= 8);
    }
}
