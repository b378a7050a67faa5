//! The commands, and the selection of a command by the arguments.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{
    admin, bench,
    nearest::nearest,
    offers::offering,
    parts::WORDS,
    serve,
    settings::{LONG_HELP, with_flags, with_only},
    usage::{UsageError, verdict},
};

/// The action that the arguments select.
pub enum CommandLine {
    /// Text on stdout: a help text, or the version.
    Print(String),
    /// One of the commands.
    Run(Box<ArgMatches>),
}

/// Every limit, with its default and what a peer sees.
const LIMITS: &str = include_str!("../../docs/limits.md");

/// All commands. They do not depend on the terminal: help texts have the same width everywhere.
pub fn tree() -> Command {
    let version = Arg::new("version").short('v').short_alias('V').long("version");
    let version = version.help("Print the version").action(ArgAction::Version);
    let root = Command::new("peregrine")
        .bin_name("peregrine")
        .about("Serves and calls A2A agents of every generation")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .propagate_version(true)
        .term_width(100)
        .after_help("peregrine help limits lists the limits.")
        .arg(version.global(true).display_order(1000))
        .subcommands([
            serve::command(),
            serve::server_command(),
            serve::gateway_command(),
            send(),
            card(),
            task(),
            group("push", "Webhooks of a server that you run").subcommand(dead_letters()),
            group("admin", "Tasks of all callers of a server that you run")
                .subcommand(admin_tasks()),
            client("chat", &[], "Talk with an agent, line by line"),
            client("conformance", &[], "Check an agent by requirements of the A2A TCK")
                .arg(flag("text", "TEXT", "Text of each message [default: hello]"))
                .arg(switch("aggressive", "Also make calls that are known to crash servers"))
                .arg(flag(
                    "tck",
                    "DIR",
                    "Run the TCK checked out in this folder instead of the built-in checks",
                ))
                .after_help(
                    "Sends some messages, and cancels no running task. The exit code is 1 if a \
                     check fails.",
                ),
            bench::command(client("bench", &[], "Put load on an agent and report its performance")),
            Command::new(bench::FLOOR_COMMAND)
                .about("Answer every call with as little work as possible, for bench --floor")
                .hide(true)
                .arg(word("bytes", "BYTES", "Bytes of each answer").required(true)),
            group("auth", "Credentials").subcommand(login()),
            group("config", "The client's settings").subcommand(with_flags(
                Command::new("show").about(
                    "Show each value in force and its source: flag, environment, file, or default",
                ),
                "config show",
            )),
            Command::new("completion")
                .about("Print a completion script")
                .arg(word("shell", "bash|elvish|fish|powershell|zsh", "The shell").required(true)),
            Command::new("man")
                .about("Write the manual pages into a folder, or the first of them to stdout")
                .arg(word("folder", "DIR", "The folder")),
        ]);
    with_hidden_flags(root)
}

/// The settings may also precede the command.
fn with_hidden_flags(command: Command) -> Command {
    with_flags(command, "").after_long_help(None::<&str>).mut_args(|arg| {
        match arg.get_id().as_str() {
            "version" => arg,
            _ => arg.hide(true),
        }
    })
}

/// Reads the arguments, without the name of the program.
///
/// # Errors
/// [`UsageError`].
pub fn parse(words: Vec<OsString>) -> Result<CommandLine, UsageError> {
    // An installed program comes without docs/.
    if words == ["help", "limits"] {
        return Ok(CommandLine::Print(LIMITS.to_owned()));
    }
    let tree = tree().no_binary_name(true);
    match tree.clone().try_get_matches_from(&words) {
        Ok(matches) if matches.subcommand().is_some() => Ok(CommandLine::Run(Box::new(matches))),
        Ok(_) => Err(UsageError::new(
            "nothing to do; try peregrine serve, peregrine send, or peregrine --help",
        )),
        Err(error) => {
            verdict(&error, |word| suggestions(&tree, &words, word)).map(CommandLine::Print)
        }
    }
}

