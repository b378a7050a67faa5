//! A task created in one generation is read, streamed, continued and canceled in each other one;
//! each generation gets the form that its own specification defines.

use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{Gen, OutgoingMessage, V01, V1, V03, post, rpc, say, text_of},
    reply::{Event, Reply},
};

/// Requests input until the text is `done`, works for a second on `slow`, and publishes its state.
const SCRIPT: &str = r#"
    [[rule]]
    [[rule.step]]
    status = "working"
    [[rule.step]]
    status = "input-required"
    text = "What next?"

    [[rule]]
    text = "slow"
    [[rule.step]]
    status = "working"
    [[rule.step]]
    delay_ms = 1000
    artifact = "out"
    parts = [{ text = "one" }]
    [[rule.step]]
    artifact = "out"
    append = true
    last_chunk = true
    parts = [{ text = "two" }]
    [[rule.step]]
    status = "completed"

    [[rule]]
    text = "done"
    [[rule.step]]
    artifact = "out"
    parts = [{ text = "result" }, { data = '{"n":1.0}' }]
    [[rule.step]]
    status = "completed"
    text = "That is all."

    [[rule]]
    text = "sign in"
    [[rule.step]]
    status = "auth-required"
    text = "Who are you?"
    [[rule.step]]
    delay_ms = 1000
    status = "completed"

    [[rule]]
    text = "refuse"
    [[rule.step]]
    status = "rejected"
"#;

/// The family in which a task of `made` is shown to `requested`: the names that the slash
/// generations share answer in the form of the task.
fn shown_as(requested: Gen, made: Gen) -> Gen {
    match (requested, made) {
        (V1, _) => V1,
        (V01 | V03, V01) => V01,
        (V01 | V03, V03 | V1) => V03,
    }
}

/// Sends a message and returns the task.
fn send(lab: &mut Lab, generation: Gen, message: OutgoingMessage<'_>) -> Value {
    let result = lab.result(generation.send(), &generation.params(message));
    generation.task(&result).clone()
}

fn id_of(task: &Value) -> String {
    task["id"].as_str().unwrap().to_owned()
}

/// Checks the form of a task in a family.
fn assert_task(task: &Value, form: Gen, id: &str, state: &str) {
    assert_eq!(task["id"], id, "{task}");
    assert_eq!(task["status"]["state"], form.state(state), "{task}");
    assert!(task[form.context_key()].is_string(), "{task}");
    assert_eq!(task.get("kind"), (form == V03).then_some(&json!("task")), "{task}");
    let members = ["id", "kind", "status", "artifacts", "history", form.context_key()];
    assert!(task.as_object().unwrap().keys().all(|key| members.contains(&key.as_str())), "{task}");
    let timestamp = task["status"]["timestamp"].as_str().unwrap();
    assert!(timestamp.len() == 24 && timestamp.ends_with('Z'), "{timestamp}");
}

/// An event as text: `task:STATE`, `status:STATE`, `artifact:TEXT`, `message`, with a `!` if it is
/// marked as final.
fn event_text(event: &Event, form: Gen) -> String {
    let result = event.result();
    let state = |status: &Value| {
        let state = status["state"].as_str().unwrap();
        state.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-")
    };
    let (kind, body) = match form {
        V1 => {
            let (kind, body) = result.as_object().unwrap().iter().next().unwrap();
            assert_eq!(result.as_object().unwrap().len(), 1, "{result}");
            (kind.as_str(), body)
        }
        V03 => (result["kind"].as_str().unwrap(), result),
        V01 if result.get("artifact").is_some() => ("artifact-update", result),
        V01 => ("status-update", result),
    };
    let end = if body["final"] == true { "!" } else { "" };
    let task_id = if form == V01 { &body["id"] } else { &body["taskId"] };
    match kind {
        "task" => format!("task:{}", state(&body["status"])),
        "message" => "message".to_owned(),
        "statusUpdate" | "status-update" => {
            assert!(task_id.is_string(), "{result}");
            assert_eq!(body.get("final").is_some(), form != V1, "{result}");
            format!("status:{}{end}", state(&body["status"]))
        }
        "artifactUpdate" | "artifact-update" => {
            assert!(task_id.is_string(), "{result}");
            format!("artifact:{}", text_of(&body["artifact"]))
        }
        other => panic!("an event {other}: {result}"),
    }
}

