//! Every way to call one server: transports × generations × addresses, with and without
//! credentials, by the URLs that the server prints and its tenants.

use std::{process::Command, thread};

use crate::{
    agent::RULES,
    run::{RunOutput, User},
    support::binary::Binary,
};

const TRANSPORTS: [&str; 4] = ["jsonrpc", "http+json", "grpc", "websocket"];
const VERSIONS: [&str; 2] = ["1.0", "0.3"];
/// The URL of a webhook; its tasks post nothing before they are cancelled.
const HOOK: &str = "http://127.0.0.1:49999/";

/// The agent and tenant that a user addresses, and how.
#[derive(Clone, Copy, Debug)]
struct Address {
    /// The path after the server's URL.
    path: &'static str,
    /// `--tenant`, if there is one.
    flag: Option<&'static str>,
    /// The agent that answers; the default one is `clerk`.
    agent: &'static str,
    /// The space of its tasks.
    tenant: Option<&'static str>,
}

const fn address(
    path: &'static str,
    flag: Option<&'static str>,
    agent: &'static str,
    tenant: Option<&'static str>,
) -> Address {
    Address { path, flag, agent, tenant }
}

const ADDRESSES: [Address; 10] = [
    address("", None, "clerk", None),
    address("/agents/bob", None, "bob", None),
    address("/agents/open", None, "open", None),
    address("/tenants/acme", None, "clerk", Some("acme")),
    address("/tenants/bob", None, "bob", None),
    address("/tenants/open", None, "open", None),
    address("/agents/bob/tenants/acme", None, "bob", Some("acme")),
    address("", Some("acme"), "clerk", Some("acme")),
    address("", Some("bob"), "bob", None),
    address("/agents/bob", Some("acme"), "bob", Some("acme")),
];

/// The result of choosing a transport for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The client uses it.
    Used,
    /// The card does not have it, and the client uses another one with a warning.
    PassedOver,
    /// The version has no field for the tenant.
    Refused,
}

impl Address {
    fn outcome(self, transport: &str, version: &str) -> Outcome {
        let is_default = self.agent == "clerk";
        match (transport, version) {
            (_, "0.3") if self.flag.is_some() => Outcome::Refused,
            // One `tenant` names an agent or a space, and 0.3 has none.
            ("grpc", "0.3") if !is_default || self.tenant.is_some() => Outcome::PassedOver,
            ("grpc", _) if !is_default && self.tenant.is_some() => Outcome::PassedOver,
            _ => Outcome::Used,
        }
    }

    /// The same address over JSON-RPC 1.0, or the neighbouring one with or without the tenant.
    fn reference(self, is_here: bool) -> Vec<String> {
        let mut words = vec![format!("/agents/{}", self.agent)];
        let tenant = if is_here { self.tenant } else { Some("acme").xor(self.tenant) };
        words.extend(tenant.map(|name| format!("--tenant={name}")));
        words
    }
}

/// One server for all cases: two agents with callers and one without, two tenants.
struct City {
    server: Binary,
    folder: User,
}

impl City {
    fn start() -> City {
        let folder = User::new();
        let script = folder.write("clerk.toml", RULES);
        let agent = |name: &str| {
            format!(
                "[agents.{name}]\nkind = \"script\"\nscript = {:?}\n",
                script.display().to_string()
            )
        };
        let text = format!(
            "default_agent = \"clerk\"\ntenants = [\"acme\", \"other\"]\ninterfaces = \
             [\"jsonrpc\", \"http+json\", \"grpc\", \"websocket\"]\n[push]\nallow = \
             [\"127.0.0.1\"]\n{}{}{}anonymous = true\n[[auth.api_keys]]\nname = \"robot\"\nkey = \
             \"key-0123456789abcdef\"\ntenants = [\"*\"]\n[[auth.bearer_tokens]]\nname = \
             \"alice\"\ntoken = \"token-0123456789abcdef\"\ntenants = [\"*\"]\n",
            agent("clerk"),
            agent("bob"),
            agent("open"),
        );
        let file = folder.write("city.toml", &text);
        let server = Binary::start(&["--config", &file.display().to_string()]);
        City { server, folder }
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }
}

/// One user at one address over one transport.
struct Traveller<'c> {
    city: &'c City,
    user: User,
    address: Address,
    flags: Vec<String>,
}

