//! `peregrine server`: serves one agent, with the arguments of the official command line.

use std::path::Path;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, builder::PossibleValuesParser};
use peregrine::{
    client::card::AgentCard,
    engine::{Binding, CardForm, Interface},
    net::LogLevel,
};

use super::{
    super::usage::UsageError,
    agents::path_name,
    config::{self, AgentSpec, CardOverrides, Config, ProcessSpec, Program, RemoteSpec, Serve},
    flags,
};

/// Flags of `serve` that this command replaces, or that need a configuration file.
const NOT_OF_SERVE: &[&str] = &["agent", "config", "mount"];

const AFTER: &str = "\
All flags of peregrine serve apply as well, except --agent, --mount and --config; its --card is
--card-form here. sh -c runs the command of --exec for each message, in the environment of the
server: the text of the message is its stdin, stdout is the artifact, exit code 0 completes the
task; otherwise the client sees the end of stderr. In the card of --card, the URLs and the required
credentials are replaced by those of this server. Clients of every version are served, whatever the
card lists because of --protocol and --serve-transport.";

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
    let proxy = own("proxy", "URL", "Passes messages to a remote A2A agent");
    let agent_card = own("agent-card", "URL", "URL of the remote agent, if --proxy has none");
    let card = own("card-file", "FILE", "Describes the agent with this agent card (JSON)");
    let protocol = own("protocol", "latest|0.3", "Version on the card");
    let transport = own("serve-transport", "rest|jsonrpc|grpc", "The one binding on the card");
    Command::new("server")
        .about("Serves one agent: a command, an echo or a proxy")
        .after_help(AFTER)
        .args([
            own("exec", "CMD", "Runs a command for each message"),
            own("chunk", "SEP", "Cuts the command's output into chunks").requires("exec"),
            own("echo", "", "Echoes each message"),
            proxy.num_args(0..=1).allow_hyphen_values(false),
            agent_card.short('a').requires("proxy"),
            own("host", "HOST", "Address to listen on [default: 127.0.0.1]"),
            port.value_parser(clap::value_parser!(u16)),
            own(
                "name",
                "NAME",
                "Name of the agent; characters that a path cannot have become hyphens",
            ),
            own("description", "TEXT", "Description of the agent"),
            card.long("card"),
            own("card-compat", "", "With --protocol 0.3: the card is also for clients of 1.0"),
            protocol.value_parser(PossibleValuesParser::new(["latest", "0.3"])),
            transport
                .value_parser(PossibleValuesParser::new(["rest", "jsonrpc", "grpc"]))
                .alias("transport"),
            own("advertise-address", "ADDR", "URL, or host and port, on the card"),
            own("quiet", "", "Writes only errors to stderr"),
        ])
        .group(ArgGroup::new("mode").args(["exec", "echo", "proxy"]).required(true))
        .args(flags::args().map(|arg| match arg.get_id().as_str() {
            name if NOT_OF_SERVE.contains(&name) => arg.hide(true),
            "card" => arg.long("card-form").hide_short_help(true),
            _ => arg.hide_short_help(true),
        }))
}

/// Sets the agent and the addresses from the flags.
///
/// # Errors
/// [`UsageError`]: a flag that this command does not accept, no URL for `--proxy`, or an unreadable
/// card.
pub fn apply(flags: &ArgMatches, config: &mut Config) -> Result<(), UsageError> {
    if NOT_OF_SERVE.iter().any(|name| flags.contains_id(name)) {
        let line = "peregrine server has one agent and no configuration file; peregrine serve \
                    takes --agent, --mount and --config";
        return Err(UsageError::new(line));
    }
    let text = |name| flags.get_one::<String>(name).cloned();
    let program = match text("exec") {
        Some(command) => Program::Process(ProcessSpec::shell(&command, text("chunk"))),
        None if flags.contains_id("proxy") => {
            let url = text("proxy").or_else(|| text("agent-card"));
            let missing =
                || UsageError::new("--proxy needs a URL: --proxy URL, or --agent-card URL");
            Program::Remote(RemoteSpec::at(&url.ok_or_else(missing)?))
        }
        None => Program::Echo,
    };
    let file = text("card-file").map(|file| read_card(&file)).transpose()?;
    let name = text("name").or_else(|| file.as_ref().map(|card| card.name.clone()));
    let mut card = file.as_ref().map_or_else(CardOverrides::default, CardOverrides::of_card);
    card.description = text("description").or(card.description);
    let (name, at) = (name.as_deref().map(path_name), config.root.wrong("agents", ""));
    config.serve.agents = vec![AgentSpec { name, program, card, is_enabled: true, at }];
    if !flags.contains_id("listen") {
        let host = text("host").unwrap_or_else(|| "127.0.0.1".to_owned());
        let port = flags.get_one("port").copied().unwrap_or(8080_u16);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        config.serve.listen = vec![format!("{host}:{port}")];
    }
    list(flags, &mut config.serve);
    if flags.get_flag("quiet") && !flags.contains_id("log") {
        config.serve.logs.level = LogLevel::Error;
    }
    Ok(())
}

/// Sets the form, the interfaces and the public URL of the card, unless flags of `serve` set them.
fn list(flags: &ArgMatches, serve: &mut Serve) {
    let word = |name| flags.get_one::<String>(name).map(String::as_str);
    let is_old = word("protocol").is_some_and(|word| word != "latest");
    if is_old && !flags.get_flag("card-compat") && !flags.contains_id("card") {
        serve.setup.card = CardForm::V03;
    }
    let binding = match word("serve-transport") {
        Some("rest") => Some(Binding::HttpJson),
        Some("jsonrpc") => Some(Binding::JsonRpc),
        Some(_) => Some(Binding::Grpc),
        None => None,
    };
    if let Some(binding) = binding.filter(|_| !flags.contains_id("interfaces")) {
        serve.setup.interfaces = vec![Interface::of(binding)];
    }
    if let Some(address) = word("advertise-address").filter(|_| !flags.contains_id("public-url")) {
        let is_url = address.contains("://");
        let url = if is_url { address.to_owned() } else { format!("http://{address}") };
        serve.setup.public_url = Some(url.trim_end_matches('/').to_owned());
    }
}

/// Reads a card.
///
/// # Errors
/// [`UsageError`]: the file is missing or invalid.
fn read_card(file: &str) -> Result<AgentCard, UsageError> {
    let wrong = |message: String| UsageError::new(format!("--card: {message}"));
    let text = config::text(Path::new(file)).map_err(wrong)?;
    AgentCard::read(text.as_bytes()).map_err(|error| wrong(format!("{file}: {error}")))
}
