//! Watches the bytes of a connection of HTTP/2 on their way to h2.
//!
//! Invariant: h2 answers PING and SETTINGS and skips unknown frames without a limit, so frames
//! without content are counted, with the same allowance as for clients of our server. A server that
//! supports only HTTP/1.1 answers in HTTP/1.1, which h2 would report as broken frames.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use crate::{
    client::TransportError,
    net::{
        client::{due::ClientClock, link::Link},
        http2::flood::{Allowance, FrameKind, Frames, GRANT},
    },
};

/// Frames without content that a server may send in a burst: 10,000. Calls and time restore the
/// allowance as in our server (`http2_control_frames_max`).
const CONTROL_FRAMES_MAX: u64 = 10_000;

/// The beginning of a status line of HTTP/1.x.
const HTTP1: &[u8; 7] = b"HTTP/1.";

/// The observations on a connection.
#[derive(Default)]
pub(super) struct LinkSeen {
    is_http1: AtomicBool,
    is_flooded: AtomicBool,
    /// How often bytes were received.
    reads: AtomicU64,
}

impl LinkSeen {
    /// Records received bytes.
    pub(super) fn note_read(&self, bytes: &[u8]) {
        self.reads.fetch_add(u64::from(!bytes.is_empty()), Relaxed);
    }
}

/// Shared by the users of a connection: its sender in the slot, and every request until its
/// response is dropped. The link itself is not a user, so the number of references shows the
/// requests.
pub(crate) struct Http2Mark {
    seen: Arc<LinkSeen>,
    is_over: AtomicBool,
    /// Dropped with the last user, which notifies the driver of the connection.
    _used: oneshot::Sender<Infallible>,
}

impl Http2Mark {
    /// A mark, the observations of the link, and a receiver that ends with the last user.
    pub(super) fn new() -> (Arc<Http2Mark>, Arc<LinkSeen>, oneshot::Receiver<Infallible>) {
        let (seen, (used, unused)) = (Arc::<LinkSeen>::default(), oneshot::channel());
        let (link_seen, is_over) = (Arc::clone(&seen), AtomicBool::new(false));
        (Arc::new(Http2Mark { seen, is_over, _used: used }), link_seen, unused)
    }

    /// The observed cause of the connection's failure.
    pub(super) fn cause(&self) -> Option<TransportError> {
        if self.seen.is_http1.load(Relaxed) {
            return Some(TransportError::NoHttp2);
        }
        const FLOOD: &str = "the server sends too many empty frames";
        self.seen.is_flooded.load(Relaxed).then(|| TransportError::Http2(FLOOD.to_owned()))
    }

    /// How often bytes were received so far.
    pub(super) fn reads(&self) -> u64 {
        self.seen.reads.load(Relaxed)
    }

    /// Records the timeout of a request that started at the count `reads`. If nothing was received
    /// since then, the connection accepts no new requests; returns whether it accepts none.
    pub(super) fn waited(&self, reads: u64) -> bool {
        if self.reads() == reads {
            self.is_over.store(true, Relaxed);
        }
        self.is_over()
    }

    /// True: the connection accepts no more requests.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

/// A connection that is watched.
pub(super) struct WatchedLink {
    link: Link,
    seen: Arc<LinkSeen>,
    clock: ClientClock,
    allowance: Allowance,
    received: Frames,
    sent: Frames,
    /// Received bytes that match the beginning of HTTP/1.x.
    alike: usize,
}

impl WatchedLink {
    /// Watches a link that is unused so far.
    pub(super) fn new(link: Link, seen: Arc<LinkSeen>, clock: ClientClock) -> WatchedLink {
        let allowance = Allowance::new(CONTROL_FRAMES_MAX, clock.now_ms());
        let (received, sent) = (Frames::of_server(), Frames::new());
        WatchedLink { link, seen, clock, allowance, received, sent, alike: 0 }
    }

    fn watch(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.seen.note_read(bytes);
        let rest = HTTP1.get(self.alike..).unwrap_or_default();
        let same = bytes.iter().zip(rest).take_while(|(byte, wanted)| byte == wanted).count();
        // Only the first bytes are compared; a mismatch ends the comparison.
        self.alike =
            if same == bytes.len().min(rest.len()) { self.alike + same } else { HTTP1.len() };
        if !rest.is_empty() && same == rest.len() {
            self.seen.is_http1.store(true, Relaxed);
        }
        let (allowance, now_ms) = (&mut self.allowance, self.clock.now_ms());
        let mut is_flooded = false;
        self.received.scan(bytes, |frame| match frame {
            FrameKind::Data => {}
            FrameKind::Headers | FrameKind::Control => is_flooded |= !allowance.spend(now_ms),
        });
        if is_flooded {
            self.seen.is_flooded.store(true, Relaxed);
            return Err(io::Error::other("a flood of frames"));
        }
        Ok(())
    }

    fn note_sent(&mut self, bytes: &[u8]) {
        let allowance = &mut self.allowance;
        self.sent.scan(bytes, |frame| match frame {
            FrameKind::Headers | FrameKind::Data => allowance.grant(GRANT),
            FrameKind::Control => {}
        });
    }
}

impl AsyncRead for WatchedLink {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let link = self.get_mut();
        let before = room.filled().len();
        ready!(Pin::new(&mut link.link).poll_read(cx, room))?;
        Poll::Ready(link.watch(room.filled().get(before..).unwrap_or_default()))
    }
}

impl AsyncWrite for WatchedLink {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let link = self.get_mut();
        let count = ready!(Pin::new(&mut link.link).poll_write(cx, bytes))?;
        link.note_sent(bytes.get(..count).unwrap_or_default());
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let link = self.get_mut();
        let count = ready!(Pin::new(&mut link.link).poll_write_vectored(cx, pieces))?;
        let mut remaining = count;
        for piece in pieces {
            let some = piece.len().min(remaining);
            link.note_sent(piece.get(..some).unwrap_or_default());
            remaining -= some;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.link.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().link).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().link).poll_shutdown(cx)
    }
}
