//! Who is posted when, whatever happens.

#![allow(clippy::unwrap_used)]

use super::*;

const HOUR: u64 = 60 * 60 * 1_000;

/// All that may be posted now.
fn all(schedule: &mut Schedule<()>, now_ms: u64) -> Vec<PostPlace> {
    std::iter::from_fn(|| schedule.next(now_ms)).collect()
}

fn fail(schedule: &mut Schedule<()>, place: PostPlace, now_ms: u64) -> Fate {
    schedule.failed(place, now_ms, None, u64::MAX)
}

#[test]
fn what_is_new_is_posted_once_and_what_came_meanwhile_after_it() {
    let mut schedule = Schedule::new(Pace::default());
    let place = schedule.add("https://a", 0, ());
    assert_eq!(all(&mut schedule, 0), []);
    schedule.note(place, 0);
    schedule.note(place, 0);
    assert_eq!(all(&mut schedule, 0), [place]);
    schedule.note(place, 1);
    assert_eq!(all(&mut schedule, 1), []);
    schedule.delivered(place, 2, false);
    assert_eq!(all(&mut schedule, 2), [place]);
    schedule.delivered(place, 3, true);
    assert_eq!(all(&mut schedule, 3), [place]);
    schedule.delivered(place, 4, false);
    assert_eq!((all(&mut schedule, 4), schedule.due_ms()), (vec![], None));
}

#[test]
fn hosts_take_turns_and_have_so_many_posts_at_a_time() {
    let mut schedule = Schedule::new(Pace { posts_max: 11, ..Pace::default() });
    let slow: Vec<_> = (0..20).map(|_| schedule.add("https://slow", 0, ())).collect();
    slow.iter().for_each(|place| schedule.note(*place, 0));
    let quick: Vec<_> = (0..20).map(|_| schedule.add("https://quick", 0, ())).collect();
    quick.iter().for_each(|place| schedule.note(*place, 0));
    let first = all(&mut schedule, 0);
    assert_eq!(first.len(), 11);
    assert_eq!(first.iter().filter(|place| slow.contains(place)).count(), 6);
    // The slow ones stay as they are.
    let mut delivered = 0;
    let mut under_way: Vec<_> = first;
    while let Some(at) = under_way.iter().position(|place| quick.contains(place)) {
        schedule.delivered(under_way.remove(at), 1, false);
        delivered += 1;
        under_way.extend(all(&mut schedule, 1));
        let slow_now = under_way.iter().filter(|place| slow.contains(place)).count();
        assert!(slow_now <= 8 && under_way.len() <= 11);
    }
    assert_eq!(delivered, 20);
    assert_eq!(under_way.len(), 8);
}

#[test]
fn an_owner_has_so_many_posts_at_a_time_whatever_hosts_they_go_to() {
    let mut schedule = Schedule::new(Pace { per_owner: 2, ..Pace::default() });
    let mut places = Vec::new();
    for at in 0..6 {
        places.push(schedule.add(&format!("https://h{at}"), 7, ()));
    }
    let other = schedule.add("https://h0", 8, ());
    places.iter().chain([&other]).for_each(|place| schedule.note(*place, 0));
    assert_eq!(all(&mut schedule, 0), [places[0], places[1], other]);
    schedule.delivered(places[0], 1, false);
    assert_eq!(all(&mut schedule, 1), [places[2]]);
    // One that leaves while it waits, and one that leaves under way, make room for the others.
    schedule.remove(places[3]);
    schedule.remove(places[1]);
    assert_eq!(all(&mut schedule, 1), [places[4]]);
    fail(&mut schedule, places[4], 1);
    assert_eq!(all(&mut schedule, 1), [places[5]]);
    schedule.delivered(places[2], 2, false);
    schedule.delivered(places[5], 2, false);
    schedule.delivered(other, 2, false);
    assert_eq!(schedule.posting(), 0);
}

