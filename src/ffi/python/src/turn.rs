//! A turn as a Python object.

use std::{borrow::Cow, sync::Arc};

use peregrine::{
    embed::{EventField, HostQueue, HostTurn},
    fault::FaultKind,
    model::TaskState,
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

use crate::error;

/// One message to an agent. All methods may be called from any thread.
#[pyclass(frozen, name = "Turn", module = "peregrine._native")]
pub struct PyTurn {
    turn: HostTurn,
    /// The queue that the turn was taken from.
    queue: Arc<HostQueue>,
}

impl PyTurn {
    pub fn new(turn: HostTurn, queue: Arc<HostQueue>) -> PyTurn {
        PyTurn { turn, queue }
    }
}

fn state_of(word: &str) -> PyResult<TaskState> {
    let found = TaskState::ALL.into_iter().find(|state| state.word() == word);
    found
        .filter(|state| *state != TaskState::Unspecified)
        .ok_or_else(|| PyValueError::new_err(format!("unknown task state {word:?}")))
}

/// The A2A error of this name, with which an agent may refuse a message.
fn fault_of(name: &str) -> PyResult<FaultKind> {
    Ok(match name {
        "InvalidParams" => FaultKind::InvalidParams,
        "InvalidRequest" => FaultKind::InvalidRequest,
        "Internal" => FaultKind::Internal,
        "TaskNotFound" => FaultKind::TaskNotFound,
        "TaskNotCancelable" => FaultKind::TaskNotCancelable,
        "UnsupportedOperation" => FaultKind::UnsupportedOperation,
        "ContentTypeNotSupported" => FaultKind::ContentTypeNotSupported,
        "InvalidAgentResponse" => FaultKind::InvalidAgentResponse,
        "ExtensionSupportRequired" => FaultKind::ExtensionSupportRequired,
        "PermissionDenied" => FaultKind::PermissionDenied,
        "Overloaded" => FaultKind::Overloaded,
        _ => return Err(PyValueError::new_err(format!("unknown error name {name:?}"))),
    })
}

fn bytes<'py>(py: Python<'py>, bytes: Option<Vec<u8>>) -> Option<Bound<'py, PyBytes>> {
    bytes.map(|bytes| PyBytes::new(py, &bytes))
}

#[pymethods]
impl PyTurn {
    #[getter]
    fn scope(&self) -> String {
        self.turn.scope()
    }

    #[getter]
    fn task_id(&self) -> &str {
        self.turn.task_id()
    }

    #[getter]
    fn context_id(&self) -> &str {
        self.turn.context_id()
    }

    /// The text parts of the message.
    #[getter]
    fn text(&self) -> Option<String> {
        self.turn.text()
    }

    #[getter]
    fn message_json<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        bytes(py, self.turn.message_json())
    }

    #[getter]
    fn metadata_json(&self) -> Option<String> {
        self.turn.metadata_json()
    }

    #[getter]
    fn request_protobuf<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        bytes(py, self.turn.request_protobuf())
    }

    #[getter]
    fn task_protobuf<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        bytes(py, self.turn.task_protobuf())
    }

    #[getter]
    fn caller(&self) -> Option<String> {
        self.turn.caller()
    }

    #[getter]
    fn tenant(&self) -> Option<String> {
        self.turn.tenant()
    }

    #[getter]
    fn extensions(&self) -> Option<String> {
        self.turn.extensions()
    }

    /// The state of the task before the message, such as `input-required`; `None`: a new task.
    #[getter]
    fn state(&self) -> Option<&'static str> {
        self.turn.state().map(TaskState::word)
    }

    #[getter]
    fn is_over(&self) -> bool {
        self.turn.is_over()
    }

    /// True: the last published state waits for the client.
    #[getter]
    fn is_waiting_for_client(&self) -> bool {
        self.turn.last_state().is_some_and(TaskState::is_interrupted)
    }

    fn header(&self, name: &str) -> Option<String> {
        self.turn.header(name)
    }

    /// Returns the number of the turn. The queue receives this number when the turn is over.
    fn watch(&self) -> u64 {
        self.turn.watch(&self.queue)
    }

    /// Publishes an event of A2A 1.0 in protocol buffers. `field` 1: a Task, 2: a Message, 3: a
    /// TaskStatusUpdateEvent, 4: a TaskArtifactUpdateEvent.
    fn publish_protobuf(&self, py: Python<'_>, field: u32, event: &[u8]) -> PyResult<()> {
        let field = EventField::of(field).ok_or_else(|| {
            PyValueError::new_err(format!("unknown event field {field}: must be 1, 2, 3 or 4"))
        })?;
        py.detach(|| self.turn.publish_protobuf(field, event)).map_err(error)
    }

    /// Publishes a `StreamResponse` of A2A 1.0 in JSON.
    fn publish_json(&self, py: Python<'_>, event: Cow<'_, [u8]>) -> PyResult<()> {
        py.detach(|| self.turn.publish_json(&event)).map_err(error)
    }

    #[pyo3(signature = (state, text = None))]
    fn status(&self, py: Python<'_>, state: &str, text: Option<&str>) -> PyResult<()> {
        let state = state_of(state)?;
        py.detach(|| self.turn.status(state, text)).map_err(error)
    }

    fn artifact(
        &self,
        py: Python<'_>,
        artifact_id: &str,
        text: &str,
        append: bool,
        last: bool,
    ) -> PyResult<()> {
        py.detach(|| self.turn.artifact(artifact_id, text, append, last)).map_err(error)
    }

    fn reply(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        py.detach(|| self.turn.reply(text)).map_err(error)
    }

    fn fail(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        py.detach(|| self.turn.fail(text)).map_err(error)
    }

    /// Ends the turn: its task fails unless it has ended or waits for its client.
    fn end(&self, py: Python<'_>) {
        py.detach(|| self.turn.end());
    }

    /// Refuses the message with an error of A2A, such as `InvalidParams`.
    fn refuse(&self, py: Python<'_>, name: &str, text: &str) -> PyResult<()> {
        let kind = fault_of(name)?;
        py.detach(|| self.turn.refuse(kind, text)).map_err(error)
    }
}
