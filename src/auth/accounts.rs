//! The accounts of callers, by owner name or by address, and the quotas.

use std::{
    collections::BTreeMap,
    hash::Hasher,
    net::{IpAddr, Ipv6Addr},
    ops::Deref,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crossbeam_utils::sync::ShardedLock;
use siphasher::sip128::{Hasher128, SipHasher24};

use super::{CredentialSource, Network, peer_bits, table::FixedTable};
use crate::service::{
    Caller, CallerShares, Now, RunningShare, SharedByCalls,
    quota::{CallerAccount, Quota, Quotas},
};

/// Domain separation: the hash of an owner differs from the hash of an address.
const OF_OWNER: u8 = 1;
const OF_ADDRESS: u8 = 2;
#[cfg(feature = "grpc")]
const OF_SERVICES: u8 = 3;
const WITH_AGENT: u8 = 4;

/// The address of a caller with an unknown address.
pub(crate) const NOWHERE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// The accounts and quotas of a server. The quotas may be replaced at run time.
pub struct Accounts {
    table: FixedTable<Arc<CallerAccount>>,
    /// Sharded, because each call of an authenticated caller reads the quotas.
    quotas: ShardedLock<Quotas>,
    /// The share of each caller with a quota without limits.
    share: Quota,
    /// The account that all anonymous callers share.
    anonymous: Arc<CallerAccount>,
    /// For each tenant with a quota, the account that its callers share. The number of quotas
    /// bounds the number of these accounts, and other callers never evict them.
    tenants: ShardedLock<BTreeMap<String, Arc<CallerAccount>>>,
    /// False: no caller has a quota.
    have_quotas: AtomicBool,
    /// False: no quota has a rate.
    have_rates: AtomicBool,
    key: u128,
}

/// The key of an account.
#[derive(Clone, Copy, Debug)]
pub enum AccountOf<'c> {
    /// The account of an owner.
    Owner(&'c str),
    /// The account of the callers from an address.
    Address(IpAddr),
}

impl AccountOf<'_> {
    fn write(self, hasher: &mut SipHasher24) {
        match self {
            AccountOf::Owner(owner) => {
                hasher.write_u8(OF_OWNER);
                hasher.write(owner.as_bytes());
            }
            AccountOf::Address(address) => {
                hasher.write_u8(OF_ADDRESS);
                hasher.write_u128(peer_bits(address));
            }
        }
    }
}

impl Accounts {
    /// A table of `accounts_max` accounts; `share` applies to a caller with a quota without limits;
    /// `secret` must be used for nothing else.
    pub fn new(accounts_max: usize, quotas: Quotas, share: Quota, secret: u128) -> Accounts {
        let accounts = Accounts {
            table: FixedTable::new(accounts_max),
            quotas: ShardedLock::default(),
            share,
            anonymous: Arc::default(),
            tenants: ShardedLock::default(),
            have_quotas: AtomicBool::new(false),
            have_rates: AtomicBool::new(false),
            key: secret,
        };
        accounts.set_quotas(quotas);
        accounts
    }

    /// Whether any caller has a quota.
    #[inline]
    pub fn have_quotas(&self) -> bool {
        self.have_quotas.load(Ordering::Relaxed)
    }

    /// Whether any quota has a rate, so that each call is charged.
    #[inline]
    pub fn have_rates(&self) -> bool {
        self.have_rates.load(Ordering::Relaxed)
    }

    /// The current quotas.
    pub fn quotas(&self) -> impl Deref<Target = Quotas> + '_ {
        self.quotas.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the quotas; the accounts keep their earlier charges.
    pub fn set_quotas(&self, quotas: Quotas) {
        let quotas = quotas.or(self.share);
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        tenants.retain(|name, _| quotas.tenants.contains_key(name));
        for name in quotas.tenants.keys() {
            tenants.entry(name.clone()).or_default();
        }
        drop(tenants);
        self.have_rates.store(quotas.has_rate(), Ordering::Relaxed);
        self.have_quotas.store(quotas != Quotas::default(), Ordering::Relaxed);
        *self.quotas.write().unwrap_or_else(PoisonError::into_inner) = quotas;
    }

    /// The account of an owner.
    pub fn of_owner(&self, owner: &str, now: Now) -> Arc<CallerAccount> {
        self.of(now, |hasher| AccountOf::Owner(owner).write(hasher))
    }

    /// The account that all anonymous callers share, and their quota if callers are authenticated:
    /// half of each shared limit.
    pub(crate) fn of_strangers(&self) -> (&Arc<CallerAccount>, Quota) {
        (&self.anonymous, self.share.of_strangers())
    }

