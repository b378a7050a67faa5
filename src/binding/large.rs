//! Large bodies: parsing a body takes many times its size, so the number of concurrent parses is
//! limited.
//!
//! Invariants: a body above [`LARGE_BODY_BYTES`] is handled with separate buffers; all workers
//! together have `large_bodies_max` sets of them. If no set is free, a request waits in a first-in,
//! first-out queue: with n free sets the first n requests may proceed, and each is woken when it
//! becomes one of them. A waiting request holds a whole body, which counts in `buffers_bytes_max`,
//! so the queue is bounded, too. Buffers are retained for the next large body, and freed after a
//! second without one.

use std::{
    collections::BTreeMap,
    mem,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use crate::{json::Parser, limits::Limits, model::EventBuf, service::Now};

use super::Scratch;

pub use crate::limits::LARGE_BODY_BYTES;

/// Milliseconds without a large body after which the buffers are freed.
const QUIET_MS: u64 = 1_000;

/// The buffers for a large body, in place of the worker's small buffers.
pub struct Buffers {
    parser: Parser,
    pack: Vec<u8>,
    events: EventBuf,
}

impl Buffers {
    fn new(tokens_max: usize) -> Buffers {
        let parser = Parser::bounded(tokens_max);
        Buffers { parser, pack: Vec::new(), events: EventBuf::default() }
    }
}

/// The buffers for large bodies, which all workers share.
pub struct LargeBodies(Mutex<Inner>);

struct Inner {
    /// The number of free sets of buffers, allocated or not.
    free: usize,
    /// Free buffers that are allocated.
    allocated: Vec<Buffers>,
    /// See `json_tokens_max`.
    tokens_max: usize,
    /// Waiting requests, by number.
    queue: BTreeMap<u64, Waker>,
    next: u64,
    used_ms: u64,
}

/// A position in the queue; dropping the ticket removes the request from the queue.
pub struct Ticket {
    of: Arc<LargeBodies>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut inner = self.of.lock();
        let was_next = inner.is_next(self.number);
        inner.queue.remove(&self.number);
        let woken = inner.last_free().filter(|_| was_next);
        drop(inner);
        woken.inspect(Waker::wake_by_ref);
    }
}

impl LargeBodies {
    /// Buffers for `large_bodies_max` concurrent bodies.
    pub fn new(limits: &Limits) -> Arc<LargeBodies> {
        let (free, tokens_max) = (limits.large_bodies_max, limits.json_tokens_max);
        let (allocated, queue) = (Vec::new(), BTreeMap::new());
        let inner = Inner { free, allocated, tokens_max, queue, next: 0, used_ms: 0 };
        Arc::new(LargeBodies(Mutex::new(inner)))
    }

    /// Buffers for one body if a set is free for this request; otherwise `ticket` is its position
    /// in the queue, and `wake` is woken when a set is free. Call it again with the same ticket.
    pub fn take(
        self: &Arc<LargeBodies>,
        ticket: &mut Option<Box<Ticket>>,
        wake: &Waker,
    ) -> Option<Box<Lease>> {
        let mut inner = self.lock();
        let free = inner.free;
        match ticket {
            None if free > inner.queue.len() => {}
            None => {
                let number = inner.next;
                inner.next += 1;
                inner.queue.insert(number, wake.clone());
                *ticket = Some(Box::new(Ticket { of: Arc::clone(self), number }));
                return None;
            }
            Some(held) if inner.is_next(held.number) => {
                inner.queue.remove(&held.number);
            }
            Some(held) => {
                if let Some(waker) = inner.queue.get_mut(&held.number) {
                    waker.clone_from(wake);
                }
                return None;
            }
        }
        inner.free -= 1;
        let buffers = inner.allocated.pop();
        let buffers = buffers.unwrap_or_else(|| Buffers::new(inner.tokens_max));
        drop(inner);
        *ticket = None;
        Some(Box::new(Lease { of: Arc::clone(self), buffers }))
    }

    /// Frees buffers that were not used for a second; true: buffers were freed.
    pub fn shrink(&self, now: Now) -> bool {
        let mut inner = self.lock();
        if inner.allocated.is_empty() || now.mono_ms < inner.used_ms + QUIET_MS {
            return false;
        }
        let allocated = mem::take(&mut inner.allocated);
        drop(inner);
        drop(allocated);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// True: the queued request with this number may proceed.
    fn is_next(&self, number: u64) -> bool {
        self.queue.keys().take(self.free).any(|queued| *queued == number)
    }

    /// The waker of the last queued request that may proceed.
    fn last_free(&self) -> Option<Waker> {
        let last = self.free.checked_sub(1)?;
        self.queue.values().nth(last).cloned()
    }
}

/// The buffers for one body; dropping the lease returns them.
pub struct Lease {
    of: Arc<LargeBodies>,
    buffers: Buffers,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let buffers = mem::replace(&mut self.buffers, Buffers::new(0));
        let mut inner = self.of.lock();
        inner.free += 1;
        inner.allocated.push(buffers);
        let woken = inner.last_free();
        drop(inner);
        woken.inspect(Waker::wake_by_ref);
    }
}

