//! One long-running process that exchanges lines, and its turns in flight.
//!
//! Invariants: a turn is in the table from before its line is sent until it ends, so that each
//! event finds its turn or is dropped. When the process ends, every turn in the table receives the
//! reason, and no further line is accepted.

use std::{
    cell::Cell,
    collections::HashMap,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    process::ExitStatus,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdin, ChildStdout},
    sync::mpsc::{self, Receiver, Sender, error::SendError},
    time::{Instant, Sleep, sleep_until},
};

use super::{group::ProcessGroup, pool::LinesProgram, stderr::ErrorOutput};
use crate::{
    gateway::lines::{EventLine, LineError, LineEvent},
    limits::AGENT_LINE_BYTES_MAX,
};

/// Maximum number of lines that wait until the process reads them.
const LINES_WAITING_MAX: usize = 8;
/// Maximum number of events that wait for their turn.
const EVENTS_WAITING_MAX: usize = 64;
/// Maximum number of bytes per read.
const READ_BYTES: usize = 16 * 1024;
/// How long to wait for the last output of an exited process, and for the exit of a process that
/// has closed its input or output.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// A message of a process to one of its turns.
pub(super) enum TurnNews {
    Event(Result<LineEvent, LineError>),
    /// The process has ended; the client sees this reason.
    Ended(String),
}

/// A handle of a process for turns on any worker.
pub(super) struct LineProcess {
    lines: Sender<Vec<u8>>,
    turns: Arc<TurnTable>,
    started: Instant,
}

/// The turns in flight.
#[derive(Default)]
struct TurnTable {
    turns: Mutex<HashMap<u64, TurnInFlight>>,
    /// The process has written an event.
    has_written: AtomicBool,
}

struct TurnInFlight {
    news: Sender<TurnNews>,
    sent_at: Instant,
}

impl TurnTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, TurnInFlight>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn in the table of its process; dropping it removes the turn.
pub(super) struct TurnEntry {
    number: u64,
    process: Arc<LineProcess>,
    pub news: Receiver<TurnNews>,
    /// The line that is sent when the turn is dropped before its end.
    cancel: Option<Vec<u8>>,
}

impl LineProcess {
    /// Starts a process; this worker drives its pipes.
    pub fn start(program: &Arc<LinesProgram>) -> io::Result<Arc<LineProcess>> {
        let (group, pipes) = ProcessGroup::start(&program.command)?;
        let (lines, waiting) = mpsc::channel(LINES_WAITING_MAX);
        let turns = Arc::new(TurnTable::default());
        let driver = Driver {
            program: Arc::clone(program),
            group,
            errors: ErrorOutput::new(pipes.stderr),
            turns: Arc::clone(&turns),
        };
        tokio::task::spawn_local(driver.run(pipes.stdin, pipes.stdout, waiting));
        Ok(Arc::new(LineProcess { lines, turns, started: Instant::now() }))
    }

    /// How many turns are in flight.
    pub fn turns(&self) -> usize {
        self.turns.lock().len()
    }

    pub fn has_ended(&self) -> bool {
        self.lines.is_closed()
    }

    /// True when the process has written an event, or has run for a while.
    pub fn has_worked(&self) -> bool {
        self.turns.has_written.load(Relaxed) || self.started.elapsed() > Duration::from_secs(10)
    }

    /// Enters a turn; `cancel` is the line that ends it early.
    pub fn enter(self: &Arc<LineProcess>, number: u64, cancel: Vec<u8>) -> TurnEntry {
        let (news, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        self.turns.lock().insert(number, TurnInFlight { news, sent_at: Instant::now() });
        let process = Arc::clone(self);
        TurnEntry { number, process, news: receiver, cancel: Some(cancel) }
    }
}

impl TurnEntry {
    /// Sends the line of the turn.
    ///
    /// # Errors
    /// The line and its cancel line: the process ended before it received the line.
    pub async fn send(&mut self, line: Vec<u8>) -> Result<(), [Vec<u8>; 2]> {
        let sent = self.process.lines.send(line).await;
        sent.map_err(|SendError(line)| [line, self.cancel.take().unwrap_or_default()])
    }

