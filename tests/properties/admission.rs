//! Authentication by a request head: the server accepts exactly the callers with a credential that
//! its rules contain.
//!
//! An input is a byte of switches and the field lines of a head, one per line; bytes from 0x80 on
//! stand for [`PIECES`], so that short inputs have valid credentials in odd positions.

use std::{cell::RefCell, sync::Arc, task::Waker};

use peregrine::{
    agent::{Agent, echo::Echo},
    auth::{
        AuthRules, Authenticator, Callers, CertificateRule, IssuerRule, KeyRule, KeySource,
        KnownCaller, ProxyRule, ScopeSet, SecretDigest, TenantGrant, TokenKeys, TokenRules,
    },
    engine::{Conn, Cx, Engine, Setup, Start, Worker},
    service::{Entropy, Now, Peer},
};

/// One token of each algorithm, valid at [`UNIX_MS`].
const TOKENS: &str = include_str!("../data/tokens/pyjwt.txt");
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const UNIX_MS: u64 = 1_700_000_000_000;

const KEY: &str = "a key of sixteen bytes";
const TOKEN: &str = "a-token-of-16-bytes";

/// The texts for the bytes from 0x80 on.
const PIECES: [&str; 24] = [
    "Authorization: ",
    "Bearer ",
    "bEARER\t",
    "X-API-Key: ",
    "X-Robot-Key: ",
    KEY,
    TOKEN,
    "Sec-WebSocket-Protocol: ",
    "a2a, ",
    "a2a.bearer.",
    "X-User: ",
    "X-Scopes: ",
    "alice",
    "Origin: http://a",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Authorization: Bearer a-token-of-16-bytes",
    "X-API-Key: a key of sixteen bytes",
    "X-User: alice",
    "Sec-WebSocket-Protocol: a2a, a2a.bearer.a-token-of-16-bytes",
    "Cookie: key=",
    ": ",
    " ",
    "\t",
];

/// The kinds of credentials in the rules of an engine.
#[derive(Clone, Copy)]
struct Kinds {
    keys: bool,
    key_field: &'static str,
    tokens: bool,
    issuers: bool,
    proxy: bool,
    certificates: bool,
}

const ALL: Kinds = Kinds {
    keys: true,
    key_field: "X-API-Key",
    tokens: true,
    issuers: true,
    proxy: true,
    certificates: true,
};

const VARIANTS: [Kinds; 4] = [
    ALL,
    Kinds { key_field: "X-Robot-Key", issuers: false, ..ALL },
    Kinds { tokens: false, certificates: false, ..ALL },
    Kinds { keys: false, tokens: false, issuers: false, ..ALL },
];

fn rules(kinds: Kinds) -> AuthRules {
    let rule = |secret: &str| KeyRule {
        digest: SecretDigest::of(secret.as_bytes()),
        caller: KnownCaller { name: "robot".to_owned(), ..KnownCaller::default() },
        expires_unix_ms: None,
    };
    let public = TokenKeys::read(include_bytes!("../data/tokens/keys.json")).unwrap();
    let issuer = IssuerRule {
        tokens: TokenRules::new("https://issuer.example"),
        keys: KeySource::Local(public.and(TokenKeys::secret(SECRET.to_vec()).unwrap())),
    };
    let proxy = ProxyRule {
        networks: vec!["10.0.0.0/8".parse().unwrap()],
        name_field: "X-User".to_owned(),
        scopes_field: Some("X-Scopes".to_owned()),
        tenants_field: None,
        scopes: ScopeSet::default(),
        tenants: TenantGrant::None,
        quota: None,
    };
    AuthRules {
        api_key_field: kinds.key_field.to_owned(),
        api_keys: kinds.keys.then(|| rule(KEY)).into_iter().collect(),
        bearer_tokens: kinds.tokens.then(|| rule(TOKEN)).into_iter().collect(),
        issuers: kinds.issuers.then_some(issuer).into_iter().collect(),
        proxy: kinds.proxy.then_some(proxy),
        certificates: kinds.certificates.then(CertificateRule::default),
    }
}

struct Zero;

impl Entropy for Zero {
    fn bits(&mut self) -> u128 {
        0
    }
}

/// A server, and the time of its next request.
struct Guarded {
    engine: Arc<Engine>,
    worker: Worker,
    mono_ms: u64,
}

