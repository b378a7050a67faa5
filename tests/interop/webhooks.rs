//! Webhooks that our client creates, reads, lists and deletes at our own server, in every binding
//! of 0.3 and 1.0. An observer of 1.0 sees each of them.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::{
    client::{Call, Link, Op},
    message_spec::text_spec,
    model::{Form, V01},
    ours::Ours,
    place::Endpoint,
    variants::{OBSERVER, VARIANTS, Variant},
};
use crate::support::binary::Binary;

fn result_of(link: &mut Ours, op: Op, params: Value) -> Value {
    link.call(&Call::new(op, params)).unwrap_or_else(|fault| panic!("{op:?}: {fault:?}"))
}

/// The id, the task and the URL of a configuration.
fn shown(config: &Value) -> [&Value; 3] {
    ["id", "taskId", "url"].map(|member| &config[member])
}

#[test]
fn webhooks_are_managed_in_every_binding() {
    let agent = concat!("script:", env!("CARGO_MANIFEST_DIR"), "/tests/data/interop.toml");
    let server = Binary::start(&["--push-allow", "localhost", "--agent", agent]);
    let endpoint = Endpoint { addr: server.addr(), trust: None, authority: None };
    // Accepts no connection, which the test does not need.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://localhost:{}/hook", silent.local_addr().expect("an address").port());
    let mut observer = Ours::new(&endpoint, OBSERVER);
    let variants: Vec<&Variant> = VARIANTS.iter().filter(|one| one.generation != V01).collect();
    assert_eq!(variants.len(), 12);
    for variant in variants {
        eprintln!("{variant:?}:");
        let mut client = Ours::new(&endpoint, *variant);
        let params = Form::Canonical.send_params(&text_spec("hold"));
        let task = result_of(&mut client, Op::Send, params)["task"]["id"].clone();
        let (of_task, of_hook) = (json!({"taskId": task}), json!({"taskId": task, "id": "hook"}));
        let expected = [&json!("hook"), &task, &json!(url)];
        let made = result_of(&mut client, Op::PushSet, json!({"taskId": task, "url": url}));
        assert_eq!(shown(&made), expected);
        let read = result_of(&mut client, Op::PushGet, of_hook.clone());
        assert_eq!(shown(&read), expected);
        for link in [&mut client, &mut observer] {
            let list = result_of(link, Op::PushList, of_task.clone());
            let configs = list["configs"].as_array().expect("a list");
            assert_eq!(configs.iter().map(shown).collect::<Vec<_>>(), [expected]);
        }
        result_of(&mut client, Op::PushDelete, of_hook.clone());
        for link in [&mut client, &mut observer] {
            let list = result_of(link, Op::PushList, of_task.clone());
            assert!(list["configs"].as_array().is_none_or(Vec::is_empty), "{list}");
            link.call(&Call::new(Op::PushGet, of_hook.clone())).expect_err("it is gone");
        }
        result_of(&mut client, Op::Cancel, json!({"id": task}));
    }
}
