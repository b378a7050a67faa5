//! The command line at a terminal, which `script` of util-linux makes: output that only a terminal
//! gets, and Ctrl-C as a terminal sends it.
//!
//! The tests wait only for text. Each command has a `--timeout`, so that a test ends even if its
//! text never comes; in a `chat` it applies to each turn, and the prompt waits without end.

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
const PROMPT: &str = "> ";

/// A shell's command at a terminal of its own.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    shown: String,
    /// The end of the output that was checked.
    seen: usize,
}

impl Terminal {
    /// Runs the client with these words, as a shell reads them.
    fn run(user: &User, words: &str) -> Terminal {
        Terminal::of(user, words, "xterm")
    }

    /// The same, at a terminal of this kind.
    fn of(user: &User, words: &str, kind: &str) -> Terminal {
        let line = format!("exec \"$CLIENT\" {words} --timeout 60s");
        let words = ["--quiet", "--return", "--flush", "--command", &line, "/dev/null"];
        let mut command = user.command_of("script", &words);
        command.env("CLIENT", PATH).env("SHELL", "/bin/sh").env("TERM", kind).stdin(Stdio::piped());
        let mut script = command.spawn().expect("script of util-linux");
        let (keys, screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        Terminal { script, keys, screen, shown: String::new(), seen: 0 }
    }

    /// Waits until this text follows all earlier text.
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

    /// Waits for the end; returns the exit code, and the whole screen.
    fn ends(mut self) -> (Option<i32>, String) {
        while self.read() {}
        (self.script.wait().unwrap().code(), self.shown.replace("\r\n", "\n"))
    }
}

#[test]
fn terminal_shows_progress_and_ctrl_c_leaves_task_running() {
    let clerk = Clerk::start("pty-send", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = Terminal::run(&user, "send never >out.txt");
    // The result goes to a file, so the state is printed on stderr.
    terminal.until(" WORKING\r\n");
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(130), "{shown}");
    let progress = shown.lines().find_map(|line| line.strip_prefix("task ")).unwrap();
    let id = progress.split(' ').next().unwrap();
    let value_of = |label| field(&shown, label).unwrap_or_else(|| panic!("no {label} in {shown}"));
    // After the ^C that the terminal echoes.
    assert!(
        shown.contains(&format!("Error: interrupted; task {id} is still running\n")),
        "{shown}"
    );
    assert_eq!(value_of("Code"), "PEREGRINE_ERR_INTERRUPTED");
    assert_eq!(value_of("Hint"), format!("peregrine task cancel {id}"));
    let out = fs::read_to_string(user.path("work/out.txt")).unwrap();
    assert_eq!((field(&out, "Task"), field(&out, "State")), (Some(id), Some("WORKING")), "{out}");
    assert_eq!(user.json(&["task", "get", id])["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(user.json(&["task", "cancel", id])["status"]["state"], "TASK_STATE_CANCELED");
}

#[test]
fn progress_is_not_printed_when_stderr_is_a_file() {
    let clerk = Clerk::start("pty-piped", &[]);
    let user = User::of(&clerk.url());
    let (code, shown) = Terminal::run(&user, "send slow 2>err.txt").ends();
    assert_eq!((code, field(&shown, "State")), (Some(0), Some("COMPLETED")), "{shown}");
    assert!(!shown.lines().any(|line| line.starts_with("task ")), "{shown}");
    assert_eq!(fs::read_to_string(user.path("work/err.txt")).unwrap(), "");
}

/// At the prompt of a `chat`, before any turn.
fn chat(user: &User) -> Terminal {
    let mut terminal = Terminal::run(user, "chat");
    terminal.until("Chat with clerk; Ctrl-C ends a turn, Ctrl-D ends the chat\r\n");
    terminal.until(PROMPT);
    terminal
}

#[test]
fn chat_prompts_and_prints_reply_text_without_labels() {
    let clerk = Clerk::start("pty-chat", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = chat(&user);
    for (line, words) in [("large", "one large coffee\r\n"), ("ask", "What size?\r\n")] {
        terminal.types(&format!("{line}\r"));
        terminal.until(words);
        terminal.until(PROMPT);
    }
    terminal.types(CTRL_D);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("Text:") && !shown.contains("Artifact:"), "{shown}");
    // The next command follows the last task.
    assert!(field(&shown, "Next").unwrap().contains("--task-id"), "{shown}");
}

#[test]
fn chat_supports_line_editing_and_history() {
    let clerk = Clerk::start("pty-chat-edit", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = chat(&user);
    // To the left, and one in between.
    terminal.types("lrge\u{1b}[D\u{1b}[D\u{1b}[Da\r");
    terminal.until("one large coffee\r\n");
    terminal.until(PROMPT);
    // Up: the line before.
    terminal.types("\u{1b}[A\r");
    terminal.until("one large coffee\r\n");
    terminal.until(PROMPT);
    terminal.types(CTRL_D);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(user.json(&["task", "list"])["totalSize"], 2);
}

#[test]
fn ctrl_c_at_the_prompt_clears_the_line() {
    let clerk = Clerk::start("pty-chat-clear", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = chat(&user);
    terminal.types("ask");
    terminal.types(CTRL_C);
    terminal.until(PROMPT);
    terminal.types("large\r");
    terminal.until("one large coffee\r\n");
    terminal.until(PROMPT);
    terminal.types(CTRL_D);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("interrupted"), "{shown}");
    assert_eq!(user.json(&["task", "list"])["totalSize"], 1);
}

#[test]
fn ctrl_c_ends_the_turn_but_not_the_conversation() {
    let clerk = Clerk::start("pty-chat-turn", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = chat(&user);
    terminal.types("stall\r");
    terminal.until("one moment\r\n");
    terminal.types(CTRL_C);
    terminal.until("Hint: peregrine task cancel ");
    terminal.until(PROMPT);
    terminal.types("large\r");
    terminal.until("one large coffee\r\n");
    terminal.until(PROMPT);
    terminal.types(CTRL_D);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
    let id = field(&shown, "Hint").and_then(|hint| hint.split(' ').next_back()).unwrap();
    assert!(
        shown.contains(&format!("\nError: interrupted; task {id} is still running\n")),
        "{shown}"
    );
    let tasks = user.json(&["task", "list"]);
    let context = |at: usize| tasks["tasks"][at]["contextId"].as_str().unwrap();
    assert_eq!((&tasks["totalSize"], context(0)), (&2.into(), context(1)));
    let next = format!("peregrine chat --context-id {}", context(0));
    assert_eq!(field(&shown, "Next"), Some(&*next), "{shown}");
}

#[test]
fn failed_turn_does_not_end_the_chat() {
    let clerk = Clerk::start("pty-chat-failed", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = Terminal::run(&user, "chat --context-id c-1 --task-id none");
    terminal.until(PROMPT);
    terminal.types("large\r");
    terminal.until("Code: TaskNotFoundError\r\n");
    terminal.until(PROMPT);
    terminal.types(CTRL_D);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
}

#[test]
fn dumb_terminal_chat_reads_plain_lines() {
    let clerk = Clerk::start("pty-chat-dumb", &[]);
    let user = User::of(&clerk.url());
    let mut terminal = Terminal::of(&user, "chat", "dumb");
    terminal.until(PROMPT);
    terminal.types("ask");
    terminal.types(CTRL_C);
    terminal.until(PROMPT);
    terminal.types("large\n");
    terminal.until("one large coffee\r\n");
    terminal.until(PROMPT);
    terminal.types(CTRL_D);
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(user.json(&["task", "list"])["totalSize"], 1);
}
