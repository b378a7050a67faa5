//! Dead letters over real sockets: a receiver fails for too long, an operator inspects and replays,
//! and the receiver recovers.

#[cfg(feature = "cli")]
use std::process::Command;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use peregrine::{
    agent::echo::Echo,
    engine::{Pace, PushSettings, PushTargets},
    limits::Limits,
    net::{HttpClientOptions, Running, Server},
};
use serde_json::{Value, json};

use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say},
    binary::{Binary, PATH, Tcp, eventually},
    callers::ByName,
    reply::Reply,
};
use crate::webhooks::receiver::{Receiver, responds};

/// Where webhooks go.
pub const HOOK: &str = "/hook?secret=1";

/// A receiver that fails until the flag is set.
pub fn failing() -> (Receiver, Arc<AtomicBool>) {
    let is_back = Arc::<AtomicBool>::default();
    let is_up = Arc::clone(&is_back);
    let receiver = Receiver::new(move |_, _| match is_up.load(SeqCst) {
        true => responds("200 OK"),
        false => responds("503 Service Unavailable"),
    });
    (receiver, is_back)
}

/// A server that gives a webhook up at once.
fn server(admin: &str) -> Running {
    with_push(admin, Limits { tasks_max: 4, ..Limits::default() }, |server| server)
}

/// The same server after `change`.
pub fn with_push(admin: &str, limits: Limits, change: impl FnOnce(Server) -> Server) -> Running {
    with_pace(admin, Pace { give_up_ms: 0, ..Pace::default() }, limits, change)
}

/// The same with another retry policy.
fn with_pace(
    admin: &str,
    pace: Pace,
    limits: Limits,
    change: impl FnOnce(Server) -> Server,
) -> Running {
    let allow = vec!["localhost".parse().unwrap()];
    let targets = PushTargets { allow, ..PushTargets::default() };
    let push = PushSettings { targets, pace, ..PushSettings::default() };
    let server = Server::new().agent(Echo::profile(), Echo).allow_host("*").workers(1).metrics();
    let server = server.limits(limits).push(push, HttpClientOptions::default()).admin(admin);
    change(server).listen("127.0.0.1:0").start().unwrap()
}

/// Params of a message with a webhook.
fn configured(receiver: &Receiver) -> Value {
    let mut params = V1.params(say("hi"));
    let config = json!({ "id": "mine", "url": receiver.url(HOOK) });
    params["configuration"]["taskPushNotificationConfig"] = config;
    params
}

/// Sends a message with a webhook; returns the id of its task.
fn send(running: &Running, receiver: &Receiver) -> Value {
    let params = configured(receiver);
    let mut tcp = Tcp::to(running.addrs()[0]);
    tcp.write(&post("/", &[], &rpc(V1.send(), &params)));
    tcp.reply().result()["task"]["id"].clone()
}

pub fn admin(running: &Running) -> SocketAddr {
    running.admin().unwrap().strip_prefix("http://").unwrap().parse().unwrap()
}

pub fn request(to: SocketAddr, method: &str, path: &str) -> Reply {
    let mut tcp = Tcp::to(to);
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    tcp.write(head.as_bytes());
    tcp.reply()
}

pub fn letters(admin: SocketAddr) -> Vec<Value> {
    let reply = request(admin, "GET", "/push/dead");
    assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")));
    reply.json().as_array().unwrap().clone()
}

/// Waits for this many letters.
pub fn wait_for_letters(admin: SocketAddr, count: usize) -> Vec<Value> {
    eventually("there are letters", || letters(admin).len() == count);
    letters(admin)
}

pub fn metric(admin: SocketAddr, line: &str) -> u64 {
    let reply = request(admin, "GET", "/metrics");
    let found = reply.text().lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {line} in {}", reply.text())).parse().unwrap()
}

fn deliveries(admin: SocketAddr, outcome: &str) -> u64 {
    metric(admin, &format!("peregrine_push_deliveries_total{{outcome=\"{outcome}\"}}"))
}

fn stopped(admin: SocketAddr, reason: &str) -> u64 {
    metric(admin, &format!("peregrine_push_stopped_total{{reason=\"{reason}\"}}"))
}

