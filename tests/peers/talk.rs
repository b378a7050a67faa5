//! Our client at a peer, and the results of its calls.

use std::{env, sync::OnceLock};

use peregrine::{
    client::{
        Answer, Binding, Client, ClientBuilder, ClientError, ClientErrorKind, ClientStream,
        ProtocolVersion, SendRequest, TransportError,
    },
    model::Generation,
    net::{HttpClient, HttpClientOptions},
};
use serde_json::Value;

use super::expected::{Outcome, Peer, Sdk};

pub const EXTENSION: &str = "https://example.com/extensions/echo";
pub const BINDINGS: [Binding; 3] = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];

/// A server, and the generation in which it is called.
pub struct Server {
    pub name: &'static str,
    pub variant: &'static str,
    pub sdk: Sdk,
    pub generation: Generation,
}

/// All servers, in each generation they support.
pub const SERVERS: [Server; 6] = [
    Server { name: "py1", variant: "plain", sdk: Sdk::Py1, generation: Generation::V1 },
    Server { name: "py1", variant: "compat", sdk: Sdk::Py1, generation: Generation::V03 },
    Server { name: "py03", variant: "plain", sdk: Sdk::Py03, generation: Generation::V03 },
    Server { name: "js1", variant: "plain", sdk: Sdk::Js1, generation: Generation::V1 },
    Server { name: "js1", variant: "compat", sdk: Sdk::Js1, generation: Generation::V03 },
    Server { name: "js03", variant: "plain", sdk: Sdk::Js03, generation: Generation::V03 },
];

/// The servers of two SDKs in Rust, which run only if `PEERS_RUST` is set.
const RUST_SERVERS: [Server; 2] = [
    Server {
        name: "rust",
        variant: "official",
        sdk: Sdk::RustOfficial,
        generation: Generation::V1,
    },
    Server {
        name: "rust",
        variant: "protocol",
        sdk: Sdk::RustProtocol,
        generation: Generation::V1,
    },
];

/// All servers that run.
pub fn running() -> impl Iterator<Item = &'static Server> {
    let rust: &[Server] = if peers().get("rust").is_some() { &RUST_SERVERS } else { &[] };
    SERVERS.iter().chain(rust)
}

/// The URLs of the servers, from `PEERS`, which `run.sh` sets.
fn peers() -> &'static Value {
    static PEERS: OnceLock<Value> = OnceLock::new();
    PEERS.get_or_init(|| {
        let peers = env::var("PEERS").expect("PEERS is set by tests/peers/run.sh");
        serde_json::from_str(&peers).expect("PEERS is JSON")
    })
}

/// The URL of a variant of a server.
pub fn url_of(name: &str, variant: &str) -> String {
    let url = peers()[name][variant].as_str();
    url.unwrap_or_else(|| panic!("no {name} {variant}")).to_owned()
}

pub fn version_of(generation: Generation) -> ProtocolVersion {
    match generation {
        Generation::V01 => ProtocolVersion::V0_1,
        Generation::V03 => ProtocolVersion::V0_3,
        Generation::V1 => ProtocolVersion::V1_0,
    }
}

/// A client for one version over one binding, with the extension.
pub fn builder(generation: Generation, binding: Binding) -> ClientBuilder {
    ClientBuilder::new().version(version_of(generation)).transports([binding]).extension(EXTENSION)
}

/// Over sockets of its own.
pub fn http_client() -> HttpClient {
    HttpClient::new(HttpClientOptions::default()).unwrap()
}

pub async fn discover(builder: ClientBuilder, url: &str) -> Result<Talk, ClientError> {
    builder.discover(url).await
}

pub type Talk = Client<HttpClient>;

/// Runs a case at each of [`SERVERS`] over each binding, all in parallel, and reports all failures.
pub fn at_each<C, F>(case: C)
where
    C: Fn(Peer, Talk) -> F,
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    at_each_of(SERVERS.iter().collect(), case);
}

/// Runs a case at each of these servers.
pub fn at_each_of<C, F>(servers: Vec<&'static Server>, case: C)
where
    C: Fn(Peer, Talk) -> F,
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (wrong, count) = runtime.block_on(async {
        let mut running = Vec::new();
        for server in &servers {
            for binding in BINDINGS {
                let Server { name, variant, sdk, generation } = **server;
                let peer = Peer { sdk, generation, binding };
                let label = format!("{name} {variant} {binding:?}");
                let client = discover(builder(generation, binding), &url_of(name, variant)).await;
                let client = client.unwrap_or_else(|error| panic!("{label}: {error:?}"));
                let chosen = client.interface();
                assert_eq!(chosen.binding, binding, "{label}");
                assert_eq!(chosen.generation, generation, "{label}");
                running.push((label, tokio::spawn(case(peer, client))));
            }
        }
        let (mut wrong, mut count) = (Vec::new(), 0);
        for (label, case) in running {
            count += 1;
            match case.await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => wrong.push(format!("{label}: {why}")),
                Err(panic) => wrong.push(format!("{label}: {panic}")),
            }
        }
        (wrong, count)
    });
    assert_eq!(count, servers.len() * BINDINGS.len());
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n\n"));
}

impl Outcome {
    /// The result of a call with one answer.
    pub fn of(answered: Result<Answer, ClientError>) -> Outcome {
        let mut outcome = Outcome { is_live: true, ..Outcome::default() };
        match answered {
            Ok(answer) => {
                let mut json = Vec::new();
                answer.write_json(&mut json);
                outcome.items.push(serde_json::from_slice(&json).unwrap());
            }
            Err(error) => outcome.fail(error),
        }
        outcome
    }

    /// The result of a stream, gaps as `{"gap": …}`.
    pub async fn of_stream(opened: Result<ClientStream<HttpClient>, ClientError>) -> Outcome {
        let mut outcome = Outcome { is_live: true, ..Outcome::default() };
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(error) => {
                outcome.fail(error);
                return outcome;
            }
        };
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    let mut json = Vec::new();
                    let item = match event.write_json(&mut json) {
                        true => serde_json::from_slice(&json).unwrap(),
                        false => serde_json::json!({"gap": true}),
                    };
                    outcome.items.push(item);
                }
                Err(error) => outcome.fail(error),
            }
        }
        outcome
    }

    fn fail(&mut self, error: ClientError) {
        self.is_cut = matches!(
            error.kind,
            ClientErrorKind::Transport(
                TransportError::Closed { .. } | TransportError::Malformed(_)
            )
        );
        match error.kind.clone() {
            ClientErrorKind::Fault(fault) => self.fault = Some(*fault),
            _ => self.error = Some(format!("{error:?}")),
        }
    }
}

/// The ids of the task in an answer.
pub fn ids_of(outcome: &Outcome) -> Result<(String, String), String> {
    let task = outcome.items.first().map(|item| item.get("task").unwrap_or(item));
    let text = |key: &str| task.and_then(|task| task[key].as_str()).map(str::to_owned);
    text("id").zip(text("contextId")).ok_or_else(|| format!("no task: {outcome:?}"))
}

/// Sends a message and returns the ids of its task.
pub async fn begin(client: &Talk, words: &str, at_once: bool) -> Result<(String, String), String> {
    let mut request = SendRequest::text(words);
    if at_once {
        request = request.return_immediately();
    }
    ids_of(&Outcome::of(client.send(&request).await))
}
