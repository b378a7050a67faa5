//! The requests of webhooks for the webhook worker.
//!
//! Invariant: a request is built on demand from the log of its task. With a tap, a request is sent
//! when the record that it shows is durable, like an answer.

use std::{
    collections::VecDeque,
    hash::Hasher,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::{
    auth::Authenticator,
    dialect::{push_body, push_head},
    engine::Engine,
    http::{FieldLinesBuf, USER_AGENT},
    json,
    model::{PushConfig, PushForm, uuid, uuid_digits},
    op::{Core, ShownPost},
    push::{
        FailedPost, FailureKind, NextPost, Post, PushChallenge, TargetError, WebhookSlot, Webhooks,
        fields,
        large::LargePosts,
        outbox::{NextRequest, Outbox, PostOutcome, PostRequest},
        signature::{self, PostSigner, SignedPost},
        url_origin,
    },
    service::{Now, StreamResponse, tap::Tap},
};

impl Engine {
    /// The source of webhook requests; `None`: the server has no webhooks.
    pub fn outbox(&self) -> Option<Arc<dyn Outbox>> {
        let core = self.agents.as_ref()?.core();
        let posts_max = core.push_settings()?.pace.posts_max;
        let bytes_max = self.config.limits.push_posts_bytes_max;
        let gate = self.config.access.gate.as_ref();
        Some(Arc::new(CoreOutbox {
            core: Arc::clone(core),
            tap: self.tap.clone(),
            signer: self.webhook_signer.clone(),
            authenticator: gate.map(|gate| Arc::clone(gate.authenticator())),
            rules_seen: AtomicU64::new(0),
            held: Mutex::default(),
            large: Mutex::new(LargePosts::new(bytes_max, posts_max)),
            looked_ms: AtomicU64::new(0),
        }))
    }
}

#[cfg(feature = "net")]
impl Engine {
    /// The webhooks, for the operator; `None`: the server has no webhooks.
    pub(crate) fn webhooks(&self) -> Option<&Webhooks> {
        self.agents.as_ref()?.core().registry()
    }

    /// Whether an agent works on a task with webhooks.
    pub(crate) fn works_for_webhooks(&self) -> bool {
        self.agents.as_ref().is_some_and(|agents| agents.core().works_for_webhooks())
    }

    /// Fails unfinished tasks with webhooks; returns their number.
    pub(crate) fn end_watched_tasks(&self) -> usize {
        self.agents.as_ref().map_or(0, |agents| agents.core().end_watched_tasks())
    }
}

/// The webhooks of a core.
struct CoreOutbox {
    core: Arc<Core>,
    tap: Option<Arc<dyn Tap>>,
    signer: Option<Arc<dyn PostSigner>>,
    /// Checks whether owners still have valid credentials; `None`: no owner is checked.
    authenticator: Option<Arc<dyn Authenticator>>,
    /// [`Authenticator::changes`] at the last check of all webhooks.
    rules_seen: AtomicU64,
    /// Requests that wait for a record, the longest-waiting first. Each counts as in flight, which
    /// bounds their number.
    held: Mutex<VecDeque<(u64, PostRequest)>>,
    large: Mutex<LargePosts>,
    /// The time of the last search for webhooks past their retry deadline, in ms of the monotonic
    /// clock.
    looked_ms: AtomicU64,
}

/// The interval between searches for webhooks past their retry deadline. A search examines all
/// webhooks that wait for unreachable hosts.
const LOOK_MS: u64 = 60_000;

impl CoreOutbox {
    fn held(&self) -> MutexGuard<'_, VecDeque<(u64, PostRequest)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the longest-waiting request, if its record is durable.
    fn release(&self, tap: &dyn Tap, request: &mut PostRequest) -> bool {
        let mut held = self.held();
        let durable = tap.durable();
        match held.pop_front_if(|(record, _)| *record <= durable) {
            Some((_, next)) => {
                *request = next;
                true
            }
            None => false,
        }
    }

    /// Holds a request until its record is durable; true: the record is durable already.
    fn hold(&self, record: u64, wake: &Waker, request: &mut PostRequest) -> bool {
        let Some(tap) = self.tap.as_ref().filter(|tap| tap.durable() < record) else { return true };
        self.held().push_back((record, std::mem::take(request)));
        tap.wait(record, wake);
        false
    }

    fn large(&self) -> MutexGuard<'_, LargePosts> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a prepared request; false: the request is large and too few bytes are free now, so
    /// its webhook is deferred.
    fn count(&self, webhooks: &Webhooks, request: &PostRequest, now: Now) -> bool {
        let mut large = self.large();
        let Some(size) = large.size(request) else {
            large.keep_promise(request.slot);
            return true;
        };
        if large.begin(request.slot, &size) {
            return true;
        }
        drop(large);
        webhooks.defer(request.slot, size, now);
        false
    }

    /// Resumes deferred webhooks if no large request is in flight; otherwise the end of that
    /// request resumes them. Webhooks that were resumed before may have been deleted since, or may
    /// wait for their hosts.
    fn has_resumed_deferred(&self, webhooks: &Webhooks) -> bool {
        let mut large = self.large();
        large.is_idle() && webhooks.resume_deferred(&mut large) > 0
    }

    /// Whether the owner with this number still has a valid credential.
    fn is_vouched(&self, webhooks: &Webhooks, owner: u32, now: Now) -> bool {
        let Some(authenticator) = self.authenticator.as_ref().filter(|_| owner != 0) else {
            return true;
        };
        let name = webhooks.owner_name(owner);
        name.is_none_or(|name| authenticator.vouches_for(&name, now))
    }

    /// After a change of the authentication rules: removes the webhooks of owners without a valid
    /// credential.
    fn withdraw(&self, webhooks: &Webhooks, now: Now, wake: &Waker) {
        let Some(authenticator) = &self.authenticator else { return };
        let changes = authenticator.changes(wake);
        if self.rules_seen.swap(changes, Ordering::Relaxed) == changes {
            return;
        }
        self.core.keep_vouched_scopes(&|owner| authenticator.vouches_for(owner, now));
        let mut owners = webhooks.owners();
        owners.retain(|owner| !self.is_vouched(webhooks, *owner, now));
        for webhook in webhooks.of_owners(&owners) {
            webhooks.withdraw(webhook, self.core.is_task_over(webhook.task), now);
        }
    }

    fn give_up(&self, webhooks: &Webhooks, now: Now) {
        let looked_ms = self.looked_ms.load(Ordering::Relaxed);
        if now.mono_ms.saturating_sub(looked_ms) >= LOOK_MS {
            self.looked_ms.store(now.mono_ms, Ordering::Relaxed);
            webhooks.give_up(now);
        }
    }

    /// Builds the request of a delivery; `None`: the task no longer exists.
    fn make(&self, post: &Post, now: Now, request: &mut PostRequest) -> Option<ShownPost> {
        request.clear();
        if !post.is_proven && self.is_challenged(post) {
            self.core.registry()?.challenged(post.slot, now);
            return self.challenge(post, request);
        }
        let (mut task_id, mut is_task) = (String::new(), false);
        let shown = self.core.show_post(post, &mut |item| {
            task_id.push_str(&item.task_id().to_str());
            is_task = matches!(item, StreamResponse::Snapshot(_));
            push_body(&mut request.body, post.form, &item, now.unix_ms);
            if self.signer.is_some() {
                make_compact(&mut request.body);
            }
        })?;
        if !shown.is_news {
            return Some(shown);
        }
        let config = PushConfig(&post.config);
        (request.slot, request.owner) = (post.slot, post.owner);
        (request.upto, request.has_more) = (shown.upto, shown.has_more);
        put_url(&mut request.url, post);
        let names = NotificationNames::new(&shown, post, is_task);
        put_head(&mut request.fields, post.form, &names, config.trace());
        let has_own = fields::put(&mut request.fields, config);
        for (name, value) in [USER_AGENT, ANY_CODING] {
            if !(has_own && fields::has(config, name)) {
                request.fields.push(name, value);
            }
        }
        let signer = self.signer.as_deref();
        if signature::is_requested(config, signer) {
            let notification = uuid(names.notification);
            let signed = SignedPost {
                id: str::from_utf8(&notification).unwrap_or_default(),
                unix_ms: now.unix_ms,
                task_id: &task_id,
                audience: url_origin(&request.url),
                body: &request.body,
            };
            signature::put(&mut request.fields, config, &signed, signer);
        }
        Some(shown)
    }

    /// Whether the webhook gets a challenge before its deliveries.
    fn is_challenged(&self, post: &Post) -> bool {
        match self.challenges() {
            PushChallenge::Never => false,
            PushChallenge::Always => true,
            PushChallenge::Auto => post.may_challenge,
        }
    }

    fn challenges(&self) -> PushChallenge {
        self.core.push_settings().map_or(PushChallenge::Never, |settings| settings.challenge)
    }

    /// Builds the challenge of a webhook (wire §6, the sample of 0.1): the receiver gets no event
    /// and no secret yet.
    fn challenge(&self, post: &Post, request: &mut PostRequest) -> Option<ShownPost> {
        let bits = self.core.bits_of(post.task)?;
        let id = PushConfig(&post.config).id().unwrap_or_default().raw();
        (request.slot, request.owner) = (post.slot, post.owner);
        put_url(&mut request.url, post);
        // A receiver at another URL cannot compute this token.
        let token = uuid(hash_of(bits, &[b"challenge", id, request.url.as_bytes()]));
        request.url.push(if request.url.contains('?') { '&' } else { '?' });
        request.expects.push_str(str::from_utf8(&token).unwrap_or_default());
        request.url.push_str("validationToken=");
        request.url.push_str(&request.expects);
        request.fields.push(USER_AGENT.0, USER_AGENT.1);
        request.fields.push(ANY_CODING.0, ANY_CODING.1);
        let upto = post.start.seq;
        Some(ShownPost { upto, is_news: true, has_more: true, record: 0, bits })
    }
}

/// The content of an answer must be readable; without this field the receiver may use any coding
/// (RFC 9110 §12.5.3).
const ANY_CODING: (&str, &str) = ("Accept-Encoding", "identity");

fn put_url(out: &mut String, post: &Post) {
    match &post.url {
        Some(url) => out.push_str(url),
        None => out.push_str(&PushConfig(&post.config).url().to_str()),
    }
}

/// Wire §6: receivers that check the hash of a JWT serialize the parsed content again.
fn make_compact(body: &mut Vec<u8>) {
    let written = std::mem::take(body);
    json::write::push_compact(body, str::from_utf8(&written).unwrap_or_default());
}

impl Outbox for CoreOutbox {
    fn next(&self, now: Now, wake: &Waker, request: &mut PostRequest) -> NextRequest {
        if let Some(tap) = &self.tap
            && self.release(&**tap, request)
        {
            return NextRequest::Post;
        }
        let Some(webhooks) = self.core.registry() else { return NextRequest::Never };
        self.give_up(webhooks, now);
        self.withdraw(webhooks, now, wake);
        loop {
            let post = match webhooks.next(now, wake) {
                NextPost::Post(post) => post,
                _ if self.has_resumed_deferred(webhooks) => continue,
                NextPost::At(due_ms) => return NextRequest::At(due_ms),
                NextPost::Never => return NextRequest::Never,
            };
            if !self.is_vouched(webhooks, post.owner, now) {
                webhooks.withdraw_post(post.slot, now);
                continue;
            }
            let unmade = UnmadePost { webhooks, slot: post.slot, now };
            let shown = self.make(&post, now, request);
            std::mem::forget(unmade);
            match shown {
                Some(shown) if shown.is_news => {
                    if self.count(webhooks, request, now) && self.hold(shown.record, wake, request)
                    {
                        return NextRequest::Post;
                    }
                }
                Some(ShownPost { upto, has_more, .. }) => {
                    webhooks.passed_over(post.slot, upto, now, has_more);
                }
                None => webhooks.task_left(post.slot, now),
            }
        }
    }

    fn done(&self, request: &PostRequest, outcome: PostOutcome, now: Now, random: u64) {
        let Some(webhooks) = self.core.registry() else { return };
        let size = self.large().size(request);
        let PostRequest { slot, upto, has_more, .. } = *request;
        let kind = match outcome {
            PostOutcome::Refused { .. } => FailureKind::Refused,
            PostOutcome::Unwell { .. } => FailureKind::Unwell,
            _ => FailureKind::NoAnswer,
        };
        match outcome {
            PostOutcome::Delivered if !request.expects.is_empty() => {
                webhooks.proven(slot, now);
            }
            // With `Auto`, a failed challenge only denies the higher rate; deliveries continue.
            _ if !request.expects.is_empty() && self.challenges() == PushChallenge::Auto => {
                webhooks.unanswered(slot, now);
            }
            PostOutcome::Delivered => {
                webhooks.delivered(slot, upto, now, has_more);
            }
            PostOutcome::Gone => {
                let removed = webhooks.gone(slot, now);
                removed.into_iter().for_each(|config| self.core.forget_scope(PushConfig(&config)));
            }
            PostOutcome::Refused { why, retry_after_ms }
            | PostOutcome::Unwell { why, retry_after_ms }
            | PostOutcome::Failed { why, retry_after_ms } => {
                let failed = FailedPost { slot, why: &why, retry_after_ms, kind, random };
                webhooks.failed(&failed, now);
            }
        }
        if let Some(size) = size {
            let mut large = self.large();
            large.leave(&size);
            webhooks.resume_deferred(&mut large);
        }
    }

    fn check_address(
        &self,
        host: &str,
        address: IpAddr,
        is_own: &dyn Fn(IpAddr) -> bool,
    ) -> Result<(), TargetError> {
        match self.core.push_settings() {
            Some(settings) => settings.targets.check_address(Some(host), address, is_own),
            None => Err(TargetError::Denied),
        }
    }
}

/// A request that is being built. If that panics, dropping it schedules a retry; otherwise the
/// webhook would stay in flight forever.
struct UnmadePost<'a> {
    webhooks: &'a Webhooks,
    slot: WebhookSlot,
    now: Now,
}

