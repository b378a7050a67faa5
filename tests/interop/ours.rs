//! Our own client as a binding of the scenarios: it speaks the pair, and its results are read as
//! canonical objects, in the JSON of 1.0.

use std::sync::Arc;

use peregrine::{
    client::{
        Answer, Client, ClientBuilder, ClientError, ClientStream, HttpRequest, HttpVersion,
        ListTasks, ProtocolVersion, SendRequest, TaskAddress, Transport, TransportError,
        card::AgentCard,
    },
    model::{JsonObject, MessageBuf, PartBuf, PartsBuf, PushConfigBuf, TaskState},
    net::{ClientTls, HttpClient, HttpClientOptions},
    service::Now,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{
    client::{Call, Fault, Item, Items, Junk, Link, Op},
    model::{Content, Form, Gen, Message, Part, V01, V1, V03},
    place::Endpoint,
    variants::{Binding, Carrier, Variant},
};

/// The transport of sockets, on the carrier of the pair.
struct Carried {
    http: HttpClient,
    version: HttpVersion,
}

impl Transport for Carried {
    type Response = <HttpClient as Transport>::Response;

    async fn request(&self, request: HttpRequest<'_>) -> Result<Self::Response, TransportError> {
        let version = match request.version {
            HttpVersion::Any => self.version,
            needed @ (HttpVersion::Http1 | HttpVersion::Http2) => needed,
        };
        self.http.request(HttpRequest { version, ..request }).await
    }

    async fn sleep_until(&self, due_ms: u64) {
        self.http.sleep_until(due_ms).await;
    }

    fn now(&self) -> Now {
        self.http.now()
    }

    fn random(&self) -> u128 {
        self.http.random()
    }
}

/// The client of a pair.
pub struct Ours {
    runtime: Arc<Runtime>,
    client: Client<Carried>,
    generation: Gen,
}

struct Events {
    runtime: Arc<Runtime>,
    stream: ClientStream<Carried>,
}

impl Ours {
    /// Of a pair, by the specification.
    pub fn new(endpoint: &Endpoint, variant: Variant) -> Ours {
        Ours::in_dialect(endpoint, variant, None)
    }

    /// Of a pair, and of a dialect that the server has mounted under its name.
    pub fn in_dialect(
        endpoint: &Endpoint,
        variant: Variant,
        dialect: Option<&'static str>,
    ) -> Ours {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = Arc::new(runtime.expect("a runtime"));
        let mut tls = ClientTls::default().without_system_authorities();
        if let Some(file) = &endpoint.authority {
            tls = tls.authority(file);
        }
        let options = HttpClientOptions { tls, ..HttpClientOptions::default() };
        let version = match variant.carrier {
            Carrier::Http1 => HttpVersion::Http1,
            Carrier::Http2 => HttpVersion::Http2,
        };
        let _inside = runtime.enter();
        let carried = Carried { http: HttpClient::new(options).expect("a client"), version };
        let (binding, version) = (binding_name(variant.binding), version_name(variant.generation));
        let mut url = url(endpoint, variant.binding);
        // The service name is the path of gRPC.
        if let Some(name) = dialect.filter(|_| variant.binding != Binding::Grpc) {
            url = format!("{}/{name}", url.trim_end_matches('/'));
        }
        let interface = json!({"url": url, "protocolBinding": binding, "protocolVersion": version});
        // It declares every capability, so that each request of a scenario reaches the server.
        let all = json!({"streaming": true, "pushNotifications": true, "extendedAgentCard": true});
        let card = json!({"name": "a", "description": "b", "version": "1", "skills": [],
            "capabilities": all, "defaultInputModes": [], "defaultOutputModes": [],
            "supportedInterfaces": [interface]});
        let card = AgentCard::read(card.to_string().as_bytes()).expect("a card");
        let version = ProtocolVersion::parse(version).expect("a version");
        let mut builder = ClientBuilder::new().version(version);
        if let Some(name) = dialect {
            builder = builder.dialect(name);
        }
        let client = builder.connect_over(carried, card, None).expect("an interface");
        Ours { runtime: Arc::clone(&runtime), client, generation: variant.generation }
    }

    /// The request for a send's params in the form of 1.0.
    fn request(&self, params: &Value) -> SendRequest {
        let (message, configuration) = (&params["message"], &params["configuration"]);
        let canonical = Form::Canonical.message(message);
        let mut request = SendRequest::of(message_of(&canonical));
        if let Some(most) = configuration["historyLength"].as_u64() {
            request = request.history(most as u32);
        }
        let task = message["taskId"].as_str().map(str::to_owned);
        // Wire §5.4: clients of 0.1 name their tasks.
        let named = || (self.generation == V01).then(|| format!("client-{}", canonical.id));
        if let Some(id) = task.or_else(named) {
            request = request.task_id(&*id);
        }
        if let Some(id) = message["contextId"].as_str() {
            request = request.context_id(id);
        }
        if let Some(url) = configuration["taskPushNotificationConfig"]["url"].as_str() {
            request = request.push(PushConfigBuf::new(url));
        }
        if configuration["returnImmediately"] == true {
            request = request.return_immediately();
        }
        request
    }

    fn answer(&self, call: &Call) -> Result<Answer, ClientError> {
        let (client, params) = (&self.client, &call.params);
        let id = params["id"].as_str().unwrap_or_default();
        let mut key = TaskAddress::new(id);
        if let Some(context) = params["contextId"].as_str() {
            key = key.within(context);
        }
        let number = |key: &str| params[key].as_u64().map(|number| number as u32);
        let text = |key: &str| params[key].as_str().map(str::to_owned);
        let task = || params["taskId"].as_str().expect("the id of a task");
        self.runtime.block_on(async {
            match call.op {
                Op::Send => client.send(&self.request(params)).await,
                Op::Get => client.get_task(key, number("historyLength")).await,
                Op::Cancel => client.cancel_task(key, None).await,
                Op::List => {
                    let list = ListTasks {
                        context_id: text("contextId"),
                        status: params["status"].as_str().map(state),
                        page_size: number("pageSize"),
                        page_token: text("pageToken"),
                        history: number("historyLength"),
                        include_artifacts: params["includeArtifacts"] == true,
                        ..ListTasks::default()
                    };
                    client.list_tasks(&list).await
                }
                Op::PushSet => {
                    let mut config = PushConfigBuf::new(params["url"].as_str().expect("a URL"));
                    // 0.1 has no id for it, and 0.3 over HTTP+JSON requires one.
                    if self.generation != V01 {
                        config = config.id("hook");
                    }
                    client.set_push_config(&config.task_id(task())).await
                }
                Op::Stream | Op::Subscribe => panic!("{:?} has more than one answer", call.op),
                Op::ExtendedCard => panic!("a card is no answer about a task"),
                Op::PushGet => client.get_push_config(task(), params["id"].as_str()).await,
                Op::PushList => client.list_push_configs(task(), None, None).await,
                Op::PushDelete => client.delete_push_config(task(), id).await,
            }
        })
    }
}

impl Link for Ours {
    fn call(&mut self, call: &Call) -> Result<Value, Fault> {
        if call.op == Op::ExtendedCard {
            let card = self.runtime.block_on(self.client.extended_card());
            let card = card.map_err(|error| fault(&error))?;
            return Ok(serde_json::from_str(&card.to_v1_json()).expect("JSON"));
        }
        let answer = self.answer(call).map_err(|error| fault(&error))?;
        let mut json = Vec::new();
        answer.write_json(&mut json);
        Ok(serde_json::from_slice(&json).expect("JSON"))
    }

    fn open(&mut self, call: &Call) -> Result<Box<dyn Items>, Fault> {
        let (client, params) = (&self.client, &call.params);
        let stream = self.runtime.block_on(async {
            match call.op {
                Op::Stream => client.stream(&self.request(params)).await,
                Op::Subscribe => {
                    let id = params["id"].as_str().expect("an id");
                    client.subscribe(id, call.after.map(|(number, _)| number)).await
                }
                op => panic!("{op:?} is no stream"),
            }
        });
        let stream = stream.map_err(|error| fault(&error))?;
        Ok(Box::new(Events { runtime: Arc::clone(&self.runtime), stream }))
    }

    fn junk(&mut self, _: Junk) -> Option<Fault> {
        None
    }
}

impl Items for Events {
    fn next(&mut self) -> Item {
        match self.runtime.block_on(self.stream.next()) {
            None => Item::End,
            Some(Err(error)) => Item::Fault(fault(&error)),
            Some(Ok(event)) => {
                let mut json = Vec::new();
                assert!(event.write_json(&mut json), "a gap: {:?}", event.number());
                let value = serde_json::from_slice(&json).expect("JSON");
                Item::Event { seq: event.number(), value }
            }
        }
    }
}

fn fault(error: &ClientError) -> Fault {
    let fault = error.fault().unwrap_or_else(|| panic!("no fault of the server: {error:?}"));
    Fault {
        reason: fault.kind.map(|kind| kind.error_name().to_owned()),
        message: fault.message.clone(),
        ..Fault::default()
    }
}

fn binding_name(binding: Binding) -> &'static str {
    match binding {
        Binding::JsonRpc => "JSONRPC",
        Binding::Rest => "HTTP+JSON",
        Binding::Grpc => "GRPC",
        Binding::WebSocket => "https://a2a-protocol.org/bindings/websocket",
    }
}

