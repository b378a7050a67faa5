//! The callers of the scenarios, their credentials, and servers that accept these.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ED25519, SigningKey, date_time_ymd};
use ring::hmac;
use serde_json::{Value, json};
use tokio_rustls::rustls::ClientConfig;

use super::{
    certificates::{Authority, Issued},
    exchange::Approach,
    place::Endpoint,
    server::Server,
};
use crate::support::binary::Binary;

/// A kind of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In `X-API-Key`.
    Key,
    /// In a field that the configuration names.
    NamedKey,
    Bearer,
    /// Signed with a shared secret.
    Jwt,
    /// Signed with a private key; the server has the public one.
    SignedJwt,
    Proxy,
    Certificate,
}

/// The credential of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The caller presents no credential.
    Absent,
    /// Presents an unknown credential.
    Wrong,
    /// Presents an expired credential.
    Expired,
    /// May read, and nothing else.
    Reader,
    /// May read and send.
    Right,
}

/// Servers that require credentials.
pub struct Guarded {
    /// Without TLS: keys, tokens, a proxy.
    pub plain: Server,
    /// With TLS: keys in a field of another name, and certificates.
    pub secure: Server,
    authority: Authority,
}

/// Tenants of every authenticated caller; the first is the default.
pub const TENANTS: [&str; 2] = ["acme", "other"];

/// Trusted issuers.
pub const ISSUERS: [&str; 2] = ["https://issuer.example", "https://second.example"];

/// An issuer that signs with [`SIGNING_KEY`].
const SIGNING_ISSUER: &str = "https://signing.example";

/// Ed25519, for `EdDSA` signatures (RFC 8037 §3.1).
static SIGNING_KEY: LazyLock<KeyPair> =
    LazyLock::new(|| KeyPair::generate_for(&PKCS_ED25519).expect("a key"));

const AUDIENCE: &str = "https://agents.example";
const SECRET: &str = "0123456789abcdef0123456789abcdef";
const READ: &str = "a2a:read";
const READ_AND_SEND: &str = "a2a:read a2a:send";

impl Kind {
    pub const PLAIN: [Kind; 5] = [Kind::Key, Kind::Bearer, Kind::Jwt, Kind::SignedJwt, Kind::Proxy];
    pub const SECURE: [Kind; 2] = [Kind::NamedKey, Kind::Certificate];
}

/// The dialects with their own path, each mounted at its name.
pub const MOUNTED: [&str; 6] =
    ["langsmith", "evo_ai", "rabbithole", "a2a_rust", "tutorial", "fasta2a"];

/// A list of TOML.
fn list(items: &[&str]) -> String {
    format!("{items:?}")
}

/// The accepted secrets, as sections of the configuration.
fn secrets(section: &str, member: &str) -> String {
    let both = list(&READ_AND_SEND.split(' ').collect::<Vec<_>>());
    let (tenants, read) = (list(&TENANTS), list(&[READ]));
    let one = |name: &str, scopes: &str, more: &str| {
        format!(
            "[[auth.{section}]]\nname = \"{name}\"\n{member} = \"{member}-of-caller-{name}\"\n\
             tenants = {tenants}\nscopes = {scopes}\n{more}"
        )
    };
    let late = "expires = \"2001-02-03T04:05:06Z\"\n";
    [one("right", &both, ""), one("reader", &read, ""), one("late", &both, late)].concat()
}

/// Shared by both servers: the agent at every path.
pub fn agent_sections() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/interop.toml");
    let mounts =
        MOUNTED.map(|name| format!("[[mounts]]\npath = \"/{name}\"\ndialect = \"{name}\"\n"));
    format!("[agents.scenarios]\nscript = \"{script}\"\n{}", mounts.concat())
}

/// The folder of the configurations.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Starts the binary with this configuration.
pub fn configured(name: &str, text: &str) -> Binary {
    let file = folder().join(format!("{name}.toml"));
    fs::write(&file, text).expect("a file");
    Binary::start(&["--config", file.to_str().expect("UTF-8")])
}

