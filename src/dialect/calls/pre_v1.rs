//! Params before 1.0 over JSON-RPC (wire §1.5, §8); [`CallRules`] contains the differences between
//! platforms.

use crate::model::{
    Generation, Get, JsonObject, List, Message, NotExpressible, OutgoingCall, PushCall, PushConfig,
    RawText, Send, SendMode, Target,
};

use super::{
    super::{
        json_out::{self, TaskRef},
        pre_v1::{self, Spelling},
        push_out,
    },
    CallOut, has_id, message_with_ids,
    object::ObjectOut,
    only, plain_config, plain_parts, v1, without_extensions, without_references,
};

/// The params that a generation or platform supports.
pub struct CallRules {
    /// The wire format of the objects, including the generation.
    pub(in crate::dialect) spelling: &'static Spelling,
    /// The name of the generation or platform in errors.
    pub by: &'static str,
    /// True: a send has a `configuration`, with `blocking` and the other members.
    pub configuration: bool,
    /// True: the context id is part of the params, not of the message.
    pub context_in_params: bool,
    /// True: get and cancel also name the context id, if it is known.
    pub threads: bool,
    /// Largest `historyLength` of a get.
    pub history_max: u32,
    /// True: a push configuration is a URL with headers, without a task.
    pub push_headers: bool,
}

impl CallRules {
    /// The rules of the generation's specification.
    pub(in crate::dialect) const fn of(spelling: &'static Spelling, by: &'static str) -> CallRules {
        CallRules {
            spelling,
            by,
            configuration: true,
            context_in_params: false,
            threads: false,
            history_max: i32::MAX as u32,
            push_headers: false,
        }
    }

    fn is_v01(&self) -> bool {
        self.spelling.generation == Generation::V01
    }
}

pub(super) fn params(
    out: &mut Vec<u8>,
    call: &OutgoingCall<'_>,
    cx: CallOut<'_>,
    rules: &CallRules,
) -> Result<(), NotExpressible> {
    only(cx.tenant, "tenant", rules.by)?;
    let mut params = ObjectOut::open(out);
    match *call {
        OutgoingCall::Send(ref send) => match rules.is_v01() {
            true => send_v01(&mut params, send, rules)?,
            false => send_v03(&mut params, send, rules)?,
        },
        OutgoingCall::Get(ref get) => self::get(&mut params, get, rules)?,
        OutgoingCall::List(ref list) => self::list(&mut params, list, rules),
        OutgoingCall::Cancel(ref target) => {
            self::target(&mut params, target, rules)?;
        }
        OutgoingCall::Subscribe(ref target) => {
            self::target(&mut params, target, rules)?;
            if let Some(after) = target.after.filter(|_| cx.event_id) {
                params.text_some("lastEventId", Some(&after.to_string()));
            }
        }
        OutgoingCall::Push(ref call) => push_params(&mut params, call, rules)?,
        OutgoingCall::ExtendedCard => {}
    }
    params.close();
    Ok(())
}

/// Rejects fields of messages that a generation or platform lacks.
fn check(message: Message<'_>, rules: &CallRules) -> Result<(), NotExpressible> {
    if !rules.spelling.parts_v1 {
        plain_parts(message, rules.by)?;
    }
    if rules.is_v01() {
        without_references(message, rules.by)?;
        return without_extensions(message, rules.by);
    }
    has_id(message, rules.by)
}

const NO_TASK: TaskRef<'static> = TaskRef { task_id: b"", context_id: b"" };

fn send_v01(
    params: &mut ObjectOut<'_>,
    send: &Send<'_>,
    rules: &CallRules,
) -> Result<(), NotExpressible> {
    check(send.message, rules)?;
    let by = rules.by;
    only(send.accepted_output_modes, "acceptedOutputModes", by)?;
    if send.mode == SendMode::Return {
        return Err(NotExpressible { what: "returnImmediately", by });
    }
    // The client creates the task id. It uses the message id, which 0.1 does not send, so a
    // repeated message goes to the same task.
    let own = Some(send.message.message_id()).filter(|id| !id.is_empty());
    let task_id = send.task_id.or(send.message.task_id()).or(own);
    let task_id = task_id.ok_or(NotExpressible { what: "a message without taskId", by })?;
    params.raw("id", task_id.raw());
    params.raw_some("sessionId", send.context_id.or(send.message.context_id()));
    pre_v1::message(params.key("message"), rules.spelling, send.message, NO_TASK);
    if let Some(push) = send.push {
        inner_config(params.key("pushNotification"), push, rules)?;
    }
    params.number_some("historyLength", send.history);
    params.json_some("metadata", send.metadata.map(JsonObject::raw));
    Ok(())
}

fn send_v03(
    params: &mut ObjectOut<'_>,
    send: &Send<'_>,
    rules: &CallRules,
) -> Result<(), NotExpressible> {
    check(send.message, rules)?;
    let message = send.message;
    let context_id = send.context_id.map(RawText::raw);
    let inside = context_id.filter(|_| !rules.context_in_params);
    let ids = [inside, send.task_id.map(RawText::raw)];
    message_with_ids(params.key("message"), message, ids, |out| {
        pre_v1::message(out, rules.spelling, message, NO_TASK);
    });
    if rules.context_in_params {
        params.raw_some("contextId", send.context_id.or(message.context_id()));
    }
    if rules.configuration {
        let mut configuration = ObjectOut::open(params.key("configuration"));
        // Before 0.2.6 it is required.
        let modes = send.accepted_output_modes.unwrap_or(b"[]");
        configuration.json_some("acceptedOutputModes", Some(modes));
        configuration.number_some("historyLength", send.history);
        if let Some(push) = send.push {
            inner_config(configuration.key("pushNotificationConfig"), push, rules)?;
        }
        // Servers have different defaults (wire §10, trap 11).
        configuration.flag("blocking", send.mode != SendMode::Return);
        configuration.close();
    } else {
        let by = rules.by;
        only(send.accepted_output_modes, "acceptedOutputModes", by)?;
        only(send.history, "historyLength of a message", by)?;
        only(send.push, "taskPushNotificationConfig", by)?;
        if send.mode == SendMode::Return {
            return Err(NotExpressible { what: "returnImmediately", by });
        }
    }
    params.json_some("metadata", send.metadata.map(JsonObject::raw));
    Ok(())
}

