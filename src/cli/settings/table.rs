//! Every setting of the client, one row each. A row defines a flag, an environment variable, a line
//! of a `.env` file and a line of `config show`, so that they are always consistent.

use clap::{Arg, ArgAction};

use super::super::offers::offering;

/// One setting.
pub struct Setting {
    /// The long flag, without its dashes.
    pub name: &'static str,
    /// The name of the value; empty: the setting is a switch.
    pub value: &'static str,
    /// The default; empty: none.
    pub default: &'static str,
    /// The sources of the setting, and whether it is shown.
    pub kind: SettingKind,
    /// The help text.
    pub help: &'static str,
}

/// The sources of a setting, and whether it is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// From a flag, the environment or a file; one value.
    Plain,
    /// As `Plain`, but the value is never shown.
    Secret,
    /// As `Plain`, but a list in order; this character separates values in the environment and in
    /// files.
    List(char),
    /// As `List`, but the values are never shown.
    SecretList(char),
    /// Only from a flag.
    FlagOnly,
    /// From a flag or the environment: the setting selects the file to read.
    NotInFiles,
}

impl SettingKind {
    /// True: its value is never shown.
    pub fn is_secret(self) -> bool {
        matches!(self, Secret | SecretList(_))
    }

    /// The character that separates several values in one text.
    pub fn separator(self) -> Option<char> {
        match self {
            List(separator) | SecretList(separator) => Some(separator),
            Plain | Secret | FlagOnly | NotInFiles => None,
        }
    }
}

const fn row(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    kind: SettingKind,
    help: &'static str,
) -> Setting {
    Setting { name, value, default, kind, help }
}

use SettingKind::{FlagOnly, List, NotInFiles, Plain, Secret, SecretList};

/// The settings, in the order of the help.
pub const SETTINGS: &[Setting] = &[
    row(
        "agent-card",
        "REF",
        "",
        Plain,
        "The agent: a host or origin, the URL of its card, or a file",
    ),
    row(
        "endpoint",
        "URL",
        "",
        FlagOnly,
        "URL of an interface of the agent, called without a card; needs exactly one --transport",
    ),
    row("output", "text|json", "text", Plain, "The format of the output"),
    row(
        "stream",
        "",
        "false",
        FlagOnly,
        "Follow the agent's events; with -o json, one JSON document per line",
    ),
    row("quiet", "", "false", Plain, "Show only the text of the answer"),
    row("verbose", "", "false", Plain, "Show everything that was sent and received"),
    row("debug", "", "false", Plain, "Show details and traffic on stderr, without secrets"),
    row(
        "config",
        "FILE",
        "",
        NotInFiles,
        "Read this file instead of the nearest .env in this folder or above",
    ),
    row(
        "transport",
        "BINDING",
        "",
        List(','),
        "jsonrpc, http+json, grpc or websocket; may be repeated, the preferred first [default: the \
         card's order]",
    ),
    row(
        "a2a-version",
        "VERSION",
        "",
        Plain,
        "The protocol version to use; below 1.0 only if requested here [default: the highest that \
         both support]",
    ),
    row(
        "tenant",
        "NAME",
        "",
        Plain,
        "The tenant to call, on every request [default: the tenant of the card's interface]",
    ),
    row(
        "async",
        "",
        "false",
        Plain,
        "Return the ids of the task without waiting (also --return-immediately, --no-wait)",
    ),
    row(
        "wait",
        "",
        "",
        Plain,
        "Wait until the task ends or needs input (also --watch) [default: true with send]",
    ),
    row("poll-interval", "TIME", "2s", Plain, "How often to poll a task while waiting"),
    row("timeout", "TIME", "", Plain, "How long to wait before giving up [default: for ever]"),
    row(
        "card-cache",
        "",
        "true",
        Plain,
        "Cache cards as their Cache-Control allows, in ~/.config/a2a-cli/cards",
    ),
    row("task-id", "ID", "", Plain, "Continue this task"),
    row("context-id", "ID", "", Plain, "Start a new task in this context"),
    row("metadata", "JSON", "", Plain, "A JSON object sent in the request's payload"),
    row(
        "svc-param",
        "KEY:VALUE",
        "",
        SecretList('\n'),
        "A service parameter (an HTTP header, gRPC metadata); may be repeated",
    ),
    row(
        "extension",
        "URI",
        "",
        List(','),
        "An extension that you support, declared to the agent; may be repeated",
    ),
    row(
        "traceparent",
        "TRACE",
        "",
        Plain,
        "The trace that the call belongs to (W3C Trace Context), which the agent may continue",
    ),
    row(
        "bearer",
        "TOKEN",
        "",
        Secret,
        "A bearer token; other users of this machine can see flags: prefer A2ACLI_BEARER",
    ),
    row(
        "api-key",
        "KEY",
        "",
        Secret,
        "An API key; other users of this machine can see flags: prefer A2ACLI_API_KEY",
    ),
    row(
        "basic",
        "NAME:PASSWORD",
        "",
        Secret,
        "A name and a password; other users of this machine can see flags: prefer A2ACLI_BASIC",
    ),
    row(
        "token-url",
        "URL",
        "",
        Plain,
        "OAuth: the token endpoint, which alone receives the secret",
    ),
    row("device-url", "URL", "", Plain, "OAuth: the device authorization endpoint, for auth login"),
    row(
        "issuer",
        "URL",
        "",
        Plain,
        "OAuth: the issuer whose metadata names the endpoints (RFC 8414)",
    ),
    row("client-id", "ID", "", Plain, "OAuth: the client id"),
    row(
        "client-secret",
        "SECRET",
        "",
        Secret,
        "OAuth: the secret of the client; prefer A2ACLI_CLIENT_SECRET",
    ),
    row("scope", "SCOPE", "", List(' '), "OAuth: a scope to request; may be repeated"),
    row(
        "ca",
        "FILE",
        "",
        Plain,
        "Certificate authorities (PEM), in addition to those of the system",
    ),
    row("cert", "FILE", "", Plain, "Mutual TLS: your certificate chain (PEM)"),
    row("key", "FILE", "", Plain, "Mutual TLS: the private key of --cert (PEM)"),
    row(
        "insecure",
        "",
        "false",
        Plain,
        "Do not verify certificates: for development only, with a warning",
    ),
    row(
        "allow-http-credentials",
        "",
        "false",
        Plain,
        "Also send credentials over plain http to other machines",
    ),
    row(
        "allow-other-origin",
        "",
        "false",
        Plain,
        "Also send credentials to an interface on another origin than the card's",
    ),
    row(
        "assume",
        "push",
        "",
        Plain,
        "Also send webhooks to an agent if its card does not declare push notifications",
    ),
    row(
        "dialect",
        "NAME",
        "standard",
        Plain,
        "The dialect that the agent speaks, see docs/dialects.md",
    ),
];

