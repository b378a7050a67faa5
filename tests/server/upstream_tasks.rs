//! Tasks of a remote agent, and the ids by which messages refer to them: the agent's ids never
//! show, and ours are translated into its own. A task is followed across a reload and a login.

use std::{
    io::Write,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::{Value, json};

use crate::support::{
    ask::{V1, post, rpc, say},
    binary::{Binary, Tcp},
    by_hand::{ByHand, ReceivedRequest, STREAM, answer, event, remote},
    configured::Configured,
};

fn status(id: &str, state: &str) -> Value {
    json!({"state": format!("TASK_STATE_{state}"), "message": {
        "messageId": format!("m-{state}"), "role": "ROLE_AGENT", "taskId": id,
        "referenceTaskIds": [id, "up-1", "of-others"], "parts": [{"text": state}],
    }})
}

fn task(id: &str, state: &str) -> Value {
    json!({"id": id, "contextId": "up-context", "status": status(id, state)})
}

/// Answers each message with a completed task of its own; all in one context.
fn completes() -> ByHand {
    let count = AtomicUsize::new(0);
    remote(move |request, stream| {
        let id = format!("up-{}", count.fetch_add(1, SeqCst) + 1);
        let whole = event(request, &json!({"task": task(&id, "COMPLETED")}));
        let _ = stream.write_all(format!("{STREAM}{whole}").as_bytes());
    })
}

fn call(server: &Binary, fields: &[(&str, &str)], method: &str, params: &Value) -> Tcp {
    let mut line = server.connect();
    line.write(&post("/", &[&[("A2A-Version", "1.0")], fields].concat(), &rpc(method, params)));
    line
}

fn send(server: &Binary, fields: &[(&str, &str)], params: &Value) -> Value {
    call(server, fields, V1.send(), params).reply().json()
}

/// The next message that the agent got, and its request head.
fn got(remote: &ByHand) -> (Value, String) {
    loop {
        let ReceivedRequest { head, body } = remote.request();
        if body["method"] == "SendStreamingMessage" {
            return (body["params"].clone(), head);
        }
    }
}

fn send_params(text: &str, more: Value) -> Value {
    let mut params = V1.params(say(text));
    let members = more.as_object().unwrap().clone();
    params["message"].as_object_mut().unwrap().extend(members);
    params
}

#[test]
fn context_and_reference_task_ids_are_translated() {
    let remote = completes();
    let server = Binary::start(&["--agent", &format!("a2a:http://{}", remote.addr)]);
    let first = send(&server, &[], &send_params("one", json!({})))["result"]["task"].clone();
    got(&remote);
    let text = first.to_string();
    assert!(!text.contains("up-1") && !text.contains("up-context"), "{text}");
    let (id, context) = (&first["id"], &first["contextId"]);
    assert_eq!(first["status"]["message"]["referenceTaskIds"], json!([id, id]), "{text}");
    let again = send_params("two", json!({"contextId": context, "referenceTaskIds": [id, id]}));
    let second = send(&server, &[], &again)["result"]["task"].clone();
    assert_eq!(&second["contextId"], context);
    let expected = json!([second["id"], id]);
    assert_eq!(second["status"]["message"]["referenceTaskIds"], expected, "{second}");
    let message = got(&remote).0["message"].clone();
    assert_eq!(message["contextId"], "up-context", "{message}");
    assert_eq!(message["referenceTaskIds"], json!(["up-1", "up-1"]), "{message}");
}

#[test]
fn unknown_reference_task_id_is_rejected() {
    let remote = completes();
    let server = Binary::start(&["--agent", &format!("a2a:http://{}", remote.addr)]);
    let refused = send(&server, &[], &send_params("one", json!({"referenceTaskIds": ["none"]})));
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    let why = refused.to_string().replace('\\', "");
    assert!(why.contains("has no task \"none\""), "{refused}");
    // The agent got no message.
    send(&server, &[], &send_params("two", json!({})));
    assert_eq!(got(&remote).0["message"]["parts"][0]["text"], "two");
}

#[test]
fn a_task_with_too_long_upstream_ids_fails() {
    let remote = remote(|request, stream| {
        let mut whole = task(&"i".repeat(1_020), "WORKING");
        whole["status"] = json!({"state": "TASK_STATE_WORKING"});
        let event = event(request, &json!({"task": whole}));
        let _ = stream.write_all(format!("{STREAM}{event}").as_bytes());
    });
    let server = Binary::start(&["--agent", &format!("a2a:http://{}", remote.addr)]);
    let answer = send(&server, &[], &send_params("one", json!({})));
    let task = &answer["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{answer}");
    assert!(task.to_string().contains("kept_bytes_max"), "{task}");
}

#[test]
fn output_modes_and_extensions_are_passed_on() {
    let remote = completes();
    let server = Binary::start(&["--agent", &format!("a2a:http://{}", remote.addr)]);
    let mut params = send_params("one", json!({}));
    params["configuration"] = json!({"acceptedOutputModes": ["image/png", "a\"b"]});
    let uris = "urn:x, urn:peregrine:long-poll:1,urn:y";
    send(&server, &[("A2A-Extensions", uris)], &params);
    let (params, head) = got(&remote);
    let modes = &params["configuration"]["acceptedOutputModes"];
    assert_eq!(modes, &json!(["image/png", "a\"b"]), "{params}");
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("a2a-extensions"));
    assert_eq!(line, Some("A2A-Extensions: urn:x, urn:y"), "{head}");
    send(&server, &[], &send_params("two", json!({})));
    let (params, head) = got(&remote);
    assert!(!head.to_ascii_lowercase().contains("extensions"), "{head}");
    assert!(params["configuration"]["acceptedOutputModes"].is_null(), "{params}");
}

