//! The webhooks of all tasks: their configurations and their positions in the events.
//!
//! Invariants: undelivered events are only in the log of their task. A task with webhooks that
//! changes is listed once until it is examined, so the list is bounded by the configurations. All
//! memory is counted in bytes, which are released with the task.

mod counts;
mod deferred;
mod letters;
mod lists;
mod owners;
mod posts;
mod quotas;
mod withdrawn;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Wake, Waker},
};

use foldhash::fast::RandomState;

use super::{
    WebhookUrl,
    dead::{DeadLetter, DeadLetters},
    schedule::{Pace, Schedule, WebhookSlot},
    webhook::{TaskWebhooks, Webhook},
};
use crate::{
    model::{PushConfig, PushForm, Task},
    service::Now,
    shares::Holder,
    watch::{Changes, TaskWatch},
};

use deferred::DeferredWebhooks;
use owners::PushOwners;
use quotas::PushCounts;

pub use counts::{PushOutcomes, PushStats};
pub use letters::ReplayOutcome;
pub use posts::FailedPost;
pub use withdrawn::WithdrawnWebhook;

/// Bytes of a configuration in addition to its text: its entry, its shares of the maps, and the
/// entries of its task and its holder.
pub const CONFIG_BYTES: usize = 300;

/// Maximum numbers of configurations, and of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushBounds {
    /// For one task.
    pub per_task: usize,
    /// For one task at one host, unless the operator allows the host by name.
    pub per_task_host: usize,
    /// For one owner.
    pub per_owner: usize,
    /// For one host, over all ports.
    pub per_host: usize,
    /// Bytes of all configurations, each with [`CONFIG_BYTES`], and of their hosts and owners. One
    /// owner, or the address of one anonymous caller, has at most a quarter, including the hosts
    /// that it was the first to register. All anonymous callers together have at most half. If no
    /// caller is authenticated, one address has at most half.
    pub bytes_max: usize,
    /// Number of retained dead letters.
    pub dead_max: usize,
    /// Bytes of evicted tasks that are retained for dead letters.
    pub dead_bytes_max: usize,
}

/// Why a configuration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushRefused {
    /// The task has its maximum of configurations.
    TaskFull,
    /// The task has its maximum of configurations at this host.
    TaskHostFull,
    /// The owner has its maximum of configurations.
    OwnerFull,
    /// The owner has its maximum of bytes.
    OwnerBytesFull,
    /// The host has its maximum of configurations.
    HostFull,
    /// The registry is full.
    Full,
}

/// The error of a page that begins with a deleted configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPage;

/// Where a webhook begins in its task's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushStart {
    /// The last event before the first delivery.
    pub seq: u64,
    /// True: the first delivery is the task as it was at `seq`.
    pub snapshot: bool,
}

/// A configuration to add.
#[derive(Clone, Copy, Debug)]
pub struct NewWebhook<'a> {
    /// The task, as its service names it.
    pub task: u64,
    /// The id of the task, raw.
    pub task_id: &'a [u8],
    /// The name of the owner that the configuration is charged to; `None`: it is charged to
    /// `holder`.
    pub owner: Option<&'a str>,
    /// The anonymous caller that the configuration is charged to.
    pub holder: Holder,
    /// The id of the configuration, unique within the task; a webhook with this id is replaced.
    pub id: &'a [u8],
    /// The URL and the credentials.
    pub config: PushConfig<'a>,
    /// The parsed URL.
    pub url: &'a WebhookUrl,
    /// The form of the deliveries.
    pub form: PushForm,
    /// Where the webhook begins.
    pub start: PushStart,
}

/// The next delivery of a webhook.
#[derive(Debug)]
pub struct Post {
    /// The webhook.
    pub slot: WebhookSlot,
    /// The number of its owner ([`Webhooks::owner_name`]); 0: all anonymous callers.
    pub owner: u32,
    /// Its task.
    pub task: u64,
    /// The webhook's position in the events.
    pub start: PushStart,
    /// The form of the delivery.
    pub form: PushForm,
    /// Whether the URL has answered its challenge.
    pub is_proven: bool,
    /// Whether its owner's rate at its host has delayed it: then all undelivered events of the task
    /// become one delivery.
    pub is_limited: bool,
    /// Whether the URL may be sent a challenge now, for a higher rate.
    pub may_challenge: bool,
    /// A copy of the configuration, which may be replaced meanwhile.
    pub config: Box<[u8]>,
    /// The URL to connect to, if it differs from the configured text.
    pub url: Option<Box<str>>,
}

