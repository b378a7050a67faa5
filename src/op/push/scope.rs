//! Webhooks of a scope, as in Evo AI: they name no task and apply to all later tasks (wire §8).
//!
//! Invariant: a scope is an agent, a tenant and an owner by their names, and has at most one
//! webhook. A new setting replaces it, and an empty setting removes it; existing tasks keep the
//! webhook that they began with.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use foldhash::fast::RandomState;

use crate::{
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{PushCall, PushConfig, PushForm, PushReply, PushRequest, RawText, Reply},
    op::{Core, send::FIRST_SEQ},
    push::{PushStart, WebhookUrl},
    service::{AgentIndex, Answer, CallCx, Outcome},
    store::Reserved,
};

use super::{CheckedWebhook, CorePush, InlineWatch, owner_full, traced};

/// The configuration id of a scope's webhook in each task.
const ID: &[u8] = b"evo_ai";

/// The scope of a webhook.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ScopeName {
    agent: AgentIndex,
    tenant: Box<str>,
    owner: Box<str>,
}

impl ScopeName {
    /// The scope of a call; `None`: its caller is anonymous.
    fn of(cx: &CallCx<'_>) -> Option<ScopeName> {
        let (agent, owner) = (cx.caller.scope.agent, cx.caller.owner?);
        let tenant = cx.caller.tenant.unwrap_or_default();
        Some(ScopeName { agent, tenant: tenant.into(), owner: owner.into() })
    }
}

/// A webhook of a scope.
#[derive(Clone)]
struct ScopeWebhook {
    config: Box<[u8]>,
    url: WebhookUrl,
}

/// The webhooks of all scopes.
pub(super) struct ScopeWebhooks {
    scopes: Mutex<HashMap<ScopeName, ScopeWebhook, RandomState>>,
    /// The number of webhooks, for a quick check by calls that create tasks.
    count: AtomicUsize,
    /// The number of settings so far.
    settings: AtomicU64,
    most: usize,
    /// The limit for one owner.
    owner_most: usize,
}

