//! What `tenant` means, in every binding and generation: at the root an agent, at an agent's own
//! path nothing, and otherwise a task space of its own, if the operator allows the name.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use peregrine::{engine::Tenants, net::Running};
use serde_json::{Value, json};
use tonic::{Code, Request, Status};

use crate::grpc_client::{Rig, run, say as grpc_say, task, text_message_v03, v1, v03};
use crate::support::{
    ask::{Gen, OutgoingMessage, get, post, rpc, say, text_of},
    binary::Tcp,
    ws,
};

/// How a call is made, and which part of it names its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// JSON-RPC, in its params.
    Rpc(Gen),
    /// The same over WebSocket.
    Socket(Gen),
    /// JSON-RPC, in the path.
    RpcPath(Gen),
    /// The same over WebSocket.
    SocketPath(Gen),
    /// HTTP+JSON, in the path.
    RestPath,
    /// HTTP+JSON, in the path below `/tenants`.
    RestTenants,
    /// HTTP+JSON, in the body, or in the query where there is none.
    RestBody,
    /// gRPC of 1.0, in the message.
    Grpc,
    /// gRPC of 1.0, in metadata.
    GrpcMetadata,
    /// gRPC of 0.3, in metadata.
    OldGrpc,
}

use Way::*;

const WAYS: [Way; 18] = [
    Rpc(Gen::V01),
    Rpc(Gen::V03),
    Rpc(Gen::V1),
    Socket(Gen::V01),
    Socket(Gen::V03),
    Socket(Gen::V1),
    RpcPath(Gen::V01),
    RpcPath(Gen::V03),
    RpcPath(Gen::V1),
    SocketPath(Gen::V01),
    SocketPath(Gen::V03),
    SocketPath(Gen::V1),
    RestPath,
    RestTenants,
    RestBody,
    Grpc,
    GrpcMetadata,
    OldGrpc,
];

/// Messages so far: clients of 0.1 make up the ids of their tasks.
static MESSAGES: AtomicUsize = AtomicUsize::new(0);

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// -32602, 400, INVALID_ARGUMENT.
    Invalid,
    /// -32001, 404, NOT_FOUND.
    NotFound,
    /// -32000 (0.1: -32011), 429, RESOURCE_EXHAUSTED.
    Full,
}

use Refusal::*;

/// The id of a task, and the text of its first artifact: the default agent echoes the message.
type Answer = Result<(String, String), Refusal>;

fn refusal(code: i64) -> Refusal {
    match code {
        -32602 | 400 => Invalid,
        -32001 | 404 => NotFound,
        -32000 | -32011 | 429 => Full,
        other => panic!("{other}"),
    }
}

fn status(status: &Status) -> Refusal {
    match status.code() {
        Code::InvalidArgument => Invalid,
        Code::NotFound => NotFound,
        Code::ResourceExhausted => Full,
        _ => panic!("{status:?}"),
    }
}

/// Two agents, of which the default one echoes and the other stays working; or the first alone.
fn rig(agents: usize, tenants: Tenants, tenants_max: usize) -> Rig {
    Rig::with(|setup| {
        setup.agents.truncate(agents);
        setup.tenants = tenants;
        setup.limits.tenants_max = tenants_max;
        setup.allow_hosts.push("a.example".to_owned());
    })
}

fn named(names: &[&str]) -> Tenants {
    Tenants::Named(names.iter().map(|name| (*name).to_owned()).collect())
}

fn line(running: &Running) -> Tcp {
    Tcp::to(running.addrs()[0])
}

/// One JSON-RPC call at `base`.
fn json_rpc(rig: &Rig, way: Way, base: &str, method: &str, params: &Value) -> Value {
    let (mut line, body) = (line(&rig.0), rpc(method, params));
    if matches!(way, Rpc(_) | RpcPath(_)) {
        line.write(&post(base, &[], &body));
        return line.reply().json();
    }
    line.write(&ws::upgrade(base, ""));
    line.read_until("\r\n\r\n");
    line.take();
    line.write(&ws::text(&body));
    let mut received = Vec::new();
    loop {
        assert!(line.read());
        received.append(&mut line.take());
        if let Some(sent) = ws::frames(&received).0.first() {
            return sent.json();
        }
    }
}

