//! The agent on a2a-protocol-server: `protocol [PORT]`.

use std::{future::Future, pin::Pin, sync::Arc};

use a2a_protocol_server::{
    AgentExecutor, EventQueueWriter, RequestContext, RequestHandlerBuilder, Server,
    dispatch::JsonRpcDispatcher,
};
use a2a_protocol_types::{
    AgentCard, Artifact, ContextId, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId,
    TaskState, TaskStatus, TaskStatusUpdateEvent, error::A2aResult,
};
use bench_agents::{Trigger, address, card};
use tokio::time::sleep;

struct Agent;

/// The task of a turn.
struct Turn {
    task_id: TaskId,
    context_id: ContextId,
}

impl Turn {
    fn submitted(&self, ctx: &RequestContext) -> StreamResponse {
        StreamResponse::Task(Task {
            id: self.task_id.clone(),
            context_id: self.context_id.clone(),
            status: TaskStatus::new(TaskState::Submitted),
            history: Some(vec![ctx.message.clone()]),
            artifacts: None,
            metadata: None,
        })
    }

    fn state(&self, state: TaskState) -> StreamResponse {
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.task_id.clone(),
            context_id: self.context_id.clone(),
            status: TaskStatus::new(state),
            metadata: None,
        })
    }

    fn chunk(&self, id: &str, text: String, number: u64, last: bool) -> StreamResponse {
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.task_id.clone(),
            context_id: self.context_id.clone(),
            artifact: Artifact::new(id, vec![Part::text(text)]),
            append: Some(number > 1),
            last_chunk: Some(last),
            metadata: None,
        })
    }
}

impl AgentExecutor for Agent {
    fn execute<'a>(
        &'a self,
        ctx: &'a RequestContext,
        queue: &'a dyn EventQueueWriter,
    ) -> Pin<Box<dyn Future<Output = A2aResult<()>> + Send + 'a>> {
        Box::pin(async move {
            let turn = Turn {
                task_id: ctx.task_id.clone(),
                context_id: ContextId::new(ctx.context_id.clone()),
            };
            queue.write(turn.submitted(ctx)).await?;
            let text = ctx.message.text().unwrap_or_default();
            let Some(trigger) = Trigger::read(text) else {
                queue.write(turn.chunk("echo", text.to_owned(), 1, true)).await?;
                return queue.write(turn.state(TaskState::Completed)).await;
            };
            tokio::select! {
                () = sleep(trigger.hold) => {}
                () = ctx.cancellation_token.cancelled() => return Ok(()),
            }
            if trigger.events > 1 {
                queue.write(turn.state(TaskState::Working)).await?;
            }
            let chunks = trigger.chunks();
            for number in 1..=chunks {
                let text = trigger.chunk(number);
                queue.write(turn.chunk("chunks", text, number, number == chunks)).await?;
            }
            queue.write(turn.state(TaskState::Completed)).await
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = address();
    let card: AgentCard = serde_json::from_value(card(&address)).unwrap();
    let handler = RequestHandlerBuilder::new(Agent).with_agent_card(card).build().unwrap();
    let dispatcher = JsonRpcDispatcher::new(Arc::new(handler));
    let server = Server::bind(address).await.unwrap();
    server.serve_with_shutdown(dispatcher, std::future::pending()).await;
}
