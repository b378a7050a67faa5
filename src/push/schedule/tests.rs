//! Tests of the order of deliveries.

#![allow(clippy::unwrap_used)]

mod fairness;
mod model;

use super::{
    FailureKind::{NoAnswer, Refused, Unwell},
    turns::QueueTurn,
    *,
};

use model::SeededNumbers;

const HOUR: u64 = 60 * 60 * 1_000;

/// All deliveries that may start now.
fn all(schedule: &mut Schedule<()>, now_ms: u64) -> Vec<WebhookSlot> {
    std::iter::from_fn(|| schedule.next(now_ms)).collect()
}

fn holder(owner: u32) -> Holder {
    if owner == 0 { Holder::default() } else { Holder::owner(owner) }
}

impl<T> Schedule<T> {
    /// Adds an entry of an owner; 0: of an anonymous caller.
    fn add_owned(&mut self, origin: &str, owner: u32, value: T) -> WebhookSlot {
        self.add(origin, holder(owner), value)
    }

    fn add_replacement_owned(
        &mut self,
        before: WebhookSlot,
        origin: &str,
        owner: u32,
        value: T,
    ) -> WebhookSlot {
        self.add_replacement(before, origin, holder(owner), value)
    }
}

fn fail(schedule: &mut Schedule<()>, slot: WebhookSlot, now_ms: u64) -> Fate {
    schedule.failed(slot, NoAnswer, now_ms, None, u64::MAX)
}

#[test]
fn events_noted_during_a_delivery_are_delivered_after_it() {
    let mut schedule = Schedule::new(Pace::default());
    let slot = schedule.add_owned("https://a", 0, ());
    assert_eq!(all(&mut schedule, 0), []);
    schedule.note(slot, 0);
    schedule.note(slot, 0);
    assert_eq!(all(&mut schedule, 0), [slot]);
    schedule.note(slot, 1);
    assert_eq!(all(&mut schedule, 1), []);
    schedule.delivered(slot, 2, false);
    assert_eq!(all(&mut schedule, 2), [slot]);
    schedule.delivered(slot, 3, true);
    assert_eq!(all(&mut schedule, 3), [slot]);
    schedule.delivered(slot, 4, false);
    assert_eq!((all(&mut schedule, 4), schedule.due_ms()), (vec![], None));
}

#[test]
fn slow_origin_is_limited_to_eight_deliveries_in_flight() {
    let mut schedule = Schedule::new(Pace { posts_max: 11, first_posts: 0, ..Pace::default() });
    let slow: Vec<_> = (0..20).map(|_| schedule.add_owned("https://slow", 1, ())).collect();
    slow.iter().for_each(|slot| schedule.note(*slot, 0));
    let quick: Vec<_> = (0..20).map(|_| schedule.add_owned("https://quick", 2, ())).collect();
    quick.iter().for_each(|slot| schedule.note(*slot, 0));
    let first = all(&mut schedule, 0);
    assert_eq!(first.len(), 11);
    assert_eq!(first.iter().filter(|slot| slow.contains(slot)).count(), 6);
    // The slow deliveries stay in flight.
    let mut delivered = 0;
    let mut in_flight: Vec<_> = first;
    while let Some(at) = in_flight.iter().position(|slot| quick.contains(slot)) {
        schedule.delivered(in_flight.remove(at), 1, false);
        delivered += 1;
        in_flight.extend(all(&mut schedule, 1));
        let slow_now = in_flight.iter().filter(|slot| slow.contains(slot)).count();
        assert!(slow_now <= 8 && in_flight.len() <= 11);
    }
    assert_eq!(delivered, 20);
    assert_eq!(in_flight.len(), 8);
}

