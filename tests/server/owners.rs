//! More callers than `owners_max` over real sockets: a new caller displaces the owner that finished
//! its last task longest ago, and shares nothing with it.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use peregrine::{agent::Extension, limits::Limits, net::Running};
use serde_json::{Value, json};

use crate::{
    dead_letters::{HOOK, admin, failing, letters, metric, request, wait_for_letters, with_push},
    support::{
        ask::{OutgoingMessage, V1, post, rpc, say},
        binary::Tcp,
        callers::ByName,
    },
    webhooks::receiver::Receiver,
};

/// A server for three callers.
struct Callers(Running);

impl Callers {
    fn call(&self, name: &str, method: &str, params: &Value) -> Value {
        let mut tcp = Tcp::to(self.0.addrs()[0]);
        let head = [("x-api-key", name), ("a2a-extensions", Extension::IDEMPOTENT_SEND)];
        tcp.write(&post("/", &head, &rpc(method, params)));
        tcp.reply().json()
    }

    fn params(id: &str, text: &str, webhook: Option<&Receiver>) -> Value {
        let mut params = V1.params(OutgoingMessage { id, ..say(text) });
        params["configuration"]["returnImmediately"] = json!(true);
        if let Some(receiver) = webhook {
            let config = json!({ "id": "mine", "url": receiver.url(HOOK) });
            params["configuration"]["taskPushNotificationConfig"] = config;
        }
        params
    }

    /// Sends a message; returns the id of its task.
    fn send(&self, name: &str, params: &Value) -> Value {
        let answer = self.call(name, V1.send(), params);
        let id = &answer["result"]["task"]["id"];
        assert!(id.is_string(), "{name}: {answer}");
        id.clone()
    }

    fn has(&self, name: &str, task: &Value) -> bool {
        let answer = self.call(name, "GetTask", &json!({ "id": task }));
        assert!(answer["result"].is_object() || answer["error"]["code"] == -32001, "{answer}");
        answer["result"].is_object()
    }

    fn tasks(&self, name: &str) -> Value {
        self.call(name, "ListTasks", &json!({}))["result"]["totalSize"].clone()
    }
}

#[test]
fn new_owner_at_owners_max_evicts_longest_idle_owner() {
    let limits = Limits { owners_max: 3, push_configs_owner_max: 1, ..Limits::default() };
    let callers = Callers(with_push("127.0.0.1:0", limits, |server| {
        server.authenticator(Arc::<ByName>::default())
    }));
    let (admin, (receiver, is_back)) = (admin(&callers.0), failing());
    let mine = Callers::params("mine", "hi", Some(&receiver));
    let of_ann = callers.send("ann", &mine);
    assert_eq!(callers.send("ann", &mine), of_ann);
    wait_for_letters(admin, 1);
    let of_bob = callers.send("bob", &Callers::params("m", "hold:600000:2", None));
    let of_cat = callers.send("cat", &Callers::params("m", "hi", None));

    // Its message has the id of another caller's message, and its webhook is its own first.
    let of_dan = callers.send("dan", &mine);
    assert_ne!(of_dan, of_ann);
    let evicted = || metric(admin, "peregrine_tasks_evicted_total{limit=\"owners_max\"}");
    assert_eq!(evicted(), 1);
    for (name, task) in [("bob", &of_bob), ("cat", &of_cat), ("dan", &of_dan)] {
        assert_eq!((callers.tasks(name), callers.has(name, task)), (json!(1), true), "{name}");
        assert!(!callers.has(name, &of_ann), "{name}");
        for (method, id) in [
            ("CancelTask", "id"),
            ("ListTaskPushNotificationConfigs", "taskId"),
            ("SubscribeToTask", "id"),
        ] {
            let answer = callers.call(name, method, &json!({ id: of_ann }));
            assert_eq!(answer["error"]["code"], -32001, "{name} {method}: {answer}");
        }
    }
    assert_eq!((callers.tasks("ann"), callers.has("ann", &of_ann)), (json!(0), false));

    // The operator still has the letter of its webhook, and replays it from the retained task.
    let all = wait_for_letters(admin, 2);
    assert_eq!((&all[0]["taskId"], &all[0]["replayable"]), (&of_ann, &json!(true)));
    is_back.store(true, SeqCst);
    let before = receiver.all(HOOK).len();
    let replay = format!("/push/dead/{}/replay", all[0]["number"]);
    assert_eq!(request(admin, "POST", &replay).json(), json!({ "replayed": 1 }));
    receiver.wait_for(HOOK, before + 1);
    let posted = receiver.all(HOOK).pop().unwrap();
    assert!(posted.json().to_string().contains(of_ann.as_str().unwrap()), "{posted:?}");
    assert_eq!(letters(admin).len(), 1);

    // It comes back as a new caller: its message is new, and the next idle owner is displaced.
    let again = callers.send("ann", &mine);
    assert!(again != of_ann && callers.has("ann", &again));
    assert_eq!(
        (evicted(), callers.tasks("cat"), callers.has("cat", &of_cat)),
        (2, json!(0), false)
    );
    assert!(callers.has("bob", &of_bob) && callers.has("dan", &of_dan));

    // No caller with an unfinished task is displaced.
    for name in ["ann", "dan"] {
        callers.send(name, &Callers::params("r", "hold:600000:2", None));
    }
    for _ in 0..2 {
        let refused = callers.call("eve", V1.send(), &mine);
        assert_eq!(refused["error"]["code"], -32000, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("owners_max"), "{refused}");
        // The second one makes the server search the shards.
        thread::sleep(Duration::from_millis(1_100));
    }
    assert!(callers.has("ann", &again) && callers.has("bob", &of_bob));
    assert_eq!((evicted(), callers.tasks("eve")), (2, json!(0)));
}
