//! One call of the command line: its settings, its words, and the state of its task.

use std::{
    cell::{Cell, RefCell},
    io::{self, IsTerminal, Write},
    rc::Rc,
    sync::Arc,
};

use clap::ArgMatches;
use peregrine::{
    client::card::AgentCard,
    model::{JsonObject, TaskState},
};

use super::super::{
    failure::CommandFailure,
    json_line::json_line,
    parts::{self, WORDS},
    print,
    settings::{OutputFormat, SettingSource, Settings},
    text::{TextOutput, one_line, state_word},
    warn,
};

/// Flags that a follow-up command for the same agent needs; their values are not secret.
const REPEATED: &[&str] = &[
    "config",
    "endpoint",
    "transport",
    "a2a-version",
    "tenant",
    "dialect",
    "assume",
    "extension",
    "token-url",
    "issuer",
    "client-id",
    "ca",
    "cert",
    "key",
    "insecure",
    "allow-http-credentials",
    "allow-other-origin",
];

/// One call of the command line.
pub struct Invocation<'a> {
    /// The command, such as `task get`.
    pub path: &'static str,
    /// The resolved settings.
    pub settings: Settings,
    /// The flags of the command itself.
    pub flags: &'a ArgMatches,
    /// The words after the agent.
    pub words: Vec<String>,
    /// The format of the output.
    pub format: OutputFormat,
    /// True: events are shown as they arrive.
    pub is_streaming: bool,
    /// True: everything is shown.
    pub is_verbose: bool,
    /// True: only the agent's text is shown, as in a `chat` at a terminal.
    pub is_talk: bool,
    /// True: the command handles Ctrl-C itself.
    pub handles_interrupts: Rc<Cell<bool>>,
    /// True: the command waits for a task that the agent has named.
    waits: Cell<bool>,
    /// The task, once its id was received.
    task: RefCell<Option<ObservedTask>>,
    /// The card of the agent, once it was read.
    card: RefCell<Option<Arc<AgentCard>>>,
}

/// The last observed state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTask {
    /// Its id.
    pub id: String,
    /// Its conversation.
    pub context_id: String,
    /// Its newest state.
    pub state: TaskState,
}

