//! The idle connections of a client, by origin.
//!
//! Invariants: an idle connection is only a socket and the start of its idle time. The most
//! recently used connection is used first, so unneeded connections grow old and are closed: by the
//! next request, or by one task that checks all connections and ends when none remain.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use crate::client::{ClientLimits, HttpOrigin};

use super::{due::ClientClock, http2::Http2Slot, link::Link};

/// An idle connection.
struct IdleLink {
    link: Link,
    since_ms: u64,
}

/// The cached state of one origin, and its idle connections.
pub(super) struct OriginPool {
    origin: HttpOrigin,
    idle: Mutex<Vec<IdleLink>>,
    /// The single HTTP/2 connection.
    pub(super) http2: Http2Slot,
}

/// All origins with cached state.
pub(super) struct Origins {
    pools: Mutex<OriginTable>,
    clock: ClientClock,
    per_origin_max: usize,
    origins_max: usize,
    idle_ms: u64,
}

#[derive(Default)]
struct OriginTable {
    by_origin: HashMap<HttpOrigin, Arc<OriginPool>>,
    /// The origin that was used last, which is usually also the next one.
    latest: Option<Arc<OriginPool>>,
    /// True: a task closes old connections.
    is_watched: bool,
}

/// Code under these locks does not panic halfway, so a poisoned lock may be used.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Origins {
    /// A pool without origins.
    pub(super) fn new(limits: &ClientLimits, clock: ClientClock) -> Origins {
        Origins {
            pools: Mutex::default(),
            clock,
            per_origin_max: limits.pool_per_origin_max,
            origins_max: limits.pool_origins_max.max(1),
            idle_ms: limits.pool_idle_ms,
        }
    }

    /// The state of an origin. Beyond the limit, unused origins are evicted.
    pub(super) fn of(&self, origin: &HttpOrigin) -> Arc<OriginPool> {
        let mut table = lock(&self.pools);
        if let Some(latest) = table.latest.as_ref().filter(|latest| latest.origin == *origin) {
            return Arc::clone(latest);
        }
        let pool = table.find_or_add(origin, self);
        table.latest = Some(Arc::clone(&pool));
        pool
    }

    /// An idle connection that its server has not closed. `may_be_proxy`: a connection to a proxy
    /// that expects absolute URLs is acceptable.
    pub(super) fn take(&self, pool: &OriginPool, may_be_proxy: bool) -> Option<Link> {
        let mut idle = lock(&pool.idle);
        loop {
            let IdleLink { mut link, since_ms } = idle.pop()?;
            if self.clock.now_ms().saturating_sub(since_ms) >= self.idle_ms {
                // The remaining connections are older.
                idle.clear();
                return None;
            }
            if !link.is_stale() && (may_be_proxy || !link.to_proxy) {
                return Some(link);
            }
        }
    }

    /// Stores a connection for the next request, or closes it if the pool of the origin is full.
    pub(super) fn keep(self: &Arc<Origins>, pool: &OriginPool, link: Link) {
        let mut idle = lock(&pool.idle);
        if idle.len() >= self.per_origin_max {
            return;
        }
        let is_first = idle.is_empty();
        idle.push(IdleLink { link, since_ms: self.clock.now_ms() });
        drop(idle);
        if is_first {
            self.watch();
        }
    }

    /// Starts the task that closes old connections.
    pub(super) fn watch(self: &Arc<Origins>) {
        let mut table = lock(&self.pools);
        // Outside of a runtime there is no timer, and the next request closes old connections.
        if !table.is_watched
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            table.is_watched = true;
            runtime.spawn(close_old(Arc::downgrade(self), self.idle_ms));
        }
    }

    /// Closes old connections; false: nothing remains to watch.
    fn close_old(&self) -> bool {
        let mut table = lock(&self.pools);
        table.latest = None;
        let (now_ms, mut is_any) = (self.clock.now_ms(), false);
        for pool in table.by_origin.values() {
            is_any |= pool.is_needed(now_ms, self.idle_ms);
        }
        table.is_watched = is_any;
        is_any
    }
}

impl OriginTable {
    /// The state of an origin; beyond the limit of origins, others are evicted.
    fn find_or_add(&mut self, origin: &HttpOrigin, origins: &Origins) -> Arc<OriginPool> {
        if let Some(pool) = self.by_origin.get(origin) {
            return Arc::clone(pool);
        }
        // Drops the reference to the latest origin, which no request uses.
        self.latest = None;
        if self.by_origin.len() >= origins.origins_max {
            let now_ms = origins.clock.now_ms();
            self.by_origin.retain(|_, pool| pool.is_needed(now_ms, origins.idle_ms));
        }
        if self.by_origin.len() >= origins.origins_max {
            // All origins have connections: evict one that no request uses.
            let unused = self.by_origin.iter().find(|(_, pool)| Arc::strong_count(pool) == 1);
            if let Some(unused) = unused.map(|(origin, _)| origin.clone()) {
                self.by_origin.remove(&unused);
            }
        }
        let (idle, http2) = (Mutex::default(), Http2Slot::default());
        let pool = Arc::new(OriginPool { origin: origin.clone(), idle, http2 });
        self.by_origin.insert(origin.clone(), Arc::clone(&pool));
        pool
    }
}

impl OriginPool {
    /// Closes connections that are old or that the server has closed; returns whether connections
    /// or requests remain.
    fn is_needed(self: &Arc<OriginPool>, now_ms: u64, idle_ms: u64) -> bool {
        let is_old = |since_ms: u64| now_ms.saturating_sub(since_ms) >= idle_ms;
        let mut idle = lock(&self.idle);
        idle.retain_mut(|entry| !is_old(entry.since_ms) && !entry.link.is_stale());
        let has_http2 = self.http2.close_old(now_ms, idle_ms);
        !idle.is_empty() || has_http2 || Arc::strong_count(self) > 1
    }
}

/// Closes idle connections when they are old, until none remain or the client is dropped.
async fn close_old(origins: Weak<Origins>, idle_ms: u64) {
    loop {
        tokio::time::sleep(Duration::from_millis((idle_ms / 4).clamp(10, 60_000))).await;
        match origins.upgrade() {
            Some(origins) if origins.close_old() => {}
            Some(_) | None => return,
        }
    }
}
