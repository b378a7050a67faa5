//! Large bodies, which wait for a parse slot; see `binding/large.rs`.

use super::{Conn, Cx, State, Step};
use crate::{
    binding::{
        admission::Admitted,
        large::{LARGE_BODY_BYTES, Lease, Lent},
    },
    engine::request::{self, Http1Handled, RequestCx},
    http::{Head, HeadLayout},
    json::Source,
};

/// Whether a complete body can be parsed.
pub(in crate::engine) enum ParseTurn {
    /// Yes, with the buffers of the worker.
    Small,
    /// Yes, with these buffers.
    Large(Box<Lease>),
    /// Not before the connection is woken.
    Later,
}

impl Conn {
    /// Whether a body of this length can be parsed now. If it waits, its time limit restarts. A
    /// compressed body counts as large.
    pub(in crate::engine) fn turn(
        &mut self,
        cx: &Cx<'_>,
        length: usize,
        is_coded: bool,
    ) -> ParseTurn {
        if length <= LARGE_BODY_BYTES && !is_coded {
            return ParseTurn::Small;
        }
        match cx.engine.config.large.take(&mut self.ticket, cx.wake) {
            Some(lease) => ParseTurn::Large(lease),
            None => {
                self.since_ms = cx.now.mono_ms;
                ParseTurn::Later
            }
        }
    }

    /// Handles a request with a large or compressed body that ends at `total`.
    ///
    /// Out of line, so that small bodies do not pay for it.
    #[inline(never)]
    pub(super) fn large(
        &mut self,
        cx: &mut Cx<'_>,
        rest: Source<'_>,
        layout: &HeadLayout,
        total: usize,
        admission: Admitted,
    ) -> Step {
        let head_len = layout.head_len();
        let head = layout.head(rest.bytes());
        if request::asking(cx.engine, cx.peer, false).ignores_body(&head, &admission) {
            return self.answer_unread(cx, &head);
        }
        let ParseTurn::Large(lease) = self.turn(cx, total - head_len, head.is_coded()) else {
            let need = u32::try_from(total).unwrap_or(u32::MAX);
            self.state = State::Reading { scanned: 0, need, continued: true };
            return Step::Wait;
        };
        let (head, body) = rest.split(head_len, total - head_len);
        let answered = Conn::respond(cx, Some(lease), &layout.head(head), body, admission);
        self.answered(cx, answered);
        Step::Ate(total)
    }

    /// Handles a request with a complete body; `lease`: the buffers for a large body.
    pub(in crate::engine) fn respond(
        cx: &mut Cx<'_>,
        lease: Option<Box<Lease>>,
        head: &Head<'_>,
        body: Source<'_>,
        admission: Admitted,
    ) -> Http1Handled {
        let at = RequestCx::of(cx, head);
        let mut lent = Lent::new(&mut cx.worker.scratch, lease, cx.now);
        request::handle(at, &mut lent, cx.out, body, admission)
    }
}
