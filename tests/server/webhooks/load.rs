//! Many tasks at a time, each with three webhooks and a streaming client: every webhook gets all
//! events in order, and the memory of the server stays within the limit in the banner.
//!
//! `PUSH_TASKS=10000` makes it larger.

use std::{collections::HashMap, path::Path, thread, time::Duration};

use serde_json::{Value, json};

use super::receiver::{Does, Received, Receiver, distinct, patiently, responds};
use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say},
    binary::{Binary, Tcp},
};

/// A task waits until it has all its webhooks and a streaming client, so nothing depends on time.
const SCRIPT: &str = r#"
[agent]
name = "two-turns"

[[rule]]
text = "begin"
[[rule.step]]
status = "input-required"

[[rule]]
text = "go on"
[[rule.step]]
status = "working"
[[rule.step]]
delay_ms = 50
artifact = "out"
parts = [{ text = "one" }]
[[rule.step]]
delay_ms = 50
artifact = "out"
append = true
parts = [{ text = "two" }]
[[rule.step]]
status = "completed"
text = "done"
"#;

/// Little more than the minimum, plus the memory of the webhooks of many more tasks.
fn memory_mib(count: usize) -> u64 {
    300 + count as u64 / 10
}

/// The maximum of a configuration with its URL.
const CONFIG_BYTES_MAX: usize = 500;

struct Running {
    task: String,
    stream: Tcp,
}

fn call(tcp: &mut Tcp, method: &str, params: &Value) -> Value {
    tcp.write(&post("/", &[("A2A-Version", "1.0")], &rpc(method, params)));
    tcp.reply().result()
}

/// Tasks that wait for their second turn, each with a webhook at every receiver.
fn begin(server: &Binary, count: usize, hooks: &[Receiver]) -> Vec<String> {
    let mut tcp = server.connect();
    let made = (0..count).map(|n| {
        let mut params = V1.params(OutgoingMessage { id: &format!("m-{n}"), ..say("begin") });
        let url = |hook: &Receiver| hook.url(&format!("/{n}"));
        params["configuration"]["taskPushNotificationConfig"] = json!({"url": url(&hooks[0])});
        let made = call(&mut tcp, V1.send(), &params);
        let task = made["task"]["id"].as_str().unwrap().to_owned();
        for hook in &hooks[1..] {
            let params = json!({"taskId": task, "url": url(hook)});
            call(&mut tcp, "CreateTaskPushNotificationConfig", &params);
        }
        task
    });
    made.collect()
}

/// Streams the second turn of each.
fn go_on(server: &Binary, tasks: Vec<String>) -> Vec<Running> {
    let open = |task: String| {
        let params = V1.params(OutgoingMessage { task: Some(&task), id: "go", ..say("go on") });
        let mut stream = server.connect();
        stream.write(&post("/", &[("A2A-Version", "1.0")], &rpc(V1.stream(), &params)));
        Running { task, stream }
    };
    tasks.into_iter().map(open).collect()
}

fn bodies(posts: &[Received]) -> Vec<Value> {
    distinct(posts).iter().map(|post| post.json()).collect()
}

#[test]
fn webhooks_of_many_tasks_get_all_events_in_order() {
    let count = std::env::var("PUSH_TASKS").map_or(1_000, |text| text.parse().unwrap());
    let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-turns.toml");
    std::fs::write(&script, SCRIPT).unwrap();
    let (agent, memory) =
        (format!("script:{}", script.display()), format!("{}M", memory_mib(count)));
    let room = format!("push_bytes_max={}", count * 6 * CONFIG_BYTES_MAX);
    #[rustfmt::skip]
    let flags = [
        "--push-allow", "localhost", "--agent", &agent, "--memory", &memory, "--limit", &room,
    ];
    let server = Binary::start(&flags);
    // One receiver accepts all posts, one is sometimes slow, one sometimes fails.
    let hooks = [
        Receiver::willing(),
        Receiver::new(|n, post| match (n + post.path.len() + post.body.len()) % 50 {
            0 => Does::Later(Duration::from_millis(30)),
            _ => responds("200 OK"),
        }),
        Receiver::new(|n, post| {
            match (n * 31 + post.path.bytes().map(usize::from).sum::<usize>()) % 97 {
                0 => responds("503 Service Unavailable"),
                1 => Does::Closes,
                _ => responds("200 OK"),
            }
        }),
    ];
    let running = thread::scope(|scope| {
        let most = scope.spawn(|| watch(&server, &hooks, count));
        let tasks = begin(&server, count, &hooks);
        let running = go_on(&server, tasks);
        let streamed: Vec<(String, Vec<Value>)> = running.into_iter().map(read).collect();
        let most = most.join().unwrap();
        let is_counted = std::env::var_os("ASAN_OPTIONS").is_none();
        assert!(!is_counted || most <= memory_mib(count) * 1024, "{most} KiB were resident");
        eprintln!("{count} tasks: {most} KiB were resident at most");
        streamed
    });
    let received: Vec<HashMap<String, Vec<Received>>> =
        hooks.iter().map(Receiver::by_path).collect();
    for (n, (task, streamed)) in running.iter().enumerate() {
        let path = format!("/{n}");
        // The stream begins with the current task; the events follow.
        let news = &streamed[1..];
        assert_eq!(streamed[0]["task"]["id"], **task);
        for (hook, posts) in received.iter().enumerate() {
            let posted = bodies(&posts[&path]);
            // The first event came before the stream.
            let (before, after) = posted.split_at(posted.len() - news.len());
            assert_eq!(after, news, "{path} of {hook}");
            assert_eq!(!before.is_empty(), hook == 0, "{path} of {hook}: {before:?}");
        }
    }
    server.assert_lives();
}

fn read(running: Running) -> (String, Vec<Value>) {
    let Running { task, mut stream } = running;
    let reply = stream.reply();
    (task, reply.events().iter().map(|event| event.result().clone()).collect())
}

/// The peak of resident memory, in KiB, until every webhook got the end of its task.
fn watch(server: &Binary, hooks: &[Receiver], count: usize) -> u64 {
    let mut most = 0;
    patiently("all are told of the end", || {
        let line = server.status("VmRSS").expect("a line");
        most = most.max(line.split(' ').next().unwrap().parse().expect("a number"));
        hooks.iter().all(|hook| hook.completed() >= count)
    });
    most
}