#[test]
fn origins_sharing_a_host_take_turns_and_leave_free_slots() {
    let mut schedule = Schedule::new(Pace::default());
    let add = |schedule: &mut Schedule<()>, origin: &str| {
        let slots: Vec<_> = (0..20).map(|_| schedule.add_owned(origin, 0, ())).collect();
        slots.iter().for_each(|slot| schedule.note(*slot, 0));
        slots
    };
    // A single origin has all slots of its host.
    let alone = add(&mut schedule, "https://alone:443");
    assert_eq!(all(&mut schedule, 0), alone[..8]);
    let slow = add(&mut schedule, "https://h:1");
    assert_eq!(all(&mut schedule, 0), slow[..8]);
    let [quick, http] = ["https://h:2", "http://h:1"].map(|origin| add(&mut schedule, origin));
    assert_eq!(all(&mut schedule, 0), []);
    // The other origins take the freed slots, in turns.
    for (ended, next) in slow.iter().zip([quick[0], http[0], quick[1]]) {
        schedule.delivered(*ended, 0, false);
        assert_eq!(all(&mut schedule, 0), [next]);
    }
    // If the others have nothing to post, the slow origin has six slots, never all.
    let mut in_flight = vec![quick[0], http[0], quick[1]];
    while let Some(ended) = in_flight.pop() {
        schedule.delivered(ended, 0, false);
        in_flight.extend(all(&mut schedule, 0).iter().filter(|slot| !slow.contains(slot)));
    }
    let posting = slow.iter().filter(|slot| schedule.is_posting(**slot)).count();
    assert_eq!(posting, 6);
    assert!(quick.iter().chain(&http).all(|slot| !schedule.is_busy(*slot)));
    // Each origin has its own circuit.
    let mut failing: Vec<_> = slow.iter().copied().filter(|at| schedule.is_posting(*at)).collect();
    while let Some(slot) = failing.pop() {
        fail(&mut schedule, slot, 0);
        failing.extend(all(&mut schedule, 0));
    }
    assert_eq!(schedule.posting(), 8);
    schedule.note(quick[0], 0);
    assert_eq!(schedule.next(0), Some(quick[0]));
}

#[test]
fn webhook_of_a_full_owner_gets_a_slot_of_a_full_host() {
    for (owner, most) in [(1, 64), (0, 192)] {
        let mut schedule = Schedule::new(Pace::default());
        let add = |schedule: &mut Schedule<()>, origin: &str, owner| {
            let slot = schedule.add_owned(origin, owner, ());
            schedule.note(slot, 0);
            slot
        };
        let elsewhere = (0..most + 32).map(|at| format!("https://g{}:1", at / 8));
        let elsewhere: Vec<_> =
            elsewhere.map(|origin| add(&mut schedule, &origin, owner)).collect();
        for _ in 0..20 {
            add(&mut schedule, "https://h:1", 2);
        }
        let mut in_flight = all(&mut schedule, 0);
        let waits =
            [add(&mut schedule, "https://h:1", owner), add(&mut schedule, "https://h:2", owner)];
        let mut numbers = SeededNumbers(7);
        let mut posts = 0;
        // All other webhooks always have new events.
        while !waits.iter().all(|slot| !schedule.is_busy(*slot)) {
            let slot = in_flight.swap_remove(numbers.below(in_flight.len()));
            schedule.delivered(slot, 0, !waits.contains(&slot));
            in_flight.extend(all(&mut schedule, 0));
            let of_owner = in_flight.iter().filter(|slot| elsewhere.contains(slot)).count();
            assert!(of_owner <= most);
            posts += 1;
            assert!(posts < 50_000, "{owner}");
        }
    }
}

/// Fails all deliveries that may start at the next due time; returns them, and the time.
fn fail_next(
    schedule: &mut Schedule<()>,
    kind: FailureKind,
    now_ms: u64,
) -> (Vec<WebhookSlot>, u64) {
    let at_ms = schedule.due_ms().unwrap_or(now_ms).max(now_ms);
    let slots = all(schedule, at_ms);
    for slot in &slots {
        schedule.failed(*slot, kind, at_ms, None, u64::MAX / 2);
    }
    (slots, at_ms)
}

