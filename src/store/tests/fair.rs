//! Tests of fairness: no holder below its equal share loses a task to another holder, or is refused
//! because of one.

use std::{collections::HashMap, net::IpAddr};

use super::*;
use crate::{
    limits::SCOPE_BYTES,
    store::{
        charges::{Charges, Resource, TaskList},
        idle::EndReason,
    },
};

const WORDS: &str = "evicted: the owner's share is full";

fn owner(number: u32) -> NewTask<'static> {
    NewTask { scope: Scope { owner: OwnerIndex(number), ..AGENT }, ..new(0) }
}

fn peer(last: u8) -> NewTask<'static> {
    NewTask { peer: Holder::peer(Some(IpAddr::from([192, 0, 2, last])), false), ..new(0) }
}

fn stranger(last: u8) -> NewTask<'static> {
    NewTask { peer: Holder::peer(Some(IpAddr::from([192, 0, 2, last])), true), ..new(0) }
}

/// A store, and the bits and the time for its next task.
struct Fair {
    store: Store,
    bits: u128,
    ms: u64,
}

impl Fair {
    fn new(tasks_max: usize, workers: usize) -> Fair {
        Fair::limited(&Limits { tasks_max, ..Limits::default() }, workers)
    }

    fn limited(limits: &Limits, workers: usize) -> Fair {
        Fair { store: Store::for_workers(limits, 7, workers), bits: 1, ms: 1_000 }
    }

    fn make(&mut self, template: NewTask<'_>, state: TaskState) -> Result<TaskKey, Refused> {
        self.make_large(template, state, 9)
    }

    fn make_large(
        &mut self,
        template: NewTask<'_>,
        state: TaskState,
        length: usize,
    ) -> Result<TaskKey, Refused> {
        (self.bits, self.ms) = (self.bits + 1, self.ms + 1);
        let new = NewTask { context_id: None, bits: [self.bits, !self.bits], ..template };
        let reserved = self.store.reserve(new, at(self.ms))?;
        let (key, mut events) = (reserved.key(), EventBuf::default());
        if state != TaskState::Submitted {
            let at_ms = self.ms;
            events.push(&TaskEvent::Status { state, at_ms, message: None, metadata: None });
        }
        let message = text_message(length);
        let now = at(self.ms);
        self.store.commit_new(&reserved, Generation::V1, message.view(), &events, now, |_| key)
    }

    fn fill(&mut self, template: NewTask<'_>, state: TaskState, count: usize) -> Vec<TaskKey> {
        (0..count).map(|_| self.make(template, state).unwrap()).collect()
    }

    fn stored(&self, keys: &[TaskKey]) -> usize {
        keys.iter().filter(|key| state(&self.store, **key).is_some()).count()
    }

    fn ended(&self) -> u64 {
        self.store.stats().ended[EndReason::OwnerShare as usize]
    }

    fn words(&self, key: TaskKey) -> Option<String> {
        let text = self.store.read(key, |task| {
            let status = task.view().status();
            let message = status.message.filter(|_| status.state == TaskState::Failed);
            message.map(|message| message.text())
        });
        text?
    }
}

use TaskState::{Completed, InputRequired, Working};

#[test]
fn task_flood_evicts_only_tasks_of_the_flooder() {
    for (flooder, others) in [
        (owner(1), [owner(2), owner(3)]),
        (peer(1), [peer(2), peer(3)]),
        (peer(1), [owner(2), peer(3)]),
        (owner(1), [stranger(2), stranger(3)]),
        (stranger(1), [owner(2), stranger(3)]),
    ] {
        let mut fair = Fair::new(30, 1);
        let flood = fair.fill(flooder, Completed, 8);
        let spared: Vec<TaskKey> =
            others.iter().flat_map(|template| fair.fill(*template, Completed, 4)).collect();
        let late = fair.fill(flooder, Completed, 500);
        assert_eq!((fair.stored(&spared), fair.stored(&flood)), (8, 0));
        // The oldest tasks are evicted first.
        let remaining = fair.stored(&late);
        assert_eq!(fair.stored(&late[500 - remaining..]), remaining);
        assert!(remaining >= 11, "{remaining}");
    }
}

