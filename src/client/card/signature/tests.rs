//! Signatures of the Python SDK, and signatures created here.

use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};

use super::*;

const PY_1_3: &str = include_str!("../../../../tests/data/cards/signed_py_1.3.json");
const PY_1_1: &str = include_str!("../../../../tests/data/cards/signed_py_1.1.json");

const CARD: &str = r#"{"name":"Ä","description":"","version":"1","capabilities":{"streaming":false},
    "supportedInterfaces":[{"url":"https://a/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
    "defaultInputModes":[],"defaultOutputModes":["a/b"],"skills":[]"#;

fn read(json: &str) -> AgentCard {
    AgentCard::read(json.as_bytes()).unwrap()
}

struct Signer {
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let ec = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Signer {
            ec: EcdsaKeyPair::from_pkcs8(algorithm, ec.as_ref(), &random).unwrap(),
            ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap(),
        }
    }

    fn keys(&self) -> String {
        let point = self.ec.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        let ed = encode(self.ed.public_key().as_ref());
        format!(
            r#"{{"keys":[{{"kty":"oct","k":"AA","kid":"h"}},
            {{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","kid":"ec","use":"sig","alg":"ES256"}},
            {{"kty":"OKP","crv":"Ed25519","x":"{ed}","kid":"ed"}}]}}"#
        )
    }

    /// A signature under this header over this payload, as a member of `signatures`.
    fn sign(&self, header: &str, payload: &[u8]) -> String {
        let protected = encode(header.as_bytes());
        let message = format!("{protected}.{}", encode(payload));
        let signature = match header.contains("EdDSA") {
            true => encode(self.ed.sign(message.as_bytes()).as_ref()),
            false => {
                let random = SystemRandom::new();
                encode(self.ec.sign(&random, message.as_bytes()).unwrap().as_ref())
            }
        };
        format!(r#"{{"protected":"{protected}","signature":"{signature}"}}"#)
    }

    fn outcome(&self, card: &str, signatures: &[String]) -> SignatureOutcome {
        let keys = CardKeys::read(self.keys().as_bytes()).unwrap();
        let json = format!(r#"{card},"signatures":[{}]}}"#, signatures.join(","));
        verify(&read(&json), &keys)
    }
}

/// The payloads of the card without signatures.
fn payload(card: &str, form: SignedForm) -> Vec<u8> {
    let payloads = form::payloads(&read(&format!("{card}}}")));
    payloads.into_iter().find(|(one, _)| *one == form).unwrap().1
}

#[test]
fn python_sdk_signature_is_verified_unless_card_was_changed() {
    for (fixture, form) in [(PY_1_3, SignedForm::Cleaned), (PY_1_1, SignedForm::CleanedEscaped)] {
        let fixture: Value = serde_json::from_str(fixture).unwrap();
        let keys = CardKeys::read(fixture["keys"].to_string().as_bytes()).unwrap();
        let cards = fixture["cards"].as_array().unwrap();
        assert!(cards.len() >= 2);
        for (card, (kid, pem)) in cards.iter().zip(fixture["pem"].as_object().unwrap()) {
            let json = card.to_string();
            let SignatureOutcome::Verified { form: found, .. } = verify(&read(&json), &keys) else {
                panic!("{json}");
            };
            assert_eq!(found, form);
            let changed = json.replace("https://a.example/", "https://b.example/");
            let outcome = verify(&read(&changed), &keys);
            let SignatureOutcome::Unverifiable(WhyUnverifiable::Mismatch(_)) = outcome else {
                panic!("{outcome:?}");
            };
            // Each key in PEM verifies the card that it signed, and no other.
            let pem = CardKeys::read(pem.as_str().unwrap().as_bytes()).unwrap();
            let verified = cards.iter().filter_map(|card| {
                let SignatureOutcome::Verified { kid, .. } = verify(&read(&card.to_string()), &pem)
                else {
                    return None;
                };
                Some(kid)
            });
            assert_eq!(verified.collect::<Vec<_>>(), [kid.as_str()]);
        }
    }
}

#[test]
fn each_signed_form_is_verified_and_reported() {
    let signer = Signer::new();
    let header = r#"{"alg":"ES256","kid":"ec","typ":"JOSE"}"#;
    for form in [SignedForm::Strict, SignedForm::Cleaned, SignedForm::CleanedEscaped] {
        let signature = signer.sign(header, &payload(CARD, form));
        let verified = SignatureOutcome::Verified { kid: "ec".to_owned(), form };
        assert_eq!(signer.outcome(CARD, &[signature]), verified);
    }
    let vendor = format!(r#"{CARD},"vendor":{{"x":[]}}"#);
    let signature =
        signer.sign(r#"{"alg":"EdDSA","kid":"ed"}"#, &payload(&vendor, SignedForm::AsServed));
    let form = SignedForm::AsServed;
    let verified = SignatureOutcome::Verified { kid: "ed".to_owned(), form };
    assert_eq!(signer.outcome(&vendor, &[signature]), verified);
    // A2A 1.0 §8.4.1: required members are present even if empty, other members if the card has
    // them.
    let strict = concat!(
        r#"{"capabilities":{"streaming":false},"defaultInputModes":[],"#,
        r#""defaultOutputModes":["a/b"],"description":"","name":"Ä","skills":[],"#,
        r#""supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","#,
        r#""url":"https://a/"}],"version":"1"}"#
    );
    assert_eq!(payload(CARD, SignedForm::Strict), strict.as_bytes());
    let escaped = payload(CARD, SignedForm::CleanedEscaped);
    assert!(str::from_utf8(&escaped).unwrap().contains(r#""name":"\u00c4""#));
}

#[test]
fn one_valid_signature_suffices_and_none_is_absent() {
    let signer = Signer::new();
    let strict = payload(CARD, SignedForm::Strict);
    let good = signer.sign(r#"{"alg":"EdDSA","kid":"ed"}"#, &strict);
    let bad = signer.sign(r#"{"alg":"ES256","kid":"ec"}"#, b"another");
    let outcome = signer.outcome(CARD, &[bad.clone(), "{}".to_owned(), good]);
    assert!(matches!(outcome, SignatureOutcome::Verified { .. }));
    assert_eq!(signer.outcome(CARD, &[]), SignatureOutcome::Absent);
    let mismatch = WhyUnverifiable::Mismatch("ec".to_owned());
    let outcome = signer.outcome(CARD, &["{}".to_owned(), bad]);
    assert_eq!(outcome, SignatureOutcome::Unverifiable(mismatch));
}

#[test]
fn signature_with_unusable_header_is_unverifiable() {
    let signer = Signer::new();
    let strict = payload(CARD, SignedForm::Strict);
    let algorithm = |name: &str| WhyUnverifiable::Algorithm(name.to_owned());
    let no_key = |kid: &str| WhyUnverifiable::NoKey(kid.to_owned());
    for (header, why) in [
        (r#"{"alg":"none","kid":"ec"}"#, algorithm("none")),
        (r#"{"alg":"HS256","kid":"h"}"#, algorithm("HS256")),
        (r#"{"alg":"es256","kid":"ec"}"#, algorithm("es256")),
        // A key of another kind, the name of another key, a key in the header.
        (r#"{"alg":"ES256","kid":"ed"}"#, no_key("ed")),
        (r#"{"alg":"RS256","kid":"ec"}"#, no_key("ec")),
        (r#"{"alg":"ES256","kid":"x","jku":"https://evil/","jwk":{}}"#, no_key("x")),
        (
            r#"{"alg":"ES256","kid":"ec","crit":["b64"],"b64":false}"#,
            WhyUnverifiable::Malformed("the protected header requires an extension (crit)"),
        ),
        ("{}", WhyUnverifiable::Malformed("the protected header has no alg")),
        ("x", WhyUnverifiable::Malformed("the protected header is not JSON")),
    ] {
        let signature = signer.sign(header, &strict);
        let outcome = signer.outcome(CARD, &[signature]);
        assert_eq!(outcome, SignatureOutcome::Unverifiable(why), "{header}");
    }
}

#[test]
fn unsigned_members_add_no_interface_to_1_0_card() {
    let signer = Signer::new();
    let signature =
        signer.sign(r#"{"alg":"EdDSA","kid":"ed"}"#, &payload(CARD, SignedForm::Strict));
    let hybrid = format!(r#"{CARD},"url":"https://evil/","protocolVersion":"0.3.0""#);
    let outcome = signer.outcome(&hybrid, &[signature]);
    assert!(matches!(outcome, SignatureOutcome::Verified { .. }));
    assert_eq!(read(&format!("{hybrid}}}")).interfaces.len(), 1);
}

#[test]
fn documents_without_usable_keys_are_refused() {
    for (document, error) in [
        ("", KeyError::Unreadable),
        ("\u{1}", KeyError::Unreadable),
        ("{}", KeyError::NoKey),
        (r#"{"keys":[{"kty":"oct","k":"AA"}]}"#, KeyError::NoKey),
        (r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#, KeyError::NoKey),
        (r#"{"kty":"RSA","n":"AAAA","e":"AQAB","use":"enc"}"#, KeyError::NoKey),
        (r#"{"kty":"RSA","n":"AAAA","e":"AQAB","key_ops":["encrypt"]}"#, KeyError::NoKey),
        (r#"{"kty":"RSA","n":"AAAA","e":"AQAB","alg":"RSA-OAEP"}"#, KeyError::NoKey),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", KeyError::NoKey),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", KeyError::NoKey),
    ] {
        assert_eq!(CardKeys::read(document.as_bytes()).unwrap_err(), error, "{document}");
    }
    let many = vec![r#"{"kty":"RSA","n":"AAAA","e":"AQAB"}"#; 65].join(",");
    let error = CardKeys::read(format!(r#"{{"keys":[{many}]}}"#).as_bytes()).unwrap_err();
    assert_eq!(error, KeyError::TooMany(64));
}
