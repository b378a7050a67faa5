//! The client for code that blocks: each call runs to its end on the caller's thread.
//!
//! Invariant: the client only wraps the async client, on its own runtime, which runs only during a
//! call. It must not be used inside another runtime, because it would block a thread of that
//! runtime.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use crate::{
    client::{
        Answer, Client, ClientBuilder, ClientError, ClientErrorKind, ClientStream, KnownCard,
        ListTasks, SendRequest, StreamEvent, TaskAddress, TraceParent, TransportError,
        card::{AgentCard, ChosenInterface},
    },
    model::{JsonObject, PushConfigBuf, RawText, TaskState},
};

use super::{HttpClient, HttpClientError, HttpClientOptions};

impl Client<HttpClient> {
    /// Reads the card of the agent at `url` over new sockets and chooses an interface, with the
    /// defaults of [`ClientBuilder`] and [`HttpClientOptions`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn discover(url: &str) -> Result<Client<HttpClient>, ClientError> {
        ClientBuilder::new().discover(url).await
    }
}

impl ClientBuilder {
    /// Reads the card of the agent at `url` over new sockets and chooses an interface.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn discover(self, url: &str) -> Result<Client<HttpClient>, ClientError> {
        let transport = HttpClient::new(HttpClientOptions::default())?;
        self.discover_over(transport, url).await
    }
}

impl From<HttpClientError> for ClientError {
    fn from(error: HttpClientError) -> ClientError {
        let why = error.to_string();
        ClientError::because(ClientErrorKind::Transport(TransportError::Io(why.clone())), why)
    }
}

/// A blocking client of one agent.
///
/// ```no_run
/// use peregrine::{client::SendRequest, net::BlockingClient};
///
/// let client = BlockingClient::discover("http://127.0.0.1:8080")?;
/// let answer = client.send(&SendRequest::text("hello"))?;
/// println!("{:?}", answer.state());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BlockingClient {
    runtime: Arc<Runtime>,
    client: Client<HttpClient>,
}

impl BlockingClient {
    /// Reads the card of the agent at `url` and chooses an interface, as
    /// [`Client::discover`] does.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn discover(url: &str) -> Result<BlockingClient, ClientError> {
        let transport = HttpClient::new(HttpClientOptions::default())?;
        BlockingClient::build(ClientBuilder::new(), transport, url)
    }

    /// Builds a client with this builder's settings over this transport, which no other runtime has
    /// used.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn build(
        builder: ClientBuilder,
        transport: HttpClient,
        url: &str,
    ) -> Result<BlockingClient, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| TransportError::Io(error.to_string()))?;
        let client = runtime.block_on(builder.discover_over(transport, url))?;
        Ok(BlockingClient { runtime: Arc::new(runtime), client })
    }

    /// As [`Client::with_traceparent`].
    #[must_use]
    pub fn with_traceparent(&self, trace: TraceParent) -> BlockingClient {
        let client = self.client.with_traceparent(trace);
        BlockingClient { runtime: Arc::clone(&self.runtime), client }
    }

    /// The agent's card.
    pub fn card(&self) -> Arc<AgentCard> {
        self.client.card()
    }

    /// The interface that is called.
    pub fn interface(&self) -> ChosenInterface {
        self.client.interface()
    }

    /// As [`Client::send`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn send(&self, request: &SendRequest) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.client.send(request))
    }

    /// As [`Client::stream`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stream(&self, request: &SendRequest) -> Result<BlockingStream, ClientError> {
        let stream = self.runtime.block_on(self.client.stream(request))?;
        Ok(BlockingStream { runtime: Arc::clone(&self.runtime), stream })
    }

    /// As [`Client::subscribe`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn subscribe(
        &self,
        task_id: &str,
        after: Option<u64>,
    ) -> Result<BlockingStream, ClientError> {
        let stream = self.runtime.block_on(self.client.subscribe(task_id, after))?;
        Ok(BlockingStream { runtime: Arc::clone(&self.runtime), stream })
    }

    /// As [`Client::get_task`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get_task<'k>(
        &self,
        task: impl Into<TaskAddress<'k>>,
        history: Option<u32>,
    ) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.client.get_task(task, history))
    }

    /// As [`Client::list_tasks`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn list_tasks(&self, list: &ListTasks) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.client.list_tasks(list))
    }

    /// As [`Client::cancel_task`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn cancel_task<'k>(
        &self,
        task: impl Into<TaskAddress<'k>>,
        metadata: Option<JsonObject<'_>>,
    ) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.client.cancel_task(task, metadata))
    }

    /// As [`Client::set_push_config`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn set_push_config(&self, config: &PushConfigBuf) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.client.set_push_config(config))
    }

    /// As [`Client::get_push_config`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get_push_config(&self, task_id: &str, id: Option<&str>) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.client.get_push_config(task_id, id))
    }

    /// As [`Client::list_push_configs`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn list_push_configs(
        &self,
        task_id: &str,
        page_size: Option<u32>,
        page_token: Option<&str>,
    ) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.client.list_push_configs(task_id, page_size, page_token))
    }

    /// As [`Client::delete_push_config`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn delete_push_config(&self, task_id: &str, id: &str) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.client.delete_push_config(task_id, id))
    }

    /// As [`Client::extended_card`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn extended_card(&self) -> Result<Arc<AgentCard>, ClientError> {
        self.runtime.block_on(self.client.extended_card())
    }

    /// As [`Client::known_card`].
    pub fn known_card(&self) -> Option<KnownCard> {
        self.client.known_card()
    }

    /// As [`Client::refresh_card`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn refresh_card(&self) -> Result<bool, ClientError> {
        self.runtime.block_on(self.client.refresh_card())
    }
}

/// Events of one task; each call of [`BlockingStream::next`] waits for an event.
pub struct BlockingStream {
    runtime: Arc<Runtime>,
    stream: ClientStream<HttpClient>,
}

impl BlockingStream {
    /// As [`ClientStream::next`]. Not an iterator, since an event borrows from the stream until the
    /// next call.
    ///
    /// # Errors
    /// [`ClientError`].
    #[allow(clippy::should_implement_trait)] // An event borrows from the stream.
    pub fn next(&mut self) -> Option<Result<StreamEvent<'_>, ClientError>> {
        self.runtime.block_on(self.stream.next())
    }

    /// As [`ClientStream::task_id`].
    pub fn task_id(&self) -> Option<RawText<'_>> {
        self.stream.task_id()
    }

    /// As [`ClientStream::state`].
    pub fn state(&self) -> Option<TaskState> {
        self.stream.state()
    }

    /// As [`ClientStream::last_number`].
    pub fn last_number(&self) -> Option<u64> {
        self.stream.last_number()
    }

    /// As [`ClientStream::activated_extensions`].
    pub fn activated_extensions(&self) -> impl Iterator<Item = &str> {
        self.stream.activated_extensions()
    }
}
