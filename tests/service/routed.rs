//! A router over two cores with the same agents, behind one listener: over each binding each task
//! is read, streamed and canceled in its core, and all tasks are listed in one order.

use std::{collections::HashSet, sync::Arc};

use peregrine::{
    agent::{Agent, Profile, echo::Echo, script::Script},
    engine::node_of,
    model::RawText,
    service::AgentIndex,
};
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;

use crate::{
    grpc_client::{Rig, run, say as grpc_say, state, task, v1, v03},
    router::{Agents, Router},
    support::{
        ask::{Gen, OutgoingMessage, get, post, rpc, say},
        binary::{Tcp, eventually},
        ws,
    },
};

/// Agents that work until their task is canceled.
fn agents() -> Agents {
    let script = Script::parse("[[rule]]\n[[rule.step]]\nstatus = \"working\"").unwrap();
    let script: Arc<dyn Agent> = Arc::new(script);
    ["first", "second"].map(|name| (Profile::new(name, "Works."), Arc::clone(&script))).to_vec()
}

fn rig() -> Rig {
    Rig::with(|setup| {
        setup.agents.clear();
        setup.service = Some(Router::new(2, 1, agents));
        setup.allow_hosts.push("a.example".to_owned());
    })
}

fn connect(rig: &Rig) -> Tcp {
    Tcp::to(rig.0.addrs()[0])
}

fn node(id: &str) -> Option<u16> {
    node_of(RawText::parse(id).unwrap())
}

fn call(line: &mut Tcp, method: &str, params: &Value) -> Value {
    line.write(&post("/", &[], &rpc(method, params)));
    let mut answer = line.reply().json();
    assert!(answer.get("error").is_none(), "{method} {params}: {answer}");
    answer["result"].take()
}

/// Opens a stream and reads up to a state.
fn stream(rig: &Rig, request: &[u8], state: &str) -> Tcp {
    let mut line = connect(rig);
    line.write(request);
    line.read_until(&format!("\"{state}\""));
    line
}

/// The id of the task at the start of a stream.
fn id_of(stream: &Tcp) -> String {
    let events = stream.peek().unwrap().events();
    let first = events[0].data.get("result").unwrap_or(&events[0].data);
    let ids = ["/task/id", "/id", "/taskId", "/statusUpdate/taskId"];
    let id = ids.iter().find_map(|path| first.pointer(path)).unwrap_or_else(|| panic!("{first}"));
    id.as_str().unwrap().to_owned()
}

#[test]
fn json_rpc_routes_to_the_core_of_the_task_in_every_version() {
    let rig = rig();
    for generation in Gen::ALL {
        let mut nodes = HashSet::new();
        for count in 0..2 {
            let name = format!("{generation:?}-{count}");
            let [working, canceled] = ["working", "canceled"].map(|name| generation.state(name));
            let params = generation.params(OutgoingMessage { id: &name, ..say("go") });
            let open = post("/", &[], &rpc(generation.stream(), &params));
            let mut first = stream(&rig, &open, &working);
            let id = id_of(&first);
            nodes.insert(node(&id));
            let (mut line, named) = (connect(&rig), json!({ "id": id }));
            assert_eq!(call(&mut line, generation.get(), &named)["status"]["state"], *working);
            let again = post("/", &[], &rpc(generation.subscribe(), &named));
            let mut second = stream(&rig, &again, &working);
            assert_eq!(call(&mut line, generation.cancel(), &named)["status"]["state"], *canceled);
            for stream in [&mut first, &mut second] {
                stream.read_until(&format!("\"{canceled}\""));
                assert!(stream.reply().complete);
            }
            assert_eq!(call(&mut line, generation.get(), &named)["status"]["state"], *canceled);
        }
        // Clients of 0.1 choose their ids; ids made by the store name both nodes.
        let both = [Some(0), Some(1)].into();
        assert_eq!(nodes, if generation == Gen::V01 { [None].into() } else { both });
    }
}