    /// The account that all callers of a tenant share, if the tenant has a quota.
    pub(crate) fn of_tenant(&self, name: &str) -> Option<Arc<CallerAccount>> {
        let tenants = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        tenants.get(name).map(Arc::clone)
    }

    /// The account of callers from an address.
    pub fn of_address(&self, address: IpAddr, now: Now) -> Arc<CallerAccount> {
        self.of(now, |hasher| AccountOf::Address(address).write(hasher))
    }

    /// The account of an address for health and reflection, which need no caller: their streams do
    /// not count as the caller's own.
    #[cfg(feature = "grpc")]
    pub(crate) fn of_services(&self, address: IpAddr, now: Now) -> Arc<CallerAccount> {
        self.of(now, |hasher| {
            hasher.write_u8(OF_SERVICES);
            hasher.write_u128(peer_bits(address));
        })
    }

    /// The account of an owner, or of an address, for an agent that has its own quota.
    pub fn with_agent(&self, caller: AccountOf<'_>, agent: u16, now: Now) -> Arc<CallerAccount> {
        self.of(now, |hasher| {
            hasher.write_u8(WITH_AGENT);
            hasher.write_u16(agent);
            caller.write(hasher);
        })
    }

    fn of(&self, now: Now, hash: impl FnOnce(&mut SipHasher24)) -> Arc<CallerAccount> {
        let mut hasher = SipHasher24::new_with_keys(self.key as u64, (self.key >> 64) as u64);
        hash(&mut hasher);
        let key = hasher.finish128().as_u128();
        self.table.change(
            key,
            Arc::default,
            |account| account.worth(now),
            |account| Arc::clone(account),
        )
    }
}

/// Looks up a caller's share if the call did not need the share before.
pub struct LateShares {
    /// The accounts.
    accounts: Arc<Accounts>,
    /// Proxies that are trusted to name their client in `X-Forwarded-For`.
    trusted_proxies: Vec<Network>,
}

impl LateShares {
    /// The state that calls of a server share, with these accounts and trusted proxies.
    pub fn for_calls(accounts: &Arc<Accounts>, trusted_proxies: &[Network]) -> SharedByCalls {
        let (accounts, trusted_proxies) = (Arc::clone(accounts), trusted_proxies.to_vec());
        let has_proxies = !trusted_proxies.is_empty();
        let shares = Some(Box::new(LateShares { accounts, trusted_proxies }) as _);
        SharedByCalls { shares, has_proxies, ..SharedByCalls::default() }
    }
}

impl CallerShares for LateShares {
    fn running(&self, caller: &Caller<'_>, now: Now) -> Option<RunningShare> {
        let quotas = self.accounts.quotas();
        let quota = match caller.principal {
            Some(principal) => quotas.of(principal.quota()),
            None => quotas.anonymous,
        };
        // Only the caller's own quota, not an agent's.
        let share = quota.running(&quota)?;
        let account = match caller.principal {
            Some(principal) => self.accounts.of_owner(principal.owner(), now),
            None => {
                let address = self.address(caller).unwrap_or(NOWHERE);
                self.accounts.of_address(address, now)
            }
        };
        Some(RunningShare { account: Some(account), ..share })
    }

    fn address(&self, caller: &Caller<'_>) -> Option<IpAddr> {
        if self.trusted_proxies.is_empty() {
            return caller.peer.remote;
        }
        let source = CredentialSource {
            fields: caller.fields,
            remote: caller.peer.remote,
            trusted_proxies: &self.trusted_proxies,
            ..CredentialSource::default()
        };
        caller.fields.address().or_else(|| source.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_and_network_has_its_account() {
        let accounts = Accounts::new(1, Quotas::default(), Quota::default(), 7);
        let now = Now::default();
        let address = |text: &str| text.parse::<IpAddr>();
        let [first, same, other] = ["2001:db8::1", "2001:db8::2", "2001:db8:1::1"]
            .map(|text| accounts.of_address(address(text).unwrap_or(IpAddr::from([0; 4])), now));
        assert!(Arc::ptr_eq(&first, &same) && !Arc::ptr_eq(&first, &other));
        let owner = accounts.of_owner("a", now);
        assert!(Arc::ptr_eq(&owner, &accounts.of_owner("a", now)));
        assert!(!Arc::ptr_eq(&owner, &accounts.of_owner("b", now)));
        let with = |owner, agent| accounts.with_agent(AccountOf::Owner(owner), agent, now);
        let first = with("a", 1);
        assert!(Arc::ptr_eq(&first, &with("a", 1)) && !Arc::ptr_eq(&first, &owner));
        assert!(!Arc::ptr_eq(&first, &with("a", 2)) && !Arc::ptr_eq(&first, &with("b", 1)));
    }
}
