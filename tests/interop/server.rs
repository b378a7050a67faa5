//! The real binary with the agent of the scenarios, and clients of it.

use std::sync::Arc;

use super::{
    certificates::Authority,
    client::{Client, Link},
    exchange::{Approach, Approaching},
    grpc::Grpc,
    h2::Http2,
    http::{Http, Http1},
    jsonrpc::JsonRpc,
    ours::Ours,
    place::Endpoint,
    rest::Rest,
    variants::{Binding, Carrier, OBSERVER, Speaker, Variant},
    ws::Ws,
};
use crate::support::binary::Binary;

pub struct Server {
    pub binary: Binary,
    pub endpoint: Endpoint,
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    pub fn with(flags: &[&str]) -> Server {
        let agent = concat!("script:", env!("CARGO_MANIFEST_DIR"), "/tests/data/interop.toml");
        let binary = Binary::start(&[&["--no-push", "--agent", agent], flags].concat());
        let endpoint = Endpoint { addr: binary.addr(), trust: None, authority: None };
        Server { binary, endpoint }
    }

    /// A gateway in front of a server; it calls the server's agent in this version over this
    /// transport.
    pub fn relaying(upstream: &Server, version: &str, transport: &str) -> Server {
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
        std::fs::create_dir_all(&folder).unwrap();
        // Each has its own file: a server reads its file again when it changes.
        let (port, transport_name) = (upstream.endpoint.addr.port(), transport.replace('+', "-"));
        let file = folder.join(format!("gateway-{port}-{version}-{transport_name}.toml"));
        let agent = format!(
            "[agents.relayed.upstream]\nurl = \"http://{}\"\nversion = \"{version}\"\n\
             transports = [\"{transport}\"]\n",
            upstream.endpoint.addr
        );
        std::fs::write(&file, agent).unwrap();
        let binary = Binary::start(&["--no-push", "--config", file.to_str().unwrap()]);
        let endpoint = Endpoint { addr: binary.addr(), trust: None, authority: None };
        Server { binary, endpoint }
    }

    /// A server that accepts only TLS; the name is that of the scenario.
    pub fn secure(name: &str, flags: &[&str]) -> Server {
        let authority = Authority::new(&format!("scenario-{name}"));
        let issued = authority.server("server");
        let [cert, key] = [&issued.cert_file, &issued.key_file].map(|file| file.to_str().unwrap());
        let tls = ["--tls-cert", cert, "--tls-key", key];
        let mut server = Server::with(&[&tls, flags].concat());
        server.endpoint.trust = Some(Arc::new(authority.without_certificate()));
        server.endpoint.authority = Some(authority.file());
        server
    }

    /// Without and with TLS.
    pub fn both(name: &str, flags: &[&str]) -> [Server; 2] {
        [Server::with(flags), Server::secure(name, flags)]
    }

    /// A client with connections of its own.
    pub fn client(&self, variant: Variant) -> Client {
        match variant.speaker {
            Speaker::Client => {
                Client { variant, link: Box::new(Ours::new(&self.endpoint, variant)) }
            }
            Speaker::Hand => self.client_with(variant, &Approach::default()),
        }
    }

    /// A client by hand with this approach.
    pub fn client_with(&self, variant: Variant, approach: &Approach) -> Client {
        Server::client_at(&self.endpoint, variant, approach)
    }

    /// The same, of a server at this endpoint.
    pub fn client_at(endpoint: &Endpoint, variant: Variant, approach: &Approach) -> Client {
        let generation = variant.generation;
        let http = || -> Box<dyn Http> {
            let http: Box<dyn Http> = match variant.carrier {
                Carrier::Http1 => Box::new(Http1::new(endpoint)),
                Carrier::Http2 => Box::new(Http2::new(endpoint)),
            };
            Box::new(Approaching { http, approach: approach.clone() })
        };
        let link: Box<dyn Link> = match variant.binding {
            Binding::JsonRpc => Box::new(JsonRpc { http: http(), generation, next_id: 0 }),
            Binding::Rest => Box::new(Rest { http: http(), generation, subscribed: 0 }),
            Binding::WebSocket => Box::new(Ws::new(endpoint, approach, generation)),
            Binding::Grpc => {
                let (line, approach) = (Http2::new(endpoint), approach.clone());
                Box::new(Grpc { line, approach, generation })
            }
        };
        Client { variant, link }
    }

    pub fn observer(&self) -> Client {
        self.client(OBSERVER)
    }
}
