//! `[agents.NAME]`: the agent, and overrides of its card.

use std::path::PathBuf;

use peregrine::{
    engine::BuildError,
    limits::{AGENT_TURNS_QUEUED_MAX, PROCESSES_MAX, Unit},
};

use super::{
    super::tree::{ConfigEntry, ConfigSection, Key, Shape, Wrong, hint, key},
    auth::check_scopes,
    cards::{self, CardOverrides},
    functions::{self, FunctionSpec},
    processes::{self, ProcessSpec},
    remote::{self, RemoteSpec},
};

/// The kind of a remote A2A agent.
const REMOTE: &str = "a2a";

const KIND: Shape =
    Shape::Choice(&["echo", "script", "exec", processes::LINES, REMOTE, functions::FUNCTION]);

const KEYS: &[Key] = &[
    key(
        "kind",
        KIND,
        "",
        "Kind of the agent: echo, script, exec, exec+jsonl, a2a or http; default: script, exec or \
         a2a, if script, command or upstream is set",
    )
    .live(),
    key("script", Shape::Path, "", "The file of a script agent, see docs/guide/script.md").live(),
    key(
        "upstream",
        Shape::Section(remote::keys),
        "",
        "URL of the remote A2A agent, or of the HTTP function",
    )
    .live(),
    key(
        "command",
        Shape::Text,
        "",
        "Command line of its program; split into words, without a shell",
    )
    .live(),
    key(
        "environment",
        Shape::Texts,
        "",
        "Names of variables that its processes receive in addition to PATH",
    )
    .live(),
    key(
        "chunk",
        Shape::Text,
        "",
        "Separator that splits the output of a process into chunks; it is removed",
    )
    .live(),
    key(
        "show_errors",
        Shape::Switch,
        "",
        "Shows clients the end of a failed process's stderr, or a function's error body",
    )
    .live(),
    key(
        "silence_ms",
        Shape::Measure(Unit::Millis),
        "",
        "Milliseconds without output after which a process is killed, or an answer is abandoned; \
         default 300_000",
    )
    .live(),
    key(
        "processes",
        Shape::Whole { min: 1, max: PROCESSES_MAX as u64 },
        "",
        "Maximum concurrent processes; further messages wait; default 16, for exec+jsonl 1",
    )
    .live(),
    key(
        "queue",
        Shape::Whole { min: 1, max: AGENT_TURNS_QUEUED_MAX as u64 },
        "",
        "Maximum waiting messages; the next is refused; default 1,024",
    )
    .live(),
    key(
        "turns",
        Shape::Whole { min: 1, max: AGENT_TURNS_QUEUED_MAX as u64 },
        "",
        "Maximum concurrent messages of one exec+jsonl process, or of an http function; default 64",
    )
    .live(),
    key(
        "history",
        Shape::Switch,
        "",
        "Sends the earlier messages of a task with each message that continues it, to exec+jsonl \
         and http",
    )
    .live(),
    key(
        "enabled",
        Shape::Switch,
        "true",
        "false: refuses all messages (503); a reload that sets it fails the unfinished tasks",
    )
    .live(),
    key("description", Shape::Text, "", "One paragraph for humans").live(),
    key("version", Shape::Text, "", "Version of the agent; default: that of the server").live(),
    key("provider", Shape::Section(cards::provider_keys), "", "Provider of the agent").live(),
    key("documentation_url", Shape::Text, "", "URL of its documentation").live(),
    key("icon_url", Shape::Text, "", "URL of its icon").live(),
    key("input_modes", Shape::Texts, "", "Media types that it reads; */* is any").live(),
    key("output_modes", Shape::Texts, "", "Media types that it writes").live(),
    key("streaming", Shape::Switch, "true", "Serves streaming operations").live(),
    key(
        "fields",
        Shape::Texts,
        "",
        "Header fields of a request that it receives, such as traceparent; it receives no others",
    )
    .live(),
    key(
        "anonymous",
        Shape::Switch,
        "false",
        "Accepts anonymous callers, even if the server has [auth]",
    )
    .live(),
    key("scopes", Shape::Texts, "[]", "Scopes required for each operation").live(),
    key(
        "reads_all_scopes",
        Shape::Switch,
        "false",
        "It receives all scopes of its callers' tokens, not only those that agents and skills \
         require",
    )
    .live(),
    key(
        "quota",
        Shape::Text,
        "",
        "Name of a quota in [quotas.named] that limits each caller of this agent",
    )
    .live(),
    key(
        "unfinished_idle_ms",
        Shape::Measure(Unit::Millis),
        "",
        "Milliseconds without an event after which its submitted or working tasks fail",
    )
    .live(),
    key(
        "input_required_ttl_ms",
        Shape::Measure(Unit::Millis),
        "",
        "Milliseconds without an event after which its tasks in input-required or auth-required \
         fail",
    )
    .live(),
    key("skills", Shape::Sections(cards::skill_keys), "", "Skills of the agent").live(),
    key("extensions", Shape::Sections(cards::extension_keys), "", "Extensions that it supports")
        .live(),
];

