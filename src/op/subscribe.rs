//! Attaching to a task's stream (A2A 1.0 §3.1.6).

use crate::{
    fault::{Fault, FaultKind},
    model::{Target, view::ReplayPlace},
    op::{Core, read::is_in},
    service::{CallCx, Cursor, Outcome},
};

impl Core {
    /// A new subscriber gets a snapshot and what follows; one that comes back gets what it
    /// missed. A task that ended has nothing for the former (§3.1.6: UnsupportedOperation).
    pub(super) fn subscribe(
        &self,
        cx: &CallCx<'_>,
        target: &Target<'_>,
    ) -> Result<Outcome, Fault> {
        if !self.resident(cx.caller.agent)?.profile.streaming {
            return Err(FaultKind::StreamingNotSupported.into());
        }
        let key = self.store.find(cx.caller.agent, target.id).ok_or(FaultKind::TaskNotFound)?;
        let mut opened = Err(FaultKind::TaskNotFound.into());
        self.store.read(key, &mut |view| {
            if !is_in(&view, target.context_id) {
                return;
            }
            let after = target.after.filter(|after| *after <= view.seq());
            let missed = after.is_some_and(|after| after < view.seq());
            if view.status().state.is_terminal() && !missed {
                opened = Err(FaultKind::TaskTerminal.into());
                return;
            }
            let cursor = Cursor {
                key,
                seq: after.unwrap_or(view.seq()),
                snapshot: after.is_none(),
                place: ReplayPlace::default(),
            };
            opened = Ok(Outcome::Stream { cursor, generation: view.generation() });
        });
        opened
    }
}