#[test]
fn webhooks_left_out_at_push_configs_owner_max_are_counted() {
    let limits = Limits { push_configs_owner_max: 1, ..Limits::default() };
    let running =
        with_push("127.0.0.1:0", limits, |server| server.authenticator(Arc::<ByName>::default()));
    let (admin, receiver) = (admin(&running), Receiver::new(|_, _| responds("200 OK")));
    let request = |path: &str, method: &str, params: &Value| {
        let mut tcp = Tcp::to(running.addrs()[0]);
        tcp.write(&post(path, &[("x-api-key", "alice")], &rpc(method, params)));
        let reply = tcp.reply();
        assert!(reply.json()["result"].is_object(), "{reply:?}");
    };
    let config = json!({"config": {"url": receiver.url(HOOK)}});
    request("/api/v1/a2a/echo", "tasks/pushNotificationConfig/set", &config);
    // There is room for the first.
    for (id, left_out) in [("m-1", 0), ("m-2", 1), ("m-3", 2)] {
        request("/", V1.send(), &V1.params(OutgoingMessage { id, ..say("hi") }));
        assert_eq!(metric(admin, "peregrine_push_left_out_total"), left_out);
    }
}

#[test]
fn a_dead_letter_is_replayed_when_its_receiver_is_back() {
    let (running, (receiver, is_back)) = (server("127.0.0.1:0"), failing());
    let admin = admin(&running);
    assert!(letters(admin).is_empty());
    let task = send(&running, &receiver);
    let letter = wait_for_letters(admin, 1).remove(0);
    let number = letter["number"].as_u64().unwrap();
    assert_eq!((&letter["taskId"], &letter["configId"]), (&task, &json!("mine")));
    assert_eq!(letter["origin"], receiver.url(""));
    assert_eq!(
        (&letter["reason"], &letter["error"]),
        (&json!("given_up"), &json!("HTTP status 503"))
    );
    assert!(letter["time"].as_str().unwrap().ends_with('Z') && letter["sequence"].is_u64());
    assert!(!letter.to_string().contains("secret"), "{letter}");
    let one = format!("/push/dead/{number}");
    assert_eq!(request(admin, "GET", &one).json(), letter);
    assert_eq!(metric(admin, "peregrine_push_dead_letters"), 1);
    assert_eq!((deliveries(admin, "failed"), stopped(admin, "given_up")), (1, 1));
    assert_eq!(stopped(admin, "task_left"), 0);
    let page = request(admin, "GET", "/metrics");
    assert!(!page.text().contains("outcome=\"dead"), "{}", page.text());
    assert_eq!(metric(admin, "peregrine_push_configs"), 1);
    assert!(metric(admin, "peregrine_push_config_bytes") > 0);
    assert_eq!(metric(admin, "peregrine_push_pending"), 0);

    let before = receiver.all(HOOK);
    assert_eq!(before.len(), 1);
    is_back.store(true, SeqCst);
    let replayed = request(admin, "POST", &format!("{one}/replay"));
    assert_eq!((replayed.status, replayed.json()), (200, json!({ "replayed": 1 })));
    eventually("all events arrive", || {
        receiver.count() > 1 && metric(admin, "peregrine_push_pending") == 0
    });
    let after = receiver.all(HOOK);
    assert_eq!((&after[1].id, after[1].is_accepted), (&before[0].id, true));
    assert!(after[2..].iter().all(|post| post.is_accepted && post.id != before[0].id));
    assert_eq!(deliveries(admin, "delivered"), after.len() as u64 - 1);
    assert!(letters(admin).is_empty());
    assert_eq!(metric(admin, "peregrine_push_in_flight"), 0);
    assert_eq!(metric(admin, "peregrine_push_oldest_pending_seconds"), 0);
    assert_eq!(request(admin, "POST", &format!("{one}/replay")).status, 404);
    running.shutdown();
    running.join();
}

