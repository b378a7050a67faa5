//! The echo agent: returns each message as one artifact of a completed task.
//!
//! Invariant: parts are copied at most once, packed as received, into the turn's own list; an echo
//! allocates nothing. Three texts are triggers for load tests: `ping`, `stream:N` and `hold:MS:N`.
//! Any other message is echoed.

use super::{Agent, Profile, Turn};
use crate::{
    json::write::push_u64,
    model::{
        Content, Message, MessageBuf, Part, PartsBuf, RawText, TaskState,
        pack::{Packer, artifact_tag, part_tag},
    },
};

/// Maximum events of `stream:N`: the maximum of one turn (`Limits::turn_events_max`).
pub const STREAM_EVENTS_MAX: u64 = 16_384;

/// Maximum bytes of each chunk of `stream:N:BYTES`.
pub const CHUNK_BYTES_MAX: u64 = 65_536;

/// Maximum milliseconds of `hold:MS:N`: ten minutes, to bound the effect of a typing error.
pub const HOLD_MS_MAX: u64 = 600_000;

/// The id of the only artifact.
const ARTIFACT_ID: RawText<'static> = RawText::known(b"echo");

/// Answers every message with its own parts.
///
/// `ping` alone is answered with a direct message `pong`. `stream:N` publishes N events: working,
/// the chunks of an artifact, completed (N = 1: completed only). `hold:MS:N` waits MS milliseconds
/// first; meanwhile a new task is submitted. If `:BYTES` is appended, each chunk has at least this
/// number of bytes. A number out of bounds is rejected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Echo {
    /// The profile of the agent's card.
    pub fn profile() -> Profile {
        let mut profile = Profile::new("echo", "Sends back the parts of every message");
        profile.skills[0].examples =
            ["ping", "stream:5", "hold:1000:5"].map(str::to_owned).to_vec();
        profile
    }
}

impl Agent for Echo {
    fn start(&self, mut turn: Turn<'_>) {
        match Trigger::of(turn.message) {
            Trigger::Echo => echo(&mut turn),
            Trigger::Ping => {
                let message =
                    MessageBuf::agent(&PartsBuf::new().text("pong")).id(&message_id(&turn));
                turn.reply(message);
            }
            Trigger::Stream(wanted) if wanted.is_within() => stream(&mut turn, wanted),
            Trigger::Hold(ms, wanted) if wanted.is_within() && ms <= HOLD_MS_MAX => {
                turn.resume_after(ms, wanted.token());
            }
            Trigger::Stream(_) => {
                let most = format!("{STREAM_EVENTS_MAX} events of {CHUNK_BYTES_MAX} bytes");
                reject(&mut turn, format!("stream:N:BYTES takes at most {most}"));
            }
            Trigger::Hold(..) => {
                let most = format!("{STREAM_EVENTS_MAX} events of {CHUNK_BYTES_MAX} bytes");
                reject(
                    &mut turn,
                    format!("hold:MS:N:BYTES takes at most {HOLD_MS_MAX} ms and {most}"),
                );
            }
        }
    }

    fn resume(&self, mut turn: Turn<'_>, token: u64) {
        stream(&mut turn, WantedEvents::of_token(token));
    }
}

/// The trigger in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    Echo,
    Ping,
    Stream(WantedEvents),
    /// Wait this many milliseconds first.
    Hold(u64, WantedEvents),
}

/// The events of a stream. Numbers above `u64::MAX` become `u64::MAX`, which is also out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WantedEvents {
    events: u64,
    /// The minimum in each chunk.
    chunk_bytes: u64,
}

impl WantedEvents {
    /// `N` or `N:BYTES`.
    fn of(raw: &[u8]) -> Option<WantedEvents> {
        let Some(colon) = raw.iter().position(|&byte| byte == b':') else {
            return Some(WantedEvents { events: positive(raw)?, chunk_bytes: 0 });
        };
        let (events, chunk_bytes) = (positive(&raw[..colon])?, number(&raw[colon + 1..])?);
        Some(WantedEvents { events, chunk_bytes })
    }

    fn is_within(self) -> bool {
        self.events <= STREAM_EVENTS_MAX && self.chunk_bytes <= CHUNK_BYTES_MAX
    }

    /// Packs both numbers, which are within their bounds, into one.
    fn token(self) -> u64 {
        self.chunk_bytes << 32 | self.events
    }

    fn of_token(token: u64) -> WantedEvents {
        WantedEvents { events: token & u64::from(u32::MAX), chunk_bytes: token >> 32 }
    }
}

impl Trigger {
    /// The trigger of a message; for most messages the first byte of the first part decides.
    fn of(message: Message<'_>) -> Trigger {
        let mut parts = message.parts();
        let Some(Content::Text(text)) = parts.next().map(Part::content) else {
            return Trigger::Echo;
        };
        let raw = text.raw();
        let found = match raw.first() {
            Some(b'p') => (raw == b"ping").then_some(Trigger::Ping),
            Some(b's') => {
                raw.strip_prefix(b"stream:").and_then(WantedEvents::of).map(Trigger::Stream)
            }
            Some(b'h') => raw.strip_prefix(b"hold:").and_then(hold),
            Some(_) | None => None,
        };
        found.filter(|_| parts.next().is_none()).unwrap_or(Trigger::Echo)
    }
}

/// The trigger for the text after `hold:`.
fn hold(raw: &[u8]) -> Option<Trigger> {
    let colon = raw.iter().position(|&byte| byte == b':')?;
    Some(Trigger::Hold(number(&raw[..colon])?, WantedEvents::of(&raw[colon + 1..])?))
}

