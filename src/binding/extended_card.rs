//! The card for callers that are known, as the answer of a call.

use std::borrow::Cow;

use crate::{
    binding::{CallContext, Endpoint, Handled, answer::AnswerFormat, cards::extended},
    dialect,
    fault::Fault,
    model::{Call, Op},
};

impl<'x> CallContext<'x> {
    /// A2A 1.0 §3.1.11: the card in the pure form of the caller's generation.
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
        let (service, config) = (self.service, self.config);
        let (endpoint, base) = self.own_endpoint();
        extended(service, config, &self.origin(), endpoint, &base, format)
    }

    /// The endpoint of the agent that is meant, and its path.
    fn own_endpoint(&self) -> (Endpoint, Cow<'x, str>) {
        if self.agent == self.endpoint.agent {
            return (self.endpoint, self.base.into());
        }
        let name = self.service.profile(self.agent).map(|profile| profile.name.clone());
        let base = format!("/agents/{}", name.unwrap_or_default());
        (Endpoint::own(&dialect::STANDARD, self.agent), base.into())
    }
}
