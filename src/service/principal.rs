//! An authenticated caller: its name and its issuer, its tenants and its scopes.
//!
//! Invariant: an owner is (kind, issuer, name), never the name alone; no two of those have one
//! [`Principal::owner`].

use std::{fmt::Write, sync::Arc};

use super::scope::NumberHint;

/// What a caller has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// A key in a header field of its own.
    ApiKey,
    /// A bearer token that the configuration knows.
    Bearer,
    /// A bearer token that an issuer has signed.
    Jwt,
    /// A certificate of TLS.
    Certificate,
    /// The word of a trusted proxy.
    Proxy,
}

impl CredentialKind {
    /// All of them.
    pub const ALL: [CredentialKind; 5] = [
        CredentialKind::ApiKey,
        CredentialKind::Bearer,
        CredentialKind::Jwt,
        CredentialKind::Certificate,
        CredentialKind::Proxy,
    ];

    /// Its name in owners, logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            CredentialKind::ApiKey => "key",
            CredentialKind::Bearer => "bearer",
            CredentialKind::Jwt => "jwt",
            CredentialKind::Certificate => "certificate",
            CredentialKind::Proxy => "proxy",
        }
    }
}

/// Which spaces of tasks a principal may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantGrant {
    /// None: its calls are in no tenant.
    #[default]
    None,
    /// Any that the server lets be named.
    Any,
    /// These; the first is meant by a call that names none.
    Named(Vec<Box<str>>),
}

impl TenantGrant {
    /// Whether it may name this one.
    pub fn allows(&self, tenant: &str) -> bool {
        match self {
            TenantGrant::None => false,
            TenantGrant::Any => true,
            TenantGrant::Named(names) => names.iter().any(|name| &**name == tenant),
        }
    }

    /// The one that is meant by a call that names none.
    pub fn home(&self) -> Option<&str> {
        match self {
            TenantGrant::None | TenantGrant::Any => None,
            TenantGrant::Named(names) => names.first().map(|name| &**name),
        }
    }
}

/// What a principal may do, by names that servers and agents ask for (RFC 6749 §3.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeSet(Box<[Arc<str>]>);

/// The scopes that the agents of a service and their skills ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopesAskedFor {
    /// Grows with each change.
    pub number: u64,
    /// Their names, and those of the server itself.
    pub names: ScopeSet,
    /// True: an agent reads all scopes of its callers, so none may be left out.
    pub all: bool,
}

impl ScopeSet {
    /// To read tasks: get, list, subscribe, the extended card.
    pub const READ: &'static str = "a2a:read";
    /// To send messages.
    pub const SEND: &'static str = "a2a:send";
    /// To cancel tasks.
    pub const CANCEL: &'static str = "a2a:cancel";
    /// To run the server.
    pub const ADMIN: &'static str = "a2a:admin";

    /// These, in any order; one that is said twice counts once.
    pub fn new(names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> ScopeSet {
        let mut names: Vec<Arc<str>> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        ScopeSet(names.into())
    }

    /// The scopes that are also in `names`, whose texts the result shares.
    pub(crate) fn retained(&self, names: &ScopeSet) -> ScopeSet {
        ScopeSet(names.0.iter().filter(|name| self.has(name)).map(Arc::clone).collect())
    }

    /// Bytes behind pointers; `shared`: the texts are shared.
    fn held_bytes(&self, is_shared: bool) -> usize {
        let texts = self.0.iter().filter(|_| !is_shared).map(|name| allocation(16 + name.len()));
        allocation(size_of_val(&*self.0)) + texts.sum::<usize>()
    }

    /// Whether this one is among them.
    pub fn has(&self, name: &str) -> bool {
        self.0.binary_search_by(|known| (**known).cmp(name)).is_ok()
    }

    /// All of them, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

/// What a principal is made of.
#[derive(Clone, Debug)]
pub struct PrincipalBuf {
    /// How it has authenticated.
    pub kind: CredentialKind,
    /// The issuer of the name: `iss` of a JWT; empty where that is the configuration.
    pub issuer: String,
    /// Its name: `sub` of a JWT, the name of a key.
    pub name: String,
    /// The tenants that it may name.
    pub tenants: TenantGrant,
    /// What it may do.
    pub scopes: ScopeSet,
    /// The name of the quota that holds for it; `None`: the default's.
    pub quota: Option<String>,
}

/// A caller that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    kind: CredentialKind,
    issuer: Box<str>,
    name: Box<str>,
    owner: Box<str>,
    owner_hint: NumberHint,
    tenants: TenantGrant,
    scopes: ScopeSet,
    quota: Option<Box<str>>,
}

impl Principal {
    /// A principal of this name.
    pub fn new(of: PrincipalBuf) -> Principal {
        let PrincipalBuf { kind, issuer, name, tenants, scopes, quota } = of;
        Principal {
            kind,
            owner: owner(kind, &issuer, &name).into(),
            owner_hint: NumberHint::default(),
            issuer: issuer.into(),
            name: name.into(),
            tenants,
            scopes,
            quota: quota.map(Into::into),
        }
    }

