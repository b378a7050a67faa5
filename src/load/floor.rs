//! A server that does the least work an answer needs. A run against this server measures the limit
//! of the machine; with known delays, the server measures the errors of the generator.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Instant,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::{LoadClock, SystemClock};

/// Maximum bytes of a request.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Returns the time of the answer to a request from the time of its arrival, both in nanoseconds
/// since the server's start.
pub type AnswerDelay = fn(u64) -> u64;

/// An HTTP/1.1 server that answers each `SendMessage` with a completed task and each `GetTask` with
/// the requested task, in answers of one size.
pub struct FloorServer {
    listener: TcpListener,
    answer_bytes: usize,
    delay: Option<AnswerDelay>,
    start: Instant,
}

/// The waiting answers by time and unique number, the next answer first.
#[derive(Default)]
struct DelayedAnswers {
    waiting: RefCell<BTreeMap<(u64, u64), Rc<Notify>>>,
    count: Cell<u64>,
    changed: Notify,
}

impl FloorServer {
    /// Listens on a free loopback port. `answer_bytes`: the minimum content of each answer. Times
    /// of `delay` are relative to `start`.
    ///
    /// # Errors
    /// No port is free.
    pub async fn bind(
        answer_bytes: usize,
        delay: Option<AnswerDelay>,
        start: Instant,
    ) -> io::Result<FloorServer> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        Ok(FloorServer { listener, answer_bytes, delay, start })
    }

    /// The address of the server.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The card of a server at this address.
    pub fn card(addr: SocketAddr) -> String {
        let interface = serde_json::json!({
            "url": format!("http://{addr}/"),
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        });
        let modes = ["text/plain"];
        let card = serde_json::json!({
            "name": "floor", "description": "Answers with the least work possible",
            "version": "1", "supportedInterfaces": [interface], "capabilities": {},
            "defaultInputModes": modes, "defaultOutputModes": modes, "skills": [],
        });
        card.to_string()
    }

    /// Serves until the future is dropped, in a runtime with one thread.
    ///
    /// # Errors
    /// The system cannot create a timer.
    pub async fn serve(self) -> io::Result<()> {
        let clock = SystemClock::new(self.start)?;
        let delayed = Rc::new(DelayedAnswers::default());
        let card = Rc::from(FloorServer::card(self.addr()?));
        let tasks = tokio::task::LocalSet::new();
        let timer = Rc::clone(&delayed);
        tasks.spawn_local(async move { timer.release(&clock).await });
        tasks
            .run_until(async {
                loop {
                    let (stream, _) = self.listener.accept().await?;
                    let connection = FloorConnection {
                        stream,
                        card: Rc::clone(&card),
                        answer_bytes: self.answer_bytes,
                        delay: self.delay,
                        start: self.start,
                        delayed: Rc::clone(&delayed),
                    };
                    tokio::task::spawn_local(async move {
                        // The client handles a broken connection.
                        let _ = connection.serve().await;
                    });
                }
            })
            .await
    }
}

impl DelayedAnswers {
    /// Sends answers at their times.
    async fn release(&self, clock: &SystemClock) {
        loop {
            let next_ns = self.waiting.borrow().keys().next().map(|(due_ns, _)| *due_ns);
            match next_ns {
                None => self.changed.notified().await,
                Some(due_ns) if due_ns <= clock.now_ns() => {
                    if let Some((_, ready)) = self.waiting.borrow_mut().pop_first() {
                        ready.notify_one();
                    }
                }
                Some(due_ns) => {
                    let (mut slept, mut changed) =
                        (pin!(clock.sleep_until(due_ns)), pin!(self.changed.notified()));
                    poll_fn(|cx| match slept.as_mut().poll(cx) {
                        Poll::Ready(()) => Poll::Ready(()),
                        Poll::Pending => changed.as_mut().poll(cx),
                    })
                    .await;
                }
            }
        }
    }
}

struct FloorConnection {
    stream: TcpStream,
    card: Rc<str>,
    answer_bytes: usize,
    delay: Option<AnswerDelay>,
    start: Instant,
    delayed: Rc<DelayedAnswers>,
}

impl FloorConnection {
    async fn serve(mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let (mut input, mut output) = (Vec::new(), Vec::new());
        loop {
            let Some(request_bytes) = whole_request(&input) else {
                if input.len() > REQUEST_BYTES_MAX || self.stream.read_buf(&mut input).await? == 0 {
                    return Ok(());
                }
                continue;
            };
            self.wait().await;
            output.clear();
            self.answer(&input[..request_bytes], &mut output);
            self.stream.write_all(&output).await?;
            input.drain(..request_bytes);
        }
    }

    /// Waits until the time of the answer to the current request.
    async fn wait(&self) {
        let Some(delay) = self.delay else { return };
        let due_ns = delay(self.start.elapsed().as_nanos() as u64);
        let ready = Rc::new(Notify::new());
        let number = self.delayed.count.replace(self.delayed.count.get() + 1);
        self.delayed.waiting.borrow_mut().insert((due_ns, number), Rc::clone(&ready));
        self.delayed.changed.notify_one();
        ready.notified().await;
    }

    fn answer(&self, request: &[u8], out: &mut Vec<u8>) {
        let body = if request.starts_with(b"GET") {
            self.card.as_bytes().to_vec()
        } else {
            result(request, self.answer_bytes)
        };
        out.extend_from_slice(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ",
        );
        out.extend_from_slice(body.len().to_string().as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&body);
    }
}

/// The answer to a call, padded to `bytes` bytes.
fn result(request: &[u8], bytes: usize) -> Vec<u8> {
    let rpc_id = member(request, b"\"id\":\"").unwrap_or(b"0");
    let is_get = memchr::memmem::find(request, b"\"GetTask\"").is_some();
    let params = memchr::memmem::find(request, b"\"params\"").unwrap_or_default();
    let task_id = if is_get { member(&request[params..], b"\"id\":\"") } else { None };
    let mut out = Vec::with_capacity(bytes + 64);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":\"");
    out.extend_from_slice(rpc_id);
    out.extend_from_slice(if is_get { b"\",\"result\":{" } else { b"\",\"result\":{\"task\":{" });
    out.extend_from_slice(b"\"id\":\"");
    out.extend_from_slice(task_id.unwrap_or(b"floor"));
    out.extend_from_slice(
        b"\",\"contextId\":\"floor\",\"status\":{\"state\":\"TASK_STATE_COMPLETED\"},\
          \"artifacts\":[{\"artifactId\":\"floor\",\"parts\":[{\"text\":\"",
    );
    let end: &[u8] = if is_get { b"\"}]}]}}" } else { b"\"}]}]}}}" };
    let fill = bytes.saturating_sub(out.len() + end.len()).max(1);
    out.resize(out.len() + fill, b'x');
    out.extend_from_slice(end);
    out
}

/// The text after a key, up to the next quotation mark.
fn member<'r>(request: &'r [u8], key: &[u8]) -> Option<&'r [u8]> {
    let at = memchr::memmem::find(request, key)? + key.len();
    let end = memchr::memchr(b'"', &request[at..])?;
    Some(&request[at..at + end])
}

/// The length of the first request in `bytes`, if the request is complete.
fn whole_request(bytes: &[u8]) -> Option<usize> {
    let head = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
    let length = memchr::memmem::find(&bytes[..head], b"Content-Length: ").map_or(0, |at| {
        let digits = bytes[at + 16..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_usize, |sum, byte| {
            sum.saturating_mul(10).saturating_add(usize::from(byte - b'0'))
        })
    });
    let whole = head.saturating_add(length);
    (bytes.len() >= whole).then_some(whole)
}
