//! Isolation of callers: under the same names each has its own tasks, conversations and sends, and
//! no caller changes another's.

use serde_json::{Value, json};

use super::{
    client::{Call, Op},
    errors::assert_fault,
    exchange::Approach,
    h2::Http2,
    http::{Http, Http1, Request},
    jsonrpc::method,
    message_spec::{MessageSpec, text_spec},
    model::{Form, V01, V1, V03},
    server::Server,
    theirs::{
        CLAIMED, Caller, NAMED, Person, alice, bob, get, hers, others, server, unlike, without_id,
    },
    variants::{Binding, Carrier, OBSERVER, VARIANTS, Variant},
};

/// Every caller but alice in acme, each once: naming a tenant in the call equals naming it in the
/// token.
fn strangers() -> Vec<Person> {
    others().into_iter().filter(|person| person.what != NAMED).collect()
}

fn everybody() -> Vec<Person> {
    [vec![alice()], strangers()].concat()
}

fn id_of(task: &Value) -> String {
    task["id"].as_str().unwrap_or_else(|| panic!("no task: {task}")).to_owned()
}

/// The ids in a page of tasks, sorted.
fn ids(page: &Value) -> Vec<String> {
    let tasks = page["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut ids: Vec<String> = tasks.iter().map(id_of).collect();
    assert_eq!(page["totalSize"], json!(ids.len()), "{page}");
    ids.sort();
    ids
}

#[test]
fn list_returns_only_the_callers_own_tasks() {
    let server = server("apart-lists");
    hers(&server);
    let make = |person: &Person, context: &str| {
        let mut caller = Caller::new(&server, OBSERVER, person);
        id_of(&caller.send(&text_spec("done").within(context)).expect("a task"))
    };
    // All their conversations have the same name.
    let own: Vec<String> = strangers().iter().map(|person| make(person, "shared")).collect();
    make(&alice(), "shared");
    let mut hers = Caller::new(&server, OBSERVER, &alice());
    let page = hers.call(&Call::new(Op::List, json!({"pageSize": 1}))).expect("a page");
    let token = page["nextPageToken"].as_str().expect("more than one task").to_owned();
    assert!(!token.is_empty(), "{page}");
    for variant in VARIANTS.iter().copied().filter(|variant| variant.lists()) {
        let named = others().into_iter().find(|person| person.what == NAMED).expect("she");
        let claimed = strangers().iter().position(|person| person.what == CLAIMED).expect("she");
        let all = strangers().into_iter().zip(&own).chain([(named, &own[claimed])]);
        for (person, own) in all {
            let mut caller = Caller::new(&server, variant, &person);
            let mut list =
                |params: Value| caller.call(&Call::new(Op::List, params)).expect("a page");
            let own = std::slice::from_ref(own);
            assert_eq!(ids(&list(json!({}))), own, "{} {variant:?}", person.what);
            assert_eq!(ids(&list(json!({"contextId": "shared"}))), own);
            // The token of alice's next page shows another caller none of her tasks.
            let call = Call::new(Op::List, json!({"pageSize": 1, "pageToken": token}));
            match caller.call(&call) {
                Ok(page) => assert!(ids(&page).iter().all(|id| own.contains(id)), "{page}"),
                Err(fault) => assert_fault(variant, Op::List, "InvalidParams", &fault),
            }
            // A context of alice's alone, and one that does not exist.
            let [hers, nobodys] = ["context-of-hold", "context-of-h0ld"].map(|context| {
                let mut caller = Caller::new(&server, variant, &person);
                caller.call(&Call::new(Op::List, json!({"contextId": context}))).expect("a page");
                without_id(&caller.replies.last(), context)
            });
            assert_eq!(hers, nobodys, "{} {variant:?}", person.what);
        }
    }
}

#[test]
fn context_or_reference_of_another_caller_reveals_nothing() {
    let server = server("apart-references");
    let hers = hers(&server);
    let list = |person: &Person, context: &str| {
        let mut caller = Caller::new(&server, OBSERVER, person);
        ids(&caller.call(&Call::new(Op::List, json!({"contextId": context}))).expect("a page"))
    };
    let before: Vec<_> = hers.iter().map(|task| list(&alice(), &task.context)).collect();
    for (index, &variant) in VARIANTS.iter().enumerate() {
        for person in others() {
            let task = &hers[index % hers.len()];
            let mut caller = Caller::new(&server, variant, &person);
            let [existing, unknown] = [task.target.id.clone(), unlike(&task.target.id)].map(|id| {
                // Wire §1.9: neither 0.1 nor the proto of 0.3 has them.
                let has_references = matches!(variant.form(), Form::V03 | Form::V1);
                let references = if has_references { vec![id] } else { Vec::new() };
                let spec = MessageSpec { references, ..text_spec("ask").within(&task.context) };
                let made = caller.send(&spec).expect("a task of its own");
                let made = get(&server, &person, &caller.made(&made));
                assert_eq!(made["contextId"], json!(task.context));
                // Its own message; no message from alice's conversation.
                let history = made["history"].as_array().expect("a history");
                assert_eq!(history.len(), 1, "{made}");
                made["status"]["state"].clone()
            });
            assert_eq!(existing, unknown);
        }
    }
    let after: Vec<_> = hers.iter().map(|task| list(&alice(), &task.context)).collect();
    assert_eq!(before, after);
    for task in &hers {
        assert_eq!(get(&server, &alice(), &task.target), task.seen);
    }
}

#[test]
fn message_ids_and_idempotency_keys_are_scoped_to_a_caller() {
    let server = server("apart-repeats");
    for &variant in VARIANTS {
        for by_key in [false, true] {
            // The key of a send; 0.1 has no message ids, and a WebSocket's head belongs to no send.
            if (by_key, variant.generation) == (false, V01)
                || by_key && variant.binding == Binding::WebSocket
            {
                continue;
            }
            let name = text_spec("").id;
            let key = [("Idempotency-Key", format!("k-{name}"))];
            let by_id = [("A2A-Extensions", "urn:peregrine:idempotent-send:1".to_owned())];
            let more = if by_key { &key[..] } else { &by_id[..] };
            let spec = |text: &str, number: usize| {
                let id = if by_key { format!("{name}-{number}") } else { name.clone() };
                MessageSpec { id, ..text_spec(text) }
            };
            let mut made = Vec::new();
            for (index, person) in everybody().iter().enumerate() {
                eprintln!("{} in {variant:?}, by key: {by_key}", person.what);
                let mut caller = Caller::with(&server, variant, person, more);
                // Other callers send the same text, or another text under the same name.
                let texts = [["done", "ask"], ["ask", "done"]][index % 2];
                let first = id_of(&caller.send(&spec(texts[0], 0)).expect("no conflict"));
                let again = id_of(&caller.send(&spec(texts[0], 0)).expect("the same"));
                assert_eq!(first, again);
                assert_eq!(caller.streamed(&spec(texts[0], 0)), first);
                let other = caller.send(&spec(texts[1], 0));
                if by_key {
                    let fault = other.expect_err("a conflict of its own");
                    assert_fault(variant, Op::Send, "IdempotencyConflict", &fault);
                } else {
                    assert_ne!(id_of(&other.expect("a new message")), first);
                }
                made.push((person.what, first));
            }
            // Clients of 0.1 name their tasks, and all have chosen the same name.
            if variant.generation != V01 {
                let mut ids: Vec<_> = made.iter().map(|(_, id)| id).collect();
                ids.sort();
                ids.dedup();
                assert_eq!(ids.len(), everybody().len(), "{made:?}");
            }
        }
    }
}

#[test]
fn task_ids_chosen_by_0_1_clients_are_scoped_to_a_caller() {
    let server = server("apart-names");
    for variant in VARIANTS.iter().copied().filter(|variant| variant.names_tasks()) {
        let spec = text_spec("ask");
        let mut seen = Vec::new();
        for person in everybody() {
            let mut caller = Caller::new(&server, variant, &person);
            let task = caller.send(&spec).expect("a task of its own");
            seen.push((person, caller.made(&task)));
        }
        let (_, first) = &seen[0];
        assert!(seen.iter().all(|(_, target)| target.id == first.id));
        // A message to one caller's task does not reach the others' tasks.
        for (index, (person, target)) in seen.iter().enumerate() {
            let mut caller = Caller::new(&server, variant, person);
            let task = Some(target.id.clone());
            caller.send(&MessageSpec { task, ..text_spec("done") }).expect("its task");
            for (other, (person, target)) in seen.iter().enumerate() {
                let state = get(&server, person, target)["status"]["state"].clone();
                let ended = other <= index;
                assert_eq!(state == "TASK_STATE_COMPLETED", ended, "{}", person.what);
            }
        }
    }
}

#[test]
fn stream_gets_no_events_caused_by_other_callers() {
    let server = server("apart-streams");
    let mut caller = Caller::new(&server, OBSERVER, &alice());
    let task = caller.send(&text_spec("hold")).expect("a task");
    let target = caller.made(&task);
    let mut stream = caller.client.subscribe(&target).expect("a stream");
    stream.expect();
    // In 0.1 they have their own tasks under the same name, which all generations then find.
    let (named, others): (Vec<_>, Vec<_>) = VARIANTS.iter().partition(|v| v.names_tasks());
    for variant in others.into_iter().chain(named).copied() {
        for person in strangers() {
            let mut caller = Caller::new(&server, variant, &person);
            for op in [Op::Cancel, Op::Subscribe].into_iter().filter(|_| !variant.names_tasks()) {
                caller.refused(&Call::new(op, json!({"id": target.id})), &target.id);
            }
            let spec = MessageSpec { task: Some(target.id.clone()), ..text_spec("ask") };
            assert_eq!(caller.send(&spec).is_ok(), variant.names_tasks());
        }
    }
    caller.client.cancel(&target).expect("a canceled task");
    let rest = stream.rest();
    assert_eq!(rest.len(), 1, "{rest:?}");
}

#[test]
fn a_tenant_means_the_same_in_path_metadata_params_and_token() {
    let server = server("apart-tenants");
    let hers = hers(&server);
    let path = |path: &str| Approach::with(&alice().fields).at(path);
    let metadata = |tenant: &str, has_json_messages| {
        let mut approach = Approach { has_json_messages, ..path("") };
        approach.fields.push(("a2a-tenant", tenant.to_owned()));
        approach
    };
    let binding = |binding| Variant { binding, ..OBSERVER };
    let grpc = Variant { carrier: Carrier::Http2, ..binding(Binding::Grpc) };
    let grpc_v03 = Variant { generation: V03, ..grpc };
    for (tenant, name) in
        [("acme", None), ("other", Some("TaskNotFound")), ("else", Some("PermissionDenied"))]
    {
        let below = format!("/tenants/{tenant}");
        for (variant, approach) in [
            (OBSERVER, path(&below)),
            (binding(Binding::WebSocket), path(&below)),
            (binding(Binding::Rest), path(&below)),
            (binding(Binding::Rest), path(&format!("/{tenant}"))),
            (binding(Binding::Rest), path(&format!("/a2a_rust{below}"))),
            (grpc, metadata(tenant, false)),
            (grpc, metadata(tenant, true)),
            (grpc_v03, metadata(tenant, false)),
        ] {
            let mut client = server.client_with(variant, &approach);
            for task in &hers {
                let mut params = json!({"id": task.target.id});
                let answer = client.link.call(&Call::new(Op::Get, params.clone()));
                match name {
                    None => assert_eq!(id_of(&answer.expect("a task")), task.target.id),
                    Some(name) => {
                        let fault = answer.expect_err("nothing of hers");
                        assert_fault(variant, Op::Get, name, &fault);
                    }
                }
                // Another tenant in the call contradicts this one; a REST path leaves no field for
                // it.
                if variant != grpc_v03 && variant.binding != Binding::Rest {
                    params["tenant"] = json!("acme2");
                    let fault = client.link.call(&Call::new(Op::Get, params)).expect_err("two");
                    assert_fault(variant, Op::Get, "InvalidParams", &fault);
                }
            }
        }
    }
}

/// Sends a batch as this caller; returns the answers, by the numbers of the calls.
fn batch(server: &Server, carrier: Carrier, person: &Person, calls: &[Value]) -> Vec<Value> {
    let endpoint = &server.endpoint;
    let mut fields = person.fields.clone();
    fields.push(("Content-Type", "application/json".to_owned()));
    let body = Some(Value::from(calls).to_string());
    let request = Request { method: "POST", target: "/".to_owned(), fields, body };
    let reply = match carrier {
        Carrier::Http1 => Http1::new(endpoint).fetch(&request),
        Carrier::Http2 => Http2::new(endpoint).fetch(&request),
    };
    assert_eq!(reply.status, 200, "{reply:?}");
    let answers: Vec<Value> = serde_json::from_value(reply.json()).expect("a list");
    let numbers: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(numbers, (0..calls.len()).map(|number| json!(number)).collect::<Vec<_>>());
    answers
}

#[test]
fn batch_answers_foreign_and_missing_tasks_alike() {
    let server = server("apart-batches");
    let hers = hers(&server);
    for (generation, carrier) in
        [(V03, Carrier::Http1), (V03, Carrier::Http2), (V1, Carrier::Http1), (V1, Carrier::Http2)]
    {
        let variant = Variant { generation, carrier, ..OBSERVER };
        let call = |number: usize, op: Op, params: Value| {
            json!({"jsonrpc": "2.0", "id": number, "method": method(op, generation),
                "params": params})
        };
        for task in &hers {
            let mut own = Caller::new(&server, variant, &bob());
            let own = id_of(&own.send(&text_spec("ask")).expect("a task"));
            let (id, nothing) = (&task.target.id, unlike(&task.target.id));
            let follow_up = |id: &str| {
                let spec = MessageSpec { task: Some(id.to_owned()), ..text_spec("done") };
                variant.form().send_params(&spec)
            };
            let answers = batch(
                &server,
                carrier,
                &bob(),
                &[
                    call(0, Op::Get, json!({"id": own})),
                    call(1, Op::Get, json!({"id": id})),
                    call(2, Op::Get, json!({"id": nothing})),
                    call(3, Op::Cancel, json!({"id": id})),
                    call(4, Op::Cancel, json!({"id": nothing})),
                    call(5, Op::Send, follow_up(id)),
                    call(6, Op::Send, follow_up(&nothing)),
                    call(7, Op::Cancel, json!({"id": own})),
                ],
            );
            assert_eq!(answers[0]["result"]["id"], json!(own));
            assert_eq!(answers[7]["result"]["id"], json!(own));
            for pair in answers[1..7].chunks(2) {
                assert_eq!(pair[0]["error"]["code"], -32001, "{pair:?}");
                assert_eq!(pair[0]["error"], pair[1]["error"]);
            }
            // Her own tenants, and one of another caller.
            let of = |tenant: &str| json!({"id": id, "tenant": tenant});
            let answers = batch(
                &server,
                carrier,
                &alice(),
                &[
                    call(0, Op::Get, json!({"id": id})),
                    call(1, Op::Get, of("acme")),
                    call(2, Op::Get, of("other")),
                    call(3, Op::Get, json!({"id": nothing, "tenant": "other"})),
                    call(4, Op::Get, of("else")),
                    call(5, Op::Get, json!({"id": nothing, "tenant": "else"})),
                ],
            );
            assert_eq!(answers[0]["result"], answers[1]["result"]);
            assert_eq!(answers[1]["result"]["id"], json!(id));
            assert_eq!(answers[2]["error"]["code"], -32001);
            assert_eq!(answers[2]["error"], answers[3]["error"]);
            assert_eq!(answers[4]["error"]["code"], -32000);
            assert_eq!(answers[4]["error"], answers[5]["error"]);
        }
    }
    for task in &hers {
        assert_eq!(get(&server, &alice(), &task.target), task.seen);
    }
}