#[test]
fn a_stream_begins_before_a_slow_agent_answers() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let remote = remote(move |request, stream| {
        let text = request.body["params"]["message"]["parts"][0]["text"].as_str().unwrap();
        if text != "at once" {
            let _ = released.lock().unwrap().recv();
        }
        let whole = match text {
            "task" => event(request, &json!({"task": task("up-1", "COMPLETED")})),
            "message" => event(request, &json!({"message": status("up-1", "x")["message"]})),
            _ => {
                let error = json!({"code": -32005, "message": "not this type"});
                let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error});
                let whole = answer("200 OK", "application/json", &body.to_string());
                return drop(stream.write_all(whole.as_bytes()));
            }
        };
        let _ = stream.write_all(format!("{STREAM}{whole}").as_bytes());
    });
    let agent = format!("a2a:http://{}", remote.addr);
    let server = Binary::start(&["--agent", &agent, "--limit", "stream_head_ms=100"]);
    for (text, expected) in
        [("task", "TASK_STATE_COMPLETED"), ("message", "\"message\""), ("refused", "event: error")]
    {
        let mut stream = call(&server, &[], V1.stream(), &V1.params(say(text)));
        stream.read_until(": keep-alive");
        release.send(()).unwrap();
        let reply = stream.reply();
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.text().contains(expected), "{text}: {}", reply.text());
        if text == "refused" {
            assert!(reply.text().contains("-32005"), "{}", reply.text());
        }
    }
    // A call that is refused at once is answered without a stream.
    let refused = call(&server, &[], V1.stream(), &V1.params(say("at once"))).reply();
    assert_eq!(refused.json()["error"]["code"], -32005, "{}", refused.text());
}

/// A gateway for Alice and Bob, and the fields of their calls.
fn of_two_callers(
    test: &str,
    remote: &ByHand,
    keys: &str,
) -> (Configured, [[(&'static str, &'static str); 1]; 2]) {
    let agent = format!("[agents.remote.upstream]\nurl = \"http://{}\"\n{keys}", remote.addr);
    let keys = ["alice", "bob"].map(|name| {
        format!("[[auth.api_keys]]\nname = \"{name}\"\nkey = \"key-of-{name}-0123456789\"\n")
    });
    let gateway = Configured::new(test, &format!("{agent}{}", keys.concat()));
    let fields =
        ["key-of-alice-0123456789", "key-of-bob-0123456789"].map(|key| [("x-api-key", key)]);
    (gateway, fields)
}

