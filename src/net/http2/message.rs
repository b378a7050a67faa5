//! Receiving the messages of a gRPC request.

use std::{future::poll_fn, rc::Rc};

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;

use crate::binding::grpc::{
    Code, Status,
    frame::{Framed, PREFIX, look},
};

use super::{
    Alarm, Link,
    body::{Body, Piece},
};

/// The messages of a request, one after another.
pub(super) struct Messages {
    link: Rc<Link>,
    body: Body,
    /// What came and is not yet a message: as it came, or joined.
    held: Bytes,
    joined: BytesMut,
    /// Bytes of `joined` that are counted among all buffers.
    charged: usize,
}

/// Why there is no message.
pub(super) enum NoMessage {
    /// The request is over.
    End,
    /// The call ends with this.
    Status(Status),
    /// The peer has left.
    Gone,
}

impl Messages {
    pub(super) fn new(stream: RecvStream, link: &Rc<Link>) -> Messages {
        let (body, link) = (Body::new(stream, link), Rc::clone(link));
        Messages { link, body, held: Bytes::new(), joined: BytesMut::new(), charged: 0 }
    }

    /// The next message, without a copy if it came in one piece.
    pub(super) async fn next(
        &mut self,
        alarm: &mut Alarm,
        due_ms: Option<u64>,
    ) -> Result<Bytes, NoMessage> {
        let refuse = |code, why: &str| Err(NoMessage::Status(Status::new(code, why)));
        let bytes_max = self.link.limits().body_bytes_max;
        loop {
            let bytes: &[u8] = if self.joined.is_empty() { &self.held } else { &self.joined };
            match look(bytes, bytes_max) {
                Framed::Whole(length) => return Ok(self.split(length)),
                Framed::TooLarge => {
                    let why = format!("the message is larger than {bytes_max} bytes");
                    return refuse(Code::ResourceExhausted, &why);
                }
                Framed::Compressed => {
                    return refuse(Code::Unimplemented, "compressed messages are not read");
                }
                Framed::Partial(_) => {}
            }
            match poll_fn(|cx| self.body.poll(cx, &self.link, alarm, due_ms)).await {
                Piece::Bytes(piece) => self.keep(piece)?,
                Piece::End if self.held.is_empty() && self.joined.is_empty() => {
                    return Err(NoMessage::End);
                }
                Piece::End => return refuse(Code::InvalidArgument, "the message is cut short"),
                Piece::Slow => return refuse(Code::Cancelled, "the message came too slowly"),
                Piece::Late => return Err(NoMessage::Status(late())),
                Piece::Gone => return Err(NoMessage::Gone),
            }
        }
    }

    /// The one message of a request that has one.
    pub(super) async fn only(
        &mut self,
        alarm: &mut Alarm,
        due_ms: Option<u64>,
    ) -> Result<Bytes, NoMessage> {
        let refuse = |why: &str| Err(NoMessage::Status(Status::new(Code::InvalidArgument, why)));
        let message = match self.next(alarm, due_ms).await {
            Err(NoMessage::End) => return refuse("the request has no message"),
            message => message?,
        };
        if self.held.is_empty() && self.body.is_over() {
            return Ok(message);
        }
        match self.next(alarm, due_ms).await {
            Err(NoMessage::End) => Ok(message),
            Ok(_) => refuse("the request has more than one message"),
            Err(no_message) => Err(no_message),
        }
    }

    /// From now on the peer may take its time.
    pub(super) fn rest(&mut self) {
        self.body.rest();
    }

    /// Takes a message of this length out of what came.
    fn split(&mut self, length: usize) -> Bytes {
        if self.joined.is_empty() {
            self.held.advance(PREFIX);
            return self.held.split_to(length);
        }
        let mut joined = std::mem::take(&mut self.joined).freeze();
        self.link.local.shared.charge_buffers(std::mem::take(&mut self.charged), 0);
        joined.advance(PREFIX);
        let message = joined.split_to(length);
        self.held = joined;
        message
    }

    fn keep(&mut self, piece: Bytes) -> Result<(), NoMessage> {
        if self.held.is_empty() && self.joined.is_empty() {
            self.held = piece;
            return Ok(());
        }
        if self.joined.is_empty() {
            // The length is known by now, or with the next byte; what comes is trusted to come
            // only as far as it has.
            self.joined.extend_from_slice(&std::mem::take(&mut self.held));
        }
        self.joined.extend_from_slice(&piece);
        let held = self.joined.capacity();
        let local = &self.link.local;
        let all = local.shared.charge_buffers(std::mem::replace(&mut self.charged, held), held);
        if all > local.bounds.buffers_bytes_max { Err(NoMessage::Gone) } else { Ok(()) }
    }
}

/// The time that the client gave is over.
pub(super) fn late() -> Status {
    Status::new(Code::DeadlineExceeded, "the deadline has passed")
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.link.local.shared.charge_buffers(self.charged, 0);
    }
}
