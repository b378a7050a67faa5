//! A core without webhooks, where the feature `push` is off.

use std::marker::PhantomData;

use crate::{
    fault::{Fault, FaultKind},
    model::{PushRequest, Send},
    op::Core,
    service::{Answer, CallCx, Outcome},
    store::{Reserved, TaskKey},
};

pub(super) use NoWebhook as CheckedWebhook;

enum Never {}

/// A type without values.
pub(super) struct NoWebhook<'p>(Never, PhantomData<&'p ()>);

/// A type without values.
pub(super) enum NoWatch {}

impl Core {
    pub(super) fn has_push(&self) -> bool {
        false
    }

    #[cold]
    pub(super) fn push(
        &self,
        _cx: &mut CallCx<'_>,
        _request: &PushRequest<'_>,
        _answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        Err(FaultKind::PushNotificationNotSupported.into())
    }

    #[cold]
    pub(super) fn check_inline<'p>(
        &self,
        _cx: &mut CallCx<'_>,
        send: &Send<'p>,
    ) -> Result<Option<Box<NoWebhook<'p>>>, Fault> {
        match send.push {
            Some(_) => Err(FaultKind::PushNotificationNotSupported.into()),
            None => Ok(None),
        }
    }

    #[inline(always)]
    pub(super) fn watch_new<'c>(
        &'c self,
        _cx: &CallCx<'_>,
        _reserved: &'c Reserved<'c>,
        _webhook: Option<&NoWebhook<'_>>,
    ) -> Result<Option<Box<[NoWatch]>>, Fault> {
        Ok(None)
    }

    pub(super) fn check_next(
        &self,
        _cx: &CallCx<'_>,
        _key: TaskKey,
        webhook: &NoWebhook<'_>,
    ) -> Result<(), Fault> {
        match webhook.0 {}
    }

    pub(super) fn watch_next(
        &self,
        _cx: &CallCx<'_>,
        _key: TaskKey,
        _task_id: &[u8],
        _seq: u64,
        webhook: &NoWebhook<'_>,
    ) {
        match webhook.0 {}
    }

    pub(super) fn forget_webhooks(&self, _key: TaskKey) {}
}