/// The issuer that signs, as a section of the configuration.
fn signing_issuer(name: &str) -> String {
    let file = folder().join(format!("{name}.pem"));
    fs::write(&file, SIGNING_KEY.public_key_pem()).expect("a file");
    format!(
        "[[auth.issuers]]\nissuer = \"{SIGNING_ISSUER}\"\naudiences = [\"{AUDIENCE}\"]\n\
         keys_file = \"{}\"\ntenants_claim = \"tenants\"\n",
        file.to_str().expect("UTF-8")
    )
}

/// The issuers, as sections of the configuration.
fn issuers() -> String {
    let one = |issuer: &str| {
        format!(
            "[[auth.issuers]]\nissuer = \"{issuer}\"\naudiences = [\"{AUDIENCE}\"]\n\
             secret = \"{SECRET}\"\ntenants_claim = \"tenants\"\n"
        )
    };
    ISSUERS.map(one).concat()
}

/// Issuers, and a key of a caller with all scopes.
pub fn auth_sections(name: &str) -> String {
    let (issuers, tenants) = (issuers(), list(&TENANTS));
    format!(
        "{issuers}[[auth.api_keys]]\nname = \"{name}\"\nkey = \"key-of-caller-{name}\"\n\
         tenants = {tenants}\nscopes = [\"a2a:read\", \"a2a:send\", \"a2a:cancel\"]\n"
    )
}

fn plain(name: &str) -> Server {
    let text = format!(
        "tenants = \"any\"\ntrusted_proxies = [\"127.0.0.1/32\"]\n[auth]\nask_scopes = true\n\
         {}{}{}{}[auth.proxy]\nnetworks = [\"127.0.0.1/32\"]\nname_header = \"X-User\"\n\
         scopes_header = \"X-Scopes\"\ntenants_header = \"X-Tenants\"\n{}",
        secrets("api_keys", "key"),
        secrets("bearer_tokens", "token"),
        issuers(),
        signing_issuer(name),
        agent_sections(),
    );
    let binary = configured(&format!("{name}-plain"), &text);
    let endpoint = Endpoint { addr: binary.addr(), trust: None, authority: None };
    Server { binary, endpoint }
}

fn secure(name: &str, authority: &Authority) -> Server {
    let issued = authority.server("server");
    let file = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let text = format!(
        "tenants = \"any\"\ntrusted_proxies = [\"127.0.0.1/32\"]\n\
         [tls]\ncert = \"{}\"\nkey = \"{}\"\nclient_ca = \"{}\"\n\
         [auth]\nask_scopes = true\napi_key_header = \"X-Robot-Key\"\n{}\
         [auth.certificates]\ntenants = {}\nscopes = {}\n{}",
        file(&issued.cert_file),
        file(&issued.key_file),
        file(&authority.file()),
        secrets("api_keys", "key"),
        list(&TENANTS),
        list(&READ_AND_SEND.split(' ').collect::<Vec<_>>()),
        agent_sections(),
    );
    let binary = configured(&format!("{name}-secure"), &text);
    let trust = Some(Arc::new(authority.without_certificate()));
    let endpoint = Endpoint { addr: binary.addr(), trust, authority: Some(authority.file()) };
    Server { binary, endpoint }
}

impl Guarded {
    pub fn start(name: &str) -> Guarded {
        let authority = Authority::new(&format!("guarded-{name}"));
        let (plain, secure) = (plain(name), secure(name, &authority));
        Guarded { plain, secure, authority }
    }

    /// The certificates of clients, and whether TLS accepts them: none, one of its authority, an
    /// expired one, one of another authority.
    pub fn certificates(&self) -> Vec<(ClientConfig, bool)> {
        let other = Authority::new("guarded-by-nobody");
        let with = |issued: Issued| {
            let trusting = self.authority.trusting();
            trusting.with_client_auth_cert(vec![issued.cert], issued.key).expect("a certificate")
        };
        let mut ended = CertificateParams::new([]).expect("a certificate");
        ended.distinguished_name.push(DnType::CommonName, "right");
        ended.not_after = date_time_ymd(2001, 2, 3);
        ended.not_before = date_time_ymd(2001, 2, 2);
        vec![
            (self.authority.without_certificate(), true),
            (with(self.authority.client("known", Some("right"), &[])), true),
            (with(self.authority.issue("ended", ended)), false),
            (with(other.client("foreign", Some("right"), &[])), false),
        ]
    }

    pub fn server(&self, kind: Kind) -> &Server {
        if Kind::PLAIN.contains(&kind) { &self.plain } else { &self.secure }
    }