impl Drop for UnmadePost<'_> {
    fn drop(&mut self) {
        let (slot, why) = (self.slot, "the post could not be created");
        let (retry_after_ms, kind, random) = (None, FailureKind::Refused, u64::MAX);
        let failed = FailedPost { slot, why, retry_after_ms, kind, random };
        self.webhooks.failed(&failed, self.now);
    }
}

/// The ids of a notification.
struct NotificationNames {
    /// The bits of the notification id, the same on each retry.
    notification: u128,
    /// The last event that the notification contains.
    event: u64,
    /// The trace id, the same for all notifications of a task.
    trace: u128,
}

impl NotificationNames {
    /// The ids of a delivery; `is_task`: it contains the current task instead of an event.
    fn new(shown: &ShownPost, post: &Post, is_task: bool) -> NotificationNames {
        let ShownPost { bits, upto, .. } = *shown;
        let id = PushConfig(&post.config).id().unwrap_or_default().raw();
        // A delivery in another form has another id, even for the same webhook id.
        let kind = [is_task.into(), post.form as u8];
        NotificationNames {
            notification: hash_of(bits, &[b"notification", id, &upto.to_be_bytes(), &kind]),
            event: upto,
            trace: hash_of(bits, &[b"trace"]),
        }
    }
}

/// A keyed hash, which cannot be guessed without `bits`.
fn hash_of(bits: u128, parts: &[&[u8]]) -> u128 {
    let mut hasher = SipHasher24::new_with_key(&bits.to_be_bytes());
    parts.iter().for_each(|part| {
        hasher.write_usize(part.len());
        hasher.write(part);
    });
    hasher.finish128().as_u128()
}

/// Appends the header fields of a notification.
fn put_head(
    out: &mut FieldLinesBuf,
    form: PushForm,
    names: &NotificationNames,
    trace: Option<&str>,
) {
    let (media, version) = push_head(form);
    out.push("Content-Type", media);
    version.into_iter().for_each(|version| out.push("A2A-Version", version));
    let notification = uuid(names.notification);
    out.push("A2A-Notification-Id", str::from_utf8(&notification).unwrap_or_default());
    out.push("A2A-Event-Id", &names.event.to_string());
    if let Some(trace) = trace {
        return out.push("traceparent", trace);
    }
    let mut parent = *b"00-................................-................-00";
    let (trace, span) = (uuid_digits(names.trace), uuid_digits(names.notification));
    parent[3..35].copy_from_slice(trace.as_flattened());
    parent[36..52].copy_from_slice(span[..8].as_flattened());
    out.push("traceparent", str::from_utf8(&parent).unwrap_or_default());
}
