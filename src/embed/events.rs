//! Events of the program: members of a `StreamResponse` of A2A 1.0, in protocol buffers or JSON.

use std::cell::RefCell;

use crate::{
    client::{
        StreamEvent,
        format::{Format, FormatBuffers},
    },
    engine::Binding,
    model::{Generation, Op, Received},
    pb::Writer,
};

use super::HostError;

/// The kind of an event: the number of its field in `StreamResponse` (A2A 1.0, `a2a.proto`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventField {
    /// A `Task`.
    Task = 1,
    /// A `Message`.
    Message = 2,
    /// A `TaskStatusUpdateEvent`.
    StatusUpdate = 3,
    /// A `TaskArtifactUpdateEvent`.
    ArtifactUpdate = 4,
}

impl EventField {
    /// The field with this number.
    pub fn of(number: u32) -> Option<EventField> {
        let all = [
            EventField::Task,
            EventField::Message,
            EventField::StatusUpdate,
            EventField::ArtifactUpdate,
        ];
        all.into_iter().find(|field| *field as u32 == number)
    }
}

/// Buffers with more bytes are freed after use.
const RETAINED_BYTES_MAX: usize = 256 * 1024;

/// Reads events, reusing its buffers.
#[derive(Default)]
struct EventReader {
    buffers: FormatBuffers,
    received: Received,
    message: Vec<u8>,
}

thread_local! {
    static READER: RefCell<EventReader> = RefCell::default();
}

/// Decodes an event from protocol buffers and passes it to `then`.
///
/// # Errors
/// [`HostError::Event`], and the errors of `then`.
pub(super) fn with_protobuf<R>(
    field: EventField,
    bytes: &[u8],
    then: impl FnOnce(StreamEvent<'_>) -> Result<R, HostError>,
) -> Result<R, HostError> {
    with_reader(|reader| {
        let EventReader { buffers, received, message } = reader;
        message.clear();
        Writer(message).bytes(field as u32, bytes);
        let format = Format::standard(Binding::Grpc, Generation::V1);
        format.read_message(buffers, Op::Stream, message, received)?;
        then(event_of(received)?)
    })
}

/// Decodes an event from the JSON of a `StreamResponse` and passes it to `then`.
///
/// # Errors
/// [`HostError::Event`], and the errors of `then`.
pub(super) fn with_json<R>(
    json: &[u8],
    then: impl FnOnce(StreamEvent<'_>) -> Result<R, HostError>,
) -> Result<R, HostError> {
    with_reader(|reader| {
        let EventReader { buffers, received, .. } = reader;
        let format = Format::standard(Binding::HttpJson, Generation::V1);
        format.read_item(buffers, 0, json, false, received)?;
        then(event_of(received)?)
    })
}

fn event_of(received: &Received) -> Result<StreamEvent<'_>, HostError> {
    const WHY: &str = "the event must be a task, a message or an update";
    let event = StreamEvent::received(received, None, b"");
    event.ok_or_else(|| HostError::Event(WHY.to_owned()))
}

fn with_reader<R>(
    read: impl FnOnce(&mut EventReader) -> Result<R, HostError>,
) -> Result<R, HostError> {
    READER.with_borrow_mut(|reader| {
        let result = read(reader);
        if !reader.buffers.is_within(RETAINED_BYTES_MAX)
            || reader.message.capacity() > RETAINED_BYTES_MAX
        {
            *reader = EventReader::default();
        }
        result
    })
}
