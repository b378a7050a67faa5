//! The core as the host of turns and jobs: it stores, reads and defers for agents.

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    agent::{Closed, DeferredHost, Ending, FailureNote, JobHost, NotKept, TurnHost},
    fault::Fault,
    model::{EventBuf, Generation, Message, Send, SendMode, TaskEvent, TaskView},
    op::{
        Core,
        agents::CurrentAgent,
        defer::{DeferredTask, DeferredTurn},
        idempotency::{FirstSend, SendKey},
        send::FIRST_SEQ,
    },
    service::{AgentIndex, CallLink, Caller, Handle, LateCall, Now, OwnerIndex, Waiter},
    store::{Edit, Refused, Reserved, TaskKey},
};

/// The call that a turn answers.
pub(super) struct TurnCall {
    /// `None`: a resume timer started the turn, so there is no call.
    mode: Option<SendMode>,
    worker: usize,
    agent: AgentIndex,
    /// The incarnation of the agent's program.
    incarnation: u32,
    /// The state that the call shares with the agent, if any.
    link: CallLink,
    /// Why the server rejected an operation of the agent: the fault goes to the client.
    pub refused: Option<Box<Fault>>,
    /// The key of the first of equal sends.
    pub first: Option<SendKey>,
}

impl TurnCall {
    #[inline(always)] // Most turns need none of it.
    pub fn of(
        send: &Send<'_>,
        caller: &Caller<'_>,
        incarnation: u32,
        first: &Option<FirstSend<'_>>,
    ) -> TurnCall {
        let resumed = TurnCall::of_resumed(caller.worker, caller.scope.agent, incarnation);
        let first = first.as_ref().map(FirstSend::key);
        TurnCall { mode: Some(send.mode), first, ..resumed }
    }

    #[inline(always)]
    pub fn of_resumed(worker: usize, agent: AgentIndex, incarnation: u32) -> TurnCall {
        let (link, refused) = (CallLink::default(), None);
        TurnCall { mode: None, worker, agent, incarnation, link, refused, first: None }
    }

    /// Ends the turn's use of the call. Returns whether the call is deferred, and its link.
    ///
    /// # Errors
    /// The server or the agent has rejected the call.
    #[inline(always)]
    pub fn end(&mut self, ending: &Ending) -> Result<(bool, CallLink), Fault> {
        let is_refused_or_deferred = matches!(ending, Ending::Refused(_) | Ending::Deferred);
        if is_refused_or_deferred || self.refused.is_some() || self.link.is_some() {
            return self.end_linked(ending);
        }
        Ok((false, CallLink::default()))
    }

    #[cold]
    fn end_linked(&mut self, ending: &Ending) -> Result<(bool, CallLink), Fault> {
        let link = std::mem::take(&mut self.link);
        match (self.refused.take(), ending) {
            (Some(fault), _) => Err(*fault),
            (None, Ending::Refused(fault)) => Err(fault.clone()),
            (None, Ending::Deferred) => Ok((true, link)),
            (None, Ending::Returned | Ending::Replied(_) | Ending::Resume { .. })
            | (None, Ending::Detached) => Ok((false, link)),
        }
    }

    /// The call's side of a deferral; it is notified when its caller disconnects.
    fn watched(&mut self) -> Option<Arc<LateCall>> {
        self.mode.filter(|mode| *mode != SendMode::Return)?;
        let (link, call) = CallLink::of_task();
        self.link = link;
        Some(call)
    }
}

/// The host of a turn that starts a task: the task is stored when the agent detaches, or when the
/// turn ends.
pub(super) struct NewTurn<'t> {
    pub core: &'t Core,
    /// The reserved slot of the task.
    pub reserved: &'t Reserved<'t>,
    pub generation: Generation,
    pub message: Message<'t>,
    pub now: Now,
    pub call: TurnCall,
    /// The program that runs the turn.
    pub began: &'t CurrentAgent<'t>,
    /// True when the agent has returned, and the turn stores its remaining events.
    pub is_over: bool,
}