#[test]
fn failing_webhooks_of_an_origin_do_not_starve_a_new_webhook() {
    // `count` webhooks of the origin fail. Before the new webhook is added, all of them were tried,
    // or none (`before` is 0). The pauses are 30 s or 30 min.
    for (kind, count, before, most_ms) in
        [(NoAnswer, 10, 30, 2 * HOUR), (Unwell, 100, 250, HOUR / 30), (Unwell, 100, 0, 2 * HOUR)]
    {
        for (owners, own) in [(1, 1), (1, 2), (40, 99)] {
            let mut schedule = Schedule::new(Pace::default());
            let failing = (0..count)
                .map(|at| schedule.add_owned("https://h", 1 + at % owners, ()))
                .collect::<Vec<_>>();
            failing.iter().for_each(|slot| schedule.note(*slot, 0));
            let mut now_ms = 0;
            for _ in 0..before {
                now_ms = fail_next(&mut schedule, kind, now_ms).1;
            }
            let newcomer = schedule.add_owned("https://h", own, ());
            schedule.note(newcomer, now_ms);
            let since_ms = now_ms;
            loop {
                let (slots, at_ms) = fail_next(&mut schedule, kind, now_ms);
                now_ms = at_ms;
                if slots.contains(&newcomer) {
                    break;
                }
            }
            let waited_ms = now_ms - since_ms;
            assert!(waited_ms <= most_ms, "{kind:?} {before} {owners}: {waited_ms} ms");
        }
    }
}

#[test]
fn owner_with_many_ports_does_not_starve_another_owner() {
    let mut schedule = Schedule::new(Pace::default());
    let add = |schedule: &mut Schedule<()>, origin: &str, owner| {
        let slot = schedule.add_owned(origin, owner, ());
        schedule.note(slot, 0);
        slot
    };
    let slow: Vec<_> =
        (0..100).map(|at| add(&mut schedule, &format!("https://h:{}", 1024 + at), 2)).collect();
    // The same if the other owner has registered its port earlier.
    add(&mut schedule, "https://h:443", 2);
    let mut in_flight = all(&mut schedule, 0);
    assert_eq!(in_flight.len(), 8);
    let mut good: Vec<_> = (0..20).map(|_| add(&mut schedule, "https://h:443", 1)).collect();
    let mut ends = 0;
    while !good.is_empty() {
        let slot = in_flight.remove(0);
        schedule.delivered(slot, 0, slow.contains(&slot));
        good.retain(|at| *at != slot);
        in_flight.extend(all(&mut schedule, 0));
        ends += 1;
    }
    // They get at least a third of the slots.
    assert!(ends <= 75, "{ends}");
}

#[test]
fn owner_limit_holds_over_all_origins() {
    let mut schedule = Schedule::new(Pace { per_owner: 2, ..Pace::default() });
    let mut slots = Vec::new();
    for at in 0..6 {
        slots.push(schedule.add_owned(&format!("https://h{at}"), 7, ()));
    }
    let other = schedule.add_owned("https://h0", 8, ());
    slots.iter().chain([&other]).for_each(|slot| schedule.note(*slot, 0));
    assert_eq!(all(&mut schedule, 0), [slots[0], slots[1], other]);
    schedule.delivered(slots[0], 1, false);
    assert_eq!(all(&mut schedule, 1), [slots[2]]);
    // A waiting webhook that is deleted is skipped; if it is deleted in flight, its slot is freed
    // at the end of its delivery.
    schedule.remove(slots[3]);
    schedule.remove(slots[1]);
    assert_eq!(all(&mut schedule, 1), []);
    schedule.delivered(slots[1], 1, false);
    assert_eq!(all(&mut schedule, 1), [slots[4]]);
    fail(&mut schedule, slots[4], 1);
    assert_eq!(all(&mut schedule, 1), [slots[5]]);
    schedule.delivered(slots[2], 2, false);
    schedule.delivered(slots[5], 2, false);
    schedule.delivered(other, 2, false);
    assert_eq!(schedule.posting(), 0);
}

#[test]
fn retry_pauses_double_and_retry_after_overrides_them() {
    let mut schedule = Schedule::new(Pace { rest_after: u32::MAX, ..Pace::default() });
    let slot = schedule.add_owned("https://a", 0, ());
    schedule.note(slot, 0);
    let mut now_ms = 0;
    for failures in 0..20 {
        assert_eq!(all(&mut schedule, now_ms), [slot], "{failures}");
        assert_eq!(fail(&mut schedule, slot, now_ms), Fate::Repeated);
        let pause_ms = schedule.due_ms().unwrap() - now_ms;
        assert_eq!(pause_ms, (1_000 << failures.min(20)).min(HOUR), "{failures}");
        assert_eq!(all(&mut schedule, now_ms + pause_ms - 1), []);
        now_ms += pause_ms;
    }
    assert_eq!(all(&mut schedule, now_ms), [slot]);
    schedule.failed(slot, NoAnswer, now_ms, Some(7), u64::MAX);
    assert_eq!(schedule.due_ms(), Some(now_ms + 7));
    assert_eq!(all(&mut schedule, now_ms + 7), [slot]);
    // With jitter the pause is at least one millisecond.
    schedule.failed(slot, NoAnswer, now_ms, None, 0);
    assert_eq!(schedule.due_ms(), Some(now_ms + 1));
}

