//! SIGTERM and SIGINT: the first drains the server, the second ends the process. SIGHUP has whoever
//! was given to [`Server::reload`](super::Server::reload) read everything again; without, it has a
//! server with TLS read its files again, and one without that has nothing to read, and says so.
//!
//! Files are read on a thread of their own: a file system that hangs holds up that thread and
//! nothing else, not even the end of the process. One reading runs at a time, and signals that come
//! meanwhile are one more reading behind it.

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
    report::{self, say, warn},
    server_state::{ServerState, Stage},
    tls::Current,
};

/// The signals that a server hears, from the moment this exists.
pub(super) struct Signals {
    ends: [Signal; 2],
    hangup: Signal,
    /// Signals to read again that no reading has answered.
    asked: Arc<AtomicUsize>,
}

impl Signals {
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// When the system takes no handler.
    pub(super) fn new() -> io::Result<Signals> {
        Ok(Signals {
            ends: [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?],
            hangup: signal(SignalKind::hangup())?,
            asked: Arc::default(),
        })
    }

    /// Hears signals as long as it is polled.
    pub(super) async fn hear(mut self, server: Arc<ServerState>) {
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
                reload(&server, &self.asked);
            }
            Poll::Pending
        })
        .await
    }
}

/// Has new files read for new connections. Whoever sent the signal is not there to be told of a
/// failure, so it is said where the operator looks.
fn reload(server: &Arc<ServerState>, asked: &Arc<AtomicUsize>) {
    if let Some(asking) = server.asking.get() {
        return asking.ask();
    }
    if server.tls.is_none() {
        return say(&"SIGHUP: there is nothing to read again, for there is no TLS");
    }
    match asked.fetch_add(1, Ordering::AcqRel) {
        0 => {}
        1 => return say(&"SIGHUP: the files are still being read, and will be once more"),
        _ => return,
    }
    let (server, waiting) = (Arc::clone(server), Arc::clone(asked));
    let read = move || {
        let Some(tls) = &server.tls else { return };
        // Whoever has signalled since was told that there will be another reading.
        let mut answered = 1;
        loop {
            read_again(tls);
            match waiting.compare_exchange(answered, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => answered = now,
            }
        }
    };
    // It is never joined: the process may end while it reads.
    if let Err(error) = thread::Builder::new().name("peregrine-files".to_owned()).spawn(read) {
        asked.store(0, Ordering::Release);
        warn(&format_args!("SIGHUP: cannot read the files again: {error}"));
    }
}

fn read_again(tls: &Current) {
    match tls.reload() {
        Ok(()) => say(&"SIGHUP: new connections get the certificate that was read just now"),
        Err(error) => warn(&format_args!("{error}; the old certificate stays")),
    }
}
