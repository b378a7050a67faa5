//! A caller that is known: its name and who vouches for it, its tenants and its scopes.
//!
//! Law: who owns is (kind, issuer, name), never the name alone; no two of those have one
//! [`Principal::owner`].

use std::fmt::Write;

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
pub struct ScopeSet(Vec<Box<str>>);

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
    pub fn new(names: impl IntoIterator<Item = impl Into<Box<str>>>) -> ScopeSet {
        let mut names: Vec<Box<str>> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        ScopeSet(names)
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
    /// How it has shown who it is.
    pub kind: CredentialKind,
    /// Who vouches for the name: `iss` of a JWT; empty where that is the configuration.
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

    /// How it has shown who it is.
    pub fn kind(&self) -> CredentialKind {
        self.kind
    }

    /// Who vouches for the name; empty: the configuration.
    pub fn issuer(&self) -> &str {
        &self.issuer
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
                    assert!(owners.insert(owner(kind, issuer, name)), "{issuer:?} {name:?}");
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
