//! A connection whose answer waits for its task.

use std::task::Poll;

use crate::binding::{
    Handled,
    answer::ResponseWriter,
    responder::{Http1, Transport},
};

use super::{Conn, Cx, Next, State, Step};

impl Conn {
    /// Asks again for the answer, and writes it if it is there.
    pub(super) fn pending(&mut self, cx: &mut Cx<'_>, eof: bool) -> Step {
        let State::Pending(pending) = &mut self.state else { return Step::Wait };
        self.kept.closes |= cx.engine.is_draining();
        let http = Http1::resume(self.kept, cx.worker.scratch.date.at(cx.now));
        let mut writer = ResponseWriter::new(cx.out, Transport::Http1(http));
        let mut polled = pending.poll(cx.engine.service(), (cx.now, cx.wake), &mut writer);
        if polled.is_pending() && cx.engine.is_cut() {
            pending.cut(&mut writer);
            polled = Poll::Ready(Handled::Answered);
        }
        let (kept, record) = (writer.responder.kept(), writer.record);
        cx.worker.shows(record);
        let Poll::Ready(handled) = polled else {
            // The head of a stream may have left.
            self.kept = kept;
            // A caller that left would hold its place until the task ends. One that only ended its
            // side looks the same; nginx, too, takes it for gone (499).
            return if eof { Step::Over(Next::Abort) } else { Step::Wait };
        };
        self.set_state(cx, handled, kept);
        Step::Ate(0)
    }
}