    /// How it has authenticated.
    pub fn kind(&self) -> CredentialKind {
        self.kind
    }

    /// The issuer of the name; empty: the configuration.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The same with those of its scopes that are in `names`.
    pub(crate) fn with_scopes_in(mut self, names: &ScopeSet) -> Principal {
        self.scopes = self.scopes.retained(names);
        self
    }

    /// Bytes that it holds, as an allocator rounds them; `are_shared`: of its scopes only pointers.
    pub(crate) fn held_bytes(&self, are_shared: bool) -> usize {
        let tenants = match &self.tenants {
            TenantGrant::None | TenantGrant::Any => 0,
            TenantGrant::Named(names) => {
                let texts = names.iter().map(|name| allocation(name.len())).sum::<usize>();
                allocation(names.capacity() * size_of::<Box<str>>()) + texts
            }
        };
        let texts = [&self.issuer, &self.name, &self.owner].map(|text| allocation(text.len()));
        let quota = self.quota.as_ref().map_or(0, |quota| allocation(quota.len()));
        let own = allocation(size_of::<Principal>() + 16);
        own + texts.iter().sum::<usize>() + quota + tenants + self.scopes.held_bytes(are_shared)
    }

    /// Its name, which is one's own only beside the kind and the issuer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name under which its tasks are stored: no other principal has it.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Which number a service has given [`Principal::owner`], if that is the owner of a call.
    pub(crate) fn hint_of(&self, owner: &str) -> Option<&NumberHint> {
        std::ptr::eq(owner, &*self.owner).then_some(&self.owner_hint)
    }

    /// The tenants that it may name.
    pub fn tenants(&self) -> &TenantGrant {
        &self.tenants
    }

    /// What it may do.
    pub fn scopes(&self) -> &ScopeSet {
        &self.scopes
    }

    /// The name of its quota.
    pub fn quota(&self) -> Option<&str> {
        self.quota.as_deref()
    }
}

/// Bytes that an allocation of so many takes: 8 of the allocator's, in steps of 16, at least 32.
fn allocation(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

/// The kind, the issuer and the name that an owner was made of; `None`: it is no principal's.
#[cfg(any(feature = "auth", test))]
pub(crate) fn read_owner(owner: &str) -> Option<(CredentialKind, String, &str)> {
    let (word, rest) = owner.split_once(' ')?;
    let kind = CredentialKind::ALL.into_iter().find(|kind| kind.word() == word)?;
    let (issuer, name) = rest.split_once(' ')?;
    Some((kind, issuer.replace("%20", " ").replace("%25", "%"), name))
}

/// `kind issuer name`: the kind is a word, and no blank is left in the issuer.
fn owner(kind: CredentialKind, issuer: &str, name: &str) -> String {
    let mut owner = format!("{} ", kind.word());
    for c in issuer.chars() {
        match c {
            ' ' | '%' => _ = write!(owner, "%{:02X}", u32::from(c)),
            _ => owner.push(c),
        }
    }
    owner.push(' ');
    owner.push_str(name);
    owner
}

/// Whether an operator means this owner by `wanted`: all of it, or the principal's name alone.
#[cfg(feature = "net")]
pub(crate) fn is_owner_named(owner: &str, wanted: &str) -> bool {
    owner == wanted || owner.splitn(3, ' ').nth(2) == Some(wanted)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_principals_have_one_owner() {
        let texts = ["", " ", "a", "a b", "%20", "b", "a%20b", "key", "jwt a"];
        let mut owners = HashSet::new();
        for kind in CredentialKind::ALL {
            for issuer in texts {
                for name in texts {
                    let owner = owner(kind, issuer, name);
                    assert_eq!(read_owner(&owner), Some((kind, issuer.to_owned(), name)));
                    assert!(owners.insert(owner), "{issuer:?} {name:?}");
                }
            }
        }
    }

    #[test]
    fn a_scope_is_had_by_its_whole_name() {
        let scopes = ScopeSet::new(["b", "a2a:read", "a2a:read", "a2a:reader"]);
        assert!(scopes.has(ScopeSet::READ) && scopes.has("b") && !scopes.has("a2a:rea"));
        assert_eq!(scopes.names().collect::<Vec<_>>(), ["a2a:read", "a2a:reader", "b"]);
    }

    #[test]
    fn a_tenant_is_named_by_whoever_may() {
        let named = TenantGrant::Named(vec!["a".into(), "b".into()]);
        assert!(named.allows("b") && !named.allows("c") && named.home() == Some("a"));
        assert!(TenantGrant::Any.allows("c") && TenantGrant::Any.home().is_none());
        assert!(!TenantGrant::None.allows("a"));
    }
}
