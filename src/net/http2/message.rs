//! Receives the messages of a health or reflection call: one or many.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
};

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    binding::grpc::{
        Code, Status,
        frame::{Framed, PREFIX, look, too_large},
    },
    limits::SERVICE_MESSAGE_BYTES_MAX,
};

use super::{
    Http2Shared,
    body::{Body, Piece},
    deadline::Deadline,
};

/// The messages of a request, one after another.
pub(super) struct Messages {
    shared: Rc<Http2Shared>,
    body: Body,
    /// The received beginning of a message: one piece in `held`, or several copied to `joined`.
    held: Bytes,
    joined: BytesMut,
    /// Bytes charged to the limit of all buffers; 0 until the call waits.
    charged: usize,
}

/// Why there is no message.
pub(super) enum NoMessage {
    /// The request has ended.
    End,
    /// The call ends with this status.
    Status(Status),
    /// The call ends without a status: the stream has failed, or the buffers are full.
    Failed,
}

fn refuse<T>(code: Code, why: &str) -> Result<T, NoMessage> {
    Err(NoMessage::Status(Status::new(code, why)))
}

impl Messages {
    /// Receives the messages of `body`, from its first byte on.
    pub(super) fn new(mut body: Body, shared: &Rc<Http2Shared>) -> Messages {
        body.limit(shared);
        let shared = Rc::clone(shared);
        let (held, joined) = (Bytes::new(), BytesMut::new());
        Messages { shared, body, held, joined, charged: 0 }
    }

    /// Returns the next message, without a copy if it arrived in one piece.
    pub(super) async fn next(
        &mut self,
        deadline: &mut Deadline,
        due_ms: Option<u64>,
    ) -> Result<Bytes, NoMessage> {
        loop {
            if let Some(length) = self.whole()? {
                return Ok(self.split(length));
            }
            if !self.more(deadline, due_ms).await? {
                return Err(self.end());
            }
        }
    }

    /// Returns the only message of a unary request, after the end of the request.
    pub(super) async fn only(
        &mut self,
        deadline: &mut Deadline,
        due_ms: Option<u64>,
    ) -> Result<Bytes, NoMessage> {
        loop {
            let whole = self.whole()?;
            if whole.is_some_and(|length| self.bytes().len() > PREFIX + length) {
                return refuse(Code::InvalidArgument, "the request has more than one message");
            }
            // The end is visible together with the last bytes; if no bytes have arrived, the call
            // has to wait.
            let is_over = !self.bytes().is_empty() && self.body.is_over();
            if !is_over && self.more(deadline, due_ms).await? {
                continue;
            }
            return match (whole, self.end()) {
                (Some(length), _) => Ok(self.split(length)),
                (None, NoMessage::End) => {
                    refuse(Code::InvalidArgument, "the request has no message")
                }
                (None, end) => Err(end),
            };
        }
    }

    /// Waits for `sending`, and receives input meanwhile.
    pub(super) async fn receive_during<T>(
        &mut self,
        sending: impl Future<Output = T>,
    ) -> Result<T, NoMessage> {
        let mut sending = pin!(sending);
        poll_fn(|cx| {
            if let Poll::Ready(sent) = sending.as_mut().poll(cx) {
                return Poll::Ready(Ok(sent));
            }
            while let Some(piece) = self.body.poll_ahead(cx) {
                self.keep(piece);
            }
            match self.hold() {
                Ok(()) => Poll::Pending,
                Err(no_message) => Poll::Ready(Err(no_message)),
            }
        })
        .await
    }

    /// Removes the peer's time limits from now on.
    pub(super) fn rest(&mut self) {
        self.body.rest();
    }

    fn bytes(&self) -> &[u8] {
        if self.joined.is_empty() { &self.held } else { &self.joined }
    }

    /// The length of the message, if it is complete.
    fn whole(&self) -> Result<Option<usize>, NoMessage> {
        let bytes_max = self.shared.limits().body_bytes_max.min(SERVICE_MESSAGE_BYTES_MAX);
        match look(self.bytes(), bytes_max) {
            Framed::Whole(length) => Ok(Some(length)),
            Framed::Partial(_) => Ok(None),
            Framed::TooLarge => Err(NoMessage::Status(too_large(bytes_max))),
            // Requests to these services are small; clients do not compress them.
            Framed::Compressed(_) => Err(NoMessage::Status(Status::new(
                Code::Unimplemented,
                "compressed messages are not supported here",
            ))),
        }
    }

    /// Waits for more bytes; false: the request has ended.
    async fn more(
        &mut self,
        deadline: &mut Deadline,
        due_ms: Option<u64>,
    ) -> Result<bool, NoMessage> {
        let piece = poll_fn(|cx| match self.body.poll(cx, &self.shared, deadline, due_ms) {
            Poll::Ready(piece) => Poll::Ready(Ok(piece)),
            Poll::Pending => match self.hold() {
                Ok(()) => Poll::Pending,
                Err(no_message) => Poll::Ready(Err(no_message)),
            },
        });
        match piece.await? {
            Piece::Bytes(piece) | Piece::All(piece) => {
                self.body.open_window();
                self.keep(piece);
                Ok(true)
            }
            Piece::End => Ok(false),
            Piece::Slow => refuse(Code::Cancelled, "the message did not arrive in time"),
            Piece::Late => Err(NoMessage::Status(Status::late())),
            Piece::Failed => Err(NoMessage::Failed),
        }
    }

    /// The result if the request ends now: an incomplete message is an error.
    fn end(&self) -> NoMessage {
        if self.bytes().is_empty() {
            return NoMessage::End;
        }
        NoMessage::Status(Status::new(Code::InvalidArgument, "the message is cut short"))
    }

    /// Splits off a message of this length.
    fn split(&mut self, length: usize) -> Bytes {
        if self.joined.is_empty() {
            self.held.advance(PREFIX);
            return self.held.split_to(length);
        }
        let mut joined = std::mem::take(&mut self.joined).freeze();
        joined.advance(PREFIX);
        let message = joined.split_to(length);
        self.held = joined;
        message
    }

    fn keep(&mut self, piece: Bytes) {
        if self.bytes().is_empty() {
            self.held = piece;
            return;
        }
        self.join();
        self.joined.extend_from_slice(&piece);
    }

    /// Copies the received bytes, so that a few bytes do not retain a whole read buffer of h2.
    /// Memory is allocated only for received bytes, not for the announced length.
    fn join(&mut self) {
        if !self.held.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.held));
        }
    }

    /// Counts the held bytes while the call waits.
    fn hold(&mut self) -> Result<(), NoMessage> {
        self.join();
        let held = self.joined.capacity();
        if held == self.charged {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.charged, held);
        let stays = self.shared.account.charge(before, held, self.shared.now_ms());
        if stays { Ok(()) } else { Err(NoMessage::Failed) }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.shared.account.give_back(self.charged);
    }
}
