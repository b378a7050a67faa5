//! A webhook, and the webhooks of a task, in compact form: there may be many.

use std::sync::Arc;

use super::{
    dead::{DeadLetter, WhyDead},
    registry::{CONFIG_BYTES, NewWebhook, Post, PushStart},
    schedule::WebhookSlot,
};
use crate::{
    model::{PushConfig, PushForm},
    shares::Holder,
    watch::TaskWatch,
};

/// Maximum characters of a failure reason that are stored.
const ERROR_CHARS_MAX: usize = 80;

/// A webhook of a task.
pub(super) struct Webhook {
    /// The key of the task.
    pub task: u64,
    /// The last event that was posted.
    seq: u64,
    snapshot: bool,
    form: PushForm,
    /// False: the URL has not answered a challenge.
    is_proven: bool,
    /// Whether the webhook that it replaces has the same receiver.
    is_same_receiver: bool,
    /// The holder that the webhook is charged to.
    pub holder: Holder,
    /// The next webhook of the task; `NONE` for the last one.
    next: WebhookSlot,
    /// The packed configuration, without its task.
    config: Box<[u8]>,
    rest: Option<Box<RareParts>>,
}

/// Fields that most webhooks do not need.
#[derive(Default)]
struct RareParts {
    /// The URL to connect to, if it differs from the configured text.
    url: Option<Box<str>>,
    /// Why the latest delivery failed; empty after a success.
    error: Box<str>,
    /// True: it was replayed after its task was evicted.
    is_replayed: bool,
}

impl Webhook {
    pub fn new(new: &NewWebhook<'_>) -> Webhook {
        let is_same = new.config.url().raw() == new.url.as_str().as_bytes();
        let url = Some(Box::from(new.url.as_str()));
        let rest = (!is_same).then(|| Box::new(RareParts { url, ..RareParts::default() }));
        let NewWebhook { task, holder, form, start: PushStart { seq, snapshot }, .. } = *new;
        let (next, config) = (WebhookSlot::NONE, new.config.under(new.id));
        let (is_proven, is_same_receiver) = (false, false);
        Webhook {
            task,
            seq,
            snapshot,
            form,
            is_proven,
            is_same_receiver,
            holder,
            next,
            config,
            rest,
        }
    }

    /// Resumes at the position of the webhook that it replaces. `is_blocked`: the replaced webhook
    /// itself waits for the end of an earlier delivery.
    pub fn resume_from(&mut self, before: &Webhook, is_blocked: bool) {
        (self.seq, self.snapshot) = (before.seq, before.snapshot);
        let url = |webhook: &Webhook| webhook.url().map(str::to_owned);
        let is_same = self.config().url().raw() == before.config().url().raw();
        let is_same = is_same && url(self) == url(before);
        self.is_proven = before.is_proven && is_same;
        let is_its = !is_blocked || before.is_same_receiver;
        self.is_same_receiver = is_same && self.form == before.form && is_its;
    }

    /// Whether the webhook that it replaces has the same receiver.
    pub fn is_same_receiver(&self) -> bool {
        self.is_same_receiver
    }

    /// Whether it was replayed after its task was evicted.
    pub fn is_replayed(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.is_replayed)
    }

    /// Marks it as replayed after its task was evicted.
    pub fn set_replayed(&mut self) {
        self.rest.get_or_insert_default().is_replayed = true;
    }

    /// Records that the URL has answered its challenge.
    pub fn prove(&mut self) {
        self.is_proven = true;
        self.forget_error();
    }

    pub fn config(&self) -> PushConfig<'_> {
        PushConfig(&self.config)
    }

    fn url(&self) -> Option<&str> {
        self.rest.as_ref()?.url.as_deref()
    }

    /// The bytes charged for the webhook, in any stage.
    pub fn bytes(&self) -> usize {
        let url = self.url().map_or(0, |url| url.len() + size_of::<RareParts>());
        CONFIG_BYTES + self.config.len() + url
    }

    pub fn next(&self) -> Option<WebhookSlot> {
        (self.next != WebhookSlot::NONE).then_some(self.next)
    }

    pub fn set_next(&mut self, next: Option<WebhookSlot>) {
        self.next = next.unwrap_or(WebhookSlot::NONE);
    }

    /// The next delivery of the webhook; `slot` is its key.
    pub fn post(&self, slot: WebhookSlot) -> Post {
        let start = PushStart { seq: self.seq, snapshot: self.snapshot };
        let (task, form, is_proven) = (self.task, self.form, self.is_proven);
        let (config, url) = (self.config.clone(), self.url().map(Into::into));
        let owner = self.holder.number();
        let (is_limited, may_challenge) = (false, false);
        Post { slot, owner, task, start, form, is_proven, is_limited, may_challenge, config, url }
    }

    /// The last event that was delivered; 0 while the first snapshot is pending.
    fn posted_seq(&self) -> u64 {
        self.seq.saturating_sub(self.snapshot.into())
    }

    /// Undelivered events of a task with this last event.
    pub fn lag(&self, last_seq: u64) -> u64 {
        last_seq.saturating_sub(self.posted_seq())
    }

    /// Whether events of a task with this last event are undelivered.
    pub fn lacks(&self, last_seq: u64) -> bool {
        self.snapshot || self.seq < last_seq
    }

    /// Records that the events were delivered up to this one.
    pub fn posted(&mut self, seq: u64) {
        (self.seq, self.snapshot) = (seq, false);
        self.forget_error();
    }

    fn forget_error(&mut self) {
        if let Some(rest) = &mut self.rest {
            rest.error = Box::default();
        }
    }

    /// Stores why the last delivery failed.
    pub fn set_error(&mut self, why: &str) {
        let rest = self.rest.get_or_insert_default();
        rest.error = why.chars().take(ERROR_CHARS_MAX).collect();
    }

    /// The dead letter of the webhook.
    pub fn letter(&self, new: NewLetter) -> DeadLetter {
        let NewLetter { number, slot, task_id, holder, why, unix_ms } = new;
        let config = self.config();
        let url = self.url().map_or_else(|| config.url().to_string(), str::to_owned);
        DeadLetter {
            number,
            slot,
            holder,
            task: self.task,
            task_id,
            config_id: config.id().unwrap_or_default().raw().into(),
            origin: url_origin(&url).into(),
            seq: self.posted_seq(),
            why,
            error: self.rest.as_ref().map(|rest| rest.error.clone()).unwrap_or_default(),
            unix_ms,
            is_replayable: true,
        }
    }
}

/// The fields of a dead letter that its webhook does not have.
pub struct NewLetter {
    /// The number of the letter.
    pub number: u64,
    /// The key of the webhook.
    pub slot: WebhookSlot,
    /// The raw id of the task; empty: unknown.
    pub task_id: Box<[u8]>,
    /// The holder that the letter is charged to.
    pub holder: Holder,
    /// Why the webhook has stopped.
    pub why: WhyDead,
    /// The time, in ms since 1970.
    pub unix_ms: u64,
}

/// The origin of a URL: its path may be a secret.
pub fn url_origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
    &url[..end]
}

/// The webhooks of one task: a list, oldest first.
pub(super) struct TaskWebhooks {
    pub first: Option<WebhookSlot>,
    pub count: u32,
    pub watch: Arc<TaskWatch>,
}

impl TaskWebhooks {
    pub fn new(watch: Arc<TaskWatch>) -> TaskWebhooks {
        TaskWebhooks { first: None, count: 0, watch }
    }
}
