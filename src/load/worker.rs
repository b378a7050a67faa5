//! One thread of the generator: it starts calls when they are due and counts the results.
//!
//! Slots make the calls; each slot makes one call at a time. One slot, the leader, waits until the
//! next call is due. When it starts the call, another slot becomes the leader, a new slot if all
//! are busy. So a slow answer delays the next call only if the maximum number of slots is busy.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Instant,
};

use futures_util::stream::{FuturesUnordered, Stream};

use crate::{
    client::{Client, SendRequest, Transport},
    model::TaskState,
};

use super::{
    CallLimits, CallProbe, CheckLevel, LoadClock, LoadMeasures, LoadOperation, LoadPlan,
    PlannedCall, WebhookReceiver,
    failure::CallFailure,
    measures::{OperationMeasures, record},
    operation::{CallTimes, OperationContext, ReadableTask, payload},
    schedule::{CallSchedule, DueCall},
};

/// Nanoseconds after the due time from which a call counts as late, unless a limit held it back.
const LATE_NS: u64 = 1_000_000;
/// Nanoseconds after the end of the run in which calls that were due before still start.
const GRACE_NS: u64 = 5_000_000_000;
/// The due time of a slot without a call.
const IDLE: u64 = u64::MAX;
/// Tasks that are created before a run that reads tasks.
const TASKS_PREPARED: u64 = 16;
/// Bytes of the texts of these tasks.
const PREPARED_BYTES: usize = 64;
/// Tasks that are stored for calls that read tasks.
const TASKS_STORED_MAX: usize = 256;

/// The results of one worker so far, shared with other threads.
#[derive(Debug)]
pub struct SharedMeasures {
    measures: Mutex<LoadMeasures>,
    in_flight: AtomicU64,
    stop: tokio::sync::Notify,
}

impl SharedMeasures {
    /// Empty results.
    pub fn new(plan: &LoadPlan) -> Arc<SharedMeasures> {
        let length = plan.warmup + plan.duration;
        Arc::new(SharedMeasures {
            measures: Mutex::new(LoadMeasures::new(plan.calls.len(), length)),
            in_flight: AtomicU64::new(0),
            stop: tokio::sync::Notify::new(),
        })
    }

    /// The results so far. The worker waits while the lock is held.
    pub fn lock(&self) -> MutexGuard<'_, LoadMeasures> {
        self.measures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of calls in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Ends the run of this worker; calls in flight are not counted.
    pub fn stop(&self) {
        self.stop.notify_one();
    }
}

/// The parts of a worker.
pub struct WorkerSetup<'p, T: Transport, C> {
    /// At least one client, each with separate connections; each slot uses one client.
    pub clients: Vec<Client<T>>,
    /// The time of the run.
    pub clock: C,
    /// The start of the clock.
    pub start: Instant,
    /// The plan of all workers.
    pub plan: &'p LoadPlan,
    /// The number of this worker, from 0.
    pub index: usize,
    /// The results of the worker.
    pub shared: Arc<SharedMeasures>,
    /// Receives the webhooks of the worker's calls, while [`WebhookReceiver::serve`] is polled.
    pub webhooks: Option<WebhookReceiver>,
}

/// A task that was created before the run for calls that read tasks.
#[derive(Clone, Debug)]
pub struct PreparedTask {
    id: String,
    state: TaskState,
}

/// A worker: its clients, its part of the plan, and its clock.
pub struct LoadWorker<T: Transport, C> {
    clients: Vec<Client<T>>,
    clock: C,
    plan: LoadPlan,
    shared: Arc<SharedMeasures>,
    /// The start of the run, to which times inside a call are relative.
    start: Instant,
    schedule: tokio::sync::Mutex<CallSchedule>,
    /// Tasks that can be read, the newest last.
    tasks: RefCell<VecDeque<ReadableTask>>,
    webhooks: Option<WebhookReceiver>,
    slots: Cell<usize>,
    waiting_slots: Cell<usize>,
    /// The due time of the call in each slot; [`IDLE`]: the slot has no call.
    due_by_slot: RefCell<Vec<u64>>,
    /// The time when a slot became free after the limit of calls in flight was reached.
    room_since_ns: Cell<u64>,
    /// True: a slot is to be added.
    wants_slot: Cell<bool>,
}

