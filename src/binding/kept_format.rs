//! The format of an answer that is written after its request was dropped.

use crate::{
    binding::{answer::AnswerFormat, envelope::Envelope},
    dialect::WriteCx,
};

/// An [`AnswerFormat`] that outlives its request.
pub struct RetainedFormat {
    id: Option<Box<[u8]>>,
    task_id: Box<[u8]>,
    format: AnswerFormat<'static>,
}

impl AnswerFormat<'_> {
    /// A copy that outlives the request.
    pub fn keep(&self) -> RetainedFormat {
        let (id, envelope) = match self.envelope {
            Envelope::Rpc(id) => (Some(id.into()), Envelope::Bare),
            Envelope::Bare => (None, Envelope::Bare),
            Envelope::Grpc { in_json } => (None, Envelope::Grpc { in_json }),
        };
        let task_id = self.write.task_id.into();
        let write = WriteCx { task_id: b"", ..self.write };
        let AnswerFormat { method, encode, media, fields, status, .. } = *self;
        let AnswerFormat { events, refuses_by_stream, .. } = *self;
        let format = AnswerFormat {
            envelope,
            method,
            encode,
            write,
            media,
            fields,
            status,
            events,
            refuses_by_stream,
        };
        RetainedFormat { id, task_id, format }
    }
}

impl RetainedFormat {
    /// The original format.
    #[inline]
    pub fn get(&self) -> AnswerFormat<'_> {
        let envelope = self.id.as_deref().map_or(self.format.envelope, Envelope::Rpc);
        let write = WriteCx { task_id: &self.task_id, ..self.format.write };
        AnswerFormat { envelope, write, ..self.format }
    }

    /// Bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        self.id.as_ref().map_or(0, |id| id.len()) + self.task_id.len()
    }
}
