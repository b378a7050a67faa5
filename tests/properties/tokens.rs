//! Tokens and the keys that verify them: for any bytes, only signed tokens are accepted.

use std::sync::LazyLock;

use peregrine::auth::{TokenKeys, TokenRefusal, TokenRules, UnverifiedToken, VerifiedToken};

/// One token of each algorithm, made by PyJWT.
const TOKENS: &str = include_str!("../data/tokens/pyjwt.txt");
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// A time at which they are valid.
const NOW_MS: u64 = 1_700_000_000_000;

static KEYS: LazyLock<TokenKeys> = LazyLock::new(|| {
    let public = TokenKeys::read(include_bytes!("../data/tokens/keys.json")).unwrap();
    public.and(TokenKeys::secret(SECRET.to_vec()).unwrap())
});

fn verify(token: &[u8], keys: &TokenKeys) -> Result<VerifiedToken, TokenRefusal> {
    let rules = TokenRules::new("https://issuer.example");
    rules.verify(&UnverifiedToken::read(token)?, keys, NOW_MS)
}

/// Bytes are accepted exactly if they are a token that the issuer has signed.
pub fn only_signed_tokens_are_accepted(bytes: &[u8]) {
    let is_signed = TOKENS.lines().any(|token| token.as_bytes() == bytes);
    assert_eq!(verify(bytes, &KEYS).is_ok(), is_signed);
}

/// A document gives at most a hundred keys, the same ones each time, and debug output hides them;
/// keys of another issuer's document verify no token unless they are the issuer's own keys.
pub fn jwks_document_reads_the_same_each_time(bytes: &[u8]) {
    let set = TokenKeys::read_set(bytes);
    assert_eq!(set, TokenKeys::read_set(bytes));
    let keys = TokenKeys::read(bytes);
    assert_eq!(keys, TokenKeys::read(bytes));
    if let (Ok(set), Ok(keys)) = (&set, &keys) {
        assert_eq!(set, keys);
    }
    for keys in [set, keys].into_iter().flatten() {
        assert!(keys.len() <= 100 && format!("{keys:?}") == format!("TokenKeys({})", keys.len()));
        let again = keys.anew().after(&keys);
        assert_eq!(again, keys);
        for token in TOKENS.lines() {
            let verified = verify(token.as_bytes(), &keys);
            let Ok(verified) = verified else { continue };
            // A verified caller stays valid with the same keys, and is withdrawn with the last of
            // them.
            keys.withdraw_but(&again);
            assert!(!verified.grant.is_withdrawn());
            keys.anew().withdraw_but(&TokenKeys::default());
            assert!(!verified.grant.is_withdrawn());
            assert!(verify(token.as_bytes(), &KEYS).is_ok());
        }
        keys.withdraw_but(&TokenKeys::default());
        let let_in = TOKENS.lines().filter_map(|token| verify(token.as_bytes(), &keys).ok());
        assert!(let_in.into_iter().all(|verified| verified.grant.is_withdrawn()));
    }
}

/// Each bit of each token in turn, for each algorithm; of ES512, which is a thousand times slower
/// without optimization, one bit of each byte.
#[test]
fn token_with_one_flipped_bit_is_rejected() {
    assert_eq!(TOKENS.lines().count(), 13);
    for token in TOKENS.lines() {
        only_signed_tokens_are_accepted(token.as_bytes());
        assert!(verify(token.as_bytes(), &KEYS).is_ok());
        let is_slow = UnverifiedToken::read(token.as_bytes()).unwrap().kid() == Some("p521");
        let mut bytes = token.as_bytes().to_vec();
        for at in 0..bytes.len() {
            for bit in (0..8).filter(|bit| !is_slow || at % 8 == *bit) {
                bytes[at] ^= 1 << bit;
                let verified = verify(&bytes, &KEYS);
                assert!(verified.is_err(), "bit {bit} of byte {at} of {token}");
                bytes[at] ^= 1 << bit;
            }
        }
    }
}

/// The parts of one token combined with those of another.
#[test]
fn mixed_parts_of_several_tokens_are_rejected() {
    let parts: Vec<Vec<&str>> = TOKENS.lines().map(|token| token.split('.').collect()).collect();
    for header in &parts {
        for claims in &parts {
            for signature in &parts {
                let token = [header[0], claims[1], signature[2]].join(".");
                only_signed_tokens_are_accepted(token.as_bytes());
            }
        }
    }
}