fn event_texts(reply: &Reply, form: Gen) -> Vec<String> {
    reply.events().iter().map(|event| event_text(event, form)).collect()
}

fn ids(reply: &Reply) -> Vec<u64> {
    reply.events().iter().filter_map(|event| event.id).collect()
}

/// Subscribes; with `seen`, resumes after that event id.
fn subscribe(lab: &mut Lab, generation: Gen, id: &str, seen: Option<&str>) -> Peer {
    let body = rpc(generation.subscribe(), &json!({"id": id}));
    let fields: Vec<_> = seen.iter().map(|seen| ("Last-Event-ID", *seen)).collect();
    let peer = lab.open();
    lab.write(peer, &post("/", &fields, &body));
    peer
}

// --- The matrix

#[test]
fn task_of_any_version_is_readable_in_every_version() {
    for made in Gen::ALL {
        let mut lab = Lab::scripted(SCRIPT);
        let id = id_of(&send(&mut lab, made, say("done")));
        for requested in Gen::ALL {
            let form = shown_as(requested, made);
            let task = lab.result(requested.get(), &json!({"id": id, "historyLength": 10}));
            assert_task(&task, form, &id, "completed");
            let artifact = &task["artifacts"][0];
            assert_eq!(text_of(artifact), "result");
            assert_eq!(artifact["parts"][1]["data"], json!({"n": 1.0}));
            assert_eq!(artifact["artifactId"].is_string(), form != V01);
            assert_eq!(artifact["index"].is_number(), form == V01);
            let (own, key) = (&artifact["parts"][0], ["type", "kind", ""][form as usize]);
            assert_eq!(own.get(key).is_some(), form != V1, "{own}");
            let history = task["history"].as_array().unwrap();
            assert_eq!(text_of(&history[0]), "done");
            let role = ["user", "user", "ROLE_USER"][form as usize];
            assert_eq!(history[0]["role"], role);
            assert_eq!(text_of(&task["status"]["message"]), "That is all.");
        }
    }
}

#[test]
fn task_of_any_version_can_be_subscribed_in_every_version() {
    for made in Gen::ALL {
        for requested in Gen::ALL {
            let mut lab = Lab::scripted(SCRIPT);
            let first = lab.stream(made.stream(), &made.params(say("slow")));
            let id = match made {
                V01 => "client-m".to_owned(),
                V03 => id_of(lab.peek(first).events()[0].result()),
                V1 => id_of(&lab.peek(first).events()[0].result()["task"]),
            };
            let second = subscribe(&mut lab, requested, &id, None);
            lab.pass(1_000);
            let (first, second) = (lab.reply(first), lab.reply(second));
            let form = shown_as(requested, made);
            // 0.1 has no task in its streams: a status is sent instead.
            let begin = |form: Gen| if form == V01 { "status" } else { "task" };
            let end = if made == V1 { "status:completed" } else { "status:completed!" };
            let expected = [
                &format!("{}:submitted", begin(made)),
                "status:working",
                "artifact:one",
                "artifact:two",
                end,
            ];
            assert_eq!(event_texts(&first, made), expected);
            let end = if form == V1 { "status:completed" } else { "status:completed!" };
            let expected =
                [&format!("{}:working", begin(form)), "artifact:one", "artifact:two", end];
            assert_eq!(event_texts(&second, form), expected, "{made:?} in {requested:?}");
            assert_eq!((ids(&first), ids(&second)), (vec![1, 2, 3, 4, 5], vec![2, 3, 4, 5]));
        }
    }
}

