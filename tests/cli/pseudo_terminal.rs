//! The command line at a terminal, which `script` of util-linux makes: what it shows there alone,
//! and Ctrl-C as a terminal sends it.
//!
//! Nothing is waited for but text. Each command has a `--timeout`, so that a test whose text never
//! comes ends.

use std::{
    fs,
    io::{Read, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use crate::{
    agent::Clerk,
    run::{PATH, User, field},
};

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";

/// A shell's command at a terminal of its own.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    shown: String,
    /// Up to where it was looked at.
    seen: usize,
}

impl Terminal {
    /// Runs the client with these words, as a shell reads them.
    fn run(user: &User, words: &str) -> Terminal {
        let line = format!("exec \"$CLIENT\" {words} --timeout 60s");
        let words = ["--quiet", "--return", "--flush", "--command", &line, "/dev/null"];
        let mut command = user.command_of("script", &words);
        command.env("CLIENT", PATH).env("SHELL", "/bin/sh").stdin(Stdio::piped());
        let mut script = command.spawn().expect("script of util-linux");
        let (keys, screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        Terminal { script, keys, screen, shown: String::new(), seen: 0 }
    }

    /// Waits until this stands behind all that was waited for.
    fn until(&mut self, text: &str) {
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(self.read(), "no {text:?} in {:?}", self.shown);
        }
    }

    /// Reads more; false: the command has ended.
    fn read(&mut self) -> bool {
        let mut some = [0; 4096];
        let count = self.screen.read(&mut some).unwrap();
        self.shown.push_str(str::from_utf8(&some[..count]).expect("ASCII alone"));
        count > 0
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end: the exit code, and all that the screen has shown.
    fn ends(mut self) -> (Option<i32>, String) {
        while self.read() {}
        (self.script.wait().unwrap().code(), self.shown.replace("\r\n", "\n"))
    }
}

#[test]
fn progress_is_shown_at_a_terminal_and_ctrl_c_leaves_the_task() {
    let clerk = Clerk::start("pty-send", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = Terminal::run(&user, "send never >out.txt");
    // What is asked for goes elsewhere, so this is said on stderr.
    terminal.until(" WORKING\r\n");
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(130), "{shown}");
    let progress = shown.lines().find_map(|line| line.strip_prefix("task ")).unwrap();
    let id = progress.split(' ').next().unwrap();
    let said = |label| field(&shown, label).unwrap_or_else(|| panic!("no {label} in {shown}"));
    // Behind the ^C that the terminal echoes.
    assert!(shown.contains(&format!("Error: interrupted; task {id} goes on\n")), "{shown}");
    assert_eq!(said("Code"), "PEREGRINE_ERR_INTERRUPTED");
    assert_eq!(said("Hint"), format!("peregrine task cancel {id}"));
    let out = fs::read_to_string(user.path("work/out.txt")).unwrap();
    assert_eq!((field(&out, "Task"), field(&out, "State")), (Some(id), Some("WORKING")), "{out}");
    assert_eq!(user.json(&["task", "get", id])["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(user.json(&["task", "cancel", id])["status"]["state"], "TASK_STATE_CANCELED");
}

#[test]
fn progress_is_shown_nowhere_else() {
    let clerk = Clerk::start("pty-piped", &[]);
    let user = User::of(&clerk.url());
    let (code, shown) = Terminal::run(&user, "send slow 2>err.txt").ends();
    assert_eq!((code, field(&shown, "State")), (Some(0), Some("COMPLETED")), "{shown}");
    assert!(!shown.lines().any(|line| line.starts_with("task ")), "{shown}");
    assert_eq!(fs::read_to_string(user.path("work/err.txt")).unwrap(), "");
}

#[test]
fn chat_prompts_and_shows_words_alone() {
    let clerk = Clerk::start("pty-chat", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = Terminal::run(&user, "chat");
    terminal.until("Talking with clerk; Ctrl-D ends it\r\n");
    for (line, words) in [("large", "one large coffee\r\n"), ("ask", "What size?\r\n")] {
        terminal.until("> ");
        terminal.types(&format!("{line}\n"));
        terminal.until(words);
    }
    terminal.until("> ");
    terminal.types(CTRL_D);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("Text:") && !shown.contains("Artifact:"), "{shown}");
    // How to go on stands behind the last of them.
    assert!(field(&shown, "Next").unwrap().contains("--task-id"), "{shown}");
}

#[test]
fn ctrl_c_at_the_prompt_says_how_to_cancel_the_task_that_waits() {
    let clerk = Clerk::start("pty-chat-ctrl-c", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = Terminal::run(&user, "chat");
    terminal.until("> ");
    terminal.types("ask\n");
    terminal.until("What size?\r\n");
    terminal.until("> ");
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(130), "{shown}");
    // On a line of its own, below the prompt and the ^C that the terminal echoes.
    let id = field(&shown, "Task").unwrap_or_else(|| panic!("no task in {shown}"));
    assert_eq!(field(&shown, "Hint"), Some(&*format!("peregrine task cancel {id}")), "{shown}");
    assert_eq!(user.json(&["task", "get", id])["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

#[test]
fn ctrl_c_at_the_first_prompt_ends_its_line() {
    let clerk = Clerk::start("pty-chat-first", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = Terminal::run(&user, "chat");
    terminal.until("> ");
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("\nError: interrupted\n"), "{shown}");
}

#[test]
fn ctrl_c_at_the_prompt_says_how_to_go_on_with_the_conversation() {
    let clerk = Clerk::start("pty-chat-next", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = Terminal::run(&user, "chat");
    terminal.until("> ");
    terminal.types("large\n");
    terminal.until("one large coffee\r\n");
    terminal.until("> ");
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(130), "{shown}");
    let context = field(&shown, "Context").unwrap_or_else(|| panic!("no context in {shown}"));
    let next = format!("peregrine chat --context-id {context}");
    assert_eq!(field(&shown, "Next"), Some(&*next), "{shown}");
}