impl Traveller<'_> {
    fn run(&self, words: &[&str]) -> RunOutput {
        let agent = format!("{}{}", self.city.url(), self.address.path);
        let flags = self.flags.iter().map(String::as_str);
        let words: Vec<&str> = words.iter().copied().chain(["-a", &agent]).chain(flags).collect();
        self.user.run(&words)
    }

    /// A success, without a warning if the transport is used.
    fn ok(&self, outcome: Outcome, words: &[&str]) -> RunOutput {
        let output = self.run(words);
        let context = || format!("{words:?} {:?} {:?}: {output:?}", self.address, self.flags);
        assert_eq!(output.code, Some(0), "{}", context());
        let warned = output.err.contains("jsonrpc is used");
        assert_eq!(warned, outcome == Outcome::PassedOver, "{}", context());
        assert!(warned || !output.err.contains("warning"), "{}", context());
        output
    }

    /// Whether a task is at this address, read over JSON-RPC 1.0.
    fn has(&self, is_here: bool, id: &str) -> bool {
        let reference = self.address.reference(is_here);
        let agent = format!("{}{}", self.city.url(), reference[0]);
        let mut words = vec!["task", "get", "-a", &agent, id];
        words.extend(reference[1..].iter().map(String::as_str));
        let output = self.user.run(&words);
        let is_there = output.code == Some(0);
        assert!(is_there || output.err.contains("TaskNotFoundError"), "{output:?}");
        is_there
    }

    fn go_round(&self, transport: &str, version: &str) {
        let outcome = self.address.outcome(transport, version);
        if outcome == Outcome::Refused {
            let output = self.run(&["send", "large"]);
            assert_eq!(output.code, Some(2), "{output:?}");
            let own = format!("-a {}{}/tenants/", self.city.url(), self.address.path);
            assert!(
                output.err.contains("cannot name a tenant") && output.err.contains(&own),
                "{output:?}"
            );
            return;
        }
        let output = self.ok(outcome, &["send", "large", "--stream"]);
        assert!(output.out.contains("one large coffee"), "{output:?}");
        let id = self.ok(outcome, &["send", "never", "--async"]).field("Task").to_owned();
        assert!(
            self.has(true, &id) && !self.has(false, &id),
            "{:?} {:?}",
            self.address,
            self.flags
        );
        self.ok(outcome, &["task", "get", &id]);
        if version == "1.0" || transport == "http+json" {
            let list = self.ok(outcome, &["task", "list"]).out;
            assert!(list.contains(&id), "{list}");
        }
        if self.address.agent == "open" {
            // Webhooks need an authenticated caller, and the card lists the schemes.
            let words = ["task", "push-config", "create", &id, "--url", HOOK];
            let output = self.run(&words);
            assert!(
                output.err.contains("only authenticated callers"),
                "{:?} {output:?}",
                self.flags
            );
            // An error of 0.3 on a WebSocket has neither a status nor a name.
            let is_named = (transport, version) != ("websocket", "0.3");
            let is_hinted = output.err.contains("A2ACLI_API_KEY");
            assert!(is_hinted || !is_named, "{:?} {output:?}", self.flags);
            return;
        }
        const PUSH: [&str; 2] = ["task", "push-config"];
        let push = |words: &[&str]| self.ok(outcome, &[&PUSH, words].concat()).out;
        push(&["create", &id, "--url", HOOK, "--id", "p-1"]);
        assert!(push(&["list", &id]).contains("p-1") && push(&["get", &id, "p-1"]).contains(HOOK));
        push(&["delete", &id, "p-1"]);
        let output = self.ok(outcome, &["task", "cancel", &id]);
        assert_eq!(output.field("State"), "CANCELED");
    }
}

#[test]
fn transports_and_versions_handle_agent_and_tenant_addresses() {
    let city = City::start();
    thread::scope(|scope| {
        for transport in TRANSPORTS {
            let city = &city;
            scope.spawn(move || {
                for (at, version) in VERSIONS.into_iter().enumerate() {
                    for (number, address) in ADDRESSES.into_iter().enumerate() {
                        let user = match (address.agent, (at + number) % 2) {
                            ("open", _) => User::new(),
                            (_, 0) => User::new().with("A2ACLI_API_KEY", "key-0123456789abcdef"),
                            _ => User::new().with("A2ACLI_BEARER", "token-0123456789abcdef"),
                        };
                        let mut flags = vec![format!("--transport={transport}")];
                        flags.push(format!("--a2a-version={version}"));
                        flags.extend(address.flag.map(|name| format!("--tenant={name}")));
                        Traveller { city, user, address, flags }.go_round(transport, version);
                    }
                }
            });
        }
    });
}

#[test]
fn failed_commands_print_a_remedy() {
    let city = City::start();
    let url = city.url();
    let key = || User::new().with("A2ACLI_API_KEY", "key-0123456789abcdef");
    for (user, words, expected) in [
        (
            User::new(),
            &["send", "x", "-a", ""][..],
            "Hint: give a key with --api-key or A2ACLI_API_KEY, or give",
        ),
        (key(), &["send", "x", "-a", "/tenants/else"], "check the name of the agent or tenant"),
        (key(), &["send", "x", "-a", "/agents/else"], "check the name of the agent or tenant"),
        (key(), &["send", "x", "-a", "", "--tenant", "else"], "another --tenant"),
        (
            key(),
            &["task", "push-config", "get", "t", "p", "-a", ""],
            "peregrine task push-config list -a",
        ),
        (
            key(),
            &["auth", "login", "-a", ""],
            "the card accepts --api-key or --bearer without a login",
        ),
    ] {
        let agent = |word: &&str| match word.is_empty() || word.starts_with('/') {
            true => format!("{url}{word}"),
            false => (*word).to_owned(),
        };
        let words: Vec<String> = words.iter().map(agent).collect();
        let refused = user.run(&words);
        assert!(refused.code != Some(0) && refused.err.contains(expected), "{words:?} {refused:?}");
    }
}

#[test]
fn banner_curl_command_and_urls_work_with_a_token() {
    if Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let city = City::start();
    let command = city.server.banner("try").replace("YOUR_TOKEN", "token-0123456789abcdef");
    assert!(command.starts_with("curl "), "{command}");
    let output = city.folder.command_of("sh", &["-c", &command]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\"result\""), "{command}: {text}");
    for label in ["url", "agent"] {
        let url = city.server.banner(label).split_whitespace().last().unwrap();
        let user = User::new().with("A2ACLI_BEARER", "token-0123456789abcdef");
        user.ok(&["send", url, "large"]);
    }
}