#[test]
fn task_of_any_version_can_be_continued_in_every_version() {
    for made in Gen::ALL {
        for requested in Gen::ALL {
            let mut lab = Lab::scripted(SCRIPT);
            let task = send(&mut lab, made, say("hello"));
            let id = id_of(&task);
            assert_task(&task, made, &id, "input-required");
            assert_eq!(text_of(&task["status"]["message"]), "What next?");
            let context = task[made.context_key()].as_str().unwrap();
            // With the task id alone, then with both ids, then to its end.
            let more = OutgoingMessage { task: Some(&id), id: "m2", ..say("more") };
            let task = send(&mut lab, requested, more);
            assert_task(&task, requested, &id, "input-required");
            let both =
                OutgoingMessage { context: Some(context), history: Some(10), id: "m3", ..more };
            let task = send(&mut lab, requested, OutgoingMessage { text: "done", ..both });
            assert_task(&task, requested, &id, "completed");
            assert_eq!(task[requested.context_key()], context);
            let texts = task["history"].as_array().unwrap().iter().map(text_of);
            let texts: Vec<_> = texts.collect();
            assert_eq!(texts, ["hello", "What next?", "more", "What next?", "done"]);
        }
    }
}

#[test]
fn task_of_any_version_continues_as_stream_in_every_version() {
    for made in Gen::ALL {
        for requested in Gen::ALL {
            let mut lab = Lab::scripted(SCRIPT);
            let id = id_of(&send(&mut lab, made, say("hello")));
            let more = OutgoingMessage { task: Some(&id), ..say("done") };
            let peer = lab.stream(requested.stream(), &requested.params(more));
            let begin = if requested == V01 { "status" } else { "task" };
            let end = if requested == V1 { "status:completed" } else { "status:completed!" };
            let expected = [&format!("{begin}:input-required"), "artifact:result", end];
            assert_eq!(
                event_texts(&lab.reply(peer), requested),
                expected,
                "{made:?} in {requested:?}"
            );
        }
    }
}

#[test]
fn task_of_any_version_can_be_canceled_in_every_version() {
    for made in Gen::ALL {
        for requested in Gen::ALL {
            let mut lab = Lab::scripted(SCRIPT);
            let streams = Gen::ALL.map(|generation| {
                let message = OutgoingMessage { id: generation.stream(), ..say("slow") };
                let peer = lab.stream(generation.stream(), &generation.params(message));
                (generation, peer)
            });
            let stream = streams[made as usize].1;
            let id = match made {
                V01 => "client-tasks/sendSubscribe".to_owned(),
                V03 => id_of(lab.peek(stream).events()[0].result()),
                V1 => id_of(&lab.peek(stream).events()[0].result()["task"]),
            };
            let task = lab.result(requested.cancel(), &json!({"id": id}));
            assert_task(&task, shown_as(requested, made), &id, "canceled");
            let events = event_texts(&lab.reply(stream), made);
            assert!(events.last().unwrap().starts_with("status:canceled"), "{events:?}");
            // Only 1.0 accepts a second cancel.
            assert_eq!(lab.code(V03.cancel(), &json!({"id": id})), -32002);
            let again = lab.result(V1.cancel(), &json!({"id": id}));
            assert_task(&again, V1, &id, "canceled");
            // Later events of the agent have no effect.
            lab.pass(2_000);
            let task = lab.result(V1.get(), &json!({"id": id}));
            assert_task(&task, V1, &id, "canceled");
            assert!(task.get("artifacts").is_none());
        }
    }
}

#[test]
fn finished_task_cannot_be_canceled_in_any_version() {
    for made in Gen::ALL {
        let mut lab = Lab::scripted(SCRIPT);
        for text in ["done", "refuse"] {
            let id = id_of(&send(&mut lab, made, OutgoingMessage { id: text, ..say(text) }));
            for requested in Gen::ALL {
                assert_eq!(lab.code(requested.cancel(), &json!({"id": id})), -32002);
            }
        }
    }
}

#[test]
fn states_missing_in_a_version_map_to_the_nearest_state() {
    let mut lab = Lab::scripted(SCRIPT);
    for generation in Gen::ALL {
        for (text, state) in [("sign in", "auth-required"), ("refuse", "rejected")] {
            let task = send(&mut lab, generation, OutgoingMessage { id: text, ..say(text) });
            assert_eq!(task["status"]["state"], generation.state(state));
        }
    }
}

// --- Waiting

