//! The client writes a call and reads its answer without allocations.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use peregrine::{
    client::{
        ClientBuilder, HttpRequest, HttpResponse, SendRequest, TraceParent, Transport,
        TransportError, card::AgentCard,
    },
    service::Now,
};

use super::{COUNTING, NOW, fewest_allocations};

const CARD: &[u8] = br#"{"name":"A","supportedInterfaces":[{"url":"http://agent.test",
    "protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}]}"#;
const ANSWER: &[u8] =
    br#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}"#;

/// Gives each request the same answer.
struct Alike;

/// The rest of the answer.
struct Saying(&'static [u8]);

impl HttpResponse for Saying {
    fn status(&self) -> u16 {
        200
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        (name == "content-type").then_some(b"application/json")
    }

    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        out: &mut Vec<u8>,
        _: usize,
    ) -> Poll<Result<bool, TransportError>> {
        let content = std::mem::take(&mut self.0);
        out.extend_from_slice(content);
        Poll::Ready(Ok(!content.is_empty()))
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>> {
        Poll::Ready(Ok(bytes.len()))
    }
}

impl Transport for Alike {
    type Response = Saying;

    async fn request(&self, _: HttpRequest<'_>) -> Result<Saying, TransportError> {
        Ok(Saying(ANSWER))
    }

    async fn sleep_until(&self, _: u64) {
        std::future::pending().await
    }

    fn now(&self) -> Now {
        NOW
    }

    fn random(&self) -> u128 {
        7
    }
}

#[test]
fn send_with_or_without_a_trace_allocates_nothing() {
    let _counting = COUNTING.lock();
    let card = AgentCard::read(CARD).unwrap();
    let client = ClientBuilder::new().connect_over(Alike, card, None).unwrap();
    let trace = TraceParent::parse("00-00000000000000000000000000000001-0000000000000001-00");
    let plain = SendRequest::text("hello");
    for request in [plain.clone().traceparent(trace.unwrap()), plain] {
        let send = || {
            let answer = pin!(client.send(&request));
            let sent = answer.poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(sent, Poll::Ready(Ok(_))));
        };
        (0..10).for_each(|_| send());
        assert_eq!(fewest_allocations(|| (0..100).for_each(|_| send())), 0);
    }
}
