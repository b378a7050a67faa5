//! A call of an upstream agent: the permit that the call holds until its answer begins, and its
//! metrics.

use crate::{
    client::{Client, ClientError, Transport},
    fault::Fault,
    service::upstream::{UpstreamCall, UpstreamOutcome},
};

use super::fault::{fault_of_call, outcome_of};

/// A call of the upstream agent for one message.
pub struct RelayedCall<P> {
    _permit: P,
    counted: UpstreamCall,
}

impl<P> RelayedCall<P> {
    /// A call that is sent now; `permit` is dropped when its answer begins.
    pub fn new(permit: P, mut counted: UpstreamCall) -> RelayedCall<P> {
        counted.send();
        RelayedCall { _permit: permit, counted }
    }

    /// Records that the answer has begun; returns the counter of its stream.
    pub(super) fn answered(mut self) -> UpstreamCall {
        self.counted.answered();
        self.counted
    }

    /// Records that the call has ended without an answer.
    pub fn end(&mut self, outcome: UpstreamOutcome) {
        self.counted.end(outcome);
    }

    /// Records that the call of this client has failed; returns the fault for the caller.
    pub(super) fn failed<T: Transport>(
        &mut self,
        client: &Client<T>,
        error: &ClientError,
    ) -> Fault {
        self.counted.end(outcome_of(error));
        fault_of_call(client, error)
    }
}
