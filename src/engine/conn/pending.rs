//! A connection with an answer that waits for its task.

use std::task::Poll;

use crate::binding::{
    Handled,
    answer::ResponseWriter,
    responder::{Http1, Transport},
};

use super::{Conn, Cx, Next, State, Step};

impl Conn {
    /// Polls the answer, and writes it if it is ready.
    pub(super) fn pending(&mut self, cx: &mut Cx<'_>, eof: bool) -> Step {
        let State::Pending(pending) = &mut self.state else { return Step::Wait };
        self.retained.closes |= cx.engine.is_draining();
        let http = Http1::resume(self.retained, cx.worker.scratch.date.at(cx.now));
        let mut writer = ResponseWriter::new(cx.out, Transport::Http1(http));
        let mut polled = pending.poll(cx.engine.service(), cx.now, cx.wake, &mut writer);
        if polled.is_pending() && cx.engine.is_cut() {
            pending.cut(&mut writer);
            polled = Poll::Ready(Handled::Answered);
        }
        let (retained, record) = (writer.responder.http1_state(), writer.record);
        cx.worker.shows(record);
        let Poll::Ready(handled) = polled else {
            // The head of a stream may have been sent.
            self.retained = retained;
            // Otherwise a disconnected caller would hold its slot until the task ends. A peer that
            // only shuts down writing cannot be distinguished; nginx, too, treats such a peer as
            // disconnected (499).
            return if eof { Step::Over(Next::Abort) } else { Step::Wait };
        };
        self.set_state(cx, handled, retained);
        Step::Ate(0)
    }
}