#[test]
fn dead_letters_need_the_admin_listener_and_explain_refusals() {
    // No copy of a task is retained.
    let limits = Limits { tasks_max: 4, push_dead_bytes_max: 1, ..Limits::default() };
    let running = with_push("127.0.0.1:0", limits, |server| server);
    let (receiver, _) = failing();
    let (admin, agents) = (admin(&running), running.addrs()[0]);
    send(&running, &receiver);
    let number = wait_for_letters(admin, 1)[0]["number"].as_u64().unwrap();
    let one = format!("/push/dead/{number}");
    for (method, path) in [
        ("GET", "/push/dead".to_owned()),
        ("DELETE", "/push/dead".to_owned()),
        ("POST", "/push/dead/replay".to_owned()),
        ("GET", one.clone()),
        ("DELETE", one.clone()),
        ("POST", format!("{one}/replay")),
    ] {
        assert!(request(agents, method, &path).status >= 400, "{method} {path}");
    }
    for (method, path, allow) in [
        ("PUT", "/push/dead", "GET, HEAD, DELETE"),
        ("POST", "/push/dead", "GET, HEAD, DELETE"),
        ("GET", "/push/dead/replay", "POST"),
        ("POST", &one, "GET, HEAD, DELETE"),
        ("DELETE", &format!("{one}/replay"), "POST"),
    ] {
        let reply = request(admin, method, path);
        assert_eq!((reply.status, reply.field("allow")), (405, Some(allow)), "{method} {path}");
    }
    for (method, path) in [
        ("GET", "/push/dead/999"),
        ("DELETE", "/push/dead/999"),
        ("POST", "/push/dead/999/replay"),
        ("GET", "/push/dead/x"),
        ("GET", "/push"),
    ] {
        assert_eq!(request(admin, method, path).status, 404, "{method} {path}");
    }
    let mut tcp = Tcp::to(admin);
    let origin =
        format!("POST {one}/replay HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n");
    tcp.write(format!("{origin}Content-Length: 0\r\n\r\n").as_bytes());
    assert_eq!(tcp.reply().status, 403);
    // New tasks evict its task, and the webhook with it.
    let mut tcp = Tcp::to(agents);
    eventually("the configuration is gone", || {
        tcp.write(&post("/", &[], &rpc(V1.send(), &V1.params(say("hi")))));
        tcp.reply();
        metric(admin, "peregrine_push_configs") == 0
    });
    assert_eq!(request(admin, "GET", &one).json()["replayable"], false);
    let unavailable = request(admin, "POST", &format!("{one}/replay"));
    assert!(
        unavailable.status == 409 && unavailable.json()["error"].is_string(),
        "{}",
        unavailable.text()
    );
    assert_eq!(
        request(admin, "POST", "/push/dead/replay").json(),
        json!({ "replayed": 0, "gone": 1 })
    );
    assert_eq!(request(admin, "DELETE", &one).json(), json!({ "dropped": 1 }));
    assert_eq!(request(admin, "DELETE", "/push/dead").json(), json!({ "dropped": 0 }));
    running.shutdown();
    running.join();
}

#[test]
fn dead_letter_is_replayed_after_task_eviction() {
    let given_up = Pace { give_up_ms: 0, ..Pace::default() };
    for (pace, reason) in [(given_up, "given_up"), (Pace::default(), "task_left")] {
        let limits = Limits { tasks_max: 4, ..Limits::default() };
        let running = with_pace("127.0.0.1:0", pace, limits, |server| server);
        let (admin, (receiver, is_back)) = (admin(&running), failing());
        let task = send(&running, &receiver);
        eventually("the first post has failed", || receiver.count() > 0);
        // New tasks evict its task.
        let mut tcp = Tcp::to(running.addrs()[0]);
        let get = rpc("GetTask", &json!({ "id": task }));
        eventually("the task has left", || {
            tcp.write(&post("/", &[], &rpc(V1.send(), &V1.params(say("hi")))));
            tcp.reply();
            tcp.write(&post("/", &[], &get));
            tcp.reply().json()["error"]["code"] == -32001
        });
        let letter = wait_for_letters(admin, 1).remove(0);
        assert_eq!((&letter["reason"], &letter["taskId"]), (&json!(reason), &task));
        assert_eq!(letter["replayable"], true);
        is_back.store(true, SeqCst);
        let one = format!("/push/dead/{}", letter["number"]);
        let replayed = request(admin, "POST", &format!("{one}/replay"));
        assert_eq!((replayed.status, replayed.json()), (200, json!({ "replayed": 1 })));
        eventually("all events arrive", || metric(admin, "peregrine_push_configs") == 0);
        let accepted = receiver.all(HOOK).into_iter().filter(|post| post.is_accepted);
        let bodies: Vec<Value> = accepted.map(|post| post.json()).collect();
        assert_eq!(bodies[0]["task"]["id"], task, "{bodies:?}");
        let last = bodies.last().unwrap();
        assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{last}");
        assert!(letters(admin).is_empty());
        running.shutdown();
        running.join();
    }
}

