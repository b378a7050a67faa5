//! What whoever runs a server can say of being told about it.

use super::{Server, pages::ReadyCheck};

impl Server {
    /// Serves `/healthz`, `/readyz` and `/metrics` on a listener of their own, and no longer beside
    /// the agents: an IP address or host name, and port, or `unix:PATH`, which the user of this
    /// process alone may connect to. Whoever reaches it is told everything that they say.
    #[must_use]
    pub fn admin(mut self, address: impl Into<String>) -> Server {
        self.admin = Some(address.into());
        self
    }

    /// Adds something that the server needs to be ready, as `/readyz` says: its name, one word, and
    /// what is wrong with it, in one sentence. It is asked at each look, so it must not wait.
    #[must_use]
    pub fn ready_check(
        mut self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Server {
        self.checks.push(ReadyCheck { name, check: Box::new(check) });
        self
    }

    /// Counts calls, for `/metrics`. Another [`Setup::observer`] is then not told of them.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics(mut self) -> Server {
        self.counts_calls = true;
        self
    }
}
