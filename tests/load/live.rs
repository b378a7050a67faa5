//! The live view on a terminal, which `script` of util-linux provides.

use std::{
    fs,
    io::{Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use crate::{
    files::Folder,
    support::binary::{Binary, PATH},
};

const CTRL_C: &str = "\u{3}";
/// The escape sequences that enter and leave the alternate screen.
const OPENS: &str = "\u{1b}[?1049h";
const LEAVES: &str = "\u{1b}[?1049l";

/// A run of `bench` on its own terminal.
struct BenchTerminal {
    script: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    shown: Vec<u8>,
}

impl BenchTerminal {
    /// Runs it with these arguments for a minute at most.
    fn run(server: &Binary, words: &str) -> BenchTerminal {
        let line = format!(
            "stty rows 24 cols 90; echo pid=$$.; \
             exec \"$CLIENT\" bench http://{} --rate 50 --duration 60s {words}",
            server.addr()
        );
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        command.env("CLIENT", PATH).env("SHELL", "/bin/sh").env("TERM", "xterm");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().expect("script of util-linux");
        let (keys, screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        BenchTerminal { script, keys, screen, shown: Vec::new() }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Reads more; false: the command has ended.
    fn read(&mut self) -> bool {
        let mut some = [0; 4096];
        let count = self.screen.read(&mut some).unwrap();
        self.shown.extend(&some[..count]);
        count > 0
    }

    /// Waits until the screen has shown this.
    fn until(&mut self, text: &str) {
        while !self.text().contains(text) {
            assert!(self.read(), "no {text:?} in {:?}", self.text());
        }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// The client's process id.
    fn pid(&mut self) -> String {
        self.until(".");
        self.text().split_once("pid=").unwrap().1.split_once('.').unwrap().0.to_owned()
    }

    /// Waits for the end and returns the exit code and the whole output of the screen.
    fn ends(mut self) -> (Option<i32>, String) {
        while self.read() {}
        (self.script.wait().unwrap().code(), self.text())
    }
}

/// Asserts that the view was left before the report.
fn assert_restored(code: Option<i32>, shown: &str) {
    assert_eq!(code, Some(0), "{shown:?}");
    assert_eq!([OPENS, LEAVES].map(|one| shown.matches(one).count()), [1, 1], "{shown:?}");
    let (view, rest) = shown.split_once(LEAVES).unwrap();
    assert!(["wanted", "Latency:", "Errors", "Ctrl-C"].iter().all(|word| view.contains(word)));
    // The cursor is visible, and line breaks work again.
    assert!(rest.contains("\u{1b}[?25h") && rest.contains("  reached  "), "{shown:?}");
    assert!(rest.contains("interrupted: the report covers the calls made so far\r\n"), "{shown:?}");
}

#[test]
fn key_q_ends_the_run_early_with_a_report() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-live");
    let json = folder.file("report.json");
    let mut terminal = BenchTerminal::run(&server, &format!("--warmup 0s --out {json}"));
    // The view does not draw blanks over blanks, so the test waits for single words. This one
    // appears after calls have ended.
    terminal.until("max");
    terminal.types("xq");
    let (code, shown) = terminal.ends();
    assert_restored(code, &shown);
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let requests = report["targets"][0]["requests"].as_u64().unwrap();
    assert!((1..3_000).contains(&requests), "{requests}");
}

#[test]
fn ctrl_c_ends_the_run_and_restores_the_terminal() {
    let server = Binary::start(&[]);
    let mut terminal = BenchTerminal::run(&server, "");
    terminal.until("Latency:");
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_restored(code, &shown);
}

#[test]
fn sigterm_restores_the_terminal() {
    let server = Binary::start(&[]);
    let mut terminal = BenchTerminal::run(&server, "");
    let pid = terminal.pid();
    terminal.until("Latency:");
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let (code, shown) = terminal.ends();
    assert_restored(code, &shown);
}

#[test]
fn plain_progress_lines_replace_a_disabled_view() {
    let server = Binary::start(&[]);
    for words in ["--live=false", "-o json", "2>&1 | cat"] {
        let (code, shown) = BenchTerminal::run(&server, &format!("--duration 2s {words}")).ends();
        assert_eq!(code, Some(0), "{words}: {shown}");
        assert!(!shown.contains('\u{1b}'), "{words}: {shown:?}");
        assert!(shown.contains(" unanswered  0 errors\r\n"), "{words}: {shown}");
    }
}
