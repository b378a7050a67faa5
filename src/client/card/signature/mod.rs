//! Signs cards, and verifies the signatures of a card (A2A 1.0 §8.4, RFC 7515, RFC 8785) with keys
//! of the caller.
//!
//! Invariant: keys come only from the caller: `jku` is never followed, and a key in a signature's
//! header is ignored. The key, not the signature, decides which algorithms fit; `none` and the
//! HMACs fit no key. A card of 1.0 is verified in the form in which it was read, so that a
//! signature covers every member that a client uses.

mod form;
mod key;
mod signing;

use std::fmt;

use serde_json::Value;

use crate::auth::jws::{decode_url as decode, encode_url as encode};

use super::{AgentCard, CardSignature};

pub use form::SignedForm;
pub use key::{CardKeys, KeyError};
pub use signing::SigningKeys;

pub use crate::client::signing_key::{SIGNING_KEYS_MAX, SigningKeyError};

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureOutcome {
    /// A signature is valid.
    Verified {
        /// The `kid` of the signature's header; empty: absent.
        kid: String,
        /// The form of the card that the signature covers.
        form: SignedForm,
    },
    /// The card has signatures, but none is valid.
    Unverifiable(WhyUnverifiable),
    /// The card is not signed, which is allowed.
    Absent,
}

/// Why a card that must be signed is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureError {
    /// The card is not signed.
    Absent,
    /// No key of the caller has signed the card, or the card was changed after signing
    /// ([`WhyUnverifiable::Mismatch`]).
    Unverifiable(WhyUnverifiable),
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignatureError::Absent => f.write_str("the card must be signed, and is not"),
            SignatureError::Unverifiable(why) => {
                write!(f, "no signature of the card is valid: {why}")
            }
        }
    }
}

impl std::error::Error for SignatureError {}

/// Why no signature is valid; of several reasons, the one closest to success.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyUnverifiable {
    /// The signature has an invalid form; the problem.
    Malformed(&'static str),
    /// The algorithm proves nothing, or is unknown.
    Algorithm(String),
    /// No key of the caller has this `kid` and fits the algorithm.
    NoKey(String),
    /// No fitting key verifies the signature: the card was changed, or signed with another key.
    Mismatch(String),
}

impl fmt::Display for SignatureOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignatureOutcome::Verified { kid, form } => {
                write!(f, "verified with the key {kid:?}, over {form}")
            }
            SignatureOutcome::Unverifiable(why) => write!(f, "unverifiable: {why}"),
            SignatureOutcome::Absent => f.write_str("absent"),
        }
    }
}

impl fmt::Display for WhyUnverifiable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyUnverifiable::Malformed(what) => f.write_str(what),
            WhyUnverifiable::Algorithm(name) => write!(f, "the algorithm {name:?} is not accepted"),
            WhyUnverifiable::NoKey(kid) => write!(f, "no trusted key fits kid {kid:?}"),
            WhyUnverifiable::Mismatch(kid) => {
                write!(f, "the signature for kid {kid:?} does not match the card")
            }
        }
    }
}

/// Maximum signatures of a card to check; each costs a verification for each form and key.
pub const SIGNATURES_MAX: usize = 16;

/// Verifies a card: one valid signature is enough (A2A 1.0 §8.4.3).
pub fn verify(card: &AgentCard, keys: &CardKeys) -> SignatureOutcome {
    if card.signatures.is_empty() {
        return SignatureOutcome::Absent;
    }
    let payloads = form::payloads(card);
    let mut worst = None;
    for signature in card.signatures.iter().take(SIGNATURES_MAX) {
        match verify_one(signature, &payloads, keys) {
            Ok((kid, form)) => return SignatureOutcome::Verified { kid, form },
            Err(why) => worst = worst.max(Some(why)),
        }
    }
    let why = worst.unwrap_or(WhyUnverifiable::Malformed("the card has no signature"));
    SignatureOutcome::Unverifiable(why)
}

/// Rejects a card that none of the keys has signed. Without keys every card is accepted.
///
/// # Errors
/// [`SignatureError`].
pub(in crate::client) fn check_signed(
    card: &AgentCard,
    keys: Option<&CardKeys>,
) -> Result<(), SignatureError> {
    let Some(keys) = keys else { return Ok(()) };
    match verify(card, keys) {
        SignatureOutcome::Verified { .. } => Ok(()),
        SignatureOutcome::Absent => Err(SignatureError::Absent),
        SignatureOutcome::Unverifiable(why) => Err(SignatureError::Unverifiable(why)),
    }
}

fn verify_one(
    signature: &CardSignature,
    payloads: &[(SignedForm, Vec<u8>)],
    keys: &CardKeys,
) -> Result<(String, SignedForm), WhyUnverifiable> {
    use WhyUnverifiable::{Algorithm, Malformed, Mismatch, NoKey};
    let header = decode(&signature.protected).ok_or(Malformed("protected is not base64url"))?;
    let header: Value = serde_json::from_slice(&header)
        .map_err(|_| Malformed("the protected header is not JSON"))?;
    let bytes = decode(&signature.signature).ok_or(Malformed("signature is not base64url"))?;
    let text = |name: &str| header.get(name).and_then(Value::as_str);
    // RFC 7515 §4.1.11: a critical extension that is not understood makes a signature invalid.
    if header.get("crit").is_some() {
        return Err(Malformed("the protected header requires an extension (crit)"));
    }
    let name = text("alg").ok_or(Malformed("the protected header has no alg"))?;
    let algorithm = key::algorithm(name).ok_or_else(|| Algorithm(shortened(name)))?;
    let kid = shortened(text("kid").unwrap_or_default());
    let mut fitting = keys.fitting(text("kid"), algorithm).peekable();
    if fitting.peek().is_none() {
        return Err(NoKey(kid));
    }
    let mut message = signature.protected.clone().into_bytes();
    message.push(b'.');
    let head_len = message.len();
    for key in fitting {
        for (form, payload) in payloads {
            message.truncate(head_len);
            message.extend_from_slice(encode(payload).as_bytes());
            if key.key.verifies(algorithm, &message, &bytes) {
                return Ok((kid, *form));
            }
        }
    }
    Err(Mismatch(kid))
}

fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(128).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