    /// The address and the credential of a caller; `None`: the kind has no such caller.
    pub fn caller(&self, kind: Kind, credential: Credential) -> Option<(Endpoint, Approach)> {
        let mut endpoint = self.server(kind).endpoint.clone();
        if kind == Kind::Certificate && credential != Credential::Absent {
            let name = match credential {
                Credential::Right => Some("right"),
                // A certificate without a name.
                Credential::Wrong => None,
                // All certificates have the same scopes, and TLS refuses an expired one.
                Credential::Absent | Credential::Expired | Credential::Reader => return None,
            };
            let issued = self.authority.client(&format!("{credential:?}"), name, &[]);
            let trusting = self.authority.trusting();
            let config = trusting.with_client_auth_cert(vec![issued.cert], issued.key);
            endpoint.trust = Some(Arc::new(config.expect("a certificate")));
        }
        let mut fields = shown(kind, credential)?;
        // Each caller has its own address, which no wrong credential has blocked.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Relaxed);
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + number);
        fields.push(("X-Forwarded-For", address.to_string()));
        Some((endpoint, Approach::with(&fields)))
    }
}

/// The fields with a caller's credential; `None`: the kind has no such caller.
fn shown(kind: Kind, credential: Credential) -> Option<Vec<(&'static str, String)>> {
    let name = match credential {
        Credential::Absent => return Some(Vec::new()),
        Credential::Wrong => "wrong",
        Credential::Expired => "late",
        Credential::Reader => "reader",
        Credential::Right => "right",
    };
    let scopes = if credential == Credential::Reader { READ } else { READ_AND_SEND };
    Some(match kind {
        Kind::Key => vec![("X-API-Key", format!("key-of-caller-{name}"))],
        Kind::NamedKey => vec![("X-Robot-Key", format!("key-of-caller-{name}"))],
        Kind::Bearer => vec![("Authorization", format!("Bearer token-of-caller-{name}"))],
        Kind::Jwt | Kind::SignedJwt => {
            let lives_s = if credential == Credential::Expired { -61 } else { 3600 };
            let issuer = if kind == Kind::Jwt { ISSUERS[0] } else { SIGNING_ISSUER };
            let mut token = token_of(issuer, name, scopes, &TENANTS, lives_s);
            if credential == Credential::Wrong {
                let first = token.rfind('.').expect("three parts") + 1;
                let other = if token[first..].starts_with('A') { "B" } else { "A" };
                token.replace_range(first..=first, other);
            }
            vec![("Authorization", format!("Bearer {token}"))]
        }
        // With two, the client may have added one itself.
        Kind::Proxy if credential == Credential::Wrong => {
            vec![("X-User", "right".to_owned()), ("X-User", "right".to_owned())]
        }
        Kind::Proxy if credential == Credential::Expired => return None,
        Kind::Proxy => vec![
            ("X-User", name.to_owned()),
            ("X-Scopes", scopes.to_owned()),
            ("X-Tenants", TENANTS.join(" ")),
        ],
        Kind::Certificate => Vec::new(),
    })
}

/// A token of the first issuer.
pub fn token(name: &str, scopes: &str, tenants: &[&str], lives_s: i64) -> String {
    token_of(ISSUERS[0], name, scopes, tenants, lives_s)
}

/// A token of an issuer, signed with its secret or its key (RFC 7515 §3.1).
pub fn token_of(issuer: &str, name: &str, scopes: &str, tenants: &[&str], lives_s: i64) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let exp = now_s.saturating_add_signed(lives_s);
    let claims = json!({"iss": issuer, "aud": AUDIENCE, "sub": name, "exp": exp, "scope": scopes,
        "tenants": tenants});
    let algorithm = if issuer == SIGNING_ISSUER { "EdDSA" } else { "HS256" };
    let header = json!({"alg": algorithm, "typ": "JWT"});
    let part = |value: &Value| base64url(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&header), part(&claims));
    let signature = match issuer {
        SIGNING_ISSUER => SIGNING_KEY.sign(signed.as_bytes()).expect("a signature"),
        _ => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
            hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
        }
    };
    format!("{signed}.{}", base64url(&signature))
}

/// RFC 7515 §2: base64url without padding.
fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..=three.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}
