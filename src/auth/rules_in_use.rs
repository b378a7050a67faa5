//! Rules in a form for lookups, and their replacement.
//!
//! Invariant: an unchanged entry retains its grant, and so the callers that it admitted; all other
//! grants are withdrawn once the new rules are in force.

use std::{collections::HashMap, sync::Arc};

use crate::{
    model::CardSecurity,
    service::{
        Now,
        principal::{CredentialKind, Principal, PrincipalBuf, read_owner},
    },
};

use super::{
    Admission, Grant,
    challenge::card_security,
    jwt::TokenRules,
    remote_keys::RemoteKeys,
    rules::{
        API_KEY_FIELD, AuthRules, AuthRulesError, IssuerRule, KeyRule, KeySource, SecretDigest,
    },
    token_keys::TokenKeys,
};

/// A key or token of the configuration.
pub(super) struct ConfiguredKey {
    rule: KeyRule,
    pub(super) admission: Admission,
}

type ConfiguredKeys = HashMap<SecretDigest, ConfiguredKey>;

/// The keys of an issuer in use.
pub(super) enum IssuerKeys {
    Local(Arc<TokenKeys>),
    Remote(Arc<RemoteKeys>),
}

/// A trusted issuer of tokens.
pub(super) struct TrustedIssuer {
    pub(super) rules: TokenRules,
    pub(super) keys: IssuerKeys,
}

/// Rules in force.
pub(super) struct RulesInUse {
    /// The configured rules, without keys, tokens and issuers.
    pub(super) configured: AuthRules,
    /// The security schemes on cards.
    pub(super) security: CardSecurity,
    /// True: API keys are in `X-API-Key`.
    pub(super) reads_x_api_key: bool,
    pub(super) api_keys: ConfiguredKeys,
    pub(super) bearer_tokens: ConfiguredKeys,
    pub(super) issuers: HashMap<String, TrustedIssuer>,
    /// When the last key of each name expires, in ms since the Unix epoch.
    key_names: HashMap<String, u64>,
    /// When the last bearer token of each name expires, in ms since the Unix epoch.
    token_names: HashMap<String, u64>,
    pub(super) proxy_grant: Arc<Grant>,
    pub(super) certificate_grant: Arc<Grant>,
}

impl RulesInUse {
    /// Rules that replace `before`, if any.
    ///
    /// # Errors
    /// [`AuthRulesError`]
    pub(super) fn new(
        mut rules: AuthRules,
        before: Option<&RulesInUse>,
    ) -> Result<RulesInUse, AuthRulesError> {
        rules.check()?;
        let security = card_security(&rules);
        let (api_keys, tokens) =
            (std::mem::take(&mut rules.api_keys), std::mem::take(&mut rules.bearer_tokens));
        let (key_names, token_names) = (names_of(&api_keys), names_of(&tokens));
        let of = |kind, rules: Vec<KeyRule>, before: Option<&ConfiguredKeys>| {
            let entry = |rule: KeyRule| (rule.digest, ConfiguredKey::new(kind, rule, before));
            rules.into_iter().map(entry).collect::<ConfiguredKeys>()
        };
        let mut issuers = HashMap::new();
        for rule in std::mem::take(&mut rules.issuers) {
            let issuer = rule.tokens.issuer.clone();
            let before = before.and_then(|before| before.issuers.get(&issuer));
            issuers.insert(issuer, TrustedIssuer::new(rule, before)?);
        }
        let retained = |grant: Option<&Arc<Grant>>| grant.map(Arc::clone).unwrap_or_default();
        let same_proxy = before.filter(|before| before.configured.proxy == rules.proxy);
        let same_certificates =
            before.filter(|before| before.configured.certificates == rules.certificates);
        Ok(RulesInUse {
            reads_x_api_key: rules.api_key_field.eq_ignore_ascii_case(API_KEY_FIELD),
            api_keys: of(CredentialKind::ApiKey, api_keys, before.map(|before| &before.api_keys)),
            bearer_tokens: of(
                CredentialKind::Bearer,
                tokens,
                before.map(|before| &before.bearer_tokens),
            ),
            issuers,
            key_names,
            token_names,
            proxy_grant: retained(same_proxy.map(|before| &before.proxy_grant)),
            certificate_grant: retained(same_certificates.map(|before| &before.certificate_grant)),
            configured: rules,
            security,
        })
    }

