//! The script agent: rules from a TOML file, for tests, demos and benchmarks.
//!
//! Invariant: the same message to the same task has the same answer, including ids. Everything is
//! checked and packed when the script is read; running it only copies bytes. Steps run in the same
//! turn until a step has to wait.
//!
//! ```
//! let script = peregrine::agent::script::Script::parse(
//!     r#"
//!     [agent]
//!     name = "greeter"
//!
//!     [[rule]]
//!     text = "hello"
//!     [[rule.step]]
//!     status = "working"
//!     [[rule.step]]
//!     delay_ms = 100
//!     artifact = "greeting"
//!     parts = [{ text = "Hello to you" }]
//!     [[rule.step]]
//!     status = "completed"
//!     "#,
//! )?;
//! assert_eq!(script.profile().name, "greeter");
//! # Ok::<(), peregrine::agent::script::ScriptError>(())
//! ```

mod reader;
mod rules;
mod suggest;
mod tables;

use std::fmt;

use super::{Agent, Profile, Turn};
use crate::{
    json::{Parser, write::push_u64},
    model::{
        ArtifactBuf, Content, JSON_DEPTH_MAX, Json, Message, MessageBuf, PartsBuf, RawText,
        TaskState, pack::message_tag,
    },
};
use reader::Location;
use rules::{Act, Rule};

/// Number of events after which a turn ends and another one continues: well below
/// `Limits::turn_events_max`.
const TURN_EVENTS_MAX: usize = 1_024;

/// Bytes of events after which a turn ends and another one continues.
const TURN_BYTES_MAX: usize = 256 * 1024;

/// An agent that follows the rules of a file.
///
/// The rule with the longest matching prefixes is used; if two are equally long, the rule with the
/// longer `message_id`. `text` is compared with the first text part of the message. A message that
/// matches no rule completes its task with an explanation.
#[derive(Debug)]
pub struct Script {
    profile: Profile,
    /// The rules in the order in which they are tried.
    rules: Vec<Rule>,
    reader: Option<PayloadReader>,
}

/// Parses a payload as described by `words`, and returns the result as JSON.
pub type PayloadReader = fn(words: &str, payload: &[u8]) -> String;

/// An error in a script, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Line of the file, from 1.
    pub line: Option<usize>,
    /// One sentence, with the rule and the step if known.
    pub message: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ScriptError {}

impl Script {
    /// Reads a script; `toml_text` is the content of its file.
    ///
    /// # Errors
    /// [`ScriptError`] if the text is not TOML, has an unknown key, or has a value that cannot be
    /// used.
    pub fn parse(toml_text: &str) -> Result<Script, ScriptError> {
        let file = reader::file(toml_text)?;
        let agent = file.agent.map(|table| table.0).unwrap_or_default();
        let rules = rules::rules(&Location::root(toml_text), file.rule)?;
        Ok(Script { profile: agent.into(), rules, reader: None })
    }

    /// Sets the reader for `parse` steps; without it these steps report that the script has no
    /// reader.
    #[must_use]
    pub fn with_reader(self, reader: PayloadReader) -> Script {
        Script { reader: Some(reader), ..self }
    }

    /// The profile of the agent's card: the `[agent]` table.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The answer of a `parse` step: the parsed form of the first data part of the message, or of
    /// the second text part, which may be invalid JSON.
    fn parsed(&self, rule: &Rule, words: &str, message: Message<'_>) -> Parsed {
        let mut texts = texts_of(message);
        let first = texts.next().map(|text| text.to_str()).unwrap_or_default();
        let words = format!("{words} {}", rule.words_of(&first));
        let data = message.parts().find_map(|part| match part.content() {
            Content::Data(json) => Some(json.raw()),
            Content::Text(_) | Content::Raw(_) | Content::Url(_) | Content::Unknown(_) => None,
        });
        let text = texts.next().map(|text| text.to_str());
        let payload = data.or(text.as_ref().map(|text| text.as_bytes()));
        let output = match (self.reader, payload) {
            (Some(reader), Some(payload)) => reader(&words, payload),
            (Some(_), None) => {
                "the message has neither a data part nor a second text part".to_owned()
            }
            (None, _) => "the script has no reader".to_owned(),
        };
        let parts = match Json::parse(&output) {
            Ok(json) => PartsBuf::new().data(json),
            Err(_) => PartsBuf::new().text(&output),
        };
        Parsed { parts, is_acts: data.is_some_and(is_acts) }
    }

    fn rule_of(&self, message: Message<'_>) -> Option<usize> {
        let first_text = texts_of(message).next();
        let (id, text) = (message.message_id().to_str(), first_text.unwrap_or_default().to_str());
        self.rules.iter().position(|rule| rule.matches(&id, &text))
    }