#[test]
fn full_anonymous_half_makes_room_for_a_caller_below_share() {
    let of = |last: u8, worker| NewTask { worker, ..stranger(last) };
    // The equal part of a group is 60; in the first group, the owner and anonymous callers have 90.
    let mut fair = Fair::new(120, 2);
    fair.fill(NewTask { worker: 0, ..owner(1) }, Working, 53);
    for last in 1..=4 {
        fair.fill(of(last, 0), Completed, 9);
    }
    let first = fair.make(of(9, 0), Working).unwrap();
    for (last, count) in [(5, 6), (6, 6), (7, 6), (8, 5)] {
        fair.fill(of(last, 1), Completed, count);
    }
    // Anonymous callers have their half, each at most a share of its group's amount.
    let second = fair.make(of(9, 0), Working).unwrap();
    assert_eq!((fair.stored(&[first, second]), fair.ended()), (2, 0));
}

#[test]
fn new_owner_evicts_finished_tasks_up_to_its_share() {
    let mut fair = Fair::new(12, 1);
    let flood = fair.fill(owner(1), Completed, 12);
    let second = fair.fill(owner(2), Completed, 6);
    assert_eq!((fair.stored(&flood), fair.stored(&flood[6..])), (6, 6));
    // At its share an owner makes room from its own tasks.
    let more = fair.fill(owner(2), Completed, 2);
    assert_eq!((fair.stored(&flood), fair.stored(&second), fair.stored(&more)), (6, 4, 2));
    assert_eq!(fair.stored(&second[2..]), 4);
    let third = fair.fill(peer(3), Completed, 4);
    assert_eq!((fair.stored(&flood), fair.stored(&third)), (4, 4));
    assert_eq!(fair.stored(&second) + fair.stored(&more), 4);
}

#[test]
fn byte_flood_evicts_only_tasks_of_the_flooder() {
    let mut fair = Fair::limited(&Limits { store_bytes_max: 60_000, ..Limits::default() }, 1);
    let own: Vec<TaskKey> =
        (0..4).map(|_| fair.make_large(owner(1), Completed, 2_000).unwrap()).collect();
    let mut flood = Vec::new();
    for round in 0..300 {
        flood.push(fair.make_large(owner(2), Completed, 100 + round * 10).unwrap());
        assert!(fair.store.stats().bytes <= 60_000);
    }
    assert_eq!(fair.stored(&own), 4);
    // A growing task makes room from its owner's tasks, too.
    let growing = fair.make(owner(2), Working).unwrap();
    let artifact = PartsBuf::new().text(&"y".repeat(2_000));
    let artifact = ArtifactBuf::new("a", &artifact);
    for _ in 0..5 {
        let event = TaskEvent::Artifact {
            artifact: artifact.view(),
            append: true,
            last_chunk: false,
            metadata: None,
        };
        assert!(apply(&fair.store, growing, &event).unwrap().is_ok());
    }
    assert_eq!(fair.stored(&own), 4);
    assert!(fair.stored(&flood) < 10);
}

#[test]
fn oldest_waiting_task_fails_and_is_evicted_at_a_full_share() {
    let mut fair = Fair::new(10, 1);
    let waiting = fair.fill(owner(1), InputRequired, 10);
    fair.make(owner(1), InputRequired).unwrap();
    assert_eq!((fair.stored(&waiting), fair.stored(&waiting[1..])), (9, 9));
    assert_eq!((fair.ended(), fair.store.stats().evicted), (1, [0, 1, 0, 0]));
    // A finished task is evicted first.
    assert!(apply(&fair.store, waiting[5], &status(Completed)).unwrap().is_ok());
    fair.make(owner(1), TaskState::AuthRequired).unwrap();
    assert_eq!((fair.stored(&waiting), fair.stored(&waiting[5..6]), fair.ended()), (8, 0, 1));
}

#[test]
fn listener_of_a_waiting_task_sees_why_it_ends() {
    let mut fair = Fair::new(10, 1);
    let waiting = fair.fill(owner(1), InputRequired, 10);
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&counter));
    let mut listener = Cursor { ends_at_input: false, ..cursor(waiting[0], 2, false) };
    assert_eq!(follow(&fair.store, &mut listener, &waker).0, Follow::Pending);
    fair.make(owner(1), InputRequired).unwrap();
    assert_eq!(counter.0.load(Relaxed), 1);
    assert_eq!(fair.words(waiting[0]).as_deref(), Some(WORDS));
    assert_eq!(follow(&fair.store, &mut listener, &waker), (Follow::End, vec![3], true));
    // The next task had no listener and was evicted; the failed task is evicted next.
    assert_eq!(fair.stored(&waiting[1..]), 8);
    fair.make(owner(1), InputRequired).unwrap();
    assert_eq!((fair.stored(&waiting[..1]), fair.stored(&waiting[2..])), (0, 8));
}

