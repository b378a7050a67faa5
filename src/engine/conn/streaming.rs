//! A connection with an open stream.

use crate::{
    binding::{
        Handled,
        answer::ResponseWriter,
        responder::{Http1, Transport},
    },
    service::Follow,
};

use super::{Conn, Cx, Next, State, Step};

impl Conn {
    /// Writes what a stream has, and ends it.
    pub(super) fn streaming(&mut self, cx: &mut Cx<'_>, eof: bool) -> Step {
        let State::Streaming(stream) = &mut self.state else { return Step::Wait };
        // A subscriber that leaves costs nothing more; its task runs on.
        if eof {
            return Step::Over(Next::Abort);
        }
        let limits = cx.engine.limits();
        let room = limits.output_bytes_max.saturating_sub(cx.unsent);
        if cx.out.len() >= room {
            return Step::Full;
        }
        let before = cx.out.len();
        let http = Http1::resume(self.kept, cx.worker.scratch.date.at(cx.now));
        let mut writer = ResponseWriter::new(cx.out, Transport::Http1(http));
        let follow = stream.poll(cx.engine.service(), cx.wake, &mut writer, room);
        if writer.out.len() > before {
            stream.wrote_ms = cx.now.mono_ms;
        }
        match follow {
            Follow::More => Step::Full,
            Follow::Pending if cx.engine.is_cut() => {
                stream.cut(&mut writer);
                Step::Over(Next::Close)
            }
            Follow::Pending => {
                if cx.now.mono_ms >= stream.wrote_ms + limits.sse_keep_alive_ms {
                    stream.keep_alive(&mut writer);
                    stream.wrote_ms = cx.now.mono_ms;
                }
                Step::Wait
            }
            Follow::End | Follow::Gone => {
                let mut kept = writer.responder.kept();
                kept.closes |= cx.engine.is_draining();
                self.set_state(cx, Handled::Answered, kept);
                Step::Ate(0)
            }
        }
    }
}