    /// The turn has ended: no cancel is sent.
    pub fn forget_cancel(&mut self) {
        self.cancel = None;
    }
}

impl Drop for TurnEntry {
    fn drop(&mut self) {
        self.process.turns.lock().remove(&self.number);
        if let Some(line) = self.cancel.take() {
            // A process that does not read its lines gets no cancel.
            let _ = self.process.lines.try_send(line);
        }
    }
}

/// Drives a process on a worker.
struct Driver {
    program: Arc<LinesProgram>,
    group: ProcessGroup,
    errors: ErrorOutput,
    turns: Arc<TurnTable>,
}

/// Why a process has ended, or must end.
enum ProcessEnd {
    Exited(io::Result<ExitStatus>),
    Silent,
    LongLine,
    /// The process closed its input, or no further turn can arrive.
    NoInput,
    /// The process closed its output: no turn can be answered any more.
    NoOutput,
}

impl Driver {
    async fn run(
        mut self,
        stdin: Option<ChildStdin>,
        stdout: Option<ChildStdout>,
        waiting: Receiver<Vec<u8>>,
    ) {
        // `serve` drops `waiting`: when the turns receive the reason, no line is accepted any more.
        let end = self.serve(stdin, stdout, waiting).await;
        self.group.end().await;
        let reason = self.reason(end);
        let unfinished: Vec<TurnInFlight> =
            self.turns.lock().drain().map(|(_, turn)| turn).collect();
        for turn in unfinished {
            // A finished turn has dropped its receiver.
            let _ = turn.news.send(TurnNews::Ended(reason.clone())).await;
        }
    }

