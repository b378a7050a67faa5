//! A server that ends notifies the webhooks of the tasks that end with it.

use std::fs::{self, File};

use serde_json::{Value, json};

use super::{
    failing::call,
    receiver::{Does, Received, Receiver, responds},
};
use crate::support::{
    ask::{OutgoingMessage, V1, say},
    binary::Binary,
};

const FAILED: &str = "TASK_STATE_FAILED";

/// Makes a task with a webhook and does not wait for it.
fn begin(server: &Binary, text: &str, url: &str) -> Value {
    let mut params = V1.params(OutgoingMessage { at_once: true, ..say(text) });
    params["configuration"]["taskPushNotificationConfig"] = json!({ "url": url });
    call(server.addr(), V1.send(), &params)["result"]["task"].take()
}

/// The state in the last post to a path.
fn last_state(receiver: &Receiver, path: &str) -> String {
    let posts = receiver.all(path);
    let last = posts.last().map(Received::json).unwrap_or_default();
    let status = last.as_object().and_then(|one| one.values().find_map(|one| one.get("status")));
    status.and_then(|status| status["state"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn webhooks_receive_failure_of_tasks_ended_by_drain() {
    let receiver = Receiver::new(|_, post| match &*post.path {
        "/hangs" => Does::Hangs,
        _ => responds("200 OK"),
    });
    let stderr_path = std::env::temp_dir().join(format!("peregrine-ending-{}", std::process::id()));
    let flags = ["--push-allow", "localhost", "--limit", "drain_ms=4000", "--workers", "2"];
    let mut server = Binary::start_with(&flags, File::create(&stderr_path).unwrap().into());
    begin(&server, "hold:600000:2", &receiver.url("/long"));
    begin(&server, "hold:1000:2", &receiver.url("/short"));
    begin(&server, "hold:600000:2", &receiver.url("/hangs"));
    receiver.wait_for("/long", 1);
    server.terminate();
    assert_eq!(server.exit_code(), Some(0));
    assert_eq!(last_state(&receiver, "/long"), FAILED);
    assert_eq!(last_state(&receiver, "/short"), "TASK_STATE_COMPLETED");
    let text = fs::read_to_string(&stderr_path).unwrap();
    assert!(text.contains("2 unfinished tasks with webhooks failed"), "{text}");
    assert!(text.contains("drained; 0 unfinished tasks lost; 1 webhook did not receive"), "{text}");
    fs::remove_file(stderr_path).unwrap();
}

/// A drain does not wait for tasks that only a client could continue.
#[test]
fn drain_fails_input_required_tasks_without_waiting() {
    let receiver = Receiver::willing();
    let script = std::env::temp_dir().join(format!("peregrine-asks-{}", std::process::id()));
    fs::write(&script, "[[rule]]\n[[rule.step]]\nstatus = \"input-required\"\n").unwrap();
    let agent = format!("script:{}", script.display());
    let flags = ["--push-allow", "localhost", "--limit", "drain_ms=600000", "--agent", &agent];
    let mut server = Binary::start(&flags);
    begin(&server, "hello", &receiver.url("/asks"));
    receiver.wait_for("/asks", 1);
    server.terminate();
    assert_eq!(server.exit_code(), Some(0));
    assert_eq!(last_state(&receiver, "/asks"), FAILED);
    fs::remove_file(script).unwrap();
}
