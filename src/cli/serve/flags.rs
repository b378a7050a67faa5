//! The flags of `serve`, one row each: its name, what its value is called (none: a switch), and
//! what it is for.

use clap::{Arg, ArgAction, Command, ValueHint, builder::OsStringValueParser, value_parser};

/// One flag: its name, what its value is called, and what it is for.
type Row = (&'static str, &'static str, &'static str);

/// The flags, as the help lists them.
const ROWS: &[Row] = &[
    (
        "config",
        "FILE",
        "The configuration, see docs/peregrine.toml; flags go before it [default: the variable \
         PEREGRINE_CONFIG, or none]",
    ),
    (
        "listen",
        "ADDR",
        "Address and port, a port of 127.0.0.1, or unix:PATH; may be repeated [default: \
         127.0.0.1:3000]",
    ),
    (
        "agent",
        "[NAME=]KIND[:ARG]",
        "Adds an agent; without NAME it is the default one; kinds: echo, script:FILE, \
         exec:COMMAND, exec+jsonl:COMMAND, a2a:URL, http:URL [default: echo]",
    ),
    ("tls-cert", "FILE", "Speaks TLS on every address, with this certificate chain (PEM)"),
    ("tls-key", "FILE", "The private key of the certificate (PEM)"),
    (
        "tls-client-ca",
        "FILE",
        "Clients must show a certificate that leads to one of these (PEM); with callers in [auth] \
         of the configuration they may show none",
    ),
    ("public-url", "URL", "The URL that cards name, for a server behind a proxy"),
    (
        "allow-host",
        "HOST",
        "Answers to this host, too, * for any; may be repeated [default: loopback names and \
         addresses, --public-url's, the address connected to]",
    ),
    (
        "trust-forwarded",
        "",
        "Cards believe X-Forwarded-Proto, -Host, -Port and -Prefix: only behind a proxy that sets \
         them and that no client can bypass",
    ),
    ("workers", "N", "Threads [default: one per core]"),
    (
        "memory",
        "SIZE",
        "What the server may take, divided among its limits [default: 4GiB, and 64 MiB for each \
         worker above four]",
    ),
    ("show-memory", "", "The banner lists what the memory is for"),
    ("limit", "NAME=VALUE", "Sets a limit, see docs/limits.md; may be repeated"),
    ("mount", "PATH=DIALECT[:AGENT]", "Serves a dialect at a path of its own; may be repeated"),
    (
        "tenants",
        "any|NAME,...",
        "Names that are no agent's and have tasks of their own [default: any with one agent, none \
         with several]",
    ),
    ("card", "v1|v03|hybrid", "Form of the public agent cards [default: hybrid]"),
    (
        "card-key",
        "FILE[=KID]",
        "Signs cards with this private key (PEM, PKCS#8: P-256 or Ed25519); may be repeated; its \
         name is KID [default: its thumbprint]",
    ),
    (
        "push-sign-key",
        "FILE",
        "Signs posts to webhooks with this private key (PEM, PKCS#8): RSA of 2048 to 4096 bits or \
         P-256 for JWTs, Ed25519 for Standard Webhooks; may be repeated, up to four; of each kind \
         the first signs; none that signs cards",
    ),
    ("strict", "", "--strict-version, and a message without messageId is refused"),
    ("strict-version", "", "A 1.0 method without the A2A-Version header is refused"),
    ("no-streaming", "", "Streaming operations are refused"),
    (
        "interfaces",
        "LIST",
        "What cards list, the preferred first: jsonrpc, http+json, grpc, websocket, each with =URL \
         if need be [default: jsonrpc,http+json]",
    ),
    (
        "extended-card",
        "",
        "Serves the extended agent card to every client [default: off; where callers are \
         authenticated it is served to them alone, whatever is set here]",
    ),
    ("no-extended-card", "", "Takes back what --extended-card or the configuration says of it"),
    ("ws-origin", "ORIGIN", "Pages of this origin may open WebSockets, * for any; may be repeated"),
    (
        "cors-origin",
        "ORIGIN",
        "Pages of this origin may read answers, as https://app.example, * for any; may be repeated",
    ),
    ("cors-credentials", "", "They may send cookies and client certificates, too: not with *"),
    (
        "admin",
        "ADDR|unix:PATH",
        "Serves /healthz, /readyz and /metrics here alone, and dead letters (/push/dead) and tasks \
         (/tasks), which need the scope a2a:admin unless the address is of loopback [default: with \
         the agents; metrics to this machine alone; dead letters and tasks nowhere]",
    ),
    ("no-push", "", "Push notifications are not served"),
    (
        "push-allow",
        "HOST|NETWORK",
        "Webhooks may go to this host or network though it is not public, over plain http, too; \
         may be repeated; localhost is 127.0.0.0/8 and ::1",
    ),
    ("log", "LEVEL", "What is written to stderr: off, error, warn, info, debug [default: info]"),
    (
        "access-log",
        "N",
        "Writes a line for each call, or for one of N: text on a terminal, JSON otherwise",
    ),
    ("allow-anonymous", "", "Listen on addresses that other machines can reach"),
];

const AFTER: &str = "\
SIGTERM or SIGINT ends the server when running calls have ended; a second one at once.
SIGHUP makes it read the files of --tls-* again, for the connections that come from then on;
without TLS there is nothing to read, which it says. With --config it reads that file again, also
when the file has changed.";

/// All flags.
pub fn args() -> impl Iterator<Item = Arg> {
    let args = ROWS.iter().map(arg);
    // For the framing test suites; deliberately not in the help.
    #[cfg(feature = "test-echo")]
    let args = args.chain([arg(&("test-echo", "PATH", "")).hide(true)]);
    args
}

/// The command, with all its flags.
pub fn command() -> Command {
    Command::new("serve")
        .about("Serves agents: one port for every generation of A2A")
        .after_help(AFTER)
        .args(args())
        .subcommand(config())
}

/// What can be asked of a configuration without serving it.
fn config() -> Command {
    Command::new("config")
        .about("The server's configuration")
        .subcommand_required(true)
        .subcommand(Command::new("check").about("Say whether it is good, or what is wrong with it"))
        .subcommand(Command::new("init").about("Print the file with every key, each commented out"))
        .subcommand(Command::new("schema").about("Print the JSON Schema of the file"))
        .subcommand(
            Command::new("show").about(
                "Show each value in force and its source: flag, environment, file, or default",
            ),
        )
}

fn arg(row: &Row) -> Arg {
    let (name, value, help) = *row;
    let arg = Arg::new(name).long(name).help(help);
    let arg = match value {
        // What was said last holds, as with all flags that are not a list.
        "" => arg.action(ArgAction::SetTrue).overrides_with(name),
        _ => arg.action(ArgAction::Append).value_name(value).allow_hyphen_values(true),
    };
    match name {
        "extended-card" => arg.overrides_with("no-extended-card"),
        "access-log" => arg.num_args(0..=1).require_equals(true).default_missing_value("1"),
        "no-extended-card" => arg.overrides_with("extended-card"),
        "config" => arg
            .global(true)
            .value_hint(ValueHint::FilePath)
            .value_parser(OsStringValueParser::new()),
        _ if name.starts_with("tls-") => arg.value_parser(OsStringValueParser::new()),
        _ if value.is_empty() => arg,
        _ => arg.value_parser(value_parser!(String)),
    }
}
