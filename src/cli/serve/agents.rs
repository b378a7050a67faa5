//! Builds agents from their configuration: one arm per kind.

use std::{
    collections::HashSet,
    panic::resume_unwind,
    path::Path,
    sync::Arc,
    thread::{self, ScopedJoinHandle},
};

use peregrine::{
    agent::{Agent, Profile, Turn, echo::Echo},
    client::HttpOrigin,
    fault::{Fault, FaultKind},
    gateway::profile_of,
    limits::AGENT_FIELDS_MAX,
    net::{FunctionAgent, LinesAgent, ProcessAgent, ProcessCommand, RemoteAgent},
};

use super::{
    super::warn,
    config::{AgentSpec, CardOverrides, FunctionSpec, ProcessSpec, Program, RemoteSpec},
};

/// An agent, its profile, and the configuration it was built from.
#[derive(Clone)]
pub struct Loaded {
    /// The profile, shown by the card.
    pub profile: Profile,
    /// The agent.
    pub agent: Arc<dyn Agent>,
    /// Text that identifies the configuration; agents with the same text behave in the same way.
    pub made_of: String,
    /// True: the old agent can finish its tasks while its replacement runs.
    pub is_script: bool,
    /// The remote agent; its card changes the profile.
    pub remote: Option<ServedRemote>,
}

impl Loaded {
    /// An agent with a fixed profile.
    pub fn new(profile: Profile, agent: Arc<dyn Agent>, made_of: String) -> Loaded {
        Loaded { profile, agent, made_of, is_script: false, remote: None }
    }

    /// The name of the agent, if it receives the `Authorization` of callers.
    pub fn passes_authorization(&self) -> Option<String> {
        let passes = self.profile.fields.iter().any(|field| field == AUTHORIZATION);
        passes.then(|| self.profile.name.clone())
    }
}

/// A remote agent, and the settings that override its card.
#[derive(Clone)]
pub struct ServedRemote {
    /// The agent.
    pub agent: Arc<RemoteAgent>,
    /// The name from the configuration.
    configured_name: Option<String>,
    made_of: String,
    card: CardOverrides,
    streaming: bool,
    passes_authorization: bool,
}

impl ServedRemote {
    /// The profile under this name; without a card it has only the name and a general description.
    pub fn profile(&self, name: &str) -> Profile {
        let mut profile = match self.agent.card() {
            Some(card) => profile_of(name, &card),
            None => Profile::new(name, "A remote A2A agent."),
        };
        self.card.over(&mut profile);
        profile.streaming &= self.streaming;
        pass_trace_on(&mut profile);
        if self.passes_authorization {
            profile.fields.push(AUTHORIZATION.to_owned());
        }
        profile
    }
}

/// The field that an agent receives if it passes the `Authorization` of callers on.
const AUTHORIZATION: &str = "authorization";

/// Loads the agents in order; without configured agents, the echo agent. A remote agent in
/// `running` with the same configuration is reused.
///
/// # Errors
/// The agent that cannot be loaded, and the reason.
pub fn load<'s>(
    specs: &'s [AgentSpec],
    streaming: bool,
    running: &[ServedRemote],
) -> Result<Vec<Loaded>, (&'s AgentSpec, String)> {
    let mut agents = match specs {
        [] => vec![echo()],
        // In parallel, because remote cards are requested.
        specs => thread::scope(|scope| {
            let load = |spec| (spec, scope.spawn(move || load_one(spec, streaming, running)));
            let loading: Vec<_> = specs.iter().map(load).collect();
            let join = |(spec, loading): (&'s AgentSpec, ScopedJoinHandle<'_, _>)| {
                let loaded: Result<Loaded, String> =
                    loading.join().unwrap_or_else(|panic| resume_unwind(panic));
                loaded.map_err(|line| (spec, line))
            };
            loading.into_iter().map(join).collect::<Result<Vec<_>, _>>()
        })?,
    };
    agents.iter_mut().for_each(|loaded| loaded.profile.streaming &= streaming);
    number_names(specs, &mut agents);
    Ok(agents)
}

/// Gives agents without a configured name a number (`-2` and so on) if their names are in use.
fn number_names(specs: &[AgentSpec], agents: &mut [Loaded]) {
    let mut used: HashSet<String> = specs.iter().filter_map(|spec| spec.name.clone()).collect();
    for (_, loaded) in specs.iter().zip(agents).filter(|(spec, _)| spec.name.is_none()) {
        let own = loaded.profile.name.clone();
        let numbered = (2..).map(|number| format!("{own}-{number}"));
        let free = [own.clone()].into_iter().chain(numbered).find(|name| !used.contains(name));
        loaded.profile.name = free.unwrap_or(own);
        used.insert(loaded.profile.name.clone());
    }
}

/// A disabled agent.
struct SwitchedOff;

impl Agent for SwitchedOff {
    fn start(&self, turn: Turn<'_>) {
        let text = "the agent is disabled";
        turn.refuse(Fault::because(FaultKind::ShuttingDown, text));
    }
}

