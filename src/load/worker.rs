//! One thread of the generator: it begins calls when they are due and counts what comes of them.
//!
//! Calls are made by slots, one call each at a time. One slot, the leader, waits until the next
//! call is due; before it begins, it leaves the lead to another slot, a new one if all are busy. So
//! a slow answer never delays the next call, until there are as many slots as calls may be
//! unanswered.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Instant,
};

use futures_util::stream::{FuturesUnordered, Stream};

use crate::client::{Client, SendRequest, Transport};

use super::{
    CallProbe, LoadClock, LoadMeasures, LoadOperation, LoadPace, LoadPlan,
    failure::CallFailure,
    measures::record,
    operation::{CallTimes, OperationContext, payload},
    schedule::{CallSchedule, DueCall},
};

/// Nanoseconds after which a call that had room counts as late.
const LATE_NS: u64 = 1_000_000;
/// Tasks that are made before a run that reads tasks.
const TASKS_PREPARED: u64 = 16;
/// Tasks that are remembered to be read.
const TASKS_KEPT_MAX: usize = 256;

/// What one worker has measured so far, for others to look at.
#[derive(Debug)]
pub struct SharedMeasures {
    measures: Mutex<LoadMeasures>,
    in_flight: AtomicU64,
    is_stopped: AtomicBool,
    stop: tokio::sync::Notify,
}

impl SharedMeasures {
    /// Nothing yet.
    pub fn new(plan: &LoadPlan) -> Arc<SharedMeasures> {
        let length = plan.warmup + plan.duration;
        Arc::new(SharedMeasures {
            measures: Mutex::new(LoadMeasures::new(plan.operations.len(), length)),
            in_flight: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            stop: tokio::sync::Notify::new(),
        })
    }

    /// What there is. The worker waits while it is held.
    pub fn lock(&self) -> MutexGuard<'_, LoadMeasures> {
        self.measures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls that are unanswered now.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Ends the run of this worker; calls that are unanswered are not counted.
    pub fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        self.stop.notify_one();
    }
}

/// A worker: its client, its part of the plan, and its time.
pub struct LoadWorker<T: Transport, C> {
    client: Client<T>,
    clock: C,
    plan: LoadPlan,
    shared: Arc<SharedMeasures>,
    /// What the times inside a call are relative to.
    start: Instant,
    schedule: tokio::sync::Mutex<CallSchedule>,
    /// Ids of tasks, the newest last.
    tasks: RefCell<VecDeque<String>>,
    slots: Cell<usize>,
    waiting_slots: Cell<usize>,
    /// True: a slot is to be added.
    wants_slot: Cell<bool>,
}

impl<T: Transport, C: LoadClock> LoadWorker<T, C> {
    /// Worker number `index` of the plan's. `start` is when the time of `clock` began.
    pub fn new(
        client: Client<T>,
        clock: C,
        start: Instant,
        (plan, index): (&LoadPlan, usize),
        shared: Arc<SharedMeasures>,
    ) -> LoadWorker<T, C> {
        LoadWorker {
            client,
            clock,
            schedule: tokio::sync::Mutex::new(CallSchedule::new(plan, index)),
            plan: plan.clone(),
            shared,
            start,
            tasks: RefCell::default(),
            slots: Cell::new(0),
            waiting_slots: Cell::new(0),
            wants_slot: Cell::new(false),
        }
    }

    /// Makes the tasks that calls of the plan read.
    ///
    /// # Errors
    /// Why there are none, in one sentence.
    pub async fn prepare(client: &Client<T>, plan: &LoadPlan) -> Result<Vec<String>, String> {
        let reads = plan.operations.iter().any(|(operation, _)| *operation == LoadOperation::Get);
        let mut tasks = Vec::new();
        for number in 0..if reads { TASKS_PREPARED } else { 0 } {
            let request = SendRequest::text(payload(plan.payload_bytes, number).as_str());
            let answer = client.send(&request).await.map_err(|error| error.to_string())?;
            let Some(id) = answer.task_id() else {
                return Err("the agent answers with a message, so there is no task to read".into());
            };
            tasks.push(id.to_str().into_owned());
        }
        Ok(tasks)
    }