/// The task in an answer, or the refusal.
fn shown(answer: &Value) -> Answer {
    if let Some(error) = answer.get("error") {
        return Err(refusal(error["code"].as_i64().unwrap()));
    }
    let result = answer.get("result").unwrap_or(answer);
    let task = result.get("task").unwrap_or(result);
    let id = task["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let artifact = task.pointer("/artifacts/0");
    Ok((id, artifact.map_or("", text_of).to_owned()))
}

fn with_tenant(mut params: Value, tenant: &str) -> Value {
    if !tenant.is_empty() {
        params["tenant"] = json!(tenant);
    }
    params
}

/// The path of JSON-RPC, and its params: one of the two names the tenant.
fn addressed(way: Way, base: &str, params: Value, tenant: &str) -> (String, Value) {
    match way {
        RpcPath(_) | SocketPath(_) if !tenant.is_empty() => {
            (format!("{}/tenants/{tenant}", base.trim_end_matches('/')), params)
        }
        _ => (base.to_owned(), with_tenant(params, tenant)),
    }
}

/// The path of a resource of HTTP+JSON, and the tenant that goes into the body.
fn rest(way: Way, base: &str, tenant: &str, path: &str) -> (String, String) {
    let base = base.trim_end_matches('/');
    match way {
        _ if tenant.is_empty() => (format!("{base}{path}"), String::new()),
        RestPath => (format!("{base}/{tenant}{path}"), String::new()),
        RestTenants => (format!("{base}/tenants/{tenant}{path}"), String::new()),
        _ => (format!("{base}{path}"), tenant.to_owned()),
    }
}

fn request<T>(way: Way, message: T, tenant: &str) -> Request<T> {
    let mut request = Request::new(message);
    if way != Grpc && !tenant.is_empty() {
        request.metadata_mut().insert("a2a-tenant", tenant.parse().unwrap());
    }
    request
}

fn in_message(way: Way, tenant: &str) -> String {
    if way == Grpc { tenant.to_owned() } else { String::new() }
}

/// Sends "hi" to the agent that a tenant names at a path.
fn send(rig: &Rig, way: Way, base: &str, tenant: &str) -> Answer {
    match way {
        Rpc(generation) | Socket(generation) | RpcPath(generation) | SocketPath(generation) => {
            let id = format!("m-{}", MESSAGES.fetch_add(1, Relaxed));
            let params = generation.params(OutgoingMessage { id: &id, at_once: true, ..say("hi") });
            let (base, params) = addressed(way, base, params, tenant);
            shown(&json_rpc(rig, way, &base, generation.send(), &params))
        }
        RestPath | RestTenants | RestBody => {
            let (path, in_body) = rest(way, base, tenant, "/message:send");
            let params = Gen::V1.params(OutgoingMessage { at_once: true, ..say("hi") });
            let body = with_tenant(params, &in_body);
            let mut line = line(&rig.0);
            line.write(&post(&path, &[], &body.to_string()));
            shown(&line.reply().json())
        }
        Grpc | GrpcMetadata => run(async {
            let mut message = grpc_say("hi");
            message.tenant = in_message(way, tenant);
            message.configuration = Some(v1::SendMessageConfiguration {
                return_immediately: true,
                ..Default::default()
            });
            let sent = rig.v1().await.send_message(request(way, message, tenant)).await;
            let task = task(sent.map_err(|refused| status(&refused))?.into_inner());
            let text = task.artifacts.first().map(|artifact| text_v1(&artifact.parts));
            Ok((task.id, text.unwrap_or_default()))
        }),
        OldGrpc => run(async {
            let message = request(way, text_message_v03("hi", false), tenant);
            let sent = rig.v03().await.send_message(message).await;
            match sent.map_err(|refused| status(&refused))?.into_inner().payload.unwrap() {
                v03::send_message_response::Payload::Task(task) => Ok(shown_v03(task)),
                other => panic!("{other:?}"),
            }
        }),
    }
}

/// Reads a task.
fn read(rig: &Rig, way: Way, base: &str, tenant: &str, id: &str) -> Answer {
    match way {
        Rpc(generation) | Socket(generation) | RpcPath(generation) | SocketPath(generation) => {
            let (base, params) = addressed(way, base, json!({ "id": id }), tenant);
            shown(&json_rpc(rig, way, &base, generation.get(), &params))
        }
        RestPath | RestTenants | RestBody => {
            let (path, in_query) = rest(way, base, tenant, &format!("/tasks/{id}"));
            let query =
                if in_query.is_empty() { String::new() } else { format!("?tenant={in_query}") };
            let mut line = line(&rig.0);
            line.write(&get(&format!("{path}{query}")));
            shown(&line.reply().json())
        }
        Grpc | GrpcMetadata => run(async {
            let tenant_there = in_message(way, tenant);
            let message = v1::GetTaskRequest {
                tenant: tenant_there,
                id: id.to_owned(),
                ..Default::default()
            };
            let read = rig.v1().await.get_task(request(way, message, tenant)).await;
            let task = read.map_err(|refused| status(&refused))?.into_inner();
            let text = task.artifacts.first().map(|artifact| text_v1(&artifact.parts));
            Ok((task.id, text.unwrap_or_default()))
        }),
        OldGrpc => run(async {
            let message = v03::GetTaskRequest { name: format!("tasks/{id}"), ..Default::default() };
            let read = rig.v03().await.get_task(request(way, message, tenant)).await;
            Ok(shown_v03(read.map_err(|refused| status(&refused))?.into_inner()))
        }),
    }
}

fn text_v1(parts: &[v1::Part]) -> String {
    match &parts[0].content {
        Some(v1::part::Content::Text(text)) => text.clone(),
        other => panic!("{other:?}"),
    }
}

fn shown_v03(task: v03::Task) -> (String, String) {
    let text = task.artifacts.first().map(|artifact| match &artifact.parts[0].part {
        Some(v03::part::Part::Text(text)) => text.clone(),
        other => panic!("{other:?}"),
    });
    (task.id, text.unwrap_or_default())
}

/// The agent that answered, and its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    Default,
    Other,
}

