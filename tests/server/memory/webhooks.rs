//! The terms of webhooks: configurations with the longest text, with their own origins, and per
//! scope; and posts in flight.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::watched::{BatchCaller, SLACK_BYTES, Watched, assert_within};
use crate::{
    support::{
        ask::{OutgoingMessage, V1, rpc, say},
        binary::{PATIENCE, eventually},
    },
    webhooks::receiver::{Does, Receiver},
};

/// The term of configurations.
const CONFIGURATIONS: &str = "webhooks: configurations";

/// The term of posts.
const POSTS: &str = "webhooks: posts in flight";

/// The term of tasks that are retained for dead letters.
const DEAD: &str = "webhooks: tasks of dead letters";

/// Tasks without an event for ten minutes.
fn quiet_tasks(caller: &mut BatchCaller, count: usize) -> Vec<String> {
    let hold = |n| {
        let id = format!("quiet-{n}");
        let message =
            OutgoingMessage { id: &id, at_once: true, history: Some(0), ..say("hold:600000:1") };
        rpc(V1.send(), &V1.params(message))
    };
    let calls: Vec<String> = (0..count).map(hold).collect();
    let answers = caller.call_well(&calls);
    let tasks = answers.split(r#""task":{"id":""#).skip(1);
    let tasks: Vec<String> = tasks.map(|task| task[..task.find('"').unwrap()].into()).collect();
    assert_eq!(tasks.len(), count);
    tasks
}

/// Sets configurations of tasks until there is no room for more; returns their number.
fn fill(caller: &mut BatchCaller, tasks: &[String], config: impl Fn(usize) -> Value) -> usize {
    let mut set = 0;
    for task in tasks {
        for _ in 0..10 {
            let calls = (set..set + 10).map(|n| {
                let mut params = config(n);
                params["taskId"] = json!(task);
                rpc("CreateTaskPushNotificationConfig", &params)
            });
            let answers = caller.call(&calls.collect::<Vec<_>>());
            set += 10;
            if answers.contains("\"error\"") {
                assert!(answers.contains("push_bytes_max"), "{answers}");
                return set;
            }
        }
    }
    panic!("{set} configurations did not fill it");
}

/// One address may set half, and the process uses its free memory first.
fn assert_configurations_within(watched: &Watched) {
    let grown = watched.grown();
    assert_within(grown, watched.bound(&[CONFIGURATIONS]) + SLACK_BYTES / 2);
    assert!(grown > watched.limits.push_bytes_max as u64 / 5, "{grown}");
}

#[test]
fn longest_webhook_configs_stay_within_memory_bound() {
    // All of them have one host.
    let rows = ["push_bytes_max=12_000_000", "push_scopes_max=1", "push_configs_task_host_max=100"];
    let mut watched = Watched::new(&rows);
    let mut caller = BatchCaller::anonymous(&watched.server);
    let tasks = quiet_tasks(&mut caller, 20);
    watched.begin();
    fill(&mut caller, &tasks, |n| {
        // The server holds it as written and as connected to.
        let url = format!("HTTPS://Example.com/{n:0>2000}");
        let authentication = json!({"scheme": "s".repeat(64), "credentials": "c".repeat(4_096)});
        let (id, token) = (format!("{n:0>256}"), "t".repeat(4_096));
        json!({"id": id, "url": url, "token": token, "authentication": authentication})
    });
    assert_configurations_within(&watched);
}

#[test]
fn webhook_configs_of_many_origins_stay_within_memory_bound() {
    let mut watched = Watched::new(&["push_bytes_max=8_000_000", "push_scopes_max=1"]);
    let mut caller = BatchCaller::anonymous(&watched.server);
    let tasks = quiet_tasks(&mut caller, 100);
    watched.begin();
    let set = fill(&mut caller, &tasks, |n| json!({"url": format!("https://h{n}.example/")}));
    assert_configurations_within(&watched);
    assert!(set > 3_000, "{set}");
}

/// Keys of this many callers, each with its own tenant and the longest names.
fn keys(count: usize) -> String {
    let mut text = "[agents.a]\nkind = \"echo\"\n".to_owned();
    for n in 0..count {
        write!(text, "[[auth.api_keys]]\nname = \"{n:0>256}\"\n").unwrap();
        write!(text, "key = \"key-{n:0>12}\"\ntenants = [\"{n:0>128}\"]\n").unwrap();
    }
    text
}

#[test]
fn scoped_webhook_configs_stay_within_memory_bound() {
    let count = 1_024;
    let rows = [&*format!("push_scopes_max={count}"), "push_bytes_max=300_000"];
    let mut watched = Watched::configured("memory_scopes.toml", &keys(count + 1), &rows);
    let set = |n: usize| {
        let headers: serde_json::Map<String, Value> =
            (0..16).map(|at| (format!("x-{at:0>8}"), json!("v".repeat(246)))).collect();
        let url = format!("HTTPS://Example.com/{n:0>2000}");
        let params =
            json!({"contextId": "c".repeat(256), "config": {"url": url, "headers": headers}});
        let key = format!("key-{n:0>12}");
        let mut caller = BatchCaller::of_key(&watched.server, "/api/v1/a2a/a", &key);
        caller.call(&[rpc("tasks/pushNotificationConfig/set", &params)])
    };
    for n in 0..10 {
        assert!(!set(n).contains("\"error\""), "{}", set(n));
    }
    let before = watched.grown();
    for n in 10..count {
        let answer = set(n);
        assert!(!answer.contains("\"error\""), "{answer}");
    }
    assert!(set(count).contains("push_scopes_max"));
    let grown = watched.grown() - before;
    watched.begin();
    assert_within(grown, watched.bound(&[CONFIGURATIONS]) + SLACK_BYTES / 2);
    assert!(grown > 6 * 1_024 * count as u64, "{grown}");
}

/// Small posts to each of many hosts, and large ones to others.
const HOSTS: std::ops::Range<u8> = 10..33;
const LARGE_HOSTS: std::ops::Range<u8> = 50..54;
const POSTS_OF_HOST: usize = 8;

/// Tasks with webhooks to a receiver that never answers, or the same tasks without webhooks;
/// returns how much the server grows.
fn grown_by_tasks(receiver: Option<&Receiver>) -> u64 {
    let rows =
        ["push_posts_bytes_max=16_000_000", "task_bytes_max=4_000_000", "answer_bytes_max=100_000"];
    let allowed = "[push]\nallow = [\"127.0.0.0/8\"]\n[agents.a]\nkind = \"echo\"\n";
    let mut watched = Watched::configured("memory_posts.toml", allowed, &rows);
    let mut caller = BatchCaller::anonymous(&watched.server);
    let mut send = |host: u8, id: &str, text: &str| {
        let mut params =
            V1.params(OutgoingMessage { id, history: Some(0), at_once: true, ..say(text) });
        if let Some(receiver) = receiver {
            let url = format!("http://127.0.0.{host}:{}/hook", receiver.addr.port());
            params["configuration"]["taskPushNotificationConfig"] = json!({"url": url});
        }
        // The answer is a page of the text, which the test drops.
        caller.call(&[rpc(V1.send(), &params)])
    };
    send(9, "warm", "x");
    watched.begin();
    let (small, large) = ("s".repeat(14_000), "l".repeat(900_000));
    for host in LARGE_HOSTS {
        send(host, &format!("large-{host}"), &large);
    }
    for host in HOSTS {
        for n in 0..POSTS_OF_HOST {
            send(host, &format!("small-{host}-{n}"), &small);
        }
    }
    let most = HOSTS.len() * POSTS_OF_HOST + LARGE_HOSTS.len();
    let mut grown = watched.grown();
    if let Some(receiver) = receiver {
        let until = std::time::Instant::now() + PATIENCE;
        while receiver.open() < most * 9 / 10 && std::time::Instant::now() < until {
            grown = grown.max(watched.grown());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        grown = grown.max(watched.grown());
        eventually("the posts have been sent", || receiver.count() >= most * 9 / 10);
        let bound = watched.bound(&[POSTS]);
        eprintln!("{grown} of {bound}, {} open", receiver.open());
    }
    grown
}

#[test]
fn unanswered_webhook_posts_stay_within_memory_bound() {
    let receiver = Receiver::bound("0.0.0.0:0".parse().unwrap(), |_, _| Does::Hangs);
    let (with, without) = (grown_by_tasks(Some(&receiver)), grown_by_tasks(None));
    let limits =
        super::watched::limits_of(&["push_posts_bytes_max=16_000_000", "task_bytes_max=4_000_000"]);
    let terms = limits.memory_bytes_terms(1);
    let (_, bound) = terms.iter().find(|(label, _)| label.contains(POSTS)).unwrap();
    let grown = with.saturating_sub(without);
    assert_within(grown, bound + SLACK_BYTES);
    assert!(grown > 4_000_000, "{grown}: {with} with posts, {without} without");
}

#[test]
fn tasks_of_dead_letters_stay_within_memory_bound() {
    let rows = ["push_dead_bytes_max=12_000_000", "tasks_max=16", "store_bytes_max=8_000_000"];
    let allowed = "[push]\nallow = [\"127.0.0.0/8\"]\n[agents.a]\nkind = \"echo\"\n";
    let mut watched = Watched::configured("memory_dead.toml", allowed, &rows);
    let mut caller = BatchCaller::anonymous(&watched.server);
    let text = "x".repeat(14_000);
    let mut send = |from: usize, to: usize| {
        let call = |n: usize| {
            let id = n.to_string();
            let mut params = V1.params(OutgoingMessage {
                id: &id,
                history: Some(0),
                at_once: true,
                ..say(&text)
            });
            // No receiver listens there.
            let url = format!("http://127.0.0.{}:64999/hook", 10 + n % 200);
            params["configuration"]["taskPushNotificationConfig"] = json!({"url": url});
            rpc(V1.send(), &params)
        };
        caller.call(&(from..to).map(call).collect::<Vec<_>>());
    };
    send(0, 40);
    watched.begin();
    (40..2_000).step_by(40).for_each(|from| send(from, from + 40));
    let grown = watched.grown();
    let bound = watched.bound(&[DEAD, CONFIGURATIONS, "store: task logs", POSTS]);
    assert_within(grown, bound + SLACK_BYTES);
    assert!(grown > 6_000_000, "{grown}");
}
