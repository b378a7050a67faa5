//! Bodies on their way: of known length, which wait in the input, and chunked ones, which are
//! eaten as they come. Both must move on within every `body_idle_ms`.

use super::{
    conn::{Conn, Cx, FRESH, State, Step},
    request,
};
use crate::{
    engine::Next,
    http::{Chunked, HeadLayout, response},
    json::Source,
};

/// A chunked body on its way.
pub(super) struct Chunks {
    head: Vec<u8>,
    layout: HeadLayout,
    body: Vec<u8>,
    decoder: Chunked,
}

impl Chunks {
    /// Bytes of buffers that are held.
    pub(super) fn held_bytes(&self) -> usize {
        self.head.capacity() + self.body.capacity()
    }
}

impl Conn {
    /// True when a window of `body_idle_ms` passed without enough new input.
    pub(super) fn body_stalls(&mut self, cx: &Cx<'_>, seen: u64) -> bool {
        let limits = cx.engine.limits();
        if cx.now.mono_ms.saturating_sub(self.since_ms) < limits.body_idle_ms {
            return false;
        }
        let progress = seen.saturating_sub(self.seen);
        self.since_ms = cx.now.mono_ms;
        self.seen = seen;
        progress < limits.body_progress_bytes_min as u64
    }

    pub(super) fn begin_body(
        &mut self,
        cx: &mut Cx<'_>,
        rest: &[u8],
        layout: &HeadLayout,
        end: request::BodyEnd,
        eof: bool,
        continued: bool,
    ) -> Step {
        let head_len = layout.head_len();
        if layout.head(rest).expect_continue() && !continued && rest.len() == head_len {
            cx.out.extend_from_slice(response::CONTINUE);
        }
        self.since_ms = cx.now.mono_ms;
        self.seen = rest.len() as u64;
        match end {
            request::BodyEnd::At(total) => {
                // A head and a body of the largest limit that a setup may have fit 32 bits.
                let need = u32::try_from(total).unwrap_or(u32::MAX);
                self.state = State::Reading { scanned: 0, need, continued: true };
                self.not_yet(cx, rest.len(), total, eof)
            }
            request::BodyEnd::Chunked => {
                let decoder = Chunked::new(request::chunk_limits(cx.engine.limits()));
                let (head, layout, body) = (rest[..head_len].to_vec(), *layout, Vec::new());
                (self.seen, self.eaten) = (0, 0);
                self.state = State::Chunks(Box::new(Chunks { head, layout, body, decoder }));
                Step::Ate(head_len)
            }
        }
    }

    /// Eats a chunked body and handles the request when it is complete.
    pub(super) fn chunks(&mut self, cx: &mut Cx<'_>, rest: &[u8], eof: bool) -> Step {
        let State::Chunks(chunks) = &mut self.state else { return Step::Wait };
        let step = match chunks.decoder.advance(rest, &mut chunks.body) {
            Err(reject) => return self.reject(cx, reject),
            Ok(step) => step,
        };
        self.eaten += step.consumed as u64;
        if !step.done {
            let eaten = self.eaten;
            if eof {
                return Step::Over(Next::Close);
            }
            if self.body_stalls(cx, eaten) {
                return self.reject_with(cx, 408, "the body took too long");
            }
            return if step.consumed > 0 { Step::Ate(step.consumed) } else { Step::Wait };
        }
        let State::Chunks(chunks) = std::mem::replace(&mut self.state, FRESH) else {
            return Step::Wait;
        };
        let head = chunks.layout.head(&chunks.head);
        let close = !head.keep_alive();
        let tools = (cx.engine, &mut cx.worker.scratch, &mut *cx.out);
        let handled = request::handle(
            request::exchange(tools, (cx.now, cx.wake, cx.peer), &head),
            Source::from(&chunks.body),
        );
        self.settle_into(cx, handled, close);
        Step::Ate(step.consumed)
    }
}