fn get(params: &mut ObjectOut<'_>, get: &Get<'_>, rules: &CallRules) -> Result<(), NotExpressible> {
    params.raw("id", get.id.raw());
    thread(params, get.context_id, rules);
    if get.history.is_some_and(|history| history > rules.history_max) {
        return Err(NotExpressible { what: "a historyLength this large", by: rules.by });
    }
    params.number_some("historyLength", get.history);
    Ok(())
}

/// Adds the context id, if the rules and the call have one.
fn thread(params: &mut ObjectOut<'_>, context_id: Option<RawText<'_>>, rules: &CallRules) {
    if let Some(context_id) = context_id.filter(|_| rules.threads) {
        params.raw("contextId", context_id.raw());
    }
}

/// Only Pydantic AI lists tasks: as in 1.0, with its own names of states.
fn list(params: &mut ObjectOut<'_>, list: &List<'_>, rules: &CallRules) {
    v1::list_members(params, &List { status: None, ..*list });
    if let Some(status) = list.status {
        params.raw("status", (rules.spelling.state)(status));
    }
}

fn target(
    params: &mut ObjectOut<'_>,
    target: &Target<'_>,
    rules: &CallRules,
) -> Result<(), NotExpressible> {
    params.raw("id", target.id.raw());
    thread(params, target.context_id, rules);
    params.json_some("metadata", target.metadata.map(JsonObject::raw));
    Ok(())
}

fn push_params(
    params: &mut ObjectOut<'_>,
    call: &PushCall<'_>,
    rules: &CallRules,
) -> Result<(), NotExpressible> {
    let by = rules.by;
    match *call {
        PushCall::Set(config) if rules.push_headers => return headers(params, config, by),
        PushCall::Set(config) => {
            let what = "a push configuration without taskId";
            let task_id = config.task_id().ok_or(NotExpressible { what, by })?;
            params.raw(if rules.is_v01() { "id" } else { "taskId" }, task_id.raw());
            inner_config(params.key("pushNotificationConfig"), config, rules)?;
        }
        PushCall::Get { task_id, id } => {
            params.raw("id", task_id.raw());
            if rules.is_v01() {
                only(id, "the id of a push configuration", by)?;
            }
            params.raw_some("pushNotificationConfigId", id);
        }
        PushCall::List { task_id, page_size, page_token } => {
            params.raw("id", task_id.raw());
            only(page_size, "pageSize of push configurations", by)?;
            only(page_token, "pageToken of push configurations", by)?;
        }
        PushCall::Delete { task_id, id } => {
            params.raw("id", task_id.raw());
            let what = "deletion of a push configuration without its id";
            params.raw("pushNotificationConfigId", id.ok_or(NotExpressible { what, by })?.raw());
        }
    }
    Ok(())
}

/// Appends a configuration without its task (wire §1.6).
fn inner_config(
    out: &mut Vec<u8>,
    config: PushConfig<'_>,
    rules: &CallRules,
) -> Result<(), NotExpressible> {
    plain_config(config, rules.by)?;
    if rules.is_v01() {
        only(config.id(), "the id of a push configuration", rules.by)?;
    }
    old_config(out, config);
    Ok(())
}

/// Appends a configuration of 0.x.
pub(super) fn old_config(out: &mut Vec<u8>, config: PushConfig<'_>) {
    let mut object = ObjectOut::open(out);
    object.raw_some("id", config.id());
    object.raw("url", config.url().raw());
    object.raw_some("token", config.token());
    if config.scheme().is_some() || config.credentials().is_some() {
        let mut authentication = ObjectOut::open(object.key("authentication"));
        let schemes = config.scheme().map(RawText::raw);
        json_out::list(
            authentication.key("schemes"),
            b"[",
            schemes.into_iter(),
            true,
            |out, scheme| json_out::text(out, b"\"", scheme),
        );
        authentication.raw_some("credentials", config.credentials());
        authentication.close();
    }
    object.close();
    if config.filter().is_some() {
        // Removes the closing brace that was just written.
        out.pop();
        push_out::filter(out, config);
        out.push(b'}');
    }
}

/// Wire §8, Evo AI: a URL and headers, without a task.
fn headers(
    params: &mut ObjectOut<'_>,
    config: PushConfig<'_>,
    by: &'static str,
) -> Result<(), NotExpressible> {
    only(config.task_id(), "the task of a push configuration", by)?;
    only(config.id(), "the id of a push configuration", by)?;
    only(config.token(), "the token of a push configuration", by)?;
    only(config.filter(), "the events of a push configuration", by)?;
    let mut object = ObjectOut::open(params.key("config"));
    object.raw("url", config.url().raw());
    let authorization = config.scheme().zip(config.credentials());
    if authorization.is_some() || config.headers().next().is_some() {
        let mut headers = ObjectOut::open(object.key("headers"));
        if let Some((scheme, credentials)) = authorization {
            let value = [scheme.raw(), b" ", credentials.raw()].concat();
            headers.raw("Authorization", &value);
        }
        for (name, value) in config.headers() {
            headers.raw(name.raw_str(), value.raw());
        }
        headers.close();
    }
    object.close();
    params.raw_some("contextId", config.context_id());
    Ok(())
}
