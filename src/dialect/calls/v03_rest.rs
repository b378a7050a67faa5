//! Bodies of HTTP+JSON of 0.3 (wire §3.4): the ProtoJSON of `a2a.v1`. The params of GET and DELETE
//! are in the request target.

use crate::model::{
    JsonObject, NotExpressible, OutgoingCall, PushCall, PushConfig, RawText, Send, SendMode,
};

use super::{
    super::{json_out::TaskRef, push_name, v03_rest},
    CallOut, has_id, message_with_ids,
    object::ObjectOut,
    only, plain_config, plain_parts, pre_v1, without_references,
};

/// gRPC uses the same proto, and its messages are created from this JSON.
const BY: &str = "0.3 over HTTP+JSON or gRPC";

/// Requests the whole history, since 0 means unset.
pub const ALL_HISTORY: u32 = i32::MAX as u32;

pub(super) fn params(
    out: &mut Vec<u8>,
    call: &OutgoingCall<'_>,
    cx: CallOut<'_>,
) -> Result<(), NotExpressible> {
    only(cx.tenant, "tenant", BY)?;
    let mut params = ObjectOut::open(out);
    match *call {
        OutgoingCall::Send(ref send) => self::send(&mut params, send)?,
        OutgoingCall::Cancel(ref target) | OutgoingCall::Subscribe(ref target) => {
            only(target.metadata, "metadata of this operation", BY)?;
        }
        OutgoingCall::Push(PushCall::Set(config)) => set(&mut params, config)?,
        OutgoingCall::Push(PushCall::Get { id: None, .. }) => {
            let what = "a push configuration without its id";
            return Err(NotExpressible { what, by: BY });
        }
        OutgoingCall::Get(_)
        | OutgoingCall::List(_)
        | OutgoingCall::Push(_)
        | OutgoingCall::ExtendedCard => {}
    }
    params.close();
    Ok(())
}

fn send(params: &mut ObjectOut<'_>, send: &Send<'_>) -> Result<(), NotExpressible> {
    has_id(send.message, BY)?;
    plain_parts(send.message, BY)?;
    without_references(send.message, BY)?;
    let ids = [send.context_id, send.task_id].map(|id| id.map(RawText::raw));
    let no_task = TaskRef { task_id: b"", context_id: b"" };
    message_with_ids(params.key("message"), send.message, ids, |out| {
        v03_rest::message(out, send.message, no_task);
    });
    let mut configuration = ObjectOut::open(params.key("configuration"));
    configuration.json_some("acceptedOutputModes", send.accepted_output_modes);
    if let Some(push) = send.push {
        plain_config(push, BY)?;
        pre_v1::old_config(configuration.key("pushNotification"), push);
    }
    // Neither field has presence in the proto: an omitted one is 0 or false (wire §1.5).
    configuration.number_some("historyLength", Some(send.history.unwrap_or(ALL_HISTORY)));
    configuration.flag("blocking", send.mode != SendMode::Return);
    configuration.close();
    params.json_some("metadata", send.metadata.map(JsonObject::raw));
    Ok(())
}

/// Appends the whole request, because servers read different parts of it (wire §3.4).
fn set(params: &mut ObjectOut<'_>, config: PushConfig<'_>) -> Result<(), NotExpressible> {
    let what = "a push configuration without taskId";
    let task_id = config.task_id().ok_or(NotExpressible { what, by: BY })?;
    let what = "a push configuration without its id";
    let id = config.id().ok_or(NotExpressible { what, by: BY })?;
    plain_config(config, BY)?;
    params.raw("parent", &push_name(task_id.raw(), None));
    params.raw("configId", id.raw());
    let mut resource = ObjectOut::open(params.key("config"));
    resource.raw("name", &push_name(task_id.raw(), Some(id.raw())));
    pre_v1::old_config(resource.key("pushNotificationConfig"), config);
    resource.close();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PushConfigBuf;

    #[test]
    fn inexpressible_push_config_names_http_json_and_grpc() {
        let config = PushConfigBuf::new("https://h/hook").task_id("t");
        let call = OutgoingCall::Push(PushCall::Set(config.view()));
        let cx = CallOut { tenant: None, event_id: false };
        let error = params(&mut Vec::new(), &call, cx).err().map(|error| error.to_string());
        let text = "a push configuration without its id does not exist in A2A 0.3 over HTTP+JSON \
                    or gRPC";
        assert_eq!(error.as_deref(), Some(text));
    }
}
