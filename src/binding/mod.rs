//! Bindings: decode requests into calls of the service, and encode its answers.
//!
//! Bindings have no access to the store. JSON-RPC, HTTP+JSON and gRPC decode a request into a call
//! and the format of its answer; the pipeline in [`call`] executes the call and answers it through
//! a [`responder::Responder`]. An answer that must wait is a [`PendingResponse`] or an
//! [`EventStream`].

pub mod admission;
pub mod answer;
mod authorize;
pub mod body_limit;
pub mod call;
pub mod card_signer;
pub mod cards;
pub mod catalog;
mod coded;
pub mod config;
pub mod cors;
mod decode;
#[cfg(feature = "test-echo")]
pub mod echo;
pub mod endpoint;
pub mod envelope;
mod extended_card;
pub mod extensions;
pub mod grpc;
pub mod hosts;
pub mod http;
pub mod http_error;
pub mod ignored_filters;
pub mod interfaces;
pub mod jsonrpc;
pub mod kept_format;
pub mod large;
mod make;
pub mod negotiation;
pub mod observed;
pub mod origin;
pub mod pages;
pub mod pending;
pub mod responder;
pub mod response_parts;
pub mod rest;
pub mod route;
mod scratch;
mod share;
mod source;
pub mod stream;
pub mod tenant;
pub mod terms;
pub mod ws;

pub use call::CallContext;
pub use config::ServerConfig;
pub use endpoint::Endpoint;
pub use large::LargeBodies;
pub use pending::PendingResponse;
pub use scratch::{CallScratch, DecodeBuffers, Scratch};
pub use share::CallerShare;
pub use source::RequestSource;
pub use stream::EventStream;

/// The outcome of a request.
pub enum Handled {
    /// The answer is complete.
    Answered,
    /// The answer waits for one or more tasks.
    Pending(Box<PendingResponse>),
    /// The answer is a stream; its head is written.
    Stream(Box<EventStream>),
}

/// Receives the WebSocket session of a successful upgrade; `None`: the transport has no upgrades.
pub type UpgradeSlot<'x> = Option<&'x mut Option<Box<ws::Session>>>;
