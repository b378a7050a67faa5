//! The fields of a push configuration, in a request or in an answer: flat as in 1.0, or inside a
//! member as before 1.0 (wire §1.6, §3.4).

use std::borrow::Cow;

use crate::{
    fault::Fault,
    json::{Kind, Value},
    model::{ConfigPosition, PushFilter, pack::Packer, push::push_tag},
};

use super::{
    super::push_ids, RawString, ReadCx, boolean, canonical, identifier, is_list, missing, object,
    set, slots, too_long,
};

slots!(ConfigSlots {
    id: "id";
    task_id: "taskId" | "task_id";
    name: "name";
    parent: "parent";
    config_id: "configId" | "config_id";
    url: "url";
    token: "token";
    authentication: "authentication";
    events: "events";
    coalesce: "coalesce";
    headers: "headers";
    tenant: "tenant";
    inner = "pushNotificationConfig" | "push_notification_config" | "pushNotification" | "config";
});

slots!(AuthenticationSlots {
    scheme: "scheme";
    schemes: "schemes";
    credentials: "credentials";
});

/// The deepest nesting of a configuration: `config.pushNotificationConfig`.
const DEPTH: usize = 3;

/// The fields of a configuration; its strings are raw JSON text.
#[derive(Default)]
pub(super) struct ConfigFields<'p> {
    pub id: Option<RawString<'p>>,
    pub task_id: Option<RawString<'p>>,
    pub url: Option<RawString<'p>>,
    pub token: Option<RawString<'p>>,
    pub scheme: Option<RawString<'p>>,
    pub credentials: Option<RawString<'p>>,
    pub filter: Option<PushFilter>,
    /// The configuration's own header fields, only in Evo AI: they are packed separately.
    pub headers: Option<Value<'p>>,
    /// True: the member that should contain the configuration is `null`.
    pub is_null: bool,
}

impl ConfigFields<'_> {
    /// Checks the fields other than the URL: credentials of an unknown scheme are not sent.
    ///
    /// # Errors
    /// `InvalidParams`.
    pub fn check(&self, position: ConfigPosition) -> Result<(), Fault> {
        match (&self.scheme, &self.credentials) {
            (None, Some(_)) => Err(missing(position.path("authentication.scheme"))),
            _ => Ok(()),
        }
    }

    /// Appends the fields in packed form.
    pub fn pack(&self, pack: &mut Vec<u8>) {
        let mut packer = Packer(pack);
        packer.put_some(push_tag::ID, self.id.as_deref());
        packer.put_some(push_tag::TASK_ID, self.task_id.as_deref());
        packer.put(push_tag::URL, self.url.as_deref().unwrap_or_default());
        packer.put_some(push_tag::TOKEN, self.token.as_deref());
        packer.put_some(push_tag::SCHEME, self.scheme.as_deref());
        packer.put_some(push_tag::CREDENTIALS, self.credentials.as_deref());
        if let Some(filter) = self.filter {
            packer.put(push_tag::FILTER, &[filter.bits()]);
        }
    }
}

/// Reads a configuration, and records the tenant that it names.
///
/// # Errors
/// `InvalidParams` with the member that is wrong.
pub(super) fn fields<'p>(
    cx: &ReadCx<'_>,
    value: Value<'p>,
    position: ConfigPosition,
) -> Result<ConfigFields<'p>, Fault> {
    let (mut read, mut at) = (ConfigFields::default(), value);
    for depth in 0..DEPTH {
        let mut slots = ConfigSlots::default();
        slots.fill(at);
        if depth == 0 {
            cx.tenant.set(slots.tenant);
        }
        let id = identifier(at.at(slots.id), "id", cx)?;
        put_some(&mut read.task_id, identifier(at.at(slots.task_id), "taskId", cx)?);
        let inner = at.at(slots.inner);
        if inner.is_some() {
            // In an object around the configuration, `id` is that of the task, as in 0.1.
            put_some(&mut read.task_id, id.clone());
        }
        for name in [slots.name, slots.parent] {
            if let Some(name) = at.at(name).and_then(|name| name.string_canonical()) {
                resource(cx, name, &mut read)?;
            }
        }
        put_some(&mut read.id, identifier(at.at(slots.config_id), "configId", cx)?);
        if let Some(inner) = inner {
            if inner.is_null() {
                read.is_null = true;
                return Ok(read);
            }
            at = object(Some(inner), position.whole())?.unwrap_or(inner);
            continue;
        }
        // The id inside the configuration takes precedence over an outer one.
        read.id = id.or(read.id);
        texts(cx, at, &slots, position, &mut read)?;
        return Ok(read);
    }
    Ok(read)
}

