//! A server with a measured memory, and calls that fill it.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use peregrine::limits::Limits;

use crate::support::{
    ask::post,
    binary::{Binary, PATIENCE, Tcp},
};

/// How much a process grows without a request: the allocator's pages, and the first run of code.
pub const SLACK_BYTES: u64 = 4 * 1024 * 1024;

/// Calls of one batch: `batch_calls_max`.
const BATCH_CALLS: usize = 100;

/// A server with a measured memory.
pub struct Watched {
    /// The server, of one worker.
    pub server: Binary,
    /// Its limits.
    pub limits: Limits,
    /// The memory it held when the watch began.
    before: u64,
}

impl Watched {
    /// A server with these limits.
    pub fn new(rows: &[&str]) -> Watched {
        Watched::of(Binary::limited(rows), limits_of(rows))
    }

    /// A server with these limits and this configuration, in a file of this name.
    pub fn configured(name: &str, text: &str, rows: &[&str]) -> Watched {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&file, text).unwrap();
        let limits = rows.iter().flat_map(|row| ["--limit", *row]);
        let flags: Vec<&str> =
            ["--config", file.to_str().unwrap()].into_iter().chain(limits).collect();
        Watched::of(Binary::start(&flags), limits_of(rows))
    }

    /// A server that already runs.
    pub fn of(server: Binary, limits: Limits) -> Watched {
        let before = resident(&server);
        Watched { server, limits, before }
    }

    /// Restarts the measurement from the current memory.
    pub fn begin(&mut self) {
        self.before = resident(&self.server);
    }

    /// How much the memory has grown.
    pub fn grown(&self) -> u64 {
        resident(&self.server).saturating_sub(self.before)
    }

    /// The memory that it holds.
    pub fn held(&self) -> u64 {
        resident(&self.server)
    }

    /// The sum of the terms with these words in their labels.
    pub fn bound(&self, labels: &[&str]) -> u64 {
        let terms = self.limits.memory_bytes_terms(1);
        let term = |words: &&str| terms.iter().find(|(label, _)| label.contains(words));
        labels.iter().map(|words| term(words).expect(words).1).sum()
    }

    /// Waits until the server has handled what these connections have sent.
    pub fn wait_until_read(&self, all: &[Tcp]) {
        self.server.wait_until_read(&all.iter().map(|tcp| &tcp.stream).collect::<Vec<_>>());
    }

    /// Panics if the server has grown beyond these terms.
    pub fn assert_within(&self, grown: u64, labels: &[&str]) {
        assert_within(grown, self.bound(labels) + SLACK_BYTES);
    }
}

/// The default limits changed by these rows.
pub fn limits_of(rows: &[&str]) -> Limits {
    let mut limits = Limits::default();
    for row in rows {
        let (name, value) = row.split_once('=').unwrap();
        limits.set(name, value).unwrap();
    }
    limits
}

/// Resident memory without file-backed pages: how many pages of a large executable are resident
/// depends on the kernel's read-ahead.
fn resident(server: &Binary) -> u64 {
    kilobytes(server, "RssAnon") * 1024
}

/// A number from the process's status.
fn kilobytes(server: &Binary, name: &str) -> u64 {
    let line = server.status(name).expect("a line");
    line.split(' ').next().unwrap().parse().expect("a number")
}

/// The peak of resident memory until `is_over`, and shortly after.
pub fn growth(watched: &Watched, mut is_over: impl FnMut() -> bool) -> u64 {
    let (until, mut most) = (Instant::now() + PATIENCE, 0);
    while !is_over() {
        assert!(Instant::now() < until, "the server does not take what it is sent");
        most = most.max(watched.grown());
        std::thread::sleep(Duration::from_millis(10));
    }
    most.max(watched.grown())
}

/// Under AddressSanitizer, which its own variable configures, each allocation has additional
/// memory, and freed memory stays for a while: then only the scenario counts.
pub fn assert_within(grown: u64, most: u64) {
    let is_counted = std::env::var_os("ASAN_OPTIONS").is_none();
    assert!(!is_counted || grown <= most, "{grown} of {most}");
}

/// A connection of one caller, for calls in batches.
pub struct BatchCaller {
    tcp: Tcp,
    path: String,
    key: Option<String>,
}

impl BatchCaller {
    /// A caller without a credential.
    pub fn anonymous(server: &Binary) -> BatchCaller {
        BatchCaller { tcp: server.connect(), path: "/".to_owned(), key: None }
    }

    /// A caller that sends this API key, at this path.
    pub fn of_key(server: &Binary, path: &str, key: &str) -> BatchCaller {
        BatchCaller { tcp: server.connect(), path: path.to_owned(), key: Some(key.to_owned()) }
    }

    /// Makes these calls, and returns the text of the answers.
    pub fn call(&mut self, calls: &[String]) -> String {
        let mut answers = String::new();
        for calls in calls.chunks(BATCH_CALLS) {
            let key = self.key.as_deref().map(|key| ("X-API-Key", key));
            let fields: Vec<_> = key.into_iter().chain([("A2A-Version", "1.0")]).collect();
            self.tcp.write(&post(&self.path, &fields, &format!("[{}]", calls.join(","))));
            answers += self.tcp.reply().text();
        }
        answers
    }

    /// The same, where no call may be refused.
    #[track_caller]
    pub fn call_well(&mut self, calls: &[String]) -> String {
        let answers = self.call(calls);
        let error = answers.split("\"error\"").nth(1);
        assert!(error.is_none(), "{:?}", error.map(|error| &error[..error.len().min(300)]));
        answers
    }
}
