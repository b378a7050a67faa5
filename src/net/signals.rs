//! SIGTERM and SIGINT: the first drains the server, the second ends the process. SIGHUP reloads the
//! configuration through [`Server::reload`](super::Server::reload). Without this function, a server
//! with TLS reads its files again, and a server without TLS reports that there is nothing to
//! reload.
//!
//! Reloads run on a separate thread: a hanging file system blocks only this thread, and not the end
//! of the process. One reload runs at a time, and signals during a reload cause one more reload
//! afterwards.

use std::{
    future::poll_fn,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    thread,
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    report::{self, info, warn},
    server_state::{ServerState, Stage},
    tls::Current,
};

/// The signals that a server handles, from the creation of this value on.
pub(super) struct Signals {
    ends: [Signal; 2],
    hangup: Signal,
    readings: Arc<Readings>,
}

impl Signals {
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// The system does not install the handler.
    pub(super) fn new() -> io::Result<Signals> {
        Ok(Signals {
            ends: [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?],
            hangup: signal(SignalKind::hangup())?,
            readings: Arc::default(),
        })
    }

    /// Handles signals while the future is polled.
    pub(super) async fn handle(mut self, server: Arc<ServerState>) {
        poll_fn(|cx: &mut Context<'_>| {
            for signal in &mut self.ends {
                while signal.poll_recv(cx).is_ready() {
                    if server.stage() != Stage::Serving {
                        report::flush();
                        std::process::exit(1);
                    }
                    report::draining(&server);
                    server.enter(Stage::Draining);
                }
            }
            while self.hangup.poll_recv(cx).is_ready() {
                reload(&server, &self.readings);
            }
            Poll::Pending
        })
        .await
    }
}

/// Reload signals that no reload has answered.
#[derive(Default)]
struct Readings(AtomicUsize);

impl Readings {
    /// Counts a signal, and returns the number before it; at 0, the caller must start a reload.
    fn request(&self) -> usize {
        self.0.fetch_add(1, Ordering::AcqRel)
    }

    /// Reloads until there are no more requests. The first reload answers only the first signal: a
    /// later signal gets another reload, however late the thread starts.
    fn run(&self, mut read: impl FnMut()) {
        let mut answered = 1;
        loop {
            read();
            match self.0.compare_exchange(answered, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => answered = now,
            }
        }
    }

    /// Drops the requests, because no reload could start.
    fn give_up(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Reads new files for new connections. The sender of the signal gets no error, so errors are
/// written to the log or stderr.
fn reload(server: &Arc<ServerState>, readings: &Arc<Readings>) {
    if let Some(requests) = server.reload_requests.get() {
        return requests.request();
    }
    if server.tls.is_none() {
        return info(&"SIGHUP: nothing to read again: the server has no TLS");
    }
    match readings.request() {
        0 => {}
        1 => return info(&"SIGHUP: the files are still being read; they will be read once more"),
        _ => return,
    }
    let (server, all) = (Arc::clone(server), Arc::clone(readings));
    let read = move || {
        if let Some(tls) = &server.tls {
            all.run(|| read_again(tls));
        }
    };
    // The thread is never joined: the process may end while the thread reads.
    if let Err(error) = thread::Builder::new().name("peregrine-files".to_owned()).spawn(read) {
        readings.give_up();
        warn(&format_args!("SIGHUP: cannot read the files again: {error}"));
    }
}

fn read_again(tls: &Current) {
    match tls.reload() {
        Ok(()) => info(&"SIGHUP: new connections use the certificate that was just read"),
        Err(error) => warn(&format_args!("{error}; the old certificate stays in use")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_before_or_during_a_reload_cause_one_more_reload() {
        let readings = Readings::default();
        assert_eq!([(); 3].map(|()| readings.request()), [0, 1, 2]);
        let mut count = 0;
        readings.run(|| count += 1);
        assert_eq!(count, 2);
        // Signals during a reload are one more reload, which answers all of them.
        assert_eq!(readings.request(), 0);
        let mut count = 0;
        readings.run(|| {
            count += 1;
            if count < 3 {
                readings.request();
                readings.request();
            }
        });
        assert_eq!((count, readings.request()), (3, 0));
        readings.give_up();
        assert_eq!(readings.request(), 0);
    }
}
