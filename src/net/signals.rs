//! SIGTERM and SIGINT: the first drains the server, the second ends the process. SIGHUP makes a
//! server with TLS read its files again; without TLS it is left to the system.

use std::{
    future::poll_fn,
    io::{self, Write},
    sync::Arc,
    task::{Context, Poll},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::local::{Shared, Stage};

/// The signals that a server hears, from the moment this exists.
pub(super) struct Signals {
    ends: [Signal; 2],
    hangup: Option<Signal>,
}

impl Signals {
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// When the system takes no handler.
    pub(super) fn new(shared: &Shared) -> io::Result<Signals> {
        let hangup = shared.tls.as_ref().map(|_| signal(SignalKind::hangup())).transpose()?;
        Ok(Signals {
            ends: [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?],
            hangup,
        })
    }

    /// Hears signals as long as it is polled.
    pub(super) async fn hear(mut self, shared: Arc<Shared>) {
        poll_fn(|cx: &mut Context<'_>| {
            while self.hangup.as_mut().is_some_and(|signal| signal.poll_recv(cx).is_ready()) {
                reload(&shared);
            }
            for signal in &mut self.ends {
                while signal.poll_recv(cx).is_ready() {
                    if shared.stage() != Stage::Serving {
                        std::process::exit(1);
                    }
                    shared.enter(Stage::Draining);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// New files for new connections. Whoever sent the signal is not there to be told of a failure, so
/// it is said where the operator looks.
fn reload(shared: &Shared) {
    if let Some(tls) = &shared.tls
        && let Err(error) = tls.reload()
    {
        // Without stderr nobody wants to know.
        let _ = writeln!(io::stderr(), "peregrine: {error}; the old certificate stays");
    }
}
