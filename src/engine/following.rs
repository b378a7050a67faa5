//! One poll of an open stream, over any transport.

use crate::{
    binding::{EventStream, answer::ResponseWriter},
    engine::Engine,
    fault::FaultKind,
    limits::Limits,
    service::{Follow, Now, observe::CallEnd},
};

use std::task::Waker;

/// The context of a poll.
#[derive(Clone, Copy)]
pub(super) struct FollowCx<'x> {
    pub(super) engine: &'x Engine,
    pub(super) now: Now,
    pub(super) wake: &'x Waker,
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followed {
    /// The output is full.
    Full,
    /// All new events are written.
    Waits,
    /// The end of the stream is written.
    Ended,
    /// The end is written because the server shuts down, or the client's credential has expired.
    Cut,
}

/// When to poll a stream without an earlier event, in ms of the monotonic clock.
pub(super) fn next_ms(stream: &EventStream, limits: &Limits) -> u64 {
    let next_ms = (stream.wrote_ms + limits.sse_keep_alive_ms).min(stream.expires_ms);
    stream.due_ms.map_or(next_ms, |due_ms| due_ms.min(next_ms))
}

/// Writes the new events of a stream until the output holds `room` bytes, a keep-alive after a long
/// silence, and its end.
pub(super) fn follow(
    stream: &mut EventStream,
    cx: FollowCx<'_>,
    writer: &mut ResponseWriter<'_>,
    room: usize,
) -> Followed {
    let FollowCx { engine, now, wake } = cx;
    if !stream.is_admitted(now, wake) {
        stream.expire(writer);
        return Followed::Cut;
    }
    if stream.due_ms.is_some_and(|due_ms| due_ms <= now.mono_ms) {
        let fault = FaultKind::DeadlineExceeded.into();
        stream.give_up(writer, &fault, CallEnd::DeadlineExceeded);
        return Followed::Ended;
    }
    let before = writer.out.len();
    let follow = stream.poll(engine.service(), wake, writer, room);
    if writer.out.len() > before {
        stream.wrote_ms = now.mono_ms;
    }
    match follow {
        Follow::More => Followed::Full,
        Follow::Pending if engine.is_cut() => {
            stream.cut(writer);
            Followed::Cut
        }
        Follow::Pending => {
            if now.mono_ms >= stream.wrote_ms + engine.limits().sse_keep_alive_ms {
                stream.keep_alive(writer);
                stream.wrote_ms = now.mono_ms;
            }
            Followed::Waits
        }
        Follow::End | Follow::Gone => Followed::Ended,
    }
}
