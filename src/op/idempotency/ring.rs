//! The sends behind one lock: in the order in which they came, and found by their names.
//!
//! Law: each has a number, and stands in the place that the last bits of that say; numbers below
//! `first` stand for nothing any more. Those whose hashes have the same last bits are a chain, from
//! the newest down, which ends where the numbers do: one that leaves needs no removal.

use std::{collections::BTreeMap, sync::Mutex};

use crossbeam_utils::CachePadded;

use super::table::{JoinedSend, NamedSend, SendKey, SendLook, Sent, SentMessage, SentTask};

/// Messages whose time is over that one send lets go of at most.
const EXPIRED_MOST: usize = 4;

/// How far a send has come.
#[derive(Clone, Copy)]
pub(super) enum SendStage {
    /// The first runs, with this number of its turn; `is_awaited`: others wait for it.
    Undecided { turn: u64, is_awaited: bool },
    /// It has made this task, or gone on with it.
    Task(SentTask),
    /// It is in [`SendShard::messages`].
    Message,
    /// Nothing is known of it any more.
    Forgotten,
}

/// What is known of a send.
#[derive(Clone, Copy)]
pub(super) struct KnownSend {
    pub send: NamedSend,
    /// When it came, in ms of the monotonic clock.
    pub since_ms: u64,
    /// The number of the one before it in its chain.
    pub before: u64,
    pub stage: SendStage,
}

/// Some of them, under one lock.
#[derive(Default)]
pub(super) struct SendShard {
    /// The numbers of the newest of each chain; as many as places.
    pub heads: Box<[u64]>,
    pub entries: Vec<KnownSend>,
    /// The oldest, and the one that comes next.
    pub first: u64,
    pub next: u64,
    /// How many turns there were.
    pub turns: u64,
    /// Who waits, by turns.
    pub joined: BTreeMap<u64, Vec<JoinedSend>>,
    /// Direct messages, by the numbers of their sends.
    pub messages: BTreeMap<u64, SentMessage>,
    pub message_bytes: usize,
}

impl KnownSend {
    #[inline(always)]
    fn is_turn(&self, own: u64) -> bool {
        matches!(self.stage, SendStage::Undecided { turn, .. } if turn == own)
    }
}

impl SendShard {
    /// One with room for so many entries.
    pub fn new(entries_max: usize) -> CachePadded<Mutex<SendShard>> {
        let places = entries_max.next_power_of_two();
        // No entry has the number that heads and ends of chains have.
        let (first, next) = (places as u64, places as u64);
        let heads = vec![0; places].into();
        CachePadded::new(Mutex::new(SendShard { heads, first, next, ..SendShard::default() }))
    }

    #[inline(always)]
    fn place(&self, bits: u64) -> usize {
        bits as usize & (self.heads.len() - 1)
    }

    #[inline(always)]
    pub fn entry_mut(&mut self, number: u64) -> Option<&mut KnownSend> {
        let at = self.place(number);
        self.entries.get_mut(at)
    }

    /// The number of what is known under a name.
    #[inline(always)]
    pub fn find(&self, name: u128) -> Option<u64> {
        self.find_in(name as u64, |entry| entry.send.name == name)
    }

    /// The number of the newest entry of a chain that is looked for and not forgotten.
    #[inline(always)]
    fn find_in(&self, hash: u64, is_it: impl Fn(&KnownSend) -> bool) -> Option<u64> {
        let mut number = *self.heads.get(self.place(hash))?;
        while number >= self.first {
            let entry = self.entries.get(self.place(number))?;
            if is_it(entry) && !matches!(entry.stage, SendStage::Forgotten) {
                return Some(number);
            }
            number = entry.before;
        }
        None
    }

    /// The entry of the first of equal sends, until it is decided.
    #[inline(always)]
    pub fn own(&mut self, key: SendKey) -> Option<&mut KnownSend> {
        let at = self.place(key.number);
        let is_there = key.number >= self.first
            && self.entries.get(at).is_some_and(|entry| entry.is_turn(key.turn));
        if is_there { self.entries.get_mut(at) } else { self.moved(key) }
    }

    /// The number of the first of equal sends, wherever it stands now.
    pub fn own_number(&self, key: SendKey) -> Option<u64> {
        self.find_in(key.hash, |entry| entry.is_turn(key.turn))
    }

    /// One that had to make room is at the end of the list.
    #[cold]
    #[inline(never)]
    fn moved(&mut self, key: SendKey) -> Option<&mut KnownSend> {
        let number = self.own_number(key)?;
        self.entry_mut(number)
    }

