//! The wire format of one server: its binding, generation and dialect, as data.
//!
//! Invariant: this module only converts, and sends nothing: a call becomes the parts of a request;
//! the parts of a response become the server's answer in canonical form, or a named error. A
//! server's answer has limits, and is checked before it is used.

mod error;
mod explain;
mod grpc;
mod grpc_status;
mod pattern;
mod read;
mod rest;
mod write;

use crate::{
    binding::interfaces::Binding,
    dialect::{self, Dialect, ReplyCx},
    json::Parser,
    limits::Limits,
    model::{Generation, Op, Received},
};

use super::ClientLimits;
use pattern::AnswerPatterns;

pub use error::CallError;
pub use explain::explain;
pub use grpc_status::GrpcEnd;
pub(super) use read::StrayEvent;
pub use read::{CallId, ReplyHead};
pub(super) use rest::push_encoded;
pub use write::WrittenCall;

/// The wire format of a server. Cheap to copy; memory that calls reuse is in [`FormatBuffers`].
#[derive(Clone, Copy)]
pub struct Format {
    binding: Binding,
    generation: Generation,
    dialect: &'static Dialect,
}

impl Format {
    /// The format in the specification of this generation.
    pub fn standard(binding: Binding, generation: Generation) -> Format {
        Format { binding, generation, dialect: &dialect::STANDARD }
    }

    /// The format of a platform, by the name of its dialect (`docs/dialects.md`); `None`: the
    /// dialect does not exist, or does not have this generation.
    pub fn of_dialect(binding: Binding, generation: Generation, dialect: &str) -> Option<Format> {
        let dialect = dialect::by_name(dialect).filter(|dialect| dialect.speaks(generation))?;
        Some(Format { binding, generation, dialect })
    }

    /// The binding.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// The generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The name of the dialect; `standard` for the specification itself.
    pub fn dialect(&self) -> &'static str {
        self.dialect.name
    }

    fn is_same(&self, other: &Format) -> bool {
        let is_same = self.binding == other.binding && self.generation == other.generation;
        is_same && std::ptr::eq(self.dialect, other.dialect)
    }

    /// The context for reading answers in this format.
    fn reply_cx<'b>(&self, values: &'b ValueLimits) -> ReplyCx<'b> {
        ReplyCx {
            generation: self.generation,
            proto: self.generation == Generation::V03
                && matches!(self.binding, Binding::HttpJson | Binding::Grpc),
            limits: &values.limits,
            artifacts_max: values.artifacts_max,
            tasks_max: values.tasks_max,
            is_strict: values.is_strict,
        }
    }
}

/// Appends the answer to `op` as JSON of 1.0, from any wire format: the answer that a server of 1.0
/// would have sent. An empty answer becomes `{}`.
pub fn push_json(out: &mut Vec<u8>, received: &Received, op: Op) {
    dialect::canonical::write(out, received, op);
}

/// Limits on single values, in the form that the readers of requests take.
struct ValueLimits {
    limits: Limits,
    artifacts_max: usize,
    tasks_max: usize,
    is_strict: bool,
}

/// State of readers that calls reuse: memory, and the client's limits.
pub struct FormatBuffers {
    parser: Parser,
    depth_max: usize,
    values: ValueLimits,
    patterns: AnswerPatterns,
    /// gRPC messages as JSON.
    json: Vec<u8>,
    /// Bytes of the longest parsed document: the memory of the buffers is a multiple of this.
    longest: usize,
}

impl FormatBuffers {
    /// Buffers with these limits.
    pub fn new(limits: &ClientLimits) -> FormatBuffers {
        let values = Limits {
            identifier_bytes_max: limits.identifier_bytes_max.min(usize::from(u16::MAX)),
            string_bytes_max: limits.string_bytes_max,
            parts_max: limits.parts_max,
            references_max: limits.references_max,
            ..Limits::default()
        };
        let mut parser = Parser::bounded(limits.json_tokens_max);
        parser.accept_lone_surrogates(true);
        FormatBuffers {
            parser,
            depth_max: limits.json_depth_max,
            values: ValueLimits {
                limits: values,
                artifacts_max: limits.artifacts_max,
                tasks_max: limits.page_tasks_max,
                is_strict: false,
            },
            patterns: AnswerPatterns::default(),
            json: Vec::new(),
            longest: 0,
        }
    }

    /// The same buffers for readers that check answers strictly; see
    /// [`CallOptions::is_strict`](super::CallOptions::is_strict).
    pub(super) fn strict(mut self, is_strict: bool) -> FormatBuffers {
        self.values.is_strict = is_strict;
        self.parser.accept_lone_surrogates(!is_strict);
        self
    }

    /// Whether the last gRPC message has no known field.
    pub(super) fn is_empty_message(&self) -> bool {
        self.json == b"{}"
    }

    /// Whether no document was longer than this, so that the buffers may be retained.
    pub(crate) fn is_within(&self, bytes: usize) -> bool {
        self.longest <= bytes
    }
}

impl Default for FormatBuffers {
    fn default() -> FormatBuffers {
        FormatBuffers::new(&ClientLimits::default())
    }
}
