//! Reading push configurations: flat as in 1.0, or in a member as before (wire §1.6, §3.4).

use std::borrow::Cow;

use crate::{
    json::{Kind, Value},
    model::{Op, ReadError, Received, ReceivedKind, pack::Packer, push::push_tag},
};

use super::{
    RawString, canonical, identifier,
    reply::{ReplyCx, wrong},
    set, slots, task,
};

slots!(ConfigSlots {
    id: "id";
    task_id: "taskId" | "task_id";
    name: "name";
    url: "url";
    token: "token";
    authentication: "authentication";
    inner: "pushNotificationConfig" | "push_notification_config" | "pushNotification" | "config";
});

slots!(AuthenticationSlots {
    scheme: "scheme";
    schemes: "schemes";
    credentials: "credentials";
});

slots!(ConfigListSlots {
    configs: "configs";
    next: "nextPageToken" | "next_page_token";
});

/// Reads the one configuration of a set or a get.
pub(super) fn one(
    cx: &ReplyCx<'_>,
    op: Op,
    result: Option<Value<'_>>,
    received: &mut Received,
) -> Result<(), ReadError> {
    let is_some = match result {
        Some(result) => config(cx, result, received)?,
        None => false,
    };
    // 0.1 answers a get without a configuration with none.
    if !is_some && op == Op::PushSet {
        return Err(ReadError::new("must be a push configuration"));
    }
    let kind = if is_some { ReceivedKind::PushConfig } else { ReceivedKind::Nothing };
    received.set_kind(kind);
    Ok(())
}

/// Reads a list of configurations: bare, or in a member.
pub(super) fn list(
    cx: &ReplyCx<'_>,
    result: Option<Value<'_>>,
    received: &mut Received,
) -> Result<(), ReadError> {
    received.set_kind(ReceivedKind::PushConfigs);
    let Some(result) = result else { return Ok(()) };
    let mut slots = ConfigListSlots::default();
    let configs = match result.kind() {
        Kind::Object => {
            slots.fill(result);
            result.at(slots.configs)
        }
        Kind::Array => Some(result),
        Kind::Null | Kind::Bool(_) | Kind::Number | Kind::String => {
            return Err(ReadError::new("must be a list of push configurations"));
        }
    };
    task::each(configs, "configs", |element| match config(cx, element, received)? {
        true => Ok(()),
        false => Err(ReadError::new("must be a push configuration")),
    })?;
    task::next_page(cx, result.at(slots.next), received)
}

/// Reads a configuration; false: there is none in it.
fn config(cx: &ReplyCx<'_>, value: Value<'_>, received: &mut Received) -> Result<bool, ReadError> {
    if value.kind() != Kind::Object {
        return Err(ReadError::new("must be an object"));
    }
    let read_cx = cx.read_cx();
    let id_of = |value: Option<Value<'_>>, member| {
        identifier(value, member, &read_cx).map(|id| id.map(Cow::into_owned)).map_err(wrong)
    };
    let mut outer = ConfigSlots::default();
    outer.fill(value);
    let (mut task_id, mut id) = (id_of(value.at(outer.task_id), "taskId")?, None);
    let name = value.at(outer.name);
    let inner = value.at(outer.inner).filter(|inner| inner.kind() == Kind::Object);
    let (config, slots) = match inner {
        None => {
            id = id_of(value.at(outer.id), "id")?;
            (value, outer)
        }
        Some(inner) => {
            // 0.1 has the task's id there.
            task_id = task_id.or(id_of(value.at(outer.id), "id")?);
            let mut slots = ConfigSlots::default();
            slots.fill(inner);
            (inner, slots)
        }
    };
    if let Some(name) = name.and_then(|name| name.string_canonical()) {
        let (of_name, config_id) = resource(&name);
        let most = cx.limits.identifier_bytes_max;
        if [&of_name, &config_id].into_iter().flatten().any(|id| id.len() > most) {
            let expected = format!("must not have ids longer than {most} bytes");
            return Err(ReadError::at("name", expected));
        }
        task_id = task_id.or(of_name);
        id = id.or(config_id);
    }
    if inner.is_some() {
        id = id_of(config.at(slots.id), "id")?.or(id);
    }
    let most = cx.limits.string_bytes_max;
    let text = |slot, member| text(config.at(slot), member, most);
    let Some(url) = text(slots.url, "url")? else { return Ok(false) };
    let token = text(slots.token, "token")?;
    let authentication = config.at(slots.authentication).and_then(set);
    let (scheme, credentials) = match authentication {
        Some(authentication) => self::authentication(authentication, most)?,
        None => (None, None),
    };
    received.pack_config(|pack| {
        let mut packer = Packer(pack);
        packer.put_some(push_tag::ID, id.as_deref());
        packer.put_some(push_tag::TASK_ID, task_id.as_deref());
        packer.put(push_tag::URL, &url);
        packer.put_some(push_tag::TOKEN, token.as_deref());
        packer.put_some(push_tag::SCHEME, scheme.as_deref());
        packer.put_some(push_tag::CREDENTIALS, credentials.as_deref());
        Ok(true)
    })
}

/// A string that is not empty.
fn text<'p>(
    value: Option<Value<'p>>,
    member: &'static str,
    most: usize,
) -> Result<Option<RawString<'p>>, ReadError> {
    let Some(value) = value else { return Ok(None) };
    let text = canonical(value, member, most).map_err(wrong)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

type Texts<'p> = (Option<RawString<'p>>, Option<RawString<'p>>);

/// The scheme, of several the first (wire §1.9), and the credentials.
fn authentication(value: Value<'_>, most: usize) -> Result<Texts<'_>, ReadError> {
    if value.kind() != Kind::Object {
        return Err(ReadError::at("authentication", "must be an object"));
    }
    let mut slots = AuthenticationSlots::default();
    slots.fill(value);
    let first = value.at(slots.schemes).and_then(|schemes| schemes.elements().next());
    let scheme = text(value.at(slots.scheme).or(first), "authentication.scheme", most)?;
    let credentials = text(value.at(slots.credentials), "authentication.credentials", most)?;
    Ok((scheme, credentials))
}

/// The ids in `tasks/{t}/pushNotificationConfigs/{c}` (wire §4.2).
fn resource(name: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    const BETWEEN: &[u8] = b"/pushNotificationConfigs/";
    let Some(rest) = name.strip_prefix(b"tasks/") else { return (None, None) };
    let between = rest.windows(BETWEEN.len()).rposition(|window| window == BETWEEN);
    let (task_id, id) = match between {
        Some(at) => (&rest[..at], &rest[at + BETWEEN.len()..]),
        None => (rest, &b""[..]),
    };
    let some = |id: &[u8]| Some(id.to_vec()).filter(|id| !id.is_empty());
    (some(task_id), some(id))
}
