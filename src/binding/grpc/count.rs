//! The event numbers of a stream over gRPC.
//!
//! Invariant: a message has no field for an event number, so the subscriber counts from the number
//! of the first event, which is in the head of the answer; numbers increase by one. A stream that
//! resumes before the replay window begins with a snapshot. A subscriber that needs a snapshot
//! later is disconnected, and must subscribe again.

use crate::{
    binding::{
        answer::{AnswerFormat, ResponseWriter},
        responder::{Content, Responder},
    },
    http::FieldLinesBuf,
    service::Cursor,
};

/// The count of a subscriber's events.
pub struct EventCount {
    /// The number of the next event.
    next: u64,
    /// The number of the first event, once this event is counted.
    first: Option<u64>,
    /// The fields of the head, until the head is written.
    head: Option<FieldLinesBuf>,
}

impl EventCount {
    /// The count of a stream that continues at `cursor`; `fields`: the fields of its head.
    pub fn new(cursor: &Cursor, fields: FieldLinesBuf) -> EventCount {
        let next = cursor.seq + u64::from(!cursor.snapshot);
        EventCount { next, first: None, head: Some(fields) }
    }

    /// Counts an event; `number`: its number, if it has one. False: the subscriber would count
    /// wrong.
    #[inline(always)]
    pub fn counts(&mut self, number: Option<u64>) -> bool {
        let number = number.unwrap_or(self.next);
        if self.first.is_none() {
            (self.first, self.next) = (Some(number), number);
        }
        let is_next = number == self.next;
        self.next += u64::from(is_next);
        is_next
    }

    /// True: the head is not written yet.
    pub fn has_no_head(&self) -> bool {
        self.head.is_some()
    }

    /// Writes the head, if it is not written, before the events in the output from `start` on.
    pub fn write_head(
        &mut self,
        writer: &mut ResponseWriter<'_>,
        format: &AnswerFormat<'_>,
        start: usize,
    ) {
        let Some(mut fields) = self.head.take() else { return };
        let mut events = match start {
            0 => std::mem::take(writer.out),
            start => writer.out.split_off(start),
        };
        fields.push("a2a-event-id", &self.first.unwrap_or(self.next).to_string());
        writer.begin(200, format.media, fields.get(), Content::Stream);
        let ResponseWriter { out, responder, .. } = writer;
        responder.piece(out, &mut |out| match out.is_empty() {
            true => std::mem::swap(out, &mut events),
            false => out.append(&mut events),
        });
    }

    /// Bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        self.head.as_ref().map_or(0, FieldLinesBuf::held_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Cursor;

    fn count(seq: u64, snapshot: bool, numbers: &[Option<u64>]) -> (Vec<bool>, u64) {
        let cursor = Cursor { seq, snapshot, ..Cursor::default() };
        let mut count = EventCount::new(&cursor, FieldLinesBuf::default());
        assert!(count.has_no_head());
        let counted = numbers.iter().map(|number| count.counts(*number)).collect();
        (counted, count.first.unwrap_or(count.next))
    }

    #[test]
    fn consecutive_event_numbers_are_counted_from_first() {
        assert_eq!(count(3, true, &[Some(3), Some(4), Some(5)]), (vec![true; 3], 3));
        assert_eq!(count(3, false, &[Some(4), Some(5)]), (vec![true; 2], 4));
        // A subscriber that resumes before the window always begins with a snapshot.
        assert_eq!(count(3, false, &[Some(90), Some(91)]), (vec![true; 2], 90));
        // No event was sent yet.
        assert_eq!(count(3, true, &[]), (vec![], 3));
        assert_eq!(count(3, false, &[]), (vec![], 4));
    }

    #[test]
    fn gap_in_event_numbers_is_detected() {
        assert_eq!(count(3, false, &[Some(4), Some(6)]), (vec![true, false], 4));
        assert_eq!(count(3, false, &[Some(4), None, Some(6)]), (vec![true; 3], 4));
    }
}
