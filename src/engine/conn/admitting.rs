//! Requests that wait for authentication, and their refusals.

use std::task::Poll;

use super::{Conn, Cx, Next, State, Step};
use crate::{
    auth::{AuthRefusal, NotAdmitted, RefusalDelay},
    binding::admission::{Admitted, LATE},
    engine::request::{self, RequestCx},
    http::{Found, Head},
    json::Source,
    limits::callers::ADMISSION_MS_MAX,
};

/// A delayed refusal.
pub(in crate::engine) struct LateRefusal {
    refusal: AuthRefusal,
    pub(super) delay: RefusalDelay,
}

impl Conn {
    /// Refuses a request, or lets it wait until [`ADMISSION_MS_MAX`] after `admitting_ms`.
    #[inline(never)]
    pub(super) fn not_admitted(
        &mut self,
        cx: &mut Cx<'_>,
        head: &Head<'_>,
        admission: Poll<Result<Admitted, NotAdmitted>>,
        admitting_ms: Option<u64>,
    ) -> Step {
        let since_ms = admitting_ms.unwrap_or(cx.now.mono_ms);
        match admission {
            Poll::Ready(Err(NotAdmitted { refusal, delay: Some(delay), .. })) => {
                self.state = State::Refusing(Box::new(LateRefusal { refusal, delay }));
                Step::Wait
            }
            Poll::Ready(Err(NotAdmitted { refusal, delay: None, .. })) => {
                self.refuse_caller(cx, head, &refusal)
            }
            Poll::Pending | Poll::Ready(Ok(_)) if cx.now.mono_ms < since_ms + ADMISSION_MS_MAX => {
                self.state = State::Admitting { since_ms };
                Step::Wait
            }
            Poll::Pending | Poll::Ready(Ok(_)) => self.refuse_caller(cx, head, &LATE),
        }
    }

    /// Refuses a wrong key after its delay.
    pub(super) fn refuse_late(&mut self, cx: &mut Cx<'_>, rest: Source<'_>, eof: bool) -> Step {
        let State::Refusing(late) = &self.state else { return Step::Wait };
        if eof {
            return Step::Over(Next::Abort);
        }
        if cx.now.mono_ms < late.delay.due_ms {
            return Step::Wait;
        }
        let refusal = late.refusal;
        // The head is complete, and was parsed successfully before.
        let Ok(Found::Complete(layout)) = cx.worker.heads.read(rest.bytes(), 0, |_, _| true) else {
            return Step::Over(Next::Abort);
        };
        let layout = *layout;
        self.refuse_caller(cx, &layout.head(rest.bytes()), &refusal)
    }

    /// Writes the last answer of a connection for a request without authentication: its body is not
    /// read.
    #[inline(never)]
    pub(in crate::engine) fn answer_unread(&mut self, cx: &mut Cx<'_>, head: &Head<'_>) -> Step {
        request::handle_unread(RequestCx::of(cx, head), &mut cx.worker.scratch, cx.out);
        Step::Over(Next::Close)
    }

    /// Writes the last answer of a connection for a request that is not admitted: no input after
    /// its head is read.
    pub(in crate::engine) fn refuse_caller(
        &mut self,
        cx: &mut Cx<'_>,
        head: &Head<'_>,
        refusal: &AuthRefusal,
    ) -> Step {
        let at = RequestCx::of(cx, head);
        request::refuse(at, &mut cx.worker.scratch, cx.out, None, refusal);
        Step::Over(Next::Close)
    }
}
