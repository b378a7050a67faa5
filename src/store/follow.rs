//! Waiting for a task: streams of its events, and calls that answer when it is ready.
//!
//! Examination and registration happen under one lock, so no change is missed in between. A
//! subscriber that fell behind the replay window gets the current task, then later events: it never
//! waits for a dropped event and never gets an event twice.

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use super::{Store, TaskKey};
use crate::{
    fault::{Fault, FaultKind},
    model::{Reply, Task},
    service::{Answer, Cursor, Each, Follow, WaitHandle, Waiter},
    watch::TaskWatch,
};

impl Store {
    /// Calls `each` with the new items, oldest first, and registers `wake` if none remains.
    ///
    /// An item on which `each` returns false counts as taken.
    pub fn follow(&self, cursor: &mut Cursor, wake: &Waker, each: &mut Each<'_>) -> Follow {
        let key = TaskKey::of(&cursor.handle);
        let index = self.sharding.split(key.position).index;
        let Some(mut shard) = self.lock_key(key) else { return Follow::Gone };
        let Some(task) = shard.slab.stored(index) else { return Follow::Gone };
        cursor.record = task.record();
        let follow = cursor.show_new(&task, each);
        if follow == Follow::Pending {
            shard.wait(index, &mut cursor.waiter, wake);
        }
        follow
    }

    /// Answers when the task is terminal, interrupted since `wait.after`, or meets the condition of
    /// `wait.look`; registers `wake` otherwise.
    pub fn poll(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<(), Fault>> {
        const NOT_FOUND: Poll<Result<(), Fault>> =
            Poll::Ready(Err(Fault::new(FaultKind::TaskNotFound)));
        let key = TaskKey::of(&wait.handle);
        let index = self.sharding.split(key.position).index;
        let Some(mut shard) = self.lock_key(key) else { return NOT_FOUND };
        let Some(task) = shard.slab.stored(index) else { return NOT_FOUND };
        let state = task.state();
        let is_ready = match wait.look {
            Some(look) => look.is_answered_by(&task),
            // A2A 1.0 §3.2.2: wait until a terminal or interrupted state.
            None => {
                let is_new = task.status_seq() > wait.after;
                state.is_terminal() || (state.is_interrupted() && is_new)
            }
        };
        if is_ready {
            wait.record = task.record();
            answer(Reply::Task { view: task.view(), history: wait.history });
            return Poll::Ready(Ok(()));
        }
        shard.wait(index, &mut wait.waiter, wake);
        Poll::Pending
    }

    /// Sets the watch of a stored task or a reservation, replacing the previous one; returns the
    /// last event of the task, or 0. `None`: neither is stored any more.
    #[cfg_attr(not(feature = "push"), allow(dead_code, reason = "only webhooks watch tasks"))]
    pub fn watch(&self, key: TaskKey, watch: Arc<TaskWatch>) -> Option<u64> {
        let index = self.sharding.split(key.position).index;
        let mut shard = self.lock_key(key)?;
        shard.watch(index, watch);
        Some(shard.task(index).map_or(0, Task::seq))
    }

    /// Ready when the task has ended, was evicted, or belongs to a later incarnation of its agent
    /// than the given one; registers `wake` otherwise.
    pub fn poll_ended(
        &self,
        key: TaskKey,
        incarnation: Option<u32>,
        waiter: &mut Waiter,
        wake: &Waker,
    ) -> Poll<()> {
        let index = self.sharding.split(key.position).index;
        let Some(mut shard) = self.lock_key(key) else { return Poll::Ready(()) };
        if incarnation.is_some_and(|own| shard.slab[index].incarnation > own) {
            return Poll::Ready(());
        }
        if shard.task(index).is_none_or(|task| task.state().is_terminal()) {
            return Poll::Ready(());
        }
        shard.wait(index, waiter, wake);
        Poll::Pending
    }
}
