//! The agent on the official SDK (a2a-lf and a2a-server-lf): `official [PORT]`.

use std::sync::Arc;

use a2a::{
    A2AError, Artifact, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore, StaticAgentCard,
    agent_card::agent_card_router, jsonrpc::jsonrpc_router,
};
use axum::serve::ListenerExt;
use bench_agents::{Trigger, address, card};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::{net::TcpListener, time::sleep};

struct Agent;

/// The task of a turn.
#[derive(Clone)]
struct Turn {
    task_id: String,
    context_id: String,
}

fn status(state: TaskState) -> TaskStatus {
    TaskStatus { state, message: None, timestamp: None }
}

impl Turn {
    fn state(&self, state: TaskState) -> StreamResponse {
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.task_id.clone(),
            context_id: self.context_id.clone(),
            status: status(state),
            metadata: None,
        })
    }

    fn chunk(&self, id: &str, text: String, number: u64, last: bool) -> StreamResponse {
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.task_id.clone(),
            context_id: self.context_id.clone(),
            artifact: Artifact {
                artifact_id: id.to_owned(),
                name: None,
                description: None,
                parts: vec![Part::text(text)],
                metadata: None,
                extensions: None,
            },
            append: Some(number > 1),
            last_chunk: Some(last),
            metadata: None,
        })
    }
}

impl AgentExecutor for Agent {
    fn execute(
        &self,
        ctx: ExecutorContext,
    ) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let text = ctx.message.as_ref().and_then(|message| message.text());
        let text = text.unwrap_or_default().to_owned();
        let turn = Turn { task_id: ctx.task_id, context_id: ctx.context_id };
        let task = StreamResponse::Task(Task {
            id: turn.task_id.clone(),
            context_id: turn.context_id.clone(),
            status: status(TaskState::Submitted),
            artifacts: None,
            history: ctx.message.map(|message| vec![message]),
            metadata: None,
        });
        let Some(trigger) = Trigger::read(&text) else {
            let echo = turn.chunk("echo", text, 1, true);
            let events = [task, echo, turn.state(TaskState::Completed)];
            return stream::iter(events.map(Ok)).boxed();
        };
        let (hold, chunks) = (trigger.hold, trigger.chunks());
        let working = (trigger.events > 1).then(|| turn.state(TaskState::Working));
        let completed = turn.state(TaskState::Completed);
        let chunk =
            move |number| turn.chunk("chunks", trigger.chunk(number), number, number == chunks);
        let held = stream::once(sleep(hold)).filter_map(|()| async { None });
        stream::iter([task])
            .chain(held)
            .chain(stream::iter(working))
            .chain(stream::iter((1..=chunks).map(chunk)))
            .chain(stream::iter([completed]))
            .map(Ok)
            .boxed()
    }

    fn cancel(&self, ctx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let turn = Turn { task_id: ctx.task_id, context_id: ctx.context_id };
        stream::iter([Ok(turn.state(TaskState::Canceled))]).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = address();
    let card: a2a::AgentCard = serde_json::from_value(card(&address)).unwrap();
    let handler = DefaultRequestHandler::new(Agent, InMemoryTaskStore::new())
        .with_capabilities(card.capabilities.clone());
    let app = axum::Router::new()
        .merge(jsonrpc_router(Arc::new(handler)))
        .merge(agent_card_router(Arc::new(StaticAgentCard::new(card))));
    let listener = TcpListener::bind(address).await.unwrap();
    // Without it a stream's first event waits up to 40 ms for an acknowledgement.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    axum::serve(listener, app).await.unwrap();
}
