//! Push configurations over gRPC: requests and answers (wire §4.2).

use crate::{
    dialect::{ReadCx, push_ids, push_name},
    fault::Fault,
    model::{
        Call, Generation, Op, PushCall, PushConfig, PushForm, PushReply, PushRequest, RawText,
        pack::Packer, push::push_tag,
    },
    pb::{Fields, Value, Writer},
};

use super::{
    fields::{v1, v03},
    from_json::text_field,
    message::{canonical, missing},
    read::{DecodedRequest, malformed},
};

/// The fields of a request or a configuration; each text is escaped as in JSON.
#[derive(Default)]
struct PushFields<'p> {
    tenant: &'p str,
    task_id: Vec<u8>,
    id: Vec<u8>,
    url: Vec<u8>,
    token: Vec<u8>,
    scheme: Vec<u8>,
    credentials: Vec<u8>,
    page_size: i32,
    page_token: Vec<u8>,
}

/// Reads a request about configurations.
pub(super) fn read<'p>(
    cx: &ReadCx<'_>,
    generation: Generation,
    body: &'p [u8],
    pack: &'p mut Vec<u8>,
) -> Result<DecodedRequest<'p>, Fault> {
    let mut fields = PushFields::default();
    match generation {
        Generation::V1 => request_v1(cx, body, &mut fields)?,
        Generation::V01 | Generation::V03 => request_v03(cx, body, &mut fields)?,
    }
    let is_v1 = generation == Generation::V1;
    if fields.task_id.is_empty() {
        return Err(missing(match (is_v1, cx.op) {
            (true, _) => "taskId",
            (false, Op::PushSet | Op::PushList) => "parent",
            (false, _) => "name",
        }));
    }
    let form = PushForm::of(generation);
    if cx.op == Op::PushSet {
        if fields.url.is_empty() {
            return Err(missing("url"));
        }
        fields.pack(pack);
        let call = Call::Push(PushRequest { call: PushCall::Set(PushConfig(pack)), form });
        return Ok(DecodedRequest { call, tenant: fields.tenant });
    }
    let page_size = u32::try_from(fields.page_size)
        .map_err(|_| Fault::param("pageSize", format!("must be from 0 to {}", i32::MAX)))?;
    if fields.id.is_empty() && (cx.op == Op::PushDelete || cx.op == Op::PushGet && is_v1) {
        return Err(missing(if is_v1 { "id" } else { "name" }));
    }
    let mut put = |text: &[u8]| {
        pack.extend_from_slice(text);
        pack.len()
    };
    let (task_end, id_end, token_end) =
        (put(&fields.task_id), put(&fields.id), put(&fields.page_token));
    let pack: &'p [u8] = pack;
    let some = |text: &'p [u8]| Some(RawText::known(text)).filter(|text| !text.is_empty());
    let (task_id, id) = (RawText::known(&pack[..task_end]), some(&pack[task_end..id_end]));
    let call = match cx.op {
        Op::PushList => PushCall::List {
            task_id,
            page_size: Some(page_size).filter(|size| *size > 0),
            page_token: some(&pack[id_end..token_end]),
        },
        Op::PushDelete => PushCall::Delete { task_id, id },
        _ => PushCall::Get { task_id, id },
    };
    Ok(DecodedRequest { call: Call::Push(PushRequest { call, form }), tenant: fields.tenant })
}

/// Reads the configuration of a send, and returns its position in the pack; `None`: the
/// configuration has no URL and is ignored (wire §10, trap 30).
pub(super) fn of_send(
    cx: &ReadCx<'_>,
    generation: Generation,
    config: &[u8],
    pack: &mut Vec<u8>,
) -> Result<Option<(usize, usize)>, Fault> {
    let mut fields = PushFields::default();
    match generation {
        Generation::V1 => config_v1(cx, config, &mut fields)?,
        Generation::V01 | Generation::V03 => config_v03(cx, config, &mut fields)?,
    }
    if fields.url.is_empty() {
        return Ok(None);
    }
    fields.task_id.clear();
    let start = pack.len();
    fields.pack(pack);
    Ok(Some((start, pack.len())))
}

impl PushFields<'_> {
    fn pack(&self, pack: &mut Vec<u8>) {
        let some = |text: &'_ [u8]| (!text.is_empty()).then(|| text.to_vec());
        let mut packer = Packer(pack);
        packer.put_some(push_tag::ID, some(&self.id).as_deref());
        packer.put_some(push_tag::TASK_ID, some(&self.task_id).as_deref());
        packer.put(push_tag::URL, &self.url);
        packer.put_some(push_tag::TOKEN, some(&self.token).as_deref());
        packer.put_some(push_tag::SCHEME, some(&self.scheme).as_deref());
        packer.put_some(push_tag::CREDENTIALS, some(&self.credentials).as_deref());
    }
}

