//! The page `/metrics`: the counted calls, and the metrics of the server, its service and the
//! system.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    model::TaskState,
    service::{AgentIndex, ServiceStats},
};

use super::{
    metrics::{Family, FamilyKind, process_families, text as text_of, upstream_families},
    server_state::ServerState,
};

/// Returns the page; `None`: the server does not count calls.
pub(super) fn text(server: &ServerState) -> Option<String> {
    let metrics = server.observers.as_ref()?.metrics.as_ref()?;
    let engine = &server.engine;
    let name = |agent: AgentIndex| engine.agent_name(agent);
    let mut families = metrics.families(name);
    let waiting = engine.waiting();
    let gauge = |name, help, number| Family::one(FamilyKind::Gauge, name, help, number);
    let counter = |name, help, number| Family::one(FamilyKind::Counter, name, help, number);
    families.extend([
        gauge("peregrine_waiting_calls", "Calls waiting for their task", waiting.calls as u64),
        gauge("peregrine_open_streams", "Open streams", waiting.streams as u64),
        gauge("peregrine_open_connections", "Connections", server.connections.count() as u64),
        gauge(
            "peregrine_buffer_bytes",
            "Bytes of buffers held by connections",
            engine.held_bytes().load(Relaxed) as u64,
        ),
        counter(
            "peregrine_connections_accepted",
            "Accepted connections",
            server.counts.accepted.load(Relaxed),
        ),
        refusals(server, metrics.by_limit()),
        handshakes(server),
        counter(
            "peregrine_log_lines_lost",
            "Lines of the log that its sink dropped",
            super::report::lost_lines(),
        ),
        Family::new(FamilyKind::Gauge, "peregrine_build_info", "Version of the running server")
            .with(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1),
        gauge(
            "process_start_time_seconds",
            "When the server started, since the Unix epoch",
            engine.started_s(),
        ),
    ]);
    #[cfg(feature = "otlp")]
    if let Some(traces) = &server.traces {
        families.extend(of_traces(traces));
    }
    if let Some(stats) = engine.stats() {
        families.extend(of_service(&stats));
    }
    #[cfg(feature = "push")]
    if let Some(webhooks) = engine.webhooks() {
        families.extend(of_webhooks(&webhooks.stats(server.mono_ms())));
    }
    families.extend(upstream_families(&engine.upstreams()));
    families.extend(process_families());
    Some(text_of(families))
}

fn refusals(
    server: &ServerState,
    mut by_limit: std::collections::BTreeMap<&'static str, u64>,
) -> Family {
    let help = "Connections, requests and calls refused because of a limit, by its name";
    let mut family = Family::new(FamilyKind::Counter, "peregrine_refused", help);
    // The limits of connections are listed from the start.
    for name in ["connections_max", "http2_connections_max", "admin_connections_max"] {
        by_limit.entry(name).or_default();
    }
    *by_limit.entry("buffers_bytes_max").or_default() += server.buffers.cuts();
    for (name, count) in by_limit {
        family = family.with(vec![("limit", name.to_owned())], count);
    }
    family
}

fn handshakes(server: &ServerState) -> Family {
    let failed = server.tls.as_ref().map_or(0, super::tls::Current::failed);
    let done = server.counts.handshakes.load(Relaxed);
    Family::new(FamilyKind::Counter, "peregrine_tls_handshakes", "TLS handshakes")
        .with(vec![("outcome", "ok".to_owned())], done)
        .with(vec![("outcome", "failed".to_owned())], failed)
}

#[cfg(feature = "otlp")]
fn of_traces(traces: &super::traces::Traces) -> [Family; 2] {
    let (sent, lost) = traces.counts();
    let help = "Spans that the collector of traces has accepted";
    let sent = Family::one(FamilyKind::Counter, "peregrine_spans_sent", help, sent);
    let help = "Spans that were lost, by reason";
    let mut family = Family::new(FamilyKind::Counter, "peregrine_spans_lost", help);
    for (why, count) in lost {
        family = family.with(vec![("reason", why.to_owned())], count);
    }
    [sent, family]
}

#[cfg(feature = "push")]
fn of_webhooks(stats: &crate::push::PushStats) -> Vec<Family> {
    let help = "Posts to webhooks by outcome";
    let mut outcomes = Family::new(FamilyKind::Counter, "peregrine_push_deliveries", help);
    for (outcome, count) in stats.outcomes.posts() {
        outcomes = outcomes.with(vec![("outcome", outcome.to_owned())], count);
    }
    let help = "Webhooks that have stopped, by reason";
    let mut stopped = Family::new(FamilyKind::Counter, "peregrine_push_stopped", help);
    for (reason, count) in stats.outcomes.stopped() {
        stopped = stopped.with(vec![("reason", reason.to_owned())], count);
    }
    let gauge = |name, help, number| Family::one(FamilyKind::Gauge, name, help, number);
    let help = "Tasks that did not get the webhook of their scope, because a limit of \
                configurations was reached";
    let (kind, count) = (FamilyKind::Counter, stats.outcomes.left_out);
    let left_out = Family::one(kind, "peregrine_push_left_out", help, count);
    vec![
        outcomes,
        stopped,
        left_out,
        gauge("peregrine_push_configs", "Webhook configurations", stats.configs as u64),
        gauge(
            "peregrine_push_config_bytes",
            "Bytes of webhook configurations",
            stats.config_bytes as u64,
        ),
        gauge(
            "peregrine_push_pending",
            "Webhooks with events not posted yet",
            stats.pending as u64,
        ),
        gauge("peregrine_push_in_flight", "Posts in flight", stats.in_flight as u64),
        gauge(
            "peregrine_push_oldest_pending_seconds",
            "Longest wait of a webhook with undelivered events",
            stats.oldest_pending_ms / 1_000,
        ),
        gauge(
            "peregrine_push_lag_events",
            "Largest number of undelivered events of a webhook",
            stats.lag_events,
        ),
        gauge("peregrine_push_dead_letters", "Dead letters", stats.dead_letters as u64),
    ]
}

fn of_service(stats: &ServiceStats) -> Vec<Family> {
    let mut tasks = Family::new(FamilyKind::Gauge, "peregrine_tasks", "Tasks in memory, by state");
    for (state, count) in TaskState::ALL.into_iter().zip(stats.tasks) {
        tasks = tasks.with(vec![("state", state.word().to_owned())], count);
    }
    let help = "Finished tasks that were evicted, by the limit that evicted them";
    let mut evicted = Family::new(FamilyKind::Counter, "peregrine_tasks_evicted", help);
    for (limit, count) in ServiceStats::EVICTED_BY.into_iter().zip(stats.evicted) {
        evicted = evicted.with(vec![("limit", limit.to_owned())], count);
    }
    let help = "Unfinished tasks that failed, by the limit that ended them";
    let mut ended = Family::new(FamilyKind::Counter, "peregrine_tasks_ended", help);
    for (limit, count) in ServiceStats::ENDED_BY.into_iter().zip(stats.ended) {
        ended = ended.with(vec![("limit", limit.to_owned())], count);
    }
    let help = "Bytes of tasks in memory";
    vec![
        tasks,
        evicted,
        ended,
        Family::one(FamilyKind::Gauge, "peregrine_store_bytes", help, stats.bytes),
    ]
}
