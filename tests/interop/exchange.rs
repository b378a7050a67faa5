//! A client's path and header fields, and the replies that it got, byte by byte.

use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::{
    http::{Blocks, Http, Request},
    model::{V1, V03},
    place::Endpoint,
    variants::{Binding, Variant},
};
use crate::support::reply::Reply;

/// The path prefix of a client, the fields of each of its requests, and the replies.
#[derive(Clone, Default)]
pub struct Approach {
    /// `""` for the root, or `/langsmith`.
    pub path: String,
    pub fields: Vec<(&'static str, String)>,
    pub replies: Replies,
    /// gRPC messages are JSON, as in dialect a2a_rust.
    pub has_json_messages: bool,
}

/// All replies, parsed or not. For gRPC the trailers follow the fields; a WebSocket message has
/// only a body.
#[derive(Clone, Default)]
pub struct Replies(Arc<Mutex<Vec<Reply>>>);

impl Replies {
    fn all(&self) -> MutexGuard<'_, Vec<Reply>> {
        self.0.lock().expect("no panic elsewhere")
    }

    pub fn note(&self, reply: &Reply) {
        self.all().push(reply.clone());
    }

    /// A WebSocket message.
    pub fn note_text(&self, text: &str) {
        let (fields, body) = (Vec::new(), text.as_bytes().to_vec());
        self.all().push(Reply { status: 0, fields, body, complete: true });
    }

    /// The close of a WebSocket.
    pub fn note_close(&self, code: u16) {
        let (fields, body) = (Vec::new(), Vec::new());
        self.all().push(Reply { status: code, fields, body, complete: true });
    }

    /// Takes the last reply.
    pub fn last(&self) -> Reply {
        self.all().pop().expect("something was heard")
    }

    /// Takes all replies.
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

    /// In a tenant, if the head names it; otherwise [`name_tenant`] adds it to the params.
    pub fn in_tenant(mut self, variant: Variant, tenant: &str) -> Approach {
        match (variant.binding, variant.generation) {
            _ if tenant.is_empty() => {}
            (Binding::Rest, V1) => self.path += &format!("/{tenant}"),
            (Binding::Grpc, V03) => self.fields.push(("a2a-tenant", tenant.to_owned())),
            _ => {}
        }
        self
    }

    /// Another client of the same kind, with its own replies.
    pub fn again(&self) -> Approach {
        Approach { replies: Replies::default(), ..self.clone() }
    }

    /// The URL for opening a WebSocket.
    pub fn ws_url(&self, endpoint: &Endpoint) -> String {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        // Requests the sequence numbers of events, which strict clients ignore.
        format!("ws://{}{path}?eventIds=1", endpoint.addr)
    }
}

/// Names the tenant in the params, unless the head does.
pub fn name_tenant(variant: Variant, params: &mut Value, tenant: &str) {
    match (variant.binding, variant.generation) {
        (Binding::Rest, V1) | (Binding::Grpc, V03) => {}
        _ if tenant.is_empty() => {}
        _ => params["tenant"] = json!(tenant),
    }
}

/// HTTP with the path, the fields and the recorder of an approach.
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
    fn fetch(&mut self, request: &Request) -> Reply {
        let request = self.request(request);
        let reply = self.http.fetch(&request);
        self.approach.replies.note(&reply);
        reply
    }

    fn open(&mut self, request: &Request) -> Result<Box<dyn Blocks>, Reply> {
        let request = self.request(request);
        let opened = self.http.open(&request);
        opened.inspect_err(|reply| self.approach.replies.note(reply))
    }
}