fn load_one(spec: &AgentSpec, streaming: bool, running: &[ServedRemote]) -> Result<Loaded, String> {
    let mut loaded = match &spec.program {
        Program::Echo => echo(),
        Program::Script(file) => script(file)?,
        Program::Remote(upstream) => remote(spec, upstream, streaming, running)?,
        Program::Function(function) => self::function(function, spec.name.as_deref())?,
        Program::Process(process) => self::process(process, spec.name.as_deref())?,
    };
    if let Some(name) = &spec.name {
        loaded.profile.name.clone_from(name);
    }
    if !spec.is_enabled {
        loaded.agent = Arc::new(SwitchedOff);
        loaded.made_of = "switched off".to_owned();
        (loaded.is_script, loaded.remote) = (false, None);
    }
    if !matches!(spec.program, Program::Remote(_)) {
        spec.card.over(&mut loaded.profile);
    }
    if let Program::Function(_) = spec.program {
        pass_trace_on(&mut loaded.profile);
    }
    if matches!(&spec.program, Program::Function(function) if function.passes_authorization()) {
        loaded.profile.fields.push(AUTHORIZATION.to_owned());
    }
    Ok(loaded)
}

/// Adds `traceparent` to the fields that the upstream receives.
fn pass_trace_on(profile: &mut Profile) {
    let has = profile.fields.iter().any(|name| name.eq_ignore_ascii_case("traceparent"));
    if !has && profile.fields.len() < AGENT_FIELDS_MAX {
        profile.fields.push("traceparent".to_owned());
    }
}

fn echo() -> Loaded {
    Loaded::new(Echo::profile(), Arc::new(Echo), "echo".to_owned())
}

/// An agent that runs a local program.
fn process(spec: &ProcessSpec, name: Option<&str>) -> Result<Loaded, String> {
    let command = match spec.is_shell {
        true => ProcessCommand::shell(&spec.command).whole_environment(),
        false => ProcessCommand::parse(&spec.command)
            .map_err(|error| error.to_string())?
            .environment(&spec.environment),
    };
    // Inherited descriptors; those that this process has opened are close-on-exec already.
    #[cfg(unix)]
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
    let name = name.unwrap_or("process");
    // The description is not the command line, because every client can read the card.
    let profile = Profile::new(name, "A program.");
    let options = spec.options.clone();
    let agent: Arc<dyn Agent> = match spec.is_lines {
        true => Arc::new(LinesAgent::new(name, command, options)),
        false => Arc::new(ProcessAgent::new(name, command, options)),
    };
    Ok(Loaded::new(profile, agent, format!("{spec:?}")))
}

/// An agent that is an HTTP function.
fn function(spec: &FunctionSpec, name: Option<&str>) -> Result<Loaded, String> {
    let agent = FunctionAgent::new(&spec.url, spec.options(), spec.client_options());
    let agent = Arc::new(agent.map_err(|error| error.to_string())?);
    let profile = Profile::new(name.unwrap_or("function"), "An HTTP function.");
    Ok(Loaded::new(profile, agent, spec.made_of()))
}

/// A remote agent. Its card is read now, unless the agent is disabled. An unreachable agent is
/// served with its last card, or with a card that has only its name.
fn remote(
    spec: &AgentSpec,
    upstream: &RemoteSpec,
    streaming: bool,
    running: &[ServedRemote],
) -> Result<Loaded, String> {
    let url = HttpOrigin::parse(&upstream.url);
    let url = url.map_err(|error| format!("{:?}: {error}", upstream.url))?;
    let made_of = upstream.made_of();
    let is_same = |one: &&ServedRemote| one.configured_name == spec.name && one.made_of == made_of;
    let agent = match running.iter().find(is_same) {
        Some(one) => Arc::clone(&one.agent),
        None => Arc::new(upstream.agent()?),
    };
    if spec.is_enabled
        && let Err(error) = agent.refresh_card()
    {
        warn(&format!("the card of the upstream agent {} cannot be read: {error}", upstream.url));
    }
    let name = match (&spec.name, agent.card()) {
        (Some(name), _) => name.clone(),
        (None, Some(card)) => path_name(&card.name),
        (None, None) => path_name(url.origin.authority()),
    };
    let remote = ServedRemote {
        agent: Arc::clone(&agent),
        configured_name: spec.name.clone(),
        made_of: made_of.clone(),
        card: spec.card.clone(),
        streaming,
        passes_authorization: upstream.passes_authorization(),
    };
    let loaded = Loaded::new(remote.profile(&name), agent, made_of);
    Ok(Loaded { remote: Some(remote), ..loaded })
}

/// The name of an agent as a path segment: each character that is not allowed becomes a hyphen.
pub fn path_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = name.trim_start_matches('.').chars().take(128).map(plain).collect();
    if name.is_empty() { "remote".to_owned() } else { name }
}

#[cfg(not(feature = "script"))]
fn script(_file: &Path) -> Result<Loaded, String> {
    Err("this build of peregrine has no script agents".to_owned())
}

#[cfg(feature = "script")]
fn script(file: &Path) -> Result<Loaded, String> {
    use peregrine::agent::script::Script;

    let text = super::config::file::read_text(file)
        .map_err(|error| format!("cannot read the script {}: {error}", file.display()))?;
    let script = Script::parse(&text)
        // The text of a TOML error may have the source in further lines.
        .map_err(|error| format!("{}: {}", file.display(), one_line(&error.to_string())))?;
    let script = script.with_reader(peregrine::client::format::explain);
    let profile = script.profile().clone();
    let loaded = Loaded::new(profile, Arc::new(script), format!("script {text}"));
    Ok(Loaded { is_script: true, ..loaded })
}

#[cfg(feature = "script")]
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
