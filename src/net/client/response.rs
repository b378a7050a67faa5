//! A response from a socket, of either version of HTTP.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::client::{ClientLimits, HttpResponse, TransportError};

use super::{
    ClientState,
    coding::Decoder,
    exchange::{BodyRead, Http1Exchange},
    http2::Http2Response,
    origins::OriginPool,
};

/// The response of [`HttpClient`](super::HttpClient).
pub struct HttpClientResponse {
    source: ResponseSource,
    decoder: Option<Box<Decoder>>,
}

enum ResponseSource {
    Http1(Http1Response),
    Http2(Box<Http2Response>),
}

/// A response over HTTP/1.x. Its connection returns to the pool when the last byte has been read,
/// its buffers when the response is dropped.
pub(super) struct Http1Response {
    /// `Some` until the response is dropped.
    exchange: Option<Box<Http1Exchange>>,
    is_over: bool,
    idle_ms: u64,
    state: Arc<ClientState>,
    pool: Arc<OriginPool>,
}

impl HttpClientResponse {
    /// A response with a complete head; its content is read on demand.
    pub(super) fn http1(
        state: &Arc<ClientState>,
        pool: &Arc<OriginPool>,
        exchange: Box<Http1Exchange>,
        idle_ms: u64,
    ) -> HttpClientResponse {
        let is_upgrade = exchange.response.head().status() == 101;
        let source = ResponseSource::Http1(Http1Response {
            exchange: Some(exchange),
            is_over: false,
            idle_ms: if is_upgrade { u64::MAX } else { idle_ms },
            state: Arc::clone(state),
            pool: Arc::clone(pool),
        });
        HttpClientResponse { decoder: None, source }
    }

    /// A response with a complete head; its content is read on demand.
    pub(super) fn http2(response: Http2Response) -> HttpClientResponse {
        HttpClientResponse { decoder: None, source: ResponseSource::Http2(Box::new(response)) }
    }

    /// The response with decoded content.
    ///
    /// # Errors
    /// [`TransportError::Coding`]: the content cannot be decoded. The exchange returns to its pool,
    /// and its connection is closed.
    pub(super) fn decoded(
        mut self,
        limits: &ClientLimits,
    ) -> Result<HttpClientResponse, TransportError> {
        self.decoder = match &self.source {
            ResponseSource::Http1(Http1Response { exchange: None, .. }) => None,
            ResponseSource::Http1(Http1Response { exchange: Some(exchange), .. }) => {
                let head = exchange.response.head();
                match head.status() {
                    // Bytes of an upgraded connection are not content.
                    101 => None,
                    _ => {
                        let codings = head.values("content-encoding");
                        decoder(limits, codings, || head.field("content-type"))?
                    }
                }
            }
            ResponseSource::Http2(response) => {
                let codings = response.values("content-encoding");
                decoder(limits, codings, || response.field("content-type"))?
            }
        };
        Ok(self)
    }
}

/// The decoder of the content. Nested codings are not supported, because servers do not use them.
fn decoder<'v>(
    limits: &ClientLimits,
    mut codings: impl Iterator<Item = &'v [u8]>,
    media_type: impl FnOnce() -> Option<&'v [u8]>,
) -> Result<Option<Box<Decoder>>, TransportError> {
    let coding = codings.next();
    if coding.is_none() {
        return Ok(None);
    }
    match codings.next() {
        None => Decoder::new(coding, media_type(), limits),
        Some(_) => Err(TransportError::Coding("the response has more than one content coding")),
    }
}

impl ResponseSource {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        match self {
            ResponseSource::Http1(response) => response.poll_read(cx, out, room),
            ResponseSource::Http2(response) => response.poll_read(cx, out, room),
        }
    }
}

impl Http1Response {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        if self.is_over {
            return Poll::Ready(Ok(false));
        }
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(Ok(false)) };
        let with = self.state.exchange_cx();
        match ready!(exchange.poll_body(cx, out, room, self.idle_ms, with))? {
            BodyRead::More => Poll::Ready(Ok(true)),
            BodyRead::End(link) => {
                self.is_over = true;
                if let Some(link) = link {
                    self.state.origins.keep(&self.pool, link);
                }
                Poll::Ready(Ok(false))
            }
        }
    }
}

impl Drop for Http1Response {
    fn drop(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        if !self.is_over
            && let Some(link) = exchange.end_unread(self.state.exchange_cx())
        {
            self.state.origins.keep(&self.pool, link);
        }
        self.state.give_exchange(exchange);
    }
}

impl HttpResponse for HttpClientResponse {
    fn status(&self) -> u16 {
        match &self.source {
            ResponseSource::Http1(Http1Response { exchange, .. }) => {
                exchange.as_ref().map_or(0, |exchange| exchange.response.head().status())
            }
            ResponseSource::Http2(response) => response.status(),
        }
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        match &self.source {
            ResponseSource::Http1(response) => response.exchange.as_ref()?.response.field(name),
            ResponseSource::Http2(response) => response.field(name),
        }
    }

    fn each_field(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        match &self.source {
            ResponseSource::Http1(Http1Response { exchange: Some(exchange), .. }) => {
                exchange.response.head().values(name).for_each(each);
            }
            ResponseSource::Http1(_) => {}
            ResponseSource::Http2(response) => response.values(name).for_each(each),
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        let HttpClientResponse { source, decoder } = self;
        match decoder {
            None => source.poll_read(cx, out, room),
            Some(decoder) => decoder
                .poll_read(cx, out, room, |cx, coded, room| source.poll_read(cx, coded, room)),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>> {
        if let ResponseSource::Http1(Http1Response { exchange: Some(exchange), .. }) =
            &mut self.source
            && exchange.response.head().status() == 101
        {
            return exchange.poll_write(cx, bytes);
        }
        Poll::Ready(Err(TransportError::Io("the connection was not upgraded".to_owned())))
    }
}
