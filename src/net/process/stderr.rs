//! Logs the lines that processes write to stderr, at a bounded rate.

use std::{
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    process::ChildStderr,
};

use crate::model::must_escape;

use super::super::{
    line_rate::{LineRate, LineVerdict},
    report,
};

/// Lines of one agent that are logged in a second; further lines are counted and dropped.
const LINES_PER_SECOND: u32 = 100;
/// Maximum bytes of a line that are logged.
const LINE_BYTES_MAX: usize = 1_024;
/// Maximum bytes of the last output that a client may see.
const LAST_BYTES_MAX: usize = 4_096;

/// The log of one agent's processes.
pub(super) struct ProcessLog {
    agent: String,
    rate: Mutex<LineRate>,
}

impl ProcessLog {
    /// The log of the agent of this name.
    pub fn new(agent: impl Into<String>) -> ProcessLog {
        ProcessLog { agent: agent.into(), rate: Mutex::default() }
    }

    /// Writes a line, unless the limit of this second is reached.
    pub fn line(&self, text: &str) {
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let LineVerdict { is_written, skipped } = rate.take(Instant::now(), LINES_PER_SECOND);
        drop(rate);
        if skipped > 0 {
            let agent = &self.agent;
            report::warn(&format_args!(
                "agent {agent}: dropped {skipped} lines of standard error (limit: \
                 {LINES_PER_SECOND} a second)"
            ));
        }
        if !is_written {
            return;
        }
        let plain: String = text.chars().map(|c| if must_escape(c) { ' ' } else { c }).collect();
        report::info(&format_args!("agent {}: {plain}", self.agent));
    }
}

/// The stderr of one process.
pub(super) struct ErrorOutput {
    pipe: Option<ChildStderr>,
    line: Vec<u8>,
    last: Vec<u8>,
}

impl ErrorOutput {
    pub fn new(pipe: Option<ChildStderr>) -> ErrorOutput {
        ErrorOutput { pipe, line: Vec::new(), last: Vec::new() }
    }

    /// Reads the available output and logs whole lines; ready at the end of the pipe.
    pub fn poll(&mut self, cx: &mut Context<'_>, log: &ProcessLog) -> Poll<()> {
        let mut bytes = [0; 1_024];
        while let Some(pipe) = &mut self.pipe {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(pipe).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    let read = buffer.filled();
                    self.take(read, log);
                }
                Poll::Ready(_) => {
                    self.pipe = None;
                    self.end_line(log);
                }
            }
        }
        Poll::Ready(())
    }

    fn take(&mut self, read: &[u8], log: &ProcessLog) {
        self.last.extend_from_slice(read);
        let beyond = self.last.len().saturating_sub(LAST_BYTES_MAX);
        self.last.drain(..beyond);
        for piece in read.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line(log);
            }
        }
    }

    fn end_line(&mut self, log: &ProcessLog) {
        let text = String::from_utf8_lossy(&self.line);
        if !text.trim().is_empty() {
            log.line(text.trim_end());
        }
        self.line.clear();
    }

    /// The last output, at most [`LAST_BYTES_MAX`] bytes.
    pub fn last_output(&self) -> String {
        String::from_utf8_lossy(&self.last).trim().to_owned()
    }
}
