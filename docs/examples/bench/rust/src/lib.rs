//! Shared by both agents: the contract of `peregrine bench`, and the card.

use std::{env, time::Duration};

use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The request in `stream:N`, `stream:N:BYTES`, `hold:MS:N` and `hold:MS:N:BYTES`.
pub struct Trigger {
    pub hold: Duration,
    /// Changes of the task: working, chunks, completed.
    pub events: u64,
    /// Least bytes of each chunk.
    pub chunk_bytes: usize,
}

impl Trigger {
    /// Reads a text; any other text is echoed.
    pub fn read(text: &str) -> Option<Trigger> {
        let mut words = text.split(':');
        let hold_ms = match words.next()? {
            "stream" => 0,
            "hold" => words.next()?.parse().ok()?,
            _ => return None,
        };
        let events = words.next()?.parse().ok()?;
        let chunk_bytes = words.next().map_or(Ok(0), str::parse).ok()?;
        let hold = Duration::from_millis(hold_ms);
        Some(Trigger { hold, events, chunk_bytes })
    }

    /// The number of chunks of the artifact.
    pub fn chunks(&self) -> u64 {
        self.events.saturating_sub(2)
    }

    /// The text of a chunk; the first is 1.
    pub fn chunk(&self, number: u64) -> String {
        let mut text = format!("chunk {number}");
        if text.len() < self.chunk_bytes {
            text.push(' ');
            text.extend(std::iter::repeat_n('.', self.chunk_bytes.saturating_sub(text.len())));
        }
        text
    }
}

/// The address of the agent: the first argument is its port.
pub fn address() -> String {
    let port = env::args().nth(1).unwrap_or_else(|| "4000".to_owned());
    format!("127.0.0.1:{port}")
}

/// The card of an agent that listens at an address.
pub fn card(address: &str) -> Value {
    json!({
        "name": "bench", "description": "Keeps the contract of peregrine bench", "version": "1.0.0",
        "supportedInterfaces": [{
            "url": format!("http://{address}/"), "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        }],
        "capabilities": {"streaming": true},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "Echoes", "tags": ["echo"]}],
    })
}
