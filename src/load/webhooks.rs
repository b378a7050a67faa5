//! A receiver of webhooks for one worker. It accepts every post and reports the last post of each
//! task.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    net::SocketAddr,
    rc::Rc,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use crate::model::{PushConfigBuf, RawText, TaskState};

/// Maximum bytes of the head of a post.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a post.
const BODY_BYTES_MAX: usize = 64 << 20;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const NO_LENGTH: &[u8] =
    b"HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A receiver of webhooks.
pub struct WebhookReceiver {
    url: String,
    next: Cell<u64>,
    awaited: Rc<Awaited>,
}

/// The tasks that wait for their last webhook, by the number in the URL of the webhook.
type Awaited = RefCell<HashMap<u64, Rc<PostSlot>>>;

/// The slot for the last webhook of a task.
#[derive(Default)]
struct PostSlot {
    arrived: Notify,
    json: RefCell<Vec<u8>>,
}

/// A task that waits for its last webhook.
pub(super) struct AwaitedWebhook {
    url: String,
    number: u64,
    slot: Rc<PostSlot>,
    awaited: Rc<Awaited>,
}

/// A webhook that reports the end of a task.
pub(super) struct LastWebhook {
    json: Vec<u8>,
}

impl WebhookReceiver {
    /// Listens on a local address. `url`: the URL by which the server reaches the receiver; `None`:
    /// the local address. [`WebhookReceiver::serve`] serves the connections.
    ///
    /// # Errors
    /// The address is not available.
    pub async fn bind(
        listen: SocketAddr,
        url: Option<&str>,
    ) -> io::Result<(WebhookReceiver, TcpListener)> {
        let listener = TcpListener::bind(listen).await?;
        let own = format!("http://{}", listener.local_addr()?);
        let url = url.unwrap_or(&own).trim_end_matches('/').to_owned();
        let receiver = WebhookReceiver { url, next: Cell::new(0), awaited: Rc::default() };
        Ok((receiver, listener))
    }

    /// Accepts posts until the future is dropped.
    pub async fn serve(&self, listener: TcpListener) {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            let awaited = Rc::clone(&self.awaited);
                            tokio::task::spawn_local(async move {
                                // The server reconnects after a broken connection.
                                let _ = take_posts(stream, &awaited).await;
                            });
                        }
                        // If no descriptor is free, other connections must end first.
                        Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
                    }
                }
            })
            .await;
    }

    /// Starts to wait for the webhooks of a task.
    pub(super) fn expect(&self) -> AwaitedWebhook {
        let number = self.next.get();
        self.next.set(number + 1);
        let (slot, awaited) = (Rc::<PostSlot>::default(), Rc::clone(&self.awaited));
        awaited.borrow_mut().insert(number, Rc::clone(&slot));
        let url = format!("{}/{number}", self.url);
        AwaitedWebhook { url, number, slot, awaited }
    }
}

impl AwaitedWebhook {
    /// The push configuration for the server.
    pub fn config(&self) -> PushConfigBuf {
        PushConfigBuf::new(self.url.as_str())
    }

    /// Waits for the webhook that reports the end of the task.
    pub async fn arrival(&self) -> LastWebhook {
        self.slot.arrived.notified().await;
        LastWebhook { json: self.slot.json.take() }
    }
}

impl LastWebhook {
    /// Whether the webhook is about this task: its JSON has the id as a string.
    pub fn names(&self, task_id: RawText<'_>) -> bool {
        let quoted = [b"\"", task_id.raw(), b"\""].concat();
        memchr::memmem::find(&self.json, &quoted).is_some()
    }
}

impl Drop for AwaitedWebhook {
    fn drop(&mut self) {
        self.awaited.borrow_mut().remove(&self.number);
    }
}

/// Reads the posts of one connection and answers each.
async fn take_posts(mut stream: TcpStream, awaited: &Awaited) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::new();
    loop {
        let (head_bytes, post) = loop {
            match post_head(&bytes) {
                Some(found) => break found,
                None if bytes.len() > HEAD_BYTES_MAX => return Ok(()),
                None if stream.read_buf(&mut bytes).await? == 0 => return Ok(()),
                None => {}
            }
        };
        let Some(length) = post.length.filter(|length| *length <= BODY_BYTES_MAX) else {
            return stream.write_all(NO_LENGTH).await;
        };
        while bytes.len() < head_bytes + length {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        }
        let json = &bytes[head_bytes..head_bytes + length];
        if is_end(json)
            && let Some(slot) = post.number.and_then(|number| awaited.borrow_mut().remove(&number))
        {
            slot.json.borrow_mut().extend_from_slice(json);
            slot.arrived.notify_one();
        }
        stream.write_all(OK).await?;
        bytes.drain(..head_bytes + length);
    }
}

/// The relevant parts of a post's head.
struct PostHead {
    number: Option<u64>,
    length: Option<usize>,
}

/// The parsed head at the beginning of `bytes`, and its length, if the head is complete.
fn post_head(bytes: &[u8]) -> Option<(usize, PostHead)> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    let head_bytes = match request.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) => return None,
        // An invalid request has no length, and is rejected for this reason.
        Err(_) => return Some((0, PostHead { number: None, length: None })),
    };
    let number = request.path.and_then(|path| path.rsplit('/').next()?.parse().ok());
    let mut fields = request.headers.iter();
    let length = fields.find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
    Some((head_bytes, PostHead { number, length }))
}

/// Whether a webhook reports the end of its task: a state in its JSON is terminal, in any wire
/// format.
fn is_end(json: &[u8]) -> bool {
    const KEY: &[u8] = b"\"state\"";
    let mut rest = json;
    while let Some(at) = memchr::memmem::find(rest, KEY) {
        rest = &rest[at + KEY.len()..];
        let value = rest.trim_ascii_start().strip_prefix(b":").unwrap_or_default();
        let word = value.trim_ascii_start().strip_prefix(b"\"").unwrap_or_default();
        let end = memchr::memchr(b'"', word).unwrap_or_default();
        let word = String::from_utf8_lossy(&word[..end]).to_ascii_lowercase();
        let word = word.trim_start_matches("task_state_").replace('_', "-");
        let mut states = TaskState::ALL.into_iter();
        if states.any(|state| state.is_terminal() && state.word() == word) {
            return true;
        }
    }
    false
}