#[test]
fn waiting_call_and_context_use_the_core_of_the_task() {
    let rig = rig();
    let mut contexts = Vec::new();
    for _ in 0..2 {
        let mut line = connect(&rig);
        let at_once = Gen::V1.params(OutgoingMessage { at_once: true, ..say("go") });
        let first = call(&mut line, "SendMessage", &at_once)["task"].take();
        let (id, context_id) =
            (first["id"].as_str().unwrap(), first["contextId"].as_str().unwrap());
        assert_eq!(node(id), node(context_id));
        // A second message waits for the task, which is ended on another connection.
        let (task, context) = (Some(id), Some(context_id));
        let more = OutgoingMessage { id: "m-2", task, ..say("more") };
        line.write(&post("/", &[], &rpc("SendMessage", &Gen::V1.params(more))));
        let mut other = connect(&rig);
        eventually("the message is with its task", || {
            let task = call(&mut other, "GetTask", &json!({ "id": id }));
            task["history"].as_array().is_some_and(|history| history.len() == 2)
        });
        call(&mut other, "CancelTask", &json!({ "id": id }));
        assert_eq!(line.reply().json()["result"]["task"]["id"], id);
        let next = OutgoingMessage { id: "m-3", context, at_once: true, ..say("go") };
        let next = call(&mut line, "SendMessage", &Gen::V1.params(next))["task"].take();
        assert_eq!(
            (node(next["id"].as_str().unwrap()), &next["contextId"]),
            (node(id), &json!(context_id))
        );
        contexts.push(context_id.to_owned());
    }
    assert_ne!(node(&contexts[0]), node(&contexts[1]));
}

#[test]
fn http_json_routes_to_the_core_of_the_task() {
    let rig = rig();
    let mut nodes = HashSet::new();
    for _ in 0..2 {
        let body = Gen::V1.params(say("go")).to_string();
        let mut first = stream(&rig, &post("/message:stream", &[], &body), "TASK_STATE_WORKING");
        let id = id_of(&first);
        nodes.insert(node(&id));
        let subscribe = post(&format!("/tasks/{id}:subscribe"), &[], "");
        let mut second = stream(&rig, &subscribe, "TASK_STATE_WORKING");
        let mut line = connect(&rig);
        line.write(&post(&format!("/tasks/{id}:cancel"), &[], ""));
        assert_eq!(line.reply().json()["status"]["state"], "TASK_STATE_CANCELED");
        for stream in [&mut first, &mut second] {
            stream.read_until("TASK_STATE_CANCELED");
            assert!(stream.reply().complete);
        }
        line.write(&get(&format!("/tasks/{id}")));
        assert_eq!(line.reply().json()["id"], *id);
    }
    assert_eq!(nodes, [Some(0), Some(1)].into());
}

#[test]
fn websocket_routes_to_the_core_of_the_task() {
    let rig = rig();
    let mut line = connect(&rig);
    line.write(&ws::upgrade("/", ""));
    line.read_until("\r\n\r\n");
    line.take();
    let mut nodes = HashSet::new();
    for _ in 0..2 {
        let body = rpc("SendStreamingMessage", &Gen::V1.params(say("go")));
        line.write(&ws::text(&body));
        line.read_until("TASK_STATE_WORKING");
        let first = ws::frames(&line.take()).0[0].json();
        let id = first["result"]["task"]["id"].as_str().unwrap().to_owned();
        nodes.insert(node(&id));
        for (method, needle) in [
            ("GetTask", "TASK_STATE_WORKING"),
            ("SubscribeToTask", "TASK_STATE_WORKING"),
            ("CancelTask", "stream_complete"),
        ] {
            line.write(&ws::text(&rpc(method, &json!({ "id": id }))));
            line.read_until(needle);
            assert!(line.take().windows(id.len()).any(|some| some == id.as_bytes()), "{method}");
        }
        line.write(&ws::text(&rpc("GetTask", &json!({ "id": id }))));
        line.read_until("\"id\":1,\"result\":{\"id\":");
        line.read_until("TASK_STATE_CANCELED");
        line.take();
    }
    assert_eq!(nodes, [Some(0), Some(1)].into());
}

