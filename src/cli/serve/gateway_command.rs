//! `peregrine gateway`: serves remote A2A agents on one port, without a configuration file.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{
    super::usage::UsageError,
    config::{AgentSpec, Config, Program, RemoteSpec},
    flags,
};

/// Flags of `serve` that this command replaces, or that need a configuration file.
const NOT_OF_SERVE: &[&str] = &["agent", "config"];

const AFTER: &str = "\
The first agent answers at the root, and each agent at /agents/NAME. Without NAME, an agent has the
name on its card. All flags of peregrine serve apply as well, except --agent and --config.";

/// The command, with all its flags.
pub fn command() -> Command {
    let agents = Arg::new("remote")
        .value_name("[NAME=]URL")
        .help("A remote A2A agent: its origin, or the URL of its card")
        .required(true)
        .action(ArgAction::Append)
        .num_args(1..);
    Command::new("gateway").about("Serves remote A2A agents").after_help(AFTER).arg(agents).args(
        flags::args().map(|arg| match NOT_OF_SERVE.contains(&arg.get_id().as_str()) {
            true => arg.hide(true),
            false => arg.hide_short_help(true),
        }),
    )
}

/// Sets the agents in the arguments.
///
/// # Errors
/// [`UsageError`]: a flag that this command does not accept, or an invalid name.
pub fn apply(flags: &ArgMatches, config: &mut Config) -> Result<(), UsageError> {
    if NOT_OF_SERVE.iter().any(|name| flags.contains_id(name)) {
        let line = "peregrine gateway does not accept --agent and --config; use peregrine serve";
        return Err(UsageError::new(line));
    }
    let remotes = flags.get_many::<String>("remote").into_iter().flatten();
    config.serve.agents = remotes
        .map(|remote| {
            // A `=` after the scheme belongs to the URL.
            let (name, url) = match remote.split_once('=') {
                Some((name, url)) if !name.contains(':') => (Some(name.to_owned()), url),
                _ => (None, remote.as_str()),
            };
            let at = config.root.wrong("agents", "");
            let program = Program::Remote(RemoteSpec::at(url));
            AgentSpec { name, program, card: Default::default(), is_enabled: true, at }
        })
        .collect();
    Ok(())
}
