//! The script agent: rules from a TOML file, for tests, demos and benchmarks.
//!
//! The law of this module: the same message to the same task gets the same answer, identifiers
//! included. Everything is checked and packed when the script is read; running it copies bytes.
//! Steps follow each other in one turn until one has to wait.
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

use std::fmt;

use super::{Agent, Extension, Profile, Provider, Skill, Turn};
use crate::{
    json::write::push_u64,
    model::{Content, JsonObjectBuf, Message, MessageBuf, PartsBuf, TaskState, pack::message_tag},
};
use reader::{Node, document};
use rules::{Act, Rule, object};

/// Events after which a turn ends and another one goes on: well below `Limits::turn_events_max`.
const TURN_EVENTS_MAX: usize = 1_024;

/// Bytes of events after which a turn ends and another one goes on.
const TURN_BYTES_MAX: usize = 256 * 1024;

/// An agent that does what a file says.
///
/// The rule with the longest matching prefixes is taken; of two equally long ones, the one with
/// the longer `message_id`. `text` is compared with the first text part of the message. A message
/// that no rule matches completes its task and says so.
#[derive(Debug)]
pub struct Script {
    profile: Profile,
    /// Best match first.
    rules: Vec<Rule>,
}

/// What is wrong with a script, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Line of the file, from 1.
    pub line: Option<usize>,
    /// One sentence, with the rule and step where there is one.
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
    /// [`ScriptError`] when it is not TOML, has an unknown key, or a value that cannot be used.
    pub fn parse(toml_text: &str) -> Result<Script, ScriptError> {
        let root = document(toml_text)?;
        let root = Node::root(&root, toml_text);
        root.allow(&["agent", "rule"])?;
        let profile = match root.table("agent")? {
            Some(agent) => profile(&agent)?,
            None => Profile::new("script", "Answers as its script says"),
        };
        Ok(Script { profile, rules: rules::rules(&root)? })
    }

    /// What its card says: the `[agent]` table.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    fn rule_of(&self, message: Message<'_>) -> Option<usize> {
        let first_text = message.parts().find_map(|part| match part.content() {
            Content::Text(text) => Some(text),
            Content::Raw(_) | Content::Url(_) | Content::Data(_) => None,
        });
        let (id, text) = (message.message_id().to_str(), first_text.unwrap_or_default().to_str());
        self.rules.iter().position(|rule| rule.matches(&id, &text))
    }

    /// Does the steps from `place` on; `waited`: the delay before that step is over.
    fn run(&self, mut turn: Turn<'_>, mut place: Place, mut waited: bool) {
        let before = seq_of(&turn);
        let steps = self.rules.get(place.rule).map_or(&[][..], |rule| &rule.steps);
        while let Some(step) = steps.get(place.step) {
            let is_full =
                turn.events.len() >= TURN_EVENTS_MAX || turn.events.bytes_len() >= TURN_BYTES_MAX;
            if !waited && (step.delay_ms > 0 || is_full) {
                return turn.resume_after(step.delay_ms, place.token());
            }
            waited = false;
            let seq = before + turn.events.len() as u64 + 1;
            match &step.act {
                Act::Status { state, says: None } => turn.status(*state),
                Act::Status { state, says: Some(says) } => {
                    let (task_id, at_ms) = (turn.task_id, turn.now.unix_ms);
                    turn.events.push_status_with(*state, at_ms, |packer| {
                        let id = packer.open(message_tag::MESSAGE_ID);
                        packer.0.extend_from_slice(task_id.raw());
                        packer.0.push(b'-');
                        push_u64(packer.0, seq);
                        packer.close(id);
                        packer.0.extend_from_slice(says);
                    });
                }
                Act::Artifact { artifact, append, last_chunk } => {
                    turn.chunk(artifact, *append, *last_chunk);
                }
                Act::Message(parts) => {
                    let message = MessageBuf::agent(parts).id(&message_id(&turn, seq));
                    return turn.reply(message);
                }
            }
            place = place.after(step.repeat);
        }
    }
}

impl Agent for Script {
    fn start(&self, mut turn: Turn<'_>) {
        if let Some(rule) = self.rule_of(turn.message) {
            return self.run(turn, Place { rule, step: 0, repetition: 0 }, false);
        }
        let id = message_id(&turn, seq_of(&turn) + 1);
        let message = MessageBuf::agent(&PartsBuf::new().text("no rule matches")).id(&id);
        turn.status_with(TaskState::Completed, &message);
    }

    fn resume(&self, turn: Turn<'_>, token: u64) {
        self.run(turn, Place::of(token), true);
    }
}

/// Where a script stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    rule: usize,
    step: usize,
    repetition: u32,
}

impl Place {
    /// `rules::COUNT_MAX` keeps rules and steps within 16 bits each.
    fn token(self) -> u64 {
        (self.rule as u64) << 48 | (self.step as u64) << 32 | u64::from(self.repetition)
    }