#[test]
fn pauses_double_and_a_receiver_may_name_its_own() {
    let mut schedule = Schedule::new(Pace { rest_after: u32::MAX, ..Pace::default() });
    let place = schedule.add("https://a", 0, ());
    schedule.note(place, 0);
    let mut now_ms = 0;
    for failures in 0..20 {
        assert_eq!(all(&mut schedule, now_ms), [place], "{failures}");
        assert_eq!(fail(&mut schedule, place, now_ms), Fate::Repeated);
        let pause_ms = schedule.due_ms().unwrap() - now_ms;
        assert_eq!(pause_ms, (1_000 << failures.min(20)).min(HOUR), "{failures}");
        assert_eq!(all(&mut schedule, now_ms + pause_ms - 1), []);
        now_ms += pause_ms;
    }
    assert_eq!(all(&mut schedule, now_ms), [place]);
    schedule.failed(place, now_ms, Some(7), u64::MAX);
    assert_eq!(schedule.due_ms(), Some(now_ms + 7));
    assert_eq!(all(&mut schedule, now_ms + 7), [place]);
    // With jitter it is anything from one millisecond on.
    schedule.failed(place, now_ms, None, 0);
    assert_eq!(schedule.due_ms(), Some(now_ms + 1));
}

#[test]
fn it_is_given_up_after_a_day_and_goes_on_when_it_is_told_to() {
    let mut schedule = Schedule::new(Pace::default());
    let place = schedule.add("https://a", 0, ());
    schedule.note(place, 0);
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
    schedule.note(place, now_ms);
    assert_eq!(all(&mut schedule, now_ms + 9 * HOUR), []);
    schedule.resume(place, now_ms);
    assert_eq!(all(&mut schedule, now_ms + HOUR), [place]);
    assert_eq!(fail(&mut schedule, place, now_ms + HOUR), Fate::Repeated);
}

#[test]
fn a_host_that_fails_is_asked_by_one_at_a_time_and_costs_no_timer_for_the_others() {
    let mut schedule = Schedule::new(Pace::default());
    let places: Vec<_> = (0..100_000).map(|_| schedule.add("https://dead", 0, ())).collect();
    let other = schedule.add("https://alive", 0, ());
    places.iter().for_each(|place| schedule.note(*place, 0));
    let (mut now_ms, mut posts) = (0, 0);
    while now_ms < 10 * HOUR {
        for place in all(&mut schedule, now_ms) {
            posts += 1;
            fail(&mut schedule, place, now_ms);
        }
        assert!(schedule.timers.len() < 20);
        now_ms = schedule.due_ms().unwrap().max(now_ms + 1);
    }
    assert!(posts < 60, "{posts}");
    schedule.note(other, now_ms - 1);
    assert_eq!(all(&mut schedule, now_ms - 1), [other]);
    // It is back, and all go at once.
    now_ms += HOUR;
    let mut delivered = 0;
    while let Some(place) = schedule.next(now_ms) {
        schedule.delivered(place, now_ms, false);
        delivered += 1;
    }
    assert_eq!((delivered, schedule.posting()), (places.len(), 1));
}

#[test]
fn those_in_the_line_of_a_dead_host_are_given_up_together() {
    let mut schedule = Schedule::new(Pace::default());
    let places: Vec<_> = (0..1_000).map(|_| schedule.add("https://dead", 0, ())).collect();
    places.iter().for_each(|place| schedule.note(*place, 0));
    let mut now_ms = 0;
    while now_ms < 23 * HOUR {
        all(&mut schedule, now_ms).into_iter().for_each(|place| {
            fail(&mut schedule, place, now_ms);
        });
        now_ms = schedule.due_ms().unwrap().max(now_ms + 1);
    }
    assert_eq!(schedule.give_up(now_ms), []);
    let given_up = schedule.give_up(24 * HOUR);
    assert!(given_up.len() > 980, "{}", given_up.len());
    assert_eq!(schedule.give_up(24 * HOUR), []);
}

#[test]
fn those_who_leave_while_they_wait_leave_nothing_that_grows() {
    let mut schedule = Schedule::new(Pace::default());
    let stays = schedule.add("https://dead", 0, ());
    let mut now_ms = 0;
    for round in 0..10_000u64 {
        now_ms += 1;
        let place = schedule.add("https://dead", 0, ());
        let other = schedule.add(&format!("https://h{}", round % 3), 0, ());
        schedule.note(place, now_ms);
        schedule.note(other, now_ms);
        for place in all(&mut schedule, now_ms) {
            schedule.failed(place, now_ms, Some(HOUR), u64::MAX);
        }
        schedule.remove(place);
        schedule.remove(other);
        let lines = schedule.hosts.iter().flatten().map(|host| host.line.len());
        assert!(lines.sum::<usize>() <= SPARE + 4 && schedule.timers.len() <= SPARE + 10);
    }
    schedule.remove(stays);
    assert_eq!(schedule.len(), (0, 0));
}

