//! The delivery of an exchange's output to its sink, in order, and once it is durable.

use super::{Exchange, ExchangeState, ResponseSink};
use crate::{
    binding::{answer::ResponseWriter, responder::Transport},
    engine::{
        Cx,
        following::{FollowCx, Followed, follow},
    },
    http::{FieldLines, FieldLinesBuf},
};

impl Exchange {
    /// Writes the new events of the stream, and returns the record that they show.
    pub(super) fn follow_stream(&mut self, cx: &mut Cx<'_>) -> u64 {
        let ExchangeState::Streaming(stream) = &mut self.state else { return 0 };
        let room = cx.engine.limits().output_bytes_max.saturating_sub(cx.unsent);
        if room == 0 {
            return 0;
        }
        let mut writer = ResponseWriter::new(cx.out, Transport::Parts(&mut self.parts));
        let round = FollowCx { engine: cx.engine, now: cx.now, wake: cx.wake };
        let followed = follow(stream, round, &mut writer, room);
        let record = writer.record;
        match followed {
            Followed::Full => cx.wake.wake_by_ref(),
            Followed::Waits => {}
            Followed::Ended | Followed::Cut => self.state = ExchangeState::Written,
        }
        record
    }

    /// Holds back the output if it shows a record; only a server with a tap has records.
    pub(super) fn note_record(&mut self, cx: &mut Cx<'_>, record: u64) {
        if record > 0 && (!cx.out.is_empty() || self.parts.has_news()) {
            self.held = std::mem::take(cx.out);
            self.record = Some(record);
        }
    }

    /// True: no output is held back.
    pub(super) fn is_durable(&mut self, cx: &mut Cx<'_>) -> bool {
        let (Some(record), Some(tap)) = (self.record, &cx.engine.tap) else { return true };
        if !self.wait.is_durable(&**tap, record, cx.wake) {
            return false;
        }
        self.record = None;
        *cx.out = std::mem::take(&mut self.held);
        true
    }

    /// Passes all output to the sink.
    pub(super) fn deliver(&mut self, out: &mut Vec<u8>, sink: &mut dyn ResponseSink) {
        if let Some(head) = self.parts.take_head() {
            self.has_begun = true;
            sink.head(&head);
        }
        if !out.is_empty() {
            sink.content(out);
            out.clear();
        }
        if let ExchangeState::Written = self.state {
            self.state = ExchangeState::Done;
            sink.end(self.parts.end().map_or(FieldLines::NONE, FieldLinesBuf::get));
        }
    }
}
