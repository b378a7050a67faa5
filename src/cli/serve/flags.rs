//! The flags of `serve`, one row each: the name, the name of the value (empty: the flag is a
//! switch), and the purpose.

use clap::{Arg, ArgAction, Command, ValueHint, builder::OsStringValueParser, value_parser};

/// One flag: its name, the name of its value, and its purpose.
type Row = (&'static str, &'static str, &'static str);

/// The flags, in the order of the help.
const ROWS: &[Row] = &[
    (
        "config",
        "FILE",
        "The configuration, see docs/peregrine.toml; flags override it [default: the variable \
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
        "Adds an agent; without NAME it is the default agent; kinds: echo, script:FILE, \
         exec:COMMAND, exec+jsonl:COMMAND, a2a:URL, http:URL [default: echo]",
    ),
    ("tls-cert", "FILE", "Uses TLS on every address, with this certificate chain (PEM)"),
    ("tls-key", "FILE", "The private key of the certificate (PEM)"),
    (
        "tls-client-ca",
        "FILE",
        "Clients must present a certificate issued by one of these authorities (PEM); it is \
         optional with callers in [auth] of the configuration",
    ),
    ("public-url", "URL", "The URL that cards name, for a server behind a proxy"),
    (
        "allow-host",
        "HOST",
        "Also accepts this host, * for any; may be repeated [default: loopback names and \
         addresses, the host of --public-url, the address of the connection]",
    ),
    (
        "trust-forwarded",
        "",
        "Cards use X-Forwarded-Proto, -Host, -Port and -Prefix: only behind a proxy that sets \
         them and that no client can bypass",
    ),
    ("workers", "N", "Threads [default: one per core]"),
    (
        "memory",
        "SIZE",
        "Memory budget, divided among the limits [default: 4GiB, and 64 MiB for each worker above \
         four]",
    ),
    ("show-memory", "", "Lists the parts of the memory budget in the banner"),
    ("limit", "NAME=VALUE", "Sets a limit, see docs/limits.md; may be repeated"),
    ("mount", "PATH=DIALECT[:AGENT]", "Serves a dialect at a separate path; may be repeated"),
    (
        "tenants",
        "any|NAME,...",
        "Tenants: names with separate tasks that are not names of agents [default: any with one \
         agent, none with several]",
    ),
    ("card", "v1|v03|hybrid", "Form of the public agent cards [default: hybrid]"),
    (
        "card-key",
        "FILE[=KID]",
        "Signs cards with this private key (PEM, PKCS#8: P-256 or Ed25519); may be repeated; KID \
         is its key id [default: its thumbprint]",
    ),
    (
        "push-sign-key",
        "FILE",
        "Signs posts to webhooks with this private key (PEM, PKCS#8): RSA of 2048 to 4096 bits or \
         P-256 for JWTs, Ed25519 for Standard Webhooks; may be repeated, up to four; the first of \
         each kind signs; a key that signs cards is not allowed",
    ),
    ("strict", "", "Like --strict-version, and refuses a message without messageId"),
    ("strict-version", "", "Refuses a 1.0 method without the A2A-Version header"),
    ("no-streaming", "", "Refuses streaming operations"),
    (
        "interfaces",
        "LIST",
        "Interfaces that cards list, the preferred first: jsonrpc, http+json, grpc, websocket, \
         each optionally with =URL [default: jsonrpc,http+json]",
    ),
    (
        "extended-card",
        "",
        "Serves the extended agent card to every client [default: off; if callers are \
         authenticated, it is always served to them only]",
    ),
    ("no-extended-card", "", "Overrides --extended-card and the key extended_card"),
    ("ws-origin", "ORIGIN", "Pages of this origin may open WebSockets, * for any; may be repeated"),
    (
        "cors-origin",
        "ORIGIN",
        "Pages of this origin may read answers, such as https://app.example, * for any; may be \
         repeated",
    ),
    (
        "cors-credentials",
        "",
        "Pages of --cors-origin may also send cookies and client certificates; not allowed with *",
    ),
    (
        "admin",
        "ADDR|unix:PATH",
        "Serves /healthz, /readyz and /metrics only here, and dead letters (/push/dead) and tasks \
         (/tasks), which need the scope a2a:admin unless the address is loopback [default: with \
         the agents; metrics for this machine only; dead letters and tasks nowhere]",
    ),
    ("no-push", "", "Disables push notifications"),
    (
        "push-allow",
        "HOST|NETWORK",
        "Allows webhooks to this host or network even if it is not public, also over plain http; \
         may be repeated; localhost is 127.0.0.0/8 and ::1",
    ),
    ("log", "LEVEL", "Level of the log on stderr: off, error, warn, info, debug [default: info]"),
    ("access-log", "N", "Logs each call, or one call in N: text on a terminal, JSON otherwise"),
    (
        "allow-anonymous",
        "",
        "Listens on addresses that other machines can reach, without authentication",
    ),
];

const AFTER: &str = "\
SIGTERM or SIGINT ends the server when running calls have ended; a second signal ends it at once.
After SIGHUP the server reads the files of --tls-* again, for new connections; without TLS it logs
that there is nothing to read. With --config it reads that file again after SIGHUP, and whenever
the file has changed.";

/// All flags.
pub fn args() -> impl Iterator<Item = Arg> {
    let args = ROWS.iter().map(arg);
    // For the test suites of HTTP framing; not in the help.
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

/// The subcommands of `serve config`, which do not start a server.
fn config() -> Command {
    Command::new("config")
        .about("The server's configuration")
        .subcommand_required(true)
        .subcommand(Command::new("check").about("Check the configuration and report its errors"))
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
        // The last value applies, as for all flags that are not a list.
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
