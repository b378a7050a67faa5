//! What agents reach through their turns and jobs.

use std::sync::Arc;

use crate::{
    agent::{Closed, JobHost, TurnHost},
    model::{EventBuf, TaskEvent, TaskView},
    op::Core,
    service::{Now, TaskKey},
    store::NewTask,
};

/// The host of a turn that starts a task: the task is stored when the agent detaches, or when
/// the turn is over.
pub(super) struct NewTurn<'t> {
    pub core: &'t Core,
    pub new: NewTask<'t>,
    pub now: Now,
    /// The task, once it is stored.
    pub stored: bool,
}

impl TurnHost for NewTurn<'_> {
    fn commit(&mut self, events: &mut EventBuf) -> Result<(TaskKey, Arc<dyn JobHost>), Closed> {
        let host = self.core.job_host().ok_or(Closed)?;
        let key = self.new.key();
        if !self.stored {
            self.core.store.commit_new(&self.new, events, self.now, &mut |_| {});
            self.stored = true;
            events.clear();
        }
        Ok((key, host))
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
    fn commit(&mut self, events: &mut EventBuf) -> Result<(TaskKey, Arc<dyn JobHost>), Closed> {
        let host = self.core.job_host().ok_or(Closed)?;
        self.core.store.commit(self.key, events, self.now, &mut |_| {})?;
        events.clear();
        Ok((self.key, host))
    }

    fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.core.store.read(self.key, each);
    }
}

impl JobHost for Core {
    fn publish(&self, key: TaskKey, event: &TaskEvent<'_>) -> Result<(), Closed> {
        let now = Now { mono_ms: 0, unix_ms: (self.unix_ms)() };
        self.store.publish(key, event, now)
    }

    fn unix_ms(&self) -> u64 {
        (self.unix_ms)()
    }

    fn is_closed(&self, key: TaskKey) -> bool {
        let mut open = false;
        self.store.read(key, &mut |view| open = !view.status().state.is_terminal());
        !open
    }
}
