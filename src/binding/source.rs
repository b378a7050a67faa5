//! The source of a request, and its data outside of the body, for every binding.

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

/// The source of a request, and its data outside of the body: in the head of the request, or for a
/// WebSocket message in the head of the upgrade.
#[derive(Clone, Copy)]
#[repr(u8)] // The tag is read several times for each call; a byte is read faster.
pub enum RequestSource<'x> {
    /// An HTTP request.
    Http(&'x Head<'x>),
    /// A gRPC request.
    Grpc(Metadata<'x>),
    /// A message of a WebSocket.
    WebSocket {
        /// The head of the upgrade.
        upgrade: &'x Upgrade,
        /// True: the limit of pending requests of the WebSocket is reached.
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

    /// The framing of the events of streams.
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

    /// The last event that a resuming subscriber has received, if the head contains it.
    pub fn last_event_id(self) -> Option<u64> {
        match self {
            RequestSource::Http(head) => last_event_id(head),
            RequestSource::Grpc(metadata) => metadata.last_event_id,
            RequestSource::WebSocket { .. } => None,
        }
    }

    /// Bytes of the head of the request; 0 for a WebSocket message.
    pub(super) fn head_bytes(self) -> usize {
        match self {
            RequestSource::Http(head) => head.head_len(),
            RequestSource::Grpc(metadata) => metadata.head.map_or(0, Head::head_len),
            RequestSource::WebSocket { .. } => 0,
        }
    }

    /// Whether the head may have terms for the call.
    #[inline(always)]
    pub fn has_terms(&self) -> bool {
        match self {
            RequestSource::Http(head) => head.has_terms(),
            RequestSource::Grpc(_) => true,
            RequestSource::WebSocket { .. } => false,
        }
    }

    /// The terms of the call; those in the head of an upgrade do not apply to its messages.
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
