//! The form of lines: long-running processes, each with many turns in flight.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use super::{
    super::async_agent::start_future,
    command::ProcessCommand,
    line_process::{TurnEntry, TurnNews},
    options::ProcessOptions,
    pool::{LinesProgram, ProcessPool},
    queue::TurnQueue,
    stderr::ProcessLog,
};
use crate::{
    agent::{Agent, Canceled, Closed, Deferred, Job, Turn},
    fault::Fault,
    gateway::lines::{LineEvent, TurnLine, push_history, write_cancel},
    model::{JsonObjectBuf, Message, MessageBuf, TaskEvent, TaskState},
};

/// An agent whose turns are lines to long-running processes, and whose events are lines of theirs.
///
/// The lines are described in `docs/guide/any-language.md`. A process is started when a turn needs
/// it. When it ends, its turns fail with its exit status, and the next turn starts another one. It
/// runs under [`Server`](crate::net::Server) only.
pub struct LinesAgent {
    pool: Arc<ProcessPool>,
    queue: Arc<TurnQueue>,
}

impl LinesAgent {
    /// An agent of this command; lines of the log have `name`.
    pub fn new(name: &str, command: ProcessCommand, options: ProcessOptions) -> LinesAgent {
        let turns_max = options.processes_max.saturating_mul(options.turns_max);
        let queue = TurnQueue::new(turns_max, options.queue_max);
        let pool = ProcessPool::new(LinesProgram { command, options, log: ProcessLog::new(name) });
        LinesAgent { pool: Arc::new(pool), queue }
    }
}

impl Agent for LinesAgent {
    fn start(&self, turn: Turn<'_>) {
        let Some(queued) = self.queue.enter(turn.request.scope.owner) else {
            return turn.refuse(Fault::at_limit("process_turns_queued_max"));
        };
        let pool = Arc::clone(&self.pool);
        start_future(turn, |deferred: Deferred| async move {
            let Some(_permit) = queued.permit(deferred.canceled()).await else { return };
            // A task that has ended takes no more; dropping the entry sends the cancel.
            let _ = match enter(&pool, &deferred).await {
                Ok(entry) => follow(entry, deferred).await,
                Err(error) => {
                    let text = format!("the program does not start: {error}");
                    deferred.into_job().and_then(|job| job.fail(&text))
                }
            };
        });
    }
}

/// Sends the turn to a process.
async fn enter(pool: &ProcessPool, deferred: &Deferred) -> std::io::Result<TurnEntry> {
    let number = pool.next_turn();
    let (mut line, mut cancel) = (Vec::new(), Vec::new());
    write(number, deferred, pool.program.options.history, &mut line);
    write_cancel(&mut cancel, number, deferred.task_id());
    loop {
        let mut entry = pool.process().await?.enter(number, cancel);
        match entry.send(line).await {
            Ok(()) => return Ok(entry),
            // One that has ended meanwhile has not got it: another one may.
            Err(unsent) => [line, cancel] = unsent,
        }
    }
}

fn write(number: u64, deferred: &Deferred, has_history: bool, line: &mut Vec<u8>) {
    let (request, message) = (deferred.request(), deferred.message());
    let mut history = Vec::new();
    if has_history {
        deferred.read(&mut |task| {
            let id = message.message_id().raw();
            let earlier = |other: &Message<'_>| other.message_id().raw() != id;
            // What the task asked for last is not in its history yet.
            let messages = task.history(None).filter(earlier).chain(task.status().message);
            messages.for_each(|message| push_history(&mut history, message));
        });
    }
    let turn = TurnLine {
        turn: number,
        task_id: deferred.task_id(),
        context_id: deferred.context_id(),
        state: request.state(),
        message,
        metadata: request.metadata(),
        caller: request.principal().map(|principal| principal.name()),
        tenant: request.tenant(),
        deadline_unix_ms: request.deadline_unix_ms(),
        history: &history,
    };
    turn.write(line);
}

/// Publishes the events of a turn until it is over.
async fn follow(mut entry: TurnEntry, deferred: Deferred) -> Result<(), Closed> {
    let mut canceled = deferred.canceled();
    let event = match next(&mut entry, &mut canceled).await? {
        Ok(LineEvent::Message(message)) => {
            entry.end();
            deferred.reply(message);
            return Ok(());
        }
        event => event,
    };
    let mut job = deferred.into_job()?;
    let mut canceled = job.canceled();
    let mut event = event;
    loop {
        match event {
            Ok(event) if event.ends_turn() => {
                entry.end();
                return publish(&mut job, event);
            }
            Ok(event) => publish(&mut job, event)?,
            Err(reason) => return job.fail(&reason),
        }
        event = next(&mut entry, &mut canceled).await?;
    }
}

/// The next event, or why there is none.
///
/// # Errors
/// [`Closed`]: the turn is canceled.
async fn next(
    entry: &mut TurnEntry,
    canceled: &mut Canceled,
) -> Result<Result<LineEvent, String>, Closed> {
    let news = poll_fn(|cx| match Pin::new(&mut *canceled).poll(cx) {
        Poll::Ready(()) => Poll::Ready(Err(Closed)),
        Poll::Pending => entry.news.poll_recv(cx).map(Ok),
    });
    match news.await? {
        Some(TurnNews::Event(event)) => {
            Ok(event.map_err(|error| format!("the program wrote a wrong event: {error}")))
        }
        Some(TurnNews::Ended(reason)) => Ok(Err(reason)),
        None => Ok(Err("the program is lost".to_owned())),
    }
}

fn publish(job: &mut Job, event: LineEvent) -> Result<(), Closed> {
    match event {
        LineEvent::Message(message) => job.status(TaskState::Completed, Some(&message)),
        LineEvent::Status { state, message, metadata } => {
            let message = message.as_ref().map(MessageBuf::view);
            let metadata = metadata.as_ref().map(JsonObjectBuf::view);
            let at_ms = job.unix_ms();
            job.publish(TaskEvent::Status { state, at_ms, message, metadata })
        }
        LineEvent::Artifact { artifact, append, last_chunk, metadata } => {
            let metadata = metadata.as_ref().map(JsonObjectBuf::view);
            let artifact = artifact.view();
            job.publish(TaskEvent::Artifact { artifact, append, last_chunk, metadata })
        }
    }
}
