//! Remote agents from the command line and from the configuration: the real binary as a gateway in
//! front of itself.

use serde_json::{Value, json};

use crate::support::{
    ask::{V1, get, post, rpc, say, text_of},
    binary::{Binary, Tcp, eventually},
    configured::Configured,
    reply::Reply,
};

fn call(server: &Binary, path: &str, method: &str, params: &Value) -> Tcp {
    let mut line = server.connect();
    line.write(&post(path, &[("A2A-Version", "1.0")], &rpc(method, params)));
    line
}

fn send(server: &Binary, path: &str, text: &str) -> Reply {
    call(server, path, V1.send(), &V1.params(say(text))).reply()
}

/// A gateway to these agents, on a port of its own.
fn gateway(agents: &[&str]) -> Binary {
    let flags = ["--listen", "127.0.0.1:0", "--allow-host", "a.example"];
    Binary::start_command("gateway", &[agents, &flags].concat())
}

#[test]
fn gateway_serves_each_configured_upstream_agent() {
    let [echo, upper] = ["echo", "exec:tr a-z A-Z"].map(|kind| Binary::start(&["--agent", kind]));
    let url = |server: &Binary| format!("http://{}", server.addr());
    let named = format!("upper={}", url(&upper));
    let gateway = gateway(&[&url(&echo), &named, &url(&echo)]);
    assert_eq!(text_of(&send(&gateway, "/", "ping").result()["message"]), "pong");
    let task = send(&gateway, "/agents/upper", "hello").result();
    assert_eq!(text_of(&V1.task(&task)["artifacts"][0]), "HELLO");
    // Both are called echo by their cards.
    for path in ["/agents/echo", "/agents/echo-2"] {
        assert_eq!(text_of(&send(&gateway, path, "ping").result()["message"]), "pong", "{path}");
    }
}

#[test]
fn gateway_uses_its_task_ids_at_a_0_1_upstream() {
    let upstream = Binary::start(&["--mount", "/old=rabbithole"]);
    let gateway = gateway(&[&format!("http://{}/old", upstream.addr())]);
    let result = send(&gateway, "/", "hello").result();
    let task = V1.task(&result);
    assert_eq!(text_of(&task["artifacts"][0]), "hello");
    let its = call(&upstream, "/", V1.get(), &json!({"id": task["id"]})).reply();
    assert_eq!(its.result()["status"]["state"], "TASK_STATE_COMPLETED", "{}", its.text());
    let mut stream = call(&gateway, "/", V1.stream(), &V1.params(say("hold:600000:1")));
    stream.read_until("TASK_STATE_SUBMITTED");
    let id = stream.peek().expect("a task").events()[0].result()["task"]["id"].clone();
    let canceled = call(&gateway, "/", V1.cancel(), &json!({"id": id})).reply();
    assert_eq!(canceled.result()["status"]["state"], "TASK_STATE_CANCELED", "{}", canceled.text());
}

#[test]
fn unreachable_upstream_is_served_under_its_host_name() {
    let addr = Binary::start(&[]).addr();
    let url = format!("http://{addr}");
    let gateway = gateway(&[&url]);
    let path = format!("/agents/127.0.0.1-{}", addr.port());
    let reply = send(&gateway, &path, "hello");
    assert!(reply.text().contains("the upstream agent cannot be reached"), "{}", reply.text());
}

#[test]
fn silent_upstream_does_not_block_other_agents() {
    // The kernel queues connections, and the test accepts none.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = Binary::start(&[]);
    let text = format!(
        "[agents.echo]\nkind = \"echo\"\n[agents.silent.upstream]\nurl = \"http://{}\"\n\
         calls = 1\nstreams = 3\n[agents.remote.upstream]\nurl = \"http://{}\"\nstreams = 1\n",
        silent.local_addr().unwrap(),
        upstream.addr()
    );
    let on = Configured::new("silent", &text);
    let message = V1.params(say("hold:600000:1"));
    let waiting: Vec<Tcp> =
        (0..3).map(|_| call(&on.server, "/agents/silent", V1.send(), &message)).collect();
    eventually("the slots of the silent agent are taken", || {
        send(&on.server, "/agents/silent", "hi").text().contains("upstream_streams_max")
    });
    for path in ["/agents/echo", "/agents/remote"] {
        assert_eq!(text_of(&send(&on.server, path, "ping").result()["message"]), "pong", "{path}");
    }
    let mut stream = call(&on.server, "/agents/remote", V1.stream(), &message);
    stream.read_until("TASK_STATE_SUBMITTED");
    let refused = send(&on.server, "/agents/remote", "ping");
    assert!(refused.text().contains("upstream_streams_max"), "{}", refused.text());
    drop(waiting);
}

#[test]
fn disabled_agent_refuses_calls_and_fails_its_tasks() {
    let upstream = Binary::start(&[]);
    let remote = format!("[agents.remote.upstream]\nurl = \"http://{}\"\n", upstream.addr());
    let text = |enabled: bool| format!("[agents.remote]\nenabled = {enabled}\n{remote}");
    let on = Configured::new("switch", &text(true));
    let held = V1.params(say("hold:600000:1"));
    let mut stream = call(&on.server, "/", V1.stream(), &held);
    stream.read_until("TASK_STATE_SUBMITTED");
    let id = stream.peek().expect("a task").events()[0].result()["task"]["id"].clone();
    on.reload(&text(false));
    stream.read_until("TASK_STATE_FAILED");
    let refused = send(&on.server, "/", "ping");
    assert!(refused.text().contains("the agent is disabled"), "{}", refused.text());
    let mut line = on.server.connect();
    line.write(&post(
        "/message:send",
        &[("A2A-Version", "1.0")],
        &V1.params(say("hi")).to_string(),
    ));
    assert_eq!(line.reply().status, 503);
    // The task is still there.
    let task = call(&on.server, "/", V1.get(), &json!({"id": id})).reply();
    assert_eq!(task.result()["status"]["state"], "TASK_STATE_FAILED", "{}", task.text());
    on.reload(&text(true));
    eventually("the agent answers again", || send(&on.server, "/", "ping").text().contains("pong"));
    let mut line = on.server.connect();
    line.write(&get("/.well-known/agent-card.json"));
    assert_eq!(line.reply().json()["name"], "remote");
}
