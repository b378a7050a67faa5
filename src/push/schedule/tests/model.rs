//! Random operations on the schedule and on a simple model of the schedule: no event is lost, and
//! no limit is exceeded.

use super::*;

/// Reproducible pseudo-random numbers.
pub(super) struct SeededNumbers(pub u64);

impl SeededNumbers {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

/// The model of a webhook.
#[derive(Clone, Copy, Default)]
struct ModelWebhook {
    origin: usize,
    owner: u32,
    /// Undelivered events.
    waiting: u32,
    /// The webhook that it replaces, while a delivery of that webhook is in flight.
    replaced: Option<WebhookSlot>,
}

#[derive(Default)]
struct ScheduleModel {
    slots: HashMap<WebhookSlot, ModelWebhook>,
    in_flight: HashMap<WebhookSlot, ModelWebhook>,
    /// Webhooks with deliveries that were deferred as too large, including deleted webhooks.
    deferred: Vec<WebhookSlot>,
}

/// Three origins are at the same host.
const ORIGINS: [&str; 5] =
    ["https://a:1", "https://a:2", "https://a:3", "https://d:1", "https://e:1"];

impl ScheduleModel {
    fn some(&self, numbers: &mut SeededNumbers) -> Option<WebhookSlot> {
        let mut slots: Vec<_> = self.slots.keys().copied().collect();
        slots.sort_unstable_by_key(|slot| slot.check);
        (!slots.is_empty()).then(|| slots[numbers.below(slots.len())])
    }

    fn change(&mut self, schedule: &mut Schedule<()>, numbers: &mut SeededNumbers, now_ms: u64) {
        let new = ModelWebhook {
            origin: numbers.below(ORIGINS.len()),
            owner: numbers.below(4) as u32,
            ..ModelWebhook::default()
        };
        match (numbers.below(12), self.some(numbers)) {
            (0, _) | (_, None) => {
                self.slots.insert(schedule.add_owned(ORIGINS[new.origin], new.owner, ()), new);
            }
            (1 | 2, Some(slot)) if self.slots.len() > 30 => {
                schedule.remove(slot);
                self.slots.remove(&slot);
            }
            (3, Some(before)) => {
                let webhook = self.slots.remove(&before).unwrap();
                let slot =
                    schedule.add_replacement_owned(before, ORIGINS[new.origin], new.owner, ());
                schedule.remove(before);
                let is_posting = self.in_flight.contains_key(&before);
                let replaced = if is_posting { Some(before) } else { webhook.replaced };
                self.slots.insert(slot, ModelWebhook { waiting: 1, replaced, ..new });
                schedule.note(slot, now_ms);
            }
            (4..=7, Some(slot)) => {
                schedule.note(slot, now_ms);
                self.slots.get_mut(&slot).unwrap().waiting += 1;
            }
            (8, _) => self.deferred.drain(..).for_each(|slot| schedule.resume_deferred(slot)),
            (9, _) if numbers.below(10) == 0 => {
                let stopped = schedule.give_up(now_ms);
                stopped.into_iter().for_each(|slot| schedule.resume(slot, now_ms));
            }
            _ => {}
        }
    }

    /// Starts all deliveries that may start; checks the limits and the order of each webhook.
    fn post(&mut self, schedule: &mut Schedule<()>, now_ms: u64) {
        while let Some(slot) = schedule.next(now_ms) {
            let webhook = self.slots.get_mut(&slot).unwrap();
            webhook.waiting = 0;
            assert!(webhook.replaced.is_none_or(|before| !self.in_flight.contains_key(&before)));
            assert!(self.in_flight.insert(slot, *webhook).is_none());
        }
        let count = |is_its: &dyn Fn(&ModelWebhook) -> bool| {
            self.in_flight.values().filter(|webhook| is_its(webhook)).count()
        };
        for host in ["https://a", "https://d", "https://e"] {
            assert!(count(&|webhook| ORIGINS[webhook.origin].starts_with(host)) <= 4);
        }
        assert!((1..4).all(|owner| count(&|webhook| webhook.owner == owner) <= 4));
        assert!(count(&|webhook| webhook.owner == 0) <= 8 && self.in_flight.len() <= 10);
        assert_eq!(schedule.posting() as usize, self.in_flight.len());
    }

    fn end(&mut self, schedule: &mut Schedule<()>, numbers: &mut SeededNumbers, now_ms: u64) {
        let mut slots: Vec<_> = self.in_flight.keys().copied().collect();
        slots.sort_unstable_by_key(|slot| slot.check);
        let Some(slot) = slots.get(numbers.below(slots.len().max(1))).copied() else { return };
        self.in_flight.remove(&slot);
        let deferred = match numbers.below(6) {
            0 | 1 => {
                schedule.delivered(slot, now_ms, false);
                return;
            }
            2 => return schedule.passed_over(slot, now_ms, false),
            kind => kind == 3,
        };
        if let Some(webhook) = self.slots.get_mut(&slot) {
            webhook.waiting += 1;
        }
        if deferred {
            let is_there = schedule.defer(slot, now_ms);
            assert_eq!(is_there, self.slots.contains_key(&slot));
            return self.deferred.push(slot);
        }
        let random = numbers.below(usize::MAX) as u64;
        let fate = match numbers.below(3) {
            0 => schedule.failed(slot, Refused, now_ms, None, random << 32),
            1 => schedule.failed(slot, Unwell, now_ms, None, random << 32),
            _ => schedule.failed(slot, NoAnswer, now_ms, None, random << 32),
        };
        if fate == Fate::GivenUp {
            schedule.resume(slot, now_ms);
        }
    }