/// The keys of the section.
pub fn keys() -> &'static [Key] {
    KEYS
}

/// The configuration of one agent.
#[derive(Debug)]
pub struct AgentSpec {
    /// The name; `None`: a default name, such as the name in its script or on its card.
    pub name: Option<String>,
    /// The program that runs the agent.
    pub program: Program,
    /// Overrides of the agent's card.
    pub card: CardOverrides,
    /// False: the agent rejects every call.
    pub is_enabled: bool,
    /// Source and key for errors of the program.
    pub at: Wrong,
}

/// The program that runs an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// The echo agent.
    Echo,
    /// The script in this file.
    Script(PathBuf),
    /// A program, with a process for each message or a process for many messages.
    Process(ProcessSpec),
    /// A remote A2A agent.
    Remote(RemoteSpec),
    /// An HTTP function.
    Function(FunctionSpec),
}

/// The agents, the default agent first.
///
/// # Errors
/// [`Wrong`].
pub fn read(root: &ConfigSection) -> Result<Vec<AgentSpec>, Wrong> {
    let mut agents = match root.entry("agents") {
        Some(ConfigEntry::Value(_)) => of_flags(root)?,
        _ => root
            .named("agents")
            .iter()
            .map(|(name, section)| of_file(name, section))
            .collect::<Result<Vec<_>, _>>()?,
    };
    if let Some(default) = root.text("default_agent") {
        let index = agents.iter().position(|agent| agent.name.as_deref() == Some(default));
        let Some(index) = index else {
            let hint = hint(default, agents.iter().filter_map(|agent| agent.name.as_deref()));
            return Err(
                root.wrong("default_agent", format!("no agent is called {default:?}{hint}"))
            );
        };
        agents[..=index].rotate_right(1);
    }
    Ok(agents)
}

fn of_file(name: &str, section: &ConfigSection) -> Result<AgentSpec, Wrong> {
    let program = match section.text("kind") {
        Some(functions::FUNCTION) => Program::Function(FunctionSpec::read(section)?),
        kind => program(section, kind)?,
    };
    let at = match program {
        Program::Echo => section.wrong("kind", ""),
        Program::Script(_) => section.wrong("script", ""),
        Program::Process(_) => section.wrong("command", ""),
        Program::Remote(_) | Program::Function(_) => section.wrong("upstream", ""),
    };
    let is_enabled = section.switch("enabled").unwrap_or(true);
    check_scopes(section)?;
    let (name, card) = (Some(name.to_owned()), cards::read(section)?);
    Ok(AgentSpec { name, program, card, is_enabled, at })
}

/// The program of an agent, except a function.
fn program(section: &ConfigSection, kind: Option<&str>) -> Result<Program, Wrong> {
    let remote = section.section("upstream").filter(|section| section.is_set());
    let remote = remote.map(RemoteSpec::read).transpose()?;
    let script = section.path("script");
    Ok(match (kind, script, processes::read(section)?) {
        (None | Some(REMOTE), None, None) if remote.is_some() => {
            remote.map_or(Program::Echo, Program::Remote)
        }
        (_, _, _) if remote.is_some() => {
            let line = "is only for the agent kinds a2a and http, which have no script and no \
                        command";
            return Err(section.wrong("upstream", line));
        }
        (Some(REMOTE), _, _) => {
            return Err(section.wrong("upstream", "is missing: the agent kind a2a needs its url"));
        }
        (Some("exec" | processes::LINES) | None, None, Some(process)) => Program::Process(process),
        (Some("exec" | processes::LINES), _, None) => {
            return Err(section.wrong("command", "is missing: a program needs one"));
        }
        (_, _, Some(_)) => return Err(section.wrong("command", "is only for programs")),
        (Some("script") | None, Some(file), None) => Program::Script(file),
        (Some("script"), None, None) => {
            return Err(section.wrong("script", "is missing: the agent kind script needs a file"));
        }
        (None, None, None) => {
            return Err(section
                .wrong("kind", "is missing: an agent needs kind, script, command or upstream"));
        }
        (Some(_), Some(_), None) => {
            return Err(section.wrong("script", "is only for the agent kind script"));
        }
        (Some(_), None, None) => Program::Echo,
    })
}