#[test]
fn blocking_send_waits_until_the_task_is_finished() {
    for generation in Gen::ALL {
        let mut lab = Lab::scripted(SCRIPT);
        let waits = lab.stream(generation.send(), &generation.params(say("slow")));
        assert!(lab.received(waits).is_empty());
        let wakes = lab.wakes(waits);
        lab.pass(999);
        assert!(lab.received(waits).is_empty());
        lab.pass(1);
        let result = lab.reply(waits).result();
        assert_task(
            generation.task(&result),
            generation,
            &id_of(generation.task(&result)),
            "completed",
        );
        assert!((1..=2).contains(&(lab.wakes(waits) - wakes)), "one wake-up, or two");
        if generation != V01 {
            let at_once = OutgoingMessage { at_once: true, ..say("slow") };
            let task = send(&mut lab, generation, at_once);
            assert_eq!(task["status"]["state"], generation.state("working"));
        }
    }
}

#[test]
fn blocking_and_return_immediately_work_in_0_3_and_1_0() {
    let mut lab = Lab::scripted(SCRIPT);
    for generation in [V03, V1] {
        for configuration in [json!({"blocking": false}), json!({"returnImmediately": true})] {
            let mut params = generation.params(say("slow"));
            params["configuration"] = configuration;
            let result = lab.result(generation.send(), &params);
            let state = &generation.task(&result)["status"]["state"];
            assert_eq!(state, &generation.state("working"));
        }
    }
    // A task that ends at once is not affected.
    let task = send(&mut lab, V1, OutgoingMessage { at_once: true, ..say("done") });
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
}

// --- Identifiers

#[test]
fn context_holds_several_tasks_and_wrong_context_is_rejected() {
    for generation in Gen::ALL {
        let mut lab = Lab::scripted(SCRIPT);
        let own = OutgoingMessage { context: Some("talk-1"), ..say("hello") };
        let first = send(&mut lab, generation, own);
        let second = send(&mut lab, generation, OutgoingMessage { id: "m2", ..own });
        for task in [&first, &second] {
            assert_eq!(task[generation.context_key()], "talk-1");
        }
        assert_ne!(first["id"], second["id"]);
        let wrong =
            OutgoingMessage { task: first["id"].as_str(), context: Some("talk-2"), ..say("more") };
        assert_eq!(lab.code(generation.send(), &generation.params(wrong)), -32602);
        // Without a context id in the message the server generates a new one.
        let fresh = ["m3", "m4"]
            .map(|id| send(&mut lab, generation, OutgoingMessage { id, ..say("hello") }));
        let [a, b] = fresh.map(|task| task[generation.context_key()].clone());
        assert!(a != b && a.as_str().unwrap().len() == 36);
    }
}

#[test]
fn only_0_1_lets_the_client_choose_the_id_of_a_task() {
    let mut lab = Lab::scripted(SCRIPT);
    let chosen = OutgoingMessage { task: Some("mine"), ..say("hello") };
    for generation in [V03, V1] {
        for method in [generation.send(), generation.stream()] {
            assert_eq!(lab.code(method, &generation.params(chosen)), -32001);
        }
    }
    assert_task(&send(&mut lab, V01, chosen), V01, "mine", "input-required");
    // Afterwards it is an ordinary task.
    assert_task(&send(&mut lab, V1, chosen), V1, "mine", "input-required");
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 1);
}

// --- Listing

