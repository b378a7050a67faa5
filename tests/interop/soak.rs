//! Clients call continuously, over every binding, while the configuration of their server changes
//! every second: no call fails.
//!
//! `PEREGRINE_SOAK_SECONDS=600` makes it long; the default is some seconds.

use std::{
    fs::{self, File},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    client::{Client, Filter},
    credentials::{agent_sections, auth_sections, token},
    exchange::Approach,
    message_spec::text_spec,
    model::{Gen, V01, V1, V03},
    place::Endpoint,
    server::Server,
    variants::{Binding, Carrier, Speaker, Variant},
};
use crate::support::binary::{Binary, eventually};

/// The pause between two calls of one client.
const PAUSE: Duration = Duration::from_millis(5);

/// A client's credential.
#[derive(Clone, Copy, Debug)]
enum Shows {
    Key,
    Token,
    Jwt,
    /// None: it calls the public agent.
    Nothing,
}

/// The variant of a client, and how it authenticates.
#[derive(Clone, Copy, Debug)]
struct Row {
    binding: Binding,
    generation: Gen,
    carrier: Carrier,
    shows: Shows,
}

const fn row(binding: Binding, generation: Gen, carrier: Carrier, shows: Shows) -> Row {
    Row { binding, generation, carrier, shows }
}

#[rustfmt::skip]
const CALLERS: &[Row] = &[
    row(Binding::JsonRpc,   V01, Carrier::Http1, Shows::Token),
    row(Binding::JsonRpc,   V03, Carrier::Http2, Shows::Jwt),
    row(Binding::JsonRpc,   V1,  Carrier::Http1, Shows::Key),
    row(Binding::JsonRpc,   V1,  Carrier::Http1, Shows::Nothing),
    row(Binding::Rest,      V03, Carrier::Http2, Shows::Key),
    row(Binding::Rest,      V1,  Carrier::Http1, Shows::Jwt),
    row(Binding::Rest,      V1,  Carrier::Http2, Shows::Nothing),
    row(Binding::WebSocket, V03, Carrier::Http1, Shows::Jwt),
    row(Binding::WebSocket, V1,  Carrier::Http1, Shows::Key),
    row(Binding::WebSocket, V1,  Carrier::Http1, Shows::Nothing),
    row(Binding::Grpc,      V03, Carrier::Http2, Shows::Token),
    row(Binding::Grpc,      V1,  Carrier::Http2, Shows::Jwt),
    row(Binding::Grpc,      V1,  Carrier::Http2, Shows::Nothing),
];

/// The configuration of one second. The parts that the clients use never change.
fn configuration(round: u64) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/interop.toml");
    let mut text = format!(
        "tenants = \"any\"\n{}[[auth.bearer_tokens]]\nname = \"caller\"\ntoken = \
         \"token-of-the-caller\"\nscopes = [\"a2a:read\"]\n{}[agents.open]\nanonymous = \
         true\nscript = \"{script}\"\n[quotas.known]\ncalls_per_minute = {}\ncall_burst = \
         {}\nstreams = {}\nrunning_tasks = 5000\n[quotas.anonymous]\ncalls_per_minute = \
         {}\ncall_burst = 100000\n",
        auth_sections("caller"),
        agent_sections(),
        10_000_000 + round,
        1_000_000 + round,
        1_000 + round % 7,
        20_000_000 - round % 1000,
    );
    // Keys, tokens and an issuer that vary.
    for other in 0..round % 4 {
        text += &format!(
            "[[auth.api_keys]]\nname = \"other-{other}\"\nkey = \
             \"key-of-round-{round}-{other}\"\n[[auth.bearer_tokens]]\nname = \
             \"other-{other}\"\ntoken = \"token-of-round-{round}-{other}\"\n"
        );
    }
    if round % 3 == 1 {
        text += "[[auth.issuers]]\nissuer = \"https://third.example\"\n\
            secret = \"fedcba9876543210fedcba9876543210\"\n";
    }
    // Agents without calls.
    for other in 0..round % 5 {
        let description = if other == 0 { round } else { 0 };
        text += &format!(
            "[agents.extra-{other}]\nkind = \"echo\"\ndescription = \"As of {description}.\"\n"
        );
    }
    // Finished tasks expire, too, while the long soak runs.
    let drain_ms = 1_000 + round % 100;
    text + &format!("[limits]\ntask_ttl_ms = \"20s\"\ndrain_ms = {drain_ms}\n")
}

/// An invalid configuration for every fourth second.
fn broken(round: u64) -> String {
    let good = configuration(round);
    match round / 4 % 4 {
        0 => format!("workrs = 1\n{good}"),
        1 => good[..good.len() / 2].to_owned() + "\n[[[",
        2 => format!("{good}[agents.gone]\nscript = \"no-such-file.toml\"\n"),
        // The same key for two callers.
        _ => format!("{good}[[auth.api_keys]]\nname = \"thief\"\nkey = \"key-of-caller-caller\"\n"),
    }
}

/// A server with a changing configuration.
pub struct Changing {
    pub server: Server,
    file: PathBuf,
    errors: PathBuf,
}

impl Changing {
    pub fn start(name: &str, text: &str) -> Changing {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let (file, errors) = (folder.join("p.toml"), folder.join("stderr"));
        fs::write(&file, text).expect("a file");
        let stderr = File::create(&errors).expect("a file");
        let flags = ["--config", file.to_str().expect("UTF-8")];
        let binary = Binary::start_with(&flags, stderr.into());
        let endpoint = Endpoint { addr: binary.addr(), trust: None, authority: None };
        Changing { server: Server { binary, endpoint }, file, errors }
    }

