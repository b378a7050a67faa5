//! Sessions that wait for the next call, up to a time limit.
//!
//! Invariant: old sessions are closed by the next call, or by the one periodic check of all
//! sessions; the check ends when no session remains, and does not keep sessions alive. The server
//! gets a close frame if this needs no waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    super::{HttpResponse, Transport, client::SharedClient},
    WsSession,
};

/// Maximum number of idle sessions.
const IDLE_MAX: usize = 32;

/// Idle sessions. Dropping this closes them.
pub(in crate::client) struct IdleSessions<R: HttpResponse>(Mutex<WaitingSessions<R>>);

struct WaitingSessions<R> {
    /// The session with the shortest idle time comes last.
    sessions: Vec<WsSession<R>>,
    /// True: old sessions are closed without a call, if the transport supports that.
    is_watched: bool,
}

impl<R: HttpResponse> Default for IdleSessions<R> {
    fn default() -> IdleSessions<R> {
        IdleSessions(Mutex::new(WaitingSessions { sessions: Vec::new(), is_watched: false }))
    }
}

impl<R: HttpResponse> IdleSessions<R> {
    fn waiting(&self) -> MutexGuard<'_, WaitingSessions<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the session with the shortest idle time. Closes sessions that were idle for `idle_ms`.
    pub(super) fn take(&self, now_ms: u64, idle_ms: u64) -> Option<WsSession<R>> {
        let mut waiting = self.waiting();
        waiting.close_old(now_ms, idle_ms);
        waiting.sessions.pop()
    }

    /// Stores a session after its call; true: the caller must call `close_old` periodically, until
    /// it returns false.
    pub(super) fn give(&self, mut session: WsSession<R>, now_ms: u64, idle_ms: u64) -> bool {
        (session.input, session.at) = (Vec::new(), 0);
        session.out = Vec::new();
        session.idle_since_ms = now_ms;
        let mut waiting = self.waiting();
        waiting.close_old(now_ms, idle_ms);
        if waiting.sessions.len() < IDLE_MAX {
            waiting.sessions.push(session);
        } else {
            session.close();
        }
        !std::mem::replace(&mut waiting.is_watched, true)
    }

    /// Closes sessions that were idle for `idle_ms`; false: none remains.
    fn close_old(&self, now_ms: u64, idle_ms: u64) -> bool {
        let mut waiting = self.waiting();
        waiting.close_old(now_ms, idle_ms);
        waiting.is_watched = !waiting.sessions.is_empty();
        waiting.is_watched
    }
}

impl<R: HttpResponse> WaitingSessions<R> {
    fn close_old(&mut self, now_ms: u64, idle_ms: u64) {
        self.sessions.retain_mut(|session| {
            let is_young = now_ms.saturating_sub(session.idle_since_ms) < idle_ms;
            if !is_young {
                session.close();
            }
            is_young
        });
    }
}

impl<R: HttpResponse> Drop for IdleSessions<R> {
    fn drop(&mut self) {
        self.waiting().sessions.iter_mut().for_each(WsSession::close);
    }
}

impl<T: Transport> SharedClient<T> {
    /// Starts closing old sessions periodically. The drop of a client closes all of them.
    #[cold]
    pub(super) fn watch_sessions(&self, idle_ms: u64) {
        let sessions = Arc::downgrade(&self.sessions);
        let tick = move |now_ms| {
            sessions.upgrade().is_some_and(|sessions| sessions.close_old(now_ms, idle_ms))
        };
        self.transport.every((idle_ms / 4).clamp(10, 60_000), Box::new(tick));
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use super::{
        super::{FieldLinesBuf, Reader, TransportError, WsOpening},
        *,
    };

    /// A response with this number, which accepts all bytes.
    struct Numbered(u64);

    impl HttpResponse for Numbered {
        fn status(&self) -> u16 {
            101
        }

        fn field(&self, _: &str) -> Option<&[u8]> {
            None
        }

        fn poll_read(
            &mut self,
            _: &mut Context<'_>,
            _: &mut Vec<u8>,
            _: usize,
        ) -> Poll<Result<bool, TransportError>> {
            Poll::Pending
        }

        fn poll_write(
            &mut self,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<Result<usize, TransportError>> {
            Poll::Ready(Ok(bytes.len()))
        }
    }

    fn session(number: u64) -> WsSession<Numbered> {
        let opened = WsOpening { target: String::new(), fields: FieldLinesBuf::default() };
        WsSession {
            response: Numbered(number),
            reader: Reader::default(),
            input: Vec::new(),
            at: 0,
            out: Vec::new(),
            sent: 0,
            silent_ms: None,
            opened,
            close_key: [0; 4],
            idle_since_ms: 0,
        }
    }

    #[test]
    fn idle_sessions_are_limited_in_number_and_time() {
        let idle = IdleSessions::default();
        for number in 0..IDLE_MAX as u64 + 8 {
            idle.give(session(number), number, 100);
        }
        // The last sessions exceed the limit, and are closed.
        let retained: Vec<u64> =
            std::iter::from_fn(|| idle.take(40, 100)).map(|session| session.response.0).collect();
        assert_eq!(retained, (0..IDLE_MAX as u64).rev().collect::<Vec<_>>());
        for since_ms in [0, 1, 2] {
            idle.give(session(since_ms), since_ms, 100);
        }
        let waits = |now_ms| idle.take(now_ms, 100).map(|session| session.response.0);
        assert_eq!((waits(101), waits(101)), (Some(2), None));
    }

    #[test]
    fn idle_sessions_have_one_periodic_check() {
        let idle = IdleSessions::default();
        assert!(!idle.close_old(0, 100));
        assert!(idle.give(session(0), 0, 100));
        assert!(!idle.give(session(1), 50, 100));
        assert!(idle.close_old(100, 100));
        assert!(!idle.give(session(2), 120, 100));
        assert!(!idle.close_old(220, 100));
        assert!(idle.give(session(3), 230, 100));
    }
}
