//! The official kit (a2aproject/a2a-tck) as a child process.
//!
//! Invariant: the kit receives the agent's origin and no secret of the user. The kit and all
//! processes that it started end with the command: on completion, by `--timeout`, or by Ctrl-C.

use std::{
    env,
    io::{Error, stderr},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{
    super::{failure::CommandFailure, reference::CardReference},
    Invocation,
};

/// Interval at which the end of the kit is checked.
const LOOK: Duration = Duration::from_millis(50);

/// The kit, and the processes that it starts.
struct KitProcess(Child);

impl Drop for KitProcess {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            // A process that has ended needs no signal.
            let _ = end_all(&mut self.0);
            let _ = self.0.wait();
        }
    }
}

#[cfg(unix)]
fn end_all(kit: &mut Child) -> Result<(), Error> {
    use rustix::process::{Pid, Signal, kill_process_group};

    let group = i32::try_from(kit.id()).ok().and_then(Pid::from_raw);
    Ok(group.map_or(Ok(()), |group| kill_process_group(group, Signal::KILL))?)
}

#[cfg(not(unix))]
fn end_all(kit: &mut Child) -> Result<(), Error> {
    kit.kill()
}

/// Runs the kit in a folder on the agent; true: all checks passed.
///
/// # Errors
/// A [`CommandFailure`]: the kit is missing, or the agent is not named by its origin.
pub async fn run(on: &Invocation<'_>, folder: &str) -> Result<bool, CommandFailure> {
    let reference = CardReference::parse(on.settings.text("agent-card").unwrap_or_default())?;
    let CardReference::Origin(url) = reference else {
        let line = "the TCK fetches the card itself: give the agent's origin";
        return Err(CommandFailure::usage(line));
    };
    let program = Path::new(folder).join("run_tck.py");
    let unusable = |error: Error| {
        let line = format!("cannot run {}: {error}", program.display());
        CommandFailure::usage(line)
            .hint("--tck must be a folder with a checkout of a2aproject/a2a-tck")
    };
    let mut command = Command::new(program.canonicalize().map_err(unusable)?);
    command.current_dir(folder).arg("--sut-host").arg(&url).arg("--level").arg("must");
    for (name, _) in env::vars_os().filter(|(name, _)| is_ours(name.as_encoded_bytes())) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(stderr());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut kit = KitProcess(command.spawn().map_err(unusable)?);
    loop {
        match kit.0.try_wait().map_err(unusable)? {
            Some(status) => return Ok(status.success()),
            None => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Whether a variable is a setting of the command line: such settings may be secrets.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b"A2ACLI_")
}