/// A number that consists only of decimal digits.
fn number(digits: &[u8]) -> Option<u64> {
    let (first, rest) = digits.split_first()?;
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    rest.iter().try_fold(digit(*first)?, |sum, &byte| {
        Some(sum.saturating_mul(10).saturating_add(digit(byte)?))
    })
}

/// A [`number`] above zero.
fn positive(digits: &[u8]) -> Option<u64> {
    number(digits).filter(|number| *number > 0)
}

fn echo(turn: &mut Turn<'_>) {
    turn.artifact_of_message(ARTIFACT_ID);
    turn.status(TaskState::Completed);
}

fn stream(turn: &mut Turn<'_>, wanted: WantedEvents) {
    let WantedEvents { events, chunk_bytes } = wanted;
    if events > 1 {
        turn.status(TaskState::Working);
    }
    let chunks = events.saturating_sub(2);
    match chunk_bytes {
        0 => push_chunks(turn, chunks, push_numbered),
        bytes => push_chunks(turn, chunks, |text, chunk| {
            let end = text.len() + bytes as usize;
            push_numbered(text, chunk);
            if text.len() < end {
                text.push(b' ');
                text.resize(end.max(text.len()), b'.');
            }
        }),
    }
    turn.status(TaskState::Completed);
}

/// Publishes an artifact in chunks of text, which `push` appends.
#[inline(always)] // Most calls use the same kind of text.
fn push_chunks(turn: &mut Turn<'_>, chunks: u64, push: impl Fn(&mut Vec<u8>, u64)) {
    let push_part = |packer: &mut Packer<'_>, chunk| {
        let text = packer.open(part_tag::TEXT);
        push(packer.0, chunk);
        packer.close(text);
    };
    for chunk in 1..=chunks {
        if chunk == 1 {
            turn.events.push_artifact_with(chunk == chunks, |packer| {
                packer.put(artifact_tag::ARTIFACT_ID, ARTIFACT_ID.raw());
                let part = packer.open(artifact_tag::PART);
                push_part(packer, chunk);
                packer.close(part);
            });
        } else {
            turn.events.push_part_with(chunk == chunks, |packer| push_part(packer, chunk));
        }
    }
}

/// Appends text with the number of the chunk.
#[inline]
fn push_numbered(text: &mut Vec<u8>, chunk: u64) {
    text.extend_from_slice(b"chunk ");
    push_u64(text, chunk);
}

fn reject(turn: &mut Turn<'_>, why: String) {
    let message = MessageBuf::agent(&PartsBuf::new().text(&why)).id(&message_id(turn));
    turn.status_with(TaskState::Rejected, &message);
}

/// The id of the final message of a task: unique because the task's id is.
fn message_id(turn: &Turn<'_>) -> String {
    format!("{}-end", turn.task_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits::Limits,
        model::{Json, PartBuf},
    };

    fn trigger(parts: &PartsBuf) -> Trigger {
        Trigger::of(MessageBuf::agent(parts).view())
    }

    fn text(text: &str) -> Trigger {
        trigger(&PartsBuf::new().text(text))
    }

    #[test]
    fn trigger_texts_are_parsed() {
        assert_eq!(text("ping"), Trigger::Ping);
        let wanted = |events, chunk_bytes| WantedEvents { events, chunk_bytes };
        assert_eq!(text("stream:1"), Trigger::Stream(wanted(1, 0)));
        assert_eq!(text("stream:100"), Trigger::Stream(wanted(100, 0)));
        assert_eq!(text("stream:20:200"), Trigger::Stream(wanted(20, 200)));
        assert_eq!(text("hold:0:3"), Trigger::Hold(0, wanted(3, 0)));
        assert_eq!(text("hold:250:1"), Trigger::Hold(250, wanted(1, 0)));
        assert_eq!(text("hold:250:3:64"), Trigger::Hold(250, wanted(3, 64)));
        assert_eq!(text("stream:99999999999999999999"), Trigger::Stream(wanted(u64::MAX, 0)));
        let most = wanted(STREAM_EVENTS_MAX, CHUNK_BYTES_MAX);
        assert!(most.is_within() && WantedEvents::of_token(most.token()) == most);
    }

    #[test]
    fn inexact_trigger_texts_are_echoed() {
        for echoed in [
            "",
            "p",
            "pin",
            "pings",
            "Ping",
            " ping",
            "ping\n",
            "s",
            "stream",
            "stream:",
            "stream:0",
            "stream:-1",
            "stream:+1",
            "stream:1 ",
            "stream:1.0",
            "stream:x",
            "hold:",
            "hold:1",
            "hold:1:",
            "hold::1",
            "hold:1:0",
            "hold:1:2:3:4",
            "hold:1:2:",
            "stream:1:",
            "stream:1:x",
            "stream:1:2:3",
            "hold:x:1",
            "help",
            "hello",
        ] {
            assert_eq!(text(echoed), Trigger::Echo, "{echoed:?}");
        }
    }

    #[test]
    fn trigger_must_be_a_single_text_part() {
        assert_eq!(trigger(&PartsBuf::new().text("ping").text("x")), Trigger::Echo);
        assert_eq!(trigger(&PartsBuf::new().data(Json::known(b"1")).text("ping")), Trigger::Echo);
        assert_eq!(trigger(&PartsBuf::new().part(&PartBuf::url("ping"))), Trigger::Echo);
        assert_eq!(trigger(&PartsBuf::new()), Trigger::Echo);
    }

    #[test]
    fn stream_events_max_is_within_turn_events_max() {
        assert!(STREAM_EVENTS_MAX <= Limits::default().turn_events_max as u64);
    }
}
