//! Recognised sends by their names: the outcome of each, or the calls that wait for it.
//!
//! Invariants: at most one send of a name runs or has run; equal sends that arrive meanwhile wait
//! for its outcome or receive it. A full shard evicts the oldest entries of the owner above its
//! equal share, so an owner below its share loses no entry to another owner. An expired entry is
//! treated as absent; an undecided one does not expire. A failed send is forgotten at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use super::shard::{SendEntry, SendShard, SendStage};
use crate::{
    limits::{IDEMPOTENCY_SHARD_BYTES, IDEMPOTENCY_SHARD_ENTRIES, Limits},
    model::{Generation, MessageBuf, SendMode},
    service::{LateCall, Now},
    shares::Holder,
    store::TaskKey,
};

/// Where the turn of a send began, on a task that it has created or continued.
#[derive(Clone, Copy)]
pub(in crate::op) struct SentTask {
    pub key: TaskKey,
    /// The event after which its stream first shows the task.
    pub seq: u64,
    /// The result is the first interruption after this event, or the end of the task.
    pub after: u64,
    /// The last event of a turn that ended with neither.
    pub end: Option<u64>,
    /// True: the task already existed.
    pub is_next: bool,
    pub generation: Generation,
}

/// A direct message, and the raw id of its conversation.
#[derive(Clone)]
pub(in crate::op) struct SentMessage {
    pub message: MessageBuf,
    pub context_id: Box<[u8]>,
}

/// The outcome of a send.
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

/// The identity of a send.
#[derive(Clone, Copy)]
pub(super) struct NamedSend {
    /// A hash of the name.
    pub name: u128,
    /// A hash of the content.
    pub content: u64,
    /// The number of the scope; it is reused only after the send and its task are gone.
    pub scope: u64,
}

/// Identifies the first of equal sends: its shard, its entry and its turn.
#[derive(Clone, Copy)]
pub(in crate::op) struct SendKey {
    pub(super) hash: u64,
    pub(super) number: u32,
    pub(super) turn: u64,
}

/// A waiting call, for the outcome of an equal send.
pub(super) struct JoinedSend {
    pub call: Arc<LateCall>,
    pub mode: SendMode,
}

/// The table's result for a named send.
pub(super) enum SendLook {
    /// The send is the first: the caller must settle its outcome.
    First(SendKey),
    /// The table is full: the send runs and is not stored.
    Unknown,
    /// Another message has this name.
    Conflict,
    /// An equal send is undecided.
    Undecided,
    /// An equal send had this outcome.
    Sent(Sent),
    /// An equal send has created a task that is no longer stored.
    Evicted,
}

/// All remembered sends.
pub(super) struct SendTable {
    shards: Box<[CachePadded<Mutex<SendShard>>]>,
    /// The limit of one shard.
    bytes_max: usize,
    ttl_ms: u64,
}

impl SendTable {
    pub fn new(limits: &Limits) -> SendTable {
        let most = limits.idempotency_entries_max;
        let bytes = limits.idempotency_bytes_max / IDEMPOTENCY_SHARD_BYTES;
        let shards = (most / IDEMPOTENCY_SHARD_ENTRIES).min(bytes).clamp(1, 64);
        let entries_max = (most / shards).min(u32::MAX as usize / 2);
        SendTable {
            shards: (0..shards).map(|_| SendShard::new(entries_max)).collect(),
            bytes_max: limits.idempotency_bytes_max / shards,
            ttl_ms: limits.idempotency_ttl_ms,
        }
    }

    /// The first bits of a hash select its shard.
    #[inline(always)]
    fn lock(&self, hash: u64) -> MutexGuard<'_, SendShard> {
        let at = ((u128::from(hash) * self.shards.len() as u128) >> 64) as usize;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for an equal send; if none is found, enters this send as the first for `holder`.
    #[inline(always)]
    pub fn enter(&self, send: NamedSend, holder: Holder, now: Now) -> SendLook {
        let mut shard = self.lock(send.name as u64);
        if !shard.messages.is_empty() {
            shard.expire_messages(self.ttl_ms, now.mono_ms);
        }
        if let Some(number) = shard.find(send.name)
            && let Some(look) = shard.outcome(number, &send, self.ttl_ms, now.mono_ms)
        {
            return look;
        }
        shard.enter(send, holder, now.mono_ms).map_or(SendLook::Unknown, SendLook::First)
    }

