//! SIGPIPE: the Rust runtime ignores this signal in Rust programs. In a C program, a write to an
//! exited process or to a closed connection would end the program.
//!
//! Invariant: SIGPIPE is blocked only in the threads of the library, not in threads of the program
//! or in processes of agents.

#[cfg(unix)]
use crate::net::set_up_processes;

/// Blocks SIGPIPE on this thread until the value is dropped. Threads that are started in this time
/// inherit the block permanently.
pub(super) struct PipeSignalBlock {
    #[cfg(unix)]
    before: libc::sigset_t,
}

#[cfg(unix)]
impl PipeSignalBlock {
    pub fn new() -> PipeSignalBlock {
        set_up_processes(unblock);
        PipeSignalBlock { before: change_mask(libc::SIG_BLOCK, &pipe_signal()) }
    }
}

#[cfg(unix)]
impl Drop for PipeSignalBlock {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, &self.before);
    }
}

/// Unblocks SIGPIPE in a new process, which would otherwise inherit the mask of this thread.
#[cfg(unix)]
fn unblock(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;

    let signals = pipe_signal();
    let unblock = move || {
        change_mask(libc::SIG_UNBLOCK, &signals);
        Ok(())
    };
    // SAFETY: after the fork only `pthread_sigmask` is called, which is async-signal-safe.
    unsafe { command.pre_exec(unblock) };
}

#[cfg(unix)]
fn pipe_signal() -> libc::sigset_t {
    let mut signals = std::mem::MaybeUninit::zeroed();
    // SAFETY: the pointer is valid; the set is initialized by the first call.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGPIPE);
        signals.assume_init()
    }
}

/// Changes the signal mask of this thread; returns the previous mask.
#[cfg(unix)]
fn change_mask(how: libc::c_int, signals: &libc::sigset_t) -> libc::sigset_t {
    let mut before = *signals;
    // SAFETY: the pointers are valid, and `how` is one of the three constants.
    unsafe { libc::pthread_sigmask(how, signals, &raw mut before) };
    before
}

#[cfg(not(unix))]
impl PipeSignalBlock {
    pub fn new() -> PipeSignalBlock {
        PipeSignalBlock {}
    }
}