#[test]
fn who_leaves_takes_nothing_with_it() {
    let mut schedule = Schedule::new(Pace { per_host: 1, ..Pace::default() });
    let [first, second, third] = [(); 3].map(|()| schedule.add("https://a", 0, ()));
    for place in [first, second, third] {
        schedule.note(place, 0);
    }
    assert_eq!(all(&mut schedule, 0), [first]);
    schedule.remove(second);
    schedule.remove(first);
    assert_eq!(all(&mut schedule, 0), [third]);
    schedule.delivered(first, 0, true);
    assert_eq!(fail(&mut schedule, second, 0), Fate::Repeated);
    let again = schedule.add("https://a", 0, ());
    assert!(again != first && again != second);
    schedule.remove(first);
    schedule.remove(third);
    schedule.remove(again);
    assert_eq!((schedule.len(), schedule.posting()), ((0, 0), 0));
    assert_eq!(all(&mut schedule, HOUR), []);
}

/// Whatever happens in which order: at most one post of each is under way, no more of a host
/// and of all than may be, and in the end everything has arrived.
#[test]
fn nothing_is_lost_and_no_bound_is_exceeded_whatever_happens() {
    let pace = Pace { per_host: 3, posts_max: 7, rest_after: 4, ..Pace::default() };
    let (mut schedule, mut random) = (Schedule::new(pace), 7u64);
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    let origins = ["https://a", "https://b", "https://c", "https://d"];
    let mut places: HashMap<PostPlace, (&str, u64)> = HashMap::new();
    let mut under_way: Vec<PostPlace> = Vec::new();
    let mut now_ms = 0;
    for _ in 0..40_000 {
        now_ms += next() % 2_000;
        let some = places.keys().nth(next() as usize % places.len().max(1)).copied();
        match (next() % 10, some) {
            (0, _) | (_, None) => {
                let origin = origins[next() as usize % origins.len()];
                places.insert(schedule.add(origin, 0, ()), (origin, 0));
            }
            (1, Some(place)) if places.len() > 40 => {
                schedule.remove(place);
                places.remove(&place);
                under_way.retain(|other| *other != place);
            }
            (2..=5, Some(place)) => {
                schedule.note(place, now_ms);
                places.get_mut(&place).unwrap().1 += 1;
            }
            _ => {}
        }
        while let Some(place) = schedule.next(now_ms) {
            assert!(!under_way.contains(&place));
            under_way.push(place);
            // What it has by now goes with it.
            places.get_mut(&place).unwrap().1 = 0;
        }
        for origin in origins {
            assert!(under_way.iter().filter(|place| places[place].0 == origin).count() <= 3);
        }
        assert!(under_way.len() <= 7 && schedule.posting() as usize == under_way.len());
        if let Some(place) = under_way.pop_if(|_| next() % 3 == 0) {
            match next() % 2 {
                0 => schedule.delivered(place, now_ms, false),
                _ => {
                    places.get_mut(&place).unwrap().1 += 1;
                    let fate = schedule.failed(place, now_ms, None, next() << 32);
                    if fate == Fate::GivenUp {
                        schedule.resume(place, now_ms);
                    }
                }
            }
        }
    }
    for _ in 0..10_000 {
        now_ms += HOUR;
        under_way.extend(all(&mut schedule, now_ms));
        for place in under_way.drain(..) {
            places.get_mut(&place).unwrap().1 = 0;
            schedule.delivered(place, now_ms, false);
        }
    }
    assert!(places.values().all(|(_, waiting)| *waiting == 0));
    let hosts: std::collections::HashSet<_> = places.values().map(|(origin, _)| origin).collect();
    assert_eq!(schedule.len(), (places.len(), hosts.len()));
}

#[test]
fn who_refuses_what_it_is_posted_makes_no_host_rest_for_others() {
    let mut schedule = Schedule::new(Pace::default());
    let missing: Vec<_> = (0..30).map(|_| schedule.add("https://a", 1, ())).collect();
    missing.iter().for_each(|place| schedule.note(*place, 0));
    let mut refused = 0;
    while let Some(place) = schedule.next(0) {
        assert_eq!(schedule.refused(place, 0, None, u64::MAX), Fate::Repeated);
        refused += 1;
    }
    assert_eq!(refused, 30);
    let other = schedule.add("https://a", 2, ());
    schedule.note(other, 1);
    assert_eq!(all(&mut schedule, 1), [other]);
    schedule.delivered(other, 2, false);
    // Each is tried again after a pause of its own, and given up in its time.
    assert!(all(&mut schedule, 10_000).len() >= 8);
}
