//! Sends that were recognised, by their keys: what came of each, or who waits for that.
//!
//! Law: a key has at most one send that runs or ran, and whoever comes with it meanwhile waits or
//! is told. What came first leaves first: after its time, or when there is no room; one that is not
//! decided stays. What failed is forgotten at once.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    limits::{IDEMPOTENCY_SHARD_BYTES, IDEMPOTENCY_SHARD_ENTRIES, Limits},
    model::{Generation, MessageBuf, SendMode},
    service::{LateCall, Now},
    store::TaskKey,
};

/// Expired entries that one send forgets at most.
const EXPIRED_MOST: usize = 4;

/// Where the turn of a send began that has made, or gone on with, a task.
#[derive(Clone, Copy)]
pub(in crate::op) struct SentTask {
    pub key: TaskKey,
    /// The event after which a stream of it shows the task first.
    pub seq: u64,
    /// Its result is an interruption behind this event, or the end.
    pub after: u64,
    /// The last event of a turn that is over without either.
    pub end: Option<u64>,
    /// True: the task was there before.
    pub is_next: bool,
    pub generation: Generation,
}

/// A direct message, and the raw id of its conversation.
#[derive(Clone)]
pub(in crate::op) struct SentMessage {
    pub message: MessageBuf,
    pub context_id: Box<[u8]>,
}

/// What came of a send.
pub(in crate::op) enum Sent {
    Task(SentTask),
    Message(SentMessage),
}

impl Sent {
    /// A direct message.
    pub fn message(message: &MessageBuf, context_id: &[u8]) -> Sent {
        let (message, context_id) = (message.clone(), context_id.into());
        Sent::Message(SentMessage { message, context_id })
    }
}

/// Names the first of equal sends: its key, and which of those that were first under it.
#[derive(Clone, Copy)]
pub(in crate::op) struct SendKey {
    key: u128,
    turn: u64,
}

/// A call that waits for what comes of an equal one.
pub(super) struct JoinedSend {
    pub call: Arc<LateCall>,
    pub mode: SendMode,
}

/// What a send is told that comes with a key.
pub(super) enum SendLook {
    /// It is the first: it must say what comes of it.
    First(SendKey),
    /// There is no room for it: it is made, and nobody remembers it.
    Unknown,
    /// Another message has this key.
    Conflict,
    /// An equal one is not decided.
    Undecided,
    /// An equal one became this.
    Sent(Sent),
}

enum SendStage {
    /// The first runs: which turn that is, and who waits.
    Undecided(u64, Vec<JoinedSend>),
    Task(SentTask),
    Message(Box<SentMessage>),
    Forgotten,
}

struct KnownSend {
    key: u128,
    content: u128,
    since_ms: u64,
    stage: SendStage,
}

/// A key is a hash already.
#[derive(Default)]
struct SendKeyHasher(u64);

impl Hasher for SendKeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Some of them, under one lock.
#[derive(Default)]
struct SendShard {
    /// The number of each key's entry.
    numbers: HashMap<u128, u64, BuildHasherDefault<SendKeyHasher>>,
    /// In the order in which they came; the first has the number `first`.
    entries: VecDeque<KnownSend>,
    first: u64,
    /// How many turns there were.
    turns: u64,
    /// Numbers of those that are messages, or were.
    messages: VecDeque<u64>,
    message_bytes: usize,
}

/// All of them.
pub(super) struct SendTable {
    shards: Box<[Mutex<SendShard>]>,
    /// Of one shard.
    entries_max: usize,
    bytes_max: usize,
    ttl_ms: u64,
}

impl SendTable {
    pub fn new(limits: &Limits) -> SendTable {
        let most = limits.idempotency_entries_max;
        let bytes = limits.idempotency_bytes_max / IDEMPOTENCY_SHARD_BYTES;
        let shards = (most / IDEMPOTENCY_SHARD_ENTRIES).min(bytes).clamp(1, 64);
        SendTable {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            entries_max: most / shards,
            bytes_max: limits.idempotency_bytes_max / shards,
            ttl_ms: limits.idempotency_ttl_ms,
        }
    }

    fn lock(&self, key: u128) -> MutexGuard<'_, SendShard> {
        let at = (key >> 64) as usize % self.shards.len();
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for a send that is equal; if there is none, this one is entered as the first.
    pub fn enter(&self, key: u128, content: u128, now: Now) -> SendLook {
        let mut shard = self.lock(key);
        shard.expire(self.ttl_ms, now.mono_ms);
        if let Some(entry) = shard.find(key) {
            let is_over = entry.since_ms.saturating_add(self.ttl_ms) <= now.mono_ms;
            match &entry.stage {
                SendStage::Forgotten => {}
                SendStage::Undecided(..) | SendStage::Task(_) | SendStage::Message(_)
                    if entry.content != content && (!is_over || entry.is_undecided()) =>
                {
                    return SendLook::Conflict;
                }
                SendStage::Undecided(..) => return SendLook::Undecided,
                SendStage::Task(task) if !is_over => return SendLook::Sent(Sent::Task(*task)),
                SendStage::Message(sent) if !is_over => {
                    return SendLook::Sent(Sent::Message(SentMessage::clone(sent)));
                }
                SendStage::Task(_) | SendStage::Message(_) => shard.forget(key),
            }
        }
        if shard.entries.len() >= self.entries_max && !shard.evict() {
            return SendLook::Unknown;
        }
        let number = shard.first + shard.entries.len() as u64;
        shard.turns += 1;
        let turn = shard.turns;
        let stage = SendStage::Undecided(turn, Vec::new());
        shard.entries.push_back(KnownSend { key, content, since_ms: now.mono_ms, stage });
        shard.numbers.insert(key, number);
        SendLook::First(SendKey { key, turn })
    }