/// Sends, and returns which agent answered; the task is then in this space of the agent and in no
/// other.
fn sent_to(rig: &Rig, way: Way, base: &str, tenant: &str) -> Result<Served, Refusal> {
    let (id, text) = send(rig, way, base, tenant)?;
    assert_eq!(read(rig, way, base, tenant, &id), Ok((id, text.clone())), "{way:?} {tenant}");
    Ok(if text == "hi" { Served::Default } else { Served::Other })
}

/// gRPC has no paths of agents.
fn is_at_root_alone(way: Way) -> bool {
    matches!(way, Grpc | GrpcMetadata | OldGrpc)
}

#[test]
fn agent_name_as_tenant_selects_that_agent_at_root() {
    for tenants in [Tenants::OfOneAgent, Tenants::Any, named(&["acme"])] {
        let rig = rig(2, tenants, 9);
        for way in WAYS {
            assert_eq!(sent_to(&rig, way, "/", "other"), Ok(Served::Other), "{way:?}");
            assert_eq!(sent_to(&rig, way, "/", "echo"), Ok(Served::Default), "{way:?}");
            assert_eq!(sent_to(&rig, way, "/", ""), Ok(Served::Default), "{way:?}");
            // It has the agent's own tasks there, not a space in addition to them.
            let (id, _) = send(&rig, way, "/", "other").unwrap();
            let there = read(&rig, Rpc(Gen::V1), "/agents/other", "", &id);
            assert!(there.is_ok(), "{way:?}: {there:?}");
            assert_eq!(read(&rig, way, "/", "", &id), Err(NotFound), "{way:?}");
            assert_eq!(read(&rig, way, "/", "echo", &id), Err(NotFound), "{way:?}");
        }
    }
}

