//! What servers of the official SDKs send instead of a stream.

use std::{
    collections::VecDeque,
    sync::Mutex,
    task::{Context, Poll},
};

use peregrine::{
    client::{
        Client, ClientBuilder, ClientError, HttpRequest, HttpResponse, ProtocolVersion, Transport,
        TransportError, card::AgentCard,
    },
    fault::FaultKind,
    service::Now,
};

use crate::operations::run;

/// A response as it arrives: in one read, together with its end or a broken connection.
#[derive(Clone, Copy)]
struct Scripted {
    media: &'static str,
    body: &'static str,
    is_cut: bool,
}

/// Answers request after request from a script, and records their bodies.
struct Script {
    answers: Mutex<VecDeque<Scripted>>,
    bodies: Mutex<Vec<String>>,
}

struct ScriptedResponse(Scripted);

impl HttpResponse for ScriptedResponse {
    fn status(&self) -> u16 {
        200
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        (name == "content-type").then_some(self.0.media.as_bytes())
    }

    fn poll_read(
        &mut self,
        _cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        _room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        out.extend_from_slice(std::mem::take(&mut self.0.body).as_bytes());
        Poll::Ready(match self.0.is_cut {
            true => Err(TransportError::Closed { before_response: false }),
            false => Ok(false),
        })
    }

    fn poll_write(
        &mut self,
        _cx: &mut Context<'_>,
        _bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>> {
        Poll::Ready(Err(TransportError::Io("no upgrade here".to_owned())))
    }
}

impl Transport for Script {
    type Response = ScriptedResponse;

    async fn request(&self, request: HttpRequest<'_>) -> Result<ScriptedResponse, TransportError> {
        self.bodies.lock().unwrap().push(String::from_utf8_lossy(request.body).into_owned());
        let next = self.answers.lock().unwrap().pop_front();
        next.map(ScriptedResponse).ok_or_else(|| TransportError::Connect("no more".to_owned()))
    }

    async fn sleep_until(&self, _: u64) {}

    fn now(&self) -> Now {
        Now { mono_ms: 1_000, unix_ms: 1_790_000_000_000 }
    }

    fn random(&self) -> u128 {
        7
    }
}

fn client(script: &[Scripted]) -> Client<Script> {
    let card = br#"{"name":"scripted","url":"http://agent.test/","protocolVersion":"0.3.0",
        "preferredTransport":"JSONRPC","capabilities":{"streaming":true},"skills":[]}"#;
    let answers = Mutex::new(script.iter().copied().collect());
    let script = Script { answers, bodies: Mutex::default() };
    let builder = ClientBuilder::new().version(ProtocolVersion::V0_3);
    builder.connect_over(script, AgentCard::read(card).unwrap(), None).unwrap()
}

/// The events of a subscription: each event's state, `None` for a gap, or the error.
async fn subscribed(client: &Client<Script>) -> Result<Vec<String>, ClientError> {
    let mut stream = client.subscribe("t", None).await?;
    let mut states = Vec::new();
    while let Some(event) = stream.next().await {
        states.push(format!("{:?}", event?.state()));
    }
    Ok(states)
}

const EVENTS: &str = "text/event-stream; charset=utf-8";

#[test]
fn fault_event_before_stream_end_is_returned() {
    // The official Python and JavaScript SDKs of 0.3.
    for body in [
        concat!(
            r#"data: {"jsonrpc":"2.0","id":null,"error":{"code":-32004,"message":"ended"}}"#,
            "\r\n\r\n"
        ),
        concat!(
            "event: error\n",
            r#"data: {"jsonrpc":"2.0","id":null,"error":{"code":-32004,"message":""}}"#,
            "\n\n"
        ),
    ] {
        let client = client(&[Scripted { media: EVENTS, body, is_cut: false }]);
        let fault = run(subscribed(&client)).err().and_then(|error| error.fault_kind());
        assert_eq!(fault, Some(FaultKind::UnsupportedOperation), "{body}");
    }
}

#[test]
fn truncated_event_at_stream_end_is_ignored() {
    const TASK: &str = r#"{"jsonrpc":"2.0","id":"3","result":{"kind":"task","id":"t",
        "contextId":"c","status":{"state":"completed"}}}"#;
    let half = Scripted { media: EVENTS, body: "data: {\"jsonrpc\":\"2.0\",\"id", is_cut: false };
    let task = Scripted { media: "application/json", body: TASK, is_cut: false };
    let client = client(&[half, half, task]);
    assert_eq!(run(subscribed(&client)).unwrap(), ["None", "Some(Completed)"]);
}

#[test]
fn a_subscription_cut_before_its_first_event_reads_the_task() {
    const NOT_FOUND: &str =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Task not found"}}"#;
    let cut = Scripted { media: EVENTS, body: "", is_cut: true };
    let not_found = Scripted { media: "application/json", body: NOT_FOUND, is_cut: false };
    let client = client(&[cut, cut, not_found]);
    let fault = run(subscribed(&client)).err().and_then(|error| error.fault_kind());
    assert_eq!(fault, Some(FaultKind::TaskNotFound));
    let bodies = client.transport().bodies.lock().unwrap();
    let methods = ["tasks/resubscribe", "tasks/resubscribe", "tasks/get"];
    assert_eq!(bodies.len(), methods.len());
    for (body, method) in bodies.iter().zip(methods) {
        assert!(body.contains(method), "{method}: {body}");
    }
}