    /// Lets a call wait for what comes of an equal send; it is given back when that is decided.
    pub fn join(&self, key: u128, content: u128, joined: JoinedSend) -> Result<(), JoinedSend> {
        let mut shard = self.lock(key);
        let entry = shard.find_mut(key).filter(|entry| entry.content == content);
        let Some(KnownSend { stage: SendStage::Undecided(_, all), .. }) = entry else {
            return Err(joined);
        };
        if all.len() == all.capacity() {
            all.retain(|one| !one.call.has_left() && !one.call.is_answered());
            // As many may come and go before those who stay are looked at again.
            all.reserve(all.len().max(1));
        }
        all.push(joined);
        Ok(())
    }

    /// Says what came of the first send; `None`: it failed. Gives the calls that wait for that.
    pub fn settle(&self, SendKey { key, turn }: SendKey, sent: Option<&Sent>) -> Vec<JoinedSend> {
        let mut shard = self.lock(key);
        let Some(entry) = shard.find_mut(key) else { return Vec::new() };
        let joined = match &mut entry.stage {
            SendStage::Undecided(own, joined) if *own == turn => std::mem::take(joined),
            SendStage::Undecided(..)
            | SendStage::Task(_)
            | SendStage::Message(_)
            | SendStage::Forgotten => {
                return Vec::new();
            }
        };
        match sent {
            Some(Sent::Task(task)) => entry.stage = SendStage::Task(*task),
            Some(Sent::Message(sent)) => shard.remember(key, sent, self.bytes_max),
            None => shard.forget(key),
        }
        joined
    }

    /// Entries, and bytes of messages.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let shards = self.shards.iter().map(|shard| shard.lock().unwrap());
        shards.fold((0, 0), |(entries, bytes), shard| {
            (entries + shard.entries.len(), bytes + shard.message_bytes)
        })
    }
}

impl KnownSend {
    fn is_undecided(&self) -> bool {
        matches!(self.stage, SendStage::Undecided(..))
    }
}

impl SentMessage {
    fn held_bytes(&self) -> usize {
        size_of::<SentMessage>() + self.message.held_bytes() + self.context_id.len()
    }
}

