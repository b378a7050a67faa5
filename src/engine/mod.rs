//! The server without sockets: bytes in, bytes out, and the time of the next call.
//!
//! All connections of a server share an [`Engine`], and the connections of one thread a [`Worker`].
//! A [`Conn`] is one connection; an [`Exchange`] is one request that another library has parsed.
//! Sockets, clocks and threads belong to the driver.

mod body;
mod build_error;
mod conn;
mod exchange;
mod figures;
mod following;
mod key_set;
mod life;
mod local_core;
#[cfg(feature = "push")]
mod outbox;
mod request;
mod setup;
mod socket;

use std::net::IpAddr;

pub use crate::{
    binding::{
        card_signer::{CardSigner, DetachedSignature},
        cors::{Cors, CorsError},
        hosts::is_host,
        interfaces::{Binding, Interface, InterfaceError},
        response_parts::HeadParts,
        tenant::Tenants,
        ws::is_origin,
    },
    dialect::{FirstCall, card::CardForm, first_call},
    http::{FieldLines, FieldLinesBuf, RequestParts},
    json::Source,
    op::{AgentChange, AgentError, Agents},
    service::Start,
    store::node_of,
};
pub use build_error::BuildError;
#[cfg(feature = "net")]
pub(crate) use conn::Activity;
pub use conn::{Conn, Cx, Next, Progress};
pub use exchange::{Exchange, ResponseSink};
pub use life::{Engine, Waiting};
pub use local_core::local_core;
pub use setup::{Mount, Setup};

#[cfg(feature = "push")]
pub use crate::push::{
    HostRule, NoHostRule, Pace, PortRule, PushChallenge, PushSettings, PushTargets, TargetError,
    WebhookSlot,
    address::AddressKind,
    outbox::{NextRequest, Outbox, PostOutcome, PostRequest},
};

#[cfg(feature = "net")]
use crate::service::{AgentIndex, LastCall};
use crate::{binding::Scratch, http::HeadMemo, limits::Limits, service::Entropy};

/// The state that the connections of one thread share: buffers that are reused for each request.
/// With a lock, several threads may share a worker.
pub struct Worker {
    pub(crate) scratch: Scratch,
    heads: HeadMemo,
    /// The newest record of the tasks in the output of the current call.
    record: u64,
    /// The address that a trusted proxy has named in the current call.
    forwarded: Option<IpAddr>,
}

impl Worker {
    /// Buffers for worker number `index`, which reads heads under `limits`.
    pub fn new(index: usize, limits: &Limits, entropy: Box<dyn Entropy + Send>) -> Worker {
        let heads = HeadMemo::new(request::head_limits(limits));
        Worker { scratch: Scratch::new(index, limits, entropy), heads, record: 0, forwarded: None }
    }

    /// The agent that was called last, if the call was at `ms` or later.
    #[cfg(feature = "net")]
    pub(crate) fn called_since(&self, ms: u64) -> Option<AgentIndex> {
        let LastCall { agent, at_ms } = self.scratch.call.last_call;
        (ms..u64::MAX).contains(&at_ms).then_some(agent)
    }

    /// The address that a trusted proxy has named since the last call of this function.
    #[cfg(feature = "net")]
    #[inline]
    pub(crate) fn take_forwarded(&mut self) -> Option<IpAddr> {
        self.forwarded.take()
    }

    /// Notes that the output shows a task with this last record; 0: the server has no journal.
    #[inline]
    fn shows(&mut self, record: u64) {
        self.record = self.record.max(record);
    }
}
