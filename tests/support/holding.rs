//! An agent that blocks its worker until the test releases it.

use std::sync::{
    Mutex,
    mpsc::{Receiver, Sender, channel},
};

use peregrine::{
    agent::{Agent, Turn},
    model::TaskState,
};

/// Completes each task; a message with a text that begins with "hold" blocks its worker until the
/// test releases it.
pub struct Holding {
    began: Sender<()>,
    going: Mutex<Receiver<()>>,
}

impl Holding {
    /// The agent, a receiver notified of each blocked message, and a sender that releases one.
    pub fn new() -> (Holding, Receiver<()>, Sender<()>) {
        let ((began, blocked), (go, going)) = (channel(), channel());
        (Holding { began, going: going.into() }, blocked, go)
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
