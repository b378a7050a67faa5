//! Push configurations (A2A 1.0 §3.1.7 to §3.1.10), and the deliveries that they cause.
//!
//! A webhook is a position in its task's events. The registry stores the webhooks (`crate::push`),
//! the store notifies it when their tasks change, and a webhook worker takes the next delivery and
//! reports its outcome.

mod ending;
mod inline;
mod outgoing;
mod scope;

use std::{
    borrow::Cow,
    hash::Hasher,
    sync::{Arc, OnceLock},
};

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::{
    fault::{Fault, FaultKind},
    limits::{Limits, PUSH_DEAD_LETTERS_MAX, PUSH_PAGE_CONFIGS_MAX},
    model::{
        ConfigPosition, PushCall, PushConfig, PushForm, PushReply, PushRequest, RawText, Reply,
        uuid,
    },
    op::Core,
    push::{
        DEFAULT_ID, NewWebhook, PushBounds, PushChallenge, PushRefused, PushSettings, PushStart,
        WebhookSlot, WebhookUrl, Webhooks, fields,
    },
    service::{Answer, CallCx, Outcome, trace::ParentSpan},
    store::TaskKey,
    watch::TaskWatch,
};

use inline::InlineWatch;
pub use outgoing::ShownPost;
use scope::ScopeWebhooks;

/// The webhooks of a core.
pub(super) struct CorePush {
    webhooks: Webhooks,
    settings: PushSettings,
    scopes: ScopeWebhooks,
    /// The key for ids derived from the content of a configuration.
    id_key: OnceLock<u128>,
}

impl CorePush {
    pub fn new(limits: &Limits, settings: PushSettings) -> CorePush {
        let bounds = PushBounds {
            per_task: limits.push_configs_task_max,
            per_task_host: limits.push_configs_task_host_max,
            per_owner: limits.push_configs_owner_max,
            per_host: limits.push_configs_host_max,
            bytes_max: limits.push_bytes_max,
            dead_max: PUSH_DEAD_LETTERS_MAX,
            dead_bytes_max: limits.push_dead_bytes_max,
        };
        let (scopes, id_key) = (ScopeWebhooks::new(limits), OnceLock::new());
        CorePush { webhooks: Webhooks::new(bounds, settings.pace), settings, scopes, id_key }
    }
}

impl Core {
    fn webhooks(&self) -> Result<&CorePush, Fault> {
        self.push.get().ok_or_else(|| FaultKind::PushNotificationNotSupported.into())
    }

    /// Enables webhooks; only the first call has an effect.
    pub fn serve_push(&self, settings: PushSettings) {
        // Fails only if webhooks are already enabled.
        let _ = self.push.set(CorePush::new(&self.limits, settings));
    }

    /// Whether webhooks are enabled.
    pub(super) fn has_push(&self) -> bool {
        self.push.get().is_some()
    }

    #[cold]
    pub(super) fn push(
        &self,
        cx: &mut CallCx<'_>,
        request: &PushRequest<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let push = self.webhooks()?;
        if request.form == PushForm::EvoAi {
            return push.of_scope(cx, request, answer);
        }
        push.check_caller(cx)?;
        let task_id = request.call.task_id();
        let key = self.store.find(cx.caller.scope, task_id.raw()).ok_or(FaultKind::TaskNotFound)?;
        let task = key.handle().key;
        match request.call {
            PushCall::Set(config) => {
                let webhook = push.check(cx, config, request.form, false)?;
                self.set_webhook(push, cx, key, &webhook)?;
                push.show(task, Some(&webhook.id), task_id, answer)
                    .ok_or(FaultKind::TaskNotFound)?;
            }
            PushCall::Get { id, .. } => {
                let shown = push.show(task, id.map(RawText::raw), task_id, answer);
                match (shown, request.form) {
                    (Some(()), _) => {}
                    (None, PushForm::Task01) => {
                        answer(Reply::Push(PushReply::NoConfig { task_id }));
                    }
                    // A2A 1.0 §3.1.8.
                    (None, _) => {
                        let detail = "no such push configuration";
                        return Err(Fault::because(FaultKind::TaskNotFound, detail));
                    }
                }
            }
            PushCall::List { page_size, page_token, .. } => {
                push.list(task, task_id, page_size, page_token, answer)?;
            }
            PushCall::Delete { id, .. } => {
                push.webhooks.delete(task, id.map(RawText::raw));
                answer(Reply::Push(match request.form {
                    // 0.1 deletes by setting no configuration, and the answer has none (wire §1.5).
                    PushForm::Task01 => PushReply::NoConfig { task_id },
                    _ => PushReply::Deleted,
                }));
            }
        }
        Ok(Outcome::Answered)
    }

