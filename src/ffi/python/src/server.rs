//! The server as a Python object.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use peregrine::embed::{HostAgent, HostServer, HostSettings};
use pyo3::prelude::*;

use crate::{Error, check_process, error, queue::PyQueue};

/// The interval at which a waiting thread checks for the end of the server.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An agent of the program: `ServedAgent` in Python.
#[derive(FromPyObject)]
struct ServedAgent {
    /// The card in JSON.
    card: Vec<u8>,
    /// Names of the header fields that are passed to the agent.
    headers: Vec<String>,
    queue: Py<PyQueue>,
    decides_cancels: bool,
}

/// A running server.
#[pyclass(frozen, name = "Server", module = "peregrine._native")]
pub struct PyServer {
    server: Mutex<Option<HostServer>>,
    process: u32,
}

impl PyServer {
    fn lock(&self) -> MutexGuard<'_, Option<HostServer>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_server<R>(&self, call: impl FnOnce(&HostServer) -> R) -> PyResult<R> {
        check_process(self.process)?;
        let server = self.lock();
        let server = server.as_ref().ok_or_else(|| Error::new_err("the server has ended"))?;
        Ok(call(server))
    }
}

#[pymethods]
impl PyServer {
    /// Starts a server. The configuration is `config_file` or `config_text`.
    #[new]
    fn new(
        py: Python<'_>,
        agents: Vec<ServedAgent>,
        listen: Vec<String>,
        config_file: Option<PathBuf>,
        config_text: Option<String>,
    ) -> PyResult<PyServer> {
        let mut host_agents = Vec::new();
        for ServedAgent { card, headers, queue, decides_cancels } in agents {
            let profile = HostAgent::profile_of_card(&card).map_err(error)?;
            let queue = Arc::clone(&queue.get().queue);
            host_agents.push(HostAgent::new(profile, queue, decides_cancels).fields(headers));
        }
        let settings = match (config_file, config_text) {
            (_, Some(text)) => HostSettings::Text(text),
            (Some(file), None) => HostSettings::File(file),
            (None, None) => HostSettings::Default,
        };
        let server =
            py.detach(|| HostServer::start(settings, listen, host_agents)).map_err(error)?;
        Ok(PyServer { server: Mutex::new(Some(server)), process: std::process::id() })
    }

    /// The listening addresses, such as `127.0.0.1:3000`.
    #[getter]
    fn addresses(&self) -> PyResult<Vec<String>> {
        self.with_server(|server| {
            server.running().addrs().iter().map(ToString::to_string).collect()
        })
    }

    #[getter]
    fn port(&self) -> PyResult<u16> {
        self.with_server(HostServer::port)
    }

    #[getter]
    fn url(&self) -> PyResult<String> {
        self.with_server(|server| server.running().base_url().to_owned())
    }

    #[getter]
    fn banner(&self) -> PyResult<String> {
        self.with_server(|server| server.banner().to_owned())
    }

    /// True: clients receive the texts of exceptions.
    #[getter]
    fn shows_errors(&self) -> PyResult<bool> {
        self.with_server(|server| server.running().shows_errors())
    }

    /// Reloads the configuration, or replaces it with this text.
    fn reload(&self, py: Python<'_>, text: Option<String>) -> PyResult<()> {
        let reloader = self.with_server(HostServer::reloader)?;
        py.detach(|| reloader.reload(text.as_deref())).map_err(error)
    }

    /// Stops accepting connections, gives running calls `drain_ms` to end, then ends. Returns at
    /// once.
    fn shutdown(&self) -> PyResult<()> {
        self.with_server(HostServer::shutdown)
    }

    /// Waits for the end, at most `wait_s` seconds; returns true if the server has ended.
    fn join(&self, py: Python<'_>, wait_s: f64) -> PyResult<bool> {
        check_process(self.process)?;
        let until = Instant::now() + Duration::from_secs_f64(wait_s.clamp(0.0, 86_400.0));
        py.detach(|| {
            loop {
                let mut server = self.lock();
                match server.as_ref().map(|server| server.running().has_ended()) {
                    None => return Ok(true),
                    Some(true) => {
                        if let Some(server) = server.take() {
                            server.join();
                        }
                        return Ok(true);
                    }
                    Some(false) => {}
                }
                drop(server);
                let remaining = until.saturating_duration_since(Instant::now());
                if remaining.is_zero() {
                    return Ok(false);
                }
                std::thread::sleep(remaining.min(LOOK_EVERY));
            }
        })
    }
}
