//! The agent on the official SDK: a2a-lf, a2a-server-lf and a2a-grpc.

use std::{
    collections::HashSet,
    future::ready,
    sync::{Arc, Mutex},
};

use a2a::{A2AError, AgentCard, StreamResponse, TaskState};
use a2a_grpc::GrpcHandler;
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore, StaticAgentCard,
    agent_card::agent_card_router, jsonrpc::jsonrpc_router, rest::rest_router,
};
use axum::Router;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};
use tokio_stream::wrappers::TcpListenerStream;

use crate::words::{Call, PAUSE, Step, card};

/// The executor, and the tasks that were canceled.
#[derive(Default)]
struct Words(Arc<Mutex<HashSet<String>>>);

fn read(event: Value) -> Result<StreamResponse, A2AError> {
    serde_json::from_value(event).map_err(|error| A2AError::internal(error.to_string()))
}

impl AgentExecutor for Words {
    fn execute(
        &self,
        ctx: ExecutorContext,
    ) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let message = ctx.message.as_ref();
        let text = message.and_then(|message| message.text()).unwrap_or_default().to_owned();
        // A new task is stored before the executor is called.
        let is_continued = ctx.stored_task.is_some_and(|task| {
            task.status.state != TaskState::Submitted
        });
        let begins_with = message.map(|message| serde_json::to_value(message).unwrap());
        let call = Call {
            task_id: ctx.task_id.clone(),
            context_id: ctx.context_id,
            text,
            begins_with,
            is_continued,
        };
        let (task_id, canceled) = (ctx.task_id, Arc::clone(&self.0));
        let events = stream::iter(call.steps()).filter_map(|step| async {
            match step {
                Step::Pause => {
                    sleep(PAUSE).await;
                    None
                }
                Step::Event(event) => Some(read(event)),
            }
        });
        let runs = move || !canceled.lock().unwrap().contains(&task_id);
        events.take_while(move |_| ready(runs())).boxed()
    }

    fn cancel(&self, ctx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        self.0.lock().unwrap().insert(ctx.task_id.clone());
        let status = json!({"state": "TASK_STATE_CANCELED"});
        let event = json!({"statusUpdate":
            {"taskId": ctx.task_id, "contextId": ctx.context_id, "status": status}});
        stream::iter([read(event)]).boxed()
    }
}

/// Starts the server, and returns its URL.
pub async fn start() -> String {
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", http.local_addr().unwrap());
    let card = card("rust official", &url, grpc.local_addr().unwrap().port());
    let card: AgentCard = serde_json::from_value(card).unwrap();
    let handler = DefaultRequestHandler::new(Words::default(), InMemoryTaskStore::new())
        .with_capabilities(card.capabilities.clone());
    let handler = Arc::new(handler);
    let app = Router::new()
        .nest("/rpc", jsonrpc_router(Arc::clone(&handler)))
        .merge(rest_router(Arc::clone(&handler)))
        .merge(agent_card_router(Arc::new(StaticAgentCard::new(card))));
    tokio::spawn(async move { axum::serve(http, app).await.unwrap() });
    let service = A2aServiceServer::new(GrpcHandler::new(handler));
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(grpc)));
    url
}
