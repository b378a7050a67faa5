//! Tasks with webhooks when the server ends.
//!
//! A client with a webhook may have no waiting call, and receives news of its task only by
//! deliveries. So these tasks end while the server can still deliver.

use crate::{
    op::{Core, handover::fail},
    service::Handle,
    store::{Edit, TaskKey},
};

/// The status text of a task that ends in this way.
const ENDED: &str = "the server shut down before the task was done";

impl Core {
    /// Whether an agent is working at a task with webhooks.
    pub fn works_for_webhooks(&self) -> bool {
        self.watched_tasks().any(|key| {
            let runs = self.store.update(key, self.now(), |edit| {
                !edit.task().state().is_terminal() && !edit.task().waits_for_client()
            });
            runs.unwrap_or(false)
        })
    }

    /// Fails the unfinished tasks with webhooks; returns their number.
    pub fn end_watched_tasks(&self) -> usize {
        let now = self.now();
        let end = |edit: &mut Edit<'_>| {
            let is_unfinished = !edit.task().state().is_terminal();
            if is_unfinished {
                fail(edit, now, ENDED);
            }
            is_unfinished
        };
        let ended = |key: &TaskKey| self.store.update(*key, now, end).unwrap_or(false);
        self.watched_tasks().filter(ended).count()
    }

    fn watched_tasks(&self) -> impl Iterator<Item = TaskKey> {
        let tasks = self.registry().map(|webhooks| webhooks.tasks()).unwrap_or_default();
        tasks.into_iter().map(|key| TaskKey::of(&Handle { key, ..Handle::default() }))
    }
}