#[test]
fn new_holder_evicts_tasks_of_holders_above_their_share() {
    let mut fair = Fair::new(9, 1);
    let running = fair.fill(owner(1), Working, 6);
    let waiting = fair.fill(owner(2), InputRequired, 3);
    // The owner above its share has no waiting task, so its task with the oldest event is evicted.
    let artifact = ArtifactBuf::new("a", &PartsBuf::new().text("y"));
    let event = TaskEvent::Artifact {
        artifact: artifact.view(),
        append: false,
        last_chunk: true,
        metadata: None,
    };
    fair.store.update(running[0], at(5_000), |edit| edit.apply(&event)).unwrap().unwrap();
    let first = fair.make(peer(3), Working).unwrap();
    assert_eq!((fair.stored(&running), fair.stored(&running[1..2])), (5, 0));
    assert_eq!((fair.stored(&waiting), fair.ended()), (3, 1));
    let more = fair.fill(peer(3), Working, 2);
    assert_eq!((fair.stored(&running), fair.stored(&waiting)), (3, 3));
    // Each holder has its share now; a holder that needs more waits for its own tasks to end.
    for template in [owner(1), peer(3)] {
        let Err(Refused::OwnShareFull { retry_s }) = fair.make(template, Working) else { panic!() };
        assert!((3_590..=3_601).contains(&retry_s), "{retry_s}");
    }
    assert_eq!((fair.stored(&more), fair.stored(&[first])), (2, 1));
    fair.make(owner(2), Working).unwrap();
    assert_eq!((fair.stored(&waiting), fair.stored(&waiting[..1])), (2, 0));
}

#[test]
fn anonymous_callers_hold_at_most_half_of_the_store() {
    let mut fair = Fair::new(20, 1);
    for round in 0..60 {
        fair.make(stranger(round % 3), Completed).unwrap();
    }
    assert_eq!(fair.store.stats().tasks, 10);
    let running = fair.fill(stranger(9), Working, 2);
    let own = fair.fill(owner(1), Completed, 10);
    assert_eq!((fair.store.stats().tasks, fair.stored(&own), fair.stored(&running)), (20, 10, 2));
    // Anonymous callers never get the other half.
    for round in 0..60 {
        _ = fair.make(stranger(round), InputRequired);
        _ = fair.make_large(stranger(round), Working, 2_000);
    }
    assert_eq!(fair.stored(&own), 10);
    fair.fill(owner(1), Working, 10);
    assert_eq!(fair.stored(&own), 0);
    let peers = NewTask { peer: Holder::peer(None, false), ..new(0) };
    let mut open = Fair::new(20, 1);
    open.fill(peers, Completed, 20);
    assert_eq!(open.store.stats().tasks, 20);
}

#[test]
fn tasks_on_another_worker_are_evicted_only_for_their_holder() {
    let mut fair = Fair::new(200, 2);
    let theirs = NewTask { worker: 1, ..owner(1) };
    let own = NewTask { worker: 1, ..owner(2) };
    let (spared, moved) = (fair.fill(theirs, Completed, 50), fair.fill(own, Completed, 50));
    fair.ms += 60_000;
    let flood = fair.fill(owner(2), Completed, 1_000);
    assert_eq!((fair.stored(&spared), fair.stored(&moved)), (50, 0));
    assert!(fair.stored(&flood) >= 140, "{}", fair.stored(&flood));
    // A new owner in that group gets its share, although the others hold the whole limit.
    let late = fair.fill(NewTask { worker: 1, ..owner(3) }, Working, 30);
    assert_eq!((fair.stored(&late), fair.stored(&spared)), (30, 50));
}