    fn of(token: u64) -> Place {
        let [rule, step] = [48, 32].map(|by| usize::from((token >> by) as u16));
        Place { rule, step, repetition: token as u32 }
    }

    /// The place after one repetition of a step that is done `repeat` times.
    fn after(self, repeat: u32) -> Place {
        let repetition = self.repetition + 1;
        if repetition < repeat {
            return Place { repetition, ..self };
        }
        Place { step: self.step + 1, repetition: 0, ..self }
    }
}

/// The sequence number of the task's last event; 0 when there is no task yet.
fn seq_of(turn: &Turn<'_>) -> u64 {
    let mut seq = 0;
    if turn.state.is_some() {
        turn.read(&mut |task| seq = task.seq());
    }
    seq
}

/// `<task id>-<sequence number>`: sequence numbers only grow, so it is unique in the task.
fn message_id(turn: &Turn<'_>, seq: u64) -> String {
    format!("{}-{seq}", turn.task_id)
}

fn profile(agent: &Node<'_>) -> Result<Profile, ScriptError> {
    agent.allow(&[
        "name",
        "description",
        "version",
        "provider",
        "documentation_url",
        "icon_url",
        "input_modes",
        "output_modes",
        "streaming",
        "skills",
        "extensions",
    ])?;
    let name = agent.text("name")?.unwrap_or("script");
    let description = agent.text("description")?.unwrap_or("Answers as its script says");
    let mut profile = Profile::new(name, description);
    if let Some(version) = agent.text("version")? {
        profile.version = version.to_owned();
    }
    profile.provider = agent.table("provider")?.as_ref().map(provider).transpose()?;
    profile.documentation_url = agent.text("documentation_url")?.map(str::to_owned);
    profile.icon_url = agent.text("icon_url")?.map(str::to_owned);
    if let Some(modes) = agent.texts("input_modes")? {
        profile.input_modes = modes;
    }
    if let Some(modes) = agent.texts("output_modes")? {
        profile.output_modes = modes;
    }
    if let Some(streaming) = agent.flag("streaming")? {
        profile.streaming = streaming;
    }
    let skills = agent.tables("skills", "skill")?;
    if !skills.is_empty() {
        profile.skills = skills.iter().map(skill).collect::<Result<_, _>>()?;
    }
    let extensions = agent.tables("extensions", "extension")?;
    profile.extensions = extensions.iter().map(extension).collect::<Result<_, _>>()?;
    Ok(profile)
}

fn provider(provider: &Node<'_>) -> Result<Provider, ScriptError> {
    provider.allow(&["organization", "url"])?;
    Ok(Provider {
        organization: provider.need_text("organization")?.to_owned(),
        url: provider.need_text("url")?.to_owned(),
    })
}

fn extension(extension: &Node<'_>) -> Result<Extension, ScriptError> {
    extension.allow(&["uri", "description", "required", "params"])?;
    Ok(Extension {
        uri: extension.need_text("uri")?.to_owned(),
        description: extension.text("description")?.unwrap_or_default().to_owned(),
        required: extension.flag("required")?.unwrap_or(false),
        params: object(extension, "params")?.map(JsonObjectBuf::from),
    })
}

fn skill(skill: &Node<'_>) -> Result<Skill, ScriptError> {
    let known = ["id", "name", "description", "tags", "examples", "input_modes", "output_modes"];
    skill.allow(&known)?;
    let id = skill.need_text("id")?;
    let name = skill.text("name")?.unwrap_or(id);
    Ok(Skill {
        id: id.to_owned(),
        name: name.to_owned(),
        description: skill.text("description")?.unwrap_or(name).to_owned(),
        tags: skill.texts("tags")?.unwrap_or_else(|| vec![id.to_owned()]),
        examples: skill.texts("examples")?.unwrap_or_default(),
        input_modes: skill.texts("input_modes")?.unwrap_or_default(),
        output_modes: skill.texts("output_modes")?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_carries_the_place() {
        for rule in [0, 1, rules::COUNT_MAX - 1] {
            for step in [0, 1, rules::COUNT_MAX - 1] {
                for repetition in [0, 1, u32::MAX] {
                    let place = Place { rule, step, repetition };
                    assert_eq!(Place::of(place.token()), place);
                }
            }
        }
    }

    #[test]
    fn places_follow_each_other() {
        let place = Place { rule: 1, step: 2, repetition: 0 };
        assert_eq!(place.after(1), Place { step: 3, ..place });
        assert_eq!(place.after(2), Place { repetition: 1, ..place });
        assert_eq!(place.after(2).after(2), Place { step: 3, ..place });
    }

    #[test]
    fn a_turn_of_a_script_fits_the_limit() {
        assert!(TURN_EVENTS_MAX < crate::limits::Limits::default().turn_events_max);
    }
}