    /// What a send is told under whose name one is known; `None`: that is out of date.
    #[cold]
    #[inline(never)]
    pub fn known(
        &mut self,
        number: u64,
        send: &NamedSend,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Option<SendLook> {
        let at = self.place(number);
        let entry = self.entries.get(at)?;
        let is_undecided = matches!(entry.stage, SendStage::Undecided { .. });
        if entry.since_ms.saturating_add(ttl_ms) <= now_ms && !is_undecided {
            self.forget(number);
            return None;
        }
        if entry.send.content != send.content {
            return Some(SendLook::Conflict);
        }
        // A scope keeps its number while its send runs, and while it has the task.
        let is_of_scope = entry.send.scope == send.scope;
        match entry.stage {
            SendStage::Undecided { .. } if is_of_scope => Some(SendLook::Undecided),
            SendStage::Undecided { .. } => Some(SendLook::Conflict),
            SendStage::Task(task) if is_of_scope => Some(SendLook::Sent(Sent::Task(task))),
            SendStage::Task(_) => Some(SendLook::Gone),
            SendStage::Message => {
                let sent = self.messages.get(&number)?;
                Some(SendLook::Sent(Sent::Message(sent.clone())))
            }
            SendStage::Forgotten => None,
        }
    }

    /// Puts an entry at the end of the list, and says its number.
    #[inline(always)]
    pub fn push(&mut self, entry: KnownSend) -> u64 {
        let number = self.next;
        self.next += 1;
        let at = self.place(entry.send.name as u64);
        let before = std::mem::replace(&mut self.heads[at], number);
        let entry = KnownSend { before, ..entry };
        if let Some(place) = self.entry_mut(number) {
            *place = entry;
            return number;
        }
        if self.entries.len() == self.entries.capacity() {
            self.take_room();
        }
        self.entries.push(entry);
        number
    }

    /// Takes all of the room at once, which is used as entries come.
    #[cold]
    #[inline(never)]
    fn take_room(&mut self) {
        self.entries.reserve_exact(self.heads.len() - self.entries.len());
    }

    /// Empties an entry; it leaves when it is the last.
    pub fn forget(&mut self, number: u64) {
        self.forget_message(number);
        let Some(entry) = self.entry_mut(number) else { return };
        entry.stage = SendStage::Forgotten;
        while self.next > self.first {
            let last = self.place(self.next - 1);
            let Some(&KnownSend { send, before, stage: SendStage::Forgotten, .. }) =
                self.entries.get(last)
            else {
                break;
            };
            // The last of all is the newest of its chain.
            let chain = self.place(send.name as u64);
            self.heads[chain] = before;
            self.next -= 1;
        }
    }

    fn forget_message(&mut self, number: u64) {
        if let Some(sent) = self.messages.remove(&number) {
            self.message_bytes = self.message_bytes.saturating_sub(sent.held_bytes());
        }
    }

    /// Takes out the first entry that is decided; false: there is none.
    #[inline(always)]
    pub fn evict(&mut self) -> bool {
        let first = self.entries.get(self.place(self.first));
        if let Some(KnownSend { stage: SendStage::Task(_), .. }) = first {
            self.first += 1;
            return true;
        }
        self.evict_other()
    }

    /// The same; those that are not decided go to the end of the list.
    #[cold]
    #[inline(never)]
    fn evict_other(&mut self) -> bool {
        for _ in self.first..self.next {
            let number = self.first;
            let Some(entry) = self.entries.get(self.place(number)).copied() else { return false };
            self.first += 1;
            match entry.stage {
                SendStage::Undecided { .. } => _ = self.push(entry),
                SendStage::Task(_) | SendStage::Message | SendStage::Forgotten => {
                    self.forget_message(number);
                    return true;
                }
            }
        }
        false
    }

    /// Lets go of the oldest messages when their time is over.
    #[cold]
    #[inline(never)]
    pub fn expire_messages(&mut self, ttl_ms: u64, now_ms: u64) {
        for _ in 0..EXPIRED_MOST {
            let Some((&number, _)) = self.messages.first_key_value() else { break };
            let since_ms = self.entries.get(self.place(number)).map(|entry| entry.since_ms);
            if since_ms.is_some_and(|since_ms| since_ms.saturating_add(ttl_ms) > now_ms) {
                break;
            }
            self.forget(number);
        }
    }

    /// Keeps a direct message, in the place of the oldest ones; one that is too large is forgotten.
    pub fn remember(&mut self, number: u64, sent: &SentMessage, bytes_max: usize) {
        let bytes = sent.held_bytes();
        while bytes <= bytes_max && self.message_bytes + bytes > bytes_max {
            let Some((&oldest, _)) = self.messages.first_key_value() else { break };
            self.forget(oldest);
        }
        if self.message_bytes + bytes > bytes_max {
            return self.forget(number);
        }
        if let Some(entry) = self.entry_mut(number) {
            entry.stage = SendStage::Message;
            self.message_bytes += bytes;
            self.messages.insert(number, sent.clone());
        }
    }
}
