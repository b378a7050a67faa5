//! Repeated sends over real sockets, while other callers send very many.

use serde_json::Value;

use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say},
    binary::{Binary, Tcp},
};

/// Sends as the owner of a key; returns the answer.
fn send(tcp: &mut Tcp, key: &str, body: &str) -> Value {
    tcp.write(&post("/", &[("x-api-key", key)], body));
    tcp.reply().json()
}

#[test]
fn repeated_send_is_detected_despite_flood_by_other_caller() {
    let config = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("repeats.toml");
    let keys = ["victim", "attacker"].map(|name| {
        format!("[[auth.api_keys]]\nname = \"{name}\"\nkey = \"key-of-{name}-0123456789\"\n")
    });
    // No call activates the extension.
    let limits = "idempotent_send = \"everybody\"\n[limits]\nidempotency_entries_max = 2_048\ntasks_max = 100_000\n";
    std::fs::write(&config, format!("{limits}{}", keys.concat())).unwrap();
    let server = Binary::start(&["--config", config.to_str().unwrap()]);
    let mut tcp = server.connect();
    let call = |id: &str| rpc(V1.send(), &V1.params(OutgoingMessage { id, ..say("hi") }));
    let (victim, attacker) = ("key-of-victim-0123456789", "key-of-attacker-0123456789");
    let first = send(&mut tcp, victim, &call("mine"));
    assert!(first["result"]["task"]["id"].is_string(), "{first}");
    let id = |answer: &Value| answer["result"]["task"]["id"].clone();
    let mut first_round = Vec::new();
    // Four times as many as are remembered.
    for round in 0..82 {
        let calls: Vec<String> = (0..100).map(|at| call(&format!("{round}-{at}"))).collect();
        let answers = send(&mut tcp, attacker, &format!("[{}]", calls.join(",")));
        let answers = answers.as_array().unwrap();
        assert!(answers.iter().all(|answer| answer["result"].is_object()));
        if round == 0 {
            first_round.extend(answers.iter().map(id));
        }
    }
    assert_eq!(send(&mut tcp, victim, &call("mine")), first);
    // The server has forgotten the oldest sends of the attacker: a repetition makes a new task.
    let again = send(&mut tcp, attacker, &call("81-99"));
    assert_eq!(again, send(&mut tcp, attacker, &call("81-99")));
    let oldest = id(&send(&mut tcp, attacker, &call("0-0")));
    assert!(oldest.is_string() && !first_round.contains(&oldest), "{oldest}");
    server.assert_lives();
}