    /// Lets a call wait for the outcome of an equal send; returns the call if the outcome is
    /// already settled.
    pub fn join(&self, send: &NamedSend, joined: JoinedSend) -> Result<(), JoinedSend> {
        let mut shard = self.lock(send.name as u64);
        let number = shard.find(send.name);
        let entry = number
            .and_then(|number| shard.entry_mut(number))
            .filter(|entry| entry.send.content == send.content && entry.send.scope == send.scope);
        let Some(SendEntry { stage: SendStage::Undecided { turn, is_awaited }, .. }) = entry else {
            return Err(joined);
        };
        *is_awaited = true;
        let turn = *turn;
        let all = shard.joined.entry(turn).or_default();
        if all.len() == all.capacity() {
            all.retain(|one| !one.call.has_disconnected() && !one.call.is_answered());
            // Doubles the capacity, so that the scan is amortised.
            all.reserve(all.len().max(1));
        }
        all.push(joined);
        Ok(())
    }

    /// Settles the first send with its task. Returns the waiting calls.
    #[inline(always)]
    pub fn settle_task(&self, key: SendKey, task: SentTask) -> Option<Vec<JoinedSend>> {
        let mut shard = self.lock(key.hash);
        let is_awaited = shard.decide(key, task)?;
        if is_awaited { shard.joined.remove(&key.turn) } else { None }
    }

    /// Settles the first send with a direct message or as failed (`None`). Returns the waiting
    /// calls.
    #[cold]
    pub fn settle(&self, key: SendKey, sent: Option<&SentMessage>) -> Option<Vec<JoinedSend>> {
        let mut shard = self.lock(key.hash);
        shard.own(key)?;
        match sent {
            Some(sent) => shard.remember(key.number, sent, self.bytes_max),
            None => shard.forget(key.number),
        }
        shard.joined.remove(&key.turn)
    }

    /// Drops the outcomes of a holder's sends, before its number is assigned to another caller.
    #[cold]
    pub fn forget_all_of(&self, holder: Holder) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).forget_all_of(holder);
        }
    }

    /// Entries, and bytes of messages.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let shards = self.shards.iter().map(|shard| shard.lock().unwrap());
        shards.fold((0, 0), |(entries, bytes), shard| {
            (entries + shard.count, bytes + shard.message_bytes)
        })
    }
}

impl SentMessage {
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<SentMessage>() + self.message.held_bytes() + self.context_id.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{
        limits::IDEMPOTENCY_ENTRY_BYTES, model::PartsBuf, op::idempotency::owners::SendOwner,
        service::CallLink,
    };

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

    fn message(length: usize) -> SentMessage {
        let text = "x".repeat(length);
        let message = MessageBuf::agent(&PartsBuf::new().text(&*text));
        // A clone has no spare capacity.
        SentMessage { message: message.clone(), context_id: b"context"[..].into() }
    }

    const A: Holder = Holder::owner(1);
    const V: Holder = Holder::owner(2);

    /// Enters a send of the same owner.
    fn enter(table: &SendTable, send: NamedSend, mono_ms: u64) -> SendLook {
        table.enter(send, A, at(mono_ms))
    }

    fn named(name: u128, content: u64) -> NamedSend {
        NamedSend { name, content, scope: 0 }
    }

    fn first(look: SendLook) -> SendKey {
        let SendLook::First(key) = look else { panic!("not the first") };
        key
    }

    #[test]
    fn idempotency_entry_uses_at_most_its_charged_memory() {
        assert_eq!(size_of::<SendEntry>(), 112);
        let chain = 2 * size_of::<u32>();
        // Growing lists and maps have at most twice the size of their content, and maps a seventh
        // more.
        let owner = 2 * (size_of::<SendOwner>() + size_of::<u32>())
            + 2 * (size_of::<(Holder, u32)>() + 1) * 8 / 7;
        let message = 2 * size_of::<(u64, (u32, SentMessage))>();
        let all = size_of::<SendEntry>() + chain + owner + message;
        assert!(all as u64 <= IDEMPOTENCY_ENTRY_BYTES, "{all}");
    }

    #[test]
    fn late_outcome_of_an_earlier_send_is_ignored() {
        let table = table(10, 1_000);
        let old = first(enter(&table, named(1, 1), 0));
        assert!(table.settle(old, None).is_none());
        first(enter(&table, named(1, 2), 0));
        table.settle(old, Some(&message(1)));
        assert!(matches!(enter(&table, named(1, 2), 0), SendLook::Undecided));
    }

    fn task(position: u32) -> SentTask {
        let key = TaskKey { position, check: 0 };
        let generation = Generation::V1;
        SentTask { key, seq: 1, after: 0, end: None, is_next: false, generation }
    }

