//! Params of 1.0 (wire §1.5): ProtoJSON, without unset fields.

use crate::model::{
    JsonObject, List, NotExpressible, OutgoingCall, PushCall, RawText, Send, SendMode, Target, time,
};

use super::{
    super::{canonical, json_out::TaskRef, v1},
    CallOut, has_id, message_with_ids,
    object::ObjectOut,
    only, plain_config, state_v1,
};

const BY: &str = "1.0";

pub(super) fn params(
    out: &mut Vec<u8>,
    call: &OutgoingCall<'_>,
    cx: CallOut<'_>,
) -> Result<(), NotExpressible> {
    match *call {
        OutgoingCall::Push(PushCall::Set(config)) => {
            if config.task_id().is_none() {
                let what = "a push configuration without taskId";
                return Err(NotExpressible { what, by: BY });
            }
            plain_config(config, BY)?;
            canonical::push_config(out, config, cx.tenant);
            return Ok(());
        }
        OutgoingCall::Send(ref send) => return self::send(out, send, cx),
        OutgoingCall::Get(_)
        | OutgoingCall::List(_)
        | OutgoingCall::Cancel(_)
        | OutgoingCall::Subscribe(_)
        | OutgoingCall::Push(_)
        | OutgoingCall::ExtendedCard => {}
    }
    let mut params = ObjectOut::open(out);
    params.text_some("tenant", cx.tenant);
    match *call {
        OutgoingCall::Get(get) => {
            params.raw("id", get.id.raw());
            params.number_some("historyLength", get.history);
        }
        OutgoingCall::List(ref list) => list_members(&mut params, list),
        OutgoingCall::Cancel(ref target) => {
            params.raw("id", target.id.raw());
            params.json_some("metadata", target.metadata.map(JsonObject::raw));
        }
        OutgoingCall::Subscribe(ref target) => subscribe(&mut params, target, cx)?,
        OutgoingCall::Push(PushCall::Get { task_id, id } | PushCall::Delete { task_id, id }) => {
            let what = "a push configuration without its id";
            let id = id.ok_or(NotExpressible { what, by: BY })?;
            config_members(&mut params, task_id, id);
        }
        OutgoingCall::Push(PushCall::List { task_id, page_size, page_token }) => {
            params.raw("taskId", task_id.raw());
            params.number_some("pageSize", page_size);
            params.raw_some("pageToken", page_token);
        }
        // Written by the first `match`.
        OutgoingCall::Send(_) | OutgoingCall::Push(PushCall::Set(_)) => {}
        OutgoingCall::ExtendedCard => {}
    }
    params.close();
    Ok(())
}

fn config_members(params: &mut ObjectOut<'_>, task_id: RawText<'_>, id: RawText<'_>) {
    params.raw("taskId", task_id.raw());
    params.raw("id", id.raw());
}

fn subscribe(
    params: &mut ObjectOut<'_>,
    target: &Target<'_>,
    cx: CallOut<'_>,
) -> Result<(), NotExpressible> {
    only(target.metadata, "metadata of SubscribeToTask", BY)?;
    params.raw("id", target.id.raw());
    if let Some(after) = target.after.filter(|_| cx.event_id) {
        // ProtoJSON writes 64-bit numbers as strings.
        params.text_some("lastEventId", Some(&after.to_string()));
    }
    Ok(())
}

/// The filter members of a list (A2A 1.0 §3.1.4).
pub(super) fn list_members(params: &mut ObjectOut<'_>, list: &List<'_>) {
    params.raw_some("contextId", list.context_id);
    if let Some(status) = list.status {
        params.raw("status", state_v1(status));
    }
    params.number_some("pageSize", list.page_size);
    if let Some(token) = list.page_token.filter(|token| !token.is_empty()) {
        params.raw("pageToken", token);
    }
    params.number_some("historyLength", list.history);
    if let Some(after_ms) = list.after_ms {
        params.raw("statusTimestampAfter", &time::rfc3339(after_ms));
    }
    if list.include_artifacts {
        params.flag("includeArtifacts", true);
    }
}

fn send(out: &mut Vec<u8>, send: &Send<'_>, cx: CallOut<'_>) -> Result<(), NotExpressible> {
    has_id(send.message, BY)?;
    let mut params = ObjectOut::open(out);
    params.text_some("tenant", cx.tenant);
    let ids = [send.context_id, send.task_id].map(|id| id.map(RawText::raw));
    let no_task = TaskRef { task_id: b"", context_id: b"" };
    message_with_ids(params.key("message"), send.message, ids, |out| {
        v1::message(out, send.message, no_task);
    });
    let at_once = send.mode == SendMode::Return;
    let is_set = at_once || send.push.is_some() || send.history.is_some();
    if is_set || send.accepted_output_modes.is_some() {
        let mut configuration = ObjectOut::open(params.key("configuration"));
        configuration.json_some("acceptedOutputModes", send.accepted_output_modes);
        if let Some(push) = send.push {
            plain_config(push, BY)?;
            canonical::push_config(configuration.key("taskPushNotificationConfig"), push, None);
        }
        configuration.number_some("historyLength", send.history);
        if at_once {
            configuration.flag("returnImmediately", true);
        }
        configuration.close();
    }
    params.json_some("metadata", send.metadata.map(JsonObject::raw));
    params.close();
    Ok(())
}
