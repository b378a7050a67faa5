//! A cancel that the program decides.

use super::turn::{scope_text, write_task};
use crate::agent::DeferredCancel;

/// A client's request to cancel a task, which waits for the decision. A drop refuses the request.
pub struct HostCancel(DeferredCancel);

impl HostCancel {
    pub(crate) fn new(cancel: DeferredCancel) -> HostCancel {
        HostCancel(cancel)
    }

    /// The task's id.
    pub fn task_id(&self) -> String {
        self.0.task_id().to_str().into_owned()
    }

    /// The scope, which distinguishes the task from tasks of other owners and tenants with the same
    /// id.
    pub fn scope(&self) -> String {
        scope_text(self.0.request().scope())
    }

    /// The task as it is now, in protocol buffers; `None`: the store no longer has the task.
    pub fn task_protobuf(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.0.read(&mut |view| write_task(&mut out, view)).then_some(out)
    }

    /// The name of the caller, where callers are authenticated.
    pub fn caller(&self) -> Option<&str> {
        self.0.request().principal().map(|principal| principal.name())
    }

    /// The tenant that the client named.
    pub fn tenant(&self) -> Option<&str> {
        self.0.request().tenant()
    }

    /// Agrees: the task is canceled, unless it has ended meanwhile.
    pub fn agree(self) {
        self.0.agree();
    }

    /// Refuses: the call fails with `TaskNotCancelable` and this text, and the task continues.
    pub fn refuse(self, text: &str) {
        self.0.refuse(text.to_owned());
    }
}