impl<'a> Invocation<'a> {
    /// Separates the agent from the words of the command at `form.path`.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage, which shows both ways to name the agent.
    pub fn new(
        flags: &'a ArgMatches,
        mut settings: Settings,
        format: OutputFormat,
        form: &CommandForm,
    ) -> Result<Invocation<'a>, CommandFailure> {
        let words = flags.try_get_many::<String>(WORDS).ok().flatten();
        let mut words: Vec<String> = words.into_iter().flatten().cloned().collect();
        let wanted = form.words.len();
        let least = wanted - usize::from(form.may_lack);
        let is_named = ["agent-card", "endpoint"].iter().any(|name| settings.text(name).is_some());
        // If flags or the standard input contain the message, a single word can only be the agent.
        let is_lone = words.len() == wanted && form.may_lack && !is_named;
        let names_agent =
            is_lone && (!parts::named(flags, words.len())?.is_empty() || form.is_piped());
        if words.len() > wanted || names_agent {
            let by_flag = |name| *settings.source(name) == SettingSource::Flag;
            let flag = [("agent-card", "-a"), ("endpoint", "-e")];
            if let Some((_, flag)) = flag.into_iter().find(|(name, _)| by_flag(name)) {
                let line = format!("two agents are given: by {flag} and by {:?}", words[0]);
                return Err(CommandFailure::usage(line).hint(form.usage()));
            }
            settings.set("agent-card", &words.remove(0));
        } else if !is_named {
            let line = match words.last() {
                Some(word) => {
                    let argument = form.words[words.len() - 1].trim_matches('"');
                    format!("missing agent: {word:?} is used as the {argument}")
                }
                None => "missing agent".to_owned(),
            };
            return Err(CommandFailure::usage(line).hint(form.usage()));
        }
        // The parser limits the words between two flags, not the number of all words.
        if let Some(word) = words.get(wanted) {
            let line = format!("too many arguments: unexpected {word:?}; quote a text with spaces");
            let hint = match word.as_str() {
                "true" | "false" => format!("a switch takes its value after =: --async={word}"),
                _ => form.usage(),
            };
            return Err(CommandFailure::usage(line).hint(hint));
        }
        if words.len() < least {
            let line = format!("{} is missing", form.words[words.len()]);
            return Err(CommandFailure::usage(line).hint(form.usage()));
        }
        let (is_streaming, is_verbose) = (settings.is_on("stream")?, settings.is_on("verbose")?);
        let is_text = format == OutputFormat::Text && !is_verbose;
        let is_talk = is_text && settings.is_on("quiet")?;
        let (path, task, card) = (form.path, RefCell::new(None), RefCell::new(None));
        let waits = Cell::new(false);
        Ok(Invocation {
            path,
            settings,
            flags,
            words,
            format,
            is_streaming,
            is_verbose,
            is_talk,
            handles_interrupts: Rc::default(),
            waits,
            task,
            card,
        })
    }

    /// The last value of a flag of the command itself.
    pub fn flag(&self, name: &str) -> Option<&'a str> {
        let values = self.flags.try_get_many::<String>(name).ok().flatten();
        values.into_iter().flatten().next_back().map(String::as_str)
    }

    /// All values of a flag of the command itself.
    pub fn flag_list(&self, name: &str) -> Vec<&'a str> {
        let values = self.flags.try_get_many::<String>(name).ok().flatten();
        values.into_iter().flatten().map(String::as_str).collect()
    }

    /// A flag of the command that is a number.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage.
    pub fn flag_number<N: std::str::FromStr>(
        &self,
        name: &str,
    ) -> Result<Option<N>, CommandFailure> {
        let number = |text: &str| {
            text.parse()
                .map_err(|_| CommandFailure::usage(format!("--{name}: {text:?} is not a number")))
        };
        self.flag(name).map(number).transpose()
    }

    /// The metadata of the request.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage.
    pub fn metadata(&self) -> Result<Option<JsonObject<'_>>, CommandFailure> {
        let Some(text) = self.settings.text("metadata") else { return Ok(None) };
        let wrong = |_| self.settings.wrong("metadata", text, "not a JSON object");
        JsonObject::parse(text).map(Some).map_err(wrong)
    }

    /// Remembers the task, and prints its state on a terminal.
    pub fn note_task(&self, id: &str, context_id: &str, state: TaskState) {
        let task = ObservedTask { id: id.to_owned(), context_id: context_id.to_owned(), state };
        let before = self.task.replace(Some(task));
        let is_new = before.is_none_or(|before| before.id != id || before.state != state);
        if is_new && !self.is_streaming && !state.is_terminal() && io::stderr().is_terminal() {
            let line = format!("task {} {}\n", one_line(id), state_word(state));
            // If stderr is closed, states are no longer shown; this is no error.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    /// Notes that the agent has named the task: a message at the end of the wait then shows how to
    /// continue the task.
    pub fn begin_wait(&self) {
        self.waits.set(true);
    }

    /// Whether the command waits for a task that the agent has named.
    pub fn is_waiting(&self) -> bool {
        self.waits.get()
    }

    /// The task, if its id was received.
    pub fn task(&self) -> Option<ObservedTask> {
        self.task.borrow().clone()
    }

    /// Remembers the card of the agent.
    pub fn set_card(&self, card: Arc<AgentCard>) {
        *self.card.borrow_mut() = Some(card);
    }

    /// The card of the agent, once it was read.
    pub fn card(&self) -> Option<Arc<AgentCard>> {
        self.card.borrow().clone()
    }

    /// Shows the task of a wait that ends before the task does (the command line's specification,
    /// §8.2). In JSON a failure is the only document, and its message names the task.
    pub fn print_task(&self) {
        if let Some(task) = self.task().filter(|_| self.format == OutputFormat::Text) {
            let mut output = self.text();
            output.ids(&task.id, &task.context_id, task.state);
            print(&output.text);
        }
    }

    /// The task in a sentence, with everything that is needed to find the task again, unless the
    /// output already has it.
    pub fn named(&self, task: &ObservedTask) -> String {
        let state = state_word(task.state);
        match (self.format, task.context_id.is_empty()) {
            (OutputFormat::Text, _) => format!("task {}", task.id),
            (OutputFormat::Json, true) => format!("task {} ({state})", task.id),
            (OutputFormat::Json, false) => {
                format!("task {} of context {} ({state})", task.id, task.context_id)
            }
        }
    }

    /// A follow-up command for the same agent, to be pasted into a shell.
    pub fn command(&self, path: &str, rest: &str) -> String {
        let mut line = format!("peregrine {path}");
        if *self.settings.source("agent-card") == SettingSource::Flag {
            let reference = self.settings.text("agent-card").unwrap_or_default();
            line.push_str(&format!(" -a {}", quoted(reference)));
        }
        for name in REPEATED.iter().copied() {
            if *self.settings.source(name) == SettingSource::Flag {
                for value in self.settings.list(name) {
                    match value {
                        "true" => line.push_str(&format!(" --{name}")),
                        "false" => line.push_str(&format!(" --{name}=false")),
                        _ => line.push_str(&format!(" {}", flag(name, value))),
                    }
                }
            }
        }
        if !rest.is_empty() {
            line.push(' ');
            line.push_str(rest);
        }
        line
    }

    /// A command that continues the task, to be pasted into a shell.
    pub fn resume(&self, id: &str) -> String {
        self.command("send", &format!("{} \"<reply>\"", flag("task-id", id)))
    }

    /// Writes a document: the given JSON on one line, with terminal control characters escaped.
    pub fn print_json(&self, json: &[u8]) {
        print(&json_line(&String::from_utf8_lossy(json)));
    }

    /// An empty text that shows everything if the command does.
    pub fn text(&self) -> TextOutput {
        TextOutput::new(self.is_verbose)
    }

    /// Warns of an unsuccessful outcome, or of a task that waits for the user. Returns the next
    /// command, if there is one.
    pub fn outcome(&self, id: &str, state: TaskState) -> Option<String> {
        match state {
            // The user requested this outcome.
            TaskState::Canceled if self.path == "task cancel" => None,
            TaskState::Failed | TaskState::Rejected | TaskState::Canceled => {
                warn(&format!("the task has ended as {}", state_word(state)));
                None
            }
            TaskState::InputRequired | TaskState::AuthRequired => {
                let resume = self.resume(id);
                let what = match state {
                    TaskState::AuthRequired => "the task waits for an authorization",
                    _ => "the task waits for your answer",
                };
                match self.format {
                    OutputFormat::Text => warn(&format!("{what} ({})", state_word(state))),
                    OutputFormat::Json => {
                        warn(&format!("{what} ({}): {resume}", state_word(state)));
                    }
                }
                Some(resume)
            }
            TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
                Some(self.command("task get", &format!("--wait {}", last_word(id))))
            }
            TaskState::Completed => None,
        }
    }
}

