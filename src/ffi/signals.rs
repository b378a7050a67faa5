//! SIGPIPE. Rust's runtime ignores it in Rust programs. In a program in C, a write to a process
//! that has exited, or to a connection that is closed, would end the program.
//!
//! Invariant: SIGPIPE is blocked in the threads of the library, and neither in those of the program
//! nor in the processes of agents.

#[cfg(unix)]
use crate::net::set_up_processes;

/// Blocks SIGPIPE on this thread until it is dropped, and for good on threads that are started
/// meanwhile.
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

/// Unblocks SIGPIPE in a process, which would inherit the mask of the thread.
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

/// Changes the signal mask of this thread; returns the mask before.
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
