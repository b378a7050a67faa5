//! Agents that run one process for each message, with text as input and output.

use std::{
    future::{Future, poll_fn},
    io, iter,
    pin::{Pin, pin},
    process::ExitStatus,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    process::{ChildStdin, ChildStdout},
    time::{Instant, Sleep, sleep, timeout},
};

use super::{
    super::{async_agent::start_future, clock::monotonic_ns, turn_queue::TurnQueue},
    command::ProcessCommand,
    group::ProcessGroup,
    options::ProcessOptions,
    output::OutputText,
    stderr::{ErrorOutput, ProcessLog},
};
use crate::{
    agent::{Agent, Canceled, Closed, Job, Turn},
    fault::{Fault, FaultKind},
    model::{ArtifactBuf, PartsBuf, TaskState},
    service::upstream::{UpstreamCall, UpstreamMeter, UpstreamOutcome},
};

/// Maximum number of bytes per read.
const READ_BYTES: usize = 16 * 1024;
/// How long to wait for the output of an exited process: a process that left its group may still
/// hold the pipe.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// How long the last output is held back, so that a program that exits directly afterwards gets one
/// complete artifact. After this time the output is sent without `lastChunk`: the end of the task
/// ends the artifact.
const LAST_CHUNK_WAIT: Duration = Duration::from_millis(10);
/// The id of the artifact.
const ARTIFACT_ID: &str = "output";

/// An agent that runs a program for each message.
///
/// The text parts of the message are the program's standard input, and its standard output is an
/// artifact that is published as it arrives. Exit code 0 completes the task, any other end of the
/// program fails it. When a task is canceled or ends, its processes are killed (SIGKILL to their
/// group). Lines on standard error go to the log.
///
/// The agent accepts one message for each task, and runs only under [`Server`](crate::net::Server).
pub struct ProcessAgent {
    program: Arc<TextProgram>,
    queue: Arc<TurnQueue>,
}

/// The command and its options.
struct TextProgram {
    command: ProcessCommand,
    separator: Option<String>,
    shows_errors: bool,
    silence_ms: u64,
    log: ProcessLog,
    meter: Arc<UpstreamMeter>,
}

impl ProcessAgent {
    /// Creates an agent of this command; its log lines have `name`.
    pub fn new(name: &str, command: ProcessCommand, options: ProcessOptions) -> ProcessAgent {
        let queue = TurnQueue::new(options.processes_max, options.queue_max);
        let program = TextProgram {
            command,
            separator: options.separator,
            shows_errors: options.show_errors,
            silence_ms: options.silence_ms,
            log: ProcessLog::new(name),
            meter: UpstreamMeter::new(None, monotonic_ns),
        };
        ProcessAgent { program: Arc::new(program), queue }
    }
}

impl Agent for ProcessAgent {
    fn start(&self, turn: Turn<'_>) {
        if turn.state.is_some() {
            let text = "this agent accepts one message per task";
            return turn.refuse(Fault::because(FaultKind::UnsupportedOperation, text));
        }
        let Some(queued) = self.queue.enter(turn.request.scope.owner) else {
            self.program.meter.refuse();
            return turn.refuse(Fault::at_limit("turns_queued_max"));
        };
        let program = Arc::clone(&self.program);
        let logged = program.meter.log(turn.request.headers.fields);
        start_future(turn, |job: Job| {
            let mut call = program.meter.message().logged(logged);
            async move {
                let Some(_permit) = queued.permit(job.canceled()).await else { return };
                call.send();
                // On an error the task has ended, and the program was killed.
                let _ = program.run(job, call).await;
            }
        });
    }

    fn upstream(&self) -> Option<Arc<UpstreamMeter>> {
        Some(Arc::clone(&self.program.meter))
    }
}

