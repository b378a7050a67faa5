//! From the flags of `serve` to what it does.

use std::{ffi::OsString, path::PathBuf};

use clap::ArgMatches;
use peregrine::{
    engine::{Cors, CorsError, Setup},
    net,
};

use super::{
    super::usage::UsageError,
    values::{
        agent, allow_host, card, card_key, interfaces, limit, memory, mount, tenants, workers,
        ws_origin,
    },
};

/// What `serve` was told.
pub struct Serve {
    /// Everything that the flags say about the engine; agents are still missing.
    pub setup: Setup,
    /// Addresses.
    pub listen: Vec<String>,
    /// Agents, in the order of the flags.
    pub agents: Vec<AgentFlag>,
    /// Threads.
    pub workers: usize,
    /// Whether anybody may call the agents who reaches them.
    pub anonymous: bool,
    /// Whether streaming operations are served.
    pub streaming: bool,
    /// The budget of `--memory`, in bytes.
    pub memory: Option<u64>,
    /// Names of the limits that were set by hand.
    pub by_hand: Vec<String>,
    /// Whether the banner lists the terms of the memory sum.
    pub shows_memory: bool,
    /// Files of keys that sign cards, each with the name of its key.
    pub card_keys: Vec<(PathBuf, Option<String>)>,
    /// Files for TLS; the certificate and its key come together.
    pub tls: TlsFlags,
}

/// The files of `--tls-cert`, `--tls-key` and `--tls-client-ca`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TlsFlags {
    /// The certificate chain.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The roots of clients' certificates.
    pub client_ca: Option<PathBuf>,
}

/// One `--agent`.
#[derive(Debug, PartialEq, Eq)]
pub struct AgentFlag {
    /// Its name; the default agent has none of its own.
    pub name: Option<String>,
    /// What it is.
    pub kind: String,
    /// What the kind was given.
    pub arg: Option<String>,
}

/// Understands the flags.
///
/// # Errors
/// [`UsageError`].
pub fn read(flags: &ArgMatches) -> Result<Serve, UsageError> {
    let file = |name| flags.get_many::<OsString>(name).and_then(|mut all| all.next_back());
    let file = |name| file(name).map(PathBuf::from);
    let mut serve = Serve {
        setup: setup(flags)?,
        listen: all(flags, "listen").map(str::to_owned).collect(),
        agents: all(flags, "agent").map(agent).collect(),
        workers: last(flags, "workers").map_or(Ok(net::workers_default()), workers)?,
        anonymous: flags.get_flag("allow-anonymous"),
        streaming: !flags.get_flag("no-streaming"),
        memory: last(flags, "memory").map(memory).transpose()?,
        by_hand: Vec::new(),
        shows_memory: flags.get_flag("show-memory"),
        card_keys: all(flags, "card-key").map(card_key).collect(),
        tls: TlsFlags {
            cert: file("tls-cert"),
            key: file("tls-key"),
            client_ca: file("tls-client-ca"),
        },
    };
    for text in all(flags, "limit") {
        serve.by_hand.push(limit(&mut serve.setup.limits, text)?);
    }
    check_tls(&serve.tls)?;
    divide(&mut serve)?;
    Ok(serve)
}

fn setup(flags: &ArgMatches) -> Result<Setup, UsageError> {
    let mut setup = Setup {
        public_url: last(flags, "public-url").map(str::to_owned),
        trust_forwarded: flags.get_flag("trust-forwarded"),
        strict: flags.get_flag("strict"),
        strict_version: flags.get_flag("strict-version"),
        extended_card: flags.get_flag("extended-card"),
        ..Setup::default()
    };
    for text in all(flags, "allow-host") {
        setup.allow_hosts.push(allow_host(text.to_owned())?);
    }
    for text in all(flags, "mount") {
        setup.mounts.push(mount(text)?);
    }
    for text in all(flags, "ws-origin") {
        setup.ws_origins.push(ws_origin(text.to_owned())?);
    }
    setup.cors = cors(flags)?;
    if let Some(text) = last(flags, "tenants") {
        setup.tenants = tenants(text)?;
    }
    if let Some(text) = last(flags, "card") {
        setup.card = card(text)?;
    }
    if let Some(text) = last(flags, "interfaces") {
        setup.interfaces = interfaces(text)?;
    }
    #[cfg(feature = "test-echo")]
    {
        setup.test_echo = last(flags, "test-echo").map(str::to_owned);
    }
    Ok(setup)
}

/// Which pages may read answers.
fn cors(flags: &ArgMatches) -> Result<Cors, UsageError> {
    let cors = Cors {
        origins: all(flags, "cors-origin").map(str::to_owned).collect(),
        credentials: flags.get_flag("cors-credentials"),
        ..Cors::default()
    };
    let flag = |error| match &error {
        CorsError::Credentials => format!("--cors-credentials: {error}"),
        CorsError::Origin(_) | CorsError::TooMany | CorsError::Header(_) => {
            format!("--cors-origin: {error}")
        }
    };
    cors.check().map_err(|error| UsageError(flag(error)))?;
    Ok(cors)
}