#[test]
fn failing_webhook_stops_after_a_day_and_can_be_resumed() {
    let mut schedule = Schedule::new(Pace::default());
    let slot = schedule.add_owned("https://a", 0, ());
    schedule.note(slot, 0);
    let (mut now_ms, mut posts) = (0, 0);
    loop {
        let Some(next) = schedule.next(now_ms) else {
            now_ms = schedule.due_ms().unwrap();
            continue;
        };
        posts += 1;
        if fail(&mut schedule, next, now_ms) == Fate::GivenUp {
            break;
        }
    }
    assert!((24 * HOUR..=25 * HOUR).contains(&now_ms), "{now_ms}");
    assert!((20..60).contains(&posts), "{posts}");
    schedule.note(slot, now_ms);
    assert_eq!(all(&mut schedule, now_ms + 9 * HOUR), []);
    schedule.resume(slot, now_ms);
    assert_eq!(all(&mut schedule, now_ms + HOUR), [slot]);
    assert_eq!(fail(&mut schedule, slot, now_ms + HOUR), Fate::Repeated);
}

#[test]
fn failing_origin_with_many_webhooks_gets_few_probes() {
    let mut schedule = Schedule::new(Pace::default());
    let slots: Vec<_> = (0..100_000).map(|_| schedule.add_owned("https://dead", 0, ())).collect();
    let other = schedule.add_owned("https://alive", 0, ());
    slots.iter().for_each(|slot| schedule.note(*slot, 0));
    let (mut now_ms, mut posts) = (0, 0);
    while now_ms < 10 * HOUR {
        for slot in all(&mut schedule, now_ms) {
            posts += 1;
            fail(&mut schedule, slot, now_ms);
        }
        assert!(schedule.timers.len() < 20);
        now_ms = schedule.due_ms().unwrap().max(now_ms + 1);
    }
    assert!(posts < 60, "{posts}");
    schedule.note(other, now_ms - 1);
    assert_eq!(all(&mut schedule, now_ms - 1), [other]);
    // The origin responds again, and all webhooks are delivered at once.
    now_ms += HOUR;
    let mut delivered = 0;
    while let Some(slot) = schedule.next(now_ms) {
        schedule.delivered(slot, now_ms, false);
        delivered += 1;
    }
    assert_eq!((delivered, schedule.posting()), (slots.len(), 1));
}

#[test]
fn queued_webhooks_of_a_dead_origin_stop_together() {
    let mut schedule = Schedule::new(Pace::default());
    let slots: Vec<_> = (0..1_000).map(|_| schedule.add_owned("https://dead", 0, ())).collect();
    slots.iter().for_each(|slot| schedule.note(*slot, 0));
    let mut now_ms = 0;
    while now_ms < 23 * HOUR {
        all(&mut schedule, now_ms).into_iter().for_each(|slot| {
            fail(&mut schedule, slot, now_ms);
        });
        now_ms = schedule.due_ms().unwrap().max(now_ms + 1);
    }
    assert_eq!(schedule.give_up(now_ms), []);
    let given_up = schedule.give_up(24 * HOUR);
    assert!(given_up.len() > 980, "{}", given_up.len());
    assert_eq!(schedule.give_up(24 * HOUR), []);
}

