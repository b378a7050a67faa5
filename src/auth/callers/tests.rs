//! How callers are found, admitted and released.

use super::*;
use crate::{
    auth::{
        CertificateRule, IssuerRule, KeyLocation, KeyRule, KeySource, KnownCaller, Network,
        TokenKeys,
        jwt::tests::{
            ISSUER, Issuer, NOW_MS, SECRET, claims_with, header_of, rules as token_rules,
        },
    },
    model::CardScheme,
    service::{FieldSource, RequestFields},
};

const NOW: Now = Now { mono_ms: 0, unix_ms: NOW_MS };

struct Fields(Vec<(&'static str, &'static [u8])>);

impl FieldSource for Fields {
    fn each_value<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        let named = self.0.iter().filter(|(field_name, _)| field_name.eq_ignore_ascii_case(name));
        named.for_each(|(_, value)| each(value));
    }
}

fn key(secret: &str, name: &str) -> KeyRule {
    let caller = KnownCaller { name: name.to_owned(), ..KnownCaller::default() };
    KeyRule { digest: SecretDigest::take(secret.to_owned()), caller, expires_unix_ms: None }
}

fn proxy() -> ProxyRule {
    ProxyRule {
        networks: ["10.0.0.0/8", "::1"].map(|network| network.parse().unwrap()).to_vec(),
        name_field: "X-User".to_owned(),
        scopes_field: Some("X-Scopes".to_owned()),
        tenants_field: None,
        scopes: ScopeSet::default(),
        tenants: TenantGrant::Any,
        quota: None,
    }
}

fn issuer_rule(issuer: &Issuer) -> IssuerRule {
    IssuerRule { tokens: token_rules(), keys: KeySource::Local(issuer.keys()) }
}

/// Rules with credentials of each kind.
fn rules(issuer: &Issuer) -> AuthRules {
    AuthRules {
        api_keys: vec![key("key-1", "robot"), key("key-2", "robot"), key("key-3", "other")],
        bearer_tokens: vec![key("token-1", "robot")],
        issuers: vec![issuer_rule(issuer)],
        proxy: Some(proxy()),
        certificates: Some(CertificateRule::default()),
        ..AuthRules::default()
    }
}

fn token(issuer: &Issuer) -> String {
    let algorithm = crate::auth::JwsAlgorithm::EdDsa;
    issuer.token(algorithm, &header_of(algorithm, "ed"), &claims_with(&[]))
}

/// The fields of a request as a source of credentials.
fn source(fields: &Fields) -> CredentialSource<'_> {
    let mut keys = fields.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-api-key"));
    CredentialSource {
        api_key: keys.next().map(|(_, key)| *key),
        fields: RequestFields::of(fields),
        ..CredentialSource::default()
    }
}

fn authenticate(
    callers: &Callers,
    authorization: Option<&str>,
    fields: &Fields,
    address: &str,
    identity: Option<&str>,
) -> Option<(CredentialKind, Result<Admission, AuthRefusal>)> {
    let presented = callers.find(&CredentialSource {
        authorization: authorization.map(str::as_bytes),
        identity,
        remote: address.parse().ok(),
        ..source(fields)
    })?;
    match callers.check(&presented, NOW, Waker::noop()) {
        Poll::Ready(checked) => Some((presented.kind, checked)),
        Poll::Pending => panic!("pending"),
    }
}

fn show(callers: &Callers, kind: CredentialKind, secret: &str) -> Result<Admission, AuthRefusal> {
    let presented = Presented { kind, secret: Cow::Borrowed(secret.as_bytes()), address: None };
    match callers.check(&presented, NOW, Waker::noop()) {
        Poll::Ready(checked) => checked,
        Poll::Pending => panic!("pending"),
    }
}

