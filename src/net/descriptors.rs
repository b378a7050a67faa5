//! File descriptors: how many connections there is room for.
//!
//! A worker that accepts more than that is woken for each one it cannot take. So the soft limit is
//! raised as far as the connections need it and the hard one allows, and `connections_max` is
//! lowered to what is left.

use rustix::process::{Resource, getrlimit, setrlimit};

/// What a worker opens beside its listeners: its event queue, what wakes it, what its signals come
/// through, and a connection that it takes only to refuse it.
const WORKER: u64 = 8;
/// What the process opens beside that: files that are read again, and room for agents.
const PROCESS: u64 = 16;
/// What is thought to be open where the system does not say it.
const OPEN: u64 = 64;

/// How many of `wanted` connections this process can hold; the listeners are open already.
pub(crate) fn connections(wanted: usize, workers: usize) -> usize {
    // The folder is one of them itself, while it is read.
    let open = std::fs::read_dir("/dev/fd").map_or(OPEN, |files| files.count() as u64);
    let own = open + WORKER * workers as u64 + PROCESS;
    let limit = raise((wanted as u64).saturating_add(own));
    let room = limit.saturating_sub(own).max(1);
    wanted.min(usize::try_from(room).unwrap_or(usize::MAX))
}

/// Raises the soft limit to `needed`, or to the hard one; says what it is then.
fn raise(needed: u64) -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    if soft >= needed {
        return soft;
    }
    let target = limit.maximum.map_or(needed, |hard| hard.min(needed));
    limit.current = Some(target);
    // Where the system refuses, there is room for what there was room for.
    if setrlimit(Resource::Nofile, limit).is_ok() { target } else { soft }
}
