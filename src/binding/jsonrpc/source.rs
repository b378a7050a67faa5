//! Where a body came from, and what was said beside it: by the head of its own request, or once
//! for all messages by the head that opened their WebSocket.

use super::read::{accepts, last_event_id, names};
use crate::{
    binding::{carrier::Carrier, stream::Framing, ws::Upgrade},
    dialect::Dialect,
    http::{Field, Head, Version},
    model::Op,
};

/// What came with a body.
#[derive(Clone, Copy)]
pub(super) enum Source<'d> {
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

impl<'d> Source<'d> {
    /// How answers travel.
    #[inline]
    pub(super) fn carrier(self) -> Carrier {
        match self {
            Source::Request(_) => Carrier::Response,
            Source::Message { .. } => Carrier::Message,
        }
    }

    /// How events travel.
    pub(super) fn framing(self) -> Framing {
        match self {
            Source::Request(head) if head.version() == Version::Http11 => Framing::Chunked,
            Source::Request(_) => Framing::Bare,
            Source::Message { upgrade, .. } => Framing::Messages { event_ids: upgrade.event_ids() },
        }
    }

    /// The path of the place that is spoken to.
    pub(super) fn path(self) -> &'d str {
        match self {
            Source::Request(head) => head.path(),
            Source::Message { upgrade, .. } => upgrade.path(),
        }
    }

    /// The host that was asked for.
    pub(super) fn host(self) -> Option<&'d str> {
        match self {
            Source::Request(head) => head.host(),
            Source::Message { upgrade, .. } => upgrade.host(),
        }
    }

    /// Whether the answer of `op` is of a type that was asked for, where the dialect wants that.
    /// A message is what its WebSocket takes; there is nothing to choose.
    #[inline]
    pub(super) fn accepts(self, dialect: &Dialect, op: Op) -> bool {
        match self {
            Source::Request(head) if dialect.quirks.accept_required => {
                accepts(head.value(Field::Accept), op)
            }
            Source::Request(_) | Source::Message { .. } => true,
        }
    }

    /// True: the client can read a stream and nothing else.
    pub(super) fn reads_only_streams(self) -> bool {
        match self {
            Source::Request(head) => {
                let accept = head.value(Field::Accept);
                accept.is_some() && !names(accept, b"application/json")
            }
            Source::Message { .. } => false,
        }
    }

    /// The last event that a returning subscriber has seen, if it was said beside the params.
    pub(super) fn last_event_id(self) -> Option<u64> {
        match self {
            Source::Request(head) => last_event_id(head),
            Source::Message { .. } => None,
        }
    }

    /// True: nothing that could wait is begun.
    #[inline]
    pub(super) fn is_full(self) -> bool {
        match self {
            Source::Request(_) => false,
            Source::Message { is_full, .. } => is_full,
        }
    }
}