impl ScopeWebhooks {
    pub fn new(limits: &Limits) -> ScopeWebhooks {
        ScopeWebhooks {
            scopes: Mutex::default(),
            count: AtomicUsize::new(0),
            settings: AtomicU64::new(0),
            most: limits.push_scopes_max,
            owner_most: limits.push_scopes_owner_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ScopeName, ScopeWebhook, RandomState>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, name: ScopeName, webhook: ScopeWebhook) -> Result<(), Fault> {
        let mut scopes = self.lock();
        if !scopes.contains_key(&name) {
            let own = scopes.keys().filter(|other| other.owner == name.owner).count();
            if own >= self.owner_most {
                return Err(owner_full("push_scopes_owner_max", "push_scopes_owner_max"));
            }
            if scopes.len() >= self.most {
                let victim = victim(&scopes, &name.owner, self.most);
                let victim = victim.ok_or_else(|| Fault::at_limit("push_scopes_max"))?;
                scopes.remove(&victim);
            }
        }
        scopes.insert(name, webhook);
        self.count.store(scopes.len(), Ordering::Release);
        Ok(())
    }

    fn unset(&self, name: &ScopeName) {
        let mut scopes = self.lock();
        scopes.remove(name);
        self.count.store(scopes.len(), Ordering::Release);
    }

    /// Removes the webhook that this setting created.
    fn forget(&self, setting: u64) {
        let mut scopes = self.lock();
        scopes.retain(|_, webhook| PushConfig(&webhook.config).setting() != Some(setting));
        self.count.store(scopes.len(), Ordering::Release);
    }

    /// Removes the webhooks of owners for which `is_vouched` returns false.
    fn keep_vouched(&self, is_vouched: &dyn Fn(&str) -> bool) {
        let mut scopes = self.lock();
        scopes.retain(|name, _| is_vouched(&name.owner));
        self.count.store(scopes.len(), Ordering::Release);
    }

    fn get(&self, name: &ScopeName) -> Option<ScopeWebhook> {
        self.lock().get(name).cloned()
    }
}

/// The scope to evict for a new scope of `owner`: the oldest of the owner that exceeds its equal
/// share by the most. `None`: no other owner exceeds its share.
fn victim(
    scopes: &HashMap<ScopeName, ScopeWebhook, RandomState>,
    owner: &str,
    most: usize,
) -> Option<ScopeName> {
    let mut counts = HashMap::<&str, usize>::from([(owner, 1)]);
    scopes.keys().for_each(|name| *counts.entry(&name.owner).or_default() += 1);
    let share = (most / counts.len()).max(1);
    let (largest, count) = counts.into_iter().max_by_key(|(name, count)| (*count, *name))?;
    if count <= share || largest == owner {
        return None;
    }
    let its = scopes.iter().filter(|(name, _)| &*name.owner == largest);
    let oldest = its.min_by_key(|(_, webhook)| PushConfig(&webhook.config).setting());
    oldest.map(|(name, _)| name.clone())
}

impl CorePush {
    /// Sets, removes or shows the webhook of the scope of a call.
    pub(super) fn of_scope(
        &self,
        cx: &mut CallCx<'_>,
        request: &PushRequest<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let Some(name) = ScopeName::of(cx) else {
            let detail = "only authenticated callers may configure push notifications";
            return Err(Fault::because(FaultKind::InvalidRequest, detail));
        };
        let task_id = RawText::default();
        match request.call {
            PushCall::Set(config) => {
                let CheckedWebhook { url, .. } = self.check(cx, config, request.form, false)?;
                let setting = self.scopes.settings.fetch_add(1, Ordering::Relaxed);
                let config_set = PushConfig(&config.under(ID)).of_setting(setting).into();
                let webhook = ScopeWebhook { config: config_set, url };
                self.scopes.set(name, webhook)?;
                answer(Reply::Push(PushReply::Config { task_id, config }));
            }
            PushCall::Delete { .. } => {
                self.scopes.unset(&name);
                answer(Reply::Push(PushReply::NoConfig { task_id }));
            }
            PushCall::Get { .. } | PushCall::List { .. } => {
                let found = self.scopes.get(&name);
                answer(Reply::Push(match &found {
                    Some(webhook) => {
                        PushReply::Config { task_id, config: PushConfig(&webhook.config) }
                    }
                    None => PushReply::NoConfig { task_id },
                }));
            }
        }
        Ok(Outcome::Answered)
    }
}

impl Core {
    /// Handles a receiver that wants no more deliveries of this configuration: if a scope has it,
    /// the webhook of the scope is removed, so that later tasks do not get it.
    pub fn forget_scope(&self, config: PushConfig<'_>) {
        if let (Some(push), Some(setting)) = (self.push.get(), config.setting()) {
            push.scopes.forget(setting);
        }
    }

    /// Removes the webhooks of owners without a valid credential.
    pub fn keep_vouched_scopes(&self, is_vouched: &dyn Fn(&str) -> bool) {
        if let Some(push) = self.push.get() {
            push.scopes.keep_vouched(is_vouched);
        }
    }

    /// Whether any scope has a webhook.
    #[inline(always)]
    pub(super) fn has_scopes(&self) -> bool {
        self.push.get().is_some_and(|push| push.scopes.count.load(Ordering::Acquire) > 0)
    }

    /// Adds the webhook of the scope, if any, to a new task.
    pub(super) fn watch_scope<'c>(
        &'c self,
        cx: &CallCx<'_>,
        reserved: &'c Reserved<'c>,
    ) -> Option<InlineWatch<'c>> {
        let push = self.push.get()?;
        let ScopeWebhook { config, url } = push.scopes.get(&ScopeName::of(cx)?)?;
        let config = PushConfig(&config);
        if config.context_id().is_some_and(|id| id.raw() != reserved.context_id()) {
            return None;
        }
        let (config, form) = (traced(cx, config), PushForm::EvoAi);
        let webhook = CheckedWebhook { id: ID.into(), config, url, form };
        let start = PushStart { seq: FIRST_SEQ, snapshot: true };
        let watch = self.watch_reserved(cx, reserved, start, &webhook);
        // If the webhook does not fit, the task is created without it.
        watch.inspect_err(|_| push.webhooks.count_left_out()).ok()
    }
}
