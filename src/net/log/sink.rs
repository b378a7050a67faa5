//! The sink of lines: a queue that never waits, and a thread that writes its lines.

use std::{
    fmt::Write as _,
    io::{self, Write},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

use crate::{limits::LOG_LINES_MAX, model::must_escape};

/// How long the end of the process waits for the last lines.
const FLUSH: Duration = Duration::from_secs(1);

/// Lines that did not fit into the queue.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The queue of this process.
static QUEUE: OnceLock<SyncSender<LogEntry>> = OnceLock::new();

enum LogEntry {
    Line(Vec<u8>),
    /// Reports when all earlier lines are written.
    Flush(SyncSender<()>),
}

/// Writes each line as a whole, or counts it as lost.
#[derive(Clone)]
pub(super) struct Sink(SyncSender<LogEntry>);

impl Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.try_send(LogEntry::Line(plain(line))).is_err() {
            LOST.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Sink;

    fn make_writer(&'a self) -> Sink {
        self.clone()
    }
}

/// Returns the line with JSON escapes, in text lines as well, instead of characters of a peer that
/// would control a terminal. ASCII controls except DEL stay: the formatter has escaped them in
/// values, and uses them itself.
fn plain(line: &[u8]) -> Vec<u8> {
    if line.iter().all(|&byte| byte < 0x7f) {
        return line.to_vec();
    }
    let mut plain = String::with_capacity(line.len());
    for letter in String::from_utf8_lossy(line).chars() {
        match letter > '\u{7e}' && must_escape(letter) {
            // All characters to be escaped are below U+10000. Writing to a String never fails.
            true => _ = write!(plain, "\\u{:04x}", u32::from(letter)),
            false => plain.push(letter),
        }
    }
    plain.into_bytes()
}

/// The sink of stderr; `None`: the system cannot start its thread.
pub(super) fn stderr() -> Option<Sink> {
    let sink = to(io::stderr())?;
    // A process has only one sink.
    let _ = QUEUE.set(sink.0.clone());
    Some(sink)
}

fn to(writer: impl Write + Send + 'static) -> Option<Sink> {
    let (queue, lines) = mpsc::sync_channel(LOG_LINES_MAX);
    let thread = thread::Builder::new().name("peregrine-log".to_owned());
    thread.spawn(move || write_lines(&lines, writer)).ok()?;
    Some(Sink(queue))
}

fn write_lines(lines: &Receiver<LogEntry>, mut writer: impl Write) {
    for entry in lines {
        match entry {
            // Without a reader the line is dropped.
            LogEntry::Line(line) => _ = writer.write_all(&line),
            LogEntry::Flush(done) => {
                let _ = writer.flush();
                // The waiting thread may have stopped waiting.
                let _ = done.try_send(());
            }
        }
    }
}

/// Waits until earlier lines are written, at most for `FLUSH`.
pub(in crate::net) fn flush() {
    let Some(queue) = QUEUE.get() else { return };
    let (done, flushed) = mpsc::sync_channel(1);
    if queue.try_send(LogEntry::Flush(done)).is_ok() {
        let _ = flushed.recv_timeout(FLUSH);
    }
}

/// Lines that the sink could not take.
pub(in crate::net) fn lost_lines() -> u64 {
    LOST.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Blocks until the lock is released.
    struct Stuck(Arc<Mutex<usize>>);

    impl Write for Stuck {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            *self.0.lock().unwrap() += 1;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn json_log_line_escapes_controls_and_keeps_its_value() {
        let json = "{\"message\":\"\u{7f}\u{85}\u{202e}\u{2028}\u{e9}\u{1f600}\"}\n";
        let line = String::from_utf8(plain(json.as_bytes())).unwrap();
        assert!(line.contains("\\u007f\\u0085\\u202e\\u2028\u{e9}\u{1f600}"), "{line}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&line), read(json));
        assert_eq!(plain(b"\x1b[2mINFO\x1b[0m x\n"), b"\x1b[2mINFO\x1b[0m x\n");
    }

    #[test]
    fn blocked_sink_delays_no_caller_and_counts_lost_lines() {
        let written = Arc::new(Mutex::new(0));
        let mut sink = to(Stuck(Arc::clone(&written))).unwrap();
        let held = written.lock().unwrap();
        let before = lost_lines();
        // The writer may have taken one line already.
        for _ in 0..LOG_LINES_MAX + 101 {
            sink.write_all(b"line\n").unwrap();
        }
        let lost = lost_lines() - before;
        assert!((100..=101).contains(&lost), "{lost}");
        drop(held);
        let (done, flushed) = mpsc::sync_channel(1);
        sink.0.send(LogEntry::Flush(done)).unwrap();
        flushed.recv().unwrap();
        assert_eq!(*written.lock().unwrap() as u64 + lost, LOG_LINES_MAX as u64 + 101);
    }
}