/// The flag of a setting.
pub fn flag(setting: &Setting) -> Arg {
    let name = setting.name;
    let help = match setting.default {
        "" | "false" => setting.help.to_owned(),
        default => format!("{} [default: {default}]", setting.help),
    };
    let arg = Arg::new(name).long(name).help(help).help_heading(heading(name));
    let arg = match setting.value {
        "" => arg
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .hide_possible_values(true)
            .default_missing_value("true"),
        value => offering(arg.value_name(value).allow_hyphen_values(true), value),
    };
    let arg = arg.action(ArgAction::Append);
    match name {
        "agent-card" => arg.short('a'),
        "endpoint" => arg.short('e'),
        "output" => arg.short('o'),
        "quiet" => arg.short('q'),
        "async" => arg.aliases(["return-immediately", "no-wait"]),
        "wait" => arg.alias("watch"),
        _ => arg,
    }
}

/// The title under which the help lists a setting.
fn heading(name: &str) -> &'static str {
    match name {
        "agent-card" | "endpoint" | "config" | "transport" | "a2a-version" | "tenant"
        | "dialect" | "card-cache" | "assume" => "The agent",
        "output" | "quiet" | "stream" | "verbose" | "debug" => "Output",
        "async" | "wait" | "poll-interval" | "timeout" => "Waiting",
        "task-id" | "context-id" | "metadata" | "svc-param" | "extension" | "traceparent" => {
            "The request"
        }
        "ca" | "cert" | "key" | "insecure" => "TLS",
        _ => "Credentials",
    }
}

/// Whether the short help of a command shows a setting, because new users need it. The long help
/// shows all settings.
pub fn is_common(path: &str, name: &str) -> bool {
    match name {
        "agent-card" | "output" | "verbose" | "debug" | "bearer" | "api-key" => true,
        "endpoint" => path == "bench",
        "transport" | "a2a-version" | "tenant" => !path.starts_with("card"),
        "stream" => matches!(path, "send" | "task subscribe"),
        "async" | "task-id" => path == "send",
        "context-id" => matches!(path, "send" | "chat" | "task list"),
        "wait" => matches!(path, "send" | "task get"),
        "timeout" => matches!(path, "send" | "chat" | "task get" | "task subscribe"),
        "client-id" | "client-secret" | "token-url" | "device-url" | "issuer" | "scope" => {
            path == "auth login"
        }
        "config" => path == "config show",
        _ => false,
    }
}

/// The variable of a setting: `A2ACLI_` and its flag in upper snake case.
pub fn variable(setting: &Setting) -> String {
    format!("A2ACLI_{}", setting.name.to_ascii_uppercase().replace('-', "_"))
}
