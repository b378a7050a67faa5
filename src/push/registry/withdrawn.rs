//! Webhooks of owners with no valid credential any more.
//!
//! Such webhooks are removed; a webhook with undelivered events gets a dead letter.

use super::{PushState, Webhooks};
use crate::{
    push::{dead::WhyDead, schedule::WebhookSlot},
    service::Now,
};

/// A webhook of an owner without a valid credential.
#[derive(Clone, Copy, Debug)]
pub struct WithdrawnWebhook {
    slot: WebhookSlot,
    /// The task, as its service names it.
    pub task: u64,
}

impl Webhooks {
    /// The owners of all webhooks, without 0.
    pub fn owners(&self) -> Vec<u32> {
        let state = self.lock();
        let mut owners: Vec<u32> = state.all().map(|(_, _, owner)| owner).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The webhooks of these owners; their numbers must be sorted.
    pub fn of_owners(&self, owners: &[u32]) -> Vec<WithdrawnWebhook> {
        let state = self.lock();
        let of_them = state.all().filter(|(_, _, owner)| owners.binary_search(owner).is_ok());
        of_them.map(|(task, slot, _)| WithdrawnWebhook { slot, task }).collect()
    }

    /// Removes a webhook with a delivery that was about to start.
    pub fn withdraw_post(&self, slot: WebhookSlot, now: Now) {
        let mut state = self.lock();
        state.schedule.passed_over(slot, now.mono_ms, true);
        state.withdraw(slot, true, now);
        drop(state);
        self.changes.wake();
    }

    /// Removes a webhook; `is_over`: its task has no further events.
    pub fn withdraw(&self, webhook: WithdrawnWebhook, is_over: bool, now: Now) {
        let mut state = self.lock();
        let has_letter = !is_over || state.schedule.is_busy(webhook.slot);
        state.withdraw(webhook.slot, has_letter, now);
        drop(state);
        self.changes.wake();
    }
}

impl PushState {
    /// Task, key and owner of all webhooks with an owner.
    fn all(&self) -> impl Iterator<Item = (u64, WebhookSlot, u32)> {
        self.tasks.keys().flat_map(|key| {
            self.slots(*key).into_iter().filter_map(|slot| {
                let owner = self.schedule.get(slot)?.holder.number();
                (owner != 0).then_some((*key, slot, owner))
            })
        })
    }

    fn withdraw(&mut self, slot: WebhookSlot, has_letter: bool, now: Now) {
        let Some(task) = self.schedule.get(slot).map(|webhook| webhook.task) else { return };
        // A stopped webhook already has a letter.
        if has_letter && !self.schedule.is_stopped(slot) {
            self.bury(slot, WhyDead::CredentialWithdrawn, now.unix_ms);
        }
        self.remove(task, slot);
        self.settle(task);
    }
}
