//! One request: the end of its body, and the context in which it is handled, for an answer in bytes
//! or in parts.

use std::task::Waker;

use crate::{
    auth::AuthRefusal,
    binding::{
        self, CallContext, CallScratch, Endpoint, Handled, RequestSource, Scratch,
        admission::{self, AdmissionCx, Admitted},
        answer::ResponseWriter,
        body_limit::{BodyLimit, RequestRefusal},
        observed::CallBegin,
        responder::{Http1, Http1ResponseState, Transport},
        response_parts::ResponseParts,
        ws::Session,
    },
    engine::{Cx, Engine},
    http::{BodyFraming, ChunkLimits, Head, HeadLimits},
    json::Source,
    limits::Limits,
    service::{Now, Peer},
};

/// Where the body of a request ends.
#[derive(Clone, Copy)]
pub(super) enum BodyEnd {
    /// The body ends at this offset from the start of the head.
    At(usize),
    /// The body ends with its last chunk.
    Chunked,
}

pub(super) fn body_end(head: &Head<'_>, head_len: usize) -> BodyEnd {
    match head.body() {
        BodyFraming::None => BodyEnd::At(head_len),
        BodyFraming::Length(length) => BodyEnd::At(head_len + length as usize),
        BodyFraming::Chunked => BodyEnd::Chunked,
    }
}

pub(super) fn head_limits(limits: &Limits) -> HeadLimits {
    HeadLimits {
        head_bytes_max: limits.head_bytes_max,
        fields_max: limits.head_fields_max,
        target_bytes_max: limits.target_bytes_max,
        query_bytes_max: limits.query_bytes_max,
        method_bytes_max: limits.method_bytes_max,
        // `refused_length` applies the limit, once the path is known.
        body_bytes_max: u64::MAX,
    }
}

pub(super) fn chunk_limits(limits: &Limits, body: BodyLimit) -> ChunkLimits {
    ChunkLimits {
        body_bytes_max: body.bytes_max as u64,
        line_bytes_max: limits.chunk_line_bytes_max,
        trailer_bytes_max: limits.trailer_bytes_max,
        overhead_bytes_max: body.bytes_max,
    }
}

/// The refusal of a request with a declared body length above the limit.
#[inline(always)]
pub(super) fn refused_length(engine: &Engine, head: &Head<'_>) -> Option<RequestRefusal> {
    match head.body() {
        BodyFraming::Length(length) if length > BodyLimit::least(engine.limits()) as u64 => {
            body_limit(engine, head).refusal(length)
        }
        BodyFraming::None | BodyFraming::Length(_) | BodyFraming::Chunked => None,
    }
}

/// The size limit of a request's body.
pub(super) fn body_limit(engine: &Engine, head: &Head<'_>) -> BodyLimit {
    BodyLimit::of(&engine.config, engine.service(), head)
}

/// The head of a request, and the part of a [`Cx`] in which the request is handled.
#[derive(Clone, Copy)]
pub(super) struct RequestCx<'x> {
    pub(super) engine: &'x Engine,
    pub(super) now: Now,
    pub(super) wake: &'x Waker,
    pub(super) peer: Peer<'x>,
    pub(super) head: &'x Head<'x>,
}

impl<'x> RequestCx<'x> {
    #[inline(always)]
    pub(super) fn of(cx: &Cx<'x>, head: &'x Head<'x>) -> RequestCx<'x> {
        RequestCx { engine: cx.engine, now: cx.now, wake: cx.wake, peer: cx.peer, head }
    }

    /// The context of the request's call.
    #[inline(always)]
    fn call(
        self,
        scratch: &'x mut CallScratch,
        writer: ResponseWriter<'x>,
        closes: bool,
        admission: Admitted,
    ) -> CallContext<'x> {
        CallContext {
            service: self.engine.service(),
            config: &self.engine.config,
            scratch,
            writer,
            now: self.now,
            wake: self.wake,
            peer: self.peer,
            endpoint: Endpoint::DEFAULT,
            base: "",
            outside_tenant: None,
            agent: Endpoint::DEFAULT.agent,
            source: RequestSource::Http(self.head),
            closes,
            extensions: None,
            admission,
            share: None,
            begin: CallBegin::default(),
        }
    }
}