    #[test]
    fn equal_hashes_in_another_scope_return_no_outcome() {
        let table = table(10, 1_000);
        let (own, other) = (named(1, 1), NamedSend { scope: 1, ..named(1, 1) });
        let key = first(enter(&table, own, 0));
        assert!(matches!(enter(&table, other, 0), SendLook::Conflict));
        let joined = JoinedSend { call: CallLink::late().1, mode: SendMode::Wait };
        assert!(table.join(&other, joined).is_err());
        table.settle_task(key, task(7));
        assert!(matches!(enter(&table, other, 0), SendLook::Evicted));
        let look = enter(&table, own, 0);
        assert!(matches!(look, SendLook::Sent(Sent::Task(sent)) if sent.key.position == 7));
    }

    #[test]
    fn forget_all_of_removes_decided_sends_of_a_holder() {
        let table = table(20, 10_000);
        let enter = |number, holder| table.enter(numbered(number), holder, at(0));
        (0..3).for_each(|number| send(&table, number, A));
        (10..13).for_each(|number| send(&table, number, V));
        let settled = first(enter(3, A));
        table.settle(settled, Some(&message(9)));
        let open = first(enter(4, A));
        table.forget_all_of(A);
        table.forget_all_of(Holder::owner(7));
        assert!((0..4).all(|number| !is_stored(&table, number)) && is_stored(&table, 4));
        assert!((10..13).all(|number| is_stored(&table, number)));
        assert_eq!(table.counts(), (4, 0));
        // The undecided send is decided later.
        table.settle_task(open, task(4));
        assert!(matches!(enter(4, A), SendLook::Sent(Sent::Task(_))));
        table.forget_all_of(A);
        assert!(matches!(enter(0, V), SendLook::First(_)));
        assert_eq!(table.counts(), (4, 0));
    }

    #[test]
    fn oldest_decided_entry_is_evicted_first() {
        let table = table(20, 1_000);
        // Many of the names share a chain.
        let name = |number: u32| u128::from(number % 3) | u128::from(number) << 64;
        let stays = first(enter(&table, named(name(0), 0), 0));
        for number in 1..200 {
            let key = first(enter(&table, named(name(number), 0), 0));
            table.settle_task(key, task(number));
            for old in number.saturating_sub(18).max(1)..=number {
                let look = enter(&table, named(name(old), 0), 0);
                assert!(
                    matches!(look, SendLook::Sent(Sent::Task(sent)) if sent.key.position == old)
                );
            }
            assert!(matches!(enter(&table, named(name(0), 0), 0), SendLook::Undecided));
        }
        table.settle_task(stays, task(0));
        assert!(matches!(enter(&table, named(name(0), 0), 0), SendLook::Sent(Sent::Task(_))));
        assert!(matches!(enter(&table, named(name(100), 0), 0), SendLook::First(_)));
    }

