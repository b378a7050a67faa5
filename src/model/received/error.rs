//! Errors in a server's answer: the member, and the expected value.

use std::{borrow::Cow, fmt};

/// A server's answer cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The path of the member within the answer: `task.history[2].role`; empty: the whole answer.
    pub path: String,
    /// The expectation, as the end of a sentence: `must be a task state`.
    pub expected: Cow<'static, str>,
}

impl ReadError {
    /// An error in the whole value, or in a member with a path that [`ReadError::within`] adds.
    pub fn new(expected: impl Into<Cow<'static, str>>) -> ReadError {
        ReadError { path: String::new(), expected: expected.into() }
    }

    /// An error in this member.
    #[cold]
    pub fn at(member: &str, expected: impl Into<Cow<'static, str>>) -> ReadError {
        ReadError { path: member.to_owned(), expected: expected.into() }
    }

    /// The same error, within the parent's member of this name.
    #[cold]
    #[must_use]
    pub fn within(mut self, member: &str) -> ReadError {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path.insert_str(0, dot);
        self.path.insert_str(0, member);
        self
    }

    /// The same error, within the parent list's element of this number, from 0.
    #[cold]
    #[must_use]
    pub fn element(self, index: usize) -> ReadError {
        self.within(&format!("[{index}]"))
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "it {}", self.expected),
            path => write!(f, "{path} {}", self.expected),
        }
    }
}

impl std::error::Error for ReadError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_path_is_built_from_inner_to_outer() {
        let error = ReadError::at("role", "must be a role").element(2).within("history");
        assert_eq!(error.clone().within("task").to_string(), "task.history[2].role must be a role");
        assert_eq!(ReadError::new("must be an object").to_string(), "it must be an object");
        assert_eq!(ReadError::new("x").element(0).within("parts").path, "parts[0]");
    }
}
