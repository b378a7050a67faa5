//! Dead letters: records of stopped webhooks.
//!
//! Invariants: a letter has no payload, only the position in its task's events at which its webhook
//! stopped. If there are too many letters, the owner furthest above its equal share loses its
//! oldest letter.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::schedule::WebhookSlot;
use crate::shares::{Holder, Newcomer};

/// Why a webhook has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyDead {
    /// The retries reached the deadline.
    GivenUp,
    /// The task was evicted before everything was delivered.
    TaskLeft,
    /// The owner has no valid credential any more.
    CredentialWithdrawn,
}

impl WhyDead {
    /// The name in metrics and listings.
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
    /// The number of the letter, which identifies it for replay and removal.
    pub number: u64,
    /// The webhook, while it exists.
    pub slot: WebhookSlot,
    /// The owner that the letter is charged to.
    pub(super) holder: Holder,
    /// The task, as its service names it.
    pub(super) task: u64,
    /// Raw id of the task.
    pub task_id: Box<[u8]>,
    /// Raw id of the configuration.
    pub config_id: Box<[u8]>,
    /// Scheme, host and port of the URL.
    pub origin: Box<str>,
    /// The last event that was delivered.
    pub seq: u64,
    /// Why the webhook has stopped.
    pub why: WhyDead,
    /// Why the latest delivery failed; empty: no delivery failed.
    pub error: Box<str>,
    /// When the webhook stopped, in ms since the Unix epoch.
    pub unix_ms: u64,
    /// Whether the letter can be replayed: its configuration exists, and its task or a retained
    /// copy of the task.
    pub is_replayable: bool,
}

/// The newest dead letters.
#[derive(Debug)]
pub(super) struct DeadLetters {
    letters: VecDeque<DeadLetter>,
    by_holder: HashMap<Holder, usize, RandomState>,
    most: usize,
    last: u64,
}

impl DeadLetters {
    pub fn new(most: usize) -> DeadLetters {
        DeadLetters { letters: VecDeque::new(), by_holder: HashMap::default(), most, last: 0 }
    }

    /// The next number for a letter.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds the newest letter. Returns the letter that is evicted, possibly the new one.
    pub fn push(&mut self, letter: DeadLetter) -> Option<DeadLetter> {
        let holder = letter.holder;
        let evicted = match self.has_room(holder) {
            true => None,
            false => match self.evict(holder) {
                None => return Some(letter),
                evicted => evicted,
            },
        };
        *self.by_holder.entry(holder).or_default() += 1;
        self.letters.push_back(letter);
        evicted
    }

    fn has_room(&self, holder: Holder) -> bool {
        let of_anonymous = || {
            let all = self.by_holder.iter().filter(|(holder, _)| holder.is_stranger());
            all.map(|(_, count)| count).sum::<usize>()
        };
        self.letters.len() < self.most && (!holder.is_stranger() || of_anonymous() < self.most / 2)
    }

    fn evict(&mut self, newcomer: Holder) -> Option<DeadLetter> {
        let held = self.by_holder.iter().map(|(holder, count)| (*holder, *count));
        let victim = Newcomer { holder: newcomer, more: 1, most: self.most }.victim(held)?;
        let at = self.letters.iter().position(|letter| letter.holder == victim)?;
        self.remove_at(at)
    }

    fn remove_at(&mut self, at: usize) -> Option<DeadLetter> {
        let letter = self.letters.remove(at)?;
        if let Some(count) = self.by_holder.get_mut(&letter.holder) {
            *count -= 1;
            if *count == 0 {
                self.by_holder.remove(&letter.holder);
            }
        }
        Some(letter)
    }

    /// Whether any letter is charged to a holder.
    pub fn has_any_of(&self, holder: Holder) -> bool {
        self.by_holder.contains_key(&holder)
    }

    pub fn iter(&self) -> impl Iterator<Item = &DeadLetter> {
        self.letters.iter()
    }

    pub fn len(&self) -> usize {
        self.letters.len()
    }

    pub fn find(&self, number: u64) -> Option<&DeadLetter> {
        self.letters.get(self.slot(number)?)
    }

    /// Removes the letter with this number.
    pub fn remove(&mut self, number: u64) -> Option<DeadLetter> {
        self.slot(number).and_then(|at| self.remove_at(at))
    }

    /// Removes and returns all letters.
    pub fn clear(&mut self) -> VecDeque<DeadLetter> {
        self.by_holder.clear();
        std::mem::take(&mut self.letters)
    }

    /// The position of the letter with this number; the letters are sorted by number.
    fn slot(&self, number: u64) -> Option<usize> {
        self.letters.binary_search_by_key(&number, |letter| letter.number).ok()
    }
}
