//! From words to a [`Command`].

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use lexopt::{
    Arg::{Long, Short, Value},
    Parser, ValueExt,
};
use peregrine::{engine::Setup, net};

use super::{
    help::FLAGS,
    nearest::nearest,
    values::{agent, allow_host, card, limit, mount, public_url, workers, ws_origin},
};

/// What the user got wrong, in one line.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

impl From<lexopt::Error> for Wrong {
    fn from(error: lexopt::Error) -> Wrong {
        Wrong(error.to_string())
    }
}

/// What is to be done.
pub enum Command {
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// Serve.
    Serve(Box<Serve>),
}

/// What `serve` was told.
pub struct Serve {
    /// Everything that the flags say about the engine; agents are still missing.
    pub setup: Setup,
    /// Addresses; checked, and never empty.
    pub listen: Vec<String>,
    /// Agents, in the order of the flags.
    pub agents: Vec<AgentFlag>,
    /// Threads.
    pub workers: usize,
    /// Whether streaming operations are served.
    pub streaming: bool,
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

/// Reads the arguments, without the name of the program.
///
/// # Errors
/// [`Wrong`].
pub fn parse(args: Vec<OsString>) -> Result<Command, Wrong> {
    let mut parser = Parser::from_args(args);
    let (mut is_serve, mut anonymous) = (false, false);
    let mut serve = Serve {
        setup: Setup::default(),
        listen: Vec::new(),
        agents: Vec::new(),
        workers: net::workers_default(),
        streaming: true,
        tls: TlsFlags::default(),
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            Value(word) if !is_serve && word == "serve" => is_serve = true,
            Value(word) => return Err(Wrong(format!("what is {word:?}? see peregrine --help"))),
            Short(letter) => return Err(Wrong(format!("unknown flag -{letter}"))),
            Long("allow-anonymous") => anonymous = true,
            Long(flag) => {
                let flag = flag.to_owned();
                set(&mut serve, &flag, &mut parser)?;
            }
        }
    }
    if !is_serve {
        return Err(Wrong("nothing to do; try peregrine serve, or peregrine --help".to_owned()));
    }
    if serve.listen.is_empty() {
        serve.listen.push(net::LISTEN_DEFAULT.to_owned());
    }
    check_tls(&serve.tls)?;
    let is_deliberate = anonymous || serve.tls.client_ca.is_some();
    serve.listen.iter().try_for_each(|text| check_listen(text, is_deliberate))?;
    Ok(Command::Serve(Box::new(serve)))
}

fn set(serve: &mut Serve, flag: &str, parser: &mut Parser) -> Result<(), Wrong> {
    let setup = &mut serve.setup;
    let mut value = || Ok::<String, Wrong>(parser.value()?.string()?);
    match flag {
        "listen" => serve.listen.push(value()?),
        "agent" => serve.agents.push(agent(&value()?)),
        "tls-cert" => serve.tls.cert = Some(parser.value()?.into()),
        "tls-key" => serve.tls.key = Some(parser.value()?.into()),
        "tls-client-ca" => serve.tls.client_ca = Some(parser.value()?.into()),
        "public-url" => setup.public_url = Some(public_url(value()?)?),
        "allow-host" => setup.allow_hosts.push(allow_host(value()?)?),
        "workers" => serve.workers = workers(&value()?)?,
        "limit" => limit(&mut setup.limits, &value()?)?,
        "mount" => setup.mounts.push(mount(&value()?)?),
        "card" => setup.card = card(&value()?)?,
        "trust-forwarded" => setup.trust_forwarded = true,
        "strict-version" => setup.strict_version = true,
        "no-streaming" => serve.streaming = false,
        "no-extended-card" => setup.extended_card = false,
        "ws-origin" => setup.ws_origins.push(ws_origin(value()?)?),
        // For the framing test suites; deliberately not in the help.
        "test-echo" => setup.test_echo = Some(value()?),
        _ => {
            let hint = nearest(flag, FLAGS.iter().copied());
            let hint = hint.map_or(String::new(), |name| format!("; did you mean --{name}?"));
            return Err(Wrong(format!("unknown flag --{flag}{hint}")));
        }
    }
    Ok(())
}

/// A certificate is of no use without its key, and who clients are is shown within TLS alone.
fn check_tls(tls: &TlsFlags) -> Result<(), Wrong> {
    let line = match (&tls.cert, &tls.key, &tls.client_ca) {
        (None, None, None) => return Ok(()),
        _ if cfg!(not(feature = "tls")) => "this build of peregrine has no TLS",
        (Some(_), Some(_), _) => return Ok(()),
        (Some(_), None, _) => "--tls-cert needs its private key: add --tls-key FILE",
        (None, Some(_), _) => "--tls-key needs its certificate: add --tls-cert FILE",
        (None, None, Some(_)) => "--tls-client-ca needs TLS: add --tls-cert and --tls-key",
    };
    Err(Wrong(line.to_owned()))
}