    /// Adds a webhook to a stored task. It is notified of later events.
    fn set_webhook(
        &self,
        push: &CorePush,
        cx: &CallCx<'_>,
        key: TaskKey,
        webhook: &CheckedWebhook<'_>,
    ) -> Result<(), Fault> {
        let found = self.store.read(key, |task| (task.seq(), Box::<[u8]>::from(task.id())));
        let (seq, task_id) = found.ok_or(FaultKind::TaskNotFound)?;
        let start = PushStart { seq, snapshot: false };
        self.watch(push, key, &webhook.of_task(cx, key, &task_id, start))?;
        if push.settings.challenge == PushChallenge::Always {
            // Wakes the webhook worker to send the challenge at once, even without a new event.
            push.webhooks.note(key.handle().key);
        }
        Ok(())
    }

    /// Adds a webhook of this task, and registers it with the store for notifications.
    fn watch(&self, push: &CorePush, key: TaskKey, new: &NewWebhook<'_>) -> Result<(), Fault> {
        let watch = push.webhooks.set(new).map_err(refusal)?;
        self.watch_task(push, key, new.start, watch)
    }

    /// Registers a watch of a task with the store.
    fn watch_task(
        &self,
        push: &CorePush,
        key: TaskKey,
        start: PushStart,
        watch: Arc<TaskWatch>,
    ) -> Result<(), Fault> {
        let task = key.handle().key;
        match self.store.watch(key, Arc::clone(&watch)) {
            Some(seq) if seq > start.seq => push.webhooks.note(task),
            Some(_) => {}
            None => {
                push.webhooks.unwatched(task, &watch);
                return Err(FaultKind::TaskNotFound.into());
            }
        }
        Ok(())
    }

    /// Drops all webhooks of a task.
    pub(super) fn forget_webhooks(&self, key: TaskKey) {
        if let Some(push) = self.push.get() {
            push.webhooks.delete_all(key.handle().key);
        }
    }
}

/// A configuration that passed the checks.
pub(super) struct CheckedWebhook<'p> {
    id: Cow<'p, [u8]>,
    /// In packed form.
    config: Cow<'p, [u8]>,
    url: WebhookUrl,
    form: PushForm,
}

/// The packed configuration, with the trace of its call.
fn traced<'p>(cx: &CallCx<'_>, config: PushConfig<'p>) -> Cow<'p, [u8]> {
    match ParentSpan::of(cx.caller.fields) {
        Some(span) => config.in_trace(&span.text()).into(),
        None => config.packed().into(),
    }
}

impl CheckedWebhook<'_> {
    /// The configuration for a task, beginning at a position.
    fn of_task<'a>(
        &'a self,
        cx: &'a CallCx<'_>,
        key: TaskKey,
        task_id: &'a [u8],
        start: PushStart,
    ) -> NewWebhook<'a> {
        let CheckedWebhook { id, config, url, form } = self;
        let (task, owner, holder) = (key.handle().key, cx.caller.owner, cx.holder());
        let config = PushConfig(config);
        NewWebhook { task, task_id, owner, holder, id, config, url, form: *form, start }
    }
}

impl CorePush {
    /// Checks whether the caller may configure webhooks.
    fn check_caller(&self, cx: &CallCx<'_>) -> Result<(), Fault> {
        let is_stranger = cx.caller.authenticates_callers && cx.caller.principal.is_none();
        if is_stranger && !self.settings.anonymous {
            let detail = "only authenticated callers may configure push notifications";
            return Err(Fault::because(FaultKind::Unauthenticated, detail));
        }
        Ok(())
    }

