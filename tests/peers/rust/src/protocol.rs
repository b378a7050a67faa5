//! The agent on a2a-protocol-server.

use std::{future::Future, pin::Pin, sync::Arc};

use a2a_protocol_server::{
    AgentExecutor, EventQueueWriter, RequestContext, RequestHandlerBuilder, Server,
    dispatch::{CombinedDispatcher, GrpcConfig, GrpcDispatcher},
};
use a2a_protocol_types::{
    AgentCard,
    error::{A2aError, A2aResult},
};
use tokio::{net::TcpListener, time::sleep};

use crate::words::{Call, PAUSE, Step, card};

struct Words;

impl AgentExecutor for Words {
    fn execute<'a>(
        &'a self,
        ctx: &'a RequestContext,
        queue: &'a dyn EventQueueWriter,
    ) -> Pin<Box<dyn Future<Output = A2aResult<()>> + Send + 'a>> {
        let call = Call {
            task_id: ctx.task_id.0.clone(),
            context_id: ctx.context_id.clone(),
            text: ctx.message.text().unwrap_or_default().to_owned(),
            begins_with: None,
            is_continued: ctx.stored_task.is_some(),
        };
        Box::pin(async move {
            for step in call.steps() {
                match step {
                    Step::Pause => sleep(PAUSE).await,
                    Step::Event(event) => {
                        if ctx.cancellation_token.is_cancelled() {
                            return Ok(());
                        }
                        let event = serde_json::from_value(event)
                            .map_err(|error| A2aError::internal(error.to_string()))?;
                        queue.write(event).await?;
                    }
                }
            }
            Ok(())
        })
    }
}

/// Starts the server, and returns its URL.
pub async fn start() -> String {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let card = card("rust protocol", &url, grpc.local_addr().unwrap().port());
    let card: AgentCard = serde_json::from_value(card).unwrap();
    let handler = Arc::new(RequestHandlerBuilder::new(Words).with_agent_card(card).build().unwrap());
    let dispatcher = CombinedDispatcher::new(Arc::clone(&handler)).with_jsonrpc_path("/rpc").unwrap();
    tokio::spawn(server.serve_with_shutdown(dispatcher, std::future::pending()));
    GrpcDispatcher::new(handler, GrpcConfig::default()).serve_with_listener(grpc).unwrap();
    url
}
