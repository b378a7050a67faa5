//! The limits of a caller's running tasks: their number and their bytes.
//!
//! Invariant: bytes are charged atomically before a task holds them, so concurrent threads cannot
//! exceed the limit; the store of the task releases them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{CallerAccount, Quota, take_one};

/// The limits of a caller's running tasks.
#[derive(Clone, Debug)]
pub struct RunningShare {
    /// The maximum number of tasks at the called agent, including a task that is being created,
    /// without tasks that wait for their client. The store counts the tasks of an owner.
    pub most: u32,
    /// The maximum number of tasks over all agents.
    pub own_most: u32,
    /// No task starts while running tasks hold this many KiB: less than `kib_max` if the agent has
    /// a smaller quota.
    pub begin_kib_max: u32,
    /// The limit on the bytes of all running tasks, in KiB.
    pub kib_max: u32,
    /// The account of a caller without an owner, which counts its tasks.
    pub(crate) account: Option<Arc<CallerAccount>>,
    /// The account of the tenant's tasks, and their limit.
    pub(crate) tenant: Option<Box<TenantPermits>>,
}

/// Permits of running tasks that all callers of a tenant share.
#[derive(Clone, Debug)]
pub(crate) struct TenantPermits {
    pub account: Arc<CallerAccount>,
    /// The maximum number of running tasks.
    pub most: u32,
}

impl RunningShare {
    /// Unlimited, in tasks and in KiB.
    pub const ANY: u32 = u32::MAX;

    /// A limit on the number of tasks of an owner, without a limit on their bytes.
    pub const fn of_owner(most: u32) -> RunningShare {
        let (begin_kib_max, kib_max) = (RunningShare::ANY, RunningShare::ANY);
        RunningShare { most, own_most: most, begin_kib_max, kib_max, account: None, tenant: None }
    }

    /// A permit among the tenant's running tasks, if they are limited.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn tenant_permit(&self) -> Result<Option<Box<RunningPermit>>, u32> {
        let Some(TenantPermits { account, most }) = self.tenant.as_deref() else { return Ok(None) };
        let permit = RunningPermit::take(account, &RunningShare::of_owner(*most));
        permit.map(|permit| Some(Box::new(permit))).ok_or(*most)
    }
}

/// Bytes of the unfinished tasks of one caller, or of its calls that an agent answers later.
#[derive(Debug, Default)]
pub struct RunningBytes(AtomicU64);

