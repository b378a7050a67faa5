//! A connection with an open stream.

use crate::{
    binding::{
        Handled,
        answer::ResponseWriter,
        responder::{Http1, Transport},
    },
    engine::following::{FollowCx, Followed, follow},
};

use super::{Conn, Cx, Next, State, Step};

impl Conn {
    /// Writes the new events of a stream, and its end.
    pub(super) fn streaming(&mut self, cx: &mut Cx<'_>, eof: bool) -> Step {
        let State::Streaming(stream) = &mut self.state else { return Step::Wait };
        // The stream of a disconnected subscriber ends; the task continues.
        if eof {
            return Step::Over(Next::Abort);
        }
        let room = cx.engine.limits().output_bytes_max.saturating_sub(cx.unsent);
        if cx.out.len() >= room && stream.is_admitted(cx.now, cx.wake) {
            return Step::Full;
        }
        let http = Http1::resume(self.retained, cx.worker.scratch.date.at(cx.now));
        let mut writer = ResponseWriter::new(cx.out, Transport::Http1(http));
        let round = FollowCx { engine: cx.engine, now: cx.now, wake: cx.wake };
        let followed = follow(stream, round, &mut writer, room);
        let (mut retained, record) = (writer.responder.http1_state(), writer.record);
        cx.worker.shows(record);
        match followed {
            Followed::Full => Step::Full,
            Followed::Waits => Step::Wait,
            Followed::Cut => Step::Over(Next::Close),
            Followed::Ended => {
                retained.closes |= cx.engine.is_draining();
                self.set_state(cx, Handled::Answered, retained);
                Step::Ate(0)
            }
        }
    }
}
