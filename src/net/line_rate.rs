//! A limit of log lines in a second; further lines are counted, and the count is reported once.

use std::time::{Duration, Instant};

/// The current second, and its count of lines.
#[derive(Default)]
pub(super) struct LineRate {
    since: Option<Instant>,
    lines: u32,
    skipped: u64,
}

/// The decision on a line.
pub(super) struct LineVerdict {
    /// True: the line is written.
    pub is_written: bool,
    /// Lines of the previous second that were not written; report them now.
    pub skipped: u64,
}

impl LineRate {
    /// No lines so far.
    pub const NEW: LineRate = LineRate { since: None, lines: 0, skipped: 0 };

    /// Decides on a line; each second has at most `most` lines.
    pub fn take(&mut self, now: Instant, most: u32) -> LineVerdict {
        let skipped = if self.is_over(now) { self.restart(now) } else { 0 };
        let is_written = self.lines < most;
        match is_written {
            true => self.lines += 1,
            false => self.skipped += 1,
        }
        LineVerdict { is_written, skipped }
    }

    /// Takes the number of lines that were neither written nor reported, if their second is over or
    /// `at_end`.
    #[cfg(feature = "logs")]
    pub fn take_skipped(&mut self, now: Instant, at_end: bool) -> u64 {
        if at_end || self.is_over(now) { std::mem::take(&mut self.skipped) } else { 0 }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1))
    }

    fn restart(&mut self, now: Instant) -> u64 {
        std::mem::replace(self, LineRate { since: Some(now), lines: 0, skipped: 0 }).skipped
    }
}
