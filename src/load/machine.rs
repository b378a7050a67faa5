//! Facts about the machine, and the resources of a process, from `/proc`. On systems without
//! `/proc` they are unknown.

use std::{fs, time::Instant};

/// The resources of a process at one time.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSample {
    /// The time of the sample.
    pub at: Instant,
    /// CPU time of all threads of the process since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
    /// Open descriptors; `None`: the count is not permitted.
    pub descriptors: Option<u64>,
}

impl ProcessSample {
    /// A sample of a process; `None`: the process does not exist, or the system is not supported.
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

    /// A sample of this process.
    pub fn own() -> Option<ProcessSample> {
        ProcessSample::of(std::process::id())
    }
}

/// CPU time of a process in nanoseconds: the larger of two values. The sum over the threads is
/// precise; the time of the process, in hundredths of a second, includes ended threads.
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

/// The machine of a run.
#[derive(Clone, Debug)]
pub struct MachineFacts {
    /// The system and its release, such as `Linux 6.1.0`.
    pub system: String,
    /// The name of the processor.
    pub processor: String,
    /// Threads that can run concurrently.
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
