//! What the machine is, and what a process takes of it. From `/proc`; elsewhere nothing is known.

use std::{fs, time::Instant};

/// What a process had taken at one time.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSample {
    /// When it was looked at.
    pub at: Instant,
    /// CPU time of all its threads since it began, in nanoseconds.
    pub cpu_ns: u64,
    /// Bytes of memory that are resident.
    pub rss_bytes: u64,
    /// Descriptors that are open; `None`: they may not be counted.
    pub descriptors: Option<u64>,
}

impl ProcessSample {
    /// What the process takes now; `None`: there is no such process, or nothing is known here.
    pub fn of(pid: u32) -> Option<ProcessSample> {
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok();
        Some(ProcessSample {
            at: Instant::now(),
            cpu_ns: cpu_ns(pid)?,
            rss_bytes: pages * page_bytes(),
            descriptors: descriptors.map(|open| open.count() as u64),
        })
    }

    /// What this process takes now.
    pub fn own() -> Option<ProcessSample> {
        ProcessSample::of(std::process::id())
    }
}

/// CPU time of a process in nanoseconds. That of threads is precise, and that of the process, in
/// hundredths of a second, has the threads that have ended as well: the larger one is taken.
fn cpu_ns(pid: u32) -> Option<u64> {
    const TICK_NS: u64 = 10_000_000;
    let mut threads_ns = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let first = text.split_whitespace().next();
        threads_ns += first.and_then(|ns| ns.parse::<u64>().ok()).unwrap_or_default();
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may have spaces.
    let numbers = stat.rsplit_once(')')?.1;
    let ticks = numbers.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(threads_ns.max(ticks * TICK_NS))
}

#[cfg(unix)]
fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(not(unix))]
fn page_bytes() -> u64 {
    4096
}

/// The machine that a run was made on.
#[derive(Clone, Debug)]
pub struct MachineFacts {
    /// As `Linux 6.1.0`.
    pub system: String,
    /// What the processor calls itself.
    pub processor: String,
    /// Threads that may run at once.
    pub cpus: usize,
    /// Bytes of memory; 0: unknown.
    pub memory_bytes: u64,
}

impl MachineFacts {
    /// This machine.
    pub fn here() -> MachineFacts {
        let line = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            value.trim_start_matches([' ', '\t', ':']).trim().to_owned()
        };
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kib = line("/proc/meminfo", "MemTotal");
        let kib = kib.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
        MachineFacts {
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
            processor: line("/proc/cpuinfo", "model name"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.unwrap_or_default() * 1024,
        }
    }
}
