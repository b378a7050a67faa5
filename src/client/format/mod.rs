//! How one server is spoken to: its binding, generation and dialect, as data.
//!
//! Invariant: a call goes in and a request's parts come out; a response's parts go in and what the
//! server said comes out, in canonical form, or an error by name. Nothing here sends anything. What
//! a server says has limits, and is never believed before it is checked.

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
pub use read::ReplyHead;
pub(super) use read::StrayEvent;
pub(super) use rest::push_encoded;
pub use write::WrittenCall;

/// How a server is spoken to. Copied freely; what is reused from call to call is a
/// [`FormatBuffers`].
#[derive(Clone, Copy)]
pub struct Format {
    binding: Binding,
    generation: Generation,
    dialect: &'static Dialect,
}

impl Format {
    /// As the specification of this generation has it.
    pub fn standard(binding: Binding, generation: Generation) -> Format {
        Format { binding, generation, dialect: &dialect::STANDARD }
    }

    /// As a platform has it, by the name of its dialect (`docs/dialects.md`); `None`: there is no
    /// such dialect, or it does not speak this generation.
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

    /// How its answers are read.
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

/// Appends what was received in answer to `op` as the JSON of 1.0, whatever it came as: what a
/// server of 1.0 would have answered. `{}` for nothing.
pub fn push_json(out: &mut Vec<u8>, received: &Received, op: Op) {
    dialect::canonical::write(out, received, op);
}

/// What bounds single values, in the form in which readers of requests take it.
struct ValueLimits {
    limits: Limits,
    artifacts_max: usize,
    tasks_max: usize,
    is_strict: bool,
}

/// What readers use again from call to call: memory, and the client's limits.
pub struct FormatBuffers {
    parser: Parser,
    depth_max: usize,
    values: ValueLimits,
    patterns: AnswerPatterns,
    /// What came in messages of gRPC, as JSON.
    json: Vec<u8>,
    /// Bytes of the longest document that was parsed: the memory for it is some times as much.
    longest: usize,
}

impl FormatBuffers {
    /// Buffers within these limits.
    pub fn new(limits: &ClientLimits) -> FormatBuffers {
        let values = Limits {
            identifier_bytes_max: limits.identifier_bytes_max.min(usize::from(u16::MAX)),
            string_bytes_max: limits.string_bytes_max,
            parts_max: limits.parts_max,
            references_max: limits.references_max,
            ..Limits::default()
        };
        let mut parser = Parser::bounded(limits.json_tokens_max);
        parser.take_lone_surrogates(true);
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

    /// The same for readers that judge what a server says; see
    /// [`CallOptions::is_strict`](super::CallOptions::is_strict).
    pub(super) fn strict(mut self, is_strict: bool) -> FormatBuffers {
        self.values.is_strict = is_strict;
        self.parser.take_lone_surrogates(!is_strict);
        self
    }

    /// Whether the message of gRPC that was read last has no field that is known.
    pub(super) fn is_empty_message(&self) -> bool {
        self.json == b"{}"
    }

    /// Whether no document was longer than this, so that its memory is worth keeping.
    pub(crate) fn is_within(&self, bytes: usize) -> bool {
        self.longest <= bytes
    }
}

impl Default for FormatBuffers {
    fn default() -> FormatBuffers {
        FormatBuffers::new(&ClientLimits::default())
    }
}