    /// Checks a configuration: its URL, the values of its header fields, and its id; `is_inline`:
    /// the configuration comes with a message.
    fn check<'p>(
        &self,
        cx: &mut CallCx<'_>,
        config: PushConfig<'p>,
        form: PushForm,
        is_inline: bool,
    ) -> Result<CheckedWebhook<'p>, Fault> {
        let url = self.settings.targets.read(&config.url().to_str());
        let position = ConfigPosition { form, is_inline };
        let url = url.map_err(|why| Fault::param(position.path("url"), why.to_string()))?;
        fields::check(config)
            .map_err(|wrong| Fault::param(position.path(wrong.member), wrong.must))?;
        if config.id().is_some_and(|id| id.to_str().chars().any(char::is_control)) {
            return Err(Fault::param(position.path("id"), "must have no control characters"));
        }
        let id = match (config.id().filter(|id| !id.is_empty()), form) {
            (Some(id), _) => Cow::Borrowed(id.raw()),
            // A webhook that a client repeats with each message of a task counts as one.
            (None, PushForm::StreamResponse) if is_inline => {
                Cow::Owned(uuid(self.id_of(cx, config)).to_vec())
            }
            (None, PushForm::StreamResponse) => Cow::Owned(uuid(cx.entropy.bits()).to_vec()),
            (None, PushForm::Task03 | PushForm::Task01 | PushForm::EvoAi) => {
                Cow::Borrowed(DEFAULT_ID)
            }
        };
        Ok(CheckedWebhook { id, config: traced(cx, config), url, form })
    }

    /// An id that is equal for equal configurations; it does not reveal their content.
    fn id_of(&self, cx: &mut CallCx<'_>, config: PushConfig<'_>) -> u128 {
        let key = self.id_key.get_or_init(|| cx.entropy.bits());
        let mut hasher = SipHasher24::new_with_key(&key.to_be_bytes());
        hasher.write(config.packed());
        hasher.finish128().as_u128()
    }

    /// Answers with a configuration, if it exists.
    fn show(
        &self,
        task: u64,
        id: Option<&[u8]>,
        task_id: RawText<'_>,
        answer: &mut Answer<'_>,
    ) -> Option<()> {
        let shown = self.webhooks.get(task, id, |config| {
            answer(Reply::Push(PushReply::Config { task_id, config }));
        });
        shown.then_some(())
    }

    fn list(
        &self,
        task: u64,
        task_id: RawText<'_>,
        page_size: Option<u32>,
        page_token: Option<RawText<'_>>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Fault> {
        let no_page = || Fault::param("pageToken", "must be a token from an earlier page");
        let from = match page_token.filter(|token| !token.is_empty()) {
            Some(token) => {
                let token = str::from_utf8(token.raw()).ok();
                Some(token.and_then(WebhookSlot::of_token).ok_or_else(no_page)?)
            }
            None => None,
        };
        let most = page_size.map_or(PUSH_PAGE_CONFIGS_MAX, |size| size as usize);
        let mut is_open = false;
        let listed = self.webhooks.list(task, from, most.min(PUSH_PAGE_CONFIGS_MAX), |config| {
            if !std::mem::replace(&mut is_open, true) {
                answer(Reply::Push(PushReply::ListStart));
            }
            answer(Reply::Push(PushReply::Listed { task_id, config }));
        });
        let next = listed.map_err(|_| no_page())?.map(WebhookSlot::token).unwrap_or_default();
        if !is_open {
            answer(Reply::Push(PushReply::ListStart));
        }
        answer(Reply::Push(PushReply::ListEnd { next: &next }));
        Ok(())
    }
}

fn refusal(refused: PushRefused) -> Fault {
    match refused {
        PushRefused::TaskFull => {
            full("the task has too many push configurations", "push_configs_task_max")
        }
        PushRefused::TaskHostFull => full(
            "the task has too many push configurations at the host of the URL",
            "push_configs_task_host_max",
        ),
        PushRefused::OwnerFull => owner_full("push_configs_owner_max", "push_configs_owner_max"),
        PushRefused::OwnerBytesFull => owner_full("a share of push_bytes_max", "push_bytes_max"),
        PushRefused::HostFull => {
            full("the host of the URL has too many push configurations", "push_configs_host_max")
        }
        PushRefused::Full => Fault::at_limit("push_bytes_max"),
    }
}

/// The fault for a reached limit of configurations, with the text `what`.
fn full(what: &str, limit: &'static str) -> Fault {
    Fault::because(FaultKind::Overloaded, format!("{what} ({limit})")).of_limit(limit)
}

/// The fault for a caller that has reached its limit of configurations.
fn owner_full(share: &str, limit: &'static str) -> Fault {
    let detail = format!("the caller has too many push configurations ({share})");
    Fault::because(FaultKind::RateLimited, detail).of_limit(limit)
}
