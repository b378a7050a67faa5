//! The webhooks of a task: a list, oldest first.

use std::{hash::BuildHasher, sync::Arc, task::Wake};

use super::{DEFAULT_ID, NewWebhook, PushRefused, PushState};
use crate::{
    push::{
        schedule::{WebhookSlot, host_name, origin_bytes},
        webhook::{TaskWebhooks, Webhook},
    },
    watch::TaskWatch,
};

impl PushState {
    /// The webhook of a task with this id.
    pub(super) fn find(&self, task: u64, id: &[u8]) -> Option<WebhookSlot> {
        let mut at = self.tasks.get(&task)?.first;
        while let Some(slot) = at {
            let webhook = self.schedule.get(slot)?;
            if webhook.config().id().is_some_and(|own| own.raw() == id) {
                return Some(slot);
            }
            at = webhook.next();
        }
        None
    }

    /// The webhook of a task with this id; without an id the one with the default id, or else the
    /// first.
    pub(super) fn find_or_default(&self, task: u64, id: Option<&[u8]>) -> Option<WebhookSlot> {
        match id {
            Some(id) => self.find(task, id),
            None => self.find(task, DEFAULT_ID).or_else(|| self.tasks.get(&task)?.first),
        }
    }

    /// Removes a webhook from its task's list; with the last webhook, the task is removed, too.
    pub(super) fn remove(&mut self, key: u64, slot: WebhookSlot) {
        let Some(webhook) = self.take(key, slot) else { return };
        self.counted.leave(webhook.holder, webhook.bytes());
        let Some(task) = self.tasks.get_mut(&key) else { return };
        task.count -= 1;
        if task.count == 0 {
            task.watch.end();
            self.tasks.remove(&key);
            self.changes.left.forget(key);
        }
    }

    /// Removes a webhook from its task's list and from the schedule, but not from the counts.
    fn take(&mut self, key: u64, slot: WebhookSlot) -> Option<Webhook> {
        let webhook = self.schedule.remove(slot)?;
        let task = self.tasks.get_mut(&key)?;
        if task.first == Some(slot) {
            task.first = webhook.next();
            return Some(webhook);
        }
        let mut at = task.first;
        while let Some(before) = at.and_then(|at| self.schedule.get_mut(at)) {
            if before.next() == Some(slot) {
                before.set_next(webhook.next());
                break;
            }
            at = before.next();
        }
        Some(webhook)
    }

    /// Stops a webhook in any stage; returns its new key.
    pub(super) fn stop(&mut self, key: u64, slot: WebhookSlot) -> Option<WebhookSlot> {
        let origin = self.schedule.origin(slot)?.to_owned();
        let limit = self.schedule.limit_of(slot);
        let mut webhook = self.take(key, slot)?;
        webhook.set_next(None);
        let stopped = self.schedule.add(&origin, webhook.holder, webhook);
        self.schedule.limit(stopped, limit);
        self.schedule.stop(stopped);
        self.append(key, stopped);
        Some(stopped)
    }

    /// The webhooks of a task, the oldest first.
    pub(super) fn slots(&self, key: u64) -> Vec<WebhookSlot> {
        let mut at = self.tasks.get(&key).and_then(|task| task.first);
        std::iter::from_fn(|| {
            let slot = at?;
            at = self.schedule.get(slot)?.next();
            Some(slot)
        })
        .collect()
    }

    /// Removes all webhooks of a task; returns their number.
    pub(super) fn remove_all(&mut self, key: u64) -> usize {
        let mut count = 0;
        while let Some(first) = self.tasks.get(&key).and_then(|task| task.first) {
            self.remove(key, first);
            count += 1;
        }
        count
    }

