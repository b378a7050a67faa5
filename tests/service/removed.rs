//! An agent that is removed during gRPC calls of its clients, and one that is replaced.

use std::sync::Arc;

use peregrine::agent::echo::Echo;
use peregrine::agent::{Agent, Profile};
use tokio_stream::StreamExt as _;
use tonic::Code;

use crate::grpc_client::{Rig, json, reason, run, say, state, task, v1};

const OTHER: &str = "other";

fn send_request() -> v1::SendMessageRequest {
    v1::SendMessageRequest { tenant: OTHER.to_owned(), ..say("ask") }
}

#[test]
fn grpc_reads_tasks_of_a_removed_agent_but_cannot_send() {
    let rig = Rig::echo();
    let agents = rig.0.agents().unwrap().clone();
    run(async {
        let mut client = rig.v1().await;
        let created = task(client.send_message(send_request()).await.unwrap().into_inner());
        let id = created.id.clone();
        let tenant = OTHER.to_owned();
        let subscribe = v1::SubscribeToTaskRequest { id: id.clone(), tenant: tenant.clone() };
        let mut stream = client.subscribe_to_task(subscribe).await.unwrap().into_inner();
        assert!(stream.next().await.unwrap().is_ok());

        agents.remove(OTHER).unwrap();
        // The stream gets the end of the task, and ends.
        let last = stream.next().await.unwrap().unwrap().payload.unwrap();
        let v1::stream_response::Payload::StatusUpdate(last) = last else { panic!("{last:?}") };
        assert_eq!(last.status.unwrap().state(), v1::TaskState::Failed);
        assert!(stream.next().await.is_none());

        let refused = client.send_message(send_request()).await.unwrap_err();
        assert_eq!(refused.message(), "the agent other was removed and accepts no more messages");
        assert_eq!(reason(&refused, Code::FailedPrecondition), "UNSUPPORTED_OPERATION");
        let refused = client.send_streaming_message(send_request()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        let named =
            v1::GetTaskRequest { id: id.clone(), tenant: tenant.clone(), ..Default::default() };
        let read = client.get_task(named).await.unwrap().into_inner();
        assert_eq!((read.id.as_str(), state(&read)), (id.as_str(), v1::TaskState::Failed));
        let cancel =
            v1::CancelTaskRequest { id: id.clone(), tenant: tenant.clone(), ..Default::default() };
        assert_eq!(client.cancel_task(cancel).await.unwrap_err().code(), Code::FailedPrecondition);
        let card = v1::GetExtendedAgentCardRequest { tenant };
        assert!(client.get_extended_agent_card(card).await.is_err());

        let params = r#"{"tenant":"other","message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"ask"}]}}"#;
        let request = json::JsonPayload { data: params.as_bytes().into() };
        let refused = rig.json().await.send_message(request).await.unwrap_err();
        assert_eq!(refused.message(), "the agent other was removed and accepts no more messages");
    });
}

#[test]
fn grpc_calls_reach_the_replacement_agent() {
    let rig = Rig::echo();
    let agents = rig.0.agents().unwrap().clone();
    run(async {
        let mut client = rig.v1().await;
        let card = || v1::GetExtendedAgentCardRequest { tenant: OTHER.to_owned() };
        let before = client.get_extended_agent_card(card()).await.unwrap().into_inner();
        let echo: Arc<dyn Agent> = Arc::new(Echo);
        agents.replace(Profile { name: OTHER.to_owned(), ..Echo::profile() }, echo).unwrap();
        let after = client.get_extended_agent_card(card()).await.unwrap().into_inner();
        assert_ne!(before.description, after.description);
        let echoed = task(client.send_message(send_request()).await.unwrap().into_inner());
        assert_eq!(state(&echoed), v1::TaskState::Completed);
    });
}