    #[test]
    fn random_sends_stay_bounded_and_return_stored_messages() {
        let (entries_max, bytes_max) = (20, 4_000);
        let table = table(entries_max, bytes_max);
        let (mut random, mut open) = (1u64, Vec::new());
        // The last content of each key. The table may have dropped it, but never has another
        // content.
        let mut settled = HashMap::<u128, (u64, usize)>::new();
        for step in 0..20_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, content) = (u128::from(random >> 33) % 40, (random >> 50) % 2);
            match enter(&table, named(key, content), step) {
                SendLook::First(turn) if open.len() < 10 => open.push((turn, key, content)),
                SendLook::First(turn) => _ = table.settle(turn, None),
                SendLook::Sent(Sent::Message(sent)) => {
                    assert_eq!(settled.get(&key), Some(&(content, sent.message.held_bytes())));
                }
                SendLook::Sent(Sent::Task(_)) | SendLook::Evicted => panic!("there was no task"),
                SendLook::Undecided => {
                    assert!(open.iter().any(|one| one.1 == key && one.2 == content))
                }
                SendLook::Conflict | SendLook::Unknown => {}
            }
            if random >> 60 < 6 && !open.is_empty() {
                let (turn, key, content) = open.swap_remove(step as usize % open.len());
                let sent = message((random >> 40) as usize % 1_000);
                settled.insert(key, (content, sent.message.held_bytes()));
                table.settle(turn, Some(&sent));
            }
            let (entries, bytes) = table.counts();
            assert!(entries <= entries_max && bytes <= bytes_max, "{entries} {bytes}");
        }
        let shard = table.shards[0].lock().unwrap();
        assert!(shard.messages.len() <= entries_max && shard.entries.len() <= entries_max);
    }

    /// A send with a unique name.
    fn numbered(number: u32) -> NamedSend {
        // Many of the names share a chain.
        named(u128::from(number % 5) | u128::from(number) << 64, 0)
    }

    fn send(table: &SendTable, number: u32, holder: Holder) {
        if let SendLook::First(key) = table.enter(numbered(number), holder, at(0)) {
            table.settle_task(key, task(number));
        }
    }

    /// Whether a send has an entry.
    fn is_stored(table: &SendTable, number: u32) -> bool {
        let shard = table.shards[0].lock().unwrap();
        shard.find(numbered(number).name).is_some()
    }

    #[test]
    fn a_flood_evicts_no_entry_of_an_owner_below_its_share() {
        let table = table(20, 1_000);
        (0..10).for_each(|number| send(&table, number, V));
        (100..1_000).for_each(|number| send(&table, number, A));
        assert!((0..10).all(|number| is_stored(&table, number)));
        assert!((990..1_000).all(|number| is_stored(&table, number)));
        // Above its share an owner loses its own entries, the oldest first.
        send(&table, 10, V);
        assert!(!is_stored(&table, 0) && (1..11).all(|number| is_stored(&table, number)));
        // Other owners take entries up to their share, from the largest holder.
        for (base, owner) in [(2_000, 3), (3_000, 4)] {
            (base..base + 5).for_each(|number| send(&table, number, Holder::owner(owner)));
        }
        assert!((2_000..2_005).chain(3_000..3_005).all(|number| is_stored(&table, number)));
        assert_eq!((table.counts().0, table.shards[0].lock().unwrap().owners.len()), (20, 4));
    }

    #[test]
    fn anonymous_callers_hold_at_most_half_in_equal_parts() {
        let stranger = |last| Holder::peer(Some([192, 0, 2, last].into()), true);
        let table = table(20, 1_000);
        (0..50).for_each(|number| send(&table, number, stranger(1)));
        assert_eq!(table.counts().0, 10);
        (100..150).for_each(|number| send(&table, number, V));
        (200..205).for_each(|number| send(&table, number, stranger(2)));
        (0..50).for_each(|number| send(&table, 300 + number, stranger(1)));
        assert!((140..150).all(|number| is_stored(&table, number)));
        assert!((200..205).all(|number| is_stored(&table, number)));
        assert_eq!(table.counts().0, 20);
    }

    #[test]
    fn direct_message_bytes_are_shared_equally_by_owners() {
        let sent = message(100);
        let table = table(100, 10 * sent.held_bytes());
        let send = |number, holder| {
            let key = first(table.enter(numbered(number), holder, at(0)));
            table.settle(key, Some(&sent));
        };
        (0..5).for_each(|number| send(number, V));
        (100..150).for_each(|number| send(number, A));
        assert!((0..5).chain(145..150).all(|number| is_stored(&table, number)));
        // An owner above its share evicts its own entry.
        send(5, V);
        assert!(!is_stored(&table, 0) && (145..150).all(|number| is_stored(&table, number)));
        assert_eq!(table.counts().0, 10);
    }

    #[test]
    fn random_sends_evict_no_entry_of_owner_below_its_share() {
        let entries_max = 24;
        let table = table(entries_max, 1_000);
        let (mut random, mut open) = (1u64, Vec::<(u32, SendKey)>::new());
        // The sends of each owner, the oldest first.
        let mut sent = HashMap::<u32, Vec<u32>>::new();
        for number in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // The first owner sends most.
            let owner = ((random >> 33) % 8 * ((random >> 40) % 2)) as u32;
            let held = |owner: u32| -> usize {
                let sends = sent.get(&owner).into_iter().flatten();
                sends.filter(|number| is_stored(&table, **number)).count()
            };
            let before: Vec<usize> = (0..8).map(held).collect();
            let owners = (0..8).filter(|one| before[*one as usize] > 0 || *one == owner).count();
            let look = table.enter(numbered(number), Holder::owner(owner), at(0));
            sent.entry(owner).or_default().push(number);
            if let SendLook::First(key) = look {
                match random >> 61 {
                    0 => drop(table.settle(key, None)),
                    1 if open.len() < 4 => open.push((number, key)),
                    _ => drop(table.settle_task(key, task(number))),
                }
            }
            if random >> 60 == 15 && !open.is_empty() {
                let (number, key) = open.swap_remove(0);
                table.settle_task(key, task(number));
            }
            assert!(open.iter().all(|(number, _)| is_stored(&table, *number)));
            for other in (0..8).filter(|other| *other != owner) {
                let held = |owner: u32| -> usize {
                    let sends = sent.get(&owner).into_iter().flatten();
                    sends.filter(|number| is_stored(&table, **number)).count()
                };
                let (before, after) = (before[other as usize], held(other));
                assert!(after == before || before > entries_max / owners, "{number}: {other}");
            }
            assert!(table.counts().0 <= entries_max);
            for sends in sent.values_mut() {
                sends.retain(|number| is_stored(&table, *number));
            }
        }
    }
}