impl TextProgram {
    /// Runs the program for the message of a job.
    async fn run(&self, mut job: Job, mut call: UpstreamCall) -> Result<(), Closed> {
        job.status(TaskState::Working, None)?;
        let mut run = match TextRun::start(self, &job) {
            Ok(run) => run,
            Err(error) => {
                call.end(UpstreamOutcome::Unreachable);
                return job.fail(&format!("the program cannot be started: {error}"));
            }
        };
        self.meter.start_process();
        let end = self.follow(&mut job, &mut run).await;
        let errors = run.errors.last_output();
        run.process.end().await;
        let end = end?;
        call.end(end.outcome());
        match end {
            RunEnd::Exited(Ok(status)) if status.success() => {
                job.status(TaskState::Completed, None)
            }
            RunEnd::Exited(Ok(status)) if self.shows_errors && !errors.is_empty() => {
                job.fail(&format!("the program {}: {errors}", failed(status)))
            }
            RunEnd::Exited(Ok(status)) => job.fail(&format!("the program {}", failed(status))),
            RunEnd::Exited(Err(error)) => {
                job.fail(&format!("cannot read the program's exit status: {error}"))
            }
            RunEnd::Canceled => Ok(()),
            RunEnd::Silent => {
                let text = format!("the program wrote nothing for {} ms", self.silence_ms);
                job.fail(&text)
            }
        }
    }

    /// Publishes the output until the process has exited or must be killed.
    async fn follow(&self, job: &mut Job, run: &mut TextRun) -> Result<RunEnd, Closed> {
        let mut output = OutputText::new(self.separator.as_deref());
        let mut artifact = OutputArtifact { is_begun: false };
        let mut held: Option<String> = None;
        let mut canceled = job.canceled();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let next = poll_fn(|cx| run.poll(cx, &mut canceled, &mut buffer, &self.log));
            let step = match held.take() {
                None => next.await,
                Some(text) => match timeout(LAST_CHUNK_WAIT, next).await {
                    Ok(step) => {
                        held = Some(text);
                        step
                    }
                    Err(_) => {
                        artifact.publish(job, &text, false)?;
                        continue;
                    }
                },
            };
            let is_end = match step {
                RunStep::Output { bytes, is_end } => {
                    run.note_output(Duration::from_millis(self.silence_ms));
                    output.push(&buffer[..bytes]);
                    is_end
                }
                RunStep::End(end) => {
                    // After a cancel the task accepts no more output.
                    if let (Some(text), false) = (held, matches!(end, RunEnd::Canceled)) {
                        artifact.publish(job, &text, true)?;
                    }
                    return Ok(end);
                }
            };
            // A part with an empty text has no meaning.
            let pieces = iter::from_fn(|| output.next(is_end));
            for text in pieces.filter(|text| !text.is_empty()) {
                if let Some(earlier) = held.replace(text) {
                    artifact.publish(job, &earlier, false)?;
                }
            }
            if let (Some(text), true) = (&held, is_end) {
                artifact.publish(job, text, true)?;
                held = None;
            }
        }
    }
}

/// The end of a failed program: "failed (exit status 3)".
fn failed(status: ExitStatus) -> String {
    format!("failed ({})", status.to_string().replace("exit status: ", "exit status "))
}

/// The artifact with the output.
struct OutputArtifact {
    is_begun: bool,
}

impl OutputArtifact {
    fn publish(&mut self, job: &mut Job, text: &str, is_last: bool) -> Result<(), Closed> {
        let chunk = ArtifactBuf::new(ARTIFACT_ID, &PartsBuf::new().text(text));
        let append = std::mem::replace(&mut self.is_begun, !is_last);
        job.chunk(&chunk, append, is_last)
    }
}

/// A process that runs for one message.
struct TextRun {
    process: ProcessGroup,
    input: Option<ChildStdin>,
    text: Vec<u8>,
    written: usize,
    output: Option<ChildStdout>,
    errors: ErrorOutput,
    status: Option<io::Result<ExitStatus>>,
    /// The deadline of the allowed silence.
    alarm: Pin<Box<Sleep>>,
}

