//! The secret of a configuration with scheme `StandardWebhooks`, and its signatures
//! (<https://www.standardwebhooks.com>, "Symmetric", HMAC with SHA-256).
//!
//! Invariant: each configuration has its own secret, chosen by its owner. The secret is never sent,
//! and signs only posts of its configuration.

use ring::hmac;
use zeroize::Zeroizing;

use super::fields::FieldError;
use crate::json::base64;

/// The scheme of such a configuration, case-insensitive (RFC 9110 §11.1).
pub const SCHEME: &str = "StandardWebhooks";

/// The optional prefix of a secret.
const PREFIX: &str = "whsec_";

/// Bytes of a secret: 192 to 512 bits.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret, ready to sign.
pub struct WebhookSecret(hmac::Key);

/// Reads a secret.
///
/// # Errors
/// [`FieldError`]: the text is not padded base64 (RFC 4648 §4), or the secret is too short or too
/// long. Libraries of Standard Webhooks decode other forms to different secrets.
pub fn secret(credentials: &str) -> Result<WebhookSecret, FieldError> {
    let credentials = credentials.trim();
    let text = credentials.strip_prefix(PREFIX).unwrap_or(credentials);
    let bytes = base64::decode(text).map(Zeroizing::new);
    let is_good = |bytes: &Zeroizing<Vec<u8>>| {
        SECRET_BYTES.contains(&bytes.len()) && *Zeroizing::new(base64::encode(bytes)) == text
    };
    let bytes = bytes.filter(is_good).ok_or(FieldError {
        member: "authentication.credentials",
        must: "must be a secret of Standard Webhooks: whsec_ and 24 to 64 bytes in base64",
    })?;
    Ok(WebhookSecret(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
}

impl WebhookSecret {
    /// A signature over a content in pieces, in the format of `webhook-signature`.
    pub fn sign(&self, pieces: &[&[u8]]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        pieces.iter().for_each(|piece| context.update(piece));
        format!("v1,{}", base64::encode(context.sign().as_ref()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The test vector of the reference libraries; Python's `hmac` has the same result.
    #[test]
    fn signature_matches_the_reference_test_vector() {
        for prefix in ["", PREFIX] {
            let secret = secret(&format!("{prefix}MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).unwrap();
            let id = b"msg_p5jXN8AQM9LWM0D4loKWxJek";
            let body = br#"{"test": 2432232314}"#;
            let signature = secret.sign(&[id, b".", b"1614265330", b".", body]);
            assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        }
    }

    #[test]
    fn secret_must_be_24_to_64_bytes_in_padded_base64() {
        for len in [24, 25, 64] {
            assert!(secret(&base64::encode(&vec![0xfb; len])).is_ok(), "{len}");
        }
        let plain = base64::encode(&[0xfb; 25]);
        let url = plain.replace('+', "-").replace('/', "_");
        for bad in [
            "",
            "whsec_",
            "secret",
            &base64::encode(&[1; 23]),
            &base64::encode(&[1; 65]),
            plain.trim_end_matches('='),
            &url,
            &format!("whsec_whsec_{plain}"),
            &format!("whsk_{plain}"),
            // The last digit has bits after the last byte.
            &plain.replace("w==", "x=="),
        ] {
            let error = secret(bad).err().unwrap();
            assert_eq!(error.member, "authentication.credentials", "{bad}");
        }
    }
}