fn version_name(generation: Gen) -> &'static str {
    match generation {
        V01 => "0.1",
        V03 => "0.3",
        V1 => "1.0",
    }
}

fn url(endpoint: &Endpoint, binding: Binding) -> String {
    let (scheme, addr) = (endpoint.scheme(), endpoint.addr);
    match binding {
        Binding::Rest | Binding::Grpc => format!("{scheme}://{addr}"),
        Binding::JsonRpc => format!("{scheme}://{addr}/"),
        Binding::WebSocket => format!("{}://{addr}/", scheme.replace("http", "ws")),
    }
}

fn state(name: &str) -> TaskState {
    let words = name.trim_start_matches("TASK_STATE_").replace('_', "").to_lowercase();
    let is_it = |state: &TaskState| format!("{state:?}").to_lowercase() == words;
    TaskState::ALL.into_iter().find(is_it).unwrap_or_else(|| panic!("no state {name}"))
}

fn message_of(message: &Message) -> MessageBuf {
    let mut parts = PartsBuf::new();
    for part in &message.parts {
        parts = parts.part(part_of(part).view());
    }
    let mut buf = MessageBuf::user(&parts).id(&*message.id);
    for id in &message.references {
        buf = buf.reference_task_id(&**id);
    }
    for uri in &message.extensions {
        buf = buf.extension(&**uri);
    }
    with_metadata(&message.metadata, buf, MessageBuf::metadata)
}

fn part_of(part: &Part) -> PartBuf {
    let mut buf = match &part.content {
        Content::Text(text) => PartBuf::text(&**text),
        Content::Raw(raw) => PartBuf::base64(raw).expect("base64"),
        Content::Url(url) => PartBuf::url(&**url),
        Content::Data(data) => {
            let json = data.to_string();
            PartBuf::data(peregrine::model::Json::parse(&json).expect("JSON"))
        }
    };
    if let Some(name) = &part.filename {
        buf = buf.filename(&**name);
    }
    if let Some(media_type) = &part.media_type {
        buf = buf.media_type(&**media_type);
    }
    with_metadata(&part.metadata, buf, PartBuf::metadata)
}

fn with_metadata<B>(metadata: &Value, buf: B, put: impl Fn(B, JsonObject<'_>) -> B) -> B {
    if metadata.is_null() {
        return buf;
    }
    let json = metadata.to_string();
    put(buf, JsonObject::parse(&json).expect("an object"))
}
