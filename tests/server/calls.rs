//! Calls over gRPC that say something beside their message.

use peregrine::model::Idempotency;
use tonic::{Code, Request};

use crate::grpc_client::{Rig, message, reason, run, say, say_v03, task, text};

#[test]
fn a_send_over_grpc_is_known_again_over_json_rpc_and_in_both_generations() {
    let rig = Rig::with(|setup| setup.idempotency = Idempotency::Everybody);
    run(async {
        let mut client = rig.v1().await;
        let first = task(client.send_message(say("hello")).await.unwrap().into_inner());
        let again = task(client.send_message(say("hello")).await.unwrap().into_inner());
        assert_eq!(first, again);
        let old = rig.v03().await.send_message(say_v03("hello", true)).await.unwrap().into_inner();
        assert!(format!("{old:?}").contains(&first.id), "{old:?}");

        let conflict = client.send_message(say("other")).await.unwrap_err();
        assert_eq!(reason(&conflict, Code::AlreadyExists), "IDEMPOTENCY_CONFLICT");
        assert!(conflict.message().starts_with("message.messageId: "), "{conflict:?}");
    });
}

#[test]
fn metadata_of_grpc_may_hold_an_idempotency_key() {
    let rig = Rig::with(|setup| setup.idempotency = Idempotency::Everybody);
    run(async {
        let mut client = rig.v1().await;
        let mut ids = Vec::new();
        for id in ["a", "b"] {
            let mut said = message(vec![text("hello")]);
            said.message.as_mut().unwrap().message_id = id.to_owned();
            let mut request = Request::new(said);
            request.metadata_mut().insert("idempotency-key", "\"one\"".parse().unwrap());
            ids.push(task(client.send_message(request).await.unwrap().into_inner()).id);
        }
        assert_eq!(ids[0], ids[1]);
    });
}
