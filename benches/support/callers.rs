//! Engines with authenticated callers, and the header lines of their credentials.

use std::sync::Arc;

use peregrine::{
    auth::{
        AuthRules, Authenticator, Callers, IssuerRule, KeyRule, KeySource, KnownCaller, Quota,
        Quotas, Rate, SecretDigest, TokenKeys, TokenRules,
    },
    engine::Setup,
    model::Idempotency,
};

/// The line with a key.
pub const KEY: &str = "X-API-Key: 0123456789abcdef0123456789abcdef\r\n";

/// The line with an HS256 token that [`setup`] accepts: of `alice`, until 2100.
pub const TOKEN: &str = "Authorization: Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwic3ViIjoiYWxpY2UiLCJleHAiOjQxMDI0NDQ4MDAsInNjb3BlIjoi\
    YTJhOnJlYWQgYTJhOnNlbmQifQ.sEakkYMIANOooA2uGZ5Rhi0TJWD9FGP2sXAswmro8mw\r\n";

/// More than any case uses.
const MUCH: Option<Rate> = Some(Rate { per_minute: u32::MAX, burst: u32::MAX });

/// A server with these callers, with or without quotas, and with or without idempotent sends.
pub fn setup(quotas: bool, idempotency: bool) -> Setup {
    let quota = Quota {
        calls: MUCH,
        request_kib: MUCH,
        streams: Some(1_000),
        running_tasks: Some(1_000),
        running_kib: Some(1 << 20),
        waiting_calls: Some(1_000),
    };
    let rules = AuthRules {
        api_keys: vec![KeyRule {
            digest: SecretDigest::of(&KEY.as_bytes()[11..KEY.len() - 2]),
            caller: KnownCaller { name: "alice".to_owned(), ..KnownCaller::default() },
            expires_unix_ms: None,
        }],
        issuers: vec![IssuerRule {
            tokens: TokenRules::new("https://issuer.example"),
            keys: KeySource::Local(
                TokenKeys::secret(b"0123456789abcdef0123456789abcdef".to_vec()).unwrap(),
            ),
        }],
        ..AuthRules::default()
    };
    let mut setup = Setup {
        authenticator: Some(Arc::new(Callers::new(rules).unwrap()) as Arc<dyn Authenticator>),
        ..Setup::default()
    };
    if quotas {
        setup.quotas = Quotas { known: quota, ..Quotas::default() };
    }
    if !idempotency {
        setup.idempotency = Idempotency::Off;
    }
    setup
}
