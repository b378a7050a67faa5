//! What is known of webhooks that have stopped: dead letters.
//!
//! Law: no payload is kept, only where in its task's events each has stopped. There are so many and
//! no more: the oldest leaves first.

use std::collections::VecDeque;

use super::schedule::PostPlace;

/// Why a webhook does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyDead {
    /// It was tried for as long as it may be.
    GivenUp,
    /// Its task has left before everything was posted.
    TaskLeft,
    /// No credential of its owner is valid any more.
    CredentialWithdrawn,
}

impl WhyDead {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            WhyDead::GivenUp => "given_up",
            WhyDead::TaskLeft => "task_left",
            WhyDead::CredentialWithdrawn => "credential_withdrawn",
        }
    }
}

/// A webhook that has stopped.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Its number: whoever replays or drops it names that.
    pub number: u64,
    /// The webhook, as long as there is one.
    pub place: PostPlace,
    /// Raw id of its task.
    pub task_id: Box<[u8]>,
    /// Raw id of the configuration.
    pub config_id: Box<[u8]>,
    /// Scheme, host and port of its URL.
    pub origin: Box<str>,
    /// The last event that was posted.
    pub seq: u64,
    /// Why it does not go on.
    pub why: WhyDead,
    /// Why the last post has failed; empty: none has.
    pub error: Box<str>,
    /// When it has stopped, in ms since the Unix epoch.
    pub unix_ms: u64,
}

/// The youngest dead letters.
#[derive(Debug)]
pub(super) struct DeadLetters {
    letters: VecDeque<DeadLetter>,
    most: usize,
    last: u64,
}

impl DeadLetters {
    pub fn new(most: usize) -> DeadLetters {
        DeadLetters { letters: VecDeque::new(), most, last: 0 }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes one in, of the number that came last.
    pub fn push(&mut self, letter: DeadLetter) {
        if self.letters.len() >= self.most {
            self.letters.pop_front();
        }
        if self.most > 0 {
            self.letters.push_back(letter);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &DeadLetter> {
        self.letters.iter()
    }

    pub fn len(&self) -> usize {
        self.letters.len()
    }

    pub fn find(&self, number: u64) -> Option<&DeadLetter> {
        self.letters.get(self.place(number)?)
    }

    /// False: there is none of this number.
    pub fn remove(&mut self, number: u64) -> bool {
        self.place(number).and_then(|at| self.letters.remove(at)).is_some()
    }

    /// Forgets all; says how many there were.
    pub fn clear(&mut self) -> usize {
        let count = self.letters.len();
        self.letters.clear();
        count
    }

    /// Their numbers grow from each to the next.
    fn place(&self, number: u64) -> Option<usize> {
        self.letters.binary_search_by_key(&number, |letter| letter.number).ok()
    }
}
