//! Wire formats: how each protocol generation and platform names methods and members.
//!
//! Invariant: a dialect is a value. It reads leniently: every alias that clients are known to send
//! results in the same [`Call`]. It writes strictly: exactly what its generation specifies.
//! Versions are compared only in `version`. The HTTP requirements of a dialect (path prefixes,
//! statuses, `Accept`) are data in [`Routes`] and [`Quirks`], and the bindings apply them. Nothing
//! here depends on a store or a clock.
//!
//! In scope: method tables, params, results, stream items, error objects, cards. Out of scope: the
//! envelope of JSON-RPC (`rpc`), reading and writing HTTP (`http`, `binding`), the messages of gRPC
//! (`binding/grpc`).

#[cfg(feature = "client")]
pub mod calls;
#[cfg(feature = "client")]
pub mod canonical;
pub mod card;
pub mod card_security;
mod fault;
mod json_out;
mod pre_v1;
#[cfg(feature = "push")]
mod push_body;
mod push_name;
mod push_out;
mod read;
pub mod rest;
mod v01;
mod v03;
mod v03_rest;
mod v1;
pub mod version;

use std::cell::Cell;

use crate::{
    fault::{Fault, FaultKind},
    json::{Value, ValueSlot},
    limits::Limits,
    model::{Call, Generation, Op, RawText, Reply},
    service::StreamResponse,
};

#[cfg(feature = "push")]
pub use push_body::{push_body, push_head};
pub use push_name::{push_ids, push_name};
pub use read::{NO_GENERATIONS, is_known_filter};
#[cfg(feature = "client")]
pub use read::{ReplyCx, looks_like_item, read_fault, read_item, read_reply};
pub use standard::DIALECT as STANDARD;
pub use v1::WIRE as V1;

/// Declares the files of the dialects, one name per line, as submodules, and adds the `DIALECT` of
/// each to [`ALL`] in the order of the lines.
///
/// `cargo fmt` alone does not find modules that a macro declares; `.ci/run format` names all files.
macro_rules! dialects {
    ($($file:ident,)+) => {
        $(mod $file;)+

        /// Every dialect, in the order in which a path is compared with their [`Routes`].
        pub static ALL: &[&Dialect] = &[$(&$file::DIALECT),+];
    };
}

// A new dialect is a file with a `DIALECT`, and a line here.
dialects! {
    standard,
    langsmith,
    evo_ai,
    rabbithole,
    a2a_rust,
    tutorial,
    fasta2a,
}

/// The dialect of this name, as written in `--mount PATH=DIALECT`.
pub fn by_name(name: &str) -> Option<&'static Dialect> {
    ALL.iter().copied().find(|dialect| dialect.name == name)
}

/// How a client of a dialect sends a message, for a first call by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstCall {
    /// The JSON-RPC `method`.
    pub method: &'static str,
    /// The wire family of the params.
    pub generation: Generation,
    /// True: `Accept` must name `application/json`.
    pub needs_accept: bool,
}

/// How a client of the dialect with this name sends a message; `None`: unknown dialect.
pub fn first_call(dialect: &str) -> Option<FirstCall> {
    let dialect = by_name(dialect)?;
    let method = dialect.methods.iter().find(|method| method.op == Op::Send)?;
    let (generation, needs_accept) = (method.generation(), dialect.quirks.accept_required);
    Some(FirstCall { method: method.name, generation, needs_accept })
}

/// A variant of A2A over JSON-RPC.
#[derive(Clone, Copy)]
pub struct Dialect {
    /// The name in `--mount` and in the documentation.
    pub name: &'static str,
    /// The methods; any other method is -32601.
    pub methods: &'static [Method],
    /// The requirements for HTTP and the JSON-RPC envelope.
    pub quirks: Quirks,
    /// The paths where the dialect is served without a mount.
    pub routes: Routes,
}