#[test]
fn deleted_waiting_webhooks_use_bounded_memory() {
    let mut schedule = Schedule::new(Pace::default());
    let remaining = schedule.add_owned("https://dead", 0, ());
    let mut now_ms = 0;
    for round in 0..10_000u64 {
        now_ms += 1;
        let slot = schedule.add_owned("https://dead", 0, ());
        let other = schedule.add_owned(&format!("https://h{}", round % 3), 0, ());
        schedule.note(slot, now_ms);
        schedule.note(other, now_ms);
        for slot in all(&mut schedule, now_ms) {
            schedule.failed(slot, NoAnswer, now_ms, Some(HOUR), u64::MAX);
        }
        schedule.remove(slot);
        schedule.remove(other);
        let queues = schedule.queues.values().map(|queue| queue.slots.len());
        let lines = schedule.origins.all().flat_map(|origin| &origin.lines);
        let lines = lines.map(|line| line.turns.len());
        assert!(queues.sum::<usize>() <= SPARE + 4 && lines.sum::<usize>() <= 2 * SPARE);
        assert!(schedule.timers.len() <= SPARE + 10 && schedule.owners.len() <= 1);
    }
    schedule.remove(remaining);
    end_all(&mut schedule);
    assert_eq!(schedule.len(), (0, 0));
}

/// Ends all deliveries in flight, also of deleted webhooks.
fn end_all(schedule: &mut Schedule<()>) {
    let slots: Vec<_> = schedule.in_flight.keys().copied().collect();
    slots.into_iter().for_each(|slot| {
        schedule.delivered(slot, 0, false);
    });
}

#[test]
fn delivery_of_a_deleted_webhook_counts_until_its_end() {
    let mut schedule = Schedule::new(Pace { per_host: 1, ..Pace::default() });
    let [first, second, third] = [(); 3].map(|()| schedule.add_owned("https://a", 0, ()));
    for slot in [first, second, third] {
        schedule.note(slot, 0);
    }
    assert_eq!(all(&mut schedule, 0), [first]);
    schedule.remove(second);
    schedule.remove(first);
    assert_eq!((all(&mut schedule, 0), schedule.posting()), (vec![], 1));
    schedule.delivered(first, 0, true);
    assert_eq!(all(&mut schedule, 0), [third]);
    assert_eq!(fail(&mut schedule, second, 0), Fate::Repeated);
    let again = schedule.add_owned("https://a", 0, ());
    assert!(again != first && again != second);
    schedule.remove(first);
    schedule.remove(third);
    schedule.remove(again);
    assert_eq!((schedule.len(), schedule.posting()), ((0, 1), 1));
    assert_eq!(fail(&mut schedule, third, 0), Fate::Repeated);
    assert_eq!((schedule.len(), schedule.posting()), ((0, 0), 0));
    assert_eq!(all(&mut schedule, HOUR), []);
}

#[test]
fn deleting_webhooks_evades_neither_limits_nor_failures() {
    let pace = Pace { per_host: 3, per_owner: 5, posts_max: 100, ..Pace::default() };
    let mut schedule = Schedule::new(pace);
    let mut in_flight = Vec::new();
    for round in 0..100 {
        let slot = schedule.add_owned(&format!("https://h{}", round % 4), 7, ());
        schedule.note(slot, 0);
        in_flight.extend(all(&mut schedule, 0));
        schedule.remove(slot);
    }
    assert_eq!((in_flight.len(), schedule.posting()), (5, 5));
    for slot in in_flight {
        fail(&mut schedule, slot, 0);
    }
    schedule.give_up(0);
    assert_eq!((schedule.len(), schedule.posting(), schedule.owners.len()), ((0, 0), 0, 0));
    // The circuit opens at an origin that still has a webhook.
    let remaining = schedule.add_owned("https://a", 7, ());
    for _ in 0..8 {
        let slot = schedule.add_owned("https://a", 7, ());
        schedule.note(slot, 0);
        assert_eq!(all(&mut schedule, 0), [slot]);
        schedule.remove(slot);
        fail(&mut schedule, slot, 0);
    }
    schedule.note(remaining, 0);
    assert_eq!(all(&mut schedule, 0), []);
}