impl SendShard {
    fn at(&self, key: u128) -> Option<usize> {
        let number = self.numbers.get(&key)?;
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    fn find(&self, key: u128) -> Option<&KnownSend> {
        self.entries.get(self.at(key)?)
    }

    fn find_mut(&mut self, key: u128) -> Option<&mut KnownSend> {
        let at = self.at(key)?;
        self.entries.get_mut(at)
    }

    /// Empties an entry; it leaves when it is the first or the last.
    fn forget(&mut self, key: u128) {
        let Some(at) = self.at(key) else { return };
        self.numbers.remove(&key);
        self.clear(at);
        while self.entries.back().is_some_and(|entry| matches!(entry.stage, SendStage::Forgotten)) {
            self.entries.pop_back();
        }
    }

    fn clear(&mut self, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        if let SendStage::Message(sent) = std::mem::replace(&mut entry.stage, SendStage::Forgotten)
        {
            self.message_bytes = self.message_bytes.saturating_sub(sent.held_bytes());
        }
    }

    /// Takes the first entry out; one that is not decided goes to the end of the list.
    fn shift(&mut self) -> bool {
        self.clear_if_decided();
        let Some(entry) = self.entries.pop_front() else { return false };
        self.first += 1;
        match entry.stage {
            SendStage::Undecided(..) => {
                let number = self.first + self.entries.len() as u64;
                self.numbers.insert(entry.key, number);
                self.entries.push_back(entry);
                false
            }
            // What was forgotten may have come again.
            SendStage::Task(_) | SendStage::Message(_) | SendStage::Forgotten => {
                if self.numbers.get(&entry.key) == Some(&(self.first - 1)) {
                    self.numbers.remove(&entry.key);
                }
                true
            }
        }
    }

    fn clear_if_decided(&mut self) {
        if self.entries.front().is_some_and(|entry| !entry.is_undecided()) {
            self.clear(0);
        }
    }

    /// Takes out the first entry that is decided; false: there is none.
    fn evict(&mut self) -> bool {
        (0..self.entries.len()).any(|_| self.shift())
    }

    fn expire(&mut self, ttl_ms: u64, now_ms: u64) {
        for _ in 0..EXPIRED_MOST {
            let is_over = |entry: &KnownSend| {
                let is_late = entry.since_ms.saturating_add(ttl_ms) <= now_ms;
                matches!(entry.stage, SendStage::Forgotten) || (is_late && !entry.is_undecided())
            };
            if !self.entries.front().is_some_and(is_over) {
                break;
            }
            self.shift();
        }
        // Their numbers come behind.
        while self.messages.front().is_some_and(|number| *number < self.first) {
            self.messages.pop_front();
        }
    }

    /// Keeps a direct message, in the place of the oldest ones; one that is too large is forgotten.
    fn remember(&mut self, key: u128, sent: &SentMessage, bytes_max: usize) {
        let bytes = sent.held_bytes();
        while bytes <= bytes_max && self.message_bytes + bytes > bytes_max {
            let Some(number) = self.messages.pop_front() else { break };
            let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
            let entry = at.and_then(|at| self.entries.get(at));
            if let Some(KnownSend { key, stage: SendStage::Message(_), .. }) = entry {
                self.forget(*key);
            }
        }
        if self.message_bytes + bytes > bytes_max {
            return self.forget(key);
        }
        let number = self.numbers.get(&key).copied();
        if let Some(entry) = self.find_mut(key) {
            entry.stage = SendStage::Message(Box::new(sent.clone()));
            self.message_bytes += bytes;
            self.messages.extend(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limits::IDEMPOTENCY_ENTRY_BYTES, model::PartsBuf};

    fn table(entries: usize, bytes: usize) -> SendTable {
        SendTable::new(&Limits {
            idempotency_entries_max: entries,
            idempotency_bytes_max: bytes,
            idempotency_ttl_ms: 1_000,
            ..Limits::default()
        })
    }

    fn at(mono_ms: u64) -> Now {
        Now { mono_ms, unix_ms: 0 }
    }

    fn message(length: usize) -> Sent {
        let text = "x".repeat(length);
        Sent::message(&MessageBuf::agent(&PartsBuf::new().text(&*text)), b"context")
    }

    fn first(known: SendLook) -> SendKey {
        let SendLook::First(key) = known else { panic!("not the first") };
        key
    }

    #[test]
    fn an_entry_takes_no_more_memory_than_is_counted_for_it() {
        let map = size_of::<(u128, u64)>() + 1;
        // Half of each may be empty, and half as much again is there while they grow.
        let whole = 2 * (size_of::<KnownSend>() + map) + size_of::<KnownSend>() + map;
        let numbers = 4 * size_of::<u64>();
        assert!((whole + numbers) as u64 <= IDEMPOTENCY_ENTRY_BYTES, "{whole} {numbers}");
    }

    #[test]
    fn a_late_word_on_an_earlier_turn_says_nothing_of_a_later_one() {
        let table = table(10, 1_000);
        let old = first(table.enter(1, 1, at(0)));
        assert!(table.settle(old, None).is_empty());
        first(table.enter(1, 2, at(0)));
        table.settle(old, Some(&message(1)));
        assert!(matches!(table.enter(1, 2, at(0)), SendLook::Undecided));
    }

    #[test]
    fn nothing_passes_the_bounds_and_what_is_known_is_what_was_said() {
        let (entries_max, bytes_max) = (20, 4_000);
        let table = table(entries_max, bytes_max);
        let (mut random, mut open) = (1u64, Vec::new());
        // What was said of each key last; the table may have forgotten it, and knows nothing else.
        let mut said = HashMap::<u128, (u128, usize)>::new();
        for step in 0..20_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, content) = (u128::from(random >> 33) % 40, u128::from(random >> 50) % 2);
            match table.enter(key, content, at(step)) {
                SendLook::First(turn) if open.len() < 10 => open.push((turn, key, content)),
                SendLook::First(turn) => _ = table.settle(turn, None),
                SendLook::Sent(Sent::Message(sent)) => {
                    assert_eq!(said.get(&key), Some(&(content, sent.message.held_bytes())));
                }
                SendLook::Sent(Sent::Task(_)) => panic!("there was no task"),
                SendLook::Undecided => {
                    assert!(open.iter().any(|one| one.1 == key && one.2 == content))
                }
                SendLook::Conflict | SendLook::Unknown => {}
            }
            if random >> 60 < 6 && !open.is_empty() {
                let (turn, key, content) = open.swap_remove(step as usize % open.len());
                let sent = message((random >> 40) as usize % 1_000);
                let Sent::Message(SentMessage { message, .. }) = &sent else { continue };
                said.insert(key, (content, message.held_bytes()));
                table.settle(turn, Some(&sent));
            }
            let (entries, bytes) = table.counts();
            assert!(entries <= entries_max && bytes <= bytes_max, "{entries} {bytes}");
        }
        let shard = table.shards[0].lock().unwrap();
        assert!(shard.messages.len() <= 2 * entries_max && shard.numbers.len() <= entries_max);
    }
}