#[test]
fn push_dead_bytes_max() {
    let limits = Limits { tasks_max: 2, push_dead_bytes_max: 8 << 10, ..Limits::default() };
    let running = with_pace("127.0.0.1:0", Pace::default(), limits, |server| server);
    let (admin, (receiver, _)) = (admin(&running), failing());
    let mut tcp = Tcp::to(running.addrs()[0]);
    let mut send = |text: &str| {
        let mut params = configured(&receiver);
        params["message"]["parts"][0]["text"] = json!(text);
        tcp.write(&post("/", &[], &rpc(V1.send(), &params)));
        tcp.reply().result();
    };
    let replayable = |count| -> Vec<bool> {
        let letters = wait_for_letters(admin, count);
        letters.iter().map(|letter| letter["replayable"].as_bool().unwrap()).collect()
    };
    (0..40).for_each(|_| send("hi"));
    // The most recently evicted tasks can be replayed.
    let all = replayable(38);
    let retained = all.iter().filter(|is| **is).count();
    assert!((2..20).contains(&retained) && all.is_sorted(), "{all:?}");
    // A task that is too large is not retained.
    send(&"x".repeat(9_000));
    (0..2).for_each(|_| send("hi"));
    let all = replayable(41);
    assert!(all[39] && !all[40], "{all:?}");
    running.shutdown();
    running.join();
}

#[test]
fn dead_letter_flood_does_not_evict_other_owners_letters() {
    let limits = Limits { tasks_max: 4, push_dead_bytes_max: 64 << 10, ..Limits::default() };
    let running = with_pace("127.0.0.1:0", Pace::default(), limits, |server| {
        server.authenticator(Arc::<ByName>::default())
    });
    let (admin, (receiver, is_back)) = (admin(&running), failing());
    let mut tcp = Tcp::to(running.addrs()[0]);
    let mut send = |owner: &str, id: &str| {
        let mut params = configured(&receiver);
        params["message"]["messageId"] = json!(id);
        tcp.write(&post("/", &[("x-api-key", owner)], &rpc(V1.send(), &params)));
        tcp.reply().result()["task"]["id"].clone()
    };
    // One task more than fits: the first one is evicted.
    let tasks = ["1", "2", "3", "4", "5"].map(|id| send("victim", id));
    wait_for_letters(admin, 1);
    let of = |task: &Value| letters(admin).into_iter().find(|letter| letter["taskId"] == *task);
    let (task, number) = (&tasks[0], 0);
    // More letters than fit, and more tasks than are retained.
    (number..number + 1_200).for_each(|number| drop(send("attacker", &number.to_string())));
    eventually("letters of the attacker give way", || {
        let all = letters(admin);
        let first = all.iter().find(|letter| !tasks.contains(&letter["taskId"]));
        all.len() == 1_024 && first.is_some_and(|letter| letter["replayable"] == false)
    });
    // The webhooks of the tasks within its share wait for their receiver as before.
    assert!(of(&tasks[3]).is_none() && of(&tasks[4]).is_none());
    let letter = of(task).unwrap();
    assert_eq!((&letter["reason"], &letter["replayable"]), (&json!("task_left"), &json!(true)));
    is_back.store(true, SeqCst);
    let replay = format!("/push/dead/{}/replay", letter["number"]);
    assert_eq!(request(admin, "POST", &replay).status, 200);
    eventually("all events arrive", || {
        let posts = receiver.all(HOOK);
        let mut bodies = posts.iter().filter(|post| post.is_accepted).map(|post| post.json());
        bodies.any(|body| body["statusUpdate"]["taskId"] == *task)
    });
    running.shutdown();
    running.join();
}

