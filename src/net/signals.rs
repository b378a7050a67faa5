//! SIGTERM and SIGINT: the first drains the server, the second ends the process.

use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::local::{Shared, Stage};

/// The signals that end a server; heard from the moment this exists.
pub(super) struct Signals([Signal; 2]);

impl Signals {
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// When the system takes no handler.
    pub(super) fn new() -> io::Result<Signals> {
        Ok(Signals([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]))
    }

    /// Hears signals as long as it is polled.
    pub(super) async fn hear(mut self, shared: Arc<Shared>) {
        poll_fn(|cx: &mut Context<'_>| {
            for signal in &mut self.0 {
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
