//! Calls over gRPC with parameters in the metadata in addition to the message.

use peregrine::model::{Idempotency, IdempotentConflict};
use tonic::{Code, Request};

use crate::grpc_client::{Rig, message, reason, run, say, state, task, text, text_message_v03, v1};

#[test]
fn duplicate_send_returns_same_task_in_both_generations() {
    let rig = Rig::with(|setup| {
        setup.idempotency = Idempotency::Everybody;
        setup.idempotent_conflict = IdempotentConflict::Refuse;
    });
    run(async {
        let mut client = rig.v1().await;
        let first = task(client.send_message(say("hello")).await.unwrap().into_inner());
        let again = task(client.send_message(say("hello")).await.unwrap().into_inner());
        assert_eq!(first, again);
        let old = rig
            .v03()
            .await
            .send_message(text_message_v03("hello", true))
            .await
            .unwrap()
            .into_inner();
        assert!(format!("{old:?}").contains(&first.id), "{old:?}");

        let conflict = client.send_message(say("other")).await.unwrap_err();
        assert_eq!(reason(&conflict, Code::AlreadyExists), "IDEMPOTENCY_CONFLICT");
        assert!(conflict.message().starts_with("message.messageId: "), "{conflict:?}");
    });
}

#[test]
fn idempotency_key_in_grpc_metadata_deduplicates_sends() {
    let rig = Rig::with(|setup| setup.idempotency = Idempotency::Everybody);
    run(async {
        let mut client = rig.v1().await;
        let mut ids = Vec::new();
        for id in ["a", "b"] {
            let mut params = message(vec![text("hello")]);
            params.message.as_mut().unwrap().message_id = id.to_owned();
            let mut request = Request::new(params);
            request.metadata_mut().insert("idempotency-key", "\"one\"".parse().unwrap());
            ids.push(task(client.send_message(request).await.unwrap().into_inner()).id);
        }
        assert_eq!(ids[0], ids[1]);
    });
}

#[test]
fn grpc_get_task_with_prefer_wait_waits_for_a_change() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let mut hold = say("hold:30000:1");
        hold.configuration =
            Some(v1::SendMessageConfiguration { return_immediately: true, ..Default::default() });
        let id = task(client.send_message(hold).await.unwrap().into_inner()).id;
        let get = |prefer: &str| {
            let mut request =
                Request::new(v1::GetTaskRequest { id: id.clone(), ..Default::default() });
            request.metadata_mut().insert("prefer", prefer.parse().unwrap());
            request
        };
        let at_once = client.get_task(get("wait=0")).await.unwrap();
        assert_eq!(at_once.metadata().get("preference-applied").unwrap(), "wait=0");
        let (mut other, canceled) =
            (client.clone(), v1::CancelTaskRequest { id: id.clone(), ..Default::default() });
        let waits = client.get_task(get("wait=60"));
        let (read, _) = tokio::join!(waits, async {
            other.cancel_task(canceled).await.unwrap();
        });
        let read = read.unwrap();
        assert_eq!(read.metadata().get("preference-applied").unwrap(), "wait=60");
        assert_eq!(state(&read.into_inner()), v1::TaskState::Canceled);
        // The task also ends by itself.
        let mut hold = say("hold:30000:1");
        hold.configuration =
            Some(v1::SendMessageConfiguration { return_immediately: true, ..Default::default() });
        let id = task(client.send_message(hold).await.unwrap().into_inner()).id;
        let mut request = Request::new(v1::GetTaskRequest { id, ..Default::default() });
        request.metadata_mut().insert("prefer", "wait=1".parse().unwrap());
        let read = client.get_task(request).await.unwrap().into_inner();
        assert_ne!(state(&read), v1::TaskState::Completed);
    });
}

#[test]
fn grpc_call_with_too_many_hops_is_refused() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        for (field, value) in [("a2a-hops", "9"), ("via", "1,2,3,4,5,6,7,8,9")] {
            let mut request = Request::new(say("hello"));
            request.metadata_mut().insert(field, value.parse().unwrap());
            let refused = client.send_message(request).await.unwrap_err();
            assert_eq!(reason(&refused, Code::FailedPrecondition), "LOOP_DETECTED", "{field}");
        }
    });
}