impl RunningBytes {
    /// Charges bytes; false: the sum would exceed `kib_max` KiB.
    pub fn take(&self, bytes: usize, kib_max: u32) -> bool {
        let most = bytes_of(kib_max);
        let more = |held: u64| held.checked_add(bytes as u64).filter(|held| *held <= most);
        self.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Whether less than `kib_max` KiB are charged.
    pub fn has_room(&self, kib_max: u32) -> bool {
        self.count() < bytes_of(kib_max)
    }

    /// Releases bytes.
    pub fn give_back(&self, bytes: usize) {
        let before = self.0.fetch_sub(bytes as u64, Relaxed);
        debug_assert!(before >= bytes as u64, "{bytes} of {before} charged bytes are released");
    }

    /// The number of charged bytes.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

fn bytes_of(kib_max: u32) -> u64 {
    if kib_max == RunningShare::ANY { u64::MAX } else { u64::from(kib_max) * 1024 }
}

/// A permit for a running task of a caller without an owner; returned on drop and while parked.
#[derive(Debug)]
pub struct RunningPermit {
    account: Arc<CallerAccount>,
    /// See [`RunningShare::most`].
    most: u32,
    /// See [`RunningShare::kib_max`].
    kib_max: u32,
    /// True: the permit is returned, because its task waits for the client.
    is_parked: bool,
}

impl RunningPermit {
    /// Takes a permit of a share on this account; `None`: no permit is free.
    pub fn take(account: &Arc<CallerAccount>, share: &RunningShare) -> Option<RunningPermit> {
        let RunningShare { most, kib_max, .. } = *share;
        let (account, is_parked) = (Arc::clone(account), false);
        take_one(&account.running, most).then(|| RunningPermit {
            account,
            most,
            kib_max,
            is_parked,
        })
    }

    /// Returns the permit while its task waits.
    pub fn park(&mut self) {
        if !std::mem::replace(&mut self.is_parked, true) {
            self.account.running.fetch_sub(1, Relaxed);
        }
    }

    /// Takes the permit again; `Err`: the limit that is reached.
    pub fn unpark(&mut self) -> Result<(), u32> {
        if self.is_parked && !take_one(&self.account.running, self.most) {
            return Err(self.most);
        }
        self.is_parked = false;
        Ok(())
    }

    /// The account on which the permit counts.
    pub fn account(&self) -> &Arc<CallerAccount> {
        &self.account
    }

    /// The bytes of the caller's tasks, and their limit in KiB.
    pub fn bytes(&self) -> (&RunningBytes, u32) {
        (&self.account.running_bytes, self.kib_max)
    }
}

impl Drop for RunningPermit {
    fn drop(&mut self) {
        self.park();
    }
}

/// A permit for a call for which an agent looks up a task or decides on a cancel, and the bytes of
/// the call. Dropping it returns both.
#[derive(Debug)]
pub struct CallerDeferredPermit {
    account: Arc<CallerAccount>,
    bytes: usize,
}

impl CallerDeferredPermit {
    /// Takes a permit of a share on this account, without bytes; `None`: no permit is free.
    pub fn take(
        account: &Arc<CallerAccount>,
        share: &RunningShare,
    ) -> Option<CallerDeferredPermit> {
        let take = || CallerDeferredPermit { account: Arc::clone(account), bytes: 0 };
        take_one(&account.deferred, share.most).then(take)
    }

    /// The same permit with `bytes`; `None`: the share has too few bytes left.
    pub fn with_bytes(
        mut self,
        bytes: usize,
        share: &RunningShare,
    ) -> Option<CallerDeferredPermit> {
        let is_acquired = self.account.deferred_bytes.take(bytes, share.kib_max);
        is_acquired.then(|| {
            self.bytes += bytes;
            self
        })
    }
}

impl Drop for CallerDeferredPermit {
    fn drop(&mut self) {
        self.account.deferred_bytes.give_back(self.bytes);
        self.account.deferred.fetch_sub(1, Relaxed);
    }
}

impl Quota {
    /// The limits of running tasks for a caller with this quota. `here`: this quota combined with
    /// that of the agent by [`Quota::permits_of`]. `None`: unlimited.
    pub(crate) fn running(&self, here: &Quota) -> Option<RunningShare> {
        if here.running_tasks.is_none() && here.running_kib.is_none() {
            return None;
        }
        let or_any = |most: Option<u32>| most.unwrap_or(RunningShare::ANY);
        Some(RunningShare {
            most: or_any(here.running_tasks),
            own_most: or_any(self.running_tasks),
            begin_kib_max: or_any(here.running_kib),
            kib_max: or_any(self.running_kib),
            account: None,
            tenant: None,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_threads_cannot_exceed_the_byte_limit() {
        let (bytes, acquired) = (RunningBytes::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (bytes, acquired) = (&bytes, &acquired);
                scope.spawn(move || {
                    for round in 0..1_000 {
                        if bytes.take(40 + thread, 10) {
                            assert!(bytes.count() <= 10 * 1024);
                            match round % 5 {
                                0 => drop(acquired.fetch_add(40 + thread as u64, Relaxed)),
                                _ => bytes.give_back(40 + thread),
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(bytes.count(), acquired.into_inner());
        let remaining = usize::try_from(10 * 1024 - bytes.count()).unwrap();
        assert!(!bytes.take(remaining + 1, 10) && bytes.take(remaining, 10));
        assert!(!bytes.has_room(10) && bytes.has_room(11) && bytes.take(0, 10));
        // A caller without a limit may hold more than 10 KiB.
        assert!(bytes.take(1 << 40, RunningShare::ANY) && bytes.has_room(RunningShare::ANY));
    }

    #[test]
    fn running_share_combines_caller_and_agent_limits() {
        let own = Quota { running_tasks: Some(9), running_kib: Some(50), ..Quota::default() };
        let few = Quota { running_tasks: Some(2), running_kib: Some(70), ..Quota::default() };
        let share = |own: Quota, few| {
            let share = own.running(&own.permits_of(few))?;
            Some((share.most, share.begin_kib_max, share.kib_max))
        };
        let any = RunningShare::ANY;
        assert_eq!(share(own, few), Some((2, 50, 50)));
        assert_eq!(share(few, Quota { running_kib: Some(3), ..few }), Some((2, 3, 70)));
        assert_eq!(share(Quota::default(), few), Some((2, 70, any)));
        let bytes = Quota { running_kib: Some(3), ..Quota::default() };
        assert_eq!(share(bytes, Quota::default()), Some((any, 3, 3)));
        assert_eq!(share(Quota::default(), Quota::default()), None);
    }
}
