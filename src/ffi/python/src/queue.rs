//! The queue in which turns wait for a thread or an event loop of Python.

use std::{
    os::{fd::AsRawFd, unix::net::UnixStream},
    sync::Arc,
    time::Duration,
};

use peregrine::embed::{HostItem, HostQueue};
use pyo3::{IntoPyObjectExt, prelude::*};

use crate::{cancel::PyCancel, check_process, turn::PyTurn};

/// The longest time that a thread waits, in seconds.
const WAIT_S_MAX: f64 = 3600.0;

/// The turns of one or more agents.
#[pyclass(frozen, name = "Queue", module = "peregrine._native")]
pub struct PyQueue {
    pub queue: Arc<HostQueue>,
    socket: Option<UnixStream>,
    process: u32,
}

#[pymethods]
impl PyQueue {
    /// `for_loop`: the queue gets a descriptor that becomes readable, for event loops.
    #[new]
    #[pyo3(signature = (for_loop = false))]
    fn new(for_loop: bool) -> PyResult<PyQueue> {
        let process = std::process::id();
        if !for_loop {
            return Ok(PyQueue { queue: HostQueue::new(), socket: None, process });
        }
        let (queue, socket) = HostQueue::with_bell()?;
        Ok(PyQueue { queue, socket: Some(socket), process })
    }

    /// The descriptor; -1: the queue has none.
    fn fileno(&self) -> i32 {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Reads all bytes from the descriptor.
    fn hear(&self) {
        if let Some(socket) = &self.socket {
            HostQueue::hear(socket);
        }
    }

    /// Takes at most `most` items: turns, cancels, and numbers of ended turns. Waits until an item
    /// arrives, `wait_s` seconds have passed, or the queue is closed. `None`: the queue is closed
    /// and empty.
    fn take<'py>(
        &self,
        py: Python<'py>,
        wait_s: f64,
        most: usize,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        check_process(self.process)?;
        let wait = Duration::from_secs_f64(wait_s.clamp(0.0, WAIT_S_MAX));
        let received = match wait.is_zero() {
            true => self.queue.take(wait, most),
            false => py.detach(|| self.queue.take(wait, most)),
        };
        let object = |item| match item {
            HostItem::Turn(turn) => {
                PyTurn::new(turn, Arc::clone(&self.queue)).into_bound_py_any(py)
            }
            HostItem::Cancel(cancel) => PyCancel::new(cancel).into_bound_py_any(py),
            HostItem::Ended(number) => number.into_bound_py_any(py),
        };
        received.map(|items| items.into_iter().map(object).collect()).transpose()
    }

    /// Closes the queue: waiting turns fail.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.queue.close());
    }
}
