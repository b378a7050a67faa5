//! What is posted of a task, as its log has it when it is asked for.

use std::sync::Arc;

use crate::{
    model::{PushConfig, PushFilter, PushForm, Task},
    op::Core,
    push::{Post, PushSettings, PushStart, Webhooks},
    service::{Cursor, Handle, StreamResponse},
    store::TaskKey,
};

/// What there is to post of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownPost {
    /// The last event that was shown.
    pub upto: u64,
    /// True: something was shown.
    pub is_news: bool,
    /// True: there are events behind it.
    pub has_more: bool,
    /// The task's last record; 0: there is no journal.
    pub record: u64,
    /// Bits of the task's own that cannot be guessed.
    pub bits: u128,
}

/// What a courier needs of a core.
impl Core {
    /// What an operator has decided about webhooks.
    pub fn push_settings(&self) -> Option<&PushSettings> {
        self.push.get().map(|push| &push.settings)
    }

    /// The webhooks.
    pub fn registry(&self) -> Option<&Webhooks> {
        self.push.get().map(|push| &push.webhooks)
    }

    /// Whether a task will have no other event: it is finished, or has left.
    pub fn is_task_over(&self, task: u64) -> bool {
        let handle = Handle { key: task, ..Handle::default() };
        let is_over = self.store.read(TaskKey::of(&handle), |task| task.state().is_terminal());
        is_over.unwrap_or(true)
    }

    /// Whether there is a task, as a service names it.
    pub fn has_task(&self, task: u64) -> bool {
        let handle = Handle { key: task, ..Handle::default() };
        self.store.read(TaskKey::of(&handle), |_| ()).is_some()
    }

    /// The bits of a task ([`ShownPost::bits`]); `None`: it has left.
    pub fn bits_of(&self, task: u64) -> Option<u128> {
        let handle = Handle { key: task, ..Handle::default() };
        let is_there = self.has_task(task) || self.left_task(task).is_some();
        is_there.then(|| self.store.bits_of(TaskKey::of(&handle), u32::MAX))
    }

    fn left_task(&self, task: u64) -> Option<Arc<Task>> {
        self.registry()?.left_task(task)
    }

    /// Shows what is to be posted, at most one item: the next event, or the task as it is. A task
    /// that has left is shown as it was then, if it is retained.
    /// `None`: the task is gone.
    pub fn show_post(
        &self,
        post: &Post,
        each: &mut dyn FnMut(StreamResponse<'_>),
    ) -> Option<ShownPost> {
        let key = TaskKey::of(&Handle { key: post.task, ..Handle::default() });
        let usual = self.push_settings().map(|push| push.filter).unwrap_or_default();
        let filter = PushConfig(&post.config).filter().map_or(usual, |own| own.or(usual));
        let bits = self.store.bits_of(key, u32::MAX);
        let shown = self.store.read(key, |task| ShownPost {
            record: task.record(),
            bits,
            ..show(&task, post, filter, each)
        });
        shown.or_else(|| {
            let task = self.left_task(post.task)?;
            Some(ShownPost { bits, ..show(&task, post, filter, each) })
        })
    }
}

/// Shows what is to be posted of a task.
fn show(
    task: &Task,
    post: &Post,
    filter: PushFilter,
    each: &mut dyn FnMut(StreamResponse<'_>),
) -> ShownPost {
    let PushStart { seq, snapshot } = post.start;
    let handle = Handle { key: post.task, ..Handle::default() };
    let newest = task.seq();
    let mut is_news = false;
    let mut cursor = Cursor { handle, seq, snapshot, ..Cursor::default() };
    // Where posts are more than their rate lets through, several events are one post.
    let coalesces = filter.coalesces() == Some(true) || post.is_limited;
    let is_coalesced = coalesces && newest > seq + 1 && !snapshot;
    match post.form {
        PushForm::StreamResponse if !is_coalesced => {
            cursor.show_new(task, &mut |item| {
                is_news = takes(filter, &item, snapshot);
                if is_news {
                    each(item);
                }
                !is_news
            });
            let (upto, has_more) = (cursor.seq, cursor.seq < newest);
            return ShownPost { upto, is_news, has_more, record: 0, bits: 0 };
        }
        // What it shows is the task as it is: what has lagged is one post.
        PushForm::StreamResponse | PushForm::Task03 | PushForm::Task01 => {
            cursor.show_new(task, &mut |item| {
                is_news |= takes(filter, &item, snapshot);
                true
            });
        }
        PushForm::EvoAi => {
            let is_new = snapshot || task.status_seq() > seq;
            is_news = is_new && filter.takes_status(task.state());
        }
    }
    if is_news {
        each(StreamResponse::Snapshot(task.view()));
    }
    ShownPost { upto: newest, is_news, has_more: false, record: 0, bits: 0 }
}

/// Whether an item is posted. A snapshot stands for the first status of a task, or else for events
/// that are gone, whatever they were.
fn takes(filter: PushFilter, item: &StreamResponse<'_>, is_first: bool) -> bool {
    match item {
        StreamResponse::Snapshot(view) if is_first => filter.takes_status(view.status().state),
        StreamResponse::Snapshot(_) => true,
        StreamResponse::Event { event, .. } => filter.takes(event),
        StreamResponse::Message { .. } => false,
    }
}
