//! The keys above all sections: the addresses, the hosts, and the agents of the server.
//!
//! A key has the name of its flag; the name of a list is a plural.

use std::path::PathBuf;

use peregrine::{
    engine::{Binding, CardForm, Cors, CorsError, Interface, Setup, Tenants, is_host, is_origin},
    limits::Unit,
    model::{Idempotency, IdempotentConflict, is_agent_name},
};

use super::{
    super::tree::{ConfigSection, Key, Shape, Wrong, hint, key},
    agents, auth, limits, logs, mounts, push, quotas, tls, traces,
};

/// Maximum number of threads.
const WORKERS_MAX: u64 = 1024;

const WORKERS: Shape = Shape::Whole { min: 1, max: WORKERS_MAX };
const SECONDS: Shape = Shape::Whole { min: 0, max: u32::MAX as u64 };
const IDEMPOTENT_CONFLICT: Shape = Shape::Choice(&["new", "refuse"]);
const IDEMPOTENT_SEND: Shape = Shape::Choice(&["off", "authenticated", "everybody"]);
const CARD: Shape = Shape::Choice(&["v1", "v03", "hybrid"]);

/// The keys of a configuration.
pub const KEYS: &[Key] = &[
    key(
        "listen",
        Shape::Texts,
        "[\"127.0.0.1:3000\"]",
        "Addresses and ports, or ports of 127.0.0.1; port 0 is any free one",
    )
    .flag("listen"),
    key(
        "allow_anonymous",
        Shape::Switch,
        "false",
        "Listens on addresses that other machines can reach, without authentication",
    )
    .flag("allow-anonymous"),
    key(
        "admin",
        Shape::Text,
        "",
        "An address for /healthz, /readyz and /metrics only, such as 127.0.0.1:9090 or unix:PATH, \
         open to every client; default: with the agents. Dead letters of webhooks (/push/dead) \
         and tasks (/tasks) are served only there, and need the scope a2a:admin unless the \
         address is loopback",
    )
    .flag("admin"),
    key("workers", WORKERS, "", "Threads; default: one per core").flag("workers"),
    key(
        "memory",
        Shape::Measure(Unit::Bytes),
        "",
        "Memory budget, divided among the limits; default 4GiB, and 64 MiB for each worker above \
         four",
    )
    .flag("memory"),
    key(
        "show_memory",
        Shape::Switch,
        "false",
        "Lists the parts of the memory budget in the banner",
    )
    .flag("show-memory"),
    key("public_url", Shape::Text, "", "The URL that cards name, for a server behind a proxy")
        .flag("public-url"),
    key(
        "allow_hosts",
        Shape::Texts,
        "[]",
        "Accepted hosts, * for any, in addition to those of the loopback interface, the host of \
         public_url and the address of the connection",
    )
    .flag("allow-host"),
    key(
        "trust_forwarded",
        Shape::Switch,
        "false",
        "Cards use X-Forwarded-Proto, -Host, -Port and -Prefix: only behind a proxy that sets \
         them and that no client can bypass",
    )
    .flag("trust-forwarded"),
    key(
        "tenants",
        Shape::TextsOr("any"),
        "",
        "Tenants: names with separate tasks that are not names of agents, in addition to the \
         tenants of callers in [auth]; default: any with one agent, none with several",
    )
    .flag("tenants"),
    key("card", CARD, "\"hybrid\"", "Form of the public agent cards: v1, v03 or hybrid")
        .flag("card"),
    key(
        "extended_card",
        Shape::Switch,
        "false",
        "Serves the extended agent card to every client; authenticated callers always receive it",
    )
    .flag("extended-card"),
    key(
        "show_errors",
        Shape::Switch,
        "",
        "Shows clients the texts of errors and panics of agents in Rust, Python and C; false: a \
         reference to the log; default: true only if the server listens only on loopback addresses",
    ),
    key(
        "interfaces",
        Shape::Texts,
        "[\"jsonrpc\", \"http+json\"]",
        "Interfaces that cards list, the preferred first: jsonrpc, http+json, grpc, websocket, \
         each optionally with =URL",
    )
    .flag("interfaces"),
    key(
        "ws_origins",
        Shape::Texts,
        "[]",
        "Origins of pages that may open WebSockets, * for any, in addition to the server's own",
    )
    .flag("ws-origin"),
    key(
        "cors_origins",
        Shape::Texts,
        "[]",
        "Origins of pages that may read answers, such as https://app.example, * for any",
    )
    .flag("cors-origin"),
    key(
        "cors_credentials",
        Shape::Switch,
        "false",
        "Pages of cors_origins may also send cookies and client certificates; not allowed with *",
    )
    .flag("cors-credentials"),
    key(
        "cors_headers",
        Shape::Texts,
        "[]",
        "Header fields that pages of cors_origins may send in addition to the server's own, such \
         as X-Trace",
    ),
    key(
        "cors_max_age_s",
        SECONDS,
        "7200",
        "Seconds for which a browser caches a preflight response (CORS); 0: it is not cached",
    ),
    key(
        "card_keys",
        Shape::Paths,
        "[]",
        "Private keys that sign cards, each FILE or FILE=KID (PEM, PKCS#8: P-256 or Ed25519); \
         default KID: the key's thumbprint",
    )
    .flag("card-key"),
    key(
        "strict",
        Shape::Switch,
        "false",
        "Like strict_version, and refuses a message without messageId",
    )
    .flag("strict"),
    key(
        "strict_version",
        Shape::Switch,
        "false",
        "Refuses a 1.0 method without the A2A-Version header",
    )
    .flag("strict-version"),
    key(
        "idempotent_send",
        IDEMPOTENT_SEND,
        "\"authenticated\"",
        "Detection of repeated sends: off, for authenticated callers or for everybody",
    ),
    key(
        "idempotent_conflict",
        IDEMPOTENT_CONFLICT,
        "\"new\"",
        "Handling of a messageId that was used for other content: new (a new message), or refuse \
         (a conflict)",
    ),
    key("streaming", Shape::Switch, "true", "Serves streaming operations").live(),
    key(
        "trusted_proxies",
        Shape::Texts,
        "[]",
        "Networks of trusted proxies in X-Forwarded-For, in addition to auth.proxy.networks",
    ),
    key("tls", Shape::Section(tls::keys), "", "TLS on every address"),
    key(
        "auth",
        Shape::Section(auth::keys),
        "",
        "Authentication: with this section every operation needs an authenticated caller",
    ),
    key("quotas", Shape::Section(quotas::keys), "", "Limits for each caller"),
    key("push", Shape::Section(push::keys), "", "Webhooks and the hosts that they may reach"),
    key("logs", Shape::Section(logs::log_keys), "", "The log on stderr").live(),
    key("metrics", Shape::Section(logs::metrics_keys), "", "Metrics"),
    key(
        "traces",
        Shape::Section(traces::keys),
        "",
        "Collector for the spans of calls and invocations",
    ),
    key("limits", Shape::Section(limits::keys), "", "Limits, see docs/limits.md"),
    key("mounts", Shape::Sections(mounts::keys), "", "Dialects at separate paths").flag("mount"),
    key("default_agent", Shape::Text, "", "The agent that answers at /; default: the first one"),
    key("agents", Shape::Named(agents::keys), "", "Agents; default: one echo agent")
        .flag("agent")
        .live(),
];

