//! Requests of which is not known yet who makes them, and those that are not let in.

use std::task::Poll;

use super::{Conn, Cx, Next, State, Step};
use crate::{
    auth::AuthRefusal,
    binding::admission::{ADMISSION_MS_MAX, Admitted, LATE},
    engine::request,
    http::Head,
};

impl Conn {
    /// Refuses a request, or lets it wait, at most [`ADMISSION_MS_MAX`] from `asked_ms` on.
    #[inline(never)]
    pub(super) fn not_admitted(
        &mut self,
        cx: &mut Cx<'_>,
        head: &Head<'_>,
        asked: Poll<Result<Admitted, AuthRefusal>>,
        asked_ms: Option<u64>,
    ) -> Step {
        let since_ms = asked_ms.unwrap_or(cx.now.mono_ms);
        match asked {
            Poll::Ready(Err(refusal)) => self.refuse_caller(cx, head, &refusal),
            Poll::Pending | Poll::Ready(Ok(_)) if cx.now.mono_ms < since_ms + ADMISSION_MS_MAX => {
                self.state = State::Admitting { since_ms };
                Step::Wait
            }
            Poll::Pending | Poll::Ready(Ok(_)) => self.refuse_caller(cx, head, &LATE),
        }
    }

    /// Writes the last answer of a connection whose request is known by its head, from a stranger
    /// whose body is not read.
    #[inline(never)]
    pub(in crate::engine) fn answer_unread(&mut self, cx: &mut Cx<'_>, head: &Head<'_>) -> Step {
        let tools = (cx.engine, &mut cx.worker.scratch, &mut *cx.out);
        request::handle_unread(tools, (cx.now, cx.wake, cx.peer), head);
        Step::Over(Next::Close)
    }

    /// Writes the last answer of a connection whose request is not let in: nothing behind its head
    /// is read.
    pub(in crate::engine) fn refuse_caller(
        &mut self,
        cx: &mut Cx<'_>,
        head: &Head<'_>,
        refusal: &AuthRefusal,
    ) -> Step {
        let tools = (cx.engine, &mut cx.worker.scratch, &mut *cx.out);
        request::refuse(tools, (cx.now, cx.wake, cx.peer), head, None, refusal);
        Step::Over(Next::Close)
    }
}
