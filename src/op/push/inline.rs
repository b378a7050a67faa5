//! Webhooks that come with a message: they are there before its agent runs, so that nothing is
//! missed, and leave no trace where no task comes of it.

use crate::{
    fault::{Fault, FaultKind},
    model::{PushForm, Send},
    op::{Core, send::FIRST_SEQ},
    push::PushStart,
    service::CallCx,
    store::{Reserved, TaskKey},
};

use super::CheckedWebhook;

impl Core {
    /// Checks the configuration that comes with a message, before anything is done with that.
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
        let webhook = push.check(cx, config, PushForm::of(send.generation))?;
        Ok(Some(Box::new(webhook)))
    }

    /// Takes the webhooks of a task that is about to be made: that of its scope, and the one that
    /// came with the message, which begins where a stream of the same call would. Unless the task
    /// is stored, or its place is kept, they are gone with what this returns.
    ///
    /// # Errors
    /// `Overloaded`, `RateLimited`.
    #[inline(always)] // Hardly any task has one.
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
        let (key, id) = (reserved.key(), webhook.id.as_ref().into());
        self.watch(self.webhooks()?, cx, (key, reserved.id()), start, webhook)?;
        Ok(InlineWatch { core: self, key, id, unless: Unless::Stored(reserved) })
    }

    /// The same for a task that there is; one that has ended takes no message, which the call is
    /// told next. Unless it is kept, the webhook is gone with what this returns.
    ///
    /// # Errors
    /// `TaskNotFound`, `Overloaded`, `RateLimited`.
    #[cold]
    pub(in crate::op) fn watch_next(
        &self,
        cx: &CallCx<'_>,
        key: TaskKey,
        webhook: &CheckedWebhook<'_>,
    ) -> Result<Option<InlineWatch<'_>>, Fault> {
        let has_ended = self.store.read(key, |task| task.state().is_terminal());
        if has_ended.ok_or(FaultKind::TaskNotFound)? {
            return Ok(None);
        }
        self.set_webhook(self.webhooks()?, cx, key, webhook)?;
        let id = webhook.id.as_ref().into();
        Ok(Some(InlineWatch { core: self, key, id, unless: Unless::Kept(false) }))
    }
}

/// The webhook of a message of which nothing may come.
pub(in crate::op) struct InlineWatch<'c> {
    core: &'c Core,
    key: TaskKey,
    id: Box<[u8]>,
    unless: Unless<'c>,
}

/// When the webhook of a message stays.
enum Unless<'c> {
    /// When its task is stored, or will be.
    Stored(&'c Reserved<'c>),
    /// When the message was taken.
    Kept(bool),
}

impl InlineWatch<'_> {
    /// The webhook stays.
    pub fn keep(mut self) {
        self.unless = Unless::Kept(true);
    }
}

impl Drop for InlineWatch<'_> {
    fn drop(&mut self) {
        let stays = match self.unless {
            Unless::Stored(reserved) => reserved.is_kept(),
            Unless::Kept(is_kept) => is_kept,
        };
        if let (false, Some(push)) = (stays, self.core.push.get()) {
            push.webhooks.delete(self.key.handle().key, Some(&self.id));
        }
    }
}