    /// Makes the calls of the plan, and returns when all are over.
    pub async fn run(&self, prepared: Vec<String>) {
        self.tasks.borrow_mut().extend(prepared);
        let mut slots: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + '_>>> =
            FuturesUnordered::new();
        let first = match self.plan.pace {
            LoadPace::Rate { .. } => 1,
            LoadPace::Concurrency(_) => self.plan.worker_in_flight_max(),
        };
        (0..first).for_each(|_| slots.push(self.new_slot()));
        let mut stop = pin!(self.shared.stop.notified());
        poll_fn(|cx| {
            if stop.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            loop {
                let polled = Pin::new(&mut slots).poll_next(cx);
                if self.wants_slot.replace(false) {
                    slots.push(self.new_slot());
                    continue;
                }
                match polled {
                    Poll::Ready(Some(())) => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }

    fn new_slot(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.slots.set(self.slots.get() + 1);
        let probe = CallProbe::new(self.start);
        Box::pin(probe.over(self.slot(Arc::clone(&probe))))
    }

    /// Makes one call after the other.
    async fn slot(&self, probe: Arc<CallProbe>) {
        let mut times = CallTimes::default();
        while let Some((due, had_room)) = self.lead().await {
            let sent_ns = self.clock.now_ns();
            self.note_begin(due, sent_ns, had_room);
            let operation = self.plan.operations[due.operation].0;
            times.events_ns.clear();
            probe.take_first_byte_ns();
            self.shared.in_flight.fetch_add(1, Relaxed);
            let outcome = self.call(operation, due, &mut times).await;
            self.shared.in_flight.fetch_sub(1, Relaxed);
            let ended = EndedCall {
                due_ns: due.due_ns.unwrap_or(sent_ns),
                sent_ns,
                first_byte_ns: probe.take_first_byte_ns(),
                over_ns: self.clock.now_ns(),
                events_ns: &times.events_ns,
            };
            self.note_end(due.operation, &ended, outcome);
        }
    }

    /// Waits for the next call; `None`: there is none. True: the slot waited for it, and not it for
    /// a slot.
    async fn lead(&self) -> Option<(DueCall, bool)> {
        self.waiting_slots.set(self.waiting_slots.get() + 1);
        let mut schedule = self.schedule.lock().await;
        self.waiting_slots.set(self.waiting_slots.get() - 1);
        let now_ns = self.clock.now_ns();
        let next = schedule.next(now_ns)?;
        let Some(due_ns) = next.due_ns else { return Some((next, true)) };
        if now_ns >= self.plan.end_ns() {
            // Too late for this one and all others.
            let mut missed = 1;
            while schedule.next(now_ns).is_some() {
                missed += 1;
            }
            self.shared.lock().never_sent += missed;
            return None;
        }
        self.clock.sleep_until(due_ns).await;
        let is_full = self.slots.get() >= self.plan.worker_in_flight_max();
        if self.waiting_slots.get() == 0 && !is_full {
            self.wants_slot.set(true);
        }
        Some((next, now_ns <= due_ns || !is_full))
    }

    async fn call(
        &self,
        operation: LoadOperation,
        due: DueCall,
        times: &mut CallTimes,
    ) -> Result<(), CallFailure> {
        let task_id = match operation {
            LoadOperation::Get => {
                let tasks = self.tasks.borrow();
                tasks.get(due.bits as usize % tasks.len().max(1)).cloned().unwrap_or_default()
            }
            LoadOperation::Send | LoadOperation::Stream => String::new(),
        };
        let context = OperationContext {
            client: &self.client,
            clock: &self.clock,
            plan: &self.plan,
            task_id: &task_id,
            is_checked: self.plan.check.holds(due.number),
        };
        let call = context.call(operation, due, times);
        if operation != LoadOperation::Stream {
            // The client ends it in time.
            return call.await;
        }
        let due_ms = self.plan.call_timeout.as_millis() as u64;
        let transport = self.client.transport();
        let mut late = pin!(transport.sleep_until(transport.mono_ms() + due_ms));
        let mut call = pin!(call);
        poll_fn(|cx| match call.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => late
                .as_mut()
                .poll(cx)
                .map(|()| Err(CallFailure::wrong("timeout", "the stream had not ended in time"))),
        })
        .await
    }

    fn note_begin(&self, due: DueCall, sent_ns: u64, had_room: bool) {
        let Some(due_ns) = due.due_ns.filter(|due_ns| *due_ns >= self.plan.warmup_ns()) else {
            return;
        };
        let mut measures = self.shared.lock();
        let lag_ns = sent_ns.saturating_sub(due_ns);
        if had_room {
            record(&mut measures.lag, lag_ns);
            measures.late += u64::from(lag_ns > LATE_NS);
        } else {
            measures.held_back += 1;
        }
    }

    fn note_end(&self, operation: usize, ended: &EndedCall<'_>, outcome: Result<(), CallFailure>) {
        let EndedCall { due_ns, over_ns, .. } = *ended;
        let mut measures = self.shared.lock();
        let slice = measures.slice_at(over_ns);
        slice.calls += 1;
        slice.events += ended.events_ns.len() as u64;
        slice.errors += u64::from(outcome.is_err());
        if outcome.is_ok() {
            record(&mut slice.latency, over_ns.saturating_sub(due_ns));
        }
        if due_ns < self.plan.warmup_ns() {
            return;
        }
        let of = &mut measures.operations[operation];
        of.events += ended.events_ns.len() as u64;
        if let Err(failure) = outcome {
            return of.note_error(&failure.kind, || failure.detail);
        }
        of.good += 1;
        record(&mut of.latency, over_ns.saturating_sub(due_ns));
        record(&mut of.service, over_ns.saturating_sub(ended.sent_ns));
        if let Some(first_ns) = ended.first_byte_ns {
            record(&mut of.first_byte, first_ns.saturating_sub(due_ns));
        }
        if let Some(first) = ended.events_ns.first() {
            record(&mut of.first_event, first.saturating_sub(due_ns));
        }
        if let Some(second) = ended.events_ns.get(1) {
            record(&mut of.second_event, second.saturating_sub(due_ns));
        }
        for pair in ended.events_ns.windows(2) {
            record(&mut of.gaps, pair[1].saturating_sub(pair[0]));
        }
    }

    /// Remembers a task to be read.
    #[allow(dead_code)]
    fn know_task(&self, id: String) {
        let mut tasks = self.tasks.borrow_mut();
        if tasks.len() >= TASKS_KEPT_MAX {
            tasks.pop_front();
        }
        tasks.push_back(id);
    }
}

/// When things happened in a call that is over, in nanoseconds since the beginning.
struct EndedCall<'a> {
    due_ns: u64,
    sent_ns: u64,
    first_byte_ns: Option<u64>,
    over_ns: u64,
    events_ns: &'a [u64],
}