#[test]
fn tasks_are_listed_by_context_state_and_time() {
    let mut lab = Lab::scripted(SCRIPT);
    for (turn, text) in ["done", "hello", "slow", "refuse", "done"].into_iter().enumerate() {
        let context = if turn % 2 == 0 { "even" } else { "odd" };
        let generation = Gen::ALL[turn % 3];
        let id = turn.to_string();
        let message =
            OutgoingMessage { context: Some(context), id: &id, at_once: true, ..say(text) };
        let peer = lab.stream(generation.send(), &generation.params(message));
        lab.pass(10);
        lab.take(peer);
    }
    let mut total = |params: Value| {
        let page = lab.result("ListTasks", &params);
        let tasks = page["tasks"].as_array().unwrap();
        assert_eq!(page["totalSize"], tasks.len());
        let changed = |task: &Value| task["status"]["timestamp"].as_str().unwrap().to_owned();
        let times: Vec<_> = tasks.iter().map(changed).collect();
        assert!(times.is_sorted_by(|a, b| a >= b), "newest first: {times:?}");
        assert!(tasks.iter().all(|task| task.get("artifacts").is_none()), "{page}");
        assert!(tasks.iter().all(|task| task.get("history").is_none()), "{page}");
        tasks.len()
    };
    assert_eq!(total(json!({})), 5);
    assert_eq!(total(json!({"contextId": "even"})), 3);
    assert_eq!(total(json!({"context_id": "odd"})), 2);
    assert_eq!(total(json!({"contextId": "nobody's"})), 0);
    assert_eq!(total(json!({"status": "TASK_STATE_COMPLETED"})), 2);
    assert_eq!(total(json!({"status": "completed", "contextId": "even"})), 2);
    assert_eq!(total(json!({"status": "TASK_STATE_INPUT_REQUIRED"})), 1);
    assert_eq!(total(json!({"status": "TASK_STATE_WORKING", "contextId": "odd"})), 0);
    assert_eq!(total(json!({"statusTimestampAfter": "2000-01-01T00:00:00Z"})), 5);
    assert_eq!(total(json!({"statusTimestampAfter": "2100-01-01T00:00:00Z"})), 0);
    // The fourth task changed 30 ms after this server started.
    assert_eq!(total(json!({"statusTimestampAfter": "2026-09-21T14:13:20.030Z"})), 2);
    let page = lab.result("ListTasks", &json!({"includeArtifacts": true, "historyLength": 1}));
    for task in page["tasks"].as_array().unwrap() {
        assert!(task["artifacts"].is_array(), "there even if empty: {task}");
        assert_eq!(task["history"].as_array().unwrap().len(), 1);
    }
    for bad in [
        json!({"pageSize": 0}),
        json!({"pageSize": 101}),
        json!({"pageSize": -1}),
        json!({"pageToken": "x"}),
        json!({"pageToken": "0123456789abcdef0123456789abcdef"}),
        json!({"status": "DONE"}),
        json!({"statusTimestampAfter": "yesterday"}),
        json!({"historyLength": -1}),
        json!({"contextId": 7}),
    ] {
        assert_eq!(lab.code("ListTasks", &bad), -32602, "{bad}");
    }
}

#[test]
fn task_pages_neither_skip_nor_repeat_while_tasks_change() {
    let mut lab = Lab::scripted(SCRIPT);
    let mut made = Vec::new();
    for _ in 0..30 {
        made.push(id_of(&send(&mut lab, V1, say("hello"))));
        lab.pass(1);
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = lab.result("ListTasks", &json!({"pageSize": 7, "pageToken": token}));
        seen.extend(page["tasks"].as_array().unwrap().iter().map(id_of));
        page["nextPageToken"].as_str().unwrap().clone_into(&mut token);
        if token.is_empty() {
            break;
        }
        // A new task is added, and a task on an earlier page moves to the front.
        send(&mut lab, V1, say("done"));
        let more = OutgoingMessage { task: Some(&made[29]), ..say("more") };
        send(&mut lab, V1, more);
    }
    made.reverse();
    assert_eq!(seen, made);
    assert_eq!(lab.code(V03.get(), &json!({"id": "x"})), -32001);
    assert_eq!(lab.code("tasks/list", &json!({})), -32601, "0.3 has no list over JSON-RPC");
}

// --- Streams

#[test]
fn subscribers_get_equal_events_after_one_disconnects() {
    let mut lab = Lab::scripted(SCRIPT);
    let first = lab.stream(V1.stream(), &V1.params(say("slow")));
    let id = id_of(&lab.peek(first).events()[0].result()["task"]);
    let others = [(); 5].map(|()| subscribe(&mut lab, V1, &id, None));
    lab.pass(500);
    lab.end(others[0]);
    lab.end(first);
    lab.set_reads(others[1], false);
    lab.pass(500);
    let tail = |reply: &Reply| reply.events()[1..].to_vec();
    let received = lab.reply(others[2]);
    assert_eq!(
        event_texts(&received, V1),
        ["task:working", "artifact:one", "artifact:two", "status:completed"]
    );
    for peer in &others[3..] {
        assert_eq!(tail(&lab.reply(*peer)), tail(&received));
    }
    lab.set_reads(others[1], true);
    assert_eq!(tail(&lab.reply(others[1])), tail(&received));
    // The disconnected clients are closed, the task runs on.
    assert!(!lab.is_open(first) && !lab.is_open(others[0]));
    assert_task(&lab.result(V1.get(), &json!({"id": id})), V1, &id, "completed");
}

