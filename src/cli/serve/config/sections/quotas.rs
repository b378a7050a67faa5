//! `[quotas]`: the limits of callers. Unless a number is set, an authenticated caller has a share
//! of streams, running tasks, the bytes of running tasks, and waiting calls; other unset limits do
//! not apply.

use std::collections::BTreeMap;

use peregrine::{
    auth::{Quota, Quotas, Rate},
    limits::Unit,
};

use super::super::tree::{ConfigEntry, ConfigSection, Key, Shape, Wrong, hint, key};

const COUNT: Shape = Shape::Whole { min: 1, max: u32::MAX as u64 };

const CALLS: Key =
    key("calls_per_minute", COUNT, "", "Calls per minute; each call of a batch counts").live();
const BURST: Key =
    key("call_burst", COUNT, "", "Maximum burst of calls; default: calls_per_minute").live();
const REQUEST_BYTES: Key = key(
    "request_bytes_per_minute",
    Shape::Measure(Unit::Bytes),
    "",
    "Bytes of requests per minute, in steps of 1KiB; the maximum burst is the same",
)
.live();
const STREAMS: Key = key("streams", COUNT, "", "Open streams").live();
const TASKS: Key = key("running_tasks", COUNT, "", "Unfinished tasks").live();
const TASK_BYTES: Key = key(
    "running_bytes",
    Shape::Measure(Unit::Bytes),
    "",
    "Bytes of all unfinished tasks, in steps of 1KiB",
)
.live();
const WAITING: Key =
    key("waiting_calls", COUNT, "", "Waiting calls; the remaining calls of a batch count as one")
        .live();

const QUOTA: &[Key] = &[CALLS, BURST, REQUEST_BYTES, STREAMS, TASKS, TASK_BYTES, WAITING];
const TENANT_QUOTA: &[Key] = &[CALLS, BURST, REQUEST_BYTES, STREAMS, TASKS, WAITING];

const KEYS: &[Key] = &[
    key("known", Shape::Section(|| QUOTA), "", "Authenticated callers without a named quota")
        .live(),
    key(
        "anonymous",
        Shape::Section(|| QUOTA),
        "",
        "Anonymous callers, by IPv4 address or by IPv6 network of 64 bits",
    )
    .live(),
    key("named", Shape::Named(|| QUOTA), "", "Quotas named by keys and claims").live(),
    key(
        "tenants",
        Shape::Named(|| TENANT_QUOTA),
        "",
        "All callers of a tenant together, in addition to their own quotas",
    )
    .live(),
];

/// The keys of the section.
pub fn keys() -> &'static [Key] {
    KEYS
}

/// The quotas of a server.
///
/// # Errors
/// [`Wrong`].
pub fn read(root: &ConfigSection) -> Result<Quotas, Wrong> {
    let Some(quotas) = root.section("quotas") else { return Ok(Quotas::default()) };
    let of = |name| quotas.section(name).map_or(Ok(Quota::default()), quota);
    let by_name = |key| -> Result<BTreeMap<String, Quota>, Wrong> {
        let named = quotas.named(key).iter();
        named.map(|(name, section)| Ok((name.clone(), quota(section)?))).collect()
    };
    Ok(Quotas {
        known: of("known")?,
        anonymous: of("anonymous")?,
        named: by_name("named")?,
        tenants: by_name("tenants")?,
    })
}

/// Checks that every `quota` names a quota of `[quotas.named]`: otherwise the callers of a
/// misspelled name would get `[quotas.known]` without a warning.
///
/// # Errors
/// [`Wrong`].
pub fn check_names(root: &ConfigSection) -> Result<(), Wrong> {
    let named = root.section("quotas").map_or(&[][..], |quotas| quotas.named("named"));
    check_section(root, named)
}

fn check_section(section: &ConfigSection, named: &[(String, ConfigSection)]) -> Result<(), Wrong> {
    if let Some(quota) = section.text("quota")
        && !named.iter().any(|(name, _)| name == quota)
    {
        let hint = hint(quota, named.iter().map(|(name, _)| name.as_str()));
        let line = format!("no quota {quota:?} in [quotas.named]{hint}");
        return Err(section.wrong("quota", line));
    }
    section.entries.iter().flatten().try_for_each(|entry| match entry {
        ConfigEntry::Value(_) => Ok(()),
        ConfigEntry::Section(inner) => check_section(inner, named),
        ConfigEntry::Sections(all) => all.iter().try_for_each(|one| check_section(one, named)),
        ConfigEntry::Named(all) => all.iter().try_for_each(|(_, one)| check_section(one, named)),
    })
}

fn quota(section: &ConfigSection) -> Result<Quota, Wrong> {
    // The shape has checked that the numbers fit.
    let number = |name| section.whole(name).and_then(|number| u32::try_from(number).ok());
    let calls = match (number("calls_per_minute"), number("call_burst")) {
        (Some(per_minute), burst) => Some(Rate { per_minute, burst: burst.unwrap_or(per_minute) }),
        (None, None) => None,
        (None, Some(_)) => {
            return Err(section.wrong("call_burst", "needs calls_per_minute"));
        }
    };
    let kib = |name| {
        let read = section.text(name).map(|text| {
            let wrong = || section.wrong(name, "is not a size such as 10MiB");
            let bytes = Unit::Bytes.read(text).map_err(|_| wrong())?;
            let kib = u32::try_from(bytes.div_ceil(1024)).ok().filter(|kib| *kib > 0);
            kib.ok_or_else(wrong)
        });
        read.transpose()
    };
    Ok(Quota {
        calls,
        request_kib: kib("request_bytes_per_minute")?.map(Rate::per_minute),
        streams: number("streams"),
        running_tasks: number("running_tasks"),
        running_kib: kib("running_bytes")?,
        waiting_calls: number("waiting_calls"),
    })
}
