//! What agents reach through their turns and jobs.

use std::sync::Arc;

use crate::{
    agent::{Closed, JobHost, NotKept, TurnHost},
    fault::Fault,
    model::{EventBuf, Generation, Message, TaskEvent, TaskView},
    op::Core,
    service::{Handle, Now},
    store::{Edit, Refused, Reserved, TaskKey},
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
    /// Who makes the task.
    pub incarnation: u32,
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
        Ok((self.reserved.key().job_handle(self.incarnation), host))
    }

    fn read(&self, _each: &mut dyn FnMut(TaskView<'_>)) {}
}

/// The host of a turn on a task that exists.
pub(super) struct NextTurn<'t> {
    pub core: &'t Core,
    pub key: TaskKey,
    /// Who goes on with the task.
    pub incarnation: u32,
    pub now: Now,
    /// True when the agent has come back.
    pub is_over: bool,
}

impl TurnHost for NextTurn<'_> {
    fn commit(&mut self, events: &mut EventBuf) -> Result<(Handle, Arc<dyn JobHost>), Closed> {
        let host = self.core.job_host().ok_or(Closed)?;
        let applied = self.core.store.update(self.key, self.now, |edit| {
            if edit.incarnation() != self.incarnation {
                return Err(Refused::Terminal);
            }
            edit.apply_all(events, None)
        });
        events.clear();
        applied.ok_or(Closed)?.map_err(|_| Closed)?;
        Ok((self.key.job_handle(self.incarnation), host))
    }

    fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.core.store.read(self.key, |task| each(task.view()));
    }
}

impl Drop for NextTurn<'_> {
    /// A turn that panics is over, too.
    fn drop(&mut self) {
        if !self.is_over {
            self.core.store.update(self.key, self.now, |edit| edit.end_turn());
        }
    }
}

impl Core {
    /// Changes the task of a job, which must belong to the program that has the job.
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

    fn is_closed(&self, task: Handle) -> bool {
        self.update_job(task, |edit| edit.task().state().is_terminal()).unwrap_or(true)
    }

    fn keep(&self, task: Handle, bytes: &[u8]) -> Result<(), NotKept> {
        if bytes.len() > self.limits.kept_bytes_max {
            return Err(NotKept::TooLong);
        }
        let kept = self.update_job(task, |edit| edit.keep(bytes)).ok_or(NotKept::Closed)?;
        kept.map_err(|refused| match refused {
            Refused::Full | Refused::OutOfBytes => NotKept::NoRoom,
            Refused::TooLarge | Refused::Taken | Refused::Terminal => NotKept::Closed,
        })
    }

    fn kept(&self, task: Handle) -> Vec<u8> {
        self.update_job(task, |edit| edit.kept().to_vec()).unwrap_or_default()
    }
}