#[test]
fn resuming_subscriber_gets_each_event_once() {
    for generation in [V03, V1] {
        let mut lab = Lab::echo();
        let first = lab.stream(generation.stream(), &generation.params(say("hold:1000:20")));
        let id = match generation {
            V01 | V03 => id_of(lab.peek(first).events()[0].result()),
            V1 => id_of(&lab.peek(first).events()[0].result()["task"]),
        };
        // Before and after the end of the task, by header and by query.
        let waiting = subscribe(&mut lab, generation, &id, Some("1"));
        assert!(lab.peek(waiting).events().is_empty(), "nothing is new yet");
        lab.pass(1_000);
        let whole = lab.reply(first).events();
        assert_eq!(lab.reply(waiting).events(), whole[1..]);
        for seen in [1, 2, 10, 20] {
            let back = subscribe(&mut lab, generation, &id, Some(&seen.to_string()));
            assert_eq!(lab.reply(back).events(), whole[seen..]);
            let body = rpc(generation.subscribe(), &json!({"id": id}));
            let reply = lab.ask(&post(&format!("/?lastEventId={seen}"), &[], &body));
            assert_eq!(reply.events(), whole[seen..]);
        }
        // A client that has seen all events of a finished task gets an error.
        for seen in ["21", "22", "x", "-1", ""] {
            let back = subscribe(&mut lab, generation, &id, Some(seen));
            assert_eq!(lab.reply(back).code(), -32004, "{seen}");
        }
    }
}

#[test]
fn streams_end_at_input_required() {
    for generation in Gen::ALL {
        let mut lab = Lab::scripted(SCRIPT);
        let peer = lab.stream(generation.stream(), &generation.params(say("hello")));
        let reply = lab.reply(peer);
        let events = event_texts(&reply, generation);
        let end = if generation == V1 { "status:input-required" } else { "status:input-required!" };
        assert_eq!((events.last().unwrap().as_str(), reply.complete), (end, true));
        // At auth-required the client acts elsewhere: the stream stays open.
        let message = OutgoingMessage { id: "m2", ..say("sign in") };
        let peer = lab.stream(generation.stream(), &generation.params(message));
        assert!(!lab.peek(peer).complete);
        lab.pass(1_000);
        let events = event_texts(&lab.reply(peer), generation);
        assert!(events.last().unwrap().starts_with("status:completed"), "{events:?}");
    }
}

#[test]
fn subscription_in_1_0_continues_after_input_required() {
    let mut lab = Lab::scripted(SCRIPT);
    let id = id_of(&send(&mut lab, V1, say("hello")));
    let new = subscribe(&mut lab, V1, &id, None);
    assert_eq!(event_texts(&lab.peek(new), V1), ["task:input-required"]);
    // Before 1.0 the stream ends when its task pauses.
    let old = subscribe(&mut lab, V03, &id, None);
    assert_eq!(event_texts(&lab.reply(old), V03), ["task:input-required"]);
    send(&mut lab, V03, OutgoingMessage { task: Some(&id), ..say("done") });
    let events = event_texts(&lab.reply(new), V1);
    assert_eq!(events, ["task:input-required", "artifact:result", "status:completed"]);
}

#[test]
fn client_disconnect_does_not_stop_its_task() {
    for generation in Gen::ALL {
        let mut lab = Lab::scripted(SCRIPT);
        let message = OutgoingMessage { context: Some("c"), ..say("slow") };
        for method in [generation.send(), generation.stream()] {
            let mut params = generation.params(message);
            params["id"] = json!(method);
            let peer = lab.stream(method, &params);
            lab.end(peer);
        }
        lab.pass(1_000);
        let page = lab.result("ListTasks", &json!({"contextId": "c", "status": "completed"}));
        assert_eq!(page["totalSize"], 2);
    }
}