#[test]
fn replacement_waits_for_the_delivery_in_flight() {
    let mut schedule = Schedule::new(Pace::default());
    let first = schedule.add_owned("https://a", 7, ());
    schedule.note(first, 3);
    assert_eq!(all(&mut schedule, 3), [first]);
    let mut replace = |before, origin| {
        let slot = schedule.add_replacement_owned(before, origin, 7, ());
        schedule.remove(before);
        schedule.note(slot, 4);
        (slot, all(&mut schedule, 4))
    };
    let (second, none) = replace(first, "https://b");
    assert_eq!(none, []);
    let (third, none) = replace(second, "https://c");
    assert_eq!(none, []);
    assert!(schedule.is_busy(third) && schedule.pending() == (1, Some(3)));
    fail(&mut schedule, first, 5);
    assert_eq!(all(&mut schedule, 5), [third]);
    schedule.delivered(third, 6, false);
    // An idle webhook is replaced by another idle one.
    let fourth = schedule.add_replacement_owned(third, "https://c", 7, ());
    schedule.remove(third);
    assert!(!schedule.is_busy(fourth) && schedule.len() == (1, 1));
    // A deleted webhook delays no other webhook.
    schedule.note(fourth, 7);
    assert_eq!(all(&mut schedule, 7), [fourth]);
    let fifth = schedule.add_replacement_owned(fourth, "https://c", 7, ());
    schedule.remove(fourth);
    schedule.remove(fifth);
    schedule.delivered(fourth, 8, false);
    assert_eq!((schedule.len(), schedule.posting()), ((0, 0), 0));
}

#[test]
fn owners_take_turns_at_an_origin_and_in_its_probes() {
    let mut schedule = Schedule::new(Pace { per_host: 2, first_posts: 0, ..Pace::default() });
    let many: Vec<_> = (0..1_000).map(|_| schedule.add_owned("https://a", 1, ())).collect();
    many.iter().for_each(|slot| schedule.note(*slot, 0));
    let few = [schedule.add_owned("https://a", 2, ()), schedule.add_owned("https://a", 3, ())];
    few.iter().for_each(|slot| schedule.note(*slot, 0));
    assert_eq!(all(&mut schedule, 0), [many[0], many[1]]);
    schedule.delivered(many[0], 0, false);
    schedule.delivered(many[1], 0, false);
    let next = all(&mut schedule, 0);
    assert!(next.contains(&few[0]) && next.len() == 2, "{next:?}");
    next.into_iter().for_each(|slot| {
        schedule.delivered(slot, 0, false);
    });
    assert!(all(&mut schedule, 0).contains(&few[1]));
    // Deliveries of the first owner fail; those of the others soon show that the origin responds.
    let mut schedule = Schedule::new(Pace::default());
    let many: Vec<_> = (0..1_000).map(|_| schedule.add_owned("https://a", 1, ())).collect();
    many.iter().for_each(|slot| schedule.note(*slot, 0));
    let other = schedule.add_owned("https://a", 2, ());
    let mut now_ms = 0;
    for round in 0..3 {
        schedule.note(other, now_ms);
        let mut failed = 0;
        loop {
            let Some(slot) = schedule.next(now_ms) else {
                now_ms = schedule.due_ms().unwrap();
                continue;
            };
            if slot == other {
                break;
            }
            fail(&mut schedule, slot, now_ms);
            failed += 1;
        }
        assert!(failed <= 8 + 3, "{round} {failed}");
        schedule.delivered(other, now_ms, false);
    }
}

#[test]
fn owner_slot_goes_to_a_webhook_with_a_free_origin() {
    let pace = Pace { per_host: 1, per_owner: 1, rest_after: 1, ..Pace::default() };
    let mut schedule = Schedule::new(pace);
    let [a, b, c] = ["https://a", "https://b", "https://c"].map(|at| schedule.add_owned(at, 7, ()));
    let [a2, b2] = ["https://a", "https://b"].map(|at| schedule.add_owned(at, 8, ()));
    [a, b, c].iter().for_each(|slot| schedule.note(*slot, 0));
    schedule.note(b2, 0);
    assert_eq!(all(&mut schedule, 0), [a, b2]);
    // The first waiting origin of its owner opens its circuit, or the first webhook is deleted.
    fail(&mut schedule, b2, 0);
    schedule.delivered(a, 0, false);
    assert_eq!(all(&mut schedule, 0), [c]);
    schedule.note(a, 0);
    schedule.note(a2, 0);
    schedule.remove(a);
    schedule.delivered(c, 0, false);
    assert_eq!(all(&mut schedule, 0), [a2]);
    let probe = schedule.due_ms().unwrap();
    assert_eq!(all(&mut schedule, probe).len(), 1);
}

