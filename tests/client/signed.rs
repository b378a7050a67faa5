//! Signed cards, for callers that require a certain signer.

use std::sync::{Arc, Mutex};

use peregrine::{
    client::{
        Client, ClientBuilder, ClientError, ClientErrorKind,
        card::{AgentCard, CardKeys, SignatureError, WhyUnverifiable},
    },
    json::base64,
};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};

use crate::scripted::{Reply, Scripted, settled};

const AGENT: &str = "https://a.example";

fn encode(bytes: &[u8]) -> String {
    base64::encode(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

pub struct Signer(Ed25519KeyPair);

impl Signer {
    pub fn new() -> Signer {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    pub fn keys(&self) -> CardKeys {
        let x = encode(self.0.public_key().as_ref());
        let jwk = format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}","kid":"ed"}}"#);
        CardKeys::read(jwk.as_bytes()).unwrap()
    }

    /// A card with a signature over it.
    pub fn sign(&self, card: &str) -> String {
        let protected = encode(br#"{"alg":"EdDSA","kid":"ed"}"#);
        let message = format!("{protected}.{}", encode(card.as_bytes()));
        let signature = encode(self.0.sign(message.as_bytes()).as_ref());
        let card = card.strip_suffix('}').unwrap();
        format!(
            r#"{card},"signatures":[{{"protected":"{protected}","signature":"{signature}"}}]}}"#
        )
    }
}

/// A card as RFC 8785 writes it.
pub fn card(description: &str) -> String {
    let interface =
        format!(r#"{{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"{AGENT}/"}}"#);
    format!(
        concat!(
            r#"{{"capabilities":{{"extendedAgentCard":true}},"defaultInputModes":[],"#,
            r#""defaultOutputModes":[],"description":"{}","name":"A","skills":[],"#,
            r#""supportedInterfaces":[{}],"version":"1"}}"#
        ),
        description, interface
    )
}

/// The same card with a changed word, under the same signature.
fn tampered(card: &str) -> String {
    card.replace(r#""name":"A""#, r#""name":"B""#)
}

fn discovered(keys: Option<CardKeys>, card: &str) -> Result<Client<Scripted>, ClientError> {
    let card = card.to_owned();
    let transport = Scripted::new(move |_| Reply::json(&card));
    let builder = ClientBuilder::new();
    let builder = match keys {
        Some(keys) => builder.card_keys(keys),
        None => builder,
    };
    settled(builder.discover_over(transport, AGENT))
}

fn mismatch() -> ClientErrorKind {
    let why = WhyUnverifiable::Mismatch("ed".to_owned());
    ClientErrorKind::CardSignature(SignatureError::Unverifiable(why))
}

#[test]
fn card_without_valid_signature_of_caller_key_is_rejected() {
    let signer = Signer::new();
    let signed = signer.sign(&card("x"));
    let client = discovered(Some(signer.keys()), &signed).unwrap();
    assert_eq!(client.card().name, "A");
    let refused = |keys: CardKeys, card: &str| {
        let error = discovered(Some(keys), card).map(|_| ()).unwrap_err();
        let read = AgentCard::read(card.as_bytes()).unwrap();
        assert!(discovered(None, card).is_ok(), "without keys nobody asks");
        // A card passed directly gets no exemption.
        let transport = Scripted::new(|_| unreachable!("it is here"));
        let builder = ClientBuilder::new().card_keys(signer.keys());
        let connected = builder.connect_over(transport, read, None).map(|_| ());
        (error.kind.clone(), connected.map_err(|error| error.kind.clone()))
    };
    let absent = ClientErrorKind::CardSignature(SignatureError::Absent);
    assert_eq!(refused(signer.keys(), &card("x")), (absent.clone(), Err(absent)));
    assert_eq!(refused(signer.keys(), &tampered(&signed)), (mismatch(), Err(mismatch())));
    assert_eq!(refused(Signer::new().keys(), &signed), (mismatch(), Ok(())));
    let unknown = WhyUnverifiable::NoKey("ed".to_owned());
    let unknown = ClientErrorKind::CardSignature(SignatureError::Unverifiable(unknown));
    assert_eq!(refused(CardKeys::default(), &signed), (unknown, Ok(())));
}

#[test]
fn signatures_of_the_python_sdk_are_accepted() {
    let fixture = include_str!("../data/cards/signed_py_1.3.json");
    let fixture: serde_json::Value = serde_json::from_str(fixture).unwrap();
    let keys = CardKeys::read(fixture["keys"].to_string().as_bytes()).unwrap();
    let card = fixture["cards"][0].to_string();
    assert!(discovered(Some(keys.clone()), &card).is_ok());
    let changed = card.replace("https://a.example/", "https://b.example/");
    let error = discovered(Some(keys), &changed).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("no signature of the card is valid"), "{error}");
}

/// The verified card stays, and is revalidated with its own server's validator.
#[test]
fn refreshed_and_extended_cards_are_verified() {
    let signer = Signer::new();
    let (first, second) = (signer.sign(&card("x")), signer.sign(&card("y")));
    let served = Arc::new(Mutex::new(("\"1\"", first)));
    let serving = Arc::clone(&served);
    let transport = Scripted::new(move |request| {
        let (etag, card) = &*serving.lock().unwrap();
        match str::from_utf8(request.body).unwrap() {
            "" => Reply::of(200, &[("etag", etag)], card),
            call => {
                let id = call.split(r#""id":"#).nth(1).unwrap().split(',').next().unwrap();
                Reply::json(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{card}}}"#))
            }
        }
    });
    let builder = ClientBuilder::new().card_keys(signer.keys());
    let client = settled(builder.discover_over(transport, AGENT)).unwrap();
    *served.lock().unwrap() = ("\"2\"", tampered(&second));
    assert_eq!(settled(client.refresh_card()).unwrap_err().kind, mismatch());
    assert_eq!(settled(client.extended_card()).unwrap_err().kind, mismatch());
    assert_eq!((&*client.card().name, &*client.card().description), ("A", "x"));
    *served.lock().unwrap() = ("\"3\"", second);
    assert!(settled(client.refresh_card()).unwrap());
    assert_eq!(client.card().description, "y");
    let fields = client.transport().fields.lock().unwrap().clone();
    assert!(fields.last().unwrap().contains("If-None-Match: \"1\""), "{fields:?}");
    *served.lock().unwrap() = ("\"4\"", signer.sign(&card("z")));
    assert_eq!(settled(client.extended_card()).unwrap().description, "z");
    assert_eq!(client.card().description, "z");
}