#[test]
fn agent_path_rejects_another_agent_as_tenant() {
    let rig = rig(2, Tenants::Any, 9);
    for way in WAYS.into_iter().filter(|way| !is_at_root_alone(*way)) {
        let base = "/agents/other";
        assert_eq!(sent_to(&rig, way, base, "other"), Ok(Served::Other), "{way:?}");
        assert_eq!(send(&rig, way, base, "echo"), Err(Invalid), "{way:?}");
        assert_eq!(read(&rig, way, base, "echo", "x"), Err(Invalid), "{way:?}");
        let (id, _) = send(&rig, way, base, "other").unwrap();
        assert!(read(&rig, way, base, "", &id).is_ok(), "{way:?}");
        // A tenant of one agent is not a tenant of another.
        let (id, _) = send(&rig, way, base, "acme").unwrap();
        assert!(read(&rig, way, base, "acme", &id).is_ok(), "{way:?}");
        for (base, tenant) in [("/", "acme"), ("/", ""), ("/agents/echo", "acme"), (base, "")] {
            assert_eq!(read(&rig, way, base, tenant, &id), Err(NotFound), "{way:?} {base}");
        }
    }
}

#[test]
fn single_agent_has_separate_tasks_for_each_tenant() {
    let rig = rig(1, Tenants::OfOneAgent, 9);
    for way in WAYS {
        let (id, text) = send(&rig, way, "/", "acme").unwrap();
        assert_eq!(text, "hi");
        // The same tenant finds it in every way, and no other tenant in any.
        for other in WAYS {
            assert!(read(&rig, other, "/", "acme", &id).is_ok(), "{way:?} {other:?}");
            for tenant in ["", "echo", "Acme", "acme2", "nobody"] {
                assert_eq!(read(&rig, other, "/", tenant, &id), Err(NotFound), "{way:?} {other:?}");
            }
        }
    }
}

#[test]
fn several_agents_serve_only_allowed_tenants() {
    for (tenants, served) in [
        (Tenants::OfOneAgent, &[][..]),
        (named(&["acme", "b.c_d-1"]), &["acme", "b.c_d-1"]),
        (Tenants::Any, &["acme", "b.c_d-1", "misspelled"]),
    ] {
        let rig = rig(2, tenants, 9);
        for way in WAYS {
            for tenant in ["acme", "b.c_d-1", "misspelled"] {
                let expected =
                    if served.contains(&tenant) { Ok(Served::Default) } else { Err(Invalid) };
                assert_eq!(sent_to(&rig, way, "/", tenant), expected, "{way:?} {tenant}");
                let unknown = if expected.is_ok() { NotFound } else { Invalid };
                assert_eq!(read(&rig, way, "/", tenant, "x"), Err(unknown), "{way:?} {tenant}");
            }
        }
    }
}

#[test]
fn invalid_tenant_name_is_rejected() {
    let rig = rig(1, Tenants::Any, 9);
    let long = "a".repeat(129);
    for way in WAYS {
        for tenant in ["a:b", "a%20b", ".hidden", &*long] {
            assert_eq!(send(&rig, way, "/", tenant), Err(Invalid), "{way:?} {tenant}");
        }
        assert_eq!(sent_to(&rig, way, "/", &long[1..]), Ok(Served::Default), "{way:?}");
    }
    for params in [json!({"tenant": 7, "id": "x"}), json!({"tenant": ["acme"], "id": "x"})] {
        for generation in Gen::ALL {
            let way = Rpc(generation);
            assert_eq!(shown(&json_rpc(&rig, way, "/", generation.get(), &params)), Err(Invalid));
        }
    }
    // Unset in ProtoJSON.
    for params in [json!({"tenant": "", "id": "x"}), json!({"tenant": null, "id": "x"})] {
        let answer = json_rpc(&rig, Rpc(Gen::V1), "/", "GetTask", &params);
        assert_eq!(shown(&answer), Err(NotFound));
    }
    // A name with a JSON escape is the same name.
    let (id, _) = send(&rig, Rpc(Gen::V1), "/", "acme").unwrap();
    let mut line = line(&rig.0);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{{"tenant":"\u0061cme","id":"{id}"}}}}"#
    );
    line.write(&post("/", &[], &body));
    assert_eq!(line.reply().json()["result"]["id"], *id);
}