/// The setup of the engine from these keys.
///
/// # Errors
/// [`Wrong`].
pub fn setup(root: &ConfigSection) -> Result<Setup, Wrong> {
    let is_on = |name| root.switch(name).unwrap_or(false);
    let mut setup = Setup {
        public_url: root.text("public_url").map(str::to_owned),
        trust_forwarded: is_on("trust_forwarded"),
        strict: is_on("strict"),
        strict_version: is_on("strict_version"),
        extended_card: is_on("extended_card"),
        allow_hosts: checked(
            root,
            "allow_hosts",
            is_host,
            "must be a name or address, without a port",
        )?,
        ws_origins: checked(root, "ws_origins", is_origin, "must be https://host:port or *")?,
        ..Setup::default()
    };
    setup.failures.shows_errors = root.switch("show_errors");
    setup.cors = cors(root)?;
    setup.tenants = tenants(root)?.unwrap_or(setup.tenants);
    setup.interfaces = interfaces(root)?.unwrap_or(setup.interfaces);
    setup.idempotency = match root.text("idempotent_send") {
        Some("off") => Idempotency::Off,
        Some("everybody") => Idempotency::Everybody,
        Some(_) | None => Idempotency::Authenticated,
    };
    setup.idempotent_conflict = match root.text("idempotent_conflict") {
        Some("refuse") => IdempotentConflict::Refuse,
        Some(_) | None => IdempotentConflict::New,
    };
    setup.card = match root.text("card") {
        Some("v1") => CardForm::V1,
        Some("v03") => CardForm::V03,
        Some(_) | None => CardForm::Hybrid,
    };
    Ok(setup)
}

