//! Webhooks whose next post is too large for now.

use super::{PushState, Webhooks};
use crate::{
    push::{large::PostSize, schedule::PostPlace},
    service::Now,
};

/// Posts that are made anew at a time, of which not all may find room.
const BROUGHT_BACK_MAX: usize = 8;

/// How many of those that wait are looked at at a time; who found no room goes behind the others.
const LOOKS_MAX: usize = 256;

impl Webhooks {
    /// A post that was made is not sent: its webhook waits until there is room for so many bytes,
    /// and holds up nobody meanwhile.
    pub fn set_aside(&self, place: PostPlace, size: PostSize, now: Now) {
        let mut state = self.lock();
        let settled = state.schedule.successor(place).unwrap_or(place);
        if state.schedule.set_aside(place, now.mono_ms) {
            state.aside.push_back((place, size));
            state.tidy_aside();
        }
        state.settle_place(settled, now);
    }

    /// Lets some of those go on for which there is room; says how many.
    pub fn bring_back(&self, has_room: impl Fn(&PostSize) -> bool) -> usize {
        let mut state = self.lock();
        let (mut looks, mut brought_back) = (0, 0);
        for _ in 0..state.aside.len() {
            if looks == LOOKS_MAX || brought_back == BROUGHT_BACK_MAX {
                break;
            }
            let Some((place, size)) = state.aside.pop_front() else { break };
            if !state.schedule.is_aside(place) {
                continue;
            }
            looks += 1;
            match has_room(&size) {
                true => {
                    state.schedule.bring_back(place);
                    brought_back += 1;
                }
                false => state.aside.push_back((place, size)),
            }
        }
        drop(state);
        if brought_back > 0 {
            self.changes.wake();
        }
        brought_back
    }
}

impl PushState {
    /// Takes those out that have left, when they are more than the others.
    fn tidy_aside(&mut self) {
        if self.aside.len() > 2 * self.schedule.len().0 + LOOKS_MAX {
            let schedule = &self.schedule;
            self.aside.retain(|(place, _)| schedule.is_aside(*place));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::push::{
        Pace,
        large::LargePosts,
        outbox::PostRequest,
        registry::{
            PushBounds,
            tests::{BOUNDS, at, next, set},
        },
    };

    fn large() -> PostSize {
        let request = PostRequest { body: vec![0; 100], ..PostRequest::default() };
        LargePosts::new(2, 1).size(&request).unwrap()
    }

    #[test]
    fn whoever_waits_for_room_costs_little_and_leaves_nothing_that_grows() {
        let most = 10 * LOOKS_MAX;
        let bounds = PushBounds { per_host: most, bytes_max: 1 << 30, ..BOUNDS };
        let webhooks = Webhooks::new(bounds, Pace::default());
        let set_aside = |task: usize| {
            set(&webhooks, task as u64, 0, "a", "https://h.example/").unwrap();
            webhooks.note(task as u64);
            webhooks.set_aside(next(&webhooks, 0).unwrap().place, large(), at(0));
        };
        // Each takes the place of the one before.
        (0..most).for_each(|_| set_aside(0));
        assert!(webhooks.lock().aside.len() <= LOOKS_MAX + 2);
        (1..most).for_each(set_aside);
        let looks = Cell::new(0);
        let count = |_: &PostSize| {
            looks.set(looks.get() + 1);
            false
        };
        for _ in 0..20 {
            assert_eq!(webhooks.bring_back(count), 0);
        }
        assert!(looks.get() <= 20 * LOOKS_MAX);
        // Those behind them had their looks, too, and all find room in the end.
        while webhooks.bring_back(|_| true) > 0 {}
        assert!(webhooks.lock().aside.is_empty());
        assert_eq!(std::iter::from_fn(|| next(&webhooks, 0)).count(), 8);
    }
}
