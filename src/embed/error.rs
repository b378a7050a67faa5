//! Errors between the program and the server.

use std::fmt;

use crate::{agent::Closed, client::CallError};

/// Errors of a turn or a server.
#[derive(Debug)]
pub enum HostError {
    /// The turn is over, or its task takes no more events: it has ended, or was canceled.
    Closed,
    /// The card of an agent is unusable: the member and the reason.
    Card(String),
    /// The event could not be read.
    Event(String),
    /// The event names another task than the turn's; holds the turn's task id.
    OtherTask(String),
    /// The server could not start, or is not running: a text for the operator.
    Server(String),
    /// `connections_max` calls, requests and connections of the program are open.
    Full,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Closed => f.write_str("the task takes no more events: it has ended"),
            HostError::Card(why) => write!(f, "the card of the agent cannot be used: {why}"),
            HostError::Event(why) => write!(f, "the event cannot be read: {why}"),
            HostError::OtherTask(id) => {
                write!(f, "the event names another task than that of the turn, which is {id}")
            }
            HostError::Server(why) => f.write_str(why),
            HostError::Full => {
                f.write_str("connections_max calls, requests and connections are open")
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