impl TurnHost for NewTurn<'_> {
    fn commit(&mut self, events: &mut EventBuf) -> Result<(Handle, Arc<dyn JobHost>), Closed> {
        let host = self.core.job_host().ok_or(Closed)?;
        if self.call.refused.is_some() {
            return Err(Closed);
        }
        let is_beyond = self.core.bound_turn(events, self.now);
        if !self.reserved.is_used_up() {
            let (store, reserved, now) = (&self.core.store, self.reserved, self.now);
            let stored =
                store.commit_new(reserved, self.generation, self.message, events, now, |_| ());
            events.clear();
            if let Err(refused) = stored {
                self.call.refused = Some(Box::new(refused.into()));
                return Err(Closed);
            }
        }
        if is_beyond {
            return Err(Closed);
        }
        Ok((self.reserved.key().job_handle(self.call.incarnation), host))
    }

    fn read(&self, _each: &mut dyn FnMut(TaskView<'_>)) {}

    fn call(&mut self) -> Option<Arc<LateCall>> {
        self.call.watched()
    }

    fn defer(
        &mut self,
        events: &mut EventBuf,
        held_bytes: usize,
    ) -> Result<(Arc<LateCall>, Box<dyn DeferredHost>), Closed> {
        let (reserved, generation) = (self.reserved, self.generation);
        let (key, owner) = (reserved.key(), reserved.owner());
        let deferral = Deferral { key, owner, generation, events, held_bytes };
        // The turn may have stored its task early.
        let stage = || match reserved.is_used_up() {
            true => DeferredTask::Next { seq: FIRST_SEQ },
            false => DeferredTask::New(reserved.keep()),
        };
        self.core.defer(&mut self.call, deferral, stage)
    }
}

/// The host of a turn on an existing task.
pub(super) struct NextTurn<'t> {
    pub core: &'t Core,
    pub key: TaskKey,
    pub now: Now,
    /// The last event before the turn.
    pub seq: u64,
    /// The wire family of the call that created the task.
    pub generation: Generation,
    pub call: TurnCall,
    /// The program that runs the turn.
    pub began: &'t CurrentAgent<'t>,
    /// True when the agent has returned.
    pub is_over: bool,
}

impl TurnHost for NextTurn<'_> {
    fn commit(&mut self, events: &mut EventBuf) -> Result<(Handle, Arc<dyn JobHost>), Closed> {
        let host = self.core.job_host().ok_or(Closed)?;
        let is_beyond = self.core.bound_turn(events, self.now);
        let applied = self.core.store.update(self.key, self.now, |edit| {
            if edit.incarnation() != self.call.incarnation {
                return Err(Refused::Terminal);
            }
            edit.apply_all(events, None)
        });
        events.clear();
        applied.ok_or(Closed)?.map_err(|_| Closed)?;
        if is_beyond {
            return Err(Closed);
        }
        Ok((self.key.job_handle(self.call.incarnation), host))
    }

    fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.core.store.read(self.key, |task| each(task.view()));
    }

    fn call(&mut self) -> Option<Arc<LateCall>> {
        self.call.watched()
    }

    fn defer(
        &mut self,
        events: &mut EventBuf,
        held_bytes: usize,
    ) -> Result<(Arc<LateCall>, Box<dyn DeferredHost>), Closed> {
        let (key, generation, seq) = (self.key, self.generation, self.seq);
        // The store has the task, with its owner.
        let deferral = Deferral { key, owner: OwnerIndex(0), generation, events, held_bytes };
        let stage = match self.call.mode {
            Some(_) => DeferredTask::Next { seq },
            None => DeferredTask::Resumed,
        };
        self.core.defer(&mut self.call, deferral, || stage)
    }
}

impl Drop for NewTurn<'_> {
    /// A turn that panics may already have stored its task.
    fn drop(&mut self) {
        if !self.is_over && self.reserved.is_used_up() {
            self.core.hand_over_broken(self.began, self.call.agent, self.reserved.key());
        }
    }
}

impl Drop for NextTurn<'_> {
    /// A panic also ends the turn.
    fn drop(&mut self) {
        if !self.is_over {
            self.core.store.update(self.key, self.now, |edit| edit.end_turn());
            self.core.hand_over_broken(self.began, self.call.agent, self.key);
        }
    }
}

