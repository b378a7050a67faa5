//! The content of the next delivery about a task, read from its log.

use std::sync::Arc;

use crate::{
    model::{PushConfig, PushFilter, PushForm, Task},
    op::Core,
    push::{Post, PushSettings, PushStart, Webhooks},
    service::{Cursor, Handle, StreamResponse},
    store::TaskKey,
};

/// The next delivery about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownPost {
    /// The last event that this delivery covers.
    pub upto: u64,
    /// True: the delivery has content.
    pub is_news: bool,
    /// True: more events follow.
    pub has_more: bool,
    /// The task's last journal record; 0: no journal.
    pub record: u64,
    /// Random bits of the task that cannot be guessed.
    pub bits: u128,
}

/// The core's interface for webhook workers.
impl Core {
    /// The operator's settings for webhooks.
    pub fn push_settings(&self) -> Option<&PushSettings> {
        self.push.get().map(|push| &push.settings)
    }

    /// The webhooks.
    pub fn registry(&self) -> Option<&Webhooks> {
        self.push.get().map(|push| &push.webhooks)
    }

    /// Whether a task has no further events: it has ended or is evicted.
    pub fn is_task_over(&self, task: u64) -> bool {
        let handle = Handle { key: task, ..Handle::default() };
        let is_over = self.store.read(TaskKey::of(&handle), |task| task.state().is_terminal());
        is_over.unwrap_or(true)
    }

    /// Whether a task is stored, by the key that services use.
    pub fn has_task(&self, task: u64) -> bool {
        let handle = Handle { key: task, ..Handle::default() };
        self.store.read(TaskKey::of(&handle), |_| ()).is_some()
    }

    /// The bits of a task ([`ShownPost::bits`]); `None`: the task is evicted.
    pub fn bits_of(&self, task: u64) -> Option<u128> {
        let handle = Handle { key: task, ..Handle::default() };
        let is_there = self.has_task(task) || self.retained_task(task).is_some();
        is_there.then(|| self.store.bits_of(TaskKey::of(&handle), u32::MAX))
    }

    fn retained_task(&self, task: u64) -> Option<Arc<Task>> {
        self.registry()?.retained_task(task)
    }

    /// Passes at most one item to `each`, the content of the next delivery: the next event, or the
    /// current task. An evicted task is shown in its last state, if the registry retains it.
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
            let task = self.retained_task(post.task)?;
            Some(ShownPost { bits, ..show(&task, post, filter, each) })
        })
    }
}

/// Shows the next delivery of a task.
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
    // Above its rate limit, a webhook gets one delivery for several events.
    let coalesces = filter.coalesces() == Some(true) || post.is_limited;
    let is_coalesced = coalesces && newest > seq + 1 && !snapshot;
    match post.form {
        PushForm::StreamResponse if !is_coalesced => {
            cursor.show_new(task, &mut |item| {
                is_news = is_delivered(filter, &item, snapshot);
                if is_news {
                    each(item);
                }
                !is_news
            });
            let (upto, has_more) = (cursor.seq, cursor.seq < newest);
            return ShownPost { upto, is_news, has_more, record: 0, bits: 0 };
        }
        // These forms contain the current task: one delivery covers all lagging events.
        PushForm::StreamResponse | PushForm::Task03 | PushForm::Task01 => {
            cursor.show_new(task, &mut |item| {
                is_news |= is_delivered(filter, &item, snapshot);
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

/// Whether an item is delivered. A snapshot stands for the first status of a task, or for evicted
/// events of any kind.
fn is_delivered(filter: PushFilter, item: &StreamResponse<'_>, is_first: bool) -> bool {
    match item {
        StreamResponse::Snapshot(view) if is_first => filter.takes_status(view.status().state),
        StreamResponse::Snapshot(_) => true,
        StreamResponse::Event { event, .. } => filter.takes(event),
        StreamResponse::Message { .. } => false,
    }
}
