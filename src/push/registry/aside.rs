//! Webhooks whose next post is too large for now.

use super::Webhooks;
use crate::{
    push::{large::PostSize, schedule::PostPlace},
    service::Now,
};

/// Posts that are made anew at a time, of which not all may find room.
const BROUGHT_BACK_MAX: usize = 8;

impl Webhooks {
    /// A post that was made is not sent: its webhook waits until there is room for so many bytes,
    /// and holds up nobody meanwhile.
    pub fn set_aside(&self, place: PostPlace, size: PostSize, now: Now) {
        let mut state = self.lock();
        if state.schedule.set_aside(place, now.mono_ms) {
            state.aside.push_back((place, size));
            state.settle_place(place, now);
        }
    }

    /// Lets those go on for which there is room.
    pub fn bring_back(&self, has_room: impl Fn(&PostSize) -> bool) {
        let mut state = self.lock();
        let mut aside = std::mem::take(&mut state.aside);
        let mut brought_back = 0;
        aside.retain(|(place, size)| {
            let is_there = state.schedule.is_aside(*place);
            if is_there && (brought_back >= BROUGHT_BACK_MAX || !has_room(size)) {
                return true;
            }
            brought_back += usize::from(is_there);
            state.schedule.bring_back(*place);
            false
        });
        state.aside = aside;
        drop(state);
        if brought_back > 0 {
            self.changes.wake();
        }
    }
}
