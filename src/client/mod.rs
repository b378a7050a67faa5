//! The client: calls to A2A servers of every generation, dialect and binding.
//!
//! Invariant: nothing here uses a socket, a runtime, a clock or a source of random bits. A
//! [`Transport`] provides them: the one of `net`, or your own. Server input is treated as hostile,
//! like client input in the server: everything has a limit, and invalid input is an error by name.

pub mod card;
pub mod credentials;
pub mod format;
pub mod http1;
pub mod redirect;
pub mod retry;
pub mod upgrade;

mod answer;
mod batch;
mod builder;
#[allow(clippy::module_inception)] // The module has the name of its type.
mod client;
mod discover;
mod endpoint;
mod error;
mod event;
mod exchange;
mod grpc;
mod known_card;
mod limits;
mod outgoing_terms;
mod request;
mod scratch;
mod seen;
mod signing_key;
mod stream;
mod trace_parent;
mod transport;
mod url;
mod v1_shape;
#[cfg(feature = "push")]
mod webhook_keys;
mod websocket;

pub use crate::{
    binding::interfaces::Binding,
    dialect::version::ProtocolVersion,
    http::{FieldLines, FieldLinesBuf},
};
pub use answer::Answer;
pub use builder::{CallOptions, ClientBuilder};
pub use client::Client;
#[cfg(feature = "otlp")]
pub(crate) use discover::check_field;
pub use error::{ClientError, ClientErrorKind, ErrorDetails};
pub use event::{EventKind, StreamEvent};
#[cfg(feature = "load")]
pub(crate) use exchange::head_of;
#[cfg(any(feature = "auth", feature = "otlp"))]
pub(crate) use exchange::{SizeLimit, read_all};
pub use format::{CallError, CallId, Format, FormatBuffers, ReplyHead, WrittenCall};
pub use known_card::KnownCard;
pub use limits::{
    CARD_BYTES_MAX, CARD_DEPTH_MAX, CARD_ENTRIES_MAX, CARD_INTERFACES_MAX, ClientLimits,
};
#[cfg(feature = "gateway")]
pub(crate) use outgoing_terms::OutgoingTerms;
pub use request::{ListTasks, SendRequest, TaskAddress};
pub use stream::ClientStream;
pub use trace_parent::TraceParent;
pub use transport::{
    HttpMethod, HttpRequest, HttpResponse, HttpVersion, Tick, Transport, TransportError,
};
pub use url::{HttpOrigin, HttpUrl, UrlError};
#[cfg(feature = "push")]
pub use webhook_keys::WebhookKeys;
