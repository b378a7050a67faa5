//! Hands over the tasks of an agent that was replaced or removed.
//!
//! Invariant: a task belongs to one incarnation of its agent, and only the jobs and timers of that
//! incarnation continue it. Each unfinished task is handed over once per change: by the thread that
//! changed the agent, or by a turn of the old program when it ends. A task that an earlier program
//! of a renewed agent continues stays with that incarnation.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering::Relaxed,
};

use crate::{
    agent::{Adopted, Ending, Job, RequestView},
    model::{MessageBuf, PartsBuf, TaskBuf, TaskEvent, TaskState},
    op::{Core, agents::CurrentAgent},
    service::{AgentIndex, Now},
    store::{Edit, TaskKey},
};

/// Milliseconds between checks whether removed agents still have tasks.
const LOOK_EVERY_MS: u64 = 1_000;

/// The status text of a removed agent's tasks.
const REMOVED: &str = "the agent was removed before the task was done";

/// Why a task is handed over.
#[derive(Clone, Copy)]
pub(super) enum By<'e> {
    /// Its agent was changed. If a turn of the task is running, the end of the turn hands it over.
    Change,
    /// A turn of the old program has ended with this ending.
    Turn(&'e Ending),
    /// A message for the current program has arrived.
    Call,
}

impl Core {
    /// Hands all unfinished tasks of an agent over to its current program.
    pub(super) fn hand_over_all(&self, agent: AgentIndex) {
        self.store.each_unfinished_of(agent, |key| self.hand_over(agent, key, By::Change));
    }

    /// Drops the earlier programs of an agent that have no unfinished tasks.
    pub(super) fn forget_older_programs(&self, name: &str) {
        let Some(agent) = self.agents.find(name) else { return };
        let mut used = HashSet::new();
        self.store.each_unfinished_of(agent, |key| used.extend(self.incarnation_of(key)));
        self.agents.forget_older(agent, &used);
    }

    /// The earlier program that continues a task.
    #[cold]
    pub(super) fn older_program(
        &self,
        agent: AgentIndex,
        key: TaskKey,
    ) -> Option<CurrentAgent<'static>> {
        self.agents.older(agent, self.incarnation_of(key)?)
    }

    fn incarnation_of(&self, key: TaskKey) -> Option<u32> {
        self.store.update(key, self.now(), |edit| edit.incarnation())
    }

    /// Hands over a task after its turn, if its agent changed meanwhile.
    #[inline]
    pub(super) fn hand_over_late(
        &self,
        began: &CurrentAgent<'_>,
        agent: AgentIndex,
        key: TaskKey,
        ending: &Ending,
    ) {
        if self.agents.has_changed(began) {
            self.hand_over(agent, key, By::Turn(ending));
        }
    }

    /// As `hand_over_late`, for a turn that panicked.
    #[cold]
    pub(super) fn hand_over_broken(
        &self,
        began: &CurrentAgent<'_>,
        agent: AgentIndex,
        key: TaskKey,
    ) {
        if self.agents.has_changed(began) {
            self.hand_over(agent, key, By::Change);
        }
    }

    /// Hands a task over to its agent's current program, unless it already belongs to that program.
    #[cold]
    pub(super) fn hand_over(&self, agent: AgentIndex, key: TaskKey, by: By<'_>) {
        let Some(current) = self.agents.current(agent) else { return };
        let now = self.now();
        let handed_over = self.store.update(key, now, |edit| {
            let own = edit.incarnation();
            let is_older = own < current.incarnation && current.older(own).is_none();
            let has_deciding_turn = edit.has_turn() && !matches!(by, By::Call);
            if edit.task().state().is_terminal() || !is_older || has_deciding_turn {
                return None;
            }
            edit.set_incarnation(current.incarnation);
            if current.is_removed {
                fail(edit, now, REMOVED);
                return None;
            }
            let continues = match by {
                By::Turn(Ending::Resume { .. } | Ending::Detached | Ending::Deferred) => true,
                By::Turn(Ending::Returned | Ending::Replied(_) | Ending::Refused(_)) => {
                    !edit.task().state().is_interrupted()
                }
                By::Change | By::Call => !edit.task().waits_for_client(),
            };
            continues.then(|| {
                let (task, private_bytes) =
                    (TaskBuf::of(edit.task().view()), edit.private_bytes().into());
                (task, private_bytes, edit.scope(), edit.names())
            })
        });
        if current.is_removed {
            // A turn of the old program has created a task under a freed name.
            self.agents.set_freed(agent, false);
        }
        if let (Some(Some((task, private_bytes, scope, names))), Some(host)) =
            (handed_over, self.job_host())
        {
            let bits = self.store.bits_of(key, current.incarnation);
            let handle = key.job_handle(current.incarnation);
            let names = [names.tenant.as_deref(), names.owner.as_deref()];
            let request = RequestView::without_caller(scope, names);
            let job = Job::of_adopted(&task, &request, handle, host, bits);
            let adopted = Adopted::new(task, private_bytes, job);
            // A panic drops the task, which fails it, and was already reported. The remaining tasks
            // are still handed over.
            let _ = catch_unwind(AssertUnwindSafe(|| current.agent.adopt(adopted)));
        }
    }

    /// Checks once a second whether removed agents still have tasks.
    pub(super) fn forget_removed(&self, now: Now) {
        if self.looked_ms.load(Relaxed).saturating_add(LOOK_EVERY_MS) > now.mono_ms {
            return;
        }
        self.looked_ms.store(now.mono_ms, Relaxed);
        for agent in self.agents.leaving() {
            if !self.store.has_tasks_of(agent) {
                self.agents.set_freed(agent, true);
                // A turn of the old program may have created a task just before the name was freed.
                if self.store.has_tasks_of(agent) {
                    self.agents.set_freed(agent, false);
                }
            }
        }
    }

    /// The time, for callers without a time of their own.
    pub(super) fn now(&self) -> Now {
        Now { mono_ms: self.store.swept_ms(), unix_ms: (self.unix_ms)() }
    }
}

/// Fails a task with this text.
pub(super) fn fail(edit: &mut Edit<'_>, now: Now, why: &str) {
    let message = MessageBuf::agent(&PartsBuf::new().text(why)).id("agent-changed");
    let (state, at_ms, message) = (TaskState::Failed, now.unix_ms, Some(message.view()));
    // The task is unfinished; if the text does not fit, the store fails it with its own text.
    let _ = edit.apply(&TaskEvent::Status { state, at_ms, message, metadata: None });
}