    /// Releases callers that were admitted by entries that the rules `now` lack.
    pub(super) fn withdraw_but(&self, now: &RulesInUse) {
        withdraw_keys(&self.api_keys, &now.api_keys);
        withdraw_keys(&self.bearer_tokens, &now.bearer_tokens);
        withdraw(&self.proxy_grant, Some(&now.proxy_grant));
        withdraw(&self.certificate_grant, Some(&now.certificate_grant));
        for (issuer, old) in &self.issuers {
            let now = now.issuers.get(issuer).map(|issuer| &issuer.keys);
            match (&old.keys, now) {
                (IssuerKeys::Local(old), Some(IssuerKeys::Local(now))) => old.withdraw_but(now),
                (IssuerKeys::Local(old), Some(IssuerKeys::Remote(_)) | None) => {
                    old.withdraw_but(&TokenKeys::default());
                }
                (IssuerKeys::Remote(old), Some(IssuerKeys::Remote(now)))
                    if Arc::ptr_eq(old, now) => {}
                (IssuerKeys::Remote(old), Some(_) | None) => old.close(),
            }
        }
    }

    /// Whether a credential under these rules can belong to an owner, now or later.
    pub(super) fn vouches_for(&self, owner: &str, now: Now) -> bool {
        let Some((kind, issuer, name)) = read_owner(owner) else { return true };
        let is_valid = |names: &HashMap<String, u64>| {
            names.get(name).is_some_and(|ends_unix_ms| now.unix_ms < *ends_unix_ms)
        };
        match kind {
            CredentialKind::ApiKey => is_valid(&self.key_names),
            CredentialKind::Bearer => is_valid(&self.token_names),
            CredentialKind::Jwt => self.issuers.contains_key(&issuer),
            CredentialKind::Proxy => self.configured.proxy.is_some(),
            CredentialKind::Certificate => self.configured.certificates.is_some(),
        }
    }

    /// The keys that are fetched.
    pub(super) fn remote_keys(&self) -> impl Iterator<Item = &Arc<RemoteKeys>> {
        self.issuers.values().filter_map(|issuer| match &issuer.keys {
            IssuerKeys::Local(_) => None,
            IssuerKeys::Remote(keys) => Some(keys),
        })
    }
}

/// When the last key of each name expires.
fn names_of(rules: &[KeyRule]) -> HashMap<String, u64> {
    let mut names = HashMap::new();
    for KeyRule { caller, expires_unix_ms, .. } in rules {
        let ends = names.entry(caller.name.clone()).or_insert(0);
        *ends = expires_unix_ms.unwrap_or(u64::MAX).max(*ends);
    }
    names
}

impl ConfiguredKey {
    fn new(kind: CredentialKind, rule: KeyRule, before: Option<&ConfiguredKeys>) -> ConfiguredKey {
        let same = before.and_then(|before| before.get(&rule.digest));
        if let Some(same) = same.filter(|same| same.rule == rule) {
            return ConfiguredKey { rule, admission: same.admission.clone() };
        }
        let caller = rule.caller.clone();
        let principal = Principal::new(PrincipalBuf {
            kind,
            issuer: String::new(),
            name: caller.name,
            tenants: caller.tenants,
            scopes: caller.scopes,
            quota: caller.quota,
        });
        let admission = Admission {
            principal: Arc::new(principal),
            expires_unix_ms: rule.expires_unix_ms.unwrap_or(u64::MAX),
            grant: Arc::default(),
        };
        ConfiguredKey { rule, admission }
    }
}

impl TrustedIssuer {
    fn new(
        rule: IssuerRule,
        before: Option<&TrustedIssuer>,
    ) -> Result<TrustedIssuer, AuthRulesError> {
        let IssuerRule { tokens: rules, keys } = rule;
        let is_same = before.is_some_and(|before| before.rules == rules);
        let keys = match (keys, before.map(|before| &before.keys)) {
            // Changed rules may reject callers that the old rules admitted, so even an unchanged
            // key releases its callers.
            (KeySource::Local(keys), Some(IssuerKeys::Local(before))) if is_same => {
                IssuerKeys::Local(Arc::new(keys.anew().after(before)))
            }
            (KeySource::Local(keys), _) => IssuerKeys::Local(Arc::new(keys.anew())),
            (KeySource::Remote { location, refresh_ms }, Some(IssuerKeys::Remote(before)))
                if before.location() == (&location, refresh_ms) =>
            {
                match is_same {
                    true => IssuerKeys::Remote(Arc::clone(before)),
                    false => IssuerKeys::Remote(Arc::new(before.anew())),
                }
            }
            (KeySource::Remote { location, refresh_ms }, _) => {
                let keys = RemoteKeys::new(&rules.issuer, location, refresh_ms);
                let keys =
                    keys.map_err(|why| AuthRulesError::KeyLocation(rules.issuer.clone(), why))?;
                IssuerKeys::Remote(Arc::new(keys))
            }
        };
        Ok(TrustedIssuer { rules, keys })
    }
}

fn withdraw_keys(old: &ConfiguredKeys, now: &ConfiguredKeys) {
    for (digest, key) in old {
        let now = now.get(digest).map(|now| &now.admission.grant);
        withdraw(&key.admission.grant, now);
    }
}

fn withdraw(old: &Arc<Grant>, now: Option<&Arc<Grant>>) {
    if !now.is_some_and(|now| Arc::ptr_eq(old, now)) {
        old.withdraw();
    }
}