    /// Checks the limits for a webhook, which may replace the webhook with the same id.
    pub(super) fn check(
        &self,
        new: &NewWebhook<'_>,
        origin: &str,
        bytes: usize,
    ) -> Result<(), PushRefused> {
        let before = self.find(new.task, new.id);
        let freed = before.and_then(|before| self.schedule.get(before));
        let of_task = self.tasks.get(&new.task).map_or(0, |task| task.count as usize);
        if freed.is_none() && of_task >= self.bounds.per_task {
            return Err(PushRefused::TaskFull);
        }
        let host = host_name(origin);
        let before_host = before.and_then(|before| self.schedule.origin(before)).map(host_name);
        if !new.url.is_allowed() && before_host != Some(host) {
            let slots = self.slots(new.task);
            let hosts = slots.iter().filter_map(|slot| self.schedule.origin(*slot));
            if hosts.filter(|other| host_name(other) == host).count() >= self.bounds.per_task_host {
                return Err(PushRefused::TaskHostFull);
            }
        }
        let freed_bytes = freed.map_or(0, Webhook::bytes);
        let holder = new.holder;
        let held = self.counted.of(holder);
        let is_its = freed.is_some_and(|freed| freed.holder == holder);
        if !is_its && !holder.is_peer() && held.configs >= self.bounds.per_owner {
            return Err(PushRefused::OwnerFull);
        }
        let of_new_origin = if self.schedule.has_origin(origin) { 0 } else { origin_bytes(origin) };
        let held_bytes = held.bytes + self.schedule.origin_bytes_of(holder);
        let held_bytes = held_bytes + bytes + of_new_origin - if is_its { freed_bytes } else { 0 };
        if held_bytes > self.bounds.holder_bytes_max(holder) {
            return Err(PushRefused::OwnerBytesFull);
        }
        if holder.is_stranger() {
            let was_anonymous = freed.is_some_and(|freed| freed.holder.is_stranger());
            let freed_bytes = if was_anonymous { freed_bytes } else { 0 };
            if self.anonymous_bytes() + bytes + of_new_origin - freed_bytes
                > self.bounds.bytes_max / 2
            {
                return Err(PushRefused::OwnerBytesFull);
            }
        }
        let of_host = self.schedule.entries_of_host(host);
        if before_host != Some(host) && of_host >= self.bounds.per_host {
            return Err(PushRefused::HostFull);
        }
        let after = self.bytes() + bytes + of_new_origin - freed_bytes;
        if after > self.bounds.bytes_max { Err(PushRefused::Full) } else { Ok(()) }
    }

    /// Adds a webhook as the newest of its task, replacing the webhook with the same id.
    pub(super) fn put(&mut self, new: &NewWebhook<'_>) -> Arc<TaskWatch> {
        let before = self.find(new.task, new.id);
        let mut webhook = Webhook::new(new);
        if let Some((at, before)) = before.and_then(|at| Some((at, self.schedule.get(at)?))) {
            webhook.resume_from(before, self.schedule.is_blocked(at));
        }
        let changes = &self.changes;
        let task = self.tasks.entry(new.task).or_insert_with(|| {
            TaskWebhooks::new(Arc::new(TaskWatch::new(new.task, new.task_id, new.holder, changes)))
        });
        let watch = Arc::clone(&task.watch);
        // Before the other webhook is removed, because a task loses its watch with its last
        // webhook.
        task.count += 1;
        let origin = new.url.origin();
        self.counted.enter(new.holder, webhook.bytes());
        let slot = match before {
            Some(before) => {
                let slot = self.schedule.add_replacement(before, &origin, new.holder, webhook);
                self.remove(new.task, before);
                slot
            }
            None => self.schedule.add(&origin, new.holder, webhook),
        };
        if !new.url.is_allowed() {
            // A hash of 0 means no rate limit.
            let url = self.urls.hash_one(new.url.as_str()) as u32;
            self.schedule.limit(slot, url.max(1));
        }
        self.append(new.task, slot);
        // A task that is not stored yet has no events to post.
        if before.is_some() && !new.start.snapshot {
            watch.wake_by_ref();
        }
        watch
    }

    /// Appends a webhook to its task's list.
    fn append(&mut self, key: u64, slot: WebhookSlot) {
        let Some(task) = self.tasks.get_mut(&key) else { return };
        let Some(mut at) = task.first else {
            task.first = Some(slot);
            return;
        };
        while let Some(next) = self.schedule.get(at).and_then(Webhook::next) {
            at = next;
        }
        if let Some(last) = self.schedule.get_mut(at) {
            last.set_next(Some(slot));
        }
    }
}