/// Reads a text in place of the previous: of repeated fields the last is used.
fn text(
    field: &'static str,
    value: Value<'_>,
    most: usize,
    position: &mut Vec<u8>,
) -> Result<(), Fault> {
    position.clear();
    canonical(field, value, most, position)
}

/// Reads a request of 1.0; for `PushSet` the message is the configuration.
fn request_v1<'p>(
    cx: &ReadCx<'_>,
    body: &'p [u8],
    fields: &mut PushFields<'p>,
) -> Result<(), Fault> {
    use v1::{
        get_task_push_notification_config_request as one,
        list_task_push_notification_configs_request as list,
    };
    let most = cx.limits.identifier_bytes_max;
    let is_list = match cx.op {
        Op::PushSet => return config_v1(cx, body, fields),
        op => op == Op::PushList,
    };
    for found in Fields(body) {
        let (number, value) = found.map_err(malformed)?;
        match (is_list, number) {
            (false, one::TENANT) | (true, list::TENANT) => {
                fields.tenant = value.text().map_err(malformed)?;
            }
            (false, one::TASK_ID) | (true, list::TASK_ID) => {
                text("taskId", value, most, &mut fields.task_id)?;
            }
            (false, one::ID) => text("id", value, most, &mut fields.id)?,
            (true, list::PAGE_SIZE) => fields.page_size = value.int32().map_err(malformed)?,
            (true, list::PAGE_TOKEN) => text("pageToken", value, most, &mut fields.page_token)?,
            _ => {}
        }
    }
    Ok(())
}