/// A worker's scratch, with the buffers of a large body swapped in until `Lent` is dropped.
pub struct Lent<'s> {
    lease: Option<Box<Lease>>,
    scratch: &'s mut Scratch,
}

impl<'s> Lent<'s> {
    /// The scratch for a body, with the buffers of `lease` if the body is large.
    pub fn new(scratch: &'s mut Scratch, lease: Option<Box<Lease>>, now: Now) -> Lent<'s> {
        if let Some(lease) = &lease {
            lease.of.lock().used_ms = now.mono_ms;
        }
        let mut lent = Lent { lease, scratch };
        lent.swap();
        lent
    }

    fn swap(&mut self) {
        let Some(lease) = &mut self.lease else { return };
        let Buffers { parser, pack, events } = &mut lease.buffers;
        mem::swap(parser, &mut self.scratch.decode.parser);
        mem::swap(pack, &mut self.scratch.decode.pack);
        mem::swap(events, &mut self.scratch.call.events);
    }
}

impl Deref for Lent<'_> {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        self.scratch
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Scratch {
        self.scratch
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.swap();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn bodies(large_bodies_max: usize) -> Arc<LargeBodies> {
        LargeBodies::new(&Limits { large_bodies_max, ..Limits::default() })
    }

    /// A waiting request: its ticket, and the number of its wake-ups.
    #[derive(Default)]
    struct TestRequest(Option<Box<Ticket>>, Arc<Count>);

    impl TestRequest {
        fn poll(&mut self, bodies: &Arc<LargeBodies>) -> Option<Box<Lease>> {
            bodies.take(&mut self.0, &Waker::from(Arc::clone(&self.1)))
        }

        fn woken(&self) -> usize {
            self.1.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn large_body_queue_is_first_in_first_out() {
        let bodies = bodies(1);
        let [mut a, mut b, mut c]: [TestRequest; 3] = Default::default();
        let lease = a.poll(&bodies).unwrap();
        assert!(
            b.poll(&bodies).is_none() && c.poll(&bodies).is_none() && b.poll(&bodies).is_none()
        );
        drop(lease);
        assert_eq!((b.woken(), c.woken()), (1, 0));
        // Neither a later request in the queue nor a new request overtakes.
        assert!(c.poll(&bodies).is_none() && TestRequest::default().poll(&bodies).is_none());
        let lease = b.poll(&bodies).unwrap();
        drop(lease);
        assert_eq!((b.woken(), c.woken()), (1, 1));
        assert!(c.poll(&bodies).is_some());
    }

    #[test]
    fn dropped_queued_request_wakes_the_next() {
        let bodies = bodies(2);
        let [mut a, mut b, mut c, mut d, mut e]: [TestRequest; 5] = Default::default();
        let leases = (a.poll(&bodies).unwrap(), b.poll(&bodies).unwrap());
        assert!(
            [&mut c, &mut d, &mut e].into_iter().all(|request| request.poll(&bodies).is_none())
        );
        drop(leases.0);
        assert_eq!((c.woken(), d.woken(), e.woken()), (1, 0, 0));
        c.0 = None;
        assert_eq!((d.woken(), e.woken()), (1, 0));
        drop(leases.1);
        assert_eq!(e.woken(), 1);
        assert!(e.poll(&bodies).is_some() && d.poll(&bodies).is_some());
        let inner = bodies.lock();
        assert_eq!((inner.free, inner.queue.len()), (2, 0));
    }

    #[test]
    fn queue_of_large_bodies_drains_within_the_limit() {
        // A model of many threads: at each step one of the woken requests polls again, returns its
        // buffers, or is dropped.
        let most = 3;
        let bodies = bodies(most);
        let mut requests: Vec<(TestRequest, Option<Box<Lease>>, usize)> = Vec::new();
        requests.resize_with(40, Default::default);
        let (mut seed, mut served) = (7_u64, 0);
        // Each request polls once; after that only woken requests poll.
        for (request, lease, _) in &mut requests {
            *lease = request.poll(&bodies);
        }
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) as usize % requests.len();
            let (request, lease, seen) = &mut requests[at];
            if lease.take().is_some() {
                served += 1;
            } else if request.woken() > *seen && request.0.is_some() {
                *seen = request.woken();
                match (seed >> 20) % 8 {
                    0 => request.0 = None,
                    _ => *lease = request.poll(&bodies),
                }
            }
            let held = requests.iter().filter(|(_, lease, _)| lease.is_some()).count();
            assert!(held <= most && bodies.lock().free == most - held);
        }
        assert!(requests.iter().all(|(request, lease, _)| request.0.is_none() && lease.is_none()));
        assert!(served > 20, "{served}");
    }

    #[test]
    fn large_body_buffers_are_freed_after_quiet_time() {
        let bodies = bodies(1);
        drop(TestRequest::default().poll(&bodies));
        bodies.lock().used_ms = 5;
        let at = |mono_ms| Now { mono_ms, unix_ms: 0 };
        bodies.shrink(at(QUIET_MS));
        assert_eq!(bodies.lock().allocated.len(), 1);
        bodies.shrink(at(QUIET_MS + 5));
        assert_eq!(bodies.lock().allocated.len(), 0);
    }
}