#[test]
fn highest_priority_credential_is_checked() {
    let issuer = Issuer::new();
    let callers = Callers::new(rules(&issuer)).unwrap();
    let (key, user) = (("x-api-key", &b"key-1"[..]), ("X-USER", &b"Doe, Jane"[..]));
    let jwt = format!("bEARER  {} ", token(&issuer));
    let all = Fields(vec![key, user]);
    let kind = |authorization, fields: &Fields, address, identity| {
        let (kind, checked) = authenticate(&callers, authorization, fields, address, identity)?;
        Some((kind, checked.map(|admitted| admitted.principal.name().to_owned())))
    };
    let wrong = |kind, reason| Some((kind, Err(AuthRefusal::Wrong(reason))));
    let ok = |kind, name: &str| Some((kind, Ok(name.to_owned())));
    use CredentialKind::{ApiKey, Bearer, Certificate, Jwt, Proxy};
    assert_eq!(kind(Some(&jwt), &all, "10.1.2.3", Some("c")), ok(Jwt, "alice"));
    let bearer = Some("Bearer token-1");
    assert_eq!(kind(bearer, &all, "10.1.2.3", Some("c")), ok(Bearer, "robot"));
    assert_eq!(kind(Some("Bearer x"), &all, "", None), wrong(Bearer, TOKEN_UNKNOWN));
    assert_eq!(kind(Some("Bearer "), &all, "", None), wrong(Bearer, TOKEN_UNKNOWN));
    assert_eq!(kind(Some("Bearer key-1"), &all, "", None), wrong(Bearer, TOKEN_UNKNOWN));
    // Another scheme is ignored.
    assert_eq!(kind(Some("Basic eA=="), &all, "10.1.2.3", Some("c")), ok(ApiKey, "robot"));
    assert_eq!(kind(None, &Fields(vec![("x-api-key", b"")]), "", None), wrong(ApiKey, KEY_UNKNOWN));
    // The proxy's fields count only from the proxy.
    let user_fields = Fields(vec![user]);
    for address in ["10.1.2.3", "::ffff:10.1.2.3", "::1"] {
        assert_eq!(
            kind(None, &user_fields, address, Some("c")),
            ok(Proxy, "Doe, Jane"),
            "{address}"
        );
    }
    for address in ["11.0.0.1", "127.0.0.1", "::2", "::ffff:11.0.0.1", ""] {
        assert_eq!(kind(None, &user_fields, address, Some("c")), ok(Certificate, "c"), "{address}");
        assert_eq!(kind(None, &user_fields, address, None), None);
    }
    let none = Fields(vec![("X-User", b"")]);
    assert_eq!(kind(None, &none, "10.1.2.3", None), None);
    for names in [vec![user, user], vec![user, ("x-user", b"\xff")], vec![("X-User", b"a\tb")]] {
        assert_eq!(kind(None, &Fields(names), "::1", None), wrong(Proxy, NAME_REFUSED));
    }
    assert_eq!(kind(None, &Fields(Vec::new()), "::1", Some("")), wrong(Certificate, NAME_REFUSED));
}

#[test]
fn proxy_scopes_are_part_of_the_credential() {
    let callers = Callers::new(rules(&Issuer::new())).unwrap();
    let scopes_of = |scopes: &[&'static [u8]]| {
        let mut fields = Fields(vec![("x-user", b"jane")]);
        fields.0.extend(scopes.iter().map(|scopes| ("x-scopes", *scopes)));
        let (_, checked) = authenticate(&callers, None, &fields, "::1", None).unwrap();
        checked.map(|admitted| admitted.principal.scopes().clone())
    };
    assert_eq!(scopes_of(&[]), Ok(ScopeSet::default()));
    assert_eq!(
        scopes_of(&[b"a2a:read, a2a:send x"]),
        Ok(ScopeSet::new(["a2a:read", "a2a:send", "x"]))
    );
    // The client has sent one of the two fields.
    assert_eq!(scopes_of(&[b"a2a:admin", b"a2a:read"]), Err(AuthRefusal::Wrong(NAME_REFUSED)));
    let of = |scopes: &'static [u8]| {
        let fields = Fields(vec![("x-user", b"jane"), ("x-scopes", scopes)]);
        let remote = Some("::1".parse().unwrap());
        let source = CredentialSource { remote, ..source(&fields) };
        callers.find(&source).unwrap().secret.into_owned()
    };
    assert_ne!(of(b"a2a:read"), of(b"a2a:admin"));
}

