//! Each operation at each server over each binding.

use peregrine::{
    client::{Answer, Binding, ClientError, ClientErrorKind, ListTasks, SendRequest},
    fault::FaultKind,
    model::{Generation, JsonObject, MessageBuf, Op, PartsBuf, PushConfigBuf},
};

use super::{
    expected::{Outcome, Peer, Sdk, check},
    talk::{EXTENSION, at_each, begin},
};

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn send_returns_the_expected_answer_of_the_agent() {
    at_each(|peer, client| async move {
        for (about, words) in [
            ("echo", "echo größe 🦅"),
            ("message", "message hi"),
            ("data", "data"),
            ("file", "file"),
            ("history", "history"),
            ("fail", "fail"),
            ("reject", "reject"),
            ("auth", "auth"),
            ("input", "input"),
        ] {
            let outcome = Outcome::of(client.send(&SendRequest::text(words)).await);
            check(&peer, Op::Send, about, &outcome).map_err(|why| format!("{words}: {why}"))?;
        }
        Ok(())
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn metadata_and_extensions_round_trip() {
    at_each(|peer, client| async move {
        let metadata = JsonObject::parse(r#"{"m":[1,{"deep":null}]}"#).unwrap();
        let message = MessageBuf::agent(&PartsBuf::new().text("metadata"))
            .metadata(metadata)
            .extension(EXTENSION);
        let about_request = JsonObject::parse(r#"{"r":{"s":true}}"#).unwrap();
        let request = SendRequest::of(message).metadata(about_request);
        let outcome = Outcome::of(client.send(&request).await);
        check(&peer, Op::Send, "metadata", &outcome)
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn streams_have_every_event_once_and_in_order() {
    at_each(|peer, client| async move {
        for (about, words) in
            [("stream", "stream 3"), ("message", "message hi"), ("input", "input")]
        {
            let outcome = Outcome::of_stream(client.stream(&SendRequest::text(words)).await).await;
            check(&peer, Op::Stream, about, &outcome).map_err(|why| format!("{words}: {why}"))?;
        }
        Ok(())
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn next_message_resumes_input_required_task() {
    at_each(|peer, client| async move {
        for op in [Op::Send, Op::Stream] {
            let (task, context) = begin(&client, "input", false).await?;
            let more = SendRequest::text("more").task_id(&*task).context_id(&*context);
            let outcome = match op {
                Op::Stream => Outcome::of_stream(client.stream(&more).await).await,
                _ => Outcome::of(client.send(&more).await),
            };
            check(&peer, op, "follow-up", &outcome).map_err(|why| format!("{op:?}: {why}"))?;
        }
        Ok(())
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn tasks_are_read_and_listed() {
    at_each(|peer, client| async move {
        let (id, context) = begin(&client, "echo größe 🦅", false).await?;
        let finished = Outcome::of(client.get_task(&id, None).await);
        // Over HTTP+JSON of 0.3 the client requests the whole history, since no length would mean
        // none.
        let is_all = (peer.generation, peer.binding) == (Generation::V03, Binding::HttpJson);
        let about = if is_all { "whole history" } else { "finished" };
        check(&peer, Op::Get, about, &finished)?;
        let short = Outcome::of(client.get_task(&id, Some(1)).await);
        check(&peer, Op::Get, "short history", &short)?;
        let of_context = ListTasks { context_id: Some(context), ..ListTasks::default() };
        let listed = client.list_tasks(&of_context).await;
        if peer.generation != Generation::V1 {
            return list_before_v1(&peer, listed);
        }
        check(&peer, Op::List, "context", &Outcome::of(listed))?;
        for _ in 0..2 {
            begin(&client, "echo more", false).await?;
        }
        let page =
            ListTasks { page_size: Some(2), include_artifacts: true, ..ListTasks::default() };
        check(&peer, Op::List, "page", &Outcome::of(client.list_tasks(&page).await))
    });
}

/// Before 1.0 the specification has a list for HTTP+JSON alone, which one SDK supports.
fn list_before_v1(peer: &Peer, listed: Result<Answer, ClientError>) -> Result<(), String> {
    match (peer.binding, peer.sdk, listed.map_err(|error| error.kind.clone())) {
        // It takes the `v1` of the path for a tenant of 1.0.
        (Binding::HttpJson, Sdk::Js1, Ok(answer)) if answer.page().is_some() => Ok(()),
        (Binding::HttpJson, Sdk::Py1 | Sdk::Py03, Err(ClientErrorKind::Fault(_)))
        | (Binding::HttpJson, Sdk::Js03, Err(ClientErrorKind::NotA2a(404)))
        | (Binding::JsonRpc | Binding::Grpc, _, Err(ClientErrorKind::NotExpressible(_))) => Ok(()),
        (_, _, other) => Err(format!("nobody lists before 1.0: {other:?}")),
    }
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn running_task_is_canceled() {
    at_each(|peer, client| async move {
        let (id, _) = begin(&client, "slow 20", true).await?;
        let canceled = Outcome::of(client.cancel_task(&id, None).await);
        check(&peer, Op::Cancel, "working", &canceled)?;
        let again = Outcome::of(client.cancel_task(&id, None).await);
        check(&peer, Op::Cancel, "canceled", &again)
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn subscribe_follows_running_task_to_its_end() {
    at_each(|peer, client| async move {
        let (id, _) = begin(&client, "slow 3", true).await?;
        let outcome = Outcome::of_stream(client.subscribe(&id, None).await).await;
        check(&peer, Op::Subscribe, "live", &outcome)
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn unknown_or_finished_task_returns_named_fault() {
    at_each(|peer, client| async move {
        let (id, context) = begin(&client, "echo größe 🦅", false).await?;
        let get = Outcome::of(client.get_task("nope", None).await);
        check(&peer, Op::Get, "unknown task", &get)?;
        for (id, about) in [(&*id, "finished"), ("nope", "unknown task")] {
            let outcome = Outcome::of(client.cancel_task(id, None).await);
            check(&peer, Op::Cancel, about, &outcome)?;
            let outcome = Outcome::of_stream(client.subscribe(id, None).await).await;
            check(&peer, Op::Subscribe, about, &outcome).map_err(|why| format!("watch: {why}"))?;
        }
        let finished = SendRequest::text("more").task_id(&*id).context_id(&*context);
        let unknown = SendRequest::text("more").task_id("nope");
        for (request, about) in [(finished, "finished task"), (unknown, "unknown task")] {
            let outcome = Outcome::of(client.send(&request).await);
            check(&peer, Op::Send, about, &outcome)?;
            let outcome = Outcome::of_stream(client.stream(&request).await).await;
            check(&peer, Op::Stream, about, &outcome).map_err(|why| format!("{about}: {why}"))?;
        }
        Ok(())
    });
}

/// No single body of 0.3 over HTTP+JSON works for all: three SDKs accept the whole request as the
/// client writes it, the legacy layer of JavaScript's 1.0 accepts the configuration alone.
fn has_other_body(peer: &Peer) -> bool {
    (peer.sdk, peer.generation, peer.binding) == (Sdk::Js1, Generation::V03, Binding::HttpJson)
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn push_configurations_exist_until_deleted() {
    at_each(|peer, client| async move {
        let (id, _) = begin(&client, "echo größe 🦅", false).await?;
        let whole = PushConfigBuf::new("http://127.0.0.1:9/hook").token("token").bearer("secret");
        let second = PushConfigBuf::new("http://127.0.0.1:9/second");
        for (config, name, about) in [(whole, "first", "whole"), (second, "second", "url alone")] {
            let config = config.task_id(&*id).id(name);
            let outcome = Outcome::of(client.set_push_config(&config).await);
            if has_other_body(&peer) {
                return match outcome.fault.and_then(|fault| fault.kind) {
                    Some(FaultKind::InvalidParams) => Ok(()),
                    other => Err(format!("it has learned the body of the others: {other:?}")),
                };
            }
            check(&peer, Op::PushSet, about, &outcome).map_err(|why| format!("set: {why}"))?;
        }
        let outcome = Outcome::of(client.get_push_config(&id, Some("first")).await);
        check(&peer, Op::PushGet, "whole", &outcome).map_err(|why| format!("get: {why}"))?;
        let outcome = Outcome::of(client.list_push_configs(&id, None, None).await);
        check(&peer, Op::PushList, "both", &outcome).map_err(|why| format!("list: {why}"))?;
        let outcome = Outcome::of(client.delete_push_config(&id, "first").await);
        check(&peer, Op::PushDelete, "first", &outcome).map_err(|why| format!("delete: {why}"))?;
        let outcome = Outcome::of(client.get_push_config(&id, Some("first")).await);
        check(&peer, Op::PushGet, "deleted", &outcome).map_err(|why| format!("deleted: {why}"))
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn extended_card_replaces_the_public_card() {
    at_each(|peer, client| async move {
        let before = client.card().name.clone();
        let card = client.extended_card().await.map_err(|error| format!("{error:?}"))?;
        let now = client.card().name.clone();
        let is_public = match peer.sdk {
            Sdk::Py1 => false,
            // Over gRPC it returns the public card.
            Sdk::Py03 => peer.binding == Binding::Grpc,
            // They return the extended card to authenticated callers (`guarded`).
            Sdk::Js1 | Sdk::Js03 => true,
            // They have no extended card.
            Sdk::RustOfficial | Sdk::RustProtocol => true,
        };
        let expected = format!("{before}{}", if is_public { "" } else { ", extended" });
        let is_it = card.name == now && now == expected;
        if is_it { Ok(()) } else { Err(format!("{before:?} became {now:?}, not {expected:?}")) }
    });
}