/// Suggestions for the unknown command `wrong`, with their groups: the same name in other groups,
/// or else a similar name in this group, or else similar names in other groups.
fn suggestions(tree: &Command, words: &[OsString], wrong: &str) -> Vec<String> {
    let mut group = (tree, String::new());
    for word in words.iter().filter_map(|word| word.to_str()) {
        if let Some(inner) = group.0.get_subcommands().find(|inner| inner.get_name() == word) {
            group = (inner, format!("{}{word} ", group.1));
        }
    }
    let mut all: Vec<(&str, String)> = Vec::new();
    let mut open = vec![(String::new(), tree)];
    while let Some((path, command)) = open.pop() {
        for inner in command.get_subcommands() {
            let name = inner.get_name();
            all.push((name, format!("{path}{name}")));
            open.push((format!("{path}{name} "), inner));
        }
    }
    all.sort_unstable();
    let of_name = |name: &str| -> Vec<String> {
        let same = all.iter().filter(|(other, _)| *other == name);
        same.map(|(_, path)| path.clone()).collect()
    };
    // The user gave an agent's address instead of a subcommand, or the common synonym of `get`.
    let group_get = format!("{}get", group.1);
    if all.iter().any(|(_, path)| *path == group_get) {
        if wrong == "show" {
            let others = of_name(wrong).into_iter();
            return std::iter::once(group_get).chain(others).collect();
        }
        if wrong.contains("://") {
            return vec![format!("{group_get} {wrong}")];
        }
    }
    let in_group = || nearest(wrong, group.0.get_subcommands().map(Command::get_name));
    match of_name(wrong) {
        same if !same.is_empty() => same,
        _ => match in_group() {
            Some(name) => vec![format!("{}{name}", group.1)],
            None => {
                nearest(wrong, all.iter().map(|(name, _)| *name)).map(of_name).unwrap_or_default()
            }
        },
    }
}

/// A command with every setting of the client. `words`: the words after the agent.
fn client(path: &'static str, words: &[&str], about: &'static str) -> Command {
    let name = path.rsplit(' ').next().unwrap_or(path);
    let suffix: String = words.iter().map(|word| format!(" {word}")).collect();
    let usage = format!(
        "peregrine {path} -a REF{suffix} [OPTIONS]\n       peregrine {path} REF{suffix} [OPTIONS]"
    );
    // The usage describes the words better: their number depends on whether an agent is configured.
    let arg = Arg::new(WORDS).num_args(0..=words.len() + 1).action(ArgAction::Append).hide(true);
    with_flags(Command::new(name).about(about).override_usage(usage).arg(arg), path)
}

fn group(name: &'static str, about: &'static str) -> Command {
    with_hidden_flags(Command::new(name).about(about).subcommand_required(true))
}

pub fn word(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    offering(Arg::new(name).value_name(value_name).help(help), value_name)
}

pub fn flag(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).value_name(value_name).help(help);
    offering(arg.action(ArgAction::Append).allow_hyphen_values(true), value_name)
}

pub fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help).action(ArgAction::SetTrue).overrides_with(name)
}

fn history() -> Arg {
    flag("history", "N", "Show at most this many messages of the history")
}

const SEND_HELP: &str = "Waits until the task ends or needs input; --async does not wait. Exit \
                         codes: 0 the agent answered, whatever the answer; 1 failure; 2 wrong \
                         usage; 3 no answer, or no card; 4 no or wrong credentials; 5 --timeout \
                         expired.";

fn send() -> Command {
    client("send", &["\"TEXT\""], "Send a message to an agent and wait for the answer")
        .arg(flag("text", "TEXT", "A part of text; parts keep their order"))
        .arg(flag("file", "PATH|URL", "A part that is a file: a path by value, a URL by reference"))
        .arg(flag("data", "PATH|-", "A part of JSON, from a file or the standard input"))
        .arg(flag("media-type", "TYPE", "The media type of the part before this option"))
        .args(push_flags())
        .arg(history())
        .after_help(SEND_HELP)
        .after_long_help(format!("{SEND_HELP}\n\n{LONG_HELP}"))
}

