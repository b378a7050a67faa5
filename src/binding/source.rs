//! The source of a request, and the terms outside of its body, for every binding.

use std::borrow::Cow;

use crate::{
    binding::{
        grpc::Metadata,
        negotiation::{last_event_id, version_of},
        stream::EventFraming,
        terms::CallTerms,
        ws::Upgrade,
    },
    http::Head,
    service::RequestFields,
};

/// The source of a request, and the terms outside of its body: in its own head, or for a WebSocket
/// message in the head that opened the WebSocket.
#[derive(Clone, Copy)]
#[repr(u8)] // Each call looks at it several times: a byte of its own is read faster.
pub enum RequestSource<'x> {
    /// A request of HTTP.
    Http(&'x Head<'x>),
    /// A request of gRPC.
    Grpc(Metadata<'x>),
    /// A message of a WebSocket.
    WebSocket {
        /// The head that opened it.
        upgrade: &'x Upgrade,
        /// True: its limit of pending requests is reached.
        is_full: bool,
    },
}

impl<'x> RequestSource<'x> {
    /// The requested version.
    #[inline(always)]
    pub fn version(self) -> Option<Cow<'x, [u8]>> {
        match self {
            RequestSource::Http(head) => version_of(head),
            RequestSource::Grpc(metadata) => metadata.version.map(Cow::Borrowed),
            RequestSource::WebSocket { upgrade, .. } => upgrade.version_of().map(Cow::Borrowed),
        }
    }

    /// The framing of its events.
    #[inline(always)]
    pub fn events(self) -> EventFraming {
        match self {
            RequestSource::Http(_) => EventFraming::Sse,
            RequestSource::Grpc(_) => EventFraming::Grpc,
            RequestSource::WebSocket { upgrade, .. } => {
                EventFraming::Messages { event_ids: upgrade.event_ids() }
            }
        }
    }

    /// The last event that a resuming subscriber has seen, if it is named outside of the params.
    pub fn last_event_id(self) -> Option<u64> {
        match self {
            RequestSource::Http(head) => last_event_id(head),
            RequestSource::Grpc(metadata) => metadata.last_event_id,
            RequestSource::WebSocket { .. } => None,
        }
    }

    /// Bytes of its own head, if it has one.
    pub(super) fn head_bytes(self) -> usize {
        match self {
            RequestSource::Http(head) => head.head_len(),
            RequestSource::Grpc(metadata) => metadata.head.map_or(0, Head::head_len),
            RequestSource::WebSocket { .. } => 0,
        }
    }

    /// Whether the head has terms for the call.
    #[inline(always)]
    pub fn has_terms(&self) -> bool {
        match self {
            RequestSource::Http(head) => head.has_terms(),
            RequestSource::Grpc(_) => true,
            RequestSource::WebSocket { .. } => false,
        }
    }

    /// The terms of the call; the head of an upgrade has none for a single message.
    #[inline(always)]
    pub fn terms(self) -> CallTerms<'x> {
        match self {
            RequestSource::Http(head) => CallTerms::of(head),
            RequestSource::Grpc(metadata) => metadata.terms(),
            RequestSource::WebSocket { .. } => CallTerms::default(),
        }
    }

    /// The header fields that agents may see.
    #[inline(always)]
    pub fn fields(self) -> RequestFields<'x> {
        match self {
            RequestSource::Http(head) => RequestFields::of(head),
            RequestSource::WebSocket { upgrade, .. } => RequestFields::of(upgrade),
            RequestSource::Grpc(metadata) => metadata.fields,
        }
    }
}
