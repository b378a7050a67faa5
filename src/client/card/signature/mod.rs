//! Signs cards, and verifies the signatures of a card (A2A 1.0 §8.4, RFC 7515, RFC 8785) with keys
//! that the caller has.
//!
//! Invariant: a key comes from the caller and from nowhere else: `jku` is never followed, and a key
//! in a signature's header means nothing. The key says which algorithms fit, not the signature;
//! `none` and the HMACs fit no key. A card of 1.0 is verified in the form in which it was read, so
//! that what a client acts on is what was signed.

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

/// What came of the verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureOutcome {
    /// A signature is good.
    Verified {
        /// The `kid` of its header; empty: it has none.
        kid: String,
        /// Over which form of the card it was made.
        form: SignedForm,
    },
    /// There are signatures, and none that is good.
    Unverifiable(WhyUnverifiable),
    /// The card is not signed, which it need not be.
    Absent,
}

/// Why a card is refused whose signature is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureError {
    /// It is not signed.
    Absent,
    /// It is signed, and not by a key of the caller, or it is another card than was signed
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

/// Why no signature is good: of several reasons the one that came nearest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyUnverifiable {
    /// The signature has not the form of one; what is wrong.
    Malformed(&'static str),
    /// Its algorithm is none that proves anything, or unknown.
    Algorithm(String),
    /// No key of the caller has this `kid` and fits the algorithm.
    NoKey(String),
    /// The key does not say so: the card was changed, or signed with another key.
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
            WhyUnverifiable::NoKey(kid) => write!(f, "no key was given for kid {kid:?}"),
            WhyUnverifiable::Mismatch(kid) => {
                write!(f, "the signature for kid {kid:?} does not match the card")
            }
        }
    }
}

/// Signatures of a card that are looked at; each costs a verification for each form and key.
pub const SIGNATURES_MAX: usize = 16;

/// Verifies a card: one good signature is enough (A2A 1.0 §8.4.3).
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
    let why = worst.unwrap_or(WhyUnverifiable::Malformed("it has no signature"));
    SignatureOutcome::Unverifiable(why)
}

/// Refuses a card that none of the keys has signed. Without keys every card is good.
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
    // RFC 7515 §4.1.11: what must be understood and is not makes a signature invalid.
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