impl Guarded {
    fn new(kinds: Kinds) -> Guarded {
        let agents: Vec<(_, Arc<dyn Agent>)> = vec![(Echo::profile(), Arc::new(Echo))];
        let callers = Callers::new(rules(kinds)).unwrap();
        let authenticator = Some(Arc::new(callers) as Arc<dyn Authenticator>);
        let start = Start {
            secret: 7,
            unix_ms: Arc::new(|| UNIX_MS),
            workers: 1,
            base_url: "http://a".to_owned(),
        };
        let engine = Setup { agents, authenticator, ..Setup::default() }.build(start).unwrap();
        let worker = Worker::new(0, engine.limits(), Box::new(Zero));
        Guarded { engine, worker, mono_ms: 1 }
    }

    /// The status of the answer to a request.
    fn status(&mut self, request: &[u8], peer: Peer<'_>) -> u16 {
        // A wrong key of a peer with many failures is answered after a second.
        let (mut sent, mut unread) = (Vec::new(), request);
        let mut conn = Conn::new(Now { mono_ms: self.mono_ms, unix_ms: UNIX_MS });
        for _ in 0..2 {
            let now = Now { mono_ms: self.mono_ms, unix_ms: UNIX_MS };
            let (engine, worker, wake) = (&self.engine, &mut self.worker, Waker::noop());
            let mut cx = Cx { engine, worker, now, wake, out: &mut sent, unsent: 0, peer };
            let progress = conn.advance(&mut cx, unread, false);
            unread = &unread[progress.consumed..];
            self.mono_ms += 1_000;
            if !sent.is_empty() {
                break;
            }
        }
        let digits = sent.strip_prefix(b"HTTP/1.1 ").map_or(&b"0"[..], |rest| &rest[..3]);
        str::from_utf8(digits).unwrap().parse().unwrap()
    }
}

thread_local! {
    static SERVERS: RefCell<Vec<Guarded>> =
        RefCell::new(VARIANTS.map(Guarded::new).into_iter().collect());
}

/// The values of a field, in order.
fn values<'h>(lines: &[&'h [u8]], name: &str) -> Vec<&'h [u8]> {
    let value = |line: &&'h [u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (field, value) = line.split_at(colon);
        field.eq_ignore_ascii_case(name.as_bytes()).then(|| value[1..].trim_ascii())
    };
    lines.iter().filter_map(value).collect()
}

/// A list of values as one text.
fn text(values: &[&[u8]]) -> Option<String> {
    let texts: Vec<&str> = values.iter().filter_map(|value| str::from_utf8(value).ok()).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Whether a request has a valid credential, by a slow and simple check.
fn has_valid_credential(kinds: Kinds, lines: &[&[u8]], peer: Peer<'_>, is_upgrade: bool) -> bool {
    let authorization = values(lines, "authorization").first().copied();
    let scheme = authorization.filter(|value| value.len() >= 7);
    let scheme = scheme.filter(|value| value[..7].eq_ignore_ascii_case(b"bearer "));
    let mut bearer = scheme.map(|value| value[7..].trim_ascii());
    if bearer.is_none() && is_upgrade {
        let offered = values(lines, "sec-websocket-protocol").join(&b',');
        let offered: Vec<&[u8]> = offered.split(|byte| *byte == b',').collect();
        let token = offered.iter().find_map(|one| one.trim_ascii().strip_prefix(b"a2a.bearer."));
        let is_token = |token: &&[u8]| *token == TOKEN.as_bytes();
        let is_jwt = |token: &&[u8]| TOKENS.lines().any(|jwt| jwt.as_bytes() == *token);
        if let Some(token) = token
            && (kinds.tokens || kinds.issuers)
        {
            return kinds.tokens && is_token(&token) || kinds.issuers && is_jwt(&token);
        }
    }
    if !kinds.tokens && !kinds.issuers {
        bearer = None;
    }
    if let Some(token) = bearer {
        let is_jwt = TOKENS.lines().any(|jwt| jwt.as_bytes() == token);
        return kinds.tokens && token == TOKEN.as_bytes() || kinds.issuers && is_jwt;
    }
    if kinds.keys
        && let Some(key) = text(&values(lines, kinds.key_field))
    {
        return key == KEY;
    }
    if kinds.keys && !values(lines, kinds.key_field).is_empty() && kinds.key_field == "X-API-Key" {
        return false;
    }
    let names = values(lines, "x-user");
    let name = text(&names).unwrap_or_default();
    if kinds.proxy && peer.remote.is_some() {
        let is_twice = names.len() > 1 || values(lines, "x-scopes").len() > 1;
        if is_twice {
            return false;
        }
        if !name.is_empty() {
            return name.len() <= 256 && !name.chars().any(char::is_control);
        }
    }
    kinds.certificates && peer.identity.is_some()
}

/// A request is accepted exactly if its head has a valid credential.
pub fn only_valid_credentials_are_accepted(bytes: &[u8]) {
    let Some((switches, rest)) = bytes.split_first() else { return };
    let mut lines = Vec::new();
    for byte in rest {
        match byte.checked_sub(0x80).and_then(|at| PIECES.get(usize::from(at))) {
            Some(piece) => lines.extend_from_slice(piece.as_bytes()),
            None if *byte == b'\n' => lines.extend_from_slice(b"\r\n"),
            None => lines.push(*byte),
        }
    }
    let kinds = VARIANTS[usize::from(switches & 3)];
    let mut peer = Peer::default();
    if switches & 4 != 0 {
        peer.remote = Some([10, 0, 0, 1].into());
    }
    if switches & 8 != 0 {
        peer.identity = Some("carol");
    }
    let is_upgrade = switches & 16 != 0;
    let (start, body) = match is_upgrade {
        true => (
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n",
            "",
        ),
        false => (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n\
             Content-Length: 57\r\n",
            r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}"#,
        ),
    };
    let request = [start.as_bytes(), &lines, b"\r\n\r\n", body.as_bytes()].concat();
    let status = SERVERS
        .with_borrow_mut(|servers| servers[usize::from(switches & 3)].status(&request, peer));
    // The head ends where the server finds its end.
    let end = match lines.starts_with(b"\r\n") {
        true => 0,
        false => lines.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(lines.len()),
    };
    let lines: Vec<&[u8]> = split_lines(&lines[..end]);
    let is_valid = has_valid_credential(kinds, &lines, peer, is_upgrade);
    match status {
        200 | 101 => assert!(is_valid, "a stranger was admitted"),
        401 => assert!(!is_valid, "a known caller was refused"),
        // The head or its target is refused for every caller.
        _ => {}
    }
}

fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(variant: usize, lines: &str, peer: Peer<'_>) -> u16 {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n\
             Content-Length: 57\r\n{lines}\r\n\
             {{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ListTasks\",\"params\":{{}}}}"
        );
        Guarded::new(VARIANTS[variant]).status(request.as_bytes(), peer)
    }

    /// Heads with each kind of credential are accepted, and refused if the credential is wrong.
    #[test]
    fn each_credential_kind_is_accepted_and_rejected_if_wrong() {
        let proxied = Peer { remote: Some([10, 0, 0, 1].into()), ..Peer::default() };
        let jwt = TOKENS.lines().next().unwrap();
        for (variant, line, right, wrong) in [
            (0, "X-API-Key: ", KEY, "another key"),
            (1, "X-Robot-Key: ", KEY, "another key"),
            (0, "Authorization: Bearer ", TOKEN, "another-token"),
            (0, "Authorization: Bearer ", jwt, "a.b.c"),
            (2, "Authorization: Bearer ", jwt, TOKEN),
            (3, "X-User: ", "alice", ""),
        ] {
            for (value, expected) in [(right, 200), (wrong, 401)] {
                let line = format!("{line}{value}\r\n");
                assert_eq!(status(variant, &line, proxied), expected, "{variant} {line}");
            }
        }
        let with_certificate = Peer { identity: Some("carol"), ..Peer::default() };
        assert_eq!((status(3, "", with_certificate), status(3, "", Peer::default())), (200, 401));
    }

    /// All short heads made of the pieces.
    #[test]
    fn any_mix_of_head_pieces_needs_a_valid_credential() {
        let pieces = 0x80..0x80 + PIECES.len() as u8;
        for switches in 0..32 {
            for first in pieces.clone() {
                for second in pieces.clone() {
                    only_valid_credentials_are_accepted(&[switches, first, second]);
                    only_valid_credentials_are_accepted(&[switches, first, b'\n', second]);
                }
            }
        }
        let mut bits = 0x1234_5678_9abc_def0_u64;
        for _ in 0..20_000 {
            let mut input = Vec::new();
            for _ in 0..8 {
                bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let byte = (bits >> 40) as u8;
                input.push(if byte < 40 { b'\n' } else { 0x80 + byte % PIECES.len() as u8 });
            }
            input[0] = (bits >> 50) as u8;
            only_valid_credentials_are_accepted(&input);
        }
    }
}