/// The paths that a platform's clients use.
#[derive(Clone, Copy)]
pub struct Routes {
    /// Prefix under which each agent is served by its name; it ends with a slash.
    pub by_name: Option<&'static str>,
    /// Prefix below each endpoint of the dialect. The next segment is a tenant of the endpoint's
    /// agent.
    pub tenants: Option<&'static str>,
    /// The path segment before the tenant in the paths of HTTP+JSON.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "only the client uses it"))]
    pub rest_tenant: &'static str,
    /// Query parameter that names the agent, in requests for the card at the root.
    pub card_query: Option<&'static str>,
    /// The HTTP+JSON bindings served below each endpoint of the dialect, the newest first.
    pub rest: &'static [&'static rest::HttpJson],
}

impl Routes {
    /// Only where the dialect is mounted.
    pub const NONE: Routes =
        Routes { by_name: None, tenants: None, rest_tenant: "/", card_query: None, rest: &[] };
}

impl Dialect {
    /// The method of this name; `name` is unescaped text.
    #[inline]
    pub fn method(&self, name: &[u8]) -> Option<&'static Method> {
        self.methods.iter().find(|method| method.name.as_bytes() == name)
    }

    /// The method that a wrong name probably means: a name that differs only in case.
    pub fn method_of_any_case(&self, name: &[u8]) -> Option<&'static Method> {
        self.methods.iter().find(|method| method.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether clients of this generation can use the dialect.
    pub fn speaks(&self, generation: Generation) -> bool {
        self.methods.iter().any(|method| method.generation() == generation)
    }

    /// Whether cards list the dialect for clients of this generation.
    pub fn lists(&self, generation: Generation) -> bool {
        self.speaks(generation) && (generation == Generation::V1 || !self.quirks.card_v1)
    }

    /// HTTP status of a JSON-RPC error outside a batch or stream, in this generation. Before 1.0
    /// platforms have their own statuses.
    #[inline]
    pub fn fault_http(&self, generation: Generation) -> fn(&Fault) -> u16 {
        match generation {
            Generation::V1 => Quirks::NONE.fault_http,
            Generation::V01 | Generation::V03 => self.quirks.fault_http,
        }
    }

    /// Whether the dialect has a method for this operation.
    pub fn offers(&self, op: Op) -> bool {
        self.methods.iter().any(|method| method.op == op)
    }

    /// The writers of a fault for a name that is no method of this dialect: of the generation with
    /// similar names (wire §1.2), or else of the first method.
    pub fn fault_encode(&self, name: &[u8]) -> &'static Encode {
        let slashed = name.contains(&b'/');
        // An empty name resembles every method.
        let is_like = |method: &&Method| name.is_empty() || method.name.contains('/') == slashed;
        let like = self.methods.iter().find(is_like);
        like.or(self.methods.first()).map_or(&v1::WIRE.encode, |method| &method.wire.encode)
    }
}

impl Dialect {
    /// The writers of a fault for an unknown method, by the requested version.
    pub fn fault_encode_of(&self, requested: Option<&[u8]>) -> &'static Encode {
        let requested = requested.and_then(|requested| str::from_utf8(requested).ok());
        let generation = requested.and_then(|requested| version::generation(requested.trim()));
        let mut methods = self.methods.iter();
        let of_it = methods.find(|method| Some(method.generation()) == generation);
        of_it.map_or_else(|| self.fault_encode(b""), |method| &method.wire.encode)
    }
}

/// One row of a method table; `D` is the reader of the params.
#[derive(Clone, Copy)]
pub struct Method<D: 'static = Decode> {
    /// The JSON-RPC `method`, or the name of an rpc.
    pub name: &'static str,
    /// The operation.
    pub op: Op,
    /// The reader of the params and the writers of the answers.
    pub wire: &'static Wire<D>,
    /// True if 0.1 and 0.3 share the name: see [`Method::encode_for`].
    pub by_task: bool,
}

/// A row of a method table.
const fn method(name: &'static str, op: Op, wire: &'static Wire) -> Method {
    Method { name, op, wire, by_task: false }
}

impl<D> Method<D> {
    /// The generation of the method.
    #[inline]
    pub fn generation(&self) -> Generation {
        self.wire.encode.generation
    }