    /// Runs the steps from `position`; `waited`: the delay before that step has passed.
    fn run(&self, mut turn: Turn<'_>, mut position: Position, mut waited: bool) {
        let before = seq_of(&turn);
        let steps = self.rules.get(position.rule).map_or(&[][..], |rule| &rule.steps);
        while let Some(step) = steps.get(position.step) {
            let is_full =
                turn.events.len() >= TURN_EVENTS_MAX || turn.events.bytes_len() >= TURN_BYTES_MAX;
            if !waited && (step.delay_ms > 0 || is_full) {
                return turn.resume_after(step.delay_ms, position.token());
            }
            waited = false;
            let seq = before + turn.events.len() as u64 + 1;
            match &step.act {
                Act::Status { state, message: None } => turn.status(*state),
                Act::Status { state, message: Some(message) } => {
                    let (task_id, at_ms) = (turn.task_id, turn.now.unix_ms);
                    turn.events.push_status_with(*state, at_ms, |packer| {
                        let id = packer.open(message_tag::MESSAGE_ID);
                        packer.0.extend_from_slice(task_id.raw());
                        packer.0.push(b'-');
                        push_u64(packer.0, seq);
                        packer.close(id);
                        packer.0.extend_from_slice(message);
                    });
                }
                Act::Artifact { artifact, append, last_chunk } => {
                    turn.chunk(artifact, *append, *last_chunk);
                }
                Act::Parse(words) => {
                    let Some(rule) = self.rules.get(position.rule) else { return };
                    let Parsed { parts, is_acts } = self.parsed(rule, words, turn.message);
                    if is_acts {
                        turn.artifact(&ArtifactBuf::new("parsed", &parts));
                        return turn.status(TaskState::Completed);
                    }
                    let message = MessageBuf::agent(&parts).id(&message_id(&turn, seq));
                    return turn.reply(message);
                }
                Act::Message(parts) => {
                    let message = MessageBuf::agent(parts).id(&message_id(&turn, seq));
                    return turn.reply(message);
                }
            }
            position = position.after(step.repeat);
        }
    }
}

impl Agent for Script {
    fn start(&self, mut turn: Turn<'_>) {
        if let Some(rule) = self.rule_of(turn.message) {
            return self.run(turn, Position { rule, step: 0, repetition: 0 }, false);
        }
        let id = message_id(&turn, seq_of(&turn) + 1);
        let message = MessageBuf::agent(&PartsBuf::new().text("no rule matches")).id(&id);
        turn.status_with(TaskState::Completed, &message);
    }

    fn resume(&self, turn: Turn<'_>, token: u64) {
        self.run(turn, Position::of(token), true);
    }
}

/// A position in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    rule: usize,
    step: usize,
    repetition: u32,
}

impl Position {
    /// `rules::COUNT_MAX` ensures that rules and steps fit 16 bits each.
    fn token(self) -> u64 {
        (self.rule as u64) << 48 | (self.step as u64) << 32 | u64::from(self.repetition)
    }

    fn of(token: u64) -> Position {
        let [rule, step] = [48, 32].map(|by| usize::from((token >> by) as u16));
        Position { rule, step, repetition: token as u32 }
    }

    /// The position after one repetition of a step that is repeated `repeat` times.
    fn after(self, repeat: u32) -> Position {
        let repetition = self.repetition + 1;
        if repetition < repeat {
            return Position { repetition, ..self };
        }
        Position { step: self.step + 1, repetition: 0, ..self }
    }
}

/// The answer of a `parse` step.
struct Parsed {
    parts: PartsBuf,
    /// True: the payload has the form of the A2A conformance suite (ACTS), which expects the answer
    /// in an artifact.
    is_acts: bool,
}

/// Whether a payload is a `client_response` step of ACTS: an operation and its answer.
fn is_acts(payload: &[u8]) -> bool {
    let mut parser = Parser::new();
    let value = parser.parse(payload, JSON_DEPTH_MAX);
    value.is_ok_and(|value| value.get("operation").is_some() && value.get("wire_payload").is_some())
}

/// The text parts of a message.
fn texts_of(message: Message<'_>) -> impl Iterator<Item = RawText<'_>> {
    message.parts().filter_map(|part| match part.content() {
        Content::Text(text) => Some(text),
        Content::Raw(_) | Content::Url(_) | Content::Data(_) | Content::Unknown(_) => None,
    })
}

/// The sequence number of the task's last event; 0: no task yet.
fn seq_of(turn: &Turn<'_>) -> u64 {
    let mut seq = 0;
    if turn.state.is_some() {
        turn.read(&mut |task| seq = task.seq());
    }
    seq
}

/// `<task id>-<sequence number>`: sequence numbers only increase, so the id is unique in the task.
fn message_id(turn: &Turn<'_>, seq: u64) -> String {
    format!("{}-{seq}", turn.task_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_round_trips_through_token() {
        for rule in [0, 1, rules::COUNT_MAX - 1] {
            for step in [0, 1, rules::COUNT_MAX - 1] {
                for repetition in [0, 1, u32::MAX] {
                    let position = Position { rule, step, repetition };
                    assert_eq!(Position::of(position.token()), position);
                }
            }
        }
    }

    #[test]
    fn next_position_is_next_repetition_or_next_step() {
        let position = Position { rule: 1, step: 2, repetition: 0 };
        assert_eq!(position.after(1), Position { step: 3, ..position });
        assert_eq!(position.after(2), Position { repetition: 1, ..position });
        assert_eq!(position.after(2).after(2), Position { step: 3, ..position });
    }

    #[test]
    fn script_turn_fits_turn_events_max() {
        assert!(TURN_EVENTS_MAX < crate::limits::Limits::default().turn_events_max);
    }
}
