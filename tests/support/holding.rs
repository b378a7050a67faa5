//! An agent that holds its worker for as long as a test wants.

use std::sync::{
    Mutex,
    mpsc::{Receiver, Sender, channel},
};

use peregrine::{
    agent::{Agent, Turn},
    model::TaskState,
};

/// Completes every task; a message whose text begins with "hold" holds its worker until it is told
/// to go on.
pub struct Holding {
    began: Sender<()>,
    going: Mutex<Receiver<()>>,
}

impl Holding {
    /// The agent, what hears of each message that is held, and what lets one of them go.
    pub fn new() -> (Holding, Receiver<()>, Sender<()>) {
        let ((began, hear), (go, going)) = (channel(), channel());
        (Holding { began, going: going.into() }, hear, go)
    }
}

impl Agent for Holding {
    fn start(&self, mut turn: Turn<'_>) {
        let text = turn.message.parts().next().and_then(|part| part.as_text());
        if text.is_some_and(|text| text.raw().starts_with(b"hold")) {
            self.began.send(()).unwrap();
            self.going.lock().unwrap().recv().unwrap();
        }
        turn.status(TaskState::Completed);
    }
}
