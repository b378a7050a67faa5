//! Tests of how long an owner waits while others always have something to post.

use super::{model::SeededNumbers, *};

/// A schedule with deliveries that arrive as soon as others are granted, while time passes.
struct ScheduleRun {
    schedule: Schedule<()>,
    now_ms: u64,
    in_flight: Vec<WebhookSlot>,
}

impl ScheduleRun {
    fn new(pace: Pace) -> ScheduleRun {
        ScheduleRun { schedule: Schedule::new(pace), now_ms: 0, in_flight: Vec::new() }
    }

    /// Adds `count` webhooks of an owner, each with something to post.
    fn put(&mut self, count: usize, origin: &str, owner: u32) -> Vec<WebhookSlot> {
        let slots: Vec<_> =
            (0..count).map(|_| self.schedule.add_owned(origin, owner, ())).collect();
        slots.iter().for_each(|slot| self.schedule.note(*slot, self.now_ms));
        slots
    }

    fn one(&mut self, origin: &str, owner: u32) -> WebhookSlot {
        self.put(1, origin, owner)[0]
    }

    /// Adds a webhook that was refused, alone at its origin so far.
    fn one_tried(&mut self, origin: &str, owner: u32) -> WebhookSlot {
        let slot = self.one(origin, owner);
        self.begin();
        self.in_flight.clear();
        self.refuse(slot);
        slot
    }

    fn begin(&mut self) {
        self.in_flight.extend(all(&mut self.schedule, self.now_ms));
    }

    /// Refuses a delivery with a `Retry-After` of a second.
    fn refuse(&mut self, slot: WebhookSlot) {
        self.schedule.failed(slot, Refused, self.now_ms, Some(1_000), 0);
    }

    /// Ends deliveries, the oldest first, until one of `slot` is in flight; returns their number.
    /// Deliveries of `refusing` are refused, all others arrive and have more events. `None`: never
    /// in flight.
    fn wait(&mut self, slot: WebhookSlot, refusing: &[WebhookSlot]) -> Option<usize> {
        for ends in 0..10_000 {
            self.begin();
            if self.in_flight.contains(&slot) {
                return Some(ends);
            }
            self.now_ms += 100;
            let ended = self.in_flight.remove(0);
            match refusing.contains(&ended) {
                true => self.refuse(ended),
                false => self.schedule.delivered(ended, self.now_ms, true),
            }
        }
        None
    }

    /// As `wait`, with a small bound on the number.
    #[track_caller]
    fn wait_briefly(&mut self, slot: WebhookSlot, refusing: &[WebhookSlot]) {
        let ends = self.wait(slot, refusing).expect("it has its turn");
        assert!(ends <= 30, "{ends}");
    }
}

#[test]
fn owners_take_turns_at_an_origin_that_recovers() {
    let mut run = ScheduleRun::new(Pace::default());
    let (one, two) = (run.put(100, "https://a", 1), run.put(100, "https://a", 2));
    run.begin();
    for slot in std::mem::take(&mut run.in_flight) {
        fail(&mut run.schedule, slot, 0);
    }
    run.now_ms = run.schedule.due_ms().unwrap();
    let mut counts = [0; 2];
    for _ in 0..2_000 {
        run.begin();
        let ended = run.in_flight.remove(0);
        counts[usize::from(two.contains(&ended))] += 1;
        run.now_ms += 10;
        run.schedule.delivered(ended, run.now_ms, true);
    }
    assert!(one.len() == two.len() && counts.iter().all(|count| *count > 900), "{counts:?}");
}

#[test]
fn failed_and_untried_webhooks_of_an_owner_both_get_turns() {
    let mut run = ScheduleRun::new(Pace::default());
    let tried = run.one_tried("https://a", 2);
    run.put(40, "https://a", 1);
    run.begin();
    let untried = run.one("https://a", 2);
    run.now_ms = 1_000;
    run.begin();
    run.wait_briefly(tried, &[]);
    run.wait_briefly(untried, &[]);
}

#[test]
fn refused_webhooks_do_not_starve_a_new_one_of_their_owner() {
    let mut run = ScheduleRun::new(Pace { give_up_ms: u64::MAX, ..Pace::default() });
    let failing = run.put(40, "https://h", 0);
    while let Some(slot) = run.schedule.next(0) {
        run.refuse(slot);
    }
    run.put(40, "https://h", 1);
    run.begin();
    run.now_ms = 1_000;
    run.begin();
    let newcomer = run.one("https://h", 0);
    run.wait_briefly(newcomer, &failing);
}

#[test]
fn webhook_at_a_full_port_soon_gets_a_free_slot() {
    let mut run = ScheduleRun::new(Pace { first_posts: 0, ..Pace::default() });
    // With a second port at its host the limit is six.
    run.schedule.add_owned("https://h:2", 3, ());
    run.put(40, "https://h:1", 1);
    run.begin();
    assert_eq!(run.in_flight.len(), 6);
    let victim = run.one("https://h:1", 2);
    // These deliveries hang.
    run.put(2, "https://h:2", 3);
    assert_eq!(all(&mut run.schedule, 0).len(), 2);
    run.wait_briefly(victim, &[]);
}