fn push_flags() -> [Arg; 4] {
    let flags = [
        flag("push-url", "URL", "URL of a webhook to which the agent also posts the task's events"),
        flag("push-token", "TOKEN", "Token that the agent sends to the webhook"),
        flag(
            "push-auth-scheme",
            "SCHEME",
            "Scheme by which the agent authenticates to the webhook, such as Bearer",
        ),
        flag("push-auth-credentials", "TEXT", "Credentials for --push-auth-scheme"),
    ];
    flags.map(|flag| flag.hide_short_help(true))
}

fn card() -> Command {
    group("card", "Agent cards")
        .subcommand(
            client("card get", &[], "Fetch a card and show it")
                .arg(switch(
                    "validate",
                    "Check the card: list its errors, and exit with 1 if there are any",
                ))
                .arg(switch("extended", "The extended card, for authenticated callers"))
                .args(keys()),
        )
        .subcommand(client("card lint", &[], "List everything that is wrong with a card"))
        .subcommand(client("card verify", &[], "Check the signatures of a card").args(keys()))
        .subcommand(
            // It calls no agent, so its `--key` is not the client's `--key`.
            Command::new("sign")
                .about("Sign a card with your key and write it to stdout")
                .override_usage("peregrine card sign FILE --key FILE [--kid KID]")
                .arg(word("card", "FILE", "The card").required(true))
                .arg(flag("key", "FILE", "Your private key (PEM, PKCS#8); may be repeated"))
                .arg(flag("kid", "KID", "Key id (kid) of each key [default: its thumbprint]")),
        )
}

fn keys() -> [Arg; 2] {
    [
        flag("public-key", "FILE", "A public key (PEM or JWK) to check the card; may be repeated"),
        flag("jwks", "FILE", "A set of public keys (JWKS) to check the card; may be repeated"),
    ]
}

fn task() -> Command {
    group("task", "Tasks of an agent")
        .subcommand(client("task get", &["ID"], "Show a task").arg(history()))
        .subcommand(
            client("task list", &[], "List tasks, the newest first")
                .arg(flag("status", "STATE", "Only tasks in this state, such as WORKING"))
                .arg(flag("page-size", "N", "Page size: 1 to 100"))
                .arg(flag("page-token", "TOKEN", "Page token from the previous page"))
                .arg(flag("after", "TIME", "Only tasks changed since this time (RFC 3339)"))
                .arg(switch("artifacts", "Include artifacts"))
                .arg(history()),
        )
        .subcommand(client("task cancel", &["ID"], "Cancel a task"))
        .subcommand(
            client("task subscribe", &["ID"], "Follow a task until it ends or needs input").arg(
                flag(
                    "last-event-id",
                    "N",
                    "Only events after this one, if the agent numbers its events",
                ),
            ),
        )
        .subcommand(
            client("task download", &["ID"], "Save the artifacts of a task")
                .arg(flag("dir", "DIR", "Folder to save to [default: .]"))
                .arg(flag("artifact", "ID", "Only this artifact; may be repeated"))
                .arg(switch("overwrite", "Overwrite existing files")),
        )
        .subcommand(push_config())
}

fn push_config() -> Command {
    let create = "Have an agent post the events of a task to a URL";
    let id = "Id of the configuration [default: chosen by the agent; generated if A2A 0.3 \
              requires one]";
    let events = "Only these events, such as status,artifacts,final [default: all that the agent \
                  posts]";
    group("push-config", "Webhooks that an agent notifies about a task")
        .subcommand(
            client("task push-config create", &["TASK"], create)
                .arg(flag("url", "URL", "URL of the webhook").required(true))
                .arg(flag("id", "ID", id))
                .arg(flag("token", "TOKEN", "Token that the agent sends to the webhook"))
                .arg(flag(
                    "auth-scheme",
                    "SCHEME",
                    "Scheme by which the agent authenticates to the webhook, such as Bearer",
                ))
                .arg(flag("auth-credentials", "TEXT", "Credentials for --auth-scheme"))
                .arg(flag("events", "KINDS", events))
                .arg(switch(
                    "coalesce",
                    "Send one post with the current task instead of several waiting events",
                )),
        )
        .subcommand(client("task push-config get", &["TASK", "CONFIG"], "Show a configuration"))
        .subcommand(
            client("task push-config list", &["TASK"], "List the configurations of a task")
                .arg(flag("page-size", "N", "Page size: 1 to 100"))
                .arg(flag("page-token", "TOKEN", "Page token from the previous page")),
        )
        .subcommand(client(
            "task push-config delete",
            &["TASK", "CONFIG"],
            "Delete a configuration",
        ))
}