#[test]
fn charges_of_many_peers_are_bounded_and_end_with_their_tasks() {
    let limits = Limits { tasks_max: 300, task_ttl_ms: 10, ..Limits::default() };
    let mut fair = Fair::limited(&limits, 1);
    for round in 0..2_000u32 {
        let address = IpAddr::from([10, 0, (round / 256) as u8, round as u8]);
        let template = NewTask { peer: Holder::peer(Some(address), round % 3 == 0), ..new(0) };
        _ = fair.make(template, Completed);
        assert!(fair.store.groups[0].charges.len() <= 3 * 64);
    }
    fair.ms += 60_000;
    while fair.store.sweep(at(fair.ms)) {}
    let charges = &fair.store.groups[0].charges;
    assert_eq!((fair.store.stats().tasks, charges.len()), (0, 0));
    assert_eq!(charges.held_by_strangers(Resource::Tasks), 0);
    assert_eq!(charges.held_by_strangers(Resource::Bytes), 0);
}

/// Compares the charges of a group with amounts counted task by task.
fn counted(store: &Store, held: &[(TaskKey, Holder)]) {
    let mut sums: HashMap<Holder, (usize, usize)> = HashMap::new();
    for (key, holder) in held {
        let bytes = store.read(*key, |task| task.heap_bytes()).unwrap();
        let sum = sums.entry(*holder).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    let charges: &Charges = &store.groups[0].charges;
    assert_eq!(charges.len(), sums.len());
    for (holder, (tasks, bytes)) in sums {
        let charge = charges.find(holder).unwrap();
        // An owner has one scope here, in one shard of the group.
        let bytes = bytes + if holder.is_peer() { 0 } else { SCOPE_BYTES };
        assert_eq!(charge.held(Resource::Tasks), tasks);
        assert_eq!(charge.held(Resource::Bytes), bytes);
        let lists = [TaskList::Finished, TaskList::Waiting, TaskList::Running];
        assert!(lists.iter().any(|list| charge.has(*list)));
    }
}

/// In any mix of owners and anonymous callers, no holder below its share loses a task to another
/// holder or is refused, and the sums equal the held amounts.
#[test]
fn holder_below_its_share_never_loses_a_task_or_is_refused() {
    for seed in 1..=24u64 {
        let mut random = seed;
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let tasks_max = 5 + next(30) as usize;
        let store_bytes_max = [30_000, 10_000_000][next(2) as usize];
        let limits = Limits { tasks_max, store_bytes_max, ..Limits::default() };
        let mut fair = Fair::limited(&limits, 1);
        let mut held: Vec<(TaskKey, Holder)> = Vec::new();
        for _ in 0..1_500 {
            let number = next(3) as u8;
            let template = match next(3) {
                0 => owner(1 + u32::from(number)),
                1 => stranger(number),
                _ => peer(number),
            };
            let state = [Completed, Completed, InputRequired, Working][next(4) as usize];
            let (length, holder) = (next(900) as usize, template.holder());
            let charges = &fair.store.groups[0].charges;
            let own = charges.enter(holder);
            let shares = [Resource::Tasks, Resource::Bytes].map(|of| charges.shares(of));
            // The maximum size of a task with this message, and its scope.
            let bytes = length + 2_000 + SCOPE_BYTES;
            let fits = shares[0].fits(&own, 1) && shares[1].fits(&own, bytes);
            let mut above: Vec<Holder> = held.iter().map(|(_, holder)| *holder).collect();
            above.retain(|holder| {
                let charge = charges.find(*holder).unwrap();
                shares.iter().any(|shares| shares.is_above(&charge))
            });
            charges.leave(&own);
            match fair.make_large(template, state, length) {
                Ok(key) => held.push((key, holder)),
                Err(refused) => assert!(!fits, "{refused:?} {holder:?}"),
            }
            for (key, task_holder) in &held {
                let may_go = *task_holder == holder && !fits || above.contains(task_holder);
                assert!(
                    may_go || fair.stored(&[*key]) == 1,
                    "{seed}: {task_holder:?} for {holder:?}"
                );
            }
            if let Some((key, _)) = held.get(next(20) as usize)
                && next(3) == 0
            {
                _ = apply(&fair.store, *key, &status([Completed, Working][next(2) as usize]));
            }
            held.retain(|(key, _)| fair.stored(&[*key]) == 1);
            counted(&fair.store, &held);
            let strangers = held.iter().filter(|(_, holder)| holder.is_stranger()).count();
            assert!(strangers <= tasks_max / 2);
            assert!(fair.store.stats().tasks <= tasks_max as u64);
        }
    }
}
