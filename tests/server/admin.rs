//! Operators over real sockets: which credentials may operate a server, and how an operator lists
//! and cancels callers' tasks.

use std::{
    net::SocketAddr,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use peregrine::{
    agent::{Agent, CancelRequest, DeferredCancel, Profile, Turn, echo::Echo},
    net::{Running, Server},
};
use serde_json::{Value, json};

use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say},
    binary::{Binary, PATH, Tcp},
    callers::ByName,
    reply::Reply,
};

const ADMIN: &str = "Authorization: Bearer root a2a:admin\r\n";

fn server() -> Server {
    let server = Server::new().agent(Echo::profile(), Echo).allow_host("*").workers(1).metrics();
    server.listen("127.0.0.1:0")
}

fn start(server: Server) -> (Running, SocketAddr) {
    let running = server.start().unwrap();
    let admin = running.admin().unwrap().strip_prefix("http://").unwrap();
    // The test connects over loopback to the listener on all addresses.
    let admin = admin.replace("0.0.0.0", "127.0.0.1").parse().unwrap();
    (running, admin)
}

/// A request to the listener, with more fields, each with its end of line.
fn request(admin: SocketAddr, line: &str, fields: &str, body: &str) -> Reply {
    let mut tcp = Tcp::to(admin);
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    tcp.write(format!("{head}{fields}\r\n{body}").as_bytes());
    tcp.reply()
}

/// Sends a message as this caller without waiting for the task; returns the task's id.
fn send(agents: SocketAddr, caller: &str, text: &str) -> String {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let id = format!("m-{}", SENT.fetch_add(1, Relaxed));
    let mut params = V1.params(OutgoingMessage { id: &id, ..say(text) });
    params["configuration"]["returnImmediately"] = json!(true);
    let bearer = format!("Bearer {caller} a2a:send,a2a:read");
    let fields = if caller.is_empty() { vec![] } else { vec![("Authorization", &*bearer)] };
    let mut tcp = Tcp::to(agents);
    tcp.write(&post("/", &fields, &rpc(V1.send(), &params)));
    tcp.reply().result()["task"]["id"].as_str().unwrap().to_owned()
}

const OPERATIONS: [&str; 5] = [
    "GET /tasks",
    "POST /tasks/x/cancel",
    "POST /tasks/x/fail",
    "GET /push/dead",
    "DELETE /push/dead",
];