/// Reads values of the form `[NAME=]KIND[:ARG]`; the agent without a name comes first.
fn of_flags(root: &ConfigSection) -> Result<Vec<AgentSpec>, Wrong> {
    let items = root.texts("agents").unwrap_or_default();
    let agents = items.iter().enumerate().map(|(index, item)| {
        let wrong = |message: String| root.wrong_item("agents", index, message);
        let (name, kind, arg) = parts(&item.text);
        let program = match (kind, arg) {
            ("echo", None) => Program::Echo,
            ("echo", Some(_)) => return Err(wrong("the agent kind echo takes no argument".into())),
            ("script", Some(file)) if !file.is_empty() => Program::Script(PathBuf::from(file)),
            ("script", _) => return Err(wrong("the agent kind script needs a file".into())),
            ("exec", Some(line)) if !line.is_empty() => Program::Process(ProcessSpec::text(line)),
            (processes::LINES, Some(line)) if !line.is_empty() => {
                Program::Process(ProcessSpec::lines(line))
            }
            ("exec" | processes::LINES, _) => {
                return Err(wrong(format!("the agent kind {kind} needs a command")));
            }
            (REMOTE, Some(url)) if !url.is_empty() => Program::Remote(RemoteSpec::at(url)),
            (REMOTE, _) => return Err(wrong("the agent kind a2a needs a URL".into())),
            // `http:http://HOST/PATH`, or only the URL.
            (scheme @ ("http" | "https"), Some(rest)) if rest.starts_with("//") => {
                Program::Function(FunctionSpec::at(&format!("{scheme}:{rest}")))
            }
            (functions::FUNCTION, Some(url)) if !url.is_empty() => {
                Program::Function(FunctionSpec::at(url))
            }
            ("http" | "https", _) => {
                return Err(wrong(format!("the agent kind {kind} needs a URL")));
            }
            _ if let Some(name) = wrong_name(&item.text) => {
                let form = "use letters, digits, \"-\", \"_\" and \".\"";
                return Err(wrong(format!("invalid agent name {name:?}; {form}")));
            }
            (file, _) if file.contains('/') => {
                let line = item.text.strip_prefix(name.unwrap_or_default()).unwrap_or_default();
                let line = line.strip_prefix('=').unwrap_or(line);
                let message = format!("unknown agent kind {file:?}; did you mean exec:{line}?");
                return Err(wrong(message));
            }
            (kind, _) => {
                let kinds = "kinds: echo, script:FILE, exec:COMMAND, exec+jsonl:COMMAND, a2a:URL, \
                             http:URL";
                return Err(wrong(format!("unknown agent kind {kind:?}; {kinds}")));
            }
        };
        let (name, at) = (name.map(str::to_owned), wrong(String::new()));
        let card = CardOverrides::default();
        Ok(AgentSpec { name, program, card, is_enabled: true, at })
    });
    let mut agents = agents.collect::<Result<Vec<_>, _>>()?;
    if agents.iter().filter(|agent| agent.name.is_none()).count() > 1 {
        let line = "only one --agent can be the default; give the others a name: NAME=KIND";
        return Err(root.wrong("agents", line));
    }
    agents.sort_by_key(|agent| agent.name.is_some());
    Ok(agents)
}

/// The kinds of `--agent`.
const KINDS: &[&str] = &["echo", "script", "exec", processes::LINES, REMOTE, "http", "https"];

/// The text before a known kind, if it is not a valid name.
fn wrong_name(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once('=')?;
    let kind = rest.split_once(':').map_or(rest, |(kind, _)| kind);
    (parts(text).0.is_none() && KINDS.contains(&kind)).then_some(name)
}

/// Splits `[NAME=]KIND[:ARG]`. If the text before a `=` is not a name, the `=` belongs to the
/// argument.
fn parts(text: &str) -> (Option<&str>, &str, Option<&str>) {
    let is_name = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !text.is_empty() && text.chars().all(plain)
    };
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) if is_name(name) => (Some(name), rest),
        _ => (None, text),
    };
    match rest.split_once(':') {
        Some((kind, arg)) => (name, kind, Some(arg)),
        None => (name, rest, None),
    }
}

/// The position of the agent that lists this header field.
pub fn blame_field(root: &ConfigSection, field: &str, error: &BuildError) -> Option<Wrong> {
    root.named("agents").iter().find_map(|(_, agent)| {
        let index = agent.texts("fields")?.iter().rposition(|item| item.text == field)?;
        Some(agent.wrong_item("fields", index, error.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_sign_in_agent_path_is_not_a_name_separator() {
        assert_eq!(parts("script:dir/a=b.toml"), (None, "script", Some("dir/a=b.toml")));
        assert_eq!(parts("bob=script:a=b:c"), (Some("bob"), "script", Some("a=b:c")));
        assert_eq!(parts("echo"), (None, "echo", None));
    }
}
