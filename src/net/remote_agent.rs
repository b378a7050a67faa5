//! Agents of other servers: the gateway's futures over the client's transport.

use std::sync::Arc;

use super::{
    HttpClient, HttpClientError, HttpClientOptions,
    async_agent::{FuturePlace, run_future, start_future},
    worker_clients::WorkerClients,
};
use crate::{
    agent::{Agent, CancelRequest, Deferred, Turn},
    client::{Client, ClientBuilder, ClientError},
    gateway::{self, RelayedTasks},
};

/// An agent that passes its messages to a remote A2A agent.
///
/// Each message becomes one call of the upstream agent, and its answer a task of this server, or a
/// direct message. It runs under [`Server`](super::Server) only.
pub struct RemoteAgent {
    upstream: Arc<Upstream>,
}

/// The upstream agent, and a client of it for each worker.
struct Upstream {
    url: String,
    builder: ClientBuilder,
    options: HttpClientOptions,
    clients: WorkerClients<Client<HttpClient>>,
    followed: RelayedTasks,
}

impl RemoteAgent {
    /// The agent at `url`: its origin, or the URL of its card. Nothing is requested before the
    /// first message.
    ///
    /// # Errors
    /// [`HttpClientError`]: no client can be made with these options.
    pub fn new(
        url: impl Into<String>,
        builder: ClientBuilder,
        options: HttpClientOptions,
    ) -> Result<RemoteAgent, HttpClientError> {
        HttpClient::new(options.clone())?;
        let upstream = Upstream {
            url: url.into(),
            builder,
            options,
            clients: WorkerClients::default(),
            followed: RelayedTasks::default(),
        };
        Ok(RemoteAgent { upstream: Arc::new(upstream) })
    }
}

impl Upstream {
    /// The client of the worker, which reads the card first if it has not yet.
    async fn client(&self) -> Result<Client<HttpClient>, ClientError> {
        if let Some(client) = self.clients.own() {
            return Ok(client);
        }
        let transport = HttpClient::new(self.options.clone())?;
        let client = self.builder.clone().discover_over(transport, &self.url).await?;
        Ok(self.clients.keep(client))
    }
}

impl Agent for RemoteAgent {
    fn start(&self, turn: Turn<'_>) {
        let upstream = Arc::clone(&self.upstream);
        start_future(turn, |deferred: Deferred| async move {
            match upstream.client().await {
                Ok(client) => gateway::relay(&client, deferred, &upstream.followed).await,
                Err(error) => deferred.refuse(gateway::fault_of(&error)),
            }
        });
    }

    fn cancel(&self, cancel: CancelRequest<'_>) {
        let agent = cancel.request.scope.agent;
        let Some(place) = FuturePlace::take() else {
            return cancel.refuse("the server has no room for the call (async_futures_max)");
        };
        // Without room for the call the server tells the client.
        let Ok(deferred) = cancel.defer() else { return };
        let upstream = Arc::clone(&self.upstream);
        run_future(agent, place, async move {
            match upstream.client().await {
                Ok(client) => gateway::cancel(&client, deferred).await,
                Err(error) => deferred.refuse(gateway::fault_of(&error).message().to_owned()),
            }
        });
    }
}