    /// The writers of an answer about a task that was created by a call of generation `made`.
    ///
    /// Wire §1.2: `tasks/get`, `tasks/cancel` and `tasks/resubscribe` exist in 0.1 and 0.3. A task
    /// that was created by `tasks/send*` is shown in the format of 0.1, any other in that of 0.3.
    /// Params and faults always use [`Method::wire`].
    #[inline]
    pub fn encode_for(&self, made: Generation) -> &'static Encode {
        let is_v01 = self.by_task && made == Generation::V01;
        if is_v01 { &v01::WIRE.encode } else { &self.wire.encode }
    }

    /// The writers of this answer.
    #[inline]
    pub fn encode_of(&self, reply: &Reply<'_>) -> &'static Encode {
        match reply {
            Reply::Task { view, .. } => self.encode_for(view.generation()),
            Reply::Message { .. }
            | Reply::PageStart
            | Reply::PageTask { .. }
            | Reply::PageEnd { .. }
            | Reply::Push(_) => &self.wire.encode,
        }
    }
}

/// The requirements of a dialect for HTTP and the JSON-RPC envelope.
#[derive(Clone, Copy)]
pub struct Quirks {
    /// True: `Accept` must name `text/event-stream` for streaming operations and
    /// `application/json` for all others; otherwise HTTP 400.
    pub accept_required: bool,
    /// HTTP status of a JSON-RPC error outside a batch or stream.
    pub fault_http: fn(&Fault) -> u16,
    /// True: a request without `id` outside a batch is a notification and gets no JSON-RPC answer
    /// (JSON-RPC 2.0 §4.1); false: it is answered with `id: null`, as A2A servers do.
    pub silent_notifications: bool,
    /// HTTP status of a POST with a `Content-Type` other than JSON.
    pub media_http: u16,
    /// True: the cards are of 1.0 and list only 1.0, because clients of 0.3 cannot read the
    /// dialect's answers; each skill lists its media types.
    pub card_v1: bool,
    /// True: a fault of a streaming call before 1.0 is sent as a stream of one error.
    pub stream_faults: bool,
    /// The limits of an authenticated caller, as the platform documents them; its clients expect
    /// `X-RateLimit-*` in every answer.
    pub quota: Option<DocumentedQuota>,
    /// The size limits of bodies and messages, if the platform documents any.
    pub body: Option<DocumentedBody>,
}

/// A size limit for bodies instead of `body_bytes_max`, and for WebSocket messages instead of
/// `ws_frame_bytes_max` and `ws_message_bytes_max`.
#[derive(Clone, Copy, Debug)]
pub struct DocumentedBody {
    /// The limit.
    pub bytes_max: fn(&Limits) -> usize,
    /// The name of the limit.
    pub name: &'static str,
    /// The error text for a larger body.
    pub too_large: &'static str,
    /// The error text for a length a hundred times larger.
    pub absurd: &'static str,
}

/// The documented limits of a caller.
#[derive(Clone, Copy, Debug)]
pub struct DocumentedQuota {
    /// Calls per minute.
    pub calls_per_minute: u32,
    /// Open streams.
    pub streams: u32,
}

impl Quirks {
    /// Plain JSON-RPC over HTTP: every answer is 200, except that retryable errors have statuses
    /// that intermediaries understand (with `Retry-After`).
    pub const NONE: Quirks = Quirks {
        accept_required: false,
        fault_http: |fault| match fault.kind {
            FaultKind::Overloaded | FaultKind::RateLimited => 429,
            FaultKind::ShuttingDown => 503,
            FaultKind::Unauthenticated => 401,
            FaultKind::PermissionDenied => 403,
            _ => 200,
        },
        silent_notifications: false,
        media_http: 200,
        card_v1: false,
        stream_faults: false,
        quota: None,
        body: None,
    };
}