#[test]
fn many_ports_and_a_retry_give_an_owner_no_extra_turns() {
    let mut run = ScheduleRun::new(Pace::default());
    run.one_tried("https://h:443", 9);
    run.put(40, "https://h:443", 1);
    run.begin();
    assert_eq!(run.in_flight.len(), 8);
    for port in 1_000..2_000 {
        run.one(&format!("https://h:{port}"), 9);
    }
    let victim = run.one("https://h:443", 2);
    run.now_ms = 1_000;
    run.wait_briefly(victim, &[]);
}

#[test]
fn slot_is_not_reserved_for_long_for_a_busy_owner() {
    for elsewhere in [0, 1_000] {
        let mut run = ScheduleRun::new(Pace::default());
        run.put(20, "https://h:1", 2);
        run.begin();
        // Owner 4 has all its deliveries at other hosts, and `elsewhere` more wait there.
        for host in 0..64 + elsewhere {
            run.one(&format!("https://z{host}"), 4);
        }
        run.one("https://h:1", 4);
        let victim = run.one("https://h:1", 3);
        run.wait_briefly(victim, &[]);
        let (mut reserved_count, mut numbers) = (0, SeededNumbers(9));
        for _ in 0..4_000 {
            run.begin();
            let ended = run.in_flight.swap_remove(numbers.below(run.in_flight.len()));
            run.schedule.delivered(ended, 0, true);
            let mut hosts = run.schedule.origins.hosts().all();
            reserved_count += usize::from(hosts.any(|host| host.reserved.is_some()));
        }
        assert!(reserved_count < 1_000, "{reserved_count}");
    }
}

#[test]
fn deleted_webhooks_leave_the_queue_of_their_host() {
    let mut run = ScheduleRun::new(Pace::default());
    run.put(16, "https://h:1", 1);
    run.begin();
    for owner in 100..150 {
        let ports = 2..102;
        let slots: Vec<_> =
            ports.map(|port| run.one(&format!("https://h:{port}"), owner)).collect();
        for slot in slots {
            run.schedule.remove(slot);
        }
    }
    let lines = || run.schedule.origins.hosts().all().map(|host| host.line.len());
    assert!(lines().sum::<usize>() <= 2 * SPARE, "{}", lines().sum::<usize>());
}

/// In random runs, an owner waits for at most some rounds of all others.
#[test]
fn no_owner_waits_forever_in_random_runs() {
    for seed in 0..40 {
        let mut numbers = SeededNumbers(seed);
        let mut run = ScheduleRun::new(Pace {
            per_owner: if seed % 3 == 0 { 4 } else { 64 },
            pause_ms_min: 1,
            pause_ms_max: 2,
            rest_ms_max: 2,
            rest_after: if seed % 2 == 0 { 8 } else { 3 },
            ..Pace::default()
        });
        let origins = 1 + numbers.below(3);
        let mut kinds = HashMap::new();
        for _ in 0..10 + numbers.below(20) {
            let origin = format!("https://h:{}", numbers.below(origins));
            let slot = run.one(&origin, 1 + numbers.below(4) as u32);
            kinds.insert(slot, numbers.below(4));
        }
        let mut since: HashMap<WebhookSlot, usize> = kinds.keys().map(|slot| (*slot, 0)).collect();
        for ends in 0..5_000 {
            run.now_ms += 3;
            run.begin();
            since.retain(|slot, _| !run.in_flight.contains(slot));
            let longest = since.values().map(|at| ends - at).max().unwrap_or(0);
            assert!(longest < 200, "seed {seed}: {longest}");
            if run.in_flight.is_empty() {
                continue;
            }
            let ended = run.in_flight.swap_remove(numbers.below(run.in_flight.len()));
            match (kinds[&ended], numbers.below(40)) {
                (0, _) => drop(run.schedule.failed(ended, Refused, run.now_ms, Some(1), 0)),
                (1, 0..10) => drop(run.schedule.failed(ended, Unwell, run.now_ms, None, 0)),
                _ => run.schedule.delivered(ended, run.now_ms, true),
            }
            since.insert(ended, ends);
        }
    }
}

#[test]
fn hanging_deliveries_do_not_delay_a_new_owner() {
    for is_one_host in [true, false] {
        let mut schedule = Schedule::new(Pace::default());
        for owner in 1..=5 {
            for number in 0..300 {
                let host = if is_one_host { 0 } else { owner * 1_000 + number };
                let origin = format!("https://h{host}.example:{}", 1_024 + owner);
                let slot = schedule.add_owned(&origin, owner, ());
                schedule.note(slot, 0);
            }
        }
        let hanging = all(&mut schedule, 0);
        assert!(hanging.len() < 256, "{}", hanging.len());
        let origin = if is_one_host { "https://h0.example:443" } else { "https://v.example:443" };
        let victim = schedule.add_owned(origin, 9, ());
        schedule.note(victim, 1);
        assert_eq!(all(&mut schedule, 1), [victim]);
        // When all have failed, no state remains.
        hanging.iter().for_each(|slot| {
            fail(&mut schedule, *slot, 10_000);
        });
        schedule.delivered(victim, 10_000, false);
    }
}
