//! Writes calls as parts of HTTP requests, or as frames of a WebSocket.

use crate::{
    binding::interfaces::Binding,
    client::HttpMethod,
    dialect::calls::{self, CallOut},
    http::media,
    json::write::push_u64,
    model::{NotExpressible, Op, OutgoingCall},
};

use super::{
    Format,
    grpc::{self, GrpcScratch},
    rest,
};

/// A written call: its parts of a request. Reused for each call.
#[derive(Clone, Debug)]
pub struct WrittenCall {
    /// The method.
    pub method: HttpMethod,
    /// The path after that of the interface's URL, percent-encoded, with a query if there is one;
    /// may be empty.
    pub path: String,
    /// The content; may be empty.
    pub body: Vec<u8>,
    /// `Content-Type`, if there is content.
    pub content_type: Option<&'static str>,
    /// `Accept`.
    pub accept: &'static str,
    pub(super) grpc: GrpcScratch,
}

impl Default for WrittenCall {
    fn default() -> WrittenCall {
        WrittenCall {
            method: HttpMethod::Post,
            path: String::new(),
            body: Vec::new(),
            content_type: None,
            accept: media::JSON,
            grpc: GrpcScratch::default(),
        }
    }
}

impl WrittenCall {
    /// Clears the call and retains its memory.
    pub fn clear(&mut self) {
        (self.method, self.content_type, self.accept) = (HttpMethod::Post, None, media::JSON);
        self.path.clear();
        self.body.clear();
    }

    /// Turns a subscription over HTTP+JSON into a GET without content: for servers that answer the
    /// POST with 405, because the text and the proto of 1.0 disagree (wire §3.1).
    pub fn subscribe_by_get(&mut self) {
        (self.method, self.content_type) = (HttpMethod::Get, None);
        self.body.clear();
    }
}

impl Format {
    /// Clears `out` and writes a call into it. `rpc_id` is the id that the answer of JSON-RPC must
    /// have; `tenant` is the interface's or the caller's (A2A 1.0 §8.3.2).
    ///
    /// # Errors
    /// [`NotExpressible`]: this server does not support the call; nothing may be sent.
    pub fn write(
        &self,
        call: &OutgoingCall<'_>,
        rpc_id: u64,
        tenant: Option<&str>,
        out: &mut WrittenCall,
    ) -> Result<(), NotExpressible> {
        out.clear();
        let written = match self.binding {
            Binding::JsonRpc | Binding::WebSocket => self.write_rpc(call, rpc_id, tenant, out),
            Binding::HttpJson => rest::write(self, call, tenant, out),
            Binding::Grpc => grpc::write(self, call, tenant, out),
        };
        if written.is_err() {
            out.clear();
        } else if self.binding == Binding::Grpc {
            out.accept = media::GRPC;
        } else if call.op().is_streaming() {
            out.accept = media::EVENT_STREAM;
        }
        written
    }

    /// The `A2A-Version` of every call; `None`: calls have none.
    pub fn version_header(&self) -> Option<&'static str> {
        calls::version_header(self.generation)
    }

    /// The names of the header fields for extensions; empty: the generation has none.
    pub fn extension_headers(&self) -> &'static [&'static str] {
        calls::extension_headers(self.generation)
    }

    /// Whether the generation and dialect of the server have this operation.
    pub fn offers(&self, op: Op) -> bool {
        match self.binding {
            Binding::JsonRpc | Binding::WebSocket => {
                calls::method(self.dialect, self.generation, op).is_some()
            }
            Binding::HttpJson => calls::http_json(self.dialect, self.generation)
                .is_some_and(|form| form.method(op).is_some()),
            Binding::Grpc => self.offers_rpc(op),
        }
    }

    /// Writes a request object of JSON-RPC 2.0 (§4). Its id is a string, which every dialect
    /// accepts (wire §8, langsmith).
    fn write_rpc(
        &self,
        call: &OutgoingCall<'_>,
        rpc_id: u64,
        tenant: Option<&str>,
        out: &mut WrittenCall,
    ) -> Result<(), NotExpressible> {
        let op = call.op();
        let missing = NotExpressible { what: op.name(), by: self.name() };
        let (name, wire) = calls::method(self.dialect, self.generation, op).ok_or(missing)?;
        let body = &mut out.body;
        body.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":\"");
        push_u64(body, rpc_id);
        body.extend_from_slice(b"\",\"method\":\"");
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(b"\",\"params\":");
        let cx = CallOut { tenant, event_id: self.binding == Binding::WebSocket };
        wire.calls.write(body, call, cx)?;
        // Wire §1.5: the only operation without params.
        if op == Op::ExtendedCard && body.ends_with(b"{}") {
            body.truncate(body.len() - b",\"params\":{}".len());
        }
        body.push(b'}');
        out.content_type = Some(media::JSON);
        Ok(())
    }

    /// The name in errors: that of the generation or of the dialect.
    pub(super) fn name(&self) -> &'static str {
        match self.dialect.name {
            "standard" => calls::generation_name(self.generation),
            dialect => dialect,
        }
    }
}
