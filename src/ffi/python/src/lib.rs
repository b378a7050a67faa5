//! The native part of the Python package: turns of the server as Python objects.
//!
//! The GIL is released while the server is started, while a thread waits for turns, and while an
//! event is published. No worker of the server takes the GIL.

mod cancel;
mod queue;
mod server;
mod turn;

use std::ffi::OsString;

use pyo3::{create_exception, exceptions::PyRuntimeError, prelude::*};

use peregrine::embed::HostError;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

create_exception!(peregrine, Error, PyRuntimeError, "An error that the server reports.");
create_exception!(
    peregrine,
    TaskClosed,
    Error,
    "The turn is over: its task has ended or was canceled, or the turn was answered."
);

/// The error as a Python exception.
fn error(error: HostError) -> PyErr {
    match error {
        HostError::Closed => TaskClosed::new_err(error.to_string()),
        HostError::Card(_)
        | HostError::Event(_)
        | HostError::OtherTask(_)
        | HostError::Server(_)
        | HostError::Full => Error::new_err(error.to_string()),
    }
}

/// Refuses an object that was created before a fork, because the threads of the server do not exist
/// in this process.
fn check_process(made_in: u32) -> PyResult<()> {
    match std::process::id() == made_in {
        true => Ok(()),
        false => Err(Error::new_err(
            "this server was created in another process: create and start it after the fork",
        )),
    }
}

/// Runs the `peregrine` program with these arguments; returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| peregrine::cli::main_of(words))
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("TaskClosed", module.py().get_type::<TaskClosed>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_class::<cancel::PyCancel>()?;
    module.add_class::<queue::PyQueue>()?;
    module.add_class::<server::PyServer>()?;
    module.add_class::<turn::PyTurn>()
}
