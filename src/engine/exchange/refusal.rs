//! The answer to a request that is refused before it is handled, and its CORS fields.

use super::{Exchange, ExchangeState};
use crate::binding::body_limit::RequestRefusal;
use crate::{
    binding::{
        ServerConfig,
        answer::ResponseWriter,
        cors::CorsAnswer,
        grpc::{self, Status},
        hosts, http_error,
        responder::Transport,
    },
    engine::Cx,
    http::{FieldLines, HeadBuf, PartsReject},
    service::{Peer, observe::RefusedRequest},
};

/// The CORS fields for a request; no fields if its host is not accepted.
pub(super) fn page(
    config: &ServerConfig,
    peer: Peer<'_>,
    read: &Result<HeadBuf, PartsReject>,
) -> CorsAnswer {
    if !config.cors.is_on() {
        return CorsAnswer::NONE;
    }
    match read {
        Ok(head) if head.has_known_hosts() || hosts::are_served(config, peer, &head.head()) => {
            config.cors.of(&head.head())
        }
        Ok(_) => CorsAnswer::NONE,
        Err(refused) => config.cors.of_origin(refused.origin.as_deref()),
    }
}

impl Exchange {
    /// Writes the answer to a refused request.
    #[cold]
    pub(super) fn answer_refused(&mut self, cx: &mut Cx<'_>, refusal: RequestRefusal) {
        let RequestRefusal { status, why, limit } = refusal;
        cx.engine.config.report_limit(cx.worker.scratch.call.worker, limit, None);
        let peer = self.forwarded.or(cx.peer.remote);
        let refused = RefusedRequest { peer, principal: None, status, reason: why, limit };
        cx.engine.config.report_refused(&refused);
        let mut writer = ResponseWriter::new(cx.out, Transport::Parts(&mut self.parts));
        writer.fields = cx.engine.config.cors.fields(self.cors);
        match self.is_grpc {
            true => _ = grpc::refuse(&mut writer, &Status::of_http(status, why)),
            false => http_error::write(&mut writer, status, why, FieldLines::NONE),
        }
        self.state = ExchangeState::Written;
    }
}