/// Without a look at who calls, whoever reaches the port may use the agents.
fn check_listen(text: &str, is_deliberate: bool) -> Result<(), Wrong> {
    let addr: SocketAddr = net::resolve(text).map_err(|error| Wrong(error.to_string()))?;
    if is_deliberate || addr.ip().is_loopback() {
        return Ok(());
    }
    Err(Wrong(format!(
        "{text} can be reached by other machines, and nobody is asked who they are; \
         add --tls-client-ca, or add --allow-anonymous if anybody may call the agents"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::help::HELP;
    use super::*;

    fn serve(words: &str) -> Result<Box<Serve>, String> {
        let words = words.split_whitespace().map(OsString::from).collect();
        match parse(words) {
            Ok(Command::Serve(serve)) => Ok(serve),
            Ok(Command::Help | Command::Version) => Err("not serve".to_owned()),
            Err(Wrong(line)) => Err(line),
        }
    }

    #[test]
    fn serve_alone_is_enough() {
        let serve = serve("serve").unwrap();
        assert_eq!(serve.listen, ["127.0.0.1:3000"]);
        assert!(serve.workers >= 1 && serve.streaming && serve.agents.is_empty());
    }

    #[test]
    fn every_flag_is_taken() {
        let serve = serve(
            "serve --listen 127.0.0.1:1 --listen=[::1]:2 --agent echo --agent bob=script:a=b:c \
             --public-url https://a.example/x --workers 3 --limit tasks_max=9 --card v03 \
             --mount /x=v1:bob --strict-version --no-streaming --no-extended-card --test-echo /e \
             --ws-origin https://a.example --ws-origin=* --allow-host a.example --allow-host ::1",
        )
        .unwrap();
        assert_eq!(serve.listen, ["127.0.0.1:1", "[::1]:2"]);
        assert_eq!((serve.workers, serve.streaming), (3, false));
        let bob = &serve.agents[1];
        assert_eq!(bob.name.as_deref(), Some("bob"));
        assert_eq!((bob.kind.as_str(), bob.arg.as_deref()), ("script", Some("a=b:c")));
        let setup = &serve.setup;
        assert_eq!((setup.limits.tasks_max, setup.strict_version), (9, true));
        assert!(!setup.extended_card && setup.test_echo.as_deref() == Some("/e"));
        assert_eq!(setup.ws_origins, ["https://a.example", "*"]);
        assert_eq!(setup.allow_hosts, ["a.example", "::1"]);
        assert_eq!(setup.mounts[0].agent.as_deref(), Some("bob"));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (words, said) in [
            ("", "nothing to do"),
            ("sevre", "what is \"sevre\"?"),
            ("serve again", "what is \"again\"?"),
            ("serve -x", "unknown flag -x"),
            ("serve --lisen 1", "did you mean --listen?"),
            ("serve --listen", "missing"),
            ("serve --no-streaming=1", "unexpected"),
            ("serve --listen 3000", "not an address and a port"),
            ("serve --listen 0.0.0.0:1", "add --allow-anonymous"),
            ("serve --listen [::]:1", "add --allow-anonymous"),
            ("serve --tls-cert a", "add --tls-key"),
            ("serve --tls-key a", "add --tls-cert"),
            ("serve --tls-client-ca a", "add --tls-cert and --tls-key"),
            ("serve --tls-crt a", "did you mean --tls-cert?"),
            ("serve --workers 0", "not a number from 1"),
            ("serve --limit body=1", "there is no limit \"body\""),
            ("serve --limit task_max=1", "did you mean tasks_max?"),
            ("serve --limit tasks_max=0", "not a whole number above zero"),
            ("serve --limit tasks_max", "not NAME=VALUE"),
            ("serve --mount /x", "not PATH=DIALECT"),
            ("serve --card v2", "none of v1, v03, hybrid"),
            ("serve --public-url example.org", "not an http or https URL"),
            ("serve --allow-host a.example:80", "no name or address without a port"),
            ("serve --ws-origin a.example", "neither like https://host:port nor *"),
            ("serve --ws-origin https://a.example/", "neither like https://host:port nor *"),
        ] {
            let line = serve(words).err().unwrap();
            assert!(line.contains(said) && !line.contains('\n'), "{words}: {line}");
        }
    }

    #[test]
    fn a_public_address_is_served_on_request() {
        assert!(serve("serve --listen 0.0.0.0:1 --allow-anonymous").is_ok());
        let tls = "serve --listen 0.0.0.0:1 --tls-cert a --tls-key b";
        assert!(serve(tls).err().unwrap().contains("add --tls-client-ca"));
        let serve = serve(&format!("{tls} --tls-client-ca c")).unwrap();
        let [cert, key, ca] = ["a", "b", "c"].map(|name| Some(PathBuf::from(name)));
        assert_eq!(serve.tls, TlsFlags { cert, key, client_ca: ca });
    }

    #[test]
    fn the_help_names_every_flag() {
        assert!(FLAGS.iter().all(|flag| HELP.contains(&format!("--{flag}"))));
        assert!(HELP.lines().all(|line| line.len() <= 100));
    }
}