/// The addresses to listen on; a port alone, with or without a colon, means a port of 127.0.0.1.
pub fn listen(root: &ConfigSection) -> Vec<String> {
    let mut addresses = root.strings("listen").unwrap_or_default();
    for address in &mut addresses {
        let port = address.strip_prefix(':').unwrap_or(address);
        if port.parse::<u16>().is_ok() {
            *address = format!("127.0.0.1:{port}");
        }
    }
    addresses
}

/// A list with items that pass `is_good`; `else_is` is the error of an item that does not pass.
fn checked(
    root: &ConfigSection,
    name: &str,
    is_good: fn(&str) -> bool,
    else_is: &str,
) -> Result<Vec<String>, Wrong> {
    let all = root.strings(name).unwrap_or_default();
    match all.iter().position(|text| !is_good(text)) {
        None => Ok(all),
        Some(index) => {
            let message = format!("{:?} {else_is}", all[index]);
            Err(root.wrong_item(name, index, message))
        }
    }
}

/// The web pages that may read answers (CORS).
fn cors(root: &ConfigSection) -> Result<Cors, Wrong> {
    let or = Cors::default();
    // The shape has checked that the number fits.
    let max_age_s = root.whole("cors_max_age_s").and_then(|seconds| u32::try_from(seconds).ok());
    let cors = Cors {
        origins: root.strings("cors_origins").unwrap_or_default(),
        credentials: root.switch("cors_credentials").unwrap_or(or.credentials),
        max_age_s: max_age_s.unwrap_or(or.max_age_s),
        headers: root.strings("cors_headers").unwrap_or_default(),
    };
    cors.check().map_err(|error| {
        let item = |name: &str, text: &String| {
            let index = root.texts(name).and_then(|all| all.iter().position(|x| x.text == *text));
            root.wrong_item(name, index.unwrap_or_default(), error.to_string())
        };
        match &error {
            CorsError::Credentials => root.wrong("cors_credentials", error.to_string()),
            CorsError::TooMany => root.wrong("cors_origins", error.to_string()),
            CorsError::Origin(origin) => item("cors_origins", origin),
            CorsError::Header(name) => item("cors_headers", name),
        }
    })?;
    Ok(cors)
}

/// The values of the form `FILE[=KID]`; the key id follows the last `=`.
pub fn card_keys(root: &ConfigSection) -> Vec<(PathBuf, Option<String>)> {
    let texts = root.strings("card_keys").unwrap_or_default();
    let each = |text: String| match text.rsplit_once('=') {
        Some((file, kid)) if !file.is_empty() => (file.into(), Some(kid.to_owned())),
        Some(_) | None => (text.into(), None),
    };
    texts.into_iter().map(each).collect()
}

/// Any tenants, or tenants with these names; the engine checks for conflicts with agents.
fn tenants(root: &ConfigSection) -> Result<Option<Tenants>, Wrong> {
    if root.text("tenants").is_some() {
        return Ok(Some(Tenants::Any));
    }
    let Some(names) = root.strings("tenants") else { return Ok(None) };
    match names.iter().position(|name| !is_agent_name(name)) {
        None => Ok(Some(Tenants::Named(names.into_iter().collect()))),
        Some(index) => {
            let message = format!(
                "{:?} must be any, or have only letters, digits, '-', '_', '.'",
                names[index]
            );
            Err(root.wrong_item("tenants", index, message))
        }
    }
}

/// The values of the form `NAME[=URL]`.
fn interfaces(root: &ConfigSection) -> Result<Option<Vec<Interface>>, Wrong> {
    let Some(items) = root.texts("interfaces") else { return Ok(None) };
    let list = items.iter().enumerate().map(|(index, item)| {
        let (word, url) = match item.text.split_once('=') {
            Some((word, url)) => (word, Some(url.to_owned())),
            None => (item.text.as_str(), None),
        };
        let mut bindings = Binding::ALL.into_iter();
        let found = bindings.find(|binding| binding.word().eq_ignore_ascii_case(word));
        found.map(|binding| Interface { binding, url }).ok_or_else(|| {
            let words = Binding::ALL.map(Binding::word);
            let hint = match hint(word, words.into_iter()) {
                none if none.is_empty() => format!("; known interfaces: {}", words.join(", ")),
                hint => hint,
            };
            root.wrong_item("interfaces", index, format!("unknown interface {word:?}{hint}"))
        })
    });
    let list = list.collect::<Result<Vec<Interface>, Wrong>>()?;
    Interface::check(&list).map_err(|error| root.wrong("interfaces", error.to_string()))?;
    Ok(Some(list))
}