/// Reads `params` (`None`: absent) into a call. `pack` is cleared, and then contains what the call
/// does not borrow from the body: the packed message, and identifiers that had escapes.
///
/// Errors: `InvalidParams` with its field; `PushNotificationNotSupported` if the message has a push
/// configuration.
pub type Decode =
    for<'p> fn(&ReadCx<'_>, Option<Value<'p>>, &'p mut Vec<u8>) -> Result<Call<'p>, Fault>;

/// A wire family: the reader of its requests, and the writers of its answers.
pub struct Wire<D = Decode> {
    /// Reads a request.
    pub decode: D,
    /// Writes answers.
    pub encode: Encode,
    /// Writes requests.
    #[cfg(feature = "client")]
    pub calls: calls::Calls,
}

/// The writers of the answers of one wire family. They write JSON; those of gRPC (`binding/grpc`)
/// write its messages.
#[derive(Clone, Copy)]
pub struct Encode {
    /// The family.
    pub generation: Generation,
    /// Appends the JSON of `result`, or a part of a page: `PageStart`, any number of `PageTask`,
    /// and `PageEnd` are appended to the same buffer with nothing in between.
    pub reply: fn(&mut Vec<u8>, &Reply<'_>, &WriteCx<'_>),
    /// Appends the JSON of one stream item's `result`; false: the dialect does not support this
    /// item, and nothing was written.
    pub event: fn(&mut Vec<u8>, &StreamResponse<'_>, &WriteCx<'_>) -> bool,
    /// A faster way to write streamed text chunk by chunk, if any.
    pub text: Option<EncodeText>,
    /// Appends the JSON of `error`.
    pub fault: fn(&mut Vec<u8>, &Fault, &WriteCx<'_>),
}

/// The JSON of an event that has only a text chunk, as [`Encode::event`] appends it: `head`, the
/// artifact's id, `between`, the text, one of `tails`.
#[derive(Clone, Copy)]
pub struct EncodeText {
    /// Appends the part before the artifact's id, which is the same for all events of a task.
    pub head: fn(&mut Vec<u8>, task_id: RawText<'_>, context_id: RawText<'_>),
    /// The part between the id and the text.
    pub between: &'static [u8],
    /// The part after the text of a chunk: first chunk of an artifact, appended chunk, first and
    /// last, appended and last.
    pub tails: [&'static [u8]; 4],
}

impl EncodeText {
    /// The part after the text of a chunk.
    #[inline(always)]
    pub fn tail(&self, append: bool, last_chunk: bool) -> &'static [u8] {
        self.tails[usize::from(append) + 2 * usize::from(last_chunk)]
    }
}

/// The context of a reader.
pub struct ReadCx<'a> {
    /// The operation of the method.
    pub op: Op,
    /// The limits.
    pub limits: &'a Limits,
    /// A fresh identifier for a message without one; it needs no JSON escape. Empty: a message
    /// without an identifier is rejected.
    pub fresh_id: &'a [u8],
    /// `Last-Event-ID`, if a subscriber has sent it.
    pub after: Option<u64>,
    /// Raw id of the task in the path; it takes precedence over the id in the params.
    pub task: Option<&'a [u8]>,
    /// The remaining JSON tokens for a message that is converted from another form; see
    /// `json_tokens_max`.
    pub tokens: Cell<usize>,
    /// The position of `tenant` among the params, if the reader found it.
    pub tenant: Cell<ValueSlot>,
}

/// The context of a writer.
#[derive(Clone, Copy, Debug)]
pub struct WriteCx<'a> {
    /// The operation of the answer.
    pub op: Op,
    /// Raw task id that the caller named (`Send::task_id`), or empty: 0.1 and Evo AI answer a
    /// direct message with a task of this id.
    pub task_id: &'a [u8],
    /// `Send::history` of a streaming call, for the snapshots in its stream.
    pub history: Option<u32>,
    /// Milliseconds since the Unix epoch, for statuses that the writer creates.
    pub unix_ms: u64,
}

impl WriteCx<'_> {
    /// A context with only the operation; enough for faults and for 1.0.
    pub const fn new(op: Op) -> WriteCx<'static> {
        WriteCx { op, task_id: b"", history: None, unix_ms: 0 }
    }
}