    /// Replaces the file atomically, and signals the server.
    pub fn replace(&self, text: &str) {
        let fresh = self.file.with_extension("fresh");
        fs::write(&fresh, text).expect("a file");
        fs::rename(fresh, &self.file).expect("a file in its place");
        self.server.binary.signal("-HUP");
    }

    /// The number of lines in the server's output with these words.
    pub fn count_lines(&self, words: &str) -> u64 {
        let output = fs::read_to_string(&self.errors).expect("what it says");
        output.lines().filter(|line| line.contains(words)).count() as u64
    }
}

/// Counts of calls.
#[derive(Default)]
struct Tally {
    calls: AtomicU64,
    streams: AtomicU64,
    is_over: AtomicBool,
    failures: Mutex<Vec<String>>,
}

fn client(endpoint: &Endpoint, row: Row) -> Client {
    let Row { binding, generation, carrier, shows } = row;
    let variant = Variant { binding, generation, carrier, speaker: Speaker::Hand };
    let mut approach = Approach::default();
    let mut field = |name, value: &str| approach.fields.push((name, value.to_owned()));
    match (shows, binding) {
        (Shows::Key, _) => field("X-API-Key", "key-of-caller-caller"),
        (Shows::Token, _) => field("Authorization", "Bearer token-of-the-caller"),
        (Shows::Jwt, _) => {
            let token = token("caller", "a2a:read", &[], 86_400);
            field("Authorization", &format!("Bearer {token}"));
        }
        (Shows::Nothing, Binding::Grpc) => field("a2a-tenant", "open"),
        (Shows::Nothing, _) => approach.path = "/agents/open".to_owned(),
    }
    Server::client_at(endpoint, variant, &approach)
}

impl Tally {
    fn called(&self) {
        self.calls.fetch_add(1, Relaxed);
        thread::sleep(PAUSE);
    }

    /// One round of calls, with the same results as without reloads.
    fn round(&self, client: &mut Client) {
        let task = client.send(&text_spec("done")).expect("an answer").task();
        assert_eq!(task.state, "completed");
        self.called();
        let target = client.target(&task);
        assert_eq!(client.get(&target).expect("a task").id, task.id);
        self.called();
        if client.variant.lists() {
            let filter = Filter { context: Some(&task.context), ..Filter::default() };
            assert_eq!(client.list(&filter).expect("a page").total, 1);
            self.called();
        }
        let seen = client.stream(&text_spec("done")).expect("a stream").rest();
        assert!(seen.len() > 3, "{seen:?}");
        self.called();
        self.streams.fetch_add(1, Relaxed);
    }

    /// A task with a stream that stays open until the configuration has changed.
    fn hold(&self, client: &mut Client, other: &mut Client) {
        let task = client.send(&text_spec("hold")).expect("an answer").task();
        self.called();
        let target = client.target(&task);
        let mut stream = client.subscribe(&target).expect("a stream");
        stream.expect();
        let until = Instant::now() + Duration::from_millis(1_500);
        while Instant::now() < until && !self.is_over.load(Relaxed) {
            thread::sleep(PAUSE);
        }
        other.cancel(&target).expect("a canceled task");
        assert_eq!(stream.rest().len(), 1);
        self.called();
        self.called();
        self.streams.fetch_add(1, Relaxed);
    }

    fn run(&self, endpoint: &Endpoint, row: Row, holds: bool) {
        let calls = AssertUnwindSafe(|| {
            let [mut one, mut other] = [(); 2].map(|()| client(endpoint, row));
            while !self.is_over.load(Relaxed) {
                match holds {
                    true => self.hold(&mut one, &mut other),
                    false => self.round(&mut one),
                }
            }
        });
        if let Err(panic) = catch_unwind(calls) {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let failure = format!("{row:?}: {}", text.unwrap_or_default());
            self.failures.lock().expect("no panic here").push(failure);
        }
    }
}

#[test]
fn calls_survive_configuration_changes_every_second() {
    let seconds = std::env::var("PEREGRINE_SOAK_SECONDS").ok();
    let seconds: u64 = seconds.map_or(5, |text| text.parse().expect("a number of seconds"));
    let (changing, tally) =
        (Changing::start(&format!("soak-{seconds}"), &configuration(0)), Tally::default());
    let counted = &tally;
    let endpoint = &changing.server.endpoint;
    let (began, mut good, mut bad) = (Instant::now(), 0, 0);
    thread::scope(|scope| {
        for row in CALLERS {
            for holds in [false, true] {
                scope.spawn(move || counted.run(endpoint, *row, holds));
            }
        }
        for round in 1..=seconds {
            let due = began + Duration::from_secs(round);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if !tally.failures.lock().expect("no panic there").is_empty() {
                break;
            }
            match round % 4 {
                3 => {
                    changing.replace(&broken(round));
                    bad += 1;
                }
                _ => {
                    changing.replace(&configuration(round));
                    good += 1;
                }
            }
            // The server reads each file, the invalid ones as well.
            eventually("the file is read", || {
                changing.count_lines("was read again") >= good
                    && changing.count_lines("the running configuration is unchanged") >= bad
            });
        }
        tally.is_over.store(true, Relaxed);
    });
    let failures = tally.failures.into_inner().expect("no panic there");
    let (calls, streams) = (tally.calls.into_inner(), tally.streams.into_inner());
    eprintln!(
        "{seconds} s: {calls} calls, {streams} of them streams, by {} callers; {good} reloads, \
         {bad} files refused; {} failures",
        2 * CALLERS.len(),
        failures.len(),
    );
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!((good + bad, bad), (seconds, (seconds + 1) / 4));
    assert_eq!(changing.count_lines("need a restart"), 0);
}
