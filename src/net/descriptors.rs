//! File descriptors: how many connections the process can hold.
//!
//! A worker without free descriptors would be woken for each connection that it cannot accept. So
//! the soft limit is raised to the need of the connections, at most to the hard limit, and
//! `connections_max` is lowered to the available descriptors.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors of a worker in addition to its listeners: its event queue, its waker, its signals,
/// and a connection that it accepts only to refuse it.
const WORKER: u64 = 8;
/// Further descriptors of the process: files that are read again, and a reserve for agents.
const PROCESS: u64 = 16;
/// The assumed number of open descriptors if the system does not report it.
const OPEN: u64 = 64;

/// How many of `wanted` connections this process can hold; the listeners are open already.
pub(crate) fn connections(wanted: usize, workers: usize) -> usize {
    // The count includes the descriptor of the folder.
    let open = std::fs::read_dir("/dev/fd").map_or(OPEN, |files| files.count() as u64);
    let own = open + WORKER * workers as u64 + PROCESS;
    let limit = raise((wanted as u64).saturating_add(own));
    let room = limit.saturating_sub(own).max(1);
    wanted.min(usize::try_from(room).unwrap_or(usize::MAX))
}

/// Raises the soft limit to `needed`, at most to the hard limit; returns the new soft limit.
fn raise(needed: u64) -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    if soft >= needed {
        return soft;
    }
    let target = limit.maximum.map_or(needed, |hard| hard.min(needed));
    limit.current = Some(target);
    // If the system refuses, the soft limit is unchanged.
    if setrlimit(Resource::Nofile, limit).is_ok() { target } else { soft }
}
