//! Requests that are refused before they are handled, and the page that may read why.

use super::{Conn, Cx, Next, Step};
use crate::{
    binding::{
        ServerConfig,
        answer::ResponseWriter,
        cors::CorsAnswer,
        hosts, http_error,
        responder::{Http1, Http1Kept, Transport},
    },
    http::{Head, Reject},
};

impl Conn {
    /// Notes what is said to the page of a request, whose host is known.
    #[inline(always)]
    pub(super) fn note_page(&mut self, config: &ServerConfig, head: &Head<'_>) {
        if config.cors.is_on() {
            self.cors = config.cors.of(head);
        }
    }

    /// Refuses the head that begins here: it is none, or is too large itself or by its body.
    #[cold]
    pub(super) fn reject_head(&mut self, cx: &mut Cx<'_>, bytes: &[u8], reject: Reject) -> Step {
        self.cors = cx.engine.config.cors.of_refused(bytes);
        self.reject(cx, reject)
    }

    /// Refuses a request for a host that is not ours: no page is told anything.
    #[cold]
    pub(super) fn misdirected(&mut self, cx: &mut Cx<'_>, head_only: bool) -> Step {
        self.cors = CorsAnswer::NONE;
        self.refuse(cx, hosts::MISDIRECTED, hosts::REFUSAL, head_only)
    }

    pub(in crate::engine) fn reject(&mut self, cx: &mut Cx<'_>, reject: Reject) -> Step {
        self.reject_with(cx, reject.status(), reject.reason())
    }

    /// Answers what is not HTTP, or comes too slowly; nothing behind it is ever parsed.
    pub(in crate::engine) fn reject_with(
        &mut self,
        cx: &mut Cx<'_>,
        status: u16,
        reason: &'static str,
    ) -> Step {
        self.refuse(cx, status, reason, false)
    }

    /// Writes the last answer of the connection.
    fn refuse(&mut self, cx: &mut Cx<'_>, status: u16, why: &'static str, to_head: bool) -> Step {
        let kept = Http1Kept { closes: true, head_only: to_head, ..Http1Kept::default() };
        let http = Http1::resume(kept, cx.worker.scratch.date.at(cx.now));
        let mut writer = ResponseWriter::new(cx.out, Transport::Http1(http));
        writer.fields = cx.engine.config.cors.fields(self.cors);
        http_error::answer(&mut writer, status, why);
        Step::Over(Next::Close)
    }
}
