//! The process group of a process and its descendants.
//!
//! Invariants: the group is killed when the process has exited, and when [`ProcessGroup`] is
//! dropped. The group's number is used only while the process is not reaped, or directly
//! afterwards: the system does not reuse the number while the group has a member.

use std::{
    future::Future,
    io,
    pin::pin,
    process::ExitStatus,
    task::{Context, Poll, ready},
    thread,
    time::Duration,
};

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use super::command::ProcessCommand;

/// How often a dropped group checks, once a millisecond, whether its killed process was reaped:
/// this leaves no zombie in a program that embeds the server.
const REAP_TRIES: u32 = 100;

/// A process that leads a group.
pub(super) struct ProcessGroup {
    child: Child,
    /// The number of the process and of its group.
    id: Option<u32>,
}

/// The pipes of a process.
pub(super) struct Pipes {
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
}

impl ProcessGroup {
    /// Starts the command.
    pub fn start(command: &ProcessCommand) -> io::Result<(ProcessGroup, Pipes)> {
        let mut child = command.prepare().spawn()?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let id = child.id();
        Ok((ProcessGroup { child, id }, Pipes { stdin, stdout, stderr }))
    }

    /// Ready when the process has exited; the rest of its group is killed then.
    pub fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        let status = ready!(pin!(self.child.wait()).poll(cx));
        if let Some(id) = self.id.take() {
            kill_group(id);
        }
        Poll::Ready(status)
    }

    /// Kills the group.
    pub fn kill(&mut self) {
        if let Some(id) = self.id {
            kill_group(id);
            // Kills the process on a system without groups.
            let _ = self.child.start_kill();
        }
    }

    /// Kills the group and waits until the process is reaped.
    pub async fn end(&mut self) {
        self.kill();
        // A process that cannot be waited for is ignored.
        let _ = self.child.wait().await;
        self.id = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if self.id.is_none() {
            return;
        }
        self.kill();
        for _ in 0..REAP_TRIES {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(1)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }
}

#[cfg(unix)]
fn kill_group(id: u32) {
    use rustix::process::{Pid, Signal, kill_process_group};

    if let Some(group) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // This fails if the group has no members any more.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(not(unix))]
fn kill_group(_id: u32) {}
