//! The command of an agent, and the environment of its processes.

use std::{env, fmt, path::Path, process::Stdio};
#[cfg(all(feature = "ffi", unix))]
use std::{process::Command as StdCommand, sync::OnceLock};

use tokio::process::Command;

/// Prepares each process of an agent before it starts.
#[cfg(all(feature = "ffi", unix))]
static SET_UP: OnceLock<fn(&mut StdCommand)> = OnceLock::new();

/// Sets the function that prepares each process of an agent; later calls change nothing.
#[cfg(all(feature = "ffi", unix))]
pub(crate) fn set_up_processes(set_up: fn(&mut StdCommand)) {
    SET_UP.get_or_init(|| set_up);
}

/// A program, its arguments, and the names of the variables that it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessCommand {
    program: String,
    arguments: Vec<String>,
    /// `None`: all variables.
    environment: Option<Vec<String>>,
}

/// Why a text is not a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessCommandError {
    /// The text has no word.
    Empty,
    /// A quote is not closed, or the text ends with a backslash.
    Quotes,
    /// The program is not a file, or not in `PATH`.
    NotFound(String),
}

impl fmt::Display for ProcessCommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessCommandError::Empty => f.write_str("the command is empty"),
            ProcessCommandError::Quotes => f.write_str("the command has an open quote"),
            ProcessCommandError::NotFound(program) if program.contains('/') => {
                write!(f, "no such file: {program}")
            }
            ProcessCommandError::NotFound(program) => {
                write!(f, "cannot find the program {program:?} in PATH")
            }
        }
    }
}

impl std::error::Error for ProcessCommandError {}

impl ProcessCommand {
    /// Splits a command line into words as a POSIX shell does (quotes and backslashes), without a
    /// shell: variables, globs and pipes have no meaning.
    ///
    /// # Errors
    /// [`ProcessCommandError`].
    pub fn parse(line: &str) -> Result<ProcessCommand, ProcessCommandError> {
        let words = shlex::split(line).ok_or(ProcessCommandError::Quotes)?;
        let mut words = words.into_iter();
        let program = words.next().ok_or(ProcessCommandError::Empty)?;
        if !is_found(&program) {
            return Err(ProcessCommandError::NotFound(program));
        }
        Ok(ProcessCommand { program, arguments: words.collect(), environment: Some(Vec::new()) })
    }

    /// A command line for `sh -c`.
    pub fn shell(line: &str) -> ProcessCommand {
        let arguments = vec!["-c".to_owned(), line.to_owned()];
        ProcessCommand { program: "sh".to_owned(), arguments, environment: Some(Vec::new()) }
    }

    /// Adds variables of this process's environment by their names. By default a process gets only
    /// `PATH`.
    #[must_use]
    pub fn environment(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.environment.get_or_insert_default().extend(names.into_iter().map(Into::into));
        self
    }

    /// Passes the whole environment of this process to the agent's processes.
    #[must_use]
    pub fn whole_environment(mut self) -> Self {
        self.environment = None;
        self
    }

    /// The command with three pipes and its environment.
    pub(super) fn prepare(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if let Some(names) = &self.environment {
            command.env_clear();
            for name in names.iter().map(String::as_str).chain(["PATH"]) {
                if let Some(value) = env::var_os(name) {
                    command.env(name, value);
                }
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        #[cfg(all(feature = "ffi", unix))]
        if let Some(set_up) = SET_UP.get() {
            set_up(command.as_std_mut());
        }
        command
    }
}

/// Whether the program is a file at its path, or in `PATH` if it is only a name.
fn is_found(program: &str) -> bool {
    if program.contains('/') || !cfg!(unix) {
        return !cfg!(unix) || Path::new(program).is_file();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_are_one_argument() {
        let command = ProcessCommand::parse(r#"sh -c 'a b' "c d" e\ f"#).unwrap();
        assert_eq!(command.arguments, ["-c", "a b", "c d", "e f"]);
    }

    #[test]
    fn unusable_commands_are_errors() {
        assert_eq!(ProcessCommand::parse(" "), Err(ProcessCommandError::Empty));
        assert_eq!(ProcessCommand::parse("sh 'a"), Err(ProcessCommandError::Quotes));
        let missing = ProcessCommandError::NotFound("no-such-program".to_owned());
        assert_eq!(ProcessCommand::parse("no-such-program x"), Err(missing));
        let missing = ProcessCommand::parse("./nothere.sh").unwrap_err();
        assert_eq!(missing.to_string(), "no such file: ./nothere.sh");
    }
}
