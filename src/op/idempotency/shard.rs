//! The sends of one shard, under one lock: a list per owner in the order of arrival, and all by
//! name.
//!
//! Invariants: each entry has a number from 1, which is its slot. Entries with the same last bits
//! of their hashes form a chain, newest first. An entry is in the list of its owner and in its
//! chain; otherwise its slot is free.

use std::{collections::BTreeMap, sync::Mutex};

use crossbeam_utils::CachePadded;

use super::{
    owners::SendOwners,
    table::{JoinedSend, NamedSend, SendKey, SendLook, Sent, SentMessage, SentTask},
};
use crate::shares::Holder;

/// Maximum number of expired messages that one send evicts.
const EXPIRED_MOST: usize = 4;

/// The stage of a send.
#[derive(Clone, Copy)]
pub(super) enum SendStage {
    /// The first send runs, as this turn; `is_awaited`: duplicates wait for it.
    Undecided { turn: u64, is_awaited: bool },
    /// The send has created or continued this task.
    Task(SentTask),
    /// The message is in [`SendShard::messages`], under the number of the turn.
    Message { turn: u64 },
}

/// The entry of a recognised send.
#[derive(Clone, Copy)]
pub(super) struct SendEntry {
    pub send: NamedSend,
    /// The arrival of the send, in ms of the monotonic clock.
    pub since_ms: u64,
    pub stage: SendStage,
    links: Links,
}

/// Neighbours of an entry; 0: none.
#[derive(Clone, Copy, Default)]
struct Links {
    /// The next older entry of the chain, or the next free slot.
    chain: u32,
    /// The slot of its owner.
    owner: u32,
    /// The previous and the next entry of the same owner.
    older: u32,
    newer: u32,
}

/// Some of the sends, under one lock.
#[derive(Default)]
pub(super) struct SendShard {
    /// The newest entry of each chain.
    heads: Box<[u32]>,
    pub entries: Vec<SendEntry>,
    entries_max: usize,
    /// The first free slot.
    free: u32,
    /// Slots in use.
    pub count: usize,
    pub owners: SendOwners,
    /// The number of turns so far.
    turns: u64,
    /// Waiting calls, by turn.
    pub joined: BTreeMap<u64, Vec<JoinedSend>>,
    /// Direct messages by the turns of their sends, with the numbers of their entries.
    pub messages: BTreeMap<u64, (u32, SentMessage)>,
    pub message_bytes: usize,
}

impl SendEntry {
    #[inline(always)]
    fn is_turn(&self, own: u64) -> bool {
        matches!(self.stage, SendStage::Undecided { turn, .. } if turn == own)
    }
}

impl SendShard {
    /// A shard for up to `entries_max` entries.
    pub fn new(entries_max: usize) -> CachePadded<Mutex<SendShard>> {
        let heads = vec![0; entries_max.next_power_of_two()].into();
        CachePadded::new(Mutex::new(SendShard { heads, entries_max, ..SendShard::default() }))
    }

