//! Metrics of the agents with an upstream.

use std::sync::Arc;

use crate::service::upstream::{UpstreamCallKind, UpstreamGauges, UpstreamMeter, UpstreamOutcome};

use super::families::{Family, FamilyKind};

/// The families of these agents; empty without agents.
pub(in crate::net) fn families(upstreams: &[(String, Arc<UpstreamMeter>)]) -> Vec<Family> {
    if upstreams.is_empty() {
        return Vec::new();
    }
    let help = "Calls of the upstream of an agent by outcome: messages until the answer begins, \
                resumed streams, cancels";
    let mut requests = Family::new(FamilyKind::Counter, "peregrine_upstream_requests", help);
    let help = "Time from sending a message or a cancel until its answer begins";
    let mut answers = Family::new(FamilyKind::Times, "peregrine_upstream_answer_seconds", help);
    let help = "Processes started for an agent";
    let mut processes = Family::new(FamilyKind::Counter, "peregrine_upstream_processes", help);
    for (agent, meter) in upstreams {
        let label = || ("agent", agent.clone());
        for kind in UpstreamCallKind::ALL {
            for outcome in UpstreamOutcome::ALL {
                let count = meter.outcomes(kind, outcome);
                let is_first = kind == UpstreamCallKind::Message && outcome == UpstreamOutcome::Ok;
                if count > 0 || is_first {
                    let call = ("call", kind.word().to_owned());
                    let outcome = ("outcome", outcome.word().to_owned());
                    requests = requests.with(vec![label(), call, outcome], count);
                }
            }
        }
        answers = answers.with_sums(vec![label()], meter.answers());
        if meter.processes() > 0 {
            processes = processes.with(vec![label()], meter.processes());
        }
    }
    let gauge = |name, help, number: fn(UpstreamGauges) -> u64| {
        upstreams.iter().fold(
            Family::new(FamilyKind::Gauge, name, help),
            |family, (agent, meter)| {
                family.with(vec![("agent", agent.clone())], number(meter.gauges()))
            },
        )
    };
    let help = "Messages waiting for their upstream";
    let queued = gauge("peregrine_upstream_queued", help, |gauges| gauges.queued);
    let help = "Messages and cancels without the beginning of an answer";
    let outstanding = gauge("peregrine_upstream_outstanding", help, |gauges| gauges.outstanding);
    let help = "Answers in progress";
    let streams = gauge("peregrine_upstream_streams", help, |gauges| gauges.streams);
    vec![requests, answers, processes, queued, outstanding, streams]
}
