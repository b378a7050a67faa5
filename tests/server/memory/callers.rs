//! The term of tenants and owners; then tokens, scopes, store and half bodies together.

use std::{io::Write as _, ops::Range};

use ring::hmac;
use serde_json::{Value, json};

use super::watched::{Watched, assert_within};
use crate::support::ask::{OutgoingMessage, V1, post, rpc, say};

/// The term of names.
const NAMES: &str = "tenants and owners: names";

/// Agents of a server.
const AGENTS: usize = 20;

/// A proxy on this machine names each caller.
const BY_PROXY: &str = "[agents.a]\nkind = \"echo\"\n[auth.proxy]\nnetworks = [\"127.0.0.1/32\"]\n\
                        name_header = \"X-User\"\n";

/// The maximum of owners, with the longest names and a task each.
#[test]
fn names_of_many_owners_stay_within_memory_bound() {
    let count = 12_000;
    let rows = [&*format!("owners_max={count}"), "tasks_max=12_000", "store_bytes_max=8_000_000"];
    let mut watched = Watched::configured("memory_names.toml", BY_PROXY, &rows);
    let mut tcp = watched.server.connect();
    let mut send = |owners: Range<usize>| {
        for owners in owners.collect::<Vec<_>>().chunks(16) {
            for owner in owners {
                let name = format!("{owner:0>250}");
                let fields = [("X-User", &*name), ("A2A-Version", "1.0")];
                tcp.write(&post("/", &fields, &rpc(V1.send(), &V1.params(say("x")))));
            }
            for _ in owners {
                assert_eq!(tcp.reply().status, 200);
            }
        }
    };
    send(0..300);
    watched.begin();
    send(300..count);
    let grown = watched.grown();
    watched.assert_within(grown, &[NAMES, "store: task logs", "slots and indexes"]);
    assert!(grown > 300 * count as u64, "{grown}");
}

/// Owners with a task each at many agents and in two tenants: the store then holds fewer tasks,
/// since each scope takes bytes of it.
#[test]
fn scopes_of_few_owners_stay_within_memory_bound() {
    let rows = ["tenants_max=4", "owners_max=300", "tasks_max=12_000", "store_bytes_max=4_000_000"];
    let agents: String = (0..AGENTS).map(|n| format!("[agents.a{n}]\nkind = \"echo\"\n")).collect();
    let text = format!("tenants = \"any\"\n{agents}{BY_PROXY}tenants = [\"*\"]\n");
    let mut watched = Watched::configured("memory_scopes_of_few.toml", &text, &rows);
    let mut tcp = watched.server.connect();
    let mut send = |owners: Range<usize>| {
        for owner in owners {
            let name = format!("{owner:0>250}");
            let fields = [("X-User", &*name), ("A2A-Version", "1.0")];
            for agent in 0..AGENTS {
                let send = |tenant: usize| {
                    let mut params = V1.params(OutgoingMessage { history: Some(0), ..say("x") });
                    params["tenant"] = json!(format!("t{tenant}"));
                    params["message"]["messageId"] = json!(format!("m-{tenant}"));
                    rpc(V1.send(), &params)
                };
                let batch = format!("[{},{}]", send(0), send(1));
                tcp.write(&post(&format!("/agents/a{agent}"), &fields, &batch));
            }
            for _ in 0..AGENTS {
                let reply = tcp.reply();
                assert!(!reply.text().contains("\"error\""), "{}", reply.text());
            }
        }
    };
    send(0..1);
    watched.begin();
    send(1..250);
    let grown = watched.grown();
    watched.assert_within(grown, &[NAMES, "store: task logs"]);
    assert!(grown > 1_000_000, "{grown}");
}

/// The secret that the tests' issuer and the server share.
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A token with these claims.
pub fn token(claims: &Value) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let encode = |bytes: &[u8]| {
        let text = peregrine::json::base64::encode(bytes);
        text.trim_end_matches('=').replace('+', "-").replace('/', "_")
    };
    let claims = claims.to_string();
    let signed = format!("{}.{}", encode(br#"{"alg":"HS256"}"#), encode(claims.as_bytes()));
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", encode(signature.as_ref()))
}

/// A token of an owner with hundreds of scopes of its own.
fn token_with_scopes(number: usize) -> String {
    let scopes: Vec<String> = (0..400).map(|n| format!("{number}-{n}")).collect();
    token(&json!({
        "iss": "https://i.example", "sub": format!("owner-{:0>200}", number % 200),
        "exp": 4_000_000_000_u64, "scope": scopes.join(" "),
    }))
}

/// Tokens, scopes, a full store and half bodies together stay within the memory that the server was
/// given. `tests/fairness/memory.py` does the same at a larger scale.
#[test]
fn combined_load_stays_within_configured_memory() {
    const MEMORY_MIB: u64 = 300;
    let agents: String = (0..AGENTS)
        .map(|n| format!("[agents.a{n}]\nkind = \"echo\"\nreads_all_scopes = true\n"))
        .collect();
    let text = format!(
        "memory = \"{MEMORY_MIB}M\"\ntenants = \"any\"\n{agents}[[auth.issuers]]\n\
         issuer = \"https://i.example\"\nsecret = \"{SECRET}\"\ntenants = [\"*\"]\n"
    );
    let watched = Watched::configured("memory_together.toml", &text, &[]);
    let mut tcp = watched.server.connect();
    let mut send = |number: usize, text: &str, tenants: usize| {
        let send = |tenant: usize| {
            let id = format!("m-{number}-{tenant}-{}", text.len());
            let mut params = V1.params(OutgoingMessage { id: &id, history: Some(0), ..say(text) });
            params["tenant"] = json!(format!("t{}", (number + tenant) % 40));
            rpc(V1.send(), &params)
        };
        let batch: Vec<String> = (0..tenants).map(send).collect();
        let authorization = format!("Bearer {}", token_with_scopes(number));
        let fields = [("Authorization", &*authorization), ("A2A-Version", "1.0")];
        let path = format!("/agents/a{}", number % AGENTS);
        tcp.write(&post(&path, &fields, &format!("[{}]", batch.join(","))));
        assert_eq!(tcp.reply().status, 200);
    };
    (0..600).for_each(|number| send(number, "x", 8));
    let large = "x".repeat(300_000);
    (0..150).for_each(|number| send(number, &large, 1));
    let authorization = format!("Bearer {}", token_with_scopes(0));
    let head = format!(
        "POST /agents/a0 HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/json\r\n\
         Authorization: {authorization}\r\nContent-Length: 1000001\r\n\r\n"
    );
    let half = [head.as_bytes(), &[b' '; 1_000_000]].concat();
    let mut all = Vec::new();
    for _ in 0..100 {
        let mut tcp = watched.server.connect();
        // The server may cut a connection that would exceed the memory.
        if tcp.stream.write_all(&half).is_ok() {
            all.push(tcp);
        }
    }
    let held = watched.held();
    assert_within(held, MEMORY_MIB << 20);
    // The memory in use is near the limit.
    assert!(held > 40 << 20, "{held}");
    drop(all);
    watched.server.assert_lives();
}
