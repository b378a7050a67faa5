//! Reads the four operations on push configurations (wire §1.5, §1.6, §3.4).

use crate::{
    fault::Fault,
    json::Value,
    model::{
        ConfigPosition, Generation, Op, PushCall, PushConfig, PushForm, PushRequest, RawText,
        pack::Packer, push::push_tag,
    },
};

use super::{
    ReadCx, Rules, TextRef, count, identifier, keep, missing, object,
    push_config::{ConfigFields, fields, nameless, pack_headers},
    slots,
    target::named,
};

slots!(RefSlots {
    id: "id";
    task_id: "taskId" | "task_id";
    config_id: "pushNotificationConfigId" | "push_notification_config_id" | "configId"
        | "config_id";
    page_size: "pageSize" | "page_size";
    page_token: "pageToken" | "page_token";
    tenant: "tenant";
});

slots!(ScopeSlots {
    config = "config" | "pushNotificationConfig" | "push_notification_config";
    context_id: "contextId" | "context_id";
    task_id: "taskId" | "task_id";
});

slots!(ContextSlots {
    context_id: "contextId" | "context_id";
});

/// Reads the params of an operation on configurations.
pub(super) fn read<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<PushRequest<'p>, Fault> {
    let form = PushForm::of(rules.generation);
    let call = match cx.op {
        Op::PushSet => return set(rules, cx, params, pack),
        Op::PushList => list(rules, cx, params, pack)?,
        op => {
            let (task_id, id) = reference(rules, cx, params, pack)?;
            let pack: &'p [u8] = pack;
            let task_id = RawText::known(task_id.bytes(pack));
            let id = id.map(|id| RawText::known(id.bytes(pack)));
            match (op, rules.generation, id) {
                (_, Generation::V1, None) => return Err(missing("id")),
                (Op::PushDelete, _, None) => return Err(missing("pushNotificationConfigId")),
                (Op::PushDelete, ..) => PushCall::Delete { task_id, id },
                // Before 1.0 a get without an id requests the task's configuration.
                _ => PushCall::Get { task_id, id },
            }
        }
    };
    Ok(PushRequest { call, form })
}

/// Reads a configuration, which names its task.
fn set<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<PushRequest<'p>, Fault> {
    let form = PushForm::of(rules.generation);
    let position = ConfigPosition::of_set(form);
    let mut fields = match params {
        Some(params) => fields(cx, params, position)?,
        None => ConfigFields::default(),
    };
    if let Some(task_id) = cx.task {
        fields.task_id = Some(task_id.to_vec().into());
    }
    let is_v01 = rules.generation == Generation::V01;
    if is_v01 && fields.task_id.is_none() {
        // Configurations of 0.1 have no ids.
        fields.task_id = fields.id.take();
    }
    if fields.task_id.is_none() {
        return Err(missing(if is_v01 { "id" } else { "taskId" }));
    }
    if fields.is_null && is_v01 {
        // Wire §1.5: a `null` configuration deletes the configuration of the task.
        let task_id = fields.task_id.unwrap_or_default();
        let task_id = keep(pack, task_id);
        let task_id = RawText::known(task_id.bytes(pack));
        return Ok(PushRequest { call: PushCall::Delete { task_id, id: None }, form });
    }
    if fields.url.is_none() {
        return Err(missing(position.path("url")));
    }
    fields.check(position)?;
    fields.pack(pack);
    Ok(PushRequest { call: PushCall::Set(PushConfig(pack)), form })
}

/// Reads the page of a list.
fn list<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<PushCall<'p>, Fault> {
    let (mut page_size, mut page_token) = (None, None);
    let has_pages = rules.generation == Generation::V1 || rules.proto;
    if let (Some(params), true) = (params, has_pages) {
        let mut slots = RefSlots::default();
        slots.fill(params);
        page_size = count(params.at(slots.page_size), "pageSize", 0..=i32::MAX as u32)?;
        page_token = identifier(params.at(slots.page_token), "pageToken", cx)?;
    }
    let (task_id, _) = reference(rules, cx, params, pack)?;
    let page_token = page_token.map(|token| keep(pack, token));
    let pack: &'p [u8] = pack;
    Ok(PushCall::List {
        task_id: RawText::known(task_id.bytes(pack)),
        // 0, the default of ProtoJSON, counts as unset.
        page_size: page_size.filter(|size| *size > 0),
        page_token: page_token.map(|token| RawText::known(token.bytes(pack))),
    })
}

/// The ids of a task and of its configuration: in 1.0 `id` is that of the configuration, before 1.0
/// that of the task.
fn reference<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &mut Vec<u8>,
) -> Result<(TextRef<'p>, Option<TextRef<'p>>), Fault> {
    let mut slots = RefSlots::default();
    if let Some(params) = params {
        slots.fill(params);
        cx.tenant.set(slots.tenant);
    }
    let of = |slot, field| match params {
        Some(params) => identifier(params.at(slot), field, cx),
        None => Ok(None),
    };
    let (own, task_id) = (of(slots.id, "id")?, of(slots.task_id, "taskId")?);
    let config_id = of(slots.config_id, "pushNotificationConfigId")?;
    let in_path = named(cx, pack)?;
    let is_v1 = rules.generation == Generation::V1;
    // If another member names the task, `id` is that of the configuration in every generation.
    let (task_id, config_id) = match is_v1 || in_path.is_some() || task_id.is_some() {
        true => (task_id, config_id.or(own)),
        false => (own, config_id),
    };
    let task_id = match in_path {
        Some(in_path) => in_path,
        None => keep(pack, task_id.ok_or_else(|| missing(if is_v1 { "taskId" } else { "id" }))?),
    };
    Ok((task_id, config_id.map(|id| keep(pack, id))))
}

/// Reads Evo AI's configuration, which names no task: `{config: {url, headers}}` (wire §8), and the
/// other members of a configuration.
pub(in crate::dialect) fn read_headers<'p>(
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<PushRequest<'p>, Fault> {
    pack.clear();
    let form = PushForm::EvoAi;
    let task_id = RawText::default();
    if cx.op != Op::PushSet {
        return Ok(PushRequest { call: PushCall::Get { task_id, id: None }, form });
    }
    let params = params.ok_or_else(|| missing("config"))?;
    let mut around = ScopeSlots::default();
    around.fill(params);
    if params.at(around.task_id).is_some() {
        let must = "must not be set: this configuration is for all later tasks";
        return Err(Fault::param("taskId", must));
    }
    let config = params.at(around.config).ok_or_else(|| missing("config"))?;
    if config.is_null() {
        // As in 0.1, a `null` configuration deletes.
        return Ok(PushRequest { call: PushCall::Delete { task_id, id: None }, form });
    }
    let config = object(Some(config), "config")?.unwrap_or(config);
    let position = ConfigPosition::of_set(form);
    let fields = nameless(cx, config, position)?;
    if fields.url.is_none() {
        return Err(missing(position.path("url")));
    }
    fields.check(position)?;
    if fields.filter.is_some_and(|filter| !filter.takes_any_status()) {
        let must = "must name status or final: other events are not posted";
        return Err(Fault::param(position.path("events"), must));
    }
    let mut slots = ContextSlots::default();
    slots.fill(config);
    let context_id = params.at(around.context_id).or(config.at(slots.context_id));
    let context_id = identifier(context_id, "contextId", cx)?;
    fields.pack(pack);
    Packer(pack).put_some(push_tag::CONTEXT_ID, context_id.as_deref());
    pack_headers(cx, fields.headers, position, pack)?;
    Ok(PushRequest { call: PushCall::Set(PushConfig(pack)), form })
}
