//! A cancel that the agent decides.

use std::sync::{Mutex, PoisonError};

use peregrine::embed::HostCancel;
use pyo3::{prelude::*, types::PyBytes};

/// A client's request to cancel a task. Dropping it refuses the request.
#[pyclass(frozen, name = "Cancel", module = "peregrine._native")]
pub struct PyCancel {
    scope: String,
    task_id: String,
    caller: Option<String>,
    tenant: Option<String>,
    cancel: Mutex<Option<HostCancel>>,
}

impl PyCancel {
    pub fn new(cancel: HostCancel) -> PyCancel {
        PyCancel {
            scope: cancel.scope(),
            task_id: cancel.task_id(),
            caller: cancel.caller().map(str::to_owned),
            tenant: cancel.tenant().map(str::to_owned),
            cancel: Mutex::new(Some(cancel)),
        }
    }

    fn take(&self) -> Option<HostCancel> {
        self.cancel.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl PyCancel {
    #[getter]
    fn scope(&self) -> &str {
        &self.scope
    }

    #[getter]
    fn task_id(&self) -> &str {
        &self.task_id
    }

    #[getter]
    fn caller(&self) -> Option<&str> {
        self.caller.as_deref()
    }

    #[getter]
    fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The current task, a `Task` of A2A 1.0 in protocol buffers.
    #[getter]
    fn task_protobuf<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let task = py.detach(|| {
            let cancel = self.cancel.lock().unwrap_or_else(PoisonError::into_inner);
            cancel.as_ref().and_then(HostCancel::task_protobuf)
        });
        task.map(|bytes| PyBytes::new(py, &bytes))
    }

    /// Agrees: the task is canceled. Does nothing after a decision.
    fn agree(&self, py: Python<'_>) {
        let cancel = self.take();
        py.detach(|| cancel.map(HostCancel::agree));
    }

    /// Refuses with this text: the task continues. Does nothing after a decision.
    fn refuse(&self, py: Python<'_>, text: &str) {
        let cancel = self.take();
        py.detach(|| cancel.map(|cancel| cancel.refuse(text)));
    }
}
