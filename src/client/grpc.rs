//! Calls over gRPC: one HTTP/2 request each, and messages with a prefix of five bytes.
//!
//! Invariant: only the trailers decide whether a call has succeeded. A response with content that
//! ends without trailers was cut, for example by a proxy that lost its server.

use std::future::poll_fn;

use super::{
    ClientError, HttpResponse, Transport, TransportError,
    client::SharedClient,
    endpoint::AgentEndpoint,
    exchange::{READ_BYTES, SizeLimit, Written, explained, head_of, read_all},
    format::{Format, GrpcEnd},
    scratch::{CallBuffers, ReplyBuf},
};

impl<T: Transport> SharedClient<T> {
    /// Reads the answer to a call that is not a stream.
    pub(super) async fn read_grpc(
        &self,
        endpoint: &AgentEndpoint,
        written: Written,
        response: &mut T::Response,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<(), ClientError> {
        let CallBuffers { buffers, reply, .. } = scratch;
        let ReplyBuf { body, received, .. } = &mut **reply;
        body.clear();
        let limit =
            SizeLimit { bytes_max: self.built.limits.body_bytes_max, name: "body_bytes_max" };
        read_all(&self.transport, response, body, limit, due_ms).await?;
        check_trailers(response, !body.is_empty())?;
        end(endpoint, response)
            .map_err(|error| explained(error, response, self.transport.now()))?;
        let message = Format::message_in(body, limit.bytes_max, limit.name)?;
        let Some(message) = message.and_then(|range| body.get(range)) else {
            return Err(TransportError::Malformed("a gRPC answer without a message").into());
        };
        endpoint.format.read_message(buffers, written.op, message, received)?;
        Ok(())
    }
}

/// Checks that a response with content has a status.
///
/// # Errors
/// [`TransportError::Closed`]: a gRPC response with content has no status in its trailers.
fn check_trailers<R: HttpResponse>(response: &R, has_content: bool) -> Result<(), TransportError> {
    let is_grpc = response.status() == 200 && head_of(response).may_be_grpc();
    match is_grpc && has_content && response.field("grpc-status").is_none() {
        true => Err(TransportError::Closed { before_response: false }),
        false => Ok(()),
    }
}

/// Checks the final status of the response.
pub(super) fn end<R: HttpResponse>(
    endpoint: &AgentEndpoint,
    response: &R,
) -> Result<(), ClientError> {
    let end = GrpcEnd {
        status: response.field("grpc-status"),
        message: response.field("grpc-message"),
        details: response.field("grpc-status-details-bin"),
    };
    let ended = endpoint.format.grpc_end(head_of(response), end);
    ended.map_err(|error| {
        let mut error = ClientError::from(error);
        error.retry_after_ms = end.retry_delay_ms();
        error
    })
}

/// The messages of a stream.
pub(super) struct GrpcStream<R> {
    response: R,
    /// Bytes received; the first `at` of them were returned.
    input: Vec<u8>,
    at: usize,
    /// The number of the next message, if the server numbers messages: the head has the first
    /// number.
    next_number: Option<u64>,
    has_content: bool,
    has_ended: bool,
}

/// The result of reading a stream.
pub(super) enum GrpcRead {
    /// A message was copied, with this number.
    Message(Option<u64>),
    End,
}

impl<R: HttpResponse> GrpcStream<R> {
    /// The stream of a response after its head.
    pub fn new(response: R) -> GrpcStream<R> {
        let number = response.field("a2a-event-id");
        let number = number.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
        let (has_content, has_ended) = (false, false);
        GrpcStream {
            response,
            input: Vec::new(),
            at: 0,
            next_number: number,
            has_content,
            has_ended,
        }
    }

    /// Copies the next message, of at most `bytes_max` bytes.
    pub async fn next(
        &mut self,
        endpoint: &AgentEndpoint,
        message: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<GrpcRead, ClientError> {
        loop {
            let rest = self.input.get(self.at..).unwrap_or_default();
            if let Some(range) = Format::message_in(rest, bytes_max, "event_bytes_max")? {
                let end = range.end;
                message.clear();
                message.extend_from_slice(rest.get(range).unwrap_or_default());
                self.at += end;
                let number = self.next_number;
                self.next_number = number.and_then(|number| number.checked_add(1));
                return Ok(GrpcRead::Message(number));
            }
            if self.has_ended {
                check_trailers(&self.response, self.has_content)?;
                end(endpoint, &self.response)?;
                return match rest.is_empty() {
                    true => Ok(GrpcRead::End),
                    false => Err(TransportError::Closed { before_response: false }.into()),
                };
            }
            self.input.drain(..self.at);
            self.at = 0;
            let (response, input) = (&mut self.response, &mut self.input);
            self.has_ended = !poll_fn(|cx| response.poll_read(cx, input, READ_BYTES)).await?;
            self.has_content |= !input.is_empty();
        }
    }
}
