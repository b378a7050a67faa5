//! An authenticated caller: its name and its issuer, its tenants and its scopes.
//!
//! Invariant: an owner is (kind, issuer, name), never the name alone; no two different triples have
//! the same [`Principal::owner`].

use std::{fmt::Write, sync::Arc};

use super::scope::NumberHint;

/// The kind of a caller's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// A key in a header field (API key).
    ApiKey,
    /// A bearer token in the configuration.
    Bearer,
    /// A signed bearer token of an issuer.
    Jwt,
    /// A TLS client certificate.
    Certificate,
    /// The header fields of a trusted proxy.
    Proxy,
}

impl CredentialKind {
    /// All kinds.
    pub const ALL: [CredentialKind; 5] = [
        CredentialKind::ApiKey,
        CredentialKind::Bearer,
        CredentialKind::Jwt,
        CredentialKind::Certificate,
        CredentialKind::Proxy,
    ];

    /// The name of the kind in owners, logs and metrics.
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

/// The tenants that a principal's calls may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantGrant {
    /// No tenant may be named.
    #[default]
    None,
    /// Any tenant that the server allows.
    Any,
    /// These tenants; a call without a tenant gets the first.
    Named(Vec<Box<str>>),
}

impl TenantGrant {
    /// Whether a call may name this tenant.
    pub fn allows(&self, tenant: &str) -> bool {
        match self {
            TenantGrant::None => false,
            TenantGrant::Any => true,
            TenantGrant::Named(names) => names.iter().any(|name| &**name == tenant),
        }
    }

    /// The tenant of a call that does not name one.
    pub fn home(&self) -> Option<&str> {
        match self {
            TenantGrant::None | TenantGrant::Any => None,
            TenantGrant::Named(names) => names.first().map(|name| &**name),
        }
    }
}

/// The permissions of a principal, by names that servers and agents define (RFC 6749 §3.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeSet(Box<[Arc<str>]>);

/// The scopes that the agents of a service and their skills require.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredScopes {
    /// Grows with each change.
    pub number: u64,
    /// The names of the scopes, including the scopes that the server itself defines.
    pub names: ScopeSet,
    /// True: an agent reads all scopes of its callers, so no scope may be dropped.
    pub all: bool,
}

impl ScopeSet {
    /// To read tasks: get, list, subscribe, the extended card.
    pub const READ: &'static str = "a2a:read";
    /// To send messages.
    pub const SEND: &'static str = "a2a:send";
    /// To cancel tasks.
    pub const CANCEL: &'static str = "a2a:cancel";
    /// To administer the server.
    pub const ADMIN: &'static str = "a2a:admin";

    /// A set of these scopes, in any order; duplicates are dropped.
    pub fn new(names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> ScopeSet {
        let mut names: Vec<Arc<str>> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        ScopeSet(names.into())
    }

    /// The scopes that are also in `names`; the result shares the texts of `names`.
    pub(crate) fn retained(&self, names: &ScopeSet) -> ScopeSet {
        ScopeSet(names.0.iter().filter(|name| self.has(name)).map(Arc::clone).collect())
    }

    /// Bytes on the heap; `is_shared`: without the texts, which are shared.
    fn held_bytes(&self, is_shared: bool) -> usize {
        let texts = self.0.iter().filter(|_| !is_shared).map(|name| allocation(16 + name.len()));
        allocation(size_of_val(&*self.0)) + texts.sum::<usize>()
    }

    /// Whether the set contains this scope.
    pub fn has(&self, name: &str) -> bool {
        self.0.binary_search_by(|own| (**own).cmp(name)).is_ok()
    }

    /// All scopes, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

/// The fields of a principal.
#[derive(Clone, Debug)]
pub struct PrincipalBuf {
    /// The kind of the credential.
    pub kind: CredentialKind,
    /// The issuer of the name: `iss` of a JWT; empty for the configuration.
    pub issuer: String,
    /// The name: `sub` of a JWT, or the name of a key.
    pub name: String,
    /// The tenants that calls of the principal may name.
    pub tenants: TenantGrant,
    /// The scopes of the principal.
    pub scopes: ScopeSet,
    /// The name of the quota; `None`: the default quota.
    pub quota: Option<String>,
}

/// An authenticated caller.
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
    /// A principal with these fields.
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

    /// The kind of the credential.
    pub fn kind(&self) -> CredentialKind {
        self.kind
    }

    /// The issuer of the name; empty for the configuration.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The same principal, with only the scopes in `names`.
    pub(crate) fn with_scopes_in(mut self, names: &ScopeSet) -> Principal {
        self.scopes = self.scopes.retained(names);
        self
    }

    /// Bytes of the principal, as an allocator rounds them; `are_shared`: without the texts of its
    /// scopes.
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

    /// The name, which is unique only together with the kind and the issuer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The unique name under which the tasks of the principal are stored.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The cached number of [`Principal::owner`] in a service; `None`: `owner` is a different
    /// string.
    pub(crate) fn hint_of(&self, owner: &str) -> Option<&NumberHint> {
        std::ptr::eq(owner, &*self.owner).then_some(&self.owner_hint)
    }

    /// The tenants that calls of the principal may name.
    pub fn tenants(&self) -> &TenantGrant {
        &self.tenants
    }

    /// The scopes of the principal.
    pub fn scopes(&self) -> &ScopeSet {
        &self.scopes
    }

    /// The name of the quota.
    pub fn quota(&self) -> Option<&str> {
        self.quota.as_deref()
    }
}

/// The size of an allocation: with 8 bytes of overhead, in steps of 16, at least 32.
fn allocation(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

/// The credential kind, the issuer and the name in an owner; `None`: the owner is not that of a
/// principal.
#[cfg(any(feature = "auth", test))]
pub(crate) fn read_owner(owner: &str) -> Option<(CredentialKind, String, &str)> {
    let (word, rest) = owner.split_once(' ')?;
    let kind = CredentialKind::ALL.into_iter().find(|kind| kind.word() == word)?;
    let (issuer, name) = rest.split_once(' ')?;
    Some((kind, issuer.replace("%20", " ").replace("%25", "%"), name))
}

/// `kind issuer name`: the kind is a word, and blanks in the issuer are escaped.
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

/// Whether `wanted` of an operator names this owner: by the full owner, or by the name of the
/// principal alone.
#[cfg(feature = "net")]
pub(crate) fn is_owner_named(owner: &str, wanted: &str) -> bool {
    owner == wanted || owner.splitn(3, ' ').nth(2) == Some(wanted)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn different_principals_have_different_owners() {
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
    fn scope_matches_only_by_its_whole_name() {
        let scopes = ScopeSet::new(["b", "a2a:read", "a2a:read", "a2a:reader"]);
        assert!(scopes.has(ScopeSet::READ) && scopes.has("b") && !scopes.has("a2a:rea"));
        assert_eq!(scopes.names().collect::<Vec<_>>(), ["a2a:read", "a2a:reader", "b"]);
    }

    #[test]
    fn tenant_grant_allows_only_its_tenants() {
        let named = TenantGrant::Named(vec!["a".into(), "b".into()]);
        assert!(named.allows("b") && !named.allows("c") && named.home() == Some("a"));
        assert!(TenantGrant::Any.allows("c") && TenantGrant::Any.home().is_none());
        assert!(!TenantGrant::None.allows("a"));
    }
}