#[test]
fn grpc_routes_to_the_core_of_the_task_in_both_versions() {
    let rig = rig();
    run(async {
        let (mut client, mut old, mut nodes) = (rig.v1().await, rig.v03().await, HashSet::new());
        for _ in 0..2 {
            let mut request = grpc_say("go");
            let at_once =
                v1::SendMessageConfiguration { return_immediately: true, ..Default::default() };
            request.configuration = Some(at_once);
            let sent = task(client.send_message(request).await.unwrap().into_inner());
            let id = sent.id;
            nodes.insert(node(&id));
            let subscribe = v1::SubscribeToTaskRequest { id: id.clone(), ..Default::default() };
            let mut stream = client.subscribe_to_task(subscribe).await.unwrap().into_inner();
            let get = v03::GetTaskRequest { name: format!("tasks/{id}"), ..Default::default() };
            let seen = old.get_task(get).await.unwrap().into_inner();
            assert_eq!(seen.status.unwrap().state(), v03::TaskState::Working);
            let cancel = v1::CancelTaskRequest { id: id.clone(), ..Default::default() };
            let canceled = client.cancel_task(cancel).await.unwrap().into_inner();
            assert_eq!(state(&canceled), v1::TaskState::Canceled);
            let mut items = 0;
            while let Some(item) = stream.next().await {
                item.unwrap();
                items += 1;
            }
            assert_eq!(items, 2, "a snapshot and the end");
            // Another binding reads the task.
            let mut line = connect(&rig);
            assert_eq!(call(&mut line, "GetTask", &json!({ "id": id }))["id"], *id);
        }
        assert_eq!(nodes, [Some(0), Some(1)].into());
    });
}

#[test]
fn agent_added_to_the_router_is_served_by_both_cores() {
    let router = Router::new(2, 1, agents);
    let rig = Rig::with(|setup| {
        setup.agents.clear();
        setup.service = Some(Arc::clone(&router) as _);
        setup.allow_hosts.push("a.example".to_owned());
    });
    let mut line = connect(&rig);
    let send = post("/agents/third", &[], &rpc("SendMessage", &Gen::V1.params(say("hi"))));
    line.write(&send);
    assert_eq!(line.reply().status, 404);
    let echo: Arc<dyn Agent> = Arc::new(Echo);
    let added = router.add(&Profile { name: "third".to_owned(), ..Echo::profile() }, &echo);
    assert_eq!(added, AgentIndex(2));
    let mut nodes = HashSet::new();
    for _ in 0..2 {
        line.write(&send);
        let id = line.reply().json()["result"]["task"]["id"].take();
        nodes.insert(node(id.as_str().unwrap()));
        line.write(&post("/agents/third", &[], &rpc("GetTask", &json!({ "id": id }))));
        assert_eq!(line.reply().json()["result"]["id"], id);
    }
    assert_eq!(nodes, [Some(0), Some(1)].into());
}

#[test]
fn task_lists_of_both_cores_are_merged_in_order() {
    let rig = rig();
    let mut line = connect(&rig);
    let mut made = HashSet::new();
    for count in 0..11 {
        let id = format!("m-{count}");
        let at_once = OutgoingMessage { id: &id, at_once: true, ..say("go") };
        let task = call(&mut line, "SendMessage", &Gen::V1.params(at_once))["task"].take();
        made.insert(task["id"].as_str().unwrap().to_owned());
    }
    for page_size in [1, 2, 3, 4, 7, 11, 100] {
        let (mut token, mut seen, mut times) = (String::new(), Vec::new(), Vec::new());
        loop {
            let params = json!({ "pageSize": page_size, "pageToken": token });
            let page = call(&mut line, "ListTasks", &params);
            assert_eq!((&page["totalSize"], &page["pageSize"]), (&json!(11), &json!(page_size)));
            for task in page["tasks"].as_array().unwrap() {
                seen.push(task["id"].as_str().unwrap().to_owned());
                times.push(task["status"]["timestamp"].as_str().unwrap().to_owned());
            }
            token = page["nextPageToken"].as_str().unwrap().to_owned();
            assert!(seen.len() <= 11, "{seen:?}");
            if token.is_empty() {
                break;
            }
        }
        assert_eq!((seen.len(), seen.iter().cloned().collect::<HashSet<_>>()), (11, made.clone()));
        assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    }
    for token in ["x", "x.y", "-.x", "..", "a.b.c"] {
        line.write(&post("/", &[], &rpc("ListTasks", &json!({ "pageToken": token }))));
        assert_eq!(line.reply().json()["error"]["code"], -32602, "{token}");
    }
}