const DEAD_HELP: &str = "The server must have been started with --admin, which receives the \
                         request. It retains a dead letter for each webhook that has stopped. \
                         Reasons: given_up, the receiver failed for a day; task_left, the task \
                         was evicted before everything was posted, so it cannot be replayed; \
                         credential_withdrawn, no credential of its owner is valid any more. Exit \
                         codes: 0 done; 1 failure, such as a dead letter without its \
                         task or configuration; 2 wrong usage; 3 no answer, or no dead letter \
                         with this number; 4 no or wrong credentials; 5 --timeout expired.";

/// Other client commands have no default timeout; these commands have one.
const OPERATOR_TIMEOUT: &str = "How long to wait before giving up [default: 30s]";

/// The flag of the commands that operate a server.
fn admin_address() -> Arg {
    let about = "Address of the server's --admin [default: the variable PEREGRINE_ADMIN]";
    flag("admin", "ADDR|unix:PATH", about)
}

/// A command that operates a server.
fn operator(name: &'static str, about: &'static str) -> Command {
    let command = Command::new(name).about(about).arg(admin_address());
    let json = switch("json", "Print JSON: the same as -o json");
    with_only(command.arg(json), &admin::SETTINGS)
        .mut_arg("timeout", |arg| arg.help(OPERATOR_TIMEOUT))
}

const ADMIN_HELP: &str = "The server must have been started with --admin. An --admin that other \
                          machines reach needs a credential with the scope a2a:admin. Exit codes: \
                          0 done; 1 failure, such as an agent that refuses; 2 wrong usage; 3 no \
                          answer, or no such task; 4 no or wrong credentials; 5 --timeout expired.";

fn admin_tasks() -> Command {
    let chosen = |command: Command| {
        command
            .arg(flag("owner", "NAME", "Only tasks of this owner; empty: tasks without an owner"))
            .arg(flag("agent", "NAME", "Only tasks of this agent"))
            .after_help(ADMIN_HELP)
    };
    let one = |name, about| {
        chosen(operator(name, about)).arg(word("id", "ID", "Id of the task").required(true))
    };
    group("task", "List, cancel and fail tasks of all owners")
        .subcommand(
            chosen(operator("list", "List tasks, the newest status first, 100 a page"))
                .arg(flag("state", "STATE", "Only tasks in this state, such as working"))
                .arg(flag("page-token", "TOKEN", "Page token from the previous page")),
        )
        .subcommand(one("cancel", "Cancel a task through its agent, as its caller would"))
        .subcommand(one("fail", "End a task as failed, whatever its agent does").arg(flag(
            "reason",
            "TEXT",
            "Text of the task's last status",
        )))
}

fn dead_letters() -> Command {
    let one = |name: &'static str, about: &'static str| operator(name, about).after_help(DEAD_HELP);
    let number = || word("number", "N", "Number of the dead letter");
    let many = |name, about| {
        one(name, about)
            .override_usage(format!(
                "peregrine push dead {name} N [OPTIONS]\n       peregrine push dead {name} --all \
                 [OPTIONS]"
            ))
            .arg(number())
            .arg(switch("all", "All dead letters"))
    };
    group("dead", "Dead letters: webhooks that have stopped")
        .subcommand(one("list", "List dead letters, the oldest first"))
        .subcommand(one("show", "Show a dead letter").arg(number().required(true)))
        .subcommand(many("replay", "Resume a webhook at the event where it stopped"))
        .subcommand(many("drop", "Delete a dead letter; its webhook stays stopped"))
}

fn login() -> Command {
    client("auth login", &[], "Get a token by OAuth and store it for later calls").arg(flag(
        "flow",
        "device|client-credentials",
        "OAuth flow [default: chosen by the other options]",
    ))
}
