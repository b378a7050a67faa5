//! Request bodies in progress: bodies of known length, which wait in the input, and chunked bodies,
//! which are decoded as they arrive. Both kinds must make progress within every `body_idle_ms`.

use super::{
    conn::{Conn, Cx, FRESH, ParseTurn, State, Step},
    request,
};
use crate::binding::body_limit::RequestRefusal;
use crate::{
    binding::{
        admission::{Admitted, ENDED},
        body_limit::BodyLimit,
    },
    engine::Next,
    http::{Chunked, HeadLayout, Reject, SecretBytes, response},
    json::Source,
};

/// A chunked body in progress.
pub(super) struct Chunks {
    pub(super) head: SecretBytes,
    pub(super) layout: HeadLayout,
    body: Vec<u8>,
    decoder: Chunked,
    /// The size limit of the body.
    limit: BodyLimit,
    /// Input bytes decoded so far.
    eaten: u64,
    /// True: the body is complete, and waits for a parse slot.
    is_whole: bool,
    /// The caller.
    admission: Admitted,
}

impl Chunks {
    /// Bytes of the buffers.
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
        admission: Admitted,
    ) -> Step {
        let head_len = layout.head_len();
        let asking = request::asking(cx.engine, cx.peer, false);
        if asking.ignores_body(&layout.head(rest), &admission) {
            return self.answer_unread(cx, &layout.head(rest));
        }
        let continued = matches!(self.state, State::Reading { continued: true, .. });
        if layout.head(rest).expect_continue() && !continued && rest.len() == head_len {
            cx.out.extend_from_slice(response::CONTINUE);
        }
        self.since_ms = cx.now.mono_ms;
        self.seen = rest.len() as u64;
        match end {
            request::BodyEnd::At(total) => {
                // A head and a body at the largest configurable limits fit 32 bits.
                let need = u32::try_from(total).unwrap_or(u32::MAX);
                self.state = State::Reading { scanned: 0, need, continued: true };
                self.not_yet(cx, rest.len(), total, eof)
            }
            request::BodyEnd::Chunked => {
                let limit = request::body_limit(cx.engine, &layout.head(rest));
                let decoder = Chunked::new(request::chunk_limits(cx.engine.limits(), limit));
                let is_secret = cx.engine.config.access.gate.is_some();
                let head = SecretBytes::new(rest[..head_len].to_vec(), is_secret);
                let (layout, body) = (*layout, Vec::new());
                self.seen = 0;
                let (eaten, is_whole) = (0, false);
                let chunks =
                    Chunks { head, layout, body, decoder, limit, eaten, is_whole, admission };
                self.state = State::Chunks(Box::new(chunks));
                Step::Ate(head_len)
            }
        }
    }

    /// Decodes a chunked body and handles the request when it is complete.
    pub(super) fn chunks(&mut self, cx: &mut Cx<'_>, rest: &[u8], eof: bool) -> Step {
        let State::Chunks(chunks) = &mut self.state else { return Step::Wait };
        if chunks.is_whole {
            return self.handle_chunks(cx, 0);
        }
        let step = match chunks.decoder.advance(rest, &mut chunks.body) {
            Err(Reject::BodyTooLarge) => {
                let refusal = chunks.limit.too_large();
                return self.reject_with(cx, refusal);
            }
            Err(reject) => return self.reject(cx, reject),
            Ok(step) => step,
        };
        chunks.eaten += step.consumed as u64;
        if !step.done {
            let eaten = chunks.eaten;
            if eof {
                return Step::Over(Next::Close);
            }
            if self.body_stalls(cx, eaten) {
                return self.reject_with(cx, RequestRefusal::SLOW_BODY);
            }
            return if step.consumed > 0 { Step::Ate(step.consumed) } else { Step::Wait };
        }
        chunks.is_whole = true;
        self.handle_chunks(cx, step.consumed)
    }

    /// Handles the request of a chunked body after its last `ate` bytes.
    fn handle_chunks(&mut self, cx: &mut Cx<'_>, ate: usize) -> Step {
        let State::Chunks(chunks) = &self.state else { return Step::Wait };
        let is_coded = chunks.layout.head(&chunks.head).is_coded();
        let lease = match self.turn(cx, chunks.body.len(), is_coded) {
            ParseTurn::Small => None,
            ParseTurn::Large(lease) => Some(lease),
            ParseTurn::Later => return Step::Rest(ate, true),
        };
        let State::Chunks(chunks) = std::mem::replace(&mut self.state, FRESH) else {
            return Step::Wait;
        };
        let (head, body) = (chunks.layout.head(&chunks.head), Source::from(&chunks.body));
        // The credential may have expired while the body arrived.
        if chunks.admission.as_ref().is_some_and(|admission| !admission.holds(cx.now)) {
            return self.refuse_caller(cx, &head, &ENDED);
        }
        let answered = Conn::respond(cx, lease, &head, body, chunks.admission);
        self.answered(cx, answered);
        Step::Ate(ate)
    }
}
