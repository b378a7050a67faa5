//! A cancel that the program decides.

use crate::agent::DeferredCancel;

/// A client wants a task to end, and waits for the answer. Dropping it refuses.
pub struct HostCancel {
    task_id: String,
    cancel: DeferredCancel,
}

impl HostCancel {
    pub(crate) fn new(cancel: DeferredCancel) -> HostCancel {
        HostCancel { task_id: cancel.task_id().to_str().into_owned(), cancel }
    }

    /// The task's id.
    pub fn task_id(&self) -> &str {
        &self.task_id
    }

    /// The name of the caller, where callers are authenticated.
    pub fn caller(&self) -> Option<&str> {
        self.cancel.request().principal().map(|principal| principal.name())
    }

    /// The name of the space of tasks that the client named.
    pub fn tenant(&self) -> Option<&str> {
        self.cancel.request().tenant()
    }

    /// Agrees: the task is canceled, unless it has ended meanwhile.
    pub fn agree(self) {
        self.cancel.agree();
    }

    /// Refuses: the call fails with `TaskNotCancelable` and this text, and the task goes on.
    pub fn refuse(self, text: &str) {
        self.cancel.refuse(text.to_owned());
    }
}
