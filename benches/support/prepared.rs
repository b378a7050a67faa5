//! A transport with prepared answers: the client's own work on a call, without a socket and without
//! a runtime. The client's codec writes and reads the heads, as over sockets.

use std::{
    future::{Future, ready},
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use peregrine::{
    client::{
        Client, ClientBuilder, ClientLimits, HttpRequest, HttpResponse, Transport, TransportError,
        card::AgentCard,
        http1::{Http1Connection, Http1Event, RequestHead, ResponseBuf},
    },
    service::Now,
};

/// The placeholder of the call's id in an answer.
pub const ID: &str = "{id}";

/// Buffers that one call passes to the next.
#[derive(Default)]
struct Exchange {
    http1: Http1Connection,
    request_head: RequestHead,
    response: ResponseBuf,
    output: Vec<u8>,
    /// The answer, and how much of it was read.
    input: Vec<u8>,
    read: usize,
}

/// An answer, and the positions of the call's id, which has this many digits.
#[derive(Default)]
struct Answer {
    media: &'static str,
    body: String,
    digits: usize,
    bytes: Vec<u8>,
    ids_at: Vec<usize>,
}

#[derive(Default)]
struct Shared {
    exchange: Mutex<Option<Box<Exchange>>>,
    answer: Mutex<Answer>,
    limits: ClientLimits,
}

/// A server that answers every request with the same content.
#[derive(Clone, Default)]
pub struct Prepared(Arc<Shared>);

pub struct PreparedResponse(Option<Box<Exchange>>, Prepared);

impl Prepared {
    /// Sets the answer to later requests, with [`ID`] in place of the id.
    pub fn answer(&self, media: &'static str, body: &str) {
        let answer = Answer { media, body: body.to_owned(), ..Answer::default() };
        *self.0.answer.lock().unwrap() = answer;
    }
}

impl Answer {
    /// The answer to a request: its id is the first number in quotes, as the client writes it.
    fn to(&mut self, request: &[u8]) -> &[u8] {
        const BEFORE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":\"";
        let rest = request.strip_prefix(BEFORE).unwrap_or_default();
        let id = &rest[..rest.iter().take_while(|byte| byte.is_ascii_digit()).count()];
        if self.bytes.is_empty() || id.len() != self.digits {
            let (media, body) = (self.media, self.body.replace(ID, &"0".repeat(id.len())));
            self.bytes = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nDate: Tue, 24 Nov 2026 04:00:00 \
                 GMT\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .into_bytes();
            let head_len = self.bytes.len() - body.len();
            self.digits = id.len();
            let id_positions = self.body.match_indices(ID).enumerate();
            // Each earlier id made the body longer or shorter.
            let at = |(before, (at, _)): (usize, (usize, &str))| {
                head_len + at - before * ID.len() + before * id.len()
            };
            self.ids_at = id_positions.map(at).collect();
        }
        for at in &self.ids_at {
            self.bytes[*at..*at + id.len()].copy_from_slice(id);
        }
        &self.bytes
    }
}

impl Exchange {
    fn advance(&mut self, out: &mut Vec<u8>, room: usize, limits: &ClientLimits) -> Http1Event {
        let (input, limits) = (&self.input[self.read..], limits.of_response());
        let step = self.http1.advance(input, &mut self.response, out, room, &limits).unwrap();
        self.read += step.consumed;
        step.event
    }
}

impl Transport for Prepared {
    type Response = PreparedResponse;

    fn request(
        &self,
        request: HttpRequest<'_>,
    ) -> impl Future<Output = Result<PreparedResponse, TransportError>> + Send {
        let mut exchange = self.0.exchange.lock().unwrap().take().unwrap_or_default();
        let Exchange { http1, request_head, output, input, read, .. } = &mut *exchange;
        output.clear();
        http1.begin(&request, false, request_head, output).unwrap();
        output.extend_from_slice(request.body);
        http1.sent();
        input.clear();
        input.extend_from_slice(self.0.answer.lock().unwrap().to(request.body));
        *read = 0;
        let event = exchange.advance(&mut Vec::new(), 0, &self.0.limits);
        assert_eq!(event, Http1Event::Head);
        ready(Ok(PreparedResponse(Some(exchange), self.clone())))
    }

    fn sleep_until(&self, _due_ms: u64) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    fn now(&self) -> Now {
        Now { mono_ms: 1, unix_ms: 1_790_000_000_000 }
    }

    fn random(&self) -> u128 {
        0x2360_ed05_1fc6_4da4_8385_df64_9fcc_f645
    }
}

impl PreparedResponse {
    fn exchange(&self) -> &Exchange {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for PreparedResponse {
    fn drop(&mut self) {
        *self.1.0.exchange.lock().unwrap() = self.0.take();
    }
}

impl HttpResponse for PreparedResponse {
    fn status(&self) -> u16 {
        self.exchange().response.head().status()
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.exchange().response.field(name)
    }

    fn poll_read(
        &mut self,
        _cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        let exchange = self.0.as_mut().expect("it is there until it is dropped");
        let event = exchange.advance(out, room, &self.1.0.limits);
        Poll::Ready(Ok(!matches!(event, Http1Event::End { .. })))
    }

    fn poll_write(
        &mut self,
        _cx: &mut Context<'_>,
        _bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>> {
        unreachable!("nothing is upgraded")
    }
}

/// The result of a future that never waits.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits")
    };
    done
}

/// A client of an agent with this card.
pub fn client(transport: &Prepared, card: &str) -> Client<Prepared> {
    let card = AgentCard::read(card.as_bytes()).unwrap();
    ClientBuilder::new().connect_over(transport.clone(), card, None).unwrap()
}