#[test]
fn relayed_tasks_of_another_caller_are_not_found() {
    let remote = completes();
    let (gateway, [alice, bob]) = of_two_callers("owners", &remote, "");
    let server = &gateway.server;
    let task = send(server, &alice, &send_params("one", json!({})))["result"]["task"].clone();
    let sent = |remote: &ByHand| got(remote).0["message"]["contextId"].clone();
    let of_alice = sent(&remote);
    let (id, context) = (&task["id"], &task["contextId"]);
    let get = |by: &[(&str, &str)], id: &Value| {
        call(server, by, V1.get(), &json!({"id": id})).reply().json()
    };
    assert_eq!(get(&alice, id)["result"]["id"], *id);
    for id in [id, &json!("up-1")] {
        assert_eq!(get(&bob, id)["error"]["code"], -32001);
    }
    let refused = send(server, &bob, &send_params("two", json!({"referenceTaskIds": [id]})));
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    // Her context differs from his of the same name, for the upstream agent as well.
    let in_context = |context: &Value| send_params("two", json!({"contextId": context}));
    send(server, &bob, &in_context(context));
    let of_bob = sent(&remote);
    assert!(![&of_alice, context].contains(&&of_bob), "{of_bob} {of_alice}");
    send(server, &alice, &in_context(context));
    assert_eq!(sent(&remote), "up-context");
    // Nor does he find her context by its name there.
    send(server, &bob, &in_context(&of_alice));
    assert_ne!(sent(&remote), of_alice);
}

#[test]
fn caller_tenant_is_forwarded_only_with_pass_tenant() {
    let remote = completes();
    let url = format!("url = \"http://{}\"", remote.addr);
    let text = format!(
        "[agents.passes.upstream]\n{url}\npass_tenant = true\ntenant = \"theirs\"\n\
         [agents.other.upstream]\n{url}\ntenant = \"theirs\"\n"
    );
    let configured = Configured::new("tenants", &format!("tenants = \"any\"\n{text}"));
    let server = &configured.server;
    let named = |tenant: &str| {
        let mut params = send_params("one", json!({}));
        params["tenant"] = json!(tenant);
        params
    };
    for (path, params, expected) in [
        ("/agents/passes", named("acme"), "acme"),
        ("/agents/passes", send_params("one", json!({})), "theirs"),
        ("/agents/other", named("acme"), "theirs"),
    ] {
        let mut line = server.connect();
        line.write(&post(path, &[("A2A-Version", "1.0")], &rpc(V1.send(), &params)));
        let answer = line.reply().json();
        assert!(answer["result"]["task"].is_object(), "{path}: {answer}");
        assert_eq!(got(&remote).0["tenant"], expected, "{path}");
    }
}

fn artifact(texts: &[&str]) -> Value {
    let parts: Vec<Value> = texts.iter().map(|text| json!({"text": text})).collect();
    json!({"artifactId": "a", "parts": parts})
}

#[test]
fn task_completes_after_its_agent_is_reloaded() {
    let remote = remote(|request, stream| {
        if request.body["method"] == "SubscribeToTask" {
            assert_eq!(request.body["params"]["id"], "up-1");
            let mut whole = task("up-1", "COMPLETED");
            whole["artifacts"] = json!([artifact(&["one", "two"])]);
            let event = event(request, &json!({"task": whole}));
            return drop(stream.write_all(format!("{STREAM}{event}").as_bytes()));
        }
        let chunk = json!({"taskId": "up-1", "contextId": "up-context"});
        let mut update = json!({"artifactUpdate": chunk});
        update["artifactUpdate"]["artifact"] = artifact(&["one"]);
        let whole = event(request, &json!({"task": task("up-1", "WORKING")}));
        let _ = stream.write_all(format!("{STREAM}{whole}{}", event(request, &update)).as_bytes());
        // Until the gateway closes it.
        let _ = std::io::Read::read(stream, &mut [0]);
    });
    let text = |call_ms: u32| {
        format!("[agents.r.upstream]\nurl = \"http://{}\"\ncall_ms = {call_ms}\n", remote.addr)
    };
    let configured = Configured::new("adopted", &text(5_000));
    let server = &configured.server;
    let mut stream = call(server, &[], V1.stream(), &V1.params(say("one")));
    stream.read_until("\"one\"");
    let id = stream.peek().expect("a task").events()[0].result()["task"]["id"].clone();
    configured.reload(&text(6_000));
    stream.read_until("TASK_STATE_COMPLETED");
    let whole = call(server, &[], V1.get(), &json!({"id": id})).reply().result();
    let parts = whole["artifacts"][0]["parts"].clone();
    assert_eq!(parts, json!([{"text": "one"}, {"text": "two"}]), "{whole}");
    assert_eq!(whole["status"]["state"], "TASK_STATE_COMPLETED", "{whole}");
}