impl<T: Transport, C: LoadClock> LoadWorker<T, C> {
    /// A worker that has not started.
    pub fn new(setup: WorkerSetup<'_, T, C>) -> LoadWorker<T, C> {
        let WorkerSetup { clients, clock, start, plan, index, shared, webhooks } = setup;
        LoadWorker {
            clients,
            clock,
            schedule: tokio::sync::Mutex::new(CallSchedule::new(plan, index)),
            plan: plan.clone(),
            shared,
            start,
            tasks: RefCell::default(),
            webhooks,
            slots: Cell::new(0),
            waiting_slots: Cell::new(0),
            due_by_slot: RefCell::default(),
            room_since_ns: Cell::new(0),
            wants_slot: Cell::new(false),
        }
    }

    /// The receiver of webhooks, if there is one.
    pub fn receiver(&self) -> Option<&WebhookReceiver> {
        self.webhooks.as_ref()
    }

    /// Creates the tasks that calls of the plan read.
    ///
    /// # Errors
    /// The reason why the tasks cannot be created, in one sentence.
    pub async fn prepare(client: &Client<T>, plan: &LoadPlan) -> Result<Vec<PreparedTask>, String> {
        let reads = plan.calls.iter().any(|call| call.operation.reads_tasks());
        let mut tasks = Vec::new();
        for number in 0..if reads { TASKS_PREPARED } else { 0 } {
            let request = SendRequest::text(payload(PREPARED_BYTES, number).as_str());
            let answer = client.send(&request).await.map_err(|error| error.to_string())?;
            let Some(id) = answer.task_id() else {
                return Err("the agent answers with a message, so there is no task to read".into());
            };
            let state = answer.state().unwrap_or(TaskState::Unspecified);
            tasks.push(PreparedTask { id: id.to_str().into_owned(), state });
        }
        Ok(tasks)
    }