/// A turn to defer.
struct Deferral<'e> {
    key: TaskKey,
    owner: OwnerIndex,
    generation: Generation,
    /// The events so far.
    events: &'e mut EventBuf,
    /// Bytes of the call to hold.
    held_bytes: usize,
}

impl Core {
    /// Lets a call wait for its agent, if a permit is free.
    #[cold]
    fn defer(
        &self,
        call: &mut TurnCall,
        deferral: Deferral<'_>,
        stage: impl FnOnce() -> DeferredTask,
    ) -> Result<(Arc<LateCall>, Box<dyn DeferredHost>), Closed> {
        let Deferral { key, owner, generation, events, held_bytes } = deferral;
        let core = self.this.upgrade().ok_or(Closed)?;
        let Some(permit) = self.deferred.permit(call.worker) else {
            call.refused = Some(Box::new(Fault::at_limit("deferred_calls_max")));
            return Err(Closed);
        };
        let held = match self.store.hold_for_task(key, owner, held_bytes) {
            Ok(held) => Some(held),
            Err(refused) => {
                call.refused = Some(Box::new(refused.into()));
                return Err(Closed);
            }
        };
        let (link, late) = CallLink::late();
        // No caller waits for a resumed turn.
        let mode = call.mode.inspect(|_| call.link = link).unwrap_or(SendMode::Return);
        self.bound_turn(events, self.now());
        let events = events.take_exact();
        let (agent, incarnation, stage) = (call.agent, call.incarnation, stage());
        let first = call.first.take();
        let call = Arc::clone(&late);
        Ok((
            late,
            Box::new(DeferredTurn {
                core,
                call,
                agent,
                incarnation,
                key,
                stage,
                mode,
                generation,
                events,
                held,
                permit: Some(permit),
                first,
            }),
        ))
    }
}

impl Core {
    /// Changes the task of a job, which must belong to the job's program.
    fn update_job<R>(&self, job: Handle, change: impl FnOnce(&mut Edit<'_>) -> R) -> Option<R> {
        let incarnation = TaskKey::incarnation_of(&job);
        let changed = self.store.update(TaskKey::of(&job), self.now(), |edit| {
            (edit.incarnation() == incarnation).then(|| change(edit))
        });
        changed.flatten()
    }
}

impl JobHost for Core {
    fn publish(&self, task: Handle, event: &TaskEvent<'_>) -> Result<(), Closed> {
        let applied = self.update_job(task, |edit| edit.apply(event));
        applied.ok_or(Closed)?.map(drop).map_err(|_| Closed)
    }

    fn unix_ms(&self) -> u64 {
        (self.unix_ms)()
    }

    fn read(&self, task: Handle, each: &mut dyn FnMut(TaskView<'_>)) -> bool {
        self.update_job(task, |edit| each(edit.task().view())).is_some()
    }

    fn poll_ended(&self, task: Handle, waiter: &mut Waiter, wake: &Waker) -> Poll<()> {
        let incarnation = Some(TaskKey::incarnation_of(&task));
        self.store.poll_ended(TaskKey::of(&task), incarnation, waiter, wake)
    }

    fn keep(&self, task: Handle, bytes: &[u8]) -> Result<(), NotKept> {
        if bytes.len() > self.limits.kept_bytes_max {
            return Err(NotKept::TooLong);
        }
        let stored = self.update_job(task, |edit| edit.keep(bytes)).ok_or(NotKept::Closed)?;
        stored.map_err(|refused| match refused {
            Refused::Full
            | Refused::OutOfBytes
            | Refused::OwnShareFull { .. }
            | Refused::ShareBytesExhausted(_) => NotKept::NoRoom,
            Refused::TooLarge
            | Refused::Taken
            | Refused::Terminal
            | Refused::ShareExhausted(_)
            | Refused::TenantShareExhausted(_) => NotKept::Closed,
        })
    }

    fn failed(&self, failed: FailureNote) -> String {
        self.failure_text(failed)
    }

    fn kept(&self, task: Handle) -> Vec<u8> {
        self.update_job(task, |edit| edit.private_bytes().to_vec()).unwrap_or_default()
    }
}
