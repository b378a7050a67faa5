//! The tasks that messages refer to, with their local and upstream ids.

use smallvec::SmallVec;

use crate::{
    agent::Deferred,
    fault::{Fault, FaultKind},
    model::RawText,
};

use super::ids::UpstreamIds;

/// The tasks that one message refers to (`references_max`), and the task of the message.
#[derive(Default)]
pub struct TaskReferences {
    all: SmallVec<[TaskReference; 1]>,
    /// True: every other id is the same on both sides.
    is_own: bool,
}

struct TaskReference {
    local: Box<[u8]>,
    upstream: Box<[u8]>,
}

impl TaskReferences {
    /// The tasks that the message of a turn refers to (A2A 1.0 §4.1.4, `referenceTaskIds`).
    ///
    /// # Errors
    /// `TaskNotFound`: a task is not stored, belongs to another owner, or is unknown to this
    /// upstream agent.
    pub fn of(turn: &Deferred, upstream: &str) -> Result<TaskReferences, Fault> {
        let mut references = TaskReferences::default();
        for id in turn.message().reference_task_ids() {
            if references.upstream_of(id).is_some() {
                continue;
            }
            let ids = UpstreamIds::read(turn.kept_with(id), upstream).ok_or_else(|| {
                let id = id.to_str();
                let text = format!("referenceTaskIds: the upstream agent has no task {id:?}");
                Fault::because(FaultKind::TaskNotFound, text)
            })?;
            references.add(id, ids.task_id());
        }
        Ok(references)
    }

    /// The references for an agent that uses the local ids.
    #[cfg(feature = "embed")]
    pub fn own() -> TaskReferences {
        TaskReferences { is_own: true, ..TaskReferences::default() }
    }

    /// Adds a task.
    pub fn add(&mut self, local: RawText<'_>, upstream: RawText<'_>) {
        let (local, upstream) = (local.raw().into(), upstream.raw().into());
        self.all.push(TaskReference { local, upstream });
    }

    /// The upstream agent's id of a task.
    pub fn upstream_of(&self, id: RawText<'_>) -> Option<RawText<'_>> {
        let found = self.all.iter().find(|task| &*task.local == id.raw());
        found.map(|task| RawText::known(&task.upstream))
    }

    /// The local id of a task of the upstream agent.
    pub fn local_of<'t>(&'t self, id: RawText<'t>) -> Option<RawText<'t>> {
        if self.is_own {
            return Some(id);
        }
        let found = self.all.iter().find(|task| &*task.upstream == id.raw());
        found.map(|task| RawText::known(&task.local))
    }
}