#[test]
fn task_updates_continue_after_auth_required() {
    let gets = AtomicUsize::new(0);
    let remote = remote(move |request, stream| {
        let result = match request.body["method"].as_str() {
            Some("SendStreamingMessage") => {
                let status = status("up-1", "AUTH_REQUIRED");
                let update = json!({"statusUpdate": {
                    "taskId": "up-1", "contextId": "up-context", "status": status,
                }});
                let whole = event(request, &json!({"task": task("up-1", "WORKING")}));
                let text = format!("{STREAM}{whole}{}", event(request, &update));
                return drop(stream.write_all(text.as_bytes()));
            }
            Some("GetTask") => {
                let is_first = gets.fetch_add(1, SeqCst) == 0;
                json!({"result": task("up-1", if is_first { "AUTH_REQUIRED" } else { "COMPLETED" })})
            }
            _ => json!({"error": {"code": -32004, "message": "no subscriptions"}}),
        };
        let mut body = json!({"jsonrpc": "2.0", "id": request.body["id"]});
        body.as_object_mut().unwrap().extend(result.as_object().unwrap().clone());
        let text = answer("200 OK", "application/json", &body.to_string());
        let _ = stream.write_all(text.as_bytes());
    });
    let server = Binary::start(&["--agent", &format!("a2a:http://{}", remote.addr)]);
    let task = send(&server, &[], &V1.params(say("one")))["result"]["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_AUTH_REQUIRED", "{task}");
    let mut followed = call(&server, &[], V1.subscribe(), &json!({"id": task["id"]}));
    followed.read_until("TASK_STATE_COMPLETED");
    let whole = call(&server, &[], V1.get(), &json!({"id": task["id"]})).reply().result();
    let history = whole["history"].as_array().unwrap();
    // The status message of the login appears once, and not again at each poll of the task.
    let count =
        history.iter().filter(|message| message["parts"][0]["text"] == "AUTH_REQUIRED").count();
    assert_eq!(count, 1, "{whole}");
}

#[test]
fn one_caller_gets_at_most_half_of_upstream_streams() {
    let remote = remote(|request, stream| {
        let result = task("up-1", "AUTH_REQUIRED");
        let text = match request.body["method"].as_str() {
            Some("SendStreamingMessage") => {
                format!("{STREAM}{}", event(request, &json!({"task": result})))
            }
            _ => {
                let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
                answer("200 OK", "application/json", &body.to_string())
            }
        };
        let _ = stream.write_all(text.as_bytes());
    });
    let (gateway, [alice, bob]) = of_two_callers("streams", &remote, "streams = 4\n");
    let server = &gateway.server;
    let send = |by: &[(&str, &str)], id: &str| {
        send(server, by, &send_params("one", json!({"messageId": id}))).to_string()
    };
    // They wait for a login, and do not count as her running tasks.
    for id in ["1", "2"] {
        assert!(send(&alice, id).contains("AUTH_REQUIRED"));
    }
    assert!(send(&alice, "3").contains("upstream_streams_max"));
    for id in ["1", "2"] {
        assert!(send(&bob, id).contains("AUTH_REQUIRED"));
    }
}

#[test]
fn silent_upstream_stream_is_closed_when_task_is_canceled() {
    let (closed, has_closed) = std::sync::mpsc::channel();
    let remote = remote(move |request, stream| {
        let text = request.body["params"]["message"]["parts"][0]["text"].as_str();
        let whole = match text {
            Some("one") => format!(
                "{STREAM}{}",
                event(
                    request,
                    &json!({"statusUpdate": {
                        "taskId": "up-1", "contextId": "c", "status": status("up-1", "INPUT_REQUIRED"),
                    }})
                )
            ),
            Some(_) => format!("{STREAM}: alive\n\n"),
            None => {
                let body = json!({"jsonrpc": "2.0", "id": request.body["id"],
                    "result": task("up-1", "CANCELED")});
                answer("200 OK", "application/json", &body.to_string())
            }
        };
        let _ = stream.write_all(whole.as_bytes());
        if text == Some("two") {
            let _ = std::io::Read::read(stream, &mut [0]);
            let _ = closed.send(());
        }
    });
    let server = Binary::start(&["--agent", &format!("a2a:http://{}", remote.addr)]);
    let first = send(&server, &[], &V1.params(say("one")));
    let id = &first["result"]["task"]["id"];
    got(&remote);
    let second = send_params("two", json!({"messageId": "second", "taskId": id}));
    let waiting = call(&server, &[], V1.send(), &second);
    got(&remote);
    let canceled = call(&server, &[], V1.cancel(), &json!({"id": id})).reply();
    assert!(canceled.text().contains("TASK_STATE_CANCELED"), "{}", canceled.text());
    has_closed.recv_timeout(std::time::Duration::from_secs(10)).expect("the gateway leaves");
    drop(waiting);
}
