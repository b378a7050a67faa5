//! The failure of a command: a code, a sentence, a hint, and a matching exit code.
//!
//! Invariant: two layers of codes never mix. An error that the protocol names keeps that name; a
//! failure before or outside a request has a code of the command line's specification. A failed
//! task is not a failure of the command.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{json_line::json_line, settings::OutputFormat, text::one_line, usage::UsageError};

/// A failure of the command line (its specification, §11.4).
#[derive(Clone, Debug, PartialEq)]
pub struct CommandFailure {
    /// The kind.
    pub code: FailureCode,
    /// One sentence for the user, without secrets.
    pub message: String,
    /// The next step for the user, if there is one.
    pub hint: Option<String>,
    /// The code of the transport: a number of JSON-RPC, a status of HTTP or gRPC.
    pub a2a_code: Option<Value>,
}

/// The kind of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// Wrong arguments.
    Usage,
    /// There is no card at the reference.
    CardNotFound,
    /// The card cannot be read, or offers no way to call the agent.
    CardInvalid,
    /// The object does not exist on a Peregrine server; a code of our own.
    NotFound,
    /// There is no answer.
    Unreachable,
    /// The agent requires credentials, and none are set.
    CredentialsMissing,
    /// The agent rejected the credentials.
    AuthFailed,
    /// `--timeout` has passed.
    Timeout,
    /// Ctrl-C; a code of our own, since the specification has none.
    Interrupted,
    /// The agent is temporarily overloaded; a code of our own, since neither specification has one.
    Overloaded,
    /// The agent is shutting down, or its proxy cannot reach it; a code of our own.
    Unavailable,
    /// Any other error that the agent did not report.
    Internal,
    /// The agent's error, by its name in A2A 1.0 §3.3.2.
    Protocol(String),
}

impl FailureCode {
    /// The name in the output.
    pub fn name(&self) -> &str {
        match self {
            FailureCode::Usage => "A2ACLI_ERR_USAGE",
            FailureCode::CardNotFound => "A2ACLI_ERR_CARD_NOT_FOUND",
            FailureCode::CardInvalid => "A2ACLI_ERR_CARD_INVALID",
            FailureCode::NotFound => "PEREGRINE_ERR_NOT_FOUND",
            FailureCode::Unreachable => "A2ACLI_ERR_UNREACHABLE",
            FailureCode::CredentialsMissing => "A2ACLI_ERR_CREDENTIALS_MISSING",
            FailureCode::AuthFailed => "A2ACLI_ERR_AUTH_FAILED",
            FailureCode::Timeout => "A2ACLI_ERR_TIMEOUT",
            FailureCode::Interrupted => "PEREGRINE_ERR_INTERRUPTED",
            FailureCode::Overloaded => "PEREGRINE_ERR_OVERLOADED",
            FailureCode::Unavailable => "PEREGRINE_ERR_UNAVAILABLE",
            FailureCode::Internal => "A2ACLI_ERR_INTERNAL",
            FailureCode::Protocol(name) => name,
        }
    }

    /// The exit code of the process.
    pub fn exit(&self) -> u8 {
        match self {
            FailureCode::CardInvalid
            | FailureCode::Overloaded
            | FailureCode::Unavailable
            | FailureCode::Internal
            | FailureCode::Protocol(_) => 1,
            FailureCode::Usage => 2,
            FailureCode::CardNotFound | FailureCode::NotFound | FailureCode::Unreachable => 3,
            FailureCode::CredentialsMissing | FailureCode::AuthFailed => 4,
            FailureCode::Timeout => 5,
            // The exit code that shells report after SIGINT.
            FailureCode::Interrupted => 130,
        }
    }
}

impl CommandFailure {
    /// A failure with a sentence.
    pub fn new(code: FailureCode, message: impl Into<String>) -> CommandFailure {
        CommandFailure { code, message: message.into(), hint: None, a2a_code: None }
    }

    /// A failure that the output already reports: the process only returns an exit code.
    pub fn reported(code: FailureCode) -> CommandFailure {
        CommandFailure::new(code, "")
    }

    /// An error of usage.
    pub fn usage(message: impl Into<String>) -> CommandFailure {
        CommandFailure::new(FailureCode::Usage, message)
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> CommandFailure {
        self.hint = Some(hint.into());
        self
    }

    /// The error object of the command line's specification, on one line.
    pub fn json(&self) -> String {
        let error = json!({
            "code": self.code.name(),
            "message": self.message,
            "hint": self.hint,
            "a2aCode": self.a2a_code,
        });
        json_line(&json!({ "error": error }).to_string())
    }

    /// The error as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String never fails.
        let _ = writeln!(text, "Error: {}", one_line(&self.message));
        let _ = writeln!(text, "Code: {}", one_line(self.code.name()));
        if let Some(code) = &self.a2a_code {
            let _ = writeln!(text, "A2A code: {}", one_line(&code.to_string()));
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(text, "Hint: {}", one_line(hint));
        }
        text
    }

    /// The error in this format.
    pub fn shown(&self, format: OutputFormat) -> String {
        match format {
            OutputFormat::Text => self.text(),
            OutputFormat::Json => self.json(),
        }
    }
}

impl From<UsageError> for CommandFailure {
    fn from(UsageError(line): UsageError) -> CommandFailure {
        CommandFailure::usage(line)
    }
}