/// The result of handling an HTTP/1.1 request, and the record that its answer shows.
pub(super) struct Http1Handled {
    pub(super) handled: Handled,
    /// The session of the new protocol, if the client has requested an upgrade.
    pub(super) session: Option<Box<Session>>,
    pub(super) retained: Http1ResponseState,
    pub(super) record: u64,
}

/// Handles a request with a complete body.
#[inline(always)]
pub(super) fn handle<'x>(
    cx: RequestCx<'x>,
    scratch: &'x mut Scratch,
    out: &'x mut Vec<u8>,
    body: Source<'_>,
    admission: Admitted,
) -> Http1Handled {
    let head = cx.head;
    let closes = !head.keep_alive() || cx.engine.is_draining();
    let Scratch { decode, call, date, .. } = scratch;
    let responder = Transport::Http1(Http1::new(head, closes, date.at(cx.now)));
    let writer = ResponseWriter::new(out, responder);
    let mut cx = cx.call(call, writer, closes, admission);
    cx.note_page(head);
    let mut session = None;
    let handled = binding::http::handle(&mut cx, head, decode, body, Some(&mut session));
    let (retained, record) = (cx.writer.responder.http1_state(), cx.writer.record);
    Http1Handled { handled, session, retained, record }
}

/// Answers the last request of a connection, of which only the head is read.
#[cold]
pub(super) fn handle_unread<'x>(cx: RequestCx<'x>, scratch: &'x mut Scratch, out: &'x mut Vec<u8>) {
    let head = cx.head;
    let Scratch { decode, call, date, .. } = scratch;
    let responder = Transport::Http1(Http1::new(head, true, date.at(cx.now)));
    let writer = ResponseWriter::new(out, responder);
    let mut cx = cx.call(call, writer, true, None);
    cx.note_page(head);
    // The answer to a request without authentication shows no task, and never waits.
    let _ = binding::http::handle(&mut cx, head, decode, Source::from(&[][..]), None);
}

/// As [`handle`], for an answer in parts; also returns the record that the answer shows.
pub(super) fn handle_parts<'x>(
    cx: RequestCx<'x>,
    scratch: &'x mut Scratch,
    writer: ResponseWriter<'x>,
    body: Source<'_>,
    admission: Admitted,
) -> (Handled, u64) {
    let Scratch { decode, call, .. } = scratch;
    let (head, closes) = (cx.head, cx.engine.is_draining());
    let mut cx = cx.call(call, writer, closes, admission);
    cx.note_page(head);
    (binding::http::handle(&mut cx, head, decode, body, None), cx.writer.record)
}

/// Answers a request that is not admitted.
#[cold]
pub(super) fn refuse<'x>(
    cx: RequestCx<'x>,
    scratch: &'x mut Scratch,
    out: &'x mut Vec<u8>,
    parts: Option<&'x mut ResponseParts>,
    refusal: &AuthRefusal,
) {
    let head = cx.head;
    let Scratch { call, date, .. } = scratch;
    let responder = match parts {
        Some(parts) => Transport::Parts(parts),
        None => Transport::Http1(Http1::new(head, true, date.at(cx.now))),
    };
    let writer = ResponseWriter::new(out, responder);
    let mut cx = cx.call(call, writer, true, None);
    cx.note_page(head);
    admission::refuse(&mut cx, head, refusal);
}

/// The context for authenticating a request.
#[inline(always)]
pub(super) fn asking<'x>(
    engine: &'x Engine,
    peer: Peer<'x>,
    takes_trailers: bool,
) -> AdmissionCx<'x> {
    AdmissionCx { config: &engine.config, service: engine.service(), peer, takes_trailers }
}