/// Runs `peregrine push dead`; returns its exit code and its output.
#[cfg(feature = "cli")]
fn run(admin: &str, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(PATH);
    command.args(["push", "dead"]).args(words).env("PEREGRINE_ADMIN", admin);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
#[cfg(feature = "cli")]
fn commands_list_show_replay_and_drop_dead_letters() {
    let folder = std::env::temp_dir().join(format!("peregrine-dead-{}", std::process::id()));
    let unix = format!("unix:{}", folder.display());
    for listener in ["127.0.0.1:0", unix.as_str()] {
        let (running, (receiver, is_back)) = (server(listener), failing());
        let admin = running.admin().unwrap().to_owned();
        let json = |words: &[&str]| -> Value {
            let (code, text) = run(&admin, words);
            assert_eq!(code, Some(0), "{words:?}: {text}");
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(json(&["list", "--json"]), json!([]));
        let tasks: Vec<Value> = (0..3).map(|_| send(&running, &receiver)).collect();
        eventually("there are letters", || {
            json(&["list", "-o", "json"]).as_array().unwrap().len() == 3
        });
        let (code, table) = run("", &["list", "--admin", &admin]);
        assert_eq!((code, table.lines().count()), (Some(0), 4), "{table}");
        assert!(table.starts_with("NUMBER") && table.contains("HTTP status 503"), "{table}");
        for task in tasks {
            assert!(table.contains(task.as_str().unwrap()), "{table}");
        }
        let (code, letter) = run(&admin, &["show", "1"]);
        assert!(code == Some(0) && letter.starts_with("Number: 1\nTime: "), "{letter}");
        assert_eq!(run(&admin, &["drop", "1"]), (Some(0), "Dropped: 1\n".to_owned()));
        for words in [&["drop", "1"][..], &["show", "1"], &["replay", "1", "--json"]] {
            let (code, text) = run(&admin, words);
            assert!(code == Some(3) && text.contains("no dead letter"), "{words:?} {text}");
            assert!(text.contains("PEREGRINE_ERR_NOT_FOUND"), "{words:?} {text}");
        }
        is_back.store(true, SeqCst);
        assert_eq!(json(&["replay", "2", "--json"]), json!({ "replayed": 1 }));
        assert_eq!(json(&["replay", "--all", "--json"]), json!({ "replayed": 1, "gone": 0 }));
        eventually("both arrive", || {
            receiver.all(HOOK).iter().filter(|post| post.is_accepted).count() >= 2
        });
        assert_eq!(run(&admin, &["drop", "--all"]), (Some(0), "Dropped: 0\n".to_owned()));
        running.shutdown();
        running.join();
        let (code, text) = run(&admin, &["list"]);
        assert!(code == Some(3) && text.contains("A2ACLI_ERR_UNREACHABLE"), "{text}");
    }
}

#[test]
#[cfg(feature = "logs")]
fn stopped_webhook_is_logged() {
    let path = std::env::temp_dir().join(format!("peregrine-stopped-{}", std::process::id()));
    let stderr = std::fs::File::create(&path).unwrap();
    let flags = ["--push-allow", "localhost", "--limit", "tasks_max=4"];
    let server = Binary::start_with(&flags, stderr.into());
    let (receiver, _) = failing();
    let mut tcp = server.connect();
    tcp.write(&post("/", &[], &rpc(V1.send(), &configured(&receiver))));
    tcp.reply();
    let line =
        format!("a webhook at {} has stopped (task_left), dead letter 1: ", receiver.url(""));
    // New tasks evict its task.
    eventually("the line is there", || {
        tcp.write(&post("/", &[], &rpc(V1.send(), &V1.params(say("hi")))));
        tcp.reply();
        std::fs::read_to_string(&path).unwrap().contains(&line)
    });
    std::fs::remove_file(path).unwrap();
    server.assert_lives();
}
