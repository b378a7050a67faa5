//! How a client comes to a server, and what it hears there, byte by byte.

use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::{
    canon::{V1, V03},
    http::{Blocks, Http, Request},
    place::Place,
    variants::{Binding, Variant},
};
use crate::support::reply::Reply;

/// Below which path a client calls, what stands in the head of each request, and what came back.
#[derive(Clone, Default)]
pub struct Approach {
    /// `""` for the root, or `/langsmith`.
    pub path: String,
    pub fields: Vec<(&'static str, String)>,
    pub heard: Heard,
    /// Messages of gRPC are JSON, as dialect a2a_rust has it.
    pub has_json_messages: bool,
}

/// All that came back, also what nobody parsed. Of gRPC the trailers stand behind the fields; of
/// what a WebSocket brings there is a body and nothing else.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<Reply>>>);

impl Heard {
    fn all(&self) -> MutexGuard<'_, Vec<Reply>> {
        self.0.lock().expect("no panic elsewhere")
    }

    pub fn note(&self, reply: &Reply) {
        self.all().push(reply.clone());
    }

    /// A message of a WebSocket.
    pub fn note_text(&self, text: &str) {
        let (fields, body) = (Vec::new(), text.as_bytes().to_vec());
        self.all().push(Reply { status: 0, fields, body, complete: true });
    }

    /// The end of a WebSocket.
    pub fn note_close(&self, code: u16) {
        let (fields, body) = (Vec::new(), Vec::new());
        self.all().push(Reply { status: code, fields, body, complete: true });
    }

    /// Takes what came last.
    pub fn last(&self) -> Reply {
        self.all().pop().expect("something was heard")
    }

    /// Takes all of it.
    pub fn take(&self) -> Vec<Reply> {
        std::mem::take(&mut *self.all())
    }
}

impl Approach {
    /// With these fields, at the root.
    pub fn with(fields: &[(&'static str, String)]) -> Approach {
        Approach { fields: fields.to_vec(), ..Approach::default() }
    }

    /// Below this path.
    pub fn at(self, path: &str) -> Approach {
        Approach { path: path.to_owned(), ..self }
    }

    /// In a tenant, where the head names it; where the params do, [`name_tenant`] does.
    pub fn in_tenant(mut self, variant: Variant, tenant: &str) -> Approach {
        match (variant.binding, variant.generation) {
            _ if tenant.is_empty() => {}
            (Binding::Rest, V1) => self.path += &format!("/{tenant}"),
            (Binding::Grpc, V03) => self.fields.push(("a2a-tenant", tenant.to_owned())),
            _ => {}
        }
        self
    }

    /// Another client of the same kind, who hears for itself.
    pub fn again(&self) -> Approach {
        Approach { heard: Heard::default(), ..self.clone() }
    }

    /// Where a WebSocket is opened.
    pub fn ws_url(&self, place: &Place) -> String {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        // The sequence numbers of events are asked for: strict clients see nothing new.
        format!("ws://{}{path}?eventIds=1", place.addr)
    }
}

/// Says in the params which tenant is meant, where the head does not.
pub fn name_tenant(variant: Variant, params: &mut Value, tenant: &str) {
    match (variant.binding, variant.generation) {
        (Binding::Rest, V1) | (Binding::Grpc, V03) => {}
        _ if tenant.is_empty() => {}
        _ => params["tenant"] = json!(tenant),
    }
}

/// HTTP, as a client with this approach speaks it.
pub struct Approaching {
    pub http: Box<dyn Http>,
    pub approach: Approach,
}

impl Approaching {
    fn request(&self, request: &Request) -> Request {
        let mut request = request.clone();
        request.target = format!("{}{}", self.approach.path, request.target);
        request.fields.extend(self.approach.fields.iter().cloned());
        request
    }
}

impl Http for Approaching {
    fn ask(&mut self, request: &Request) -> Reply {
        let request = self.request(request);
        let reply = self.http.ask(&request);
        self.approach.heard.note(&reply);
        reply
    }

    fn open(&mut self, request: &Request) -> Result<Box<dyn Blocks>, Reply> {
        let request = self.request(request);
        let opened = self.http.open(&request);
        opened.inspect_err(|reply| self.approach.heard.note(reply))
    }
}