#[test]
fn stream_over_http_1_0_is_unchunked_and_ends_on_close() {
    let mut lab = Lab::echo();
    let body = rpc(V1.stream(), &V1.params(say("stream:3")));
    let request = String::from_utf8(post("/", &[], &body)).unwrap().replace("HTTP/1.1", "HTTP/1.0");
    let peer = lab.open();
    lab.write(peer, request.as_bytes());
    assert!(!lab.is_open(peer));
    let reply = lab.reply(peer);
    assert_eq!((reply.field("transfer-encoding"), reply.closes()), (None, true));
    assert_eq!(reply.events().len(), 4);
}

#[test]
fn stream_has_proxy_fields_and_precedes_the_next_answer() {
    let mut lab = Lab::echo();
    let peer = lab.open();
    let stream = post("/", &[], &rpc(V1.stream(), &V1.params(say("stream:5"))));
    let list = post("/", &[], &rpc("ListTasks", &Value::Null));
    lab.write(peer, &[&stream[..], &list, &stream, &list].concat());
    for total in [1, 2] {
        let reply = lab.reply(peer);
        assert_eq!(reply.field("x-accel-buffering"), Some("no"));
        assert_eq!(reply.field("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(reply.events().len(), 6);
        assert_eq!(lab.reply(peer).result()["totalSize"], total);
    }
    assert!(lab.is_open(peer));
}

#[test]
fn large_message_is_echoed_unchanged() {
    let mut lab = Lab::echo();
    let text = "x\\\"".repeat(20_000);
    let parts = json!([{"text": text}, {"data": {"n": [1, {}]}}, {"text": ""}]);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": parts});
    for parts in [parts, json!([{"text": text}])] {
        let mut message = message.clone();
        message["parts"] = parts.clone();
        let params = json!({"message": message});
        let task = lab.result("SendMessage", &params)["task"].take();
        assert_eq!(task["history"][0]["parts"], parts);
        assert_eq!(task["artifacts"], json!([{"artifactId": "echo", "parts": parts}]));
        let id = json!({"id": task["id"]});
        assert_eq!(lab.result("GetTask", &id), task);
        let listed = lab.result("ListTasks", &json!({"includeArtifacts": true, "pageSize": 1}));
        assert_eq!(listed["tasks"][0]["artifacts"], task["artifacts"]);
        let old = lab.result("tasks/get", &id);
        for (at, part) in parts.as_array().unwrap().iter().enumerate() {
            let (name, value) = part.as_object().unwrap().iter().next().unwrap();
            assert_eq!(&old["artifacts"][0]["parts"][at][name], value);
            assert_eq!(&old["history"][0]["parts"][at][name], value);
        }
        let stream = lab.stream("SendStreamingMessage", &params);
        let reply = lab.reply(stream);
        let update = reply.events().iter().find_map(|event| {
            let result = event.result();
            result.get("artifactUpdate").map(|update| update["artifact"].clone())
        });
        assert_eq!(update.unwrap(), task["artifacts"][0]);
    }
}

#[test]
fn message_of_0_3_without_id_or_known_part_kind_is_rejected() {
    let mut lab = Lab::echo();
    let post_message = |lab: &mut Lab, message: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"message/send","params":{{"message":{message}}}}}"#
        );
        lab.ask(&post("/", &[], &body))
    };
    for part in
        [r#"{"kind":"text","text":"x"}"#, r#"{"type":"text","text":"x"}"#, r#"{"text":"x"}"#]
    {
        let message = format!(r#"{{"messageId":"m","role":"user","parts":[{part}]}}"#);
        assert_eq!(
            post_message(&mut lab, &message).result()["status"]["state"],
            "completed",
            "{part}"
        );
        let nameless = format!(r#"{{"role":"user","parts":[{part}]}}"#);
        assert_eq!(post_message(&mut lab, &nameless).code(), -32602, "{part}");
    }
    for part in [r#"{"kind":"video","text":"x"}"#, r#"{"type":"unsupported_type","text":"x"}"#] {
        let message = format!(r#"{{"messageId":"m","role":"user","parts":[{part}]}}"#);
        assert_eq!(post_message(&mut lab, &message).code(), -32602, "{part}");
    }
}
