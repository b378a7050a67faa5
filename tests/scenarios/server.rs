//! The real binary with the agent of the scenarios, and clients of it.

use super::{
    grpc::Grpc,
    h2::Http2,
    http::{Http, Http1, plain},
    jsonrpc::JsonRpc,
    link::{Client, Link},
    rest::Rest,
    ways::{Binding, Carrier, WITNESS, Way},
    ws::Ws,
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
        let (addr, generation) = (self.binary.addr(), way.generation);
        let http = || -> Box<dyn Http> {
            match way.carrier {
                Carrier::Http1 => Box::new(Http1::new(addr, plain(addr))),
                Carrier::Http2 => Box::new(Http2::new(addr)),
            }
        };
        let link: Box<dyn Link> = match way.binding {
            Binding::JsonRpc => Box::new(JsonRpc { http: http(), generation, next_id: 0 }),
            Binding::Rest => Box::new(Rest { http: http(), generation, subscribed: 0 }),
            Binding::WebSocket => Box::new(Ws::new(addr, plain(addr), generation)),
            Binding::Grpc => Box::new(Grpc { line: Http2::new(addr), generation }),
        };
        Client { way, link }
    }

    pub fn witness(&self) -> Client {
        self.client(WITNESS)
    }
}