#[test]
fn an_exposed_admin_needs_the_admin_scope() {
    let callers = Arc::new(ByName::default());
    let (running, admin) = start(server().authenticator(callers).admin("0.0.0.0:0"));
    for operation in OPERATIONS {
        let none = request(admin, operation, "", "");
        assert_eq!(none.status, 401, "{operation}");
        assert!(none.field("www-authenticate").is_some(), "{operation}");
        let wrong = request(admin, operation, "Authorization: Bearer wrong\r\n", "");
        assert_eq!(wrong.status, 401, "{operation}");
        let other = "Authorization: Bearer eve a2a:read,a2a:send,a2a:cancel\r\n";
        assert_eq!(request(admin, operation, other, "").status, 403, "{operation}");
        let status = request(admin, operation, ADMIN, "").status;
        assert!(matches!(status, 200 | 404), "{operation} {status}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(request(admin, &format!("GET {path}"), "", "").status, 200, "{path}");
    }
    running.shutdown();
    running.join();
}

#[test]
fn exposed_admin_without_authentication_serves_only_pages() {
    let (running, admin) = start(server().admin("0.0.0.0:0"));
    for operation in OPERATIONS {
        let refused = request(admin, operation, ADMIN, "");
        assert_eq!(refused.status, 403, "{operation}");
        assert!(refused.text().contains("a2a:admin"), "{}", refused.text());
    }
    assert_eq!(request(admin, "GET /metrics", "", "").status, 200);
    running.shutdown();
    running.join();
}

#[test]
fn loopback_admin_skips_credentials_and_rejects_web_pages() {
    let callers = Arc::new(ByName::default());
    let (running, admin) = start(server().authenticator(callers).admin("127.0.0.1:0"));
    assert_eq!(request(admin, "GET /tasks", "", "").status, 200);
    assert_eq!(request(admin, "GET /tasks", "Authorization: Bearer wrong\r\n", "").status, 200);
    for operation in ["POST /tasks/x/cancel", "POST /tasks/x/fail"] {
        assert_eq!(request(admin, operation, "", "").status, 404);
        for field in ["Origin: https://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
            assert_eq!(request(admin, operation, field, "").status, 403, "{operation} {field}");
        }
    }
    let mut tcp = Tcp::to(running.addrs()[0]);
    tcp.write(b"GET /tasks?state=working HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(tcp.reply().status, 401, "it is the agents' own list there");
    running.shutdown();
    running.join();
    let named = Binary::start(&["--admin", "127.0.0.1:0"]);
    let admin = named.banner("admin").strip_prefix("http://").unwrap().parse().unwrap();
    let mut tcp = Tcp::to(admin);
    tcp.write(b"GET /tasks HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(tcp.reply().status, 421);
}

/// Holds each task until it is canceled; the test decides on the cancel.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Vec<DeferredCancel>>>);

impl Agent for Slow {
    fn start(&self, turn: Turn<'_>) {
        turn.resume_after(600_000, 0);
    }

    fn cancel(&self, request: CancelRequest<'_>) {
        if let Ok(deferred) = request.defer() {
            self.0.lock().unwrap().push(deferred);
        }
    }
}

fn ids(page: &Value) -> Vec<String> {
    let tasks = page["tasks"].as_array().unwrap();
    tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tasks_of_all_callers_are_listed_in_pages() {
    let callers = Arc::new(ByName::default());
    let server = server().agent(Profile::new("slow", "holds"), Slow::default());
    let (running, admin) = start(server.authenticator(callers).admin("127.0.0.1:0"));
    let agents = running.addrs()[0];
    let list = |query: &str| {
        let reply = request(admin, &format!("GET /tasks{query}"), "", "");
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(!reply.text().contains("hush"), "{}", reply.text());
        reply.json()
    };
    assert_eq!(list(""), json!({ "tasks": [], "nextPageToken": "", "totalSize": 0 }));
    let mut sent: Vec<String> = Vec::new();
    for number in 0..130 {
        let caller = if number % 2 == 0 { "alice" } else { "bob" };
        sent.push(send(agents, caller, "hush hush"));
    }
    let held = send(agents, "alice", "hold:600000:1");
    sent.push(held.clone());
    sent.reverse();
    let first = list("");
    assert_eq!((ids(&first).len(), first["totalSize"].as_u64()), (100, Some(131)));
    let token = first["nextPageToken"].as_str().unwrap();
    let second = list(&format!("?pageToken={token}"));
    assert_eq!((ids(&second).len(), second["nextPageToken"].as_str()), (31, Some("")));
    assert_eq!([ids(&first), ids(&second)].concat(), sent, "the newest first, each once");
    let one = &first["tasks"][0];
    assert_eq!((&one["id"], &one["agent"]), (&json!(held), &json!("echo")));
    assert_eq!((&one["state"], &one["tenant"]), (&json!("submitted"), &json!("")));
    let owner = one["owner"].as_str().unwrap().replace(' ', "%20");
    assert!(owner.ends_with("alice") && one["bytes"].as_u64() > Some(0), "{one}");
    assert!(one["statusTime"].as_str().unwrap().ends_with('Z'), "{one}");
    let of_alice = list(&format!("?owner={owner}"));
    assert_eq!(of_alice["totalSize"], 66);
    assert_eq!(list("?owner=alice")["totalSize"], 66);
    assert_eq!(list("?state=SUBMITTED")["totalSize"], 1);
    assert_eq!(list(&format!("?state=completed&owner={owner}"))["totalSize"], 65);
    assert_eq!(
        (&list("?agent=echo")["totalSize"], &list("?agent=slow")["totalSize"]),
        (&json!(131), &json!(0))
    );
    assert_eq!(
        (&list("?owner=nobody")["totalSize"], &list("?owner=")["totalSize"]),
        (&json!(0), &json!(0))
    );
    for query in ["?state=running", "?agent=none", "?pageToken=7", "?page=1", "?state=%zz"] {
        let refused = request(admin, &format!("GET /tasks{query}"), "", "");
        assert!(refused.status == 400 && refused.json()["error"].is_string(), "{query}");
    }
    let error = request(admin, "GET /tasks?state=running", "", "").json()["error"].clone();
    assert!(error.as_str().unwrap().contains("working, completed"), "{error}");
    running.shutdown();
    running.join();
}

#[test]
fn task_failed_by_operator_ends_its_stream() {
    let callers = Arc::new(ByName::default());
    let (running, admin) = start(server().authenticator(callers).admin("127.0.0.1:0"));
    let agents = running.addrs()[0];
    let mut stream = Tcp::to(agents);
    let alice = [("Authorization", "Bearer alice a2a:send,a2a:read")];
    let body = rpc(V1.stream(), &V1.params(say("hold:600000:1")));
    stream.write(&post("/", &alice, &body));
    stream.read_until("SUBMITTED");
    let page = request(admin, "GET /tasks?state=submitted", "", "").json();
    let id = ids(&page).remove(0);
    let path = format!("POST /tasks/{id}/fail");
    for body in ["reason", "[]", r#"{"reason":7}"#, r#"{"why":"x"}"#] {
        assert_eq!(request(admin, &path, "", body).status, 400, "{body}");
    }
    let long = json!({ "reason": "x".repeat(8_193) }).to_string();
    assert!(request(admin, &path, "", &long).text().contains("8192"));
    let failed = request(admin, &path, "", &json!({ "reason": "it ran \"wild\"" }).to_string());
    assert_eq!((failed.status, failed.json()), (200, json!({ "id": id, "state": "failed" })));
    stream.read_until("TASK_STATE_FAILED");
    stream.read_until(r#"it ran \"wild\""#);
    stream.read_until("\r\n0\r\n\r\n");
    let again = request(admin, &path, "", "");
    assert_eq!(again.status, 409, "{}", again.text());
    assert_eq!(request(admin, &format!("POST /tasks/{id}/cancel"), "", "").status, 409);
    // Without a reason the task still gets a status message.
    let id = send(agents, "bob", "hold:600000:1");
    assert_eq!(request(admin, &format!("POST /tasks/{id}/fail"), "", "").status, 200);
    let bob = [("Authorization", "Bearer bob a2a:send,a2a:read")];
    let mut tcp = Tcp::to(agents);
    tcp.write(&post("/", &bob, &rpc(V1.get(), &json!({ "id": id }))));
    let status = tcp.reply().result()["status"].clone();
    assert_eq!(status["message"]["parts"][0]["text"], "the operator of the server ended the task");
    running.shutdown();
    running.join();
}

#[test]
fn operator_cancel_is_decided_by_the_agent() {
    let slow = Slow::default();
    let server = Server::new().agent(Profile::new("slow", "holds"), slow.clone()).workers(1);
    let server = server.agent(Echo::profile(), Echo).allow_host("*").listen("127.0.0.1:0");
    let (running, admin) = start(server.admin("127.0.0.1:0"));
    let agents = running.addrs()[0];
    let state = |id: &str| {
        let mut tcp = Tcp::to(agents);
        tcp.write(&post("/", &[], &rpc(V1.get(), &json!({ "id": id }))));
        tcp.reply().result()["status"]["state"].clone()
    };
    for (decision, after) in [(true, "TASK_STATE_CANCELED"), (false, "TASK_STATE_SUBMITTED")] {
        let id = send(agents, "", "hold");
        let canceling = request(admin, &format!("POST /tasks/{id}/cancel"), "", "");
        assert_eq!(
            (canceling.status, canceling.json()),
            (202, json!({ "id": id, "state": "submitted" }))
        );
        // The operator has disconnected; the decision still counts.
        let deferred = slow.0.lock().unwrap().pop().unwrap();
        assert!(!deferred.is_caller_gone());
        match decision {
            true => deferred.agree(),
            false => deferred.refuse("not now"),
        }
        assert_eq!(state(&id), after);
    }
    running.shutdown();
    running.join();
}

#[test]
fn operator_cancel_of_ambiguous_task_id_needs_an_owner() {
    let callers = Arc::new(ByName::default());
    let (running, admin) = start(server().authenticator(callers).admin("127.0.0.1:0"));
    let agents = running.addrs()[0];
    let chosen = json!({ "id": "mine/1", "message": {
        "role": "user", "parts": [{ "type": "text", "text": "hold:600000:1" }] } });
    for caller in ["alice", "bob"] {
        let bearer = format!("Bearer {caller} a2a:send,a2a:read");
        let mut stream = Tcp::to(agents);
        let body = rpc("tasks/sendSubscribe", &chosen);
        stream.write(&post("/", &[("Authorization", &bearer)], &body));
        stream.read_until("submitted");
    }
    let page = request(admin, "GET /tasks", "", "").json();
    assert_eq!(ids(&page), ["mine/1", "mine/1"]);
    assert_eq!(request(admin, "POST /tasks/cancel?id=mine/1", "", "").status, 409);
    assert_eq!(request(admin, "POST /tasks/cancel", "", "").status, 400);
    assert_eq!(request(admin, "POST /tasks/a/cancel?id=a", "", "").status, 400);
    let one = request(admin, "POST /tasks/cancel?id=mine/1&owner=alice", "", "");
    assert_eq!((one.status, one.json()["state"].as_str()), (200, Some("canceled")));
    let remaining = request(admin, "GET /tasks?state=submitted", "", "").json();
    assert_eq!(remaining["totalSize"], 1);
    running.shutdown();
    running.join();
}

/// Runs `peregrine admin task`; returns its exit code and its output.
#[cfg(feature = "cli")]
fn run(admin: &str, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(PATH);
    command.args(["admin", "task"]).args(words).env("PEREGRINE_ADMIN", admin);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
#[cfg(feature = "cli")]
fn admin_commands_list_fail_and_cancel_tasks() {
    let callers = Arc::new(ByName::default());
    let (running, at) = start(server().authenticator(callers).admin("0.0.0.0:0"));
    let (agents, admin) = (running.addrs()[0], at.to_string());
    let id = send(agents, "alice", "hold:600000:1");
    let (code, text) = run(&admin, &["list"]);
    assert!(code == Some(4) && text.contains("a2a:admin"), "{code:?} {text}");
    let key = ["--bearer", "root a2a:admin"];
    let (code, table) = run(&admin, &[&["list", "--state", "submitted"][..], &key].concat());
    assert!(code == Some(0) && table.starts_with("TASK") && table.contains(&id), "{table}");
    let fail = ["fail", &id, "--reason", "too long"];
    let (code, text) = run(&admin, &[&fail[..], &key].concat());
    assert_eq!((code, text), (Some(0), format!("Task: {id}\nState: failed\n")));
    let (code, text) = run(&admin, &[&fail[..], &key].concat());
    assert!(code == Some(1) && text.contains("already ended"), "{text}");
    let id = send(agents, "alice", "hold:600000:1");
    let cancel = ["cancel", &id, "-o", "json", "--api-key", "root a2a:admin"];
    let (code, text) = run(&admin, &cancel);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, answer), (Some(0), json!({ "id": id, "state": "canceled" })));
    let (code, text) = run(&admin, &[&["cancel", "none"][..], &key].concat());
    assert!(code == Some(3) && text.contains("PEREGRINE_ERR_NOT_FOUND"), "{text}");
    let (code, text) = run("192.0.2.1:9", &[&["list"][..], &key].concat());
    assert!(code == Some(2) && text.contains("plain text"), "{text}");
    running.shutdown();
    running.join();
}
