//! Agents that exchange lines with long-running processes, each with many turns in flight.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    super::{
        async_agent::start_future,
        clock::monotonic_ns,
        line_turn::{NextEvent, TurnEvents, next_event, publish_events, write_turn},
        turn_queue::TurnQueue,
    },
    command::ProcessCommand,
    line_process::{TurnEntry, TurnNews},
    options::ProcessOptions,
    pool::{LinesProgram, ProcessPool},
    stderr::ProcessLog,
};
use crate::{
    agent::{Agent, Deferred, Turn},
    fault::Fault,
    gateway::lines::write_cancel,
    service::upstream::{UpstreamMeter, UpstreamOutcome},
};

/// An agent that sends its turns as lines to long-running processes, and reads their events as
/// lines.
///
/// The lines are described in `docs/guide/any-language.md`. A process is started when a turn needs
/// one. When a process ends, its turns fail with the exit status, and the next turn starts another
/// process. The agent runs only under [`Server`](crate::net::Server).
pub struct LinesAgent {
    pool: Arc<ProcessPool>,
    queue: Arc<TurnQueue>,
}

impl LinesAgent {
    /// Creates an agent of this command; its log lines have `name`.
    pub fn new(name: &str, command: ProcessCommand, options: ProcessOptions) -> LinesAgent {
        let turns_max = options.processes_max.saturating_mul(options.turns_max);
        let queue = TurnQueue::new(turns_max, options.queue_max);
        let (log, meter) = (ProcessLog::new(name), UpstreamMeter::new(None, monotonic_ns));
        let pool = ProcessPool::new(LinesProgram { command, options, log, meter });
        LinesAgent { pool: Arc::new(pool), queue }
    }
}

impl Agent for LinesAgent {
    fn start(&self, turn: Turn<'_>) {
        let Some(queued) = self.queue.enter(turn.request.scope.owner) else {
            self.pool.program.meter.refuse();
            return turn.refuse(Fault::at_limit("turns_queued_max"));
        };
        let pool = Arc::clone(&self.pool);
        let logged = pool.program.meter.log(turn.request.headers.fields);
        start_future(turn, |deferred: Deferred| {
            let mut call = pool.program.meter.message().logged(logged);
            async move {
                let Some(_permit) = queued.permit(deferred.canceled()).await else { return };
                call.send();
                // On an error the task has ended or was canceled; dropping the entry sends the
                // cancel.
                let _ = match enter(&pool, &deferred).await {
                    Ok(mut entry) => match next_event(&mut entry, &mut deferred.canceled()).await {
                        Ok(first) => publish_events(first, &mut entry, deferred, call).await,
                        Err(closed) => Err(closed),
                    },
                    Err(error) => {
                        call.end(UpstreamOutcome::Unreachable);
                        let text = format!("the program cannot be started: {error}");
                        deferred.into_job().and_then(|job| job.fail(&text))
                    }
                };
            }
        });
    }

    fn upstream(&self) -> Option<Arc<UpstreamMeter>> {
        Some(Arc::clone(&self.pool.program.meter))
    }
}

/// Sends the turn to a process.
async fn enter(pool: &ProcessPool, deferred: &Deferred) -> std::io::Result<TurnEntry> {
    let number = pool.next_turn();
    let (mut line, mut cancel) = (Vec::new(), Vec::new());
    write_turn(number, deferred, pool.program.options.history, &mut line);
    write_cancel(&mut cancel, number, deferred.task_id());
    loop {
        let mut entry = pool.process().await?.enter(number, cancel);
        match entry.send(line).await {
            Ok(()) => return Ok(entry),
            // The process ended before it got the line: try another one.
            Err(unsent) => [line, cancel] = unsent,
        }
    }
}

impl TurnEvents for TurnEntry {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<NextEvent> {
        self.news.poll_recv(cx).map(|news| match news {
            Some(TurnNews::Event(Ok(event))) => NextEvent::Event(event),
            Some(TurnNews::Event(Err(error))) => {
                NextEvent::Failed(format!("the program wrote an invalid event: {error}"))
            }
            Some(TurnNews::Ended(reason)) => NextEvent::Failed(reason),
            None => NextEvent::Failed("cannot read the program's exit status".to_owned()),
        })
    }

    fn end(&mut self) {
        self.forget_cancel();
    }
}