/// When the next delivery is due.
#[derive(Debug)]
pub enum NextPost {
    /// Now.
    Post(Box<Post>),
    /// Not before this time, in ms of the monotonic clock, unless the waker is woken.
    At(u64),
    /// Not before the waker is woken.
    Never,
}

struct PushState {
    schedule: Schedule<Webhook>,
    tasks: HashMap<u64, TaskWebhooks, RandomState>,
    counted: PushCounts,
    owners: PushOwners,
    bounds: PushBounds,
    dead: DeadLetters,
    /// Called with each new letter.
    listener: Option<fn(&DeadLetter)>,
    outcomes: PushOutcomes,
    deferred: DeferredWebhooks,
    changes: Arc<Changes>,
    /// Hashes URLs with a random key, so that owners cannot create collisions.
    urls: RandomState,
}

/// The webhooks of all tasks of a service.
pub struct Webhooks {
    state: Mutex<PushState>,
    changes: Arc<Changes>,
}

impl Webhooks {
    /// An empty registry.
    pub fn new(bounds: PushBounds, pace: Pace) -> Webhooks {
        let schedule = Schedule::new(pace);
        let (tasks, counted) = (HashMap::default(), PushCounts::default());
        let dead = DeadLetters::new(bounds.dead_max);
        let (owners, listener, outcomes, deferred) = Default::default();
        let changes = Arc::new(Changes::new(bounds.dead_bytes_max));
        let state = PushState {
            schedule,
            tasks,
            counted,
            owners,
            bounds,
            dead,
            listener,
            outcomes,
            deferred,
            changes: Arc::clone(&changes),
            urls: RandomState::default(),
        };
        Webhooks { state: Mutex::new(state), changes }
    }

    fn lock(&self) -> MutexGuard<'_, PushState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether a configuration fits the limits.
    ///
    /// # Errors
    /// [`PushRefused`]
    pub fn check(&self, new: &NewWebhook<'_>) -> Result<(), PushRefused> {
        let mut state = self.lock();
        let new = state.charged(new);
        state.make_room(&new)
    }

    /// Adds or replaces a configuration. A replacement resumes at the old one's position. The store
    /// of the task notifies the returned watch from now on; the caller reports events since
    /// [`NewWebhook::start`] ([`Webhooks::note`]).
    ///
    /// # Errors
    /// [`PushRefused`]; the existing configuration, if any, is unchanged.
    pub fn set(&self, new: &NewWebhook<'_>) -> Result<Arc<TaskWatch>, PushRefused> {
        let mut state = self.lock();
        let new = state.charged(new);
        state.make_room(&new)?;
        Ok(state.put(&new))
    }

    /// As [`Webhooks::set`], after [`Webhooks::check`] has accepted the configuration. Concurrent
    /// checks may exceed the limits by their number.
    pub fn set_checked(&self, new: &NewWebhook<'_>) -> Arc<TaskWatch> {
        let mut state = self.lock();
        let new = state.charged(new);
        state.put(&new)
    }