#[test]
fn single_failing_webhook_does_not_open_the_circuit() {
    let mut schedule = Schedule::new(Pace::default());
    let broken = schedule.add_owned("https://a", 1, ());
    let other = schedule.add_owned("https://a", 2, ());
    schedule.note(broken, 0);
    let mut now_ms = 0;
    for _ in 0..20 {
        now_ms = schedule.due_ms().unwrap_or(now_ms);
        assert_eq!(all(&mut schedule, now_ms), [broken]);
        fail(&mut schedule, broken, now_ms);
    }
    schedule.note(other, now_ms);
    assert_eq!(all(&mut schedule, now_ms), [other]);
}

#[test]
fn resumed_webhook_probes_an_origin_with_an_open_circuit() {
    let mut schedule = Schedule::new(Pace { give_up_ms: HOUR, ..Pace::default() });
    let slots: Vec<_> = (0..20).map(|_| schedule.add_owned("https://a", 1, ())).collect();
    slots.iter().for_each(|slot| schedule.note(*slot, 0));
    let mut now_ms = 0;
    let given_up = loop {
        now_ms = schedule.due_ms().unwrap_or(now_ms);
        let next = all(&mut schedule, now_ms);
        let is_over = |slot: &WebhookSlot| fail(&mut schedule, *slot, now_ms) == Fate::GivenUp;
        if let Some(slot) = next.into_iter().find(is_over) {
            break slot;
        }
    };
    assert_eq!(all(&mut schedule, now_ms), []);
    schedule.resume(given_up, now_ms);
    assert_eq!(all(&mut schedule, now_ms), [given_up]);
    schedule.delivered(given_up, now_ms, false);
    assert_eq!(all(&mut schedule, now_ms).len(), 8);
}

#[test]
fn granted_slots_are_revoked_when_the_circuit_opens() {
    let mut schedule = Schedule::new(Pace { posts_max: 8, first_posts: 0, ..Pace::default() });
    let slots: Vec<_> = (0..30).map(|_| schedule.add_owned("https://a", 1, ())).collect();
    slots[..8].iter().for_each(|slot| schedule.note(*slot, 0));
    let first = all(&mut schedule, 0);
    assert_eq!(first.len(), 8);
    slots[8..].iter().for_each(|slot| schedule.note(*slot, 0));
    for slot in first {
        fail(&mut schedule, slot, 0);
    }
    assert_eq!((all(&mut schedule, 0), schedule.posting()), (vec![], 0));
    let probe = schedule.due_ms().unwrap();
    let posted = all(&mut schedule, probe);
    assert_eq!(posted.len(), 1);
    schedule.delivered(posted[0], probe, false);
    let in_flight = all(&mut schedule, probe);
    assert_eq!(in_flight.len(), 8);
    // A webhook that is deleted at its turn leaves no state.
    for round in 0..100 {
        let slot = schedule.add_owned(&format!("https://h{round}"), 2, ());
        schedule.note(slot, probe);
        schedule.remove(slot);
    }
    let other = schedule.add_owned("https://other", 2, ());
    schedule.note(other, probe);
    assert_eq!((schedule.len().1, schedule.next(probe)), (2, None));
    schedule.delivered(in_flight[0], probe, false);
    assert_eq!(all(&mut schedule, probe), [other]);
}

#[test]
fn refusals_do_not_open_the_circuit() {
    let mut schedule = Schedule::new(Pace::default());
    let missing: Vec<_> = (0..30).map(|_| schedule.add_owned("https://a", 1, ())).collect();
    missing.iter().for_each(|slot| schedule.note(*slot, 0));
    let mut refused = 0;
    while let Some(slot) = schedule.next(0) {
        assert_eq!(schedule.failed(slot, Refused, 0, None, u64::MAX), Fate::Repeated);
        refused += 1;
    }
    assert_eq!(refused, 30);
    let other = schedule.add_owned("https://a", 2, ());
    schedule.note(other, 1);
    assert_eq!(all(&mut schedule, 1), [other]);
    schedule.delivered(other, 2, false);
    // Each webhook is retried after its own pause, and stopped at its deadline.
    assert!(all(&mut schedule, 10_000).len() >= 8);
}