/// The values of a flag, in their order.
fn all<'m>(flags: &'m ArgMatches, name: &str) -> impl Iterator<Item = &'m str> + use<'m> {
    flags.get_many::<String>(name).into_iter().flatten().map(String::as_str)
}

/// The value that was said last.
fn last<'m>(flags: &'m ArgMatches, name: &str) -> Option<&'m str> {
    all(flags, name).last()
}

/// Sets what was not set by hand so that all of it fits the memory.
fn divide(serve: &mut Serve) -> Result<(), UsageError> {
    let fixed: Vec<&str> = serve.by_hand.iter().map(String::as_str).collect();
    let (workers, is_secure) = (serve.workers, serve.tls.cert.is_some());
    let limits = &mut serve.setup.limits;
    *limits = match serve.memory {
        None => limits.for_default_memory(workers, is_secure, &fixed),
        Some(bytes) => limits
            .for_memory(bytes, workers, is_secure, &fixed)
            .map_err(|error| UsageError(format!("--memory: {error}")))?,
    };
    Ok(())
}

/// A certificate is of no use without its key, and who clients are is shown within TLS alone.
fn check_tls(tls: &TlsFlags) -> Result<(), UsageError> {
    let line = match (&tls.cert, &tls.key, &tls.client_ca) {
        (None, None, None) => return Ok(()),
        _ if cfg!(not(feature = "tls")) => "this build of peregrine has no TLS",
        (Some(_), Some(_), _) => return Ok(()),
        (Some(_), None, _) => "--tls-cert needs its private key: add --tls-key FILE",
        (None, Some(_), _) => "--tls-key needs its certificate: add --tls-cert FILE",
        (None, None, Some(_)) => "--tls-client-ca needs TLS: add --tls-cert and --tls-key",
    };
    Err(UsageError(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use peregrine::{
        engine::{Binding, Tenants},
        limits::{Limits, memory_bytes_default},
    };

    use super::*;
    use crate::cli::{
        command::{CommandLine, parse},
        serve::flags,
    };

    fn serve(words: &str) -> Result<Serve, String> {
        let words = words.split_whitespace().map(OsString::from).collect();
        match parse(words) {
            Ok(CommandLine::Run(matches)) => {
                let (_, flags) = matches.subcommand().unwrap();
                read(flags).map_err(|UsageError(line)| line)
            }
            Ok(CommandLine::Print(_)) => Err("not serve".to_owned()),
            Err(UsageError(line)) => Err(line),
        }
    }

    #[test]
    fn serve_alone_is_enough() {
        let serve = serve("serve").unwrap();
        assert!(serve.listen.is_empty() && serve.agents.is_empty());
        assert!(serve.workers >= 1 && serve.streaming && !serve.anonymous);
    }

    #[test]
    fn every_flag_is_taken() {
        let serve = serve(
            "serve --listen 127.0.0.1:1 --listen=[::1]:2 --agent echo --agent bob=script:a=b:c \
             --public-url https://a.example/x --workers 3 --limit tasks_max=9 --card v03 \
             --mount /x=v1:bob --strict-version --strict --no-streaming --extended-card \
             --test-echo /e --ws-origin https://a.example --ws-origin=* --allow-anonymous \
             --tls-cert a --tls-key b --tls-client-ca c --allow-host a.example \
             --allow-host ::1 --interfaces=websocket,grpc=h:1 --tenants a,b \
             --cors-origin https://app.example --cors-origin=http://b:1 --cors-credentials",
        )
        .unwrap();
        assert_eq!(serve.listen, ["127.0.0.1:1", "[::1]:2"]);
        assert_eq!((serve.workers, serve.streaming, serve.anonymous), (3, false, true));
        let [cert, key, client_ca] = ["a", "b", "c"].map(|name| Some(PathBuf::from(name)));
        assert_eq!(serve.tls, TlsFlags { cert, key, client_ca });
        let bob = &serve.agents[1];
        assert_eq!(bob.name.as_deref(), Some("bob"));
        assert_eq!((bob.kind.as_str(), bob.arg.as_deref()), ("script", Some("a=b:c")));
        let setup = &serve.setup;
        assert_eq!((setup.limits.tasks_max, setup.strict_version), (9, true));
        assert!(setup.strict);
        assert!(setup.extended_card && setup.test_echo.as_deref() == Some("/e"));
        let listed: Vec<_> =
            setup.interfaces.iter().map(|one| (one.binding, one.url.as_deref())).collect();
        assert_eq!(listed, [(Binding::WebSocket, None), (Binding::Grpc, Some("h:1"))]);
        assert_eq!(setup.ws_origins, ["https://a.example", "*"]);
        assert_eq!(setup.allow_hosts, ["a.example", "::1"]);
        assert_eq!(setup.cors.origins, ["https://app.example", "http://b:1"]);
        assert!(setup.cors.credentials);
        assert_eq!(setup.mounts[0].agent.as_deref(), Some("bob"));
        let named = Tenants::Named(["a", "b"].map(str::to_owned).into());
        assert_eq!(setup.tenants, named);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (words, said) in [
            ("", "nothing to do"),
            ("sevre", "what is \"sevre\"? did you mean serve?"),
            ("serve again", "what is \"again\"?"),
            ("serve -x", "unknown flag -x"),
            ("serve --lisen 1", "did you mean --listen?"),
            ("serve --listen", "--listen needs a value: --listen <ADDR>"),
            ("serve --no-streaming=1", "--no-streaming takes no value"),
            ("serve --tls-cert a", "add --tls-key"),
            ("serve --tls-key a", "add --tls-cert"),
            ("serve --tls-client-ca a", "add --tls-cert and --tls-key"),
            ("serve --tls-crt a", "did you mean --tls-cert?"),
            ("serve --workers 0", "not a number from 1"),
            ("serve --limit body=1", "there is no limit \"body\""),
            ("serve --limit task_max=1", "did you mean tasks_max?"),
            ("serve --limit tasks_max=0", "not a whole number above zero"),
            ("serve --limit tasks_max", "not NAME=VALUE"),
            ("serve --limit tasks_max=5s", "not a number without a unit"),
            ("serve --limit body_bytes_max=5s", "not a size, as 4096, 64KiB"),
            ("serve --limit drain_ms=1GiB", "not a time, as 250ms, 5s"),
            ("serve --memory much", "not a size, as 4096, 64KiB, 512M"),
            ("serve --memory 5s", "not a size"),
            ("serve --memory 1M", "MiB is the least"),
            ("serve --mount /x", "not PATH=DIALECT"),
            ("serve --tenants a,,b", "--tenants: \"\" is neither any nor"),
            ("serve --card v2", "none of v1, v03, hybrid"),
            ("serve --interfaces rest", "\"rest\"; there are jsonrpc, http+json, grpc, websocket"),
            ("serve --interfaces json-rpc", "did you mean jsonrpc?"),
            ("serve --interfaces=", "there is no interface \"\""),
            ("serve --interfaces jsonrpc,jsonrpc", "jsonrpc is listed twice"),
            ("serve --interfaces http+json=h:1", "begin with http:// or https://"),
            ("serve --allow-host a.example:80", "no name or address without a port"),
            ("serve --cors-origin https://a/", "--cors-origin: the CORS origin \"https://a/\""),
            ("serve --cors-origin=* --cors-credentials", "--cors-credentials: CORS with"),
            ("serve --cors-credentials", "needs origins that are named"),
            ("serve --ws-origin a.example", "neither like https://host:port nor *"),
            ("serve --ws-origin https://a.example/", "neither like https://host:port nor *"),
        ] {
            let line = serve(words).err().unwrap();
            assert!(line.contains(said) && !line.contains('\n'), "{words}: {line}");
        }
    }

    #[test]
    fn the_extended_card_is_off_unless_it_is_asked_for() {
        for (words, on) in [
            ("serve", false),
            ("serve --no-extended-card", false),
            ("serve --extended-card", true),
            ("serve --extended-card --no-extended-card", false),
        ] {
            assert_eq!(serve(words).unwrap().setup.extended_card, on, "{words}");
        }
    }

    #[test]
    fn memory_is_one_number() {
        let limits = |words: &str| serve(words).unwrap().setup.limits;
        let divided = limits("serve --workers 6 --memory 512M");
        assert!(divided.memory_bytes_max(6, false) <= 512 << 20);
        assert!(limits("serve --workers 6").memory_bytes_max(6, false) <= memory_bytes_default(6));
        // Whatever comes first, what is set by hand wins, even to the value it had anyway.
        let all = Limits::default().store_bytes_max;
        for words in
            ["--limit store_bytes_max=1GiB --memory 2G", "--memory 2G --limit store_bytes_max=1GiB"]
        {
            let limits = limits(&format!("serve --workers 2 {words}"));
            assert_eq!(limits.store_bytes_max, all);
            assert!(limits.memory_bytes_max(2, false) <= 2 << 30);
        }
    }

    #[test]
    fn the_help_names_every_flag() {
        let help = flags::command().term_width(100).render_help().to_string();
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        for arg in flags::command().get_arguments().filter(|arg| !arg.is_hide_set()) {
            assert!(help.contains(&format!("--{}", arg.get_long().unwrap())));
        }
    }
}