#[test]
fn conflicting_tenants_in_path_and_body_are_rejected() {
    let rig = rig(2, Tenants::Any, 9);
    for (inside, expected) in [("acme", None), ("", None), ("other", Some(Invalid))] {
        let body = with_tenant(Gen::V1.params(say("hi")), inside).to_string();
        let mut line = line(&rig.0);
        for path in ["/acme/message:send", "/tenants/acme/message:send"] {
            line.write(&post(path, &[], &body));
            assert_eq!(shown(&line.reply().json()).err(), expected, "{path} {inside}");
        }
        let body = rpc("SendMessage", &with_tenant(Gen::V1.params(say("hi")), inside));
        line.write(&post("/tenants/acme", &[], &body));
        assert_eq!(shown(&line.reply().json()).err(), expected, "{inside}");
        line.write(&get(&format!("/acme/tasks/x?tenant={inside}")));
        let unknown = expected.unwrap_or(NotFound);
        assert_eq!(shown(&line.reply().json()).err(), Some(unknown), "{inside}");
        run(async {
            let message = v1::SendMessageRequest { tenant: inside.to_owned(), ..grpc_say("hi") };
            let sent = rig.v1().await.send_message(request(GrpcMetadata, message, "acme")).await;
            assert_eq!(sent.err().map(|refused| status(&refused)), expected, "{inside}");
        });
    }
}

#[test]
fn lists_contexts_and_page_tokens_are_separate_per_tenant() {
    let rig = rig(1, Tenants::Any, 9);
    let call = |method: &str, params: &Value, tenant: &str| {
        let params = with_tenant(params.clone(), tenant);
        json_rpc(&rig, Rpc(Gen::V1), "/", method, &params)
    };
    let message = |context: Option<&str>| Gen::V1.params(OutgoingMessage { context, ..say("hi") });
    let first = call("SendMessage", &message(None), "acme")["result"]["task"].take();
    let context = first["contextId"].as_str().unwrap();
    call("SendMessage", &message(Some(context)), "acme");
    // The same id in another space is another conversation.
    for tenant in ["", "beta"] {
        call("SendMessage", &message(Some(context)), tenant);
    }
    for (tenant, total) in [("acme", 2), ("beta", 1), ("", 1), ("nobody", 0)] {
        for params in [json!({}), json!({ "contextId": context })] {
            let page = call("ListTasks", &params, tenant)["result"].take();
            assert_eq!(page["totalSize"], total, "{tenant} {params}");
        }
    }
    let page = call("ListTasks", &json!({ "pageSize": 1 }), "acme")["result"].take();
    let next = json!({ "pageToken": page["nextPageToken"] });
    assert_eq!(call("ListTasks", &next, "acme")["result"]["tasks"].as_array().unwrap().len(), 1);
    for tenant in ["", "beta"] {
        let foreign = call("ListTasks", &next, tenant);
        assert_eq!(shown(&foreign), Err(Invalid), "{tenant}: {foreign}");
    }
    // Each call of a batch names its own tenant.
    let get = |tenant: &str| rpc("GetTask", &with_tenant(json!({ "id": first["id"] }), tenant));
    let mut line = line(&rig.0);
    line.write(&post("/", &[], &format!("[{},{},{}]", get("acme"), get(""), get("beta"))));
    let answers = line.reply().json();
    assert_eq!(answers[0]["result"]["id"], first["id"]);
    assert_eq!(
        (&answers[1]["error"]["code"], &answers[2]["error"]["code"]),
        (&json!(-32001), &json!(-32001))
    );
}

#[test]
fn tenants_max_refuses_new_tenants_in_every_binding() {
    let rig = rig(1, Tenants::Any, 1);
    assert!(send(&rig, Rpc(Gen::V1), "/", "acme").is_ok());
    for way in WAYS {
        assert_eq!(send(&rig, way, "/", "beta"), Err(Full), "{way:?}");
        assert_eq!(read(&rig, way, "/", "beta", "x"), Err(NotFound), "{way:?}");
        assert_eq!(sent_to(&rig, way, "/", "acme"), Ok(Served::Default), "{way:?}");
        assert_eq!(sent_to(&rig, way, "/", ""), Ok(Served::Default), "{way:?}");
    }
}