/// The words that a command takes.
pub struct CommandForm {
    /// The command, such as `task get`.
    pub path: &'static str,
    /// The words after the agent.
    pub words: &'static [&'static str],
    /// True: the last word is optional.
    pub may_lack: bool,
}

impl CommandForm {
    /// Whether the message may be on the standard input.
    pub fn is_piped(&self) -> bool {
        self.path == "send" && parts::is_piped()
    }

    fn usage(&self) -> String {
        let suffix: String = self.words.iter().map(|word| format!(" {word}")).collect();
        let path = self.path;
        format!("peregrine {path} -a REF{suffix}, or peregrine {path} REF{suffix}")
    }
}

/// A flag with its value, to be pasted into a shell. A value with a leading hyphen follows a `=`,
/// since it would otherwise be read as a flag.
pub fn flag(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!("--{name}{between}{}", quoted(value))
}

/// The last word of a command, to be pasted into a shell: after `--` if it would otherwise be read
/// as a flag.
pub fn last_word(word: &str) -> String {
    let before = if word.starts_with('-') { "-- " } else { "" };
    format!("{before}{}", quoted(word))
}

/// A word quoted for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(&b);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", one_line(word).replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_is_quoted_if_the_shell_needs_it() {
        for (word, shown) in [
            ("a-1", "a-1"),
            ("http://h:1/x", "http://h:1/x"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(x)\n", r"'$(x)\n'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }

    #[test]
    fn printed_value_with_hyphen_cannot_become_a_flag() {
        assert_eq!((flag("task-id", "a"), last_word("a")), ("--task-id a".into(), "a".into()));
        assert_eq!(flag("task-id", "--x y"), "--task-id='--x y'");
        assert_eq!(last_word("-rf"), "-- -rf");
    }
}
