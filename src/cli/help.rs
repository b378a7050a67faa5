//! What `--help` prints, and the flags that exist. A flag stands in both.

/// Printed by `--help`.
pub const HELP: &str = "\
peregrine: one port for every generation of A2A

usage: peregrine serve [flags]

  --listen ADDR                address and port; may be repeated [127.0.0.1:3000]
  --agent [NAME=]KIND[:ARG]    adds an agent; without NAME it is the default one [echo]
                               kinds: echo, script:FILE
  --tls-cert FILE              speaks TLS on every address, with this certificate chain (PEM)
  --tls-key FILE               the private key of the certificate (PEM)
  --tls-client-ca FILE         clients must show a certificate that leads to one of these (PEM)
  --public-url URL             the URL that cards name, for a server behind a proxy
  --allow-host HOST            answers to this host, too, * for any; may be repeated [loopback
                               names and addresses, --public-url's, the address connected to]
  --trust-forwarded            cards believe X-Forwarded-Proto, -Host and -Prefix: only
                               behind a proxy that sets them and that nobody can pass by
  --workers N                  threads [one per core]
  --memory SIZE                what the server may take, divided among its limits [4GiB]
  --show-memory                the banner lists what the memory is for
  --limit NAME=VALUE           sets a limit, see docs/limits.md; may be repeated
  --mount PATH=DIALECT[:AGENT] serves a dialect at a path of its own; may be repeated
  --tenants any|NAME,...       names that are no agent's and have tasks of their own; several
                               agents have none of them by themselves, one has any
  --card v1|v03|hybrid         form of the public agent cards [hybrid]
  --strict                     --strict-version, and a message without messageId is refused
  --strict-version             a 1.0 method without the A2A-Version header is refused
  --no-streaming               streaming operations are refused
  --interfaces LIST            what cards list, the preferred first: jsonrpc, http+json, grpc,
                               websocket, each with =URL if need be [jsonrpc,http+json]
  --extended-card              the extended agent card is served, to everybody
  --no-extended-card           it is refused, as it is anyway
  --ws-origin ORIGIN           pages of this origin may open WebSockets, * for any; may be repeated
  --allow-anonymous            listen on addresses that other machines can reach
  -h, --help                   print this
  -V, --version                print the version

SIGTERM or SIGINT ends the server when running calls have ended; a second one at once.
SIGHUP makes it read the files of --tls-* again, for the connections that come from then on;
without TLS there is nothing to read, which it says.
";

/// Flags, for the nearest one when a flag is unknown.
pub const FLAGS: &[&str] = &[
    "agent",
    "allow-anonymous",
    "allow-host",
    "card",
    "extended-card",
    "help",
    "interfaces",
    "limit",
    "listen",
    "memory",
    "mount",
    "no-extended-card",
    "no-streaming",
    "public-url",
    "show-memory",
    "strict",
    "strict-version",
    "tenants",
    "tls-cert",
    "tls-client-ca",
    "tls-key",
    "trust-forwarded",
    "version",
    "workers",
    "ws-origin",
];
