//! Errors between the program and the server.

use std::fmt;

use crate::{agent::Closed, client::CallError};

/// Errors of a turn or a server.
#[derive(Debug)]
pub enum HostError {
    /// The turn is over, or its task has ended or was canceled and accepts no more events.
    Closed,
    /// The card of an agent is unusable: the member and the reason.
    Card(String),
    /// The event, or the request of a call, is invalid: the reason.
    Event(String),
    /// The event names another task than that of the turn, which has this id.
    OtherTask(String),
    /// The server could not start, or is not running: a text for the operator.
    Server(String),
    /// Too many calls, requests and connections of the program are open (`connections_max`).
    Full,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Closed => f.write_str("the task has ended and accepts no more events"),
            HostError::Card(why) => write!(f, "the card of the agent cannot be used: {why}"),
            HostError::Event(why) => write!(f, "invalid event or request: {why}"),
            HostError::OtherTask(id) => {
                write!(f, "the event names another task than {id}, the task of the turn")
            }
            HostError::Server(why) => f.write_str(why),
            HostError::Full => {
                f.write_str("too many open calls, requests and connections (connections_max)")
            }
        }
    }
}

impl std::error::Error for HostError {}

impl From<Closed> for HostError {
    fn from(_: Closed) -> HostError {
        HostError::Closed
    }
}

impl From<CallError> for HostError {
    fn from(error: CallError) -> HostError {
        HostError::Event(error.to_string())
    }
}
