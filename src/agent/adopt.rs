//! The takeover of tasks after an agent's program was replaced, and the bytes that a program stores
//! with a task for its successor.

use std::sync::Arc;

use super::{Job, JobHost, RequestInfo, RequestView, ids::FreshIds};
use crate::{
    model::{MessageBuf, PartsBuf, TaskBuf, TaskState, TaskView},
    service::Handle,
};

/// An unfinished task after its agent's program was replaced: see
/// [`Agent::adopt`](super::Agent::adopt). The agent may decide later, on any thread. Dropping the
/// value fails the task with a reason.
pub struct Adopted {
    task: TaskBuf,
    stored: Box<[u8]>,
    job: Option<Job>,
}

impl Adopted {
    /// Wraps the task in its current state, the bytes stored with it, and the job that continues
    /// it.
    pub(crate) fn new(task: TaskBuf, stored: Box<[u8]>, job: Job) -> Adopted {
        Adopted { task, stored, job: Some(job) }
    }

    /// The task at the time of the replacement: ids, status, history, artifacts.
    pub fn task(&self) -> TaskView<'_> {
        self.task.view()
    }

    /// The remaining data of the request: tenant and owner of the task.
    ///
    /// # Panics
    /// Never: taking the job consumes the value.
    pub fn request(&self) -> &RequestInfo {
        match &self.job {
            Some(job) => job.request(),
            None => unreachable!("into_job consumes the value"),
        }
    }

    /// The bytes stored with the task; see [`Job::keep`].
    pub fn kept(&self) -> &[u8] {
        &self.stored
    }

    /// Continues the task. The message of the job is the latest message of the client.
    ///
    /// # Panics
    /// Never: taking the job consumes the value.
    pub fn into_job(mut self) -> Job {
        match self.job.take() {
            Some(job) => job,
            None => unreachable!("into_job consumes the value"),
        }
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        let Some(mut job) = self.job.take() else { return };
        let text = "the agent was replaced, and the new agent does not continue this task";
        let message = MessageBuf::agent(&PartsBuf::new().text(text));
        // A task that has ended meanwhile needs no further status.
        let _ = job.status(TaskState::Failed, Some(&message));
    }
}

/// Why bytes were not stored with a task; the previous bytes remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The task accepts no more changes: see [`Closed`](super::Closed).
    Closed,
    /// There are more bytes than `kept_bytes_max`.
    TooLong,
    /// The server has no room for the bytes (`store_bytes_max`), or the owner's share is full.
    NoRoom,
}

impl std::fmt::Display for NotKept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NotKept::Closed => "the task accepts no more events",
            NotKept::TooLong => "more bytes than kept_bytes_max",
            NotKept::NoRoom => {
                "no room for the bytes of the agent (store_bytes_max, or the owner's share of it)"
            }
        })
    }
}

impl std::error::Error for NotKept {}

impl Job {
    /// The job that continues a task after its agent's program was replaced; `bits` are random.
    pub(crate) fn of_adopted(
        task: &TaskBuf,
        request: &RequestView<'_>,
        handle: Handle,
        host: Arc<dyn JobHost>,
        bits: u128,
    ) -> Job {
        let view = task.view();
        let message = view.last_user_message().map(|message| message.packed().into());
        Job {
            task_id: view.id().raw().into(),
            context_id: view.context_id().raw().into(),
            message: message.unwrap_or_default(),
            request: Box::new(RequestInfo::of(request, Some(view.status().state))),
            call: None,
            task: handle,
            host,
            ids: FreshIds::of_bits(bits),
            done: false,
        }
    }

    /// Stores private bytes of the agent with the task, replacing the previous ones. A successor
    /// program receives them as [`Adopted::kept`] to continue the task, and later messages that
    /// refer to the task through [`Deferred::kept_with`](super::Deferred::kept_with). Clients never
    /// receive them. They count as bytes of the store until the task is evicted.
    ///
    /// # Errors
    /// [`NotKept`].
    pub fn keep(&mut self, bytes: &[u8]) -> Result<(), NotKept> {
        self.host.keep(self.task, bytes)
    }

    /// The bytes stored with the task; empty if the task belongs to another program.
    pub fn kept(&self) -> Vec<u8> {
        self.host.kept(self.task)
    }
}