    /// Writes and reads lines until the process ends.
    async fn serve(
        &mut self,
        stdin: Option<ChildStdin>,
        stdout: Option<ChildStdout>,
        waiting: Receiver<Vec<u8>>,
    ) -> ProcessEnd {
        let Driver { program, group, errors, turns } = self;
        let output_at = Cell::new(Instant::now());
        let mut writer = pin!(write_lines(stdin, waiting));
        let mut reader = pin!(read_lines(stdout, turns, program, &output_at));
        let silence = Duration::from_millis(program.options.silence_ms);
        let mut alarm = pin!(sleep_until(Instant::now() + silence));
        let (mut has_input, mut status, mut is_read) = (true, None, false);
        poll_fn(|cx| {
            if has_input && writer.as_mut().poll(cx).is_ready() {
                has_input = false;
                alarm.as_mut().reset(Instant::now() + LAST_OUTPUT);
            }
            let errors = errors.poll(cx, &program.log);
            if !is_read && let Poll::Ready(read) = reader.as_mut().poll(cx) {
                is_read = true;
                if matches!(read, OutputEnd::LongLine) {
                    return Poll::Ready(ProcessEnd::LongLine);
                }
                alarm.as_mut().reset(Instant::now() + LAST_OUTPUT);
            }
            if status.is_none()
                && let Poll::Ready(exited) = group.poll_exit(cx)
            {
                status = Some(exited);
                alarm.as_mut().reset(Instant::now() + LAST_OUTPUT);
            }
            let runs = has_input && !is_read && status.is_none();
            let again = || runs.then(|| turns.silent_at(output_at.get(), silence));
            let is_late = poll_alarm(alarm.as_mut(), cx, again);
            match status.take() {
                Some(status) if is_late || (is_read && errors.is_ready()) => {
                    Poll::Ready(ProcessEnd::Exited(status))
                }
                None if is_late && is_read => Poll::Ready(ProcessEnd::NoOutput),
                None if is_late && has_input => Poll::Ready(ProcessEnd::Silent),
                None if is_late => Poll::Ready(ProcessEnd::NoInput),
                exited => {
                    status = exited;
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The reason for the log and for the clients.
    fn reason(&self, end: ProcessEnd) -> String {
        let options = &self.program.options;
        let reason = match end {
            ProcessEnd::Exited(Ok(status)) => format!("the program ended with {status}"),
            ProcessEnd::Exited(Err(error)) => {
                format!("cannot read the program's exit status: {error}")
            }
            ProcessEnd::Silent => {
                format!("the program wrote nothing for {} ms", options.silence_ms)
            }
            ProcessEnd::LongLine => {
                format!("the program wrote a line of more than {AGENT_LINE_BYTES_MAX} bytes")
            }
            ProcessEnd::NoInput => "the program does not read its input".to_owned(),
            ProcessEnd::NoOutput => "the program closed its output".to_owned(),
        };
        self.program.log.line(&reason);
        match self.errors.last_output() {
            words if options.show_errors && !words.is_empty() => format!("{reason}: {words}"),
            _ => reason,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Ends the receivers of turns that still wait.
        self.turns.lock().clear();
    }
}

impl TurnTable {
    /// When the process counts as silent: `silence` after its last output and after its oldest
    /// turn.
    fn silent_at(&self, output_at: Instant, silence: Duration) -> Instant {
        let oldest = self.lock().values().map(|turn| turn.sent_at).min();
        oldest.map_or_else(Instant::now, |oldest| oldest.max(output_at)) + silence
    }
}

/// Whether the alarm has fired and `again` returns no later time.
fn poll_alarm(
    mut alarm: Pin<&mut Sleep>,
    cx: &mut Context<'_>,
    again: impl Fn() -> Option<Instant>,
) -> bool {
    while alarm.as_mut().poll(cx).is_ready() {
        match again().filter(|at| *at > Instant::now()) {
            Some(at) => alarm.as_mut().reset(at),
            None => return true,
        }
    }
    false
}

/// Writes lines until no further turn can arrive, or the process has closed its input.
async fn write_lines(stdin: Option<ChildStdin>, mut waiting: Receiver<Vec<u8>>) {
    let Some(mut stdin) = stdin else { return };
    while let Some(line) = waiting.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

enum OutputEnd {
    Closed,
    LongLine,
}

/// Reads lines, and passes each event to its turn.
async fn read_lines(
    stdout: Option<ChildStdout>,
    turns: &TurnTable,
    program: &LinesProgram,
    output_at: &Cell<Instant>,
) -> OutputEnd {
    let Some(mut stdout) = stdout else { return OutputEnd::Closed };
    let mut bytes = Vec::with_capacity(READ_BYTES);
    loop {
        let searched = bytes.len();
        match stdout.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return OutputEnd::Closed,
            Ok(_) => output_at.set(Instant::now()),
        }
        let Some(last) = memchr::memrchr(b'\n', &bytes[searched..]) else {
            if bytes.len() > AGENT_LINE_BYTES_MAX {
                return OutputEnd::LongLine;
            }
            bytes.reserve(READ_BYTES);
            continue;
        };
        let whole = searched + last + 1;
        for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if line.len() > AGENT_LINE_BYTES_MAX {
                return OutputEnd::LongLine;
            }
            turns.dispatch(line, program).await;
        }
        bytes.drain(..whole);
        // Frees the memory of a long line.
        bytes.shrink_to(READ_BYTES);
        bytes.reserve(READ_BYTES);
    }
}

impl TurnTable {
    /// Sends the event of a line to its turn. Other lines are logged, because a program may print
    /// text.
    async fn dispatch(&self, line: &[u8], program: &LinesProgram) {
        let EventLine { turn, event } = match EventLine::read(line) {
            Ok(line) => line,
            Err(error) => {
                let text = String::from_utf8_lossy(&line[..line.len().min(256)]);
                return program.log.line(&format!("not an event ({error}): {text}"));
            }
        };
        self.has_written.store(true, Relaxed);
        let news = self.lock().get(&turn).map(|turn| turn.news.clone());
        if let Some(news) = news {
            // A finished turn has dropped its receiver.
            let _ = news.send(TurnNews::Event(event)).await;
        }
    }
}
