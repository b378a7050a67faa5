//! Where a body came from, and what was said beside it: by the head of its own request, or once
//! for all messages by the head that opened their WebSocket.

use super::read::accepts;
use crate::{
    binding::{
        Site,
        asked::{last_event_id, names},
        carrier::Carrier,
        origin::Origin,
        stream::Framing,
        ws::Upgrade,
    },
    dialect::Dialect,
    http::{Field, Head, media},
    model::Op,
    service::Peer,
};

/// What came with a body.
#[derive(Clone, Copy)]
pub(super) enum Beside<'d> {
    /// A request of HTTP.
    Request(&'d Head<'d>),
    /// A message of a WebSocket.
    Message {
        /// How it was opened.
        upgrade: &'d Upgrade,
        /// True: as many of its requests wait as may.
        is_full: bool,
    },
}

impl<'d> Beside<'d> {
    /// How answers travel.
    #[inline]
    pub(super) fn carrier(self) -> Carrier {
        match self {
            Beside::Request(_) => Carrier::Response,
            Beside::Message { .. } => Carrier::Message,
        }
    }

    /// How events travel.
    pub(super) fn framing(self) -> Framing {
        match self {
            Beside::Request(head) => Framing::of(head.version()),
            Beside::Message { upgrade, .. } => Framing::Messages { event_ids: upgrade.event_ids() },
        }
    }

    /// The path of the endpoint that is spoken to.
    pub(super) fn path(self) -> &'d str {
        match self {
            Beside::Request(head) => head.path(),
            Beside::Message { upgrade, .. } => upgrade.path(),
        }
    }

    /// Where the client asked.
    pub(super) fn origin(self, site: &Site, peer: Peer<'_>) -> Origin<'d> {
        match self {
            Beside::Request(head) => Origin::of(site, peer, head),
            Beside::Message { upgrade, .. } => upgrade.origin(),
        }
    }

    /// Whether the answer of `op` is of a type that was asked for, where the dialect wants that.
    /// A message is what its WebSocket takes; there is nothing to choose.
    #[inline]
    pub(super) fn accepts(self, dialect: &Dialect, op: Op) -> bool {
        match self {
            Beside::Request(head) if dialect.quirks.accept_required => {
                accepts(head.value(Field::Accept), op)
            }
            Beside::Request(_) | Beside::Message { .. } => true,
        }
    }

    /// True: the client can read a stream and nothing else.
    pub(super) fn reads_only_streams(self) -> bool {
        match self {
            Beside::Request(head) => {
                let accept = head.value(Field::Accept);
                accept.is_some() && !names(accept, media::JSON)
            }
            Beside::Message { .. } => false,
        }
    }

    /// The last event that a returning subscriber has seen, if it was said beside the params.
    pub(super) fn last_event_id(self) -> Option<u64> {
        match self {
            Beside::Request(head) => last_event_id(head),
            Beside::Message { .. } => None,
        }
    }

    /// True: nothing that could wait is begun.
    #[inline]
    pub(super) fn is_full(self) -> bool {
        match self {
            Beside::Request(_) => false,
            Beside::Message { is_full, .. } => is_full,
        }
    }
}