    /// No webhook waits for a free slot, and each slot is in use or free.
    fn check_slots(&self, schedule: &Schedule<()>) {
        let entries = schedule.entries.iter().flatten();
        let granted = entries.filter(|entry| entry.stage == PostStage::Granted).count();
        let hosts = || schedule.origins.hosts().all();
        let reserved = hosts().filter(|host| host.reserved.is_some()).count();
        let used = hosts().map(|host| host.posting as usize).sum::<usize>();
        assert_eq!(used, self.in_flight.len() + granted + reserved);
        let of_origins = schedule.origins.all().map(|origin| origin.posting as usize);
        assert_eq!(of_origins.sum::<usize>(), used);
        let of_owners = schedule.owners.values().map(|owner| owner.posting as usize);
        assert_eq!(of_owners.sum::<usize>(), self.in_flight.len() + granted);
        let lines = schedule.origins.all().flat_map(|origin| &origin.lines);
        let lines = lines.chain(schedule.owners.values().flat_map(|owner| owner.lines()));
        let is_live = |turn: &&QueueTurn| {
            schedule.queues.get(&turn.queue).is_some_and(|queue| turn.is_of(queue))
        };
        let turns = lines.flat_map(|line| &line.turns).filter(is_live).count();
        assert_eq!(turns, schedule.queues.len(), "each owner queue has one turn");
        for (key, queue) in &schedule.queues {
            assert!(queue.ready > 0);
            let of_origin = schedule.origins.get(key.origin).unwrap().posting;
            // An origin that has become the only one of its host uses the other slots only from the
            // end of a delivery.
            let is_free = of_origin < schedule.pace.posts_of_origin(2)
                && schedule.origins.has_permit(key.origin, &schedule.pace);
            let posting = schedule.owners.get(&key.owner).map_or(0, |owner| owner.posting);
            let most = schedule.pace.posts_of_owner(key.owner, schedule.granted);
            assert!(!is_free || posting >= most);
        }
    }
}

/// In any order of operations: each webhook has at most one delivery in flight, the limits of a
/// host, of an owner and of all deliveries hold, no webhook waits for a free slot, and in the end
/// everything has arrived.
#[test]
fn random_operations_lose_no_event_and_exceed_no_limit() {
    (7..10).for_each(happens);
}

fn happens(seed: u64) {
    let (pace, first_posts) = (Pace { per_host: 4, per_owner: 4, ..Pace::default() }, 0);
    let pace = Pace { posts_max: 10, rest_after: 4, first_posts, ..pace };
    let (mut schedule, mut numbers) = (Schedule::new(pace), SeededNumbers(seed));
    let (mut model, mut now_ms) = (ScheduleModel::default(), 0);
    for _ in 0..30_000 {
        now_ms += numbers.below(2_000) as u64;
        model.change(&mut schedule, &mut numbers, now_ms);
        model.post(&mut schedule, now_ms);
        model.check_slots(&schedule);
        if numbers.below(3) == 0 {
            model.end(&mut schedule, &mut numbers, now_ms);
            model.check_slots(&schedule);
        }
    }
    for _ in 0..1_000 {
        now_ms += HOUR;
        model.deferred.drain(..).for_each(|slot| schedule.resume_deferred(slot));
        model.post(&mut schedule, now_ms);
        let ended: Vec<_> = model.in_flight.drain().map(|(slot, _)| slot).collect();
        ended.into_iter().for_each(|slot| {
            schedule.delivered(slot, now_ms, false);
        });
    }
    assert!(model.slots.values().all(|webhook| webhook.waiting == 0));
    schedule.give_up(now_ms);
    assert!(schedule.queues.is_empty() && schedule.owners.is_empty() && schedule.posting() == 0);
    let origins: std::collections::HashSet<_> =
        model.slots.values().map(|webhook| webhook.origin).collect();
    assert_eq!(schedule.len(), (model.slots.len(), origins.len()));
    assert_eq!(schedule.origin_bytes(), origins.len() * origin_bytes(ORIGINS[0]));
    let hosts: std::collections::HashSet<_> =
        origins.iter().map(|origin| host_name(ORIGINS[*origin])).collect();
    let all_hosts = schedule.origins.hosts();
    assert_eq!(all_hosts.len(), hosts.len());
    assert_eq!(all_hosts.entries("a"), {
        model.slots.values().filter(|webhook| webhook.origin < 3).count()
    });
    assert!(all_hosts.all().all(|host| host.posting == 0 && host.line.is_empty()));
}