    /// Shows a configuration of a task; without an id the configuration with the default id, or
    /// else the first one. False: the task has no such configuration.
    pub fn get(&self, task: u64, id: Option<&[u8]>, show: impl FnOnce(PushConfig<'_>)) -> bool {
        let state = self.lock();
        let slot = state.find_or_default(task, id);
        let Some(webhook) = slot.and_then(|slot| state.schedule.get(slot)) else {
            return false;
        };
        show(webhook.config());
        true
    }

    /// Shows at most `most` configurations of a task, the oldest first, starting at `from`; returns
    /// the start of the next page, if any.
    ///
    /// # Errors
    /// [`NoPage`]: the page begins with a deleted configuration.
    pub fn list(
        &self,
        task: u64,
        from: Option<WebhookSlot>,
        most: usize,
        mut each: impl FnMut(PushConfig<'_>),
    ) -> Result<Option<WebhookSlot>, NoPage> {
        let state = self.lock();
        let mut at = match from {
            Some(from) => {
                let is_its = state.schedule.get(from).is_some_and(|first| first.task == task);
                Some(is_its.then_some(from).ok_or(NoPage)?)
            }
            None => state.tasks.get(&task).and_then(|task| task.first),
        };
        for _ in 0..most {
            let Some(webhook) = at.and_then(|at| state.schedule.get(at)) else { break };
            each(webhook.config());
            at = webhook.next();
        }
        Ok(at)
    }

    /// Deletes the configuration that [`Webhooks::get`] would show; false: no such configuration.
    pub fn delete(&self, task: u64, id: Option<&[u8]>) -> bool {
        let mut state = self.lock();
        let Some(slot) = state.find_or_default(task, id) else { return false };
        state.remove(task, slot);
        state.settle(task);
        drop(state);
        // A delivery that waited for the freed slot starts.
        self.changes.wake();
        true
    }

    /// Deletes all configurations of a task.
    pub fn delete_all(&self, task: u64) {
        if self.lock().remove_all(task) > 0 {
            self.changes.wake();
        }
    }

    /// Handles a watch from [`Webhooks::set`] if its task is not stored. If the task was evicted
    /// meanwhile, its webhooks end as those of any evicted task, otherwise at once.
    pub fn unwatched(&self, task: u64, watch: &TaskWatch) {
        if watch.left().is_none() {
            self.delete_all(task);
        }
    }

    /// Records that a task has changed.
    pub fn note(&self, task: u64) {
        let watch = self.lock().tasks.get(&task).map(|task| Arc::clone(&task.watch));
        watch.into_iter().for_each(Wake::wake);
    }

    /// The next delivery, which is in flight until its outcome is reported, for example to
    /// [`Webhooks::delivered`] or [`Webhooks::failed`].
    pub fn next(&self, now: Now, wake: &Waker) -> NextPost {
        loop {
            let changed = self.changes.take(wake);
            let mut state = self.lock();
            state.note_changed(&changed, now);
            if let Some(slot) = state.schedule.next(now.mono_ms)
                && let Some(webhook) = state.schedule.get(slot)
            {
                let mut post = Box::new(webhook.post(slot));
                post.is_limited = state.schedule.is_limited(slot);
                post.may_challenge =
                    post.is_limited && state.schedule.may_challenge(slot, now.mono_ms);
                return NextPost::Post(post);
            }
            if changed.is_empty() {
                return state.schedule.due_ms().map_or(NextPost::Never, NextPost::At);
            }
        }
    }

    /// The tasks with webhooks.
    pub fn tasks(&self) -> Vec<u64> {
        self.lock().tasks.keys().copied().collect()
    }

    /// Whether a delivery is in flight, or may start before this time, in ms of the monotonic
    /// clock. Briefly false between two deliveries of a webhook.
    pub fn posts_before(&self, until_ms: u64) -> bool {
        let state = self.lock();
        let is_due = || state.schedule.due_ms().is_some_and(|due_ms| due_ms < until_ms);
        self.changes.has_noted() || state.schedule.posting() > 0 || is_due()
    }

    /// An evicted task that is retained for its undelivered events.
    pub fn retained_task(&self, task: u64) -> Option<Arc<Task>> {
        self.changes.left.get(task)
    }

    /// The number of webhooks, and their bytes.
    #[cfg(test)]
    fn counted(&self) -> (usize, usize) {
        let state = self.lock();
        (state.schedule.len().0, state.bytes())
    }
}

/// The id before 1.0 of a configuration without an id, from when a task had only one configuration.
pub const DEFAULT_ID: &[u8] = b"default";

impl PushState {
    /// Makes room for a configuration by removing its owner's dead letters with evicted tasks.
    fn make_room(&mut self, new: &NewWebhook<'_>) -> Result<(), PushRefused> {
        let (origin, bytes) = (new.url.origin(), Webhook::new(new).bytes());
        loop {
            match self.check(new, &origin, bytes) {
                Err(refused @ (PushRefused::TaskFull | PushRefused::TaskHostFull)) => {
                    return Err(refused);
                }
                Err(_) if self.free_dead(new.holder) => {}
                Err(PushRefused::Full) if self.forget_owners(new.holder) => {}
                done => return done,
            }
        }
    }

    /// Updates whether webhooks still need a task, and whether any of them is stopped.
    fn settle(&mut self, key: u64) {
        let Some(task) = self.tasks.get(&key) else { return };
        let (mut at, mut is_needed, mut has_letters) = (task.first, false, false);
        while let Some(slot) = at {
            is_needed |= self.schedule.is_busy(slot);
            has_letters |= self.schedule.is_stopped(slot);
            at = self.schedule.get(slot).and_then(Webhook::next);
        }
        task.watch.set_needed(is_needed);
        task.watch.set_letters(has_letters);
    }

    fn note_changed(&mut self, changed: &[u64], now: Now) {
        for key in changed {
            let Some(task) = self.tasks.get(key) else { continue };
            // Before the task is read, so that later changes are listed again.
            task.watch.look();
            if task.watch.left().is_some() {
                self.end_evicted(*key, now.unix_ms);
                continue;
            }
            let mut at = task.first;
            while let Some(slot) = at {
                self.schedule.note(slot, now.mono_ms);
                at = self.schedule.get(slot).and_then(Webhook::next);
            }
            self.settle(*key);
        }
        // The events of tasks that were dropped meanwhile cannot be posted.
        for key in self.changes.left.take_dropped() {
            self.end_evicted(key, now.unix_ms);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{
        model::PushConfigBuf,
        push::{HostRule, PushTargets},
    };

    pub const BOUNDS: PushBounds = PushBounds {
        per_task: 3,
        per_task_host: 3,
        per_owner: 5,
        per_host: 7,
        bytes_max: 10_000,
        dead_max: 3,
        dead_bytes_max: 1 << 20,
    };

    pub fn webhooks() -> Webhooks {
        Webhooks::new(BOUNDS, Pace::default())
    }

    /// The holder of an owner; 0: an anonymous caller on a server without authentication.
    pub fn holder(owner: u32) -> Holder {
        if owner == 0 { Holder::default() } else { Holder::owner(owner) }
    }

    /// Sets a configuration of an owner.
    pub fn set(
        webhooks: &Webhooks,
        task: u64,
        owner: u32,
        id: &str,
        url: &str,
    ) -> Result<Arc<TaskWatch>, PushRefused> {
        set_for(webhooks, task, holder(owner), id, url, "k")
    }

    /// As `set`, for a holder.
    fn set_for(
        webhooks: &Webhooks,
        task: u64,
        holder: Holder,
        id: &str,
        url: &str,
        token: &str,
    ) -> Result<Arc<TaskWatch>, PushRefused> {
        let allow: Vec<HostRule> = vec!["localhost".parse().unwrap()];
        let url_read = PushTargets { allow, ..PushTargets::default() }.read(url).unwrap();
        let config = PushConfigBuf::new(url).id("ignored").task_id("ignored").token(token);
        webhooks.set(&NewWebhook {
            task,
            task_id: format!("t{task}").as_bytes(),
            owner: None,
            holder,
            id: id.as_bytes(),
            config: config.view(),
            url: &url_read,
            form: PushForm::StreamResponse,
            start: PushStart { seq: 1, snapshot: false },
        })
    }

    /// Calls `with` with a configuration of a task.
    pub fn new_webhook<R>(task: u64, url: &str, with: impl FnOnce(&NewWebhook<'_>) -> R) -> R {
        let config = PushConfigBuf::new(url);
        with(&NewWebhook {
            task,
            task_id: b"t",
            owner: None,
            holder: holder(0),
            id: b"a",
            config: config.view(),
            url: &PushTargets::default().read(url).unwrap(),
            form: PushForm::StreamResponse,
            start: PushStart { seq: 1, snapshot: false },
        })
    }

    fn ids(webhooks: &Webhooks, task: u64) -> Vec<String> {
        let mut ids = Vec::new();
        let page =
            webhooks.list(task, None, 100, |config| ids.push(config.id().unwrap().to_string()));
        assert_eq!(page, Ok(None));
        ids
    }

    pub fn at(mono_ms: u64) -> Now {
        Now { mono_ms, unix_ms: 1_000_000 + mono_ms }
    }

    pub fn next(webhooks: &Webhooks, now_ms: u64) -> Option<Box<Post>> {
        match webhooks.next(at(now_ms), Waker::noop()) {
            NextPost::Post(post) => Some(post),
            NextPost::At(_) | NextPost::Never => None,
        }
    }

    #[test]
    fn webhooks_of_a_task_are_listed_replaced_and_deleted() {
        let webhooks = webhooks();
        for id in ["a", "b", "c"] {
            set(&webhooks, 7, 0, id, "https://h.example/").unwrap();
        }
        set(&webhooks, 8, 0, "a", "https://h.example/").unwrap();
        assert_eq!(ids(&webhooks, 7), ["a", "b", "c"]);
        assert_eq!(
            set(&webhooks, 7, 0, "d", "https://h.example/").err(),
            Some(PushRefused::TaskFull)
        );
        // A replaced webhook becomes the newest.
        set(&webhooks, 7, 0, "a", "https://other.example/x").unwrap();
        assert_eq!(ids(&webhooks, 7), ["b", "c", "a"]);
        let mut url = String::new();
        assert!(webhooks.get(7, Some(b"a"), |config| {
            url = config.url().to_string();
            assert!(config.task_id().is_none() && config.token().is_some());
        }));
        assert_eq!(url, "https://other.example/x");
        let mut page = Vec::new();
        let token = webhooks.list(7, None, 2, |config| page.push(config.id().unwrap().to_string()));
        let token = token.unwrap().unwrap();
        let rest = webhooks.list(7, Some(token), 2, |config| {
            page.push(config.id().unwrap().to_string());
        });
        assert_eq!((page.join(""), rest), ("bca".to_owned(), Ok(None)));
        assert_eq!(webhooks.list(8, Some(token), 2, |_| ()), Err(NoPage));
        assert_eq!(WebhookSlot::of_token(&token.token()), Some(token));
        assert!(webhooks.delete(7, Some(b"c")) && !webhooks.delete(7, Some(b"c")));
        assert_eq!(ids(&webhooks, 7), ["b", "a"]);
        webhooks.delete_all(7);
        assert!(!webhooks.delete(7, None));
        assert_eq!((ids(&webhooks, 7).len(), ids(&webhooks, 8).len()), (0, 1));
        assert!(webhooks.delete(8, Some(b"a")));
        assert_eq!(webhooks.counted(), (0, 0));
        let state = webhooks.lock();
        assert!(
            state.tasks.is_empty()
                && state.counted.by_holder.is_empty()
                && state.schedule.len() == (0, 0)
        );
    }

    #[test]
    fn get_without_an_id_returns_the_default_or_the_first() {
        let webhooks = webhooks();
        assert!(!webhooks.get(7, None, |_| panic!("there is none")));
        set(&webhooks, 7, 0, "a", "https://h.example/a").unwrap();
        let shown = |webhooks: &Webhooks| {
            let mut id = String::new();
            assert!(webhooks.get(7, None, |config| id = config.id().unwrap().to_string()));
            id
        };
        assert_eq!(shown(&webhooks), "a");
        set(&webhooks, 7, 0, "default", "https://h.example/b").unwrap();
        assert_eq!(shown(&webhooks), "default");
    }

    #[test]
    fn webhook_beyond_a_limit_is_refused_without_changes() {
        let webhooks = webhooks();
        for task in 0..5 {
            set(&webhooks, task, 3, "a", "https://h.example/").unwrap();
        }
        assert_eq!(
            set(&webhooks, 9, 3, "a", "https://h.example/").err(),
            Some(PushRefused::OwnerFull)
        );
        set(&webhooks, 4, 3, "a", "https://h.example/longer").unwrap();
        set(&webhooks, 9, 4, "a", "https://h.example/").unwrap();
        let before = webhooks.counted();
        assert_eq!(before.0, 6);
        // The limit on the bytes of an owner, and of an anonymous caller.
        let refused = |task, owner, id, bytes| {
            let (url, token) = ("https://h.example/", "x".repeat(bytes));
            let refused = set_for(&webhooks, task, holder(owner), id, url, &token).err();
            assert_eq!(webhooks.counted(), before);
            refused
        };
        assert_eq!(refused(9, 4, "b", 2_300), Some(PushRefused::OwnerBytesFull));
        assert_eq!(refused(9, 4, "a", 2_300), Some(PushRefused::OwnerBytesFull));
        assert_eq!(refused(8, 0, "a", 4_800), Some(PushRefused::OwnerBytesFull));
        assert_eq!(ids(&webhooks, 9), ["a"]);
        // The limit per host covers all ports; a replacement needs no further slot.
        set(&webhooks, 8, 0, "a", "https://h.example:8443/").unwrap();
        let full = set(&webhooks, 8, 0, "b", "https://H.example:9443/").err();
        assert_eq!(full, Some(PushRefused::HostFull));
        set(&webhooks, 8, 0, "a", "https://h.example:9443/").unwrap();
        set(&webhooks, 8, 0, "b", "https://other.example/").unwrap();
    }

    #[test]
    fn anonymous_callers_hold_half_the_bytes_and_each_a_quarter() {
        let bounds = PushBounds { bytes_max: 40_000, ..BOUNDS };
        let webhooks = Webhooks::new(bounds, Pace::default());
        let anonymous = |last: u8| Holder::peer(Some([192, 0, 2, last].into()), true);
        // Each configuration has more than a fifth and less than a third of a quarter.
        let set = |task, holder| {
            let url = format!("https://h{task}.example/");
            set_for(&webhooks, task, holder, "a", &url, &"x".repeat(1_500)).err()
        };
        let mut task = 0;
        let mut fill = |holder| {
            let refused = loop {
                task += 1;
                if let Some(refused) = set(task, holder) {
                    break refused;
                }
            };
            (refused, webhooks.lock().counted.of(holder).configs)
        };
        let refused = PushRefused::OwnerBytesFull;
        assert_eq!(
            [1, 2, 3].map(|last| fill(anonymous(last))),
            [(refused, 3), (refused, 3), (refused, 1)]
        );
        assert_eq!(fill(Holder::owner(1)), (refused, 3));
        // A replacement by an anonymous caller is not counted twice.
        assert_eq!(set(1, anonymous(1)), None);
        (1..=task).for_each(|task| webhooks.delete_all(task));
        let state = webhooks.lock();
        assert_eq!((state.anonymous_bytes(), state.bytes()), (0, 0));
    }

    #[test]
    fn total_webhook_bytes_are_bounded() {
        let webhooks = webhooks();
        let set = |task, owner, bytes| {
            let (url, token) = ("https://h.example/", "x".repeat(bytes));
            set_for(&webhooks, task, holder(owner), "a", url, &token).err()
        };
        let sizes = [(0, 3_000), (1, 1_700), (2, 1_700), (3, 1_700)];
        let refused = sizes.map(|(owner, bytes)| set(u64::from(owner), owner, bytes));
        assert_eq!(refused, [None, None, None, Some(PushRefused::Full)]);
    }

    #[test]
    fn origin_bytes_are_charged_to_its_first_owner() {
        let bounds = PushBounds { bytes_max: 10_600, ..BOUNDS };
        let webhooks = Webhooks::new(bounds, Pace::default());
        let set = |task, owner, host: &str| {
            set(&webhooks, task, owner, "a", &format!("https://{host}.example/")).err()
        };
        assert_eq!((set(1, 3, "one"), set(2, 3, "two")), (None, None));
        let before = webhooks.counted();
        assert_eq!(set(3, 3, "three"), Some(PushRefused::OwnerBytesFull));
        assert_eq!(webhooks.counted(), before);
        assert_eq!(set(3, 4, "three"), None);
        // An origin that another owner has registered is charged to that owner.
        assert_eq!(set(4, 3, "three"), None);
        // The charge lasts as long as a webhook uses the origin.
        assert_eq!(set(5, 4, "two"), None);
        for task in 1..5 {
            webhooks.delete_all(task);
        }
        assert_ne!(webhooks.lock().schedule.origin_bytes_of(Holder::owner(3)), 0);
        webhooks.delete_all(5);
        let state = webhooks.lock();
        assert_eq!((state.schedule.origin_bytes_of(Holder::owner(3)), state.bytes()), (0, 0));
    }

    #[test]
    fn changed_task_is_listed_once_until_examined() {
        #[derive(Default)]
        struct Counter(AtomicUsize);
        impl Wake for Counter {
            fn wake(self: Arc<Counter>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (webhooks, counter) = (webhooks(), Arc::new(Counter::default()));
        let webhook_worker = Waker::from(Arc::clone(&counter));
        let changed = set(&webhooks, 7, 0, "a", "https://h.example/").unwrap();
        set(&webhooks, 7, 0, "b", "https://i.example/").unwrap();
        assert!(matches!(webhooks.next(at(0), &webhook_worker), NextPost::Never));
        for _ in 0..100 {
            changed.wake_by_ref();
        }
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
        assert_eq!(webhooks.changes.noted(), 1);
        let posts = [next(&webhooks, 0).unwrap(), next(&webhooks, 0).unwrap()];
        assert!(next(&webhooks, 0).is_none());
        assert_eq!(posts[0].start, PushStart { seq: 1, snapshot: false });
        webhooks.delivered(posts[0].slot, 5, at(1), false);
        changed.wake_by_ref();
        let again = next(&webhooks, 1).unwrap();
        assert_eq!((again.slot, again.start.seq), (posts[0].slot, 5));
        // The other delivery is in flight; its webhook has new events when the delivery ends.
        assert!(next(&webhooks, 1).is_none());
        webhooks.delivered(posts[1].slot, 3, at(1), false);
        assert_eq!(next(&webhooks, 1).unwrap().start.seq, 3);
    }

    #[test]
    fn delivery_keeps_its_config_and_ignores_a_deleted_webhook() {
        let webhooks = webhooks();
        let changed = set(&webhooks, 7, 0, "a", "http://LOCALHOST:8080/x").unwrap();
        changed.wake_by_ref();
        let post = next(&webhooks, 0).unwrap();
        assert_eq!(post.url.as_deref(), Some("http://localhost:8080/x"));
        assert_eq!(PushConfig(&post.config).url().to_string(), "http://LOCALHOST:8080/x");
        set(&webhooks, 7, 0, "a", "http://localhost:8080/y").unwrap();
        webhooks.delivered(post.slot, 9, at(0), true);
        webhooks.note(7);
        let post = next(&webhooks, 0).unwrap();
        assert_eq!((post.url, post.start.seq), (None, 1));
        webhooks.gone(post.slot, at(0));
        webhooks.note(7);
        assert!(next(&webhooks, 0).is_none() && ids(&webhooks, 7).is_empty());
        changed.wake();
        assert!(next(&webhooks, 0).is_none());
    }

    #[test]
    fn delivery_ends_even_if_its_webhook_was_deleted() {
        let webhooks = webhooks();
        let posting = || webhooks.stats(0).in_flight;
        for round in 0..3 {
            set(&webhooks, 7, 3, "a", "https://h.example/").unwrap();
            webhooks.note(7);
            let post = next(&webhooks, 0).unwrap();
            assert_eq!(posting(), 1);
            if round > 0 {
                webhooks.delete_all(7);
            }
            match round {
                2 => webhooks.task_left(post.slot, at(0)),
                _ => drop(webhooks.gone(post.slot, at(0))),
            }
            assert_eq!((posting(), webhooks.counted()), (0, (0, 0)));
        }
        assert_eq!(webhooks.lock().schedule.len(), (0, 0));
    }

    #[test]
    fn configuration_fits_its_counted_bytes() {
        // The entry and its queue position; the entries of its task and its holder in maps, which
        // are partly empty; and its waker.
        let entry = Schedule::<Webhook>::ENTRY_BYTES + 2 * size_of::<WebhookSlot>();
        let task = (size_of::<(u64, TaskWebhooks)>() + 1) * 7 / 4 + size_of::<TaskWatch>() + 16;
        let holder = (size_of::<(Holder, quotas::HolderCount)>() + 1) * 7 / 4;
        assert!(entry + task + holder <= CONFIG_BYTES, "{entry} {task} {holder}");
    }
}
