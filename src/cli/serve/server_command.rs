//! `peregrine server`: one agent in one line, spelled as the official command line spells it.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};

use super::{
    super::usage::UsageError,
    config::{AgentSpec, Config, ProcessSpec, Program, RemoteSpec},
    flags,
};

/// Flags of `serve` that this command replaces, or that need a file.
const NOT_OF_SERVE: &[&str] = &["agent", "config", "mount"];

const AFTER: &str = "\
All flags of peregrine serve hold as well, but for --agent, --mount and --config. The command of
--exec is run by sh -c for each message, in the environment of the server: the text of the message
is its stdin, stdout is the artifact, exit code 0 completes the task; otherwise the client sees the
last of stderr.";

/// The command, with all its flags.
pub fn command() -> Command {
    let own = |name: &'static str, value: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).help(help);
        match value {
            "" => arg.action(ArgAction::SetTrue),
            _ => arg.value_name(value).allow_hyphen_values(true),
        }
    };
    let port = own("port", "PORT", "Port; 0 is any free one [default: 8080]");
    Command::new("server")
        .about("Serves one agent: a command, an echo or a proxy")
        .after_help(AFTER)
        .args([
            own("exec", "CMD", "Runs a command for each message"),
            own("chunk", "SEP", "Cuts the command's output into chunks").requires("exec"),
            own("echo", "", "Sends back what it is sent"),
            own("proxy", "URL", "Passes messages to a remote A2A agent"),
            own("host", "HOST", "Address to listen on [default: 127.0.0.1]"),
            port.value_parser(clap::value_parser!(u16)),
            own("name", "NAME", "Name of the agent"),
            own("description", "TEXT", "Description of the agent"),
        ])
        .group(ArgGroup::new("mode").args(["exec", "echo", "proxy"]).required(true))
        .args(flags::args().map(|arg| match NOT_OF_SERVE.contains(&arg.get_id().as_str()) {
            true => arg.hide(true),
            false => arg.hide_short_help(true),
        }))
}

/// Sets what the flags say of the agent and where it listens.
///
/// # Errors
/// [`UsageError`]: a name that cannot be one.
pub fn apply(flags: &ArgMatches, config: &mut Config) -> Result<(), UsageError> {
    if NOT_OF_SERVE.iter().any(|name| flags.contains_id(name)) {
        let line = "peregrine server has one agent and no file; peregrine serve takes --agent, \
                    --mount and --config";
        return Err(UsageError::new(line));
    }
    let text = |name| flags.get_one::<String>(name).cloned();
    let program = match (text("exec"), text("proxy")) {
        (Some(command), _) => Program::Process(ProcessSpec::shell(&command, text("chunk"))),
        (None, Some(url)) => Program::Remote(RemoteSpec::at(&url)),
        (None, None) => Program::Echo,
    };
    let at = config.root.wrong("agents", "");
    let (name, card) = (text("name"), Default::default());
    let mut spec = AgentSpec { name, program, card, is_enabled: true, at };
    spec.card.description = text("description");
    config.serve.agents = vec![spec];
    if !flags.contains_id("listen") {
        let host = text("host").unwrap_or_else(|| "127.0.0.1".to_owned());
        let port = flags.get_one("port").copied().unwrap_or(8080_u16);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        config.serve.listen = vec![format!("{host}:{port}")];
    }
    Ok(())
}
