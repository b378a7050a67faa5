//! A run of the client, with its own folder and environment.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::Value;

/// The executable.
pub const PATH: &str = env!("CARGO_BIN_EXE_peregrine");

/// The folder of a user, deleted on drop.
pub struct User {
    folder: PathBuf,
    variables: Vec<(String, String)>,
}

/// The output of a run.
#[derive(Debug)]
pub struct RunOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl User {
    pub fn new() -> User {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("peregrine-cli-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("home/.config/a2a-cli")).unwrap();
        fs::create_dir_all(folder.join("work/inner")).unwrap();
        User { folder, variables: Vec::new() }
    }

    /// A user with this agent in the environment.
    pub fn of(url: &str) -> User {
        User::new().with("A2ACLI_AGENT_CARD", url)
    }

    pub fn with(mut self, name: &str, value: &str) -> User {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A file in the user's folder; runs begin in `work`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        self.command_of(PATH, words)
    }

    /// Another program in the same folder and environment.
    pub fn command_of<S: AsRef<OsStr>>(&self, program: &str, words: &[S]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let is_ours = ["A2ACLI_", "PEREGRINE_"]
                .iter()
                .any(|prefix| name.to_string_lossy().starts_with(prefix));
            let is_proxy = name.to_string_lossy().to_ascii_lowercase().ends_with("_proxy");
            if is_ours || is_proxy {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.folder.join("home")).current_dir(self.folder.join("work"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> RunOutput {
        RunOutput::of(self.command(words).spawn().unwrap())
    }

    /// Runs it with this standard input.
    pub fn run_with(&self, words: &[&str], input: &str) -> RunOutput {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        RunOutput::of(child)
    }

    /// Runs it, expects success, and returns its output.
    pub fn ok(&self, words: &[&str]) -> RunOutput {
        let output = self.run(words);
        assert_eq!(output.code, Some(0), "{words:?}: {output:?}");
        output
    }

    /// The only document of a run with `-o json`.
    pub fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["-o", "json"]).collect();
        self.ok(&words).document()
    }

    /// Runs it with `-o json`, expects this code and exit code, and returns the error object.
    pub fn failure(&self, words: &[&str], code: &str, exit: i32) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["-o", "json"]).collect();
        let output = self.run(&words);
        assert_eq!(output.code, Some(exit), "{words:?}: {output:?}");
        let error = output.document()["error"].clone();
        assert_eq!(error["code"], code, "{words:?}: {output:?}");
        let keys: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["a2aCode", "code", "hint", "message"]);
        error
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl RunOutput {
    pub fn of(child: Child) -> RunOutput {
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        RunOutput { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The only document of its output.
    pub fn document(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The documents of its output, one a line.
    pub fn lines(&self) -> Vec<Value> {
        let read = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.out.lines().map(read).collect()
    }

    /// The value of the first field with this label.
    pub fn field(&self, label: &str) -> &str {
        field(&self.out, label).unwrap_or_else(|| panic!("no {label} in {self:?}"))
    }

    /// The content of the first block with this label.
    pub fn block(&self, label: &str) -> &str {
        let begin = format!("{label}:\n");
        let at = self.out.find(&begin).unwrap_or_else(|| panic!("no {label} in {self:?}"));
        let content = &self.out[at + begin.len()..];
        &content[..content.find("\n\n").unwrap()]
    }
}

/// The value of the first field with this label.
pub fn field<'t>(text: &'t str, label: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(": "))
}

/// Panics unless every line is a field, a block's label, its content or its end (the command line's
/// specification, §11.2).
pub fn assert_floor(text: &str) {
    let mut in_block = false;
    for line in text.lines() {
        assert!(!line.contains('\u{1b}') && !line.contains('\r'), "{line:?} in {text}");
        if in_block {
            in_block = !line.is_empty();
            continue;
        }
        let (label, value) = line.split_once(':').unwrap_or_else(|| panic!("{line:?} in {text}"));
        let is_label = label.chars().all(|c| c.is_ascii_alphanumeric() || c == ' ');
        assert!(is_label && !label.is_empty(), "{line:?} in {text}");
        in_block = value.is_empty();
        assert!(in_block || value.starts_with(' '), "{line:?} in {text}");
    }
    assert!(!in_block, "an open block in {text}");
}

/// The files of a folder, by name.
pub fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
