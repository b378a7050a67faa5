//! Webhooks that come with a message: they are added before its agent runs, so that no event is
//! missed, and removed if the message creates no task.

use crate::{
    fault::{Fault, FaultKind},
    model::{PushForm, Send},
    op::{Core, send::FIRST_SEQ},
    push::PushStart,
    service::CallCx,
    store::{Reserved, TaskKey},
};

use super::{CheckedWebhook, refusal};

impl Core {
    /// Checks the configuration that comes with a message, before the message is processed.
    ///
    /// # Errors
    /// `PushNotificationNotSupported`, `Unauthenticated`, `InvalidParams`.
    pub(in crate::op) fn check_inline<'p>(
        &self,
        cx: &mut CallCx<'_>,
        send: &Send<'p>,
    ) -> Result<Option<Box<CheckedWebhook<'p>>>, Fault> {
        let Some(config) = send.push else { return Ok(None) };
        let push = self.webhooks()?;
        push.check_caller(cx)?;
        let webhook = push.check(cx, config, PushForm::of(send.generation), true)?;
        Ok(Some(Box::new(webhook)))
    }

    /// Adds the webhooks of a new task: the webhook of its scope, and the one that came with the
    /// message, which begins where a stream of the same call would begin. The returned guards
    /// remove them unless the task is stored or its slot stays reserved.
    ///
    /// # Errors
    /// `Overloaded`, `RateLimited`.
    #[inline(always)] // Hardly any task has a webhook.
    pub(in crate::op) fn watch_new<'c>(
        &'c self,
        cx: &CallCx<'_>,
        reserved: &'c Reserved<'c>,
        webhook: Option<&CheckedWebhook<'_>>,
    ) -> Result<Option<Box<[InlineWatch<'c>]>>, Fault> {
        match (self.has_scopes(), webhook) {
            (false, None) => Ok(None),
            (_, webhook) => self.watch_both(cx, reserved, webhook).map(Some),
        }
    }

    #[cold]
    fn watch_both<'c>(
        &'c self,
        cx: &CallCx<'_>,
        reserved: &'c Reserved<'c>,
        webhook: Option<&CheckedWebhook<'_>>,
    ) -> Result<Box<[InlineWatch<'c>]>, Fault> {
        let mut watches = Vec::from_iter(self.watch_scope(cx, reserved));
        if let Some(webhook) = webhook {
            let start = PushStart { seq: FIRST_SEQ, snapshot: true };
            watches.push(self.watch_reserved(cx, reserved, start, webhook)?);
        }
        Ok(watches.into())
    }

    pub(super) fn watch_reserved<'c>(
        &'c self,
        cx: &CallCx<'_>,
        reserved: &'c Reserved<'c>,
        start: PushStart,
        webhook: &CheckedWebhook<'_>,
    ) -> Result<InlineWatch<'c>, Fault> {
        let key = reserved.key();
        let new = webhook.of_task(cx, key, reserved.id(), start);
        self.watch(self.webhooks()?, key, &new)?;
        Ok(InlineWatch { core: self, id: webhook.id.as_ref().into(), reserved })
    }

    /// Checks whether the webhook that comes with a message to an existing task has capacity.
    ///
    /// # Errors
    /// `TaskNotFound`, `Overloaded`, `RateLimited`.
    #[cold]
    pub(in crate::op) fn check_next(
        &self,
        cx: &CallCx<'_>,
        key: TaskKey,
        webhook: &CheckedWebhook<'_>,
    ) -> Result<(), Fault> {
        let task_id = self.store.read(key, |task| Box::<[u8]>::from(task.id()));
        let task_id = task_id.ok_or(FaultKind::TaskNotFound)?;
        let new = webhook.of_task(cx, key, &task_id, PushStart::default());
        self.webhooks()?.webhooks.check(&new).map_err(refusal)
    }

    /// Adds this webhook after the task has accepted the message; `seq` is the last event before
    /// the message.
    #[cold]
    pub(in crate::op) fn watch_next(
        &self,
        cx: &CallCx<'_>,
        key: TaskKey,
        task_id: &[u8],
        seq: u64,
        webhook: &CheckedWebhook<'_>,
    ) {
        let Some(push) = self.push.get() else { return };
        let start = PushStart { seq, snapshot: false };
        let watch = push.webhooks.set_checked(&webhook.of_task(cx, key, task_id, start));
        // If the task has been evicted meanwhile, the call reports that next.
        let _ = self.watch_task(push, key, start, watch);
    }
}

/// A webhook of a task that may never be stored.
pub(in crate::op) struct InlineWatch<'c> {
    core: &'c Core,
    id: Box<[u8]>,
    reserved: &'c Reserved<'c>,
}

impl Drop for InlineWatch<'_> {
    /// Removes the webhook, unless its task is stored or its slot stays reserved.
    fn drop(&mut self) {
        if let (false, Some(push)) = (self.reserved.is_used_up(), self.core.push.get()) {
            push.webhooks.delete(self.reserved.key().handle().key, Some(&self.id));
        }
    }
}
