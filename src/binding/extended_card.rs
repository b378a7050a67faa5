//! The extended card, requested by a call, or by a GET at its path in 0.2.
//!
//! Invariant: each caller sees the skills that its scopes allow, so the card is rendered for each
//! request, and HTTP caches may not reuse it.

use std::borrow::Cow;

use crate::{
    binding::{
        CallContext, Endpoint, Handled,
        answer::AnswerFormat,
        cards::{self, CardEndpoint},
        http_error,
        origin::Origin,
    },
    dialect::{self, card::CardForm},
    fault::Fault,
    http::{Head, entity_tag, media},
    model::{Call, Op},
    service::principal::ScopeSet,
};

/// Answers GET and HEAD for the extended card of 0.2 (wire §7.1), after the checks of the call.
pub fn answer<'x>(cx: &mut CallContext<'x>, head: &'x Head<'x>) {
    if !cx.config.extended_card {
        return http_error::answer(cx, 404, cards::NO_EXTENDED);
    }
    let (config, endpoint) = (cx.config, cx.endpoint);
    cx.agent = endpoint.agent;
    // No call is decoded here, so the scratch has the tenant of an earlier call.
    cx.scratch.tenant.clear();
    if let Err(fault) = cx.address(None) {
        return http_error::refuse(cx, &fault);
    }
    let checked = if cx.needs_checks() { cx.check_call(Op::ExtendedCard) } else { Ok(()) };
    cx.name_share();
    if let Err(fault) = checked {
        return http_error::refuse(cx, &fault);
    }
    let Some(profile) = cx.service.profile(endpoint.agent) else {
        return http_error::answer(cx, 404, "no such agent");
    };
    let origin = Origin::of(config, cx.peer, head);
    let at = CardEndpoint { config, origin: &origin, endpoint, base: cx.base };
    let card = cards::body(&profile, cx.scopes(), at, CardForm::V03);
    let validators = cards::Validators::of_caller(config, entity_tag::etag(&card));
    cards::send_validated(cx, head, &validators, media::JSON, &card);
}

impl<'x> CallContext<'x> {
    /// The scopes of the caller; `None`: the caller is not authenticated.
    pub(super) fn scopes(&self) -> Option<&ScopeSet> {
        self.admission.as_ref().map(|admission| admission.principal.scopes())
    }

    /// The endpoint of the called agent, and the path of the endpoint.
    fn own_endpoint(&self) -> (Endpoint, Cow<'x, str>) {
        if self.agent == self.endpoint.agent {
            return (self.endpoint, self.base.into());
        }
        let name = self.service.profile(self.agent).map(|profile| profile.name.clone());
        let base = format!("/agents/{}", name.unwrap_or_default());
        (Endpoint::own(&dialect::STANDARD, self.agent), base.into())
    }

    /// A2A 1.0 §3.1.11: answers with the card in the format of the caller's generation alone.
    pub(super) fn answer_card(&mut self, format: &AnswerFormat<'_>) -> Handled {
        match self.extended_card(format) {
            Ok(card) => {
                self.writer.whole(format, &card);
                let details = self.details(&Call::ExtendedCard);
                self.ended(Some(Op::ExtendedCard), format, None, details);
            }
            Err(fault) => self.refuse_call(Some(Op::ExtendedCard), format, &fault),
        }
        Handled::Answered
    }

    pub(super) fn extended_card(&self, format: &AnswerFormat<'_>) -> Result<Vec<u8>, Fault> {
        let (endpoint, base) = self.own_endpoint();
        let (config, origin) = (self.config, self.origin());
        let at = CardEndpoint { config, origin: &origin, endpoint, base: &base };
        cards::extended(self.service, self.scopes(), at, format)
    }
}
