//! The real binary with the agent of the scenarios, and clients of it.

use super::{
    http::{Http, Http1},
    jsonrpc::JsonRpc,
    link::{Client, Link},
    rest::Rest,
    ways::{Binding, WITNESS, Way},
};
use crate::support::binary::Binary;

pub struct Server {
    pub binary: Binary,
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    pub fn with(flags: &[&str]) -> Server {
        let agent = concat!("script:", env!("CARGO_MANIFEST_DIR"), "/tests/data/scenarios.toml");
        Server { binary: Binary::start(&[&["--agent", agent], flags].concat()) }
    }

    /// A client with connections of its own.
    pub fn client(&self, way: Way) -> Client {
        let http = || -> Box<dyn Http> { Box::new(Http1::new(self.binary.addr())) };
        let generation = way.generation;
        let link: Box<dyn Link> = match way.binding {
            Binding::JsonRpc => Box::new(JsonRpc { http: http(), generation, next_id: 0 }),
            Binding::Rest => Box::new(Rest { http: http(), generation, subscribed: 0 }),
        };
        Client { way, link }
    }

    pub fn witness(&self) -> Client {
        self.client(WITNESS)
    }
}
