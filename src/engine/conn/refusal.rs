//! Requests that are refused before they are handled, and their CORS fields.

use std::net::IpAddr;

use super::{Conn, Cx, Next, State, Step};
use crate::{
    binding::{
        ServerConfig,
        answer::ResponseWriter,
        body_limit::RequestRefusal,
        cors::CorsAnswer,
        hosts, http_error,
        responder::{Http1, Http1ResponseState, Transport},
    },
    engine::{Engine, request},
    http::{FieldLines, Head, Method, Reject},
    service::{Peer, observe::RefusedRequest},
};

/// The refusal of the last request of a connection.
pub(super) struct HeadRefusal {
    refusal: RequestRefusal,
    /// True for a HEAD request.
    to_head: bool,
    /// The client's address, if its head names one.
    from: Option<IpAddr>,
}

impl Conn {
    /// Stores the CORS fields for a request with an accepted host.
    #[inline(always)]
    pub(super) fn note_page(&mut self, config: &ServerConfig, head: &Head<'_>) {
        if config.cors.is_on() {
            self.cors = config.cors.of(head);
        }
    }

    /// Refuses a request with a malformed or too large head, or a too large body.
    #[cold]
    pub(super) fn reject_head(&mut self, cx: &mut Cx<'_>, bytes: &[u8], reject: Reject) -> Step {
        self.cors = cx.engine.config.cors.of_refused(bytes);
        self.reject(cx, reject)
    }

    /// Refuses a request with a valid head if its host is not accepted (without CORS fields), or
    /// its body is too long.
    #[inline(always)]
    pub(super) fn refused_head(
        &mut self,
        engine: &Engine,
        peer: Peer<'_>,
        head: &Head<'_>,
        hosts_known: bool,
    ) -> Option<HeadRefusal> {
        if !hosts_known && !hosts::are_served(&engine.config, peer, head) {
            self.cors = CorsAnswer::NONE;
            let to_head = head.method() == Method::Head;
            let refusal = RequestRefusal::new(hosts::MISDIRECTED, hosts::REFUSAL);
            let from = request::asking(engine, peer, false).address(head);
            return Some(HeadRefusal { refusal, to_head, from });
        }
        let refusal = request::refused_length(engine, head)?;
        self.note_page(&engine.config, head);
        let from = request::asking(engine, peer, false).address(head);
        Some(HeadRefusal { refusal, to_head: false, from })
    }

    pub(in crate::engine) fn reject(&mut self, cx: &mut Cx<'_>, reject: Reject) -> Step {
        self.reject_with(cx, reject.into())
    }

    /// Answers input that is not HTTP or arrives too slowly; no input after it is parsed.
    pub(in crate::engine) fn reject_with(
        &mut self,
        cx: &mut Cx<'_>,
        refusal: RequestRefusal,
    ) -> Step {
        let from = match &self.state {
            State::Chunks(chunks) => {
                let head = chunks.layout.head(&chunks.head);
                request::asking(cx.engine, cx.peer, false).address(&head)
            }
            _ => cx.peer.remote,
        };
        self.refuse(cx, HeadRefusal { refusal, to_head: false, from })
    }

    /// Writes the last answer of the connection.
    #[cold]
    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>, refusal: HeadRefusal) -> Step {
        let HeadRefusal { refusal: RequestRefusal { status, why, limit }, to_head, from } = refusal;
        cx.engine.config.report_limit(cx.worker.scratch.call.worker, limit, None);
        let refused = RefusedRequest { peer: from, principal: None, status, reason: why, limit };
        cx.engine.config.report_refused(&refused);
        let retained = Http1ResponseState {
            closes: true,
            head_only: to_head,
            ..Http1ResponseState::default()
        };
        let http = Http1::resume(retained, cx.worker.scratch.date.at(cx.now));
        let mut writer = ResponseWriter::new(cx.out, Transport::Http1(http));
        writer.fields = cx.engine.config.cors.fields(self.cors);
        http_error::write(&mut writer, status, why, FieldLines::NONE);
        Step::Over(Next::Close)
    }
}
