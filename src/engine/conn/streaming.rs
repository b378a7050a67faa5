//! A connection with an open stream.

use crate::{binding::Handled, service::Follow};

use super::{Conn, Cx, Next, State, Step};

impl Conn {
    /// Writes what a stream has, and ends it.
    pub(super) fn streaming(&mut self, cx: &mut Cx<'_>, eof: bool) -> Step {
        let State::Streaming(pump) = &mut self.state else { return Step::Wait };
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
        let follow = pump.pump(cx.engine.service(), cx.wake, cx.out, room);
        if cx.out.len() > before {
            pump.wrote_ms = cx.now.mono_ms;
        }
        match follow {
            Follow::More => Step::Full,
            Follow::Pending if cx.engine.is_cut() => {
                pump.cut(cx.out);
                Step::Over(Next::Close)
            }
            Follow::Pending => {
                if cx.now.mono_ms >= pump.wrote_ms + limits.sse_keep_alive_ms {
                    pump.keep_alive(cx.out);
                    pump.wrote_ms = cx.now.mono_ms;
                }
                Step::Wait
            }
            Follow::End | Follow::Gone => {
                let close = pump.close;
                self.settle_into(cx, Handled::Answered, close);
                Step::Ate(0)
            }
        }
    }
}