    /// Makes the calls of the plan, and returns when all calls have ended.
    pub async fn run(&self, prepared: Vec<PreparedTask>) {
        let echoes = self.plan.agent.echoes;
        let prepared = prepared.into_iter().zip(0..).map(|(PreparedTask { id, state }, number)| {
            let text = echoes.then_some((PREPARED_BYTES, number));
            ReadableTask { id, text, state }
        });
        self.tasks.borrow_mut().extend(prepared);
        let mut slots: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + '_>>> =
            FuturesUnordered::new();
        let first = if self.plan.is_open() { 1 } else { self.plan.worker_in_flight_max() };
        (0..first).for_each(|_| slots.push(self.new_slot()));
        let mut stop = pin!(self.shared.stop.notified());
        poll_fn(|cx| {
            if stop.as_mut().poll(cx).is_ready() {
                self.note_unanswered();
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
        let number = self.slots.replace(self.slots.get() + 1);
        self.due_by_slot.borrow_mut().push(IDLE);
        let probe = CallProbe::new(self.start, self.plan.check != CheckLevel::Off);
        let client = &self.clients[number % self.clients.len()];
        let slot = CallSlot { number, client, probe: Arc::clone(&probe) };
        Box::pin(probe.over(self.make_calls(slot)))
    }

    /// Makes one call after another.
    async fn make_calls(&self, slot: CallSlot<'_, T>) {
        let mut times = CallTimes::default();
        while let Some(StartedCall { due, sent_ns, had_room }) = self.lead().await {
            self.note_begin(due, sent_ns, had_room);
            times.clear();
            slot.probe.clear();
            self.shared.in_flight.fetch_add(1, Relaxed);
            self.due_by_slot.borrow_mut()[slot.number] = due.due_ns.unwrap_or(sent_ns);
            let outcome = self.call(due, &slot, &mut times).await;
            self.due_by_slot.borrow_mut()[slot.number] = IDLE;
            let unanswered = self.shared.in_flight.fetch_sub(1, Relaxed);
            let over_ns = self.clock.now_ns();
            if unanswered >= self.plan.worker_in_flight_max() as u64 {
                self.room_since_ns.set(over_ns);
            }
            let result =
                outcome.map(|task| task.into_iter().for_each(|task| self.store_task(task)));
            let ended = EndedCall {
                due_ns: due.due_ns.unwrap_or(sent_ns),
                sent_ns,
                first_byte_ns: slot.probe.first_byte_ns(),
                over_ns,
                times: &times,
            };
            self.note_end(due.call, &ended, result);
        }
    }

    /// Waits for the next call; `None`: no call remains.
    async fn lead(&self) -> Option<StartedCall> {
        self.waiting_slots.set(self.waiting_slots.get() + 1);
        let mut schedule = self.schedule.lock().await;
        self.waiting_slots.set(self.waiting_slots.get() - 1);
        let now_ns = self.clock.now_ns();
        let next = schedule.next(now_ns)?;
        let Some(due_ns) = next.due_ns else {
            return Some(StartedCall { due: next, sent_ns: now_ns, had_room: true });
        };
        if now_ns >= self.plan.end_ns() + GRACE_NS {
            // This call and all remaining calls are too late.
            self.shared.lock().never_sent += 1 + schedule.skip_all();
            return None;
        }
        self.clock.sleep_until(due_ns).await;
        let is_full = self.slots.get() >= self.plan.worker_in_flight_max();
        if self.waiting_slots.get() == 0 && !is_full {
            self.wants_slot.set(true);
        }
        let had_room = now_ns <= due_ns || due_ns >= self.room_since_ns.get();
        Some(StartedCall { due: next, sent_ns: self.clock.now_ns(), had_room })
    }

    async fn call(
        &self,
        due: DueCall,
        slot: &CallSlot<'_, T>,
        times: &mut CallTimes,
    ) -> Result<Option<ReadableTask>, CallFailure> {
        let call = &self.plan.calls[due.call];
        let context = OperationContext {
            client: slot.client,
            clock: &self.clock,
            plan: &self.plan,
            call,
            tasks: &self.tasks_to_read(call, due.bits),
            webhooks: self.webhooks.as_ref(),
            probe: &slot.probe,
            is_checked: self.plan.check.holds(due.number),
            awaits_webhook: Cell::new(false),
        };
        let pending = context.make(due, times);
        if !call.operation.is_streaming() && !call.operation.needs_hold() {
            // The client enforces the time limit.
            return pending.await;
        }
        let due_ms = self.plan.call_timeout.as_millis() as u64;
        let transport = slot.client.transport();
        let mut late = pin!(transport.sleep_until(transport.mono_ms() + due_ms));
        let mut pending = pin!(pending);
        poll_fn(|cx| match pending.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => late.as_mut().poll(cx).map(|()| {
                Err(match context.awaits_webhook.get() {
                    true => {
                        let why = "no webhook reported the end of the task in time";
                        CallFailure::wrong("webhook_missing", why)
                    }
                    false => CallFailure::wrong("timeout", "the stream did not end in time"),
                })
            }),
        })
        .await
    }

    /// As many tasks as the call reads, beginning with a random task.
    fn tasks_to_read(&self, call: &PlannedCall, bits: u64) -> Vec<ReadableTask> {
        let wanted = match call.operation {
            LoadOperation::Get | LoadOperation::List => 1,
            LoadOperation::Batch => call.batch,
            _ => return Vec::new(),
        };
        let tasks = self.tasks.borrow();
        let first = bits as usize % tasks.len().max(1);
        tasks.iter().cycle().skip(first).take(wanted).cloned().collect()
    }

    /// Counts the calls that are in flight when the user ends the run.
    fn note_unanswered(&self) {
        let counted = |due_ns: &&u64| **due_ns != IDLE && **due_ns >= self.plan.warmup_ns();
        let due_by_slot = self.due_by_slot.borrow();
        let mut measures = self.shared.lock();
        measures.unanswered += due_by_slot.iter().filter(counted).count() as u64;
        if let Some(oldest_ns) = due_by_slot.iter().filter(counted).min() {
            measures.oldest_unanswered_ns = self.clock.now_ns().saturating_sub(*oldest_ns);
        }
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

    fn note_end(&self, call: usize, ended: &EndedCall<'_>, outcome: Result<(), CallFailure>) {
        let events = ended.times.events_ns.len() as u64 + ended.times.more_events;
        let mut measures = self.shared.lock();
        measures.all_calls += 1;
        let slice = measures.slice_at(ended.over_ns);
        slice.calls += 1;
        slice.events += events;
        slice.errors += u64::from(outcome.is_err());
        if outcome.is_ok() {
            record(&mut slice.latency, ended.over_ns.saturating_sub(ended.due_ns));
            let counted = self.plan.warmup_ns()..self.plan.end_ns();
            measures.done_in_time += u64::from(counted.contains(&ended.over_ns));
        }
        if ended.due_ns < self.plan.warmup_ns() {
            return;
        }
        let of = &mut measures.operations[call];
        of.events += events;
        match outcome {
            Ok(()) => ended.note_good(of, &self.plan.limits),
            Err(failure) => of.note_error(&failure.kind, || failure.detail),
        }
    }

    /// Stores a task for calls that read tasks.
    fn store_task(&self, task: ReadableTask) {
        let mut tasks = self.tasks.borrow_mut();
        if tasks.len() >= TASKS_STORED_MAX {
            tasks.pop_front();
        }
        tasks.push_back(task);
    }
}

/// A call that starts now.
struct StartedCall {
    due: DueCall,
    /// The start time.
    sent_ns: u64,
    /// True: a slot was free when the call was due.
    had_room: bool,
}

/// A slot, which makes one call at a time.
struct CallSlot<'w, T: Transport> {
    number: usize,
    client: &'w Client<T>,
    probe: Arc<CallProbe>,
}

/// The times of a call that has ended, in nanoseconds since the start of the run.
struct EndedCall<'a> {
    due_ns: u64,
    sent_ns: u64,
    first_byte_ns: Option<u64>,
    over_ns: u64,
    times: &'a CallTimes,
}

impl EndedCall<'_> {
    /// Counts a good call.
    fn note_good(&self, of: &mut OperationMeasures, limits: &CallLimits) {
        let since_due = |ns: u64| ns.saturating_sub(self.due_ns);
        let events_ns = &self.times.events_ns;
        let latency_ns = since_due(self.over_ns);
        of.good += 1;
        record(&mut of.latency, latency_ns);
        record(&mut of.service, self.over_ns.saturating_sub(self.sent_ns));
        if let Some(first_ns) = self.first_byte_ns {
            record(&mut of.first_byte, since_due(first_ns));
        }
        let first_event_ns = events_ns.first().map(|first_ns| since_due(*first_ns));
        if let Some(ns) = first_event_ns {
            record(&mut of.first_event, ns);
        }
        if let Some(second_ns) = events_ns.get(1) {
            record(&mut of.second_event, since_due(*second_ns));
        }
        let mut gap_ns_max = 0;
        for pair in events_ns.windows(2) {
            let gap_ns = pair[1].saturating_sub(pair[0]);
            gap_ns_max = gap_ns_max.max(gap_ns);
            record(&mut of.gaps, gap_ns);
        }
        if let Some(ns) = self.times.spread_ns {
            record(&mut of.spread, ns);
        }
        if let Some(ns) = self.times.delivery_ns {
            record(&mut of.delivery, ns);
        }
        let service_ns = self.over_ns.saturating_sub(self.sent_ns);
        let holds = |limit: Option<u64>, ns: Option<u64>| {
            limit.zip(ns).is_none_or(|(limit, ns)| ns <= limit)
        };
        of.within_limits += u64::from(
            holds(limits.latency_ns, Some(latency_ns))
                && holds(limits.service_ns, Some(service_ns))
                && holds(limits.first_byte_ns, self.first_byte_ns.map(since_due))
                && holds(limits.first_event_ns, first_event_ns)
                && holds(limits.second_event_ns, events_ns.get(1).map(|ns| since_due(*ns)))
                && holds(limits.gap_ns, Some(gap_ns_max))
                && holds(limits.spread_ns, self.times.spread_ns)
                && holds(limits.delivery_ns, self.times.delivery_ns),
        );
    }
}