fn config_v1<'p>(
    cx: &ReadCx<'_>,
    config: &'p [u8],
    fields: &mut PushFields<'p>,
) -> Result<(), Fault> {
    use v1::task_push_notification_config as field;
    let (id_most, most) = (cx.limits.identifier_bytes_max, cx.limits.string_bytes_max);
    for found in Fields(config) {
        let (number, value) = found.map_err(malformed)?;
        match number {
            field::TENANT => fields.tenant = value.text().map_err(malformed)?,
            field::ID => text("id", value, id_most, &mut fields.id)?,
            field::TASK_ID => text("taskId", value, id_most, &mut fields.task_id)?,
            field::URL => text("url", value, most, &mut fields.url)?,
            field::TOKEN => text("token", value, most, &mut fields.token)?,
            field::AUTHENTICATION => {
                let value = value.bytes().map_err(malformed)?;
                authentication(cx, value, v1::authentication_info::CREDENTIALS, fields)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads a request of 0.3, which contains resource names.
fn request_v03(cx: &ReadCx<'_>, body: &[u8], fields: &mut PushFields<'_>) -> Result<(), Fault> {
    use v03::{
        create_task_push_notification_config_request as create,
        get_task_push_notification_config_request as one,
        list_task_push_notification_config_request as list, task_push_notification_config as named,
    };
    let most = cx.limits.identifier_bytes_max;
    for found in Fields(body) {
        let (number, value) = found.map_err(malformed)?;
        match (cx.op, number) {
            (Op::PushSet, create::CONFIG_ID) => text("configId", value, most, &mut fields.id)?,
            (Op::PushSet, create::CONFIG) => {
                for found in Fields(value.bytes().map_err(malformed)?) {
                    let (number, value) = found.map_err(malformed)?;
                    match number {
                        named::NAME => resource(cx, value, fields)?,
                        named::PUSH_NOTIFICATION_CONFIG => {
                            config_v03(cx, value.bytes().map_err(malformed)?, fields)?;
                        }
                        _ => {}
                    }
                }
            }
            (Op::PushSet, create::PARENT)
            | (Op::PushGet | Op::PushDelete, one::NAME)
            | (Op::PushList, list::PARENT) => resource(cx, value, fields)?,
            (Op::PushList, list::PAGE_SIZE) => {
                fields.page_size = value.int32().map_err(malformed)?
            }
            (Op::PushList, list::PAGE_TOKEN) => {
                text("pageToken", value, most, &mut fields.page_token)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn config_v03(cx: &ReadCx<'_>, config: &[u8], fields: &mut PushFields<'_>) -> Result<(), Fault> {
    use v03::push_notification_config as field;
    let most = cx.limits.string_bytes_max;
    for found in Fields(config) {
        let (number, value) = found.map_err(malformed)?;
        match number {
            field::ID if !value.bytes().map_err(malformed)?.is_empty() => {
                text("id", value, cx.limits.identifier_bytes_max, &mut fields.id)?;
            }
            field::URL => text("url", value, most, &mut fields.url)?,
            field::TOKEN => text("token", value, most, &mut fields.token)?,
            field::AUTHENTICATION => {
                let value = value.bytes().map_err(malformed)?;
                authentication(cx, value, v03::authentication_info::CREDENTIALS, fields)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads the first scheme, and the credentials.
fn authentication(
    cx: &ReadCx<'_>,
    message: &[u8],
    credentials: u32,
    fields: &mut PushFields<'_>,
) -> Result<(), Fault> {
    // Both generations use the same number for the scheme or schemes.
    use v1::authentication_info::SCHEME;
    let most = cx.limits.string_bytes_max;
    fields.scheme.clear();
    for found in Fields(message) {
        let (number, value) = found.map_err(malformed)?;
        if number == SCHEME && fields.scheme.is_empty() {
            text("authentication.scheme", value, most, &mut fields.scheme)?;
        } else if number == credentials {
            text("authentication.credentials", value, most, &mut fields.credentials)?;
        }
    }
    Ok(())
}

/// Reads the ids in the resource name of a configuration or a task.
fn resource(cx: &ReadCx<'_>, value: Value<'_>, fields: &mut PushFields<'_>) -> Result<(), Fault> {
    let (task_id, id) = push_ids(value.bytes().map_err(malformed)?);
    let most = cx.limits.identifier_bytes_max;
    text("name", Value::Bytes(task_id), most, &mut fields.task_id)?;
    // A separate id takes precedence.
    if !id.is_empty() && fields.id.is_empty() {
        text("name", Value::Bytes(id), most, &mut fields.id)?;
    }
    Ok(())
}

/// Appends configurations, without credentials.
pub(super) fn reply(writer: &mut Writer<'_>, generation: Generation, reply: &PushReply<'_>) {
    // The lists of both generations use the same field numbers.
    use v1::list_task_push_notification_configs_response as list;
    match *reply {
        PushReply::Config { task_id, config } => put_config(writer, generation, task_id, config),
        PushReply::Listed { task_id, config } => {
            let guess = task_id.raw().len() + config.packed().len() + 64;
            let nested = writer.open(list::CONFIGS, guess);
            put_config(writer, generation, task_id, config);
            writer.close(nested);
        }
        PushReply::ListEnd { next } if !next.is_empty() => {
            writer.bytes(list::NEXT_PAGE_TOKEN, next.as_bytes());
        }
        PushReply::ListStart
        | PushReply::ListEnd { .. }
        | PushReply::Deleted
        | PushReply::NoConfig { .. } => {}
    }
}

fn put_config(
    writer: &mut Writer<'_>,
    generation: Generation,
    task_id: RawText<'_>,
    config: PushConfig<'_>,
) {
    let id = config.id().unwrap_or_default();
    let put_authentication = |writer: &mut Writer<'_>, number: u32| {
        if let Some(scheme) = config.scheme() {
            let nested = writer.open(number, scheme.raw().len() + 4);
            text_field(writer, v1::authentication_info::SCHEME, scheme.raw());
            writer.close(nested);
        }
    };
    let put_some = |writer: &mut Writer<'_>, number: u32, text: Option<RawText<'_>>| {
        if let Some(text) = text {
            text_field(writer, number, text.raw());
        }
    };
    match generation {
        Generation::V1 => {
            use v1::task_push_notification_config as field;
            text_field(writer, field::ID, id.raw());
            text_field(writer, field::TASK_ID, task_id.raw());
            text_field(writer, field::URL, config.url().raw());
            put_some(writer, field::TOKEN, config.token());
            put_authentication(writer, field::AUTHENTICATION);
        }
        Generation::V01 | Generation::V03 => {
            use v03::{push_notification_config as field, task_push_notification_config as named};
            text_field(writer, named::NAME, &push_name(task_id.raw(), Some(id.raw())));
            let nested = writer.open(named::PUSH_NOTIFICATION_CONFIG, config.packed().len() + 16);
            text_field(writer, field::ID, id.raw());
            text_field(writer, field::URL, config.url().raw());
            put_some(writer, field::TOKEN, config.token());
            put_authentication(writer, field::AUTHENTICATION);
            writer.close(nested);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{fault::FaultKind, limits::Limits};

    /// A message with these text fields.
    fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        fields.iter().for_each(|(number, text)| Writer(&mut out).bytes(*number, text));
        out
    }

    /// Reads a request, and formats the call or the error.
    fn decoded(generation: Generation, op: Op, body: &[u8]) -> String {
        let (limits, mut pack) = (Limits::default(), Vec::new());
        let cx = ReadCx {
            op,
            limits: &limits,
            fresh_id: b"",
            after: None,
            task: None,
            tokens: Cell::default(),
            tenant: Cell::default(),
        };
        match read(&cx, generation, body, &mut pack) {
            Ok(DecodedRequest { call: Call::Push(push), tenant }) => match push.call {
                PushCall::Set(config) => {
                    let ids = (config.task_id().unwrap(), config.id());
                    let secrets = (config.token(), config.scheme(), config.credentials());
                    format!("{tenant} {ids:?} {} {secrets:?}", config.url())
                }
                other => format!("{tenant} {other:?}"),
            },
            Ok(_) => "another call".to_owned(),
            Err(fault) => match fault.kind {
                FaultKind::InvalidParams => fault.field.unwrap().to_owned(),
                kind => format!("{kind:?}"),
            },
        }
    }

    #[test]
    fn push_requests_of_1_0_are_read_from_flat_fields() {
        let decoded = |op, fields: &[(u32, &[u8])]| decoded(Generation::V1, op, &message(fields));
        let scheme = message(&[(1, b"Bearer"), (2, b"s")]);
        let config: &[(u32, &[u8])] =
            &[(1, b"x"), (2, b"p\""), (3, b"t"), (4, b"https://h"), (5, b"k"), (6, &scheme)];
        let expected = r#"x ("t", Some("p\"")) https://h (Some("k"), Some("Bearer"), Some("s"))"#;
        assert_eq!(decoded(Op::PushSet, config), expected);
        assert_eq!(decoded(Op::PushSet, &config[..3]), "url");
        assert_eq!(decoded(Op::PushSet, &config[3..]), "taskId");
        let one: &[(u32, &[u8])] = &[(1, b"x"), (2, b"t"), (3, b"p")];
        assert_eq!(decoded(Op::PushGet, one), r#"x Get { task_id: "t", id: Some("p") }"#);
        assert_eq!(decoded(Op::PushDelete, one), r#"x Delete { task_id: "t", id: Some("p") }"#);
        assert_eq!((decoded(Op::PushGet, &one[..2]), decoded(Op::PushDelete, &one[..2])), {
            ("id".to_owned(), "id".to_owned())
        });
        assert_eq!(decoded(Op::PushGet, &one[2..]), "taskId");
        let list = decoded(Op::PushList, &[(1, b"t"), (3, b"more"), (4, b"x")]);
        let expected = r#"x List { task_id: "t", page_size: None, page_token: Some("more") }"#;
        assert_eq!(list, expected);
        assert_eq!(decoded(Op::PushList, &[(2, b"t")]), "InvalidRequest");
        let mut sized = message(&[(1, b"t")]);
        Writer(&mut sized).number(2, 7);
        let listed = self::decoded(Generation::V1, Op::PushList, &sized);
        assert_eq!(listed, r#" List { task_id: "t", page_size: Some(7), page_token: None }"#);
        let mut negative = message(&[(1, b"t")]);
        Writer(&mut negative).number(2, u64::MAX);
        assert_eq!(self::decoded(Generation::V1, Op::PushList, &negative), "pageSize");
    }

    #[test]
    fn push_requests_of_0_3_are_read_from_resource_names() {
        let decoded = |op, fields: &[(u32, &[u8])]| decoded(Generation::V03, op, &message(fields));
        let name: &[(u32, &[u8])] = &[(1, b"tasks/t/pushNotificationConfigs/p")];
        assert_eq!(decoded(Op::PushGet, name), r#" Get { task_id: "t", id: Some("p") }"#);
        assert_eq!(decoded(Op::PushDelete, name), r#" Delete { task_id: "t", id: Some("p") }"#);
        assert_eq!(decoded(Op::PushGet, &[(1, b"tasks/t")]), r#" Get { task_id: "t", id: None }"#);
        assert_eq!(decoded(Op::PushDelete, &[(1, b"tasks/t")]), "name");
        assert_eq!(decoded(Op::PushGet, &[(1, b"t")]), r#" Get { task_id: "t", id: None }"#);
        let other = decoded(Op::PushGet, &[(1, b"tasks/t/pushNotificationConfigsX")]);
        assert_eq!(other, r#" Get { task_id: "t/pushNotificationConfigsX", id: None }"#);
        assert_eq!((decoded(Op::PushGet, &[]), decoded(Op::PushList, &[])), {
            ("name".to_owned(), "parent".to_owned())
        });
        let list = decoded(Op::PushList, &[(1, b"tasks/t/pushNotificationConfigs")]);
        assert_eq!(list, r#" List { task_id: "t", page_size: None, page_token: None }"#);
        let inner = message(&[(1, b""), (2, b"https://h"), (4, &message(&[(1, b"a"), (1, b"b")]))]);
        let named = message(&[(1, b"tasks/t/pushNotificationConfigs/q"), (2, &inner)]);
        let set = decoded(Op::PushSet, &[(1, b"tasks/t"), (2, b"p"), (3, &named)]);
        assert_eq!(set, r#" ("t", Some("p")) https://h (None, Some("a"), None)"#);
        assert_eq!(decoded(Op::PushSet, &[(1, b"tasks/t"), (2, b"p")]), "url");
    }
}
