//! How many posts are in flight at a time, for any sequence of configurations.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{
    failing::{call, stream},
    receiver::{Does, Receiver, patiently},
};
use crate::support::{
    ask::{V1, say},
    binary::Binary,
};

/// Posts in flight to a host (`Pace::per_host`), and as many that have ended unnoticed by the
/// receiver.
const MOST: usize = 2 * 8;

#[test]
fn open_posts_to_hanging_receiver_are_bounded() {
    let server = Binary::start(&["--push-allow", "localhost"]);
    let deleted = Receiver::new(|_, _| Does::Hangs);
    let replaced = Receiver::new(|_, _| Does::Hangs);
    for _ in 0..40 {
        let task = begin(server.addr(), &deleted);
        let removed = json!({"taskId": task, "id": "a"});
        let answer = call(server.addr(), "DeleteTaskPushNotificationConfig", &removed);
        assert!(answer["error"].is_null(), "{answer}");
        assert!(deleted.open() <= MOST, "{}", deleted.open());
    }
    assert!(deleted.count() >= 8);
    // Undelivered events go to the replacement.
    for round in 0..10 {
        let task = begin(server.addr(), &replaced);
        for path in 0..4 {
            let url = replaced.url(&format!("/{round}/{path}"));
            let config = json!({"taskId": task, "id": "a", "url": url});
            let set = call(server.addr(), "CreateTaskPushNotificationConfig", &config);
            assert!(set["result"].is_object(), "{set}");
            assert!(replaced.open() <= MOST, "{}", replaced.open());
        }
    }
    assert!(replaced.count() >= 8);
    // Other webhooks are not delayed.
    let willing = Receiver::willing();
    let events = stream(server.addr(), "stream:3", &willing.url("/hook"));
    willing.assert_received("/hook", &events);
    server.assert_lives();
}

/// A task with a webhook `a`, of which a post is in flight if there is a slot.
fn begin(addr: SocketAddr, receiver: &Receiver) -> Value {
    let before = receiver.count();
    let mut params = V1.params(say("stream:3"));
    let config = json!({"id": "a", "url": receiver.url("/hook")});
    params["configuration"]["taskPushNotificationConfig"] = config;
    let task = call(addr, V1.send(), &params)["result"]["task"]["id"].clone();
    if before < 8 {
        patiently("a post is under way", || receiver.count() > before);
    }
    task
}

#[test]
fn host_hanging_at_many_ports_blocks_no_other_host() {
    let server = Binary::start(&["--push-allow", "localhost"]);
    let hanging: Vec<_> = (0..12).map(|_| Receiver::new(|_, _| Does::Hangs)).collect();
    let open = || hanging.iter().map(Receiver::open).sum::<usize>();
    for receiver in hanging.iter().chain(&hanging) {
        stream(server.addr(), "stream:3", &receiver.url("/hook"));
        assert!(open() <= 8, "{}", open());
    }
    patiently("it has what it may have", || open() == 8);
    let willing = Receiver::willing();
    let url = willing.url("/hook").replace("localhost", "127.0.0.1");
    let events = stream(server.addr(), "stream:3", &url);
    willing.assert_received("/hook", &events);
    server.assert_lives();
}

#[test]
fn large_posts_to_hanging_receiver_block_no_other_host() {
    let config = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("large_posts.toml");
    let text = "[limits]\npush_posts_bytes_max = 262_144\n[push]\nallow = [\"localhost\"]\n";
    std::fs::write(&config, text).unwrap();
    let server = Binary::start(&["--config", config.to_str().unwrap()]);
    let (hanging, willing) = (Receiver::new(|_, _| Does::Hangs), Receiver::willing());
    let large = "x".repeat(40_000);
    for _ in 0..8 {
        stream(server.addr(), &large, &hanging.url("/hook"));
    }
    let url = willing.url("/hook").replace("localhost", "127.0.0.1");
    let events = stream(server.addr(), &large, &url);
    willing.assert_received("/hook", &events);
    // One of these is a quarter of the memory of large posts; and one may have ended.
    assert!((1..=3).contains(&hanging.open()), "{}", hanging.open());
    server.assert_lives();
}