    #[inline(always)]
    fn chain_of(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    #[inline(always)]
    fn entry(&self, number: u32) -> Option<&SendEntry> {
        self.entries.get((number as usize).wrapping_sub(1))
    }

    #[inline(always)]
    pub fn entry_mut(&mut self, number: u32) -> Option<&mut SendEntry> {
        self.entries.get_mut((number as usize).wrapping_sub(1))
    }

    /// The number of the entry with this name.
    #[inline(always)]
    pub fn find(&self, name: u128) -> Option<u32> {
        let mut number = *self.heads.get(self.chain_of(name as u64))?;
        while let Some(entry) = self.entry(number) {
            if entry.send.name == name {
                return Some(number);
            }
            number = entry.links.chain;
        }
        None
    }

    /// The entry of the first of equal sends, while it is undecided.
    #[inline(always)]
    pub fn own(&mut self, key: SendKey) -> Option<&mut SendEntry> {
        self.entry_mut(key.number).filter(|entry| entry.is_turn(key.turn))
    }

    /// The outcome of the entry with a send's name; `None`: the entry has expired.
    #[cold]
    #[inline(never)]
    pub fn outcome(
        &mut self,
        number: u32,
        send: &NamedSend,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Option<SendLook> {
        let entry = self.entry(number)?;
        let is_undecided = matches!(entry.stage, SendStage::Undecided { .. });
        if entry.since_ms.saturating_add(ttl_ms) <= now_ms && !is_undecided {
            self.forget(number);
            return None;
        }
        if entry.send.content != send.content {
            return Some(SendLook::Conflict);
        }
        // A scope does not lose its number while its send runs or its task is stored.
        let is_of_scope = entry.send.scope == send.scope;
        match entry.stage {
            SendStage::Undecided { .. } if is_of_scope => Some(SendLook::Undecided),
            SendStage::Undecided { .. } => Some(SendLook::Conflict),
            SendStage::Task(task) if is_of_scope => Some(SendLook::Sent(Sent::Task(task))),
            SendStage::Task(_) => Some(SendLook::Evicted),
            SendStage::Message { turn } => {
                let (_, sent) = self.messages.get(&turn)?;
                Some(SendLook::Sent(Sent::Message(sent.clone())))
            }
        }
    }

    /// Enters a send as the first of its name; `None`: the shard is full.
    #[inline(always)]
    pub fn enter(&mut self, send: NamedSend, holder: Holder, now_ms: u64) -> Option<SendKey> {
        let owner = self.owners.enter(holder);
        let is_full = self.count >= self.entries_max;
        if (is_full || self.owners.strangers_full(owner, self.entries_max)) && !self.evict(owner) {
            self.owners.leave_if_empty(owner);
            return None;
        }
        self.turns += 1;
        let (turn, hash) = (self.turns, send.name as u64);
        let at = self.chain_of(hash);
        let older = self.owners.get_mut(owner).newest;
        let links = Links { chain: self.heads[at], owner, older, newer: 0 };
        let stage = SendStage::Undecided { turn, is_awaited: false };
        let number = self.fill(SendEntry { send, since_ms: now_ms, stage, links });
        self.heads[at] = number;
        self.append(owner, number);
        self.owners.count(owner);
        self.count += 1;
        Some(SendKey { hash, number, turn })
    }

    /// Stores an entry in a free slot, and returns its number.
    #[inline(always)]
    fn fill(&mut self, entry: SendEntry) -> u32 {
        let number = self.free;
        if let Some(slot) = self.entry_mut(number) {
            let next = std::mem::replace(slot, entry);
            self.free = next.links.chain;
            return number;
        }
        if self.entries.len() == self.entries.capacity() {
            self.take_room();
        }
        self.entries.push(entry);
        self.entries.len() as u32
    }

    /// Allocates the memory for all entries at once.
    #[cold]
    #[inline(never)]
    fn take_room(&mut self) {
        self.entries.reserve_exact(self.entries_max - self.entries.len());
    }

    /// Appends an entry to its owner's list; its `older` is the newest entry of the list.
    #[inline(always)]
    fn append(&mut self, owner: u32, number: u32) {
        let of_owner = self.owners.get_mut(owner);
        let before = std::mem::replace(&mut of_owner.newest, number);
        if before == 0 {
            of_owner.oldest = number;
        }
        if let Some(before) = self.entry_mut(before) {
            before.links.newer = number;
        }
    }

    /// Takes an entry out of its owner's list.
    #[inline(always)]
    fn unlink(&mut self, links: Links) {
        let Links { owner, older, newer, .. } = links;
        match self.entry_mut(older) {
            Some(before) => before.links.newer = newer,
            None => self.owners.get_mut(owner).oldest = newer,
        }
        match self.entry_mut(newer) {
            Some(after) => after.links.older = older,
            None => self.owners.get_mut(owner).newest = older,
        }
    }

    /// Takes an entry out of its chain.
    #[inline(always)]
    fn unchain(&mut self, number: u32, entry: &SendEntry) {
        let at = self.chain_of(entry.send.name as u64);
        let mut before = self.heads[at];
        if before == number {
            self.heads[at] = entry.links.chain;
            return;
        }
        while let Some(other) = self.entry_mut(before) {
            if other.links.chain == number {
                other.links.chain = entry.links.chain;
                return;
            }
            before = other.links.chain;
        }
    }

    /// Removes an entry.
    #[inline(always)]
    pub fn forget(&mut self, number: u32) {
        let Some(entry) = self.entry(number).copied() else { return };
        match entry.stage {
            SendStage::Task(_) => {}
            SendStage::Undecided { .. } => {
                self.owners.get_mut(entry.links.owner).undecided -= 1;
            }
            SendStage::Message { turn } => self.forget_message(turn, entry.links.owner),
        }
        self.unchain(number, &entry);
        self.unlink(entry.links);
        self.owners.discount(entry.links.owner);
        self.count -= 1;
        let free = std::mem::replace(&mut self.free, number);
        if let Some(entry) = self.entry_mut(number) {
            // Loops over the entries skip a free slot.
            entry.stage = SendStage::Message { turn: 0 };
            entry.links = Links { chain: free, ..Links::default() };
        }
    }

    /// Removes the decided entries of a holder.
    pub fn forget_all_of(&mut self, holder: Holder) {
        let Some(owner) = self.owners.find(holder) else { return };
        let mut number = self.owners.get(owner).oldest;
        while let Some(entry) = self.entry(number).copied() {
            if !matches!(entry.stage, SendStage::Undecided { .. }) {
                self.forget(number);
            }
            number = entry.links.newer;
        }
    }

    fn forget_message(&mut self, turn: u64, owner: u32) {
        if let Some((_, sent)) = self.messages.remove(&turn) {
            self.message_bytes -= sent.held_bytes();
            self.owners.get_mut(owner).message_bytes -= sent.held_bytes();
        }
    }

    /// Evicts the oldest decided entry of the holder chosen for `newcomer`; false: no decided entry
    /// exists.
    #[inline(always)]
    fn evict(&mut self, newcomer: u32) -> bool {
        let Some(owner) = self.owners.victim(newcomer, self.entries_max) else { return false };
        let oldest = self.owners.get(owner).oldest;
        match self.entry(oldest).map(|entry| entry.stage) {
            Some(SendStage::Task(_)) => {
                self.forget(oldest);
                true
            }
            _ => self.evict_other(owner),
        }
    }

    /// The same, but skips undecided entries: they move to the end of their owner's list.
    #[cold]
    #[inline(never)]
    fn evict_other(&mut self, owner: u32) -> bool {
        for _ in 0..self.owners.get(owner).held {
            let number = self.owners.get(owner).oldest;
            let Some(entry) = self.entry(number).copied() else { return false };
            if !matches!(entry.stage, SendStage::Undecided { .. }) {
                self.forget(number);
                return true;
            }
            self.unlink(entry.links);
            let older = self.owners.get(owner).newest;
            if let Some(entry) = self.entry_mut(number) {
                (entry.links.older, entry.links.newer) = (older, 0);
            }
            self.append(owner, number);
        }
        false
    }

    /// Evicts the oldest messages that have expired.
    #[cold]
    #[inline(never)]
    pub fn expire_messages(&mut self, ttl_ms: u64, now_ms: u64) {
        for _ in 0..EXPIRED_MOST {
            let Some((_, &(number, _))) = self.messages.first_key_value() else { break };
            let since_ms = self.entry(number).map(|entry| entry.since_ms);
            if since_ms.is_some_and(|since_ms| since_ms.saturating_add(ttl_ms) > now_ms) {
                break;
            }
            self.forget(number);
        }
    }

    /// Settles the first of equal sends.
    #[inline(always)]
    pub fn decide(&mut self, key: SendKey, task: SentTask) -> Option<bool> {
        let entry = self.own(key)?;
        let is_awaited = matches!(entry.stage, SendStage::Undecided { is_awaited: true, .. });
        entry.stage = SendStage::Task(task);
        let owner = entry.links.owner;
        self.owners.get_mut(owner).undecided -= 1;
        Some(is_awaited)
    }

    /// Stores a direct message. For it, messages of the owner furthest above its share are evicted,
    /// oldest first; a message that is too large is not stored.
    pub fn remember(&mut self, number: u32, sent: &SentMessage, bytes_max: usize) {
        let bytes = sent.held_bytes();
        let Some(SendEntry { stage: SendStage::Undecided { turn, .. }, links, .. }) =
            self.entry(number).copied()
        else {
            return;
        };
        let owner = links.owner;
        let is_stranger = self.owners.get(owner).holder.is_stranger();
        let most = if is_stranger { bytes_max / 2 } else { bytes_max };
        while bytes <= most && !self.has_bytes(is_stranger, bytes, bytes_max) {
            let Some(victim) = self.owners.message_victim(owner, bytes, bytes_max) else { break };
            let oldest = self.messages.values().map(|(number, _)| *number).find(|number| {
                let entry = self.entry(*number);
                entry.is_some_and(|entry| self.owners.get(entry.links.owner).holder == victim)
            });
            match oldest {
                Some(oldest) => self.forget(oldest),
                None => break,
            }
        }
        if bytes > most || !self.has_bytes(is_stranger, bytes, bytes_max) {
            return self.forget(number);
        }
        if let Some(entry) = self.entry_mut(number) {
            entry.stage = SendStage::Message { turn };
            let of_owner = self.owners.get_mut(owner);
            (of_owner.undecided, of_owner.message_bytes) =
                (of_owner.undecided - 1, of_owner.message_bytes + bytes);
            self.message_bytes += bytes;
            self.messages.insert(turn, (number, sent.clone()));
        }
    }

    /// Whether `bytes` more bytes fit.
    fn has_bytes(&self, is_stranger: bool, bytes: usize, bytes_max: usize) -> bool {
        self.message_bytes + bytes <= bytes_max
            && (!is_stranger || self.owners.stranger_bytes() + bytes <= bytes_max / 2)
    }
}
