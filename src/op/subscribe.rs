//! Attaching to a task's stream (A2A 1.0 §3.1.6).

use crate::{
    agent::Wanted,
    fault::{Fault, FaultKind},
    model::{Generation, Target},
    op::{Core, missing::MissingTask, read::is_in},
    service::{CallCx, Cursor, Outcome},
};

impl Core {
    /// A new subscriber gets a snapshot and the events that follow; a resuming subscriber gets the
    /// events that it missed. A finished task rejects a new subscriber (§3.1.6:
    /// UnsupportedOperation).
    pub(super) fn subscribe(&self, cx: &CallCx<'_>, target: &Target<'_>) -> Result<Outcome, Fault> {
        let registered = self.registered(cx.caller.worker, cx.caller.scope.agent)?;
        // The events of a removed agent can still be read.
        if !registered.profile.streaming && !registered.is_removed {
            return Err(FaultKind::StreamingNotSupported.into());
        }
        let opened = self.store.read_id(cx.caller.scope, target.id.raw(), |key, task| {
            if !is_in(&task, target.context_id) {
                return Err(FaultKind::TaskNotFound);
            }
            let after = target.after.filter(|after| *after <= task.seq());
            let missed = after.is_some_and(|after| after < task.seq());
            if task.state().is_terminal() && !missed {
                return Err(FaultKind::TaskTerminal);
            }
            let (seq, handle) = (after.unwrap_or(task.seq()), key.handle());
            // A2A 1.0 §3.1.6: until the task is terminal; before 1.0 a stream pauses with its task.
            let ends_at_input = target.generation != Generation::V1;
            let snapshot = after.is_none();
            let position = Cursor { handle, seq, snapshot, ..Cursor::default() };
            let cursor = Cursor { ends_at_input, ..position };
            Ok(Outcome::Stream { cursor, generation: task.generation() })
        });
        match opened {
            Some(opened) => Ok(opened?),
            None => self.look_up(cx, &MissingTask::of(target, Wanted::Subscribe)),
        }
    }
}
