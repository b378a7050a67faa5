//! What agents reach through their turns and jobs.

use std::sync::Arc;

use crate::{
    agent::{Closed, JobHost, TurnHost},
    fault::Fault,
    model::{EventBuf, Generation, Message, TaskEvent, TaskView},
    op::Core,
    service::{Handle, Now},
    store::{Reserved, TaskKey},
};

/// The host of a turn that starts a task: the task is stored when the agent detaches, or when
/// the turn is over.
pub(super) struct NewTurn<'t> {
    pub core: &'t Core,
    /// The place of the task.
    pub reserved: &'t Reserved<'t>,
    pub generation: Generation,
    pub message: Message<'t>,
    pub now: Now,
    /// Why the store did not take the task when the agent detached: the client is told.
    pub refused: Option<Fault>,
}

impl TurnHost for NewTurn<'_> {
    fn commit(&mut self, events: &mut EventBuf) -> Result<(Handle, Arc<dyn JobHost>), Closed> {
        let host = self.core.job_host().ok_or(Closed)?;
        if self.refused.is_some() {
            return Err(Closed);
        }
        if !self.reserved.is_kept() {
            let (store, reserved, now) = (&self.core.store, self.reserved, self.now);
            let stored =
                store.commit_new(reserved, self.generation, self.message, events, now, |_| ());
            events.clear();
            if let Err(refused) = stored {
                self.refused = Some(refused.into());
                return Err(Closed);
            }
        }
        Ok((self.reserved.key().handle(), host))
    }

    fn read(&self, _each: &mut dyn FnMut(TaskView<'_>)) {}
}

/// The host of a turn on a task that exists.
pub(super) struct NextTurn<'t> {
    pub core: &'t Core,
    pub key: TaskKey,
    pub now: Now,
}

impl TurnHost for NextTurn<'_> {
    fn commit(&mut self, events: &mut EventBuf) -> Result<(Handle, Arc<dyn JobHost>), Closed> {
        let host = self.core.job_host().ok_or(Closed)?;
        let applied =
            self.core.store.update(self.key, self.now, |edit| edit.apply_all(events, None));
        events.clear();
        applied.ok_or(Closed)?.map_err(|_| Closed)?;
        Ok((self.key.handle(), host))
    }

    fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.core.store.read(self.key, |task| each(task.view()));
    }
}

impl JobHost for Core {
    fn publish(&self, task: Handle, event: &TaskEvent<'_>) -> Result<(), Closed> {
        let now = Now { mono_ms: self.store.swept_ms(), unix_ms: (self.unix_ms)() };
        let applied = self.store.update(TaskKey::of(&task), now, |edit| edit.apply(event));
        applied.ok_or(Closed)?.map(drop).map_err(|_| Closed)
    }

    fn unix_ms(&self) -> u64 {
        (self.unix_ms)()
    }

    fn is_closed(&self, task: Handle) -> bool {
        self.store.read(TaskKey::of(&task), |task| task.state().is_terminal()).unwrap_or(true)
    }
}