enum RunStep {
    /// The process has written output; `is_end`: the output has ended.
    Output {
        bytes: usize,
        is_end: bool,
    },
    End(RunEnd),
}

enum RunEnd {
    Exited(io::Result<ExitStatus>),
    Canceled,
    Silent,
}

impl RunEnd {
    fn outcome(&self) -> UpstreamOutcome {
        match self {
            RunEnd::Exited(Ok(status)) if status.success() => UpstreamOutcome::Ok,
            RunEnd::Exited(Ok(_)) => UpstreamOutcome::Fault,
            RunEnd::Exited(Err(_)) => UpstreamOutcome::Unreachable,
            RunEnd::Canceled => UpstreamOutcome::Canceled,
            RunEnd::Silent => UpstreamOutcome::Timeout,
        }
    }
}

impl TextRun {
    fn start(program: &TextProgram, job: &Job) -> io::Result<TextRun> {
        let (process, pipes) = ProcessGroup::start(&program.command)?;
        Ok(TextRun {
            process,
            input: pipes.stdin,
            text: job.message().text().into_bytes(),
            written: 0,
            output: pipes.stdout,
            errors: ErrorOutput::new(pipes.stderr),
            status: None,
            alarm: Box::pin(sleep(Duration::from_millis(program.silence_ms))),
        })
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        canceled: &mut Canceled,
        buffer: &mut [u8],
        log: &ProcessLog,
    ) -> Poll<RunStep> {
        if pin!(canceled).poll(cx).is_ready() {
            return Poll::Ready(RunStep::End(RunEnd::Canceled));
        }
        self.poll_input(cx);
        let errors = self.errors.poll(cx, log);
        if let Poll::Ready(step) = self.poll_output(cx, buffer) {
            return Poll::Ready(step);
        }
        if self.status.is_none()
            && let Poll::Ready(status) = self.process.poll_exit(cx)
        {
            self.status = Some(status);
            self.alarm.as_mut().reset(Instant::now() + LAST_OUTPUT);
        }
        let is_over = self.output.is_none() && errors.is_ready();
        let is_late = self.alarm.as_mut().poll(cx).is_ready();
        match self.status.take() {
            Some(status) if is_over || is_late => Poll::Ready(RunStep::End(RunEnd::Exited(status))),
            None if is_late => Poll::Ready(RunStep::End(RunEnd::Silent)),
            status => {
                self.status = status;
                Poll::Pending
            }
        }
    }

    /// Resets the deadline of silence, unless the process has exited.
    fn note_output(&mut self, silence: Duration) {
        if self.status.is_none() {
            self.alarm.as_mut().reset(Instant::now() + silence);
        }
    }

    /// Writes the text, and then closes the pipe. A program need not read its input.
    fn poll_input(&mut self, cx: &mut Context<'_>) {
        while let Some(input) = &mut self.input {
            let rest = &self.text[self.written..];
            if rest.is_empty() {
                self.input = None;
                return;
            }
            match Pin::new(input).poll_write(cx, rest) {
                Poll::Pending => return,
                Poll::Ready(Ok(written)) if written > 0 => self.written += written,
                Poll::Ready(_) => self.input = None,
            }
        }
    }

    /// Reads the available output.
    fn poll_output(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<RunStep> {
        let mut bytes = 0;
        while let Some(output) = &mut self.output {
            if bytes == buffer.len() {
                return Poll::Ready(RunStep::Output { bytes, is_end: false });
            }
            let mut read = ReadBuf::new(&mut buffer[bytes..]);
            match Pin::new(output).poll_read(cx, &mut read) {
                Poll::Pending if bytes == 0 => return Poll::Pending,
                Poll::Pending => return Poll::Ready(RunStep::Output { bytes, is_end: false }),
                Poll::Ready(Ok(())) if !read.filled().is_empty() => bytes += read.filled().len(),
                Poll::Ready(_) => {
                    self.output = None;
                    return Poll::Ready(RunStep::Output { bytes, is_end: true });
                }
            }
        }
        Poll::Pending
    }
}