#[test]
fn keys_and_tokens_expire_at_configured_time() {
    let mut rules = rules(&Issuer::new());
    rules.api_keys[0].expires_unix_ms = Some(NOW_MS + 1);
    rules.bearer_tokens[0].expires_unix_ms = Some(NOW_MS);
    let callers = Callers::new(rules).unwrap();
    let admitted = show(&callers, CredentialKind::ApiKey, "key-1").unwrap();
    assert!(admitted.holds(NOW) && !admitted.holds(Now { mono_ms: 0, unix_ms: NOW_MS + 1 }));
    let refused = show(&callers, CredentialKind::Bearer, "token-1").unwrap_err();
    assert_eq!(refused, AuthRefusal::Expired(TOKEN_EXPIRED));
    assert_eq!(show(&callers, CredentialKind::ApiKey, "key-2").unwrap().expires_unix_ms, u64::MAX);
}

#[test]
fn same_name_of_two_issuers_gives_two_owners() {
    let (one, two) = (Issuer::new(), Issuer::new());
    let mut rules = AuthRules { issuers: vec![issuer_rule(&one)], ..AuthRules::default() };
    let mut other = issuer_rule(&two);
    other.tokens.issuer = "https://two.example".to_owned();
    rules.issuers.push(other);
    let callers = Callers::new(rules).unwrap();
    let algorithm = crate::auth::JwsAlgorithm::Es256;
    let of = |issuer: &Issuer, iss: &str| {
        let claims = claims_with(&[("iss", Some(iss))]);
        let token = issuer.token(algorithm, &header_of(algorithm, "p256"), &claims);
        show(&callers, CredentialKind::Jwt, &token).map(|admitted| admitted.principal)
    };
    let first = of(&one, r#""https://issuer.example""#).unwrap();
    let second = of(&two, r#""https://two.example""#).unwrap();
    assert_eq!((first.name(), second.name()), ("alice", "alice"));
    assert!(first.owner() != second.owner() && first.issuer() == ISSUER);
    // No issuer may sign tokens of another issuer.
    assert!(of(&one, r#""https://two.example""#).is_err());
    assert!(of(&two, r#""https://issuer.example""#).is_err());
    let unknown = AuthRefusal::Wrong("the issuer of the token is not trusted here");
    assert_eq!(of(&one, r#""https://three.example""#).unwrap_err(), unknown);
}

#[test]
fn reload_withdraws_grants_of_changed_rules_only() {
    let issuer = Issuer::new();
    let first = rules(&issuer);
    let callers = Callers::new(first.clone()).unwrap();
    let token = token(&issuer);
    let shown = [
        (CredentialKind::ApiKey, "key-1"),
        (CredentialKind::ApiKey, "key-3"),
        (CredentialKind::Bearer, "token-1"),
        (CredentialKind::Jwt, token.as_str()),
        (CredentialKind::Certificate, "c\n18446744073709551615\nCN=CA"),
        (CredentialKind::Proxy, "jane\n\n"),
    ];
    let admit = || shown.map(|(kind, secret)| show(&callers, kind, secret).unwrap());
    let held = |admitted: &[Admission; 6]| admitted.each_ref().map(|one| one.holds(NOW));
    let admitted = admit();
    callers.replace(first.clone()).unwrap();
    assert_eq!(held(&admitted), [true; 6]);
    // Every rule changes slightly.
    let mut other = first.clone();
    other.api_keys[2].caller.scopes = ScopeSet::new(["a2a:read"]);
    other.issuers[0].tokens.audiences.push("more".to_owned());
    callers.replace(other.clone()).unwrap();
    assert_eq!(held(&admitted), [true, false, true, false, true, true]);
    other.api_keys.remove(0);
    other.bearer_tokens[0].caller.name = "x".to_owned();
    other.proxy.as_mut().unwrap().networks.pop();
    other.certificates.as_mut().unwrap().quota = Some("q".to_owned());
    callers.replace(other).unwrap();
    assert_eq!(held(&admitted), [false; 6]);
    // Restoring the old rules does not restore the callers that they admitted.
    callers.replace(first.clone()).unwrap();
    assert_eq!(held(&admitted), [false; 6]);
    let admitted = admit();
    assert_eq!(held(&admitted), [true; 6]);
    // One key of the issuer is removed, the others stay.
    let mut fewer = first.clone();
    let jwk = issuer.jwk("ed", r#","kid":"ed""#);
    let set = format!(r#"{{"keys":[{jwk}]}}"#);
    fewer.issuers[0].keys = KeySource::Local(TokenKeys::read_set(set.as_bytes()).unwrap());
    callers.replace(fewer.clone()).unwrap();
    assert_eq!(held(&admitted), [true; 6]);
    fewer.issuers[0].keys = KeySource::Local(TokenKeys::secret(SECRET.to_vec()).unwrap());
    callers.replace(fewer).unwrap();
    assert_eq!(held(&admitted), [true, true, true, false, true, true]);
    // Invalid rules change nothing.
    let bad = AuthRules { api_keys: vec![key("a", "a"), key("a", "b")], ..AuthRules::default() };
    assert_eq!(callers.replace(bad).unwrap_err(), AuthRulesError::SameSecret("b".to_owned()));
    assert_eq!(held(&admitted), [true, true, true, false, true, true]);
    callers.replace(AuthRules::default()).unwrap();
    assert_eq!(held(&admitted), [false; 6]);
}

#[test]
fn remote_issuer_keys_are_awaited_and_removed_with_rules() {
    let issuer = Issuer::new();
    let location = KeyLocation::Jwks("https://issuer.example/keys".to_owned());
    let keys = KeySource::Remote { location, refresh_ms: 600_000 };
    let rule = IssuerRule { tokens: token_rules(), keys };
    let first = AuthRules { issuers: vec![rule], ..AuthRules::default() };
    let callers = Callers::new(first.clone()).unwrap();
    let token = token(&issuer);
    let check = || {
        let secret = Cow::Borrowed(token.as_bytes());
        callers.check(
            &Presented { kind: CredentialKind::Jwt, secret, address: None },
            NOW,
            Waker::noop(),
        )
    };
    assert!(check().is_pending());
    let NextFetch::Fetch(fetch) = callers.next_fetch(NOW, Waker::noop()) else { panic!("nothing") };
    let fetched =
        crate::auth::FetchedDocument { content: issuer.jwks().into_bytes(), cache_control: None };
    assert!(fetch.end(NOW, Ok(fetched)).is_none());
    let Poll::Ready(Ok(admitted)) = check() else { panic!("not admitted") };
    callers.replace(first.clone()).unwrap();
    assert!(admitted.holds(NOW));
    assert_eq!(callers.key_status()[0].keys, Some(5));
    // Under other rules the keys are still cached, and callers are not admitted any more.
    let mut other = first.clone();
    other.issuers[0].tokens.quota_claim = None;
    callers.replace(other).unwrap();
    assert!(!admitted.holds(NOW));
    let Poll::Ready(Ok(admitted)) = check() else { panic!("not admitted") };
    assert!(admitted.holds(NOW) && admitted.principal.quota().is_none());
    let wait = callers.next_fetch(NOW, Waker::noop());
    assert!(matches!(wait, NextFetch::Wait(600_000)), "{wait:?}");
    callers.replace(AuthRules::default()).unwrap();
    assert!(!admitted.holds(NOW) && callers.key_status().is_empty());
    assert!(matches!(callers.next_fetch(NOW, Waker::noop()), NextFetch::Wait(u64::MAX)));
}

#[test]
fn challenge_lists_configured_credential_kinds() {
    let issuer = Issuer::new();
    let all = rules(&issuer);
    let of = |rules: AuthRules, refusal| Callers::new(rules).unwrap().challenge(&refusal);
    assert_eq!(
        of(all.clone(), AuthRefusal::Missing),
        "Bearer realm=\"a2a\", ApiKey realm=\"a2a\", header=\"X-API-Key\", \
         Certificate realm=\"a2a\""
    );
    let tokens = AuthRules { issuers: all.issuers.clone(), ..AuthRules::default() };
    let expired = AuthRefusal::Expired("the token has expired");
    assert_eq!(
        of(tokens.clone(), expired),
        "Bearer realm=\"a2a\", error=\"invalid_token\", error_description=\"the token has expired\""
    );
    assert_eq!(of(tokens, AuthRefusal::Wrong(KEY_UNKNOWN)), "Bearer realm=\"a2a\"");
    let api_key_field = "X-Key".to_owned();
    let keys = AuthRules { api_keys: all.api_keys, api_key_field, ..AuthRules::default() };
    let field = "ApiKey realm=\"a2a\", header=\"X-Key\"";
    assert_eq!(of(keys, AuthRefusal::Wrong(KEY_UNKNOWN)), field);
    let by_proxy = AuthRules { proxy: all.proxy, ..AuthRules::default() };
    assert_eq!(of(by_proxy, AuthRefusal::Missing), "Proxy realm=\"a2a\"");
}

#[test]
fn card_lists_security_schemes_of_configured_auth() {
    let all = rules(&Issuer::new());
    let of = |rules: &AuthRules| {
        let security = Callers::new(rules.clone()).unwrap().security();
        let required = security.requirements.iter().map(|one| one.schemes[0].0.clone());
        assert!(required.eq(security.schemes.iter().map(|scheme| scheme.name.clone())));
        security.schemes
    };
    assert_eq!(
        of(&all),
        [
            CardScheme::bearer("bearer", "JWT"),
            CardScheme::api_key("api-key", "X-API-Key"),
            CardScheme::mutual_tls("certificate"),
        ]
    );
    let keys = KeySource::Remote { location: KeyLocation::OpenId, refresh_ms: 600_000 };
    let tokens = crate::auth::TokenRules::new("https://issuer/");
    let by_discovery = AuthRules { issuers: vec![IssuerRule { tokens, keys }], ..all.clone() };
    let url = "https://issuer/.well-known/openid-configuration";
    assert_eq!(of(&by_discovery)[1], CardScheme::open_id_connect("openid", url));
    let tokens = AuthRules { bearer_tokens: all.bearer_tokens, ..AuthRules::default() };
    assert_eq!(of(&tokens), [CardScheme::bearer("bearer", "")]);
    assert!(of(&AuthRules { proxy: all.proxy, ..AuthRules::default() }).is_empty());
}

#[test]
fn invalid_auth_rules_return_specific_errors() {
    let good = AuthRules::default;
    let refused = |rules: AuthRules| Callers::new(rules).map(|_| ()).unwrap_err();
    let issuer = |issuer: &str, keys: &KeySource| {
        let tokens = crate::auth::TokenRules::new(issuer);
        IssuerRule { tokens, keys: keys.clone() }
    };
    let local = KeySource::secret("x".repeat(32)).unwrap();
    assert!(KeySource::secret("x".repeat(31)).is_err());
    let plain = KeySource::Remote { location: KeyLocation::OpenId, refresh_ms: 1 };
    for (rules, error) in [
        (AuthRules { api_keys: vec![key("a", "")], ..good() }, AuthRulesError::Name(String::new())),
        (
            AuthRules { bearer_tokens: vec![key("a", "a\n")], ..good() },
            AuthRulesError::Name("a\n".to_owned()),
        ),
        (
            AuthRules { api_key_field: "authorization".to_owned(), ..good() },
            AuthRulesError::Field("authorization".to_owned()),
        ),
        (
            AuthRules { api_key_field: "a b".to_owned(), ..good() },
            AuthRulesError::Field("a b".to_owned()),
        ),
        (
            AuthRules { issuers: vec![issuer("", &local)], ..good() },
            AuthRulesError::Issuer(String::new()),
        ),
        (
            AuthRules { issuers: vec![issuer("a", &local), issuer("a", &local)], ..good() },
            AuthRulesError::Issuer("a".to_owned()),
        ),
        (
            AuthRules { issuers: vec![issuer("http://a.example", &plain)], ..good() },
            AuthRulesError::KeyLocation(
                "http://a.example".to_owned(),
                crate::auth::KeyLocationError::PlainHttp,
            ),
        ),
    ] {
        assert_eq!(refused(rules), error);
    }
    // Each limit of a configuration.
    let issuers: Vec<IssuerRule> = (0..65).map(|n| issuer(&n.to_string(), &local)).collect();
    assert_eq!(refused(AuthRules { issuers, ..good() }), AuthRulesError::TooMany("issuers"));
    let network: Network = "10.0.0.0/8".parse().unwrap();
    let many = ProxyRule { networks: vec![network; 257], ..proxy() };
    let many = AuthRules { proxy: Some(many), ..good() };
    assert_eq!(refused(many), AuthRulesError::TooMany("networks"));
    let many = AuthRules { api_keys: vec![key("a", "a"); 100_001], ..good() };
    assert_eq!(refused(many), AuthRulesError::TooMany("API keys"));
    for bad in ["", "10.0.0.0/33", "10.0.0", "::/129", "localhost"] {
        assert!(bad.parse::<Network>().is_err(), "{bad}");
    }
}

/// RFC 6234, appendix: the digest of `abc`.
#[test]
fn secret_digest_is_parsed_from_sha256_hex() {
    let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for spelled in [hex.to_owned(), format!("sha256:{hex}"), hex.to_ascii_uppercase()] {
        assert_eq!(spelled.parse(), Ok(SecretDigest::take("abc".to_owned())), "{spelled}");
    }
    for bad in ["", "abc", &hex[1..], &format!("{hex}0"), &hex.replace('b', "g"), &"é".repeat(32)]
    {
        assert_eq!(bad.parse::<SecretDigest>(), Err(AuthRulesError::Digest), "{bad}");
    }
}

/// Neither a secret nor its digest appears in debug output or logs.
#[test]
fn debug_output_contains_no_secret() {
    let issuer = Issuer::new();
    let mut rules = rules(&issuer);
    rules.api_keys[0].digest =
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".parse().unwrap();
    let callers = Callers::new(rules.clone()).unwrap();
    let token = token(&issuer);
    let bearer = format!("Bearer {token}");
    let key_field = Fields(vec![("x-api-key", b"key-2")]);
    let source = CredentialSource { authorization: Some(bearer.as_bytes()), ..source(&key_field) };
    let presented = callers.find(&source).unwrap();
    let admitted = show(&callers, CredentialKind::Jwt, &token).unwrap();
    let read = UnverifiedToken::read(token.as_bytes()).unwrap();
    let verified = token_rules().verify(&read, &issuer.keys(), NOW_MS).unwrap();
    let remote = KeySource::Remote { location: KeyLocation::OpenId, refresh_ms: 1 };
    let shown = [
        format!("{rules:?}{callers:?}{source:?}{presented:?}{admitted:?}{read:?}{verified:?}"),
        format!("{:?}{remote:?}{:?}", issuer.keys(), callers.next_fetch(NOW, Waker::noop())),
        format!("{:?}{:?}", callers.key_status(), SecretDigest::of(b"key-1")),
        format!("{:?}{:?}", show(&callers, CredentialKind::ApiKey, "key-x"), rules.check()),
    ]
    .concat();
    let parts = token.split('.').chain(["key-1", "key-2", "key-3", "key-x", "token-1", "ba7816"]);
    let secret = str::from_utf8(SECRET).unwrap();
    for secret in parts.chain([secret, "[186, 120", "0x"]) {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
}

#[test]
fn owner_is_vouched_for_while_its_credential_rule_exists() {
    let issuer = Issuer::new();
    let callers = Callers::new(rules(&issuer)).unwrap();
    let owner = |kind, issuer: &str, name: &str| {
        let (issuer, name) = (issuer.to_owned(), name.to_owned());
        let (tenants, scopes, quota) = Default::default();
        let principal = Principal::new(PrincipalBuf { kind, issuer, name, tenants, scopes, quota });
        principal.owner().to_owned()
    };
    let owners = [
        owner(CredentialKind::ApiKey, "", "robot"),
        owner(CredentialKind::Jwt, ISSUER, "anyone"),
        owner(CredentialKind::Proxy, "", "jane"),
        owner(CredentialKind::Certificate, "CN=CA with blanks", "c"),
    ];
    let vouched = || owners.each_ref().map(|owner| callers.vouches_for(owner, NOW));
    assert_eq!(vouched(), [true; 4]);
    // The same name with another kind or another issuer is another owner.
    for (kind, issuer) in
        [(CredentialKind::Bearer, ""), (CredentialKind::Jwt, "https://three.example")]
    {
        assert!(!callers.vouches_for(&owner(kind, issuer, "other"), NOW), "{kind:?}");
    }
    assert!(callers.vouches_for("an owner of a service's own", NOW));
    let before = callers.changes(Waker::noop());
    callers.replace(AuthRules::default()).unwrap();
    assert_eq!(vouched(), [false; 4]);
    assert_eq!(callers.changes(Waker::noop()), before + 1);
}
