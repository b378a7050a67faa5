//! Signatures of posts: the JWT of the sample of 0.1 (wire §6), and Standard Webhooks.
//!
//! Invariant: a signature is for one post, to one origin, at one time; each attempt has new
//! signatures. `Authorization` is for the authentication of the configuration (A2A 1.0 §13.2); if
//! the configuration has any, the JWT is in a separate field.

use super::{
    fields,
    standard_webhooks::{self, WebhookSecret},
};
use crate::{http::FieldLinesBuf, model::PushConfig};

/// The field of the JWT if the configuration uses `Authorization`.
pub const JWT_FIELD: &str = "X-A2A-Notification-JWT";

/// The signed parts of a post.
#[derive(Clone, Copy, Debug)]
pub struct SignedPost<'p> {
    /// The same id for each attempt: visible ASCII without a full stop, which separates the signed
    /// parts.
    pub id: &'p str,
    /// The time of the attempt.
    pub unix_ms: u64,
    /// The task.
    pub task_id: &'p str,
    /// The origin of the webhook, such as `https://hooks.example`.
    pub audience: &'p str,
    /// The content as it is sent.
    pub body: &'p [u8],
}

impl SignedPost<'_> {
    /// The time of the attempt, in s.
    pub fn unix_s(&self) -> u64 {
        self.unix_ms / 1_000
    }
}

/// Signs posts with the operator's keys.
///
/// The webhook worker calls it once for each attempt, possibly from several threads at once.
pub trait PostSigner: Send + Sync {
    /// A JWT about the post (RFC 7519); `None`: the signer has no key for it.
    fn jwt(&self, post: &SignedPost<'_>) -> Option<String>;

    /// A signature of Standard Webhooks over this content, as `v1a,` and base64; `None`: the signer
    /// has no key for it.
    fn signature(&self, content: &[u8]) -> Option<String>;

    /// The public keys, as a JWK set (RFC 7517 §5), which never changes.
    fn jwks(&self) -> &[u8];
}

/// Whether posts are signed.
pub fn is_requested(config: PushConfig<'_>, signer: Option<&dyn PostSigner>) -> bool {
    signer.is_some() || fields::is_standard_webhooks(config)
}

/// Appends the signature fields of a post, if the operator or the configuration requires any.
pub fn put(
    out: &mut FieldLinesBuf,
    config: PushConfig<'_>,
    post: &SignedPost<'_>,
    signer: Option<&dyn PostSigner>,
) {
    if let Some(jwt) = signer.and_then(|signer| signer.jwt(post)) {
        match fields::is_authenticated(config) {
            true => out.push(JWT_FIELD, &jwt),
            false => out.push_pieces("Authorization", &["Bearer ", &jwt]),
        }
    }
    let signatures = signatures(config, post, signer);
    if !signatures.is_empty() {
        out.push("webhook-id", post.id);
        out.push("webhook-timestamp", &post.unix_s().to_string());
        out.push("webhook-signature", &signatures.join(" "));
    }
}

/// The signatures with the configuration's secret and with the operator's key, in this order.
fn signatures(
    config: PushConfig<'_>,
    post: &SignedPost<'_>,
    signer: Option<&dyn PostSigner>,
) -> Vec<String> {
    let head = format!("{}.{}.", post.id, post.unix_s());
    // The secret was checked when the webhook was configured.
    let secret: Option<WebhookSecret> =
        fields::webhook_secret(config).and_then(|text| standard_webhooks::secret(&text).ok());
    let own = secret.map(|secret| secret.sign(&[head.as_bytes(), post.body]));
    let operators =
        signer.and_then(|signer| signer.signature(&[head.as_bytes(), post.body].concat()));
    own.into_iter().chain(operators).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::PushConfigBuf;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const V1: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const POST: SignedPost<'static> = SignedPost {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        unix_ms: 1_614_265_330_999,
        task_id: "t-1",
        audience: "https://hooks.example",
        body: br#"{"test": 2432232314}"#,
    };

    /// A signer with these keys.
    struct Signer {
        jwt: bool,
        ed25519: bool,
    }

    impl PostSigner for Signer {
        fn jwt(&self, post: &SignedPost<'_>) -> Option<String> {
            self.jwt.then(|| format!("jwt-{}", post.task_id))
        }

        fn signature(&self, content: &[u8]) -> Option<String> {
            let begin = b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{";
            assert!(content.starts_with(begin) && content.ends_with(POST.body));
            self.ed25519.then(|| "v1a,ed".to_owned())
        }

        fn jwks(&self) -> &[u8] {
            b"{}"
        }
    }

    fn config() -> PushConfigBuf {
        PushConfigBuf::new("https://hooks.example/x")
    }

    /// All fields of a post.
    fn lines(config: &PushConfigBuf, signer: Option<&dyn PostSigner>) -> Vec<String> {
        assert_eq!(fields::check(config.view()), Ok(()));
        let mut out = FieldLinesBuf::default();
        fields::put(&mut out, config.view());
        put(&mut out, config.view(), &POST, signer);
        out.get().iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }

    fn standard(signatures: &str) -> [String; 3] {
        [
            format!("webhook-id: {}", POST.id),
            "webhook-timestamp: 1614265330".to_owned(),
            format!("webhook-signature: {signatures}"),
        ]
    }

    #[test]
    fn posts_are_unsigned_by_default() {
        assert!(lines(&config(), None).is_empty());
        assert!(lines(&config(), Some(&Signer { jwt: false, ed25519: false })).is_empty());
    }

    #[test]
    fn jwt_does_not_replace_a_configured_authorization() {
        let signer = Signer { jwt: true, ed25519: false };
        let all = |config: &PushConfigBuf| lines(config, Some(&signer));
        assert_eq!(all(&config()), ["Authorization: Bearer jwt-t-1"]);
        // A scheme without credentials requests the server's own credentials (wire §6).
        let scheme = config().authentication("Bearer", "");
        assert_eq!(all(&scheme), ["Authorization: Bearer jwt-t-1"]);
        let jwt = format!("{JWT_FIELD}: jwt-t-1");
        assert_eq!(all(&config().bearer("s")), ["Authorization: Bearer s", &jwt]);
        let own = config().header("authorization", "s");
        assert_eq!(all(&own), ["authorization: s", &jwt]);
        let secret = config().authentication("StandardWebhooks", SECRET);
        assert_eq!(all(&secret)[0], jwt);
    }

    #[test]
    fn webhook_secret_signs_and_is_not_sent() {
        for scheme in ["StandardWebhooks", "standardwebhooks"] {
            let config = config().authentication(scheme, SECRET);
            assert_eq!(lines(&config, None), standard(V1));
        }
    }

    #[test]
    fn secret_and_operator_signatures_share_one_field() {
        let signer = Signer { jwt: false, ed25519: true };
        assert_eq!(lines(&config(), Some(&signer)), standard("v1a,ed"));
        let config = config().authentication("StandardWebhooks", SECRET);
        assert_eq!(lines(&config, Some(&signer)), standard(&format!("{V1} v1a,ed")));
    }
}