/// Reads a configuration that has neither an id nor a task id.
///
/// # Errors
/// `InvalidParams` with the member that is wrong.
pub(super) fn nameless<'p>(
    cx: &ReadCx<'_>,
    value: Value<'p>,
    position: ConfigPosition,
) -> Result<ConfigFields<'p>, Fault> {
    let (mut read, mut slots) = (ConfigFields::default(), ConfigSlots::default());
    slots.fill(value);
    texts(cx, value, &slots, position, &mut read)?;
    Ok(read)
}

/// Reads the fields of a configuration except ids.
fn texts<'p>(
    cx: &ReadCx<'_>,
    at: Value<'p>,
    slots: &ConfigSlots,
    position: ConfigPosition,
    read: &mut ConfigFields<'p>,
) -> Result<(), Fault> {
    let text = |value, member| text(value, position.path(member), cx.limits.string_bytes_max);
    read.url = text(at.at(slots.url), "url")?;
    read.token = text(at.at(slots.token), "token")?;
    read.filter = filter(at, slots, position)?;
    read.headers = at.at(slots.headers);
    let authentication = object(at.at(slots.authentication), position.path("authentication"))?;
    if let Some(authentication) = authentication {
        let mut slots = AuthenticationSlots::default();
        slots.fill(authentication);
        let of = |slot| authentication.at(slot);
        // Of several schemes the first is used (wire §1.9); a string instead of an array is
        // accepted, too.
        let first = of(slots.schemes).and_then(|schemes| match schemes.kind() {
            Kind::Array => schemes.elements().next(),
            _ => Some(schemes),
        });
        read.scheme = text(of(slots.scheme).or(first), "authentication.scheme")?;
        read.credentials = text(of(slots.credentials), "authentication.credentials")?;
    }
    Ok(())
}

/// The event filter; `None`: the configuration has none.
fn filter(
    at: Value<'_>,
    slots: &ConfigSlots,
    position: ConfigPosition,
) -> Result<Option<PushFilter>, Fault> {
    let coalesce = boolean(at.at(slots.coalesce), position.path("coalesce"))?;
    let events = at.at(slots.events);
    if events.is_none() && coalesce.is_none() {
        return Ok(None);
    }
    let mut filter = PushFilter::default();
    if let Some(events) = events {
        filter = PushFilter::ALL;
        let must = "must be a list of status, artifacts and final";
        let wrong = || Fault::param(position.path("events"), must);
        if !is_list(events) {
            return Err(wrong());
        }
        for event in events.elements() {
            let name = event.as_str().ok_or_else(wrong)?;
            filter = filter.with(PushFilter::named(&name).ok_or_else(wrong)?);
        }
    }
    Ok(Some(coalesce.map_or(filter, |coalesce| filter.coalesced(coalesce))))
}

/// Packs header fields of a configuration after its other fields (wire §8).
///
/// # Errors
/// `InvalidParams`.
pub(super) fn pack_headers(
    cx: &ReadCx<'_>,
    headers: Option<Value<'_>>,
    position: ConfigPosition,
    pack: &mut Vec<u8>,
) -> Result<(), Fault> {
    let path = position.path("headers");
    let Some(headers) = object(headers, path)? else { return Ok(()) };
    for (name, value) in headers.members() {
        if !value.is_string() {
            return Err(Fault::param(path, "must have strings as values"));
        }
        let value = canonical(value, path, cx.limits.string_bytes_max)?;
        Packer(pack).put(push_tag::HEADER_NAME, name.raw());
        Packer(pack).put(push_tag::HEADER_VALUE, &value);
    }
    Ok(())
}

fn put_some<T>(position: &mut Option<T>, found: Option<T>) {
    if position.is_none() {
        *position = found;
    }
}

/// A string that is not empty.
fn text<'p>(
    value: Option<Value<'p>>,
    member: &'static str,
    most: usize,
) -> Result<Option<RawString<'p>>, Fault> {
    let Some(value) = value.and_then(set) else { return Ok(None) };
    let text = canonical(value, member, most)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The ids in the name of a configuration.
fn resource<'p>(
    cx: &ReadCx<'_>,
    name: RawString<'p>,
    read: &mut ConfigFields<'p>,
) -> Result<(), Fault> {
    let (task_id, id) = push_ids(&name);
    let most = cx.limits.identifier_bytes_max;
    for (position, id) in [(&mut read.task_id, task_id), (&mut read.id, id)] {
        if id.len() > most {
            return Err(too_long("name", most));
        }
        put_some(position, Some(id).filter(|id| !id.is_empty()).map(|id| Cow::Owned(id.to_vec())));
    }
    Ok(())
}
