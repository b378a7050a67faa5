//! `[push]`: webhooks, and their allowed targets.

use std::{num::NonZero, path::PathBuf, str::FromStr};

use peregrine::{
    engine::{HostRule, PortRule, PushChallenge, PushSettings, PushTargets},
    model::PushFilter,
};

use super::super::tree::{ConfigSection, Key, Shape, Wrong, key};

const KEYS: &[Key] = &[
    key("enabled", Shape::Switch, "true", "Serves push notifications, and declares them on cards"),
    key(
        "anonymous",
        Shape::Switch,
        "false",
        "Also serves push notifications to anonymous callers; always allowed if only this machine \
         can reach the server",
    ),
    key(
        "allow",
        Shape::Texts,
        "[]",
        "Hosts, *.hosts and networks that webhooks may reach even if they are not public, also \
         over plain http; localhost is 127.0.0.0/8 and ::1",
    )
    .flag("push-allow"),
    key("deny", Shape::Texts, "[]", "Hosts, *.hosts and networks that webhooks must not reach"),
    key(
        "only_allowed",
        Shape::Switch,
        "false",
        "true: webhooks may reach only the hosts in `allow`",
    ),
    key(
        "plain_http",
        Shape::Switch,
        "false",
        "Webhooks may also reach public hosts over plain http",
    ),
    key(
        "ports",
        Shape::Numbers,
        "[]",
        "Ports that webhooks may reach, such as [443, 8443]; default: 443, 80 and those above 1023",
    ),
    key(
        "translators",
        Shape::Texts,
        "[]",
        "Networks that translate IPv6 to IPv4 in addition to 64:ff9b::/96: the IPv4 address in \
         them is checked",
    ),
    key(
        "challenge",
        Shape::SwitchOr("auto"),
        "\"auto\"",
        "Whether a webhook's URL must answer GET with ?validationToken=T by T: true (before the \
         first post), false, or \"auto\" (before it receives more posts than an unchecked URL may)",
    ),
    key(
        "events",
        Shape::Texts,
        "[]",
        "Events for webhooks that select none: status, artifacts, final (a status that ends the \
         task, or asks for something); default: all",
    ),
    key(
        "coalesce",
        Shape::Switch,
        "false",
        "Sends one post with the current task instead of several waiting events; for webhooks that \
         do not set it",
    ),
    key(
        "sign_keys",
        Shape::Paths,
        "[]",
        "Files of private keys that sign posts to webhooks (PEM, PKCS#8), up to four: RSA of 2048 \
         to 4096 bits and P-256 for JWTs, Ed25519 for Standard Webhooks; the first of each kind \
         signs; a key that signs cards is not allowed",
    )
    .flag("push-sign-key"),
];

/// The keys of the section.
pub fn keys() -> &'static [Key] {
    KEYS
}

/// The settings of webhooks; `None`: webhooks are off.
///
/// # Errors
/// [`Wrong`]: an invalid host, network or port.
pub fn read(root: &ConfigSection) -> Result<Option<PushSettings>, Wrong> {
    let Some(section) = root.section("push") else { return Ok(Some(PushSettings::default())) };
    let is_on = |name| section.switch(name).unwrap_or(false);
    let ports: Vec<NonZero<u16>> = all(section, "ports", "a port")?;
    let ports: Vec<u16> = ports.into_iter().map(NonZero::get).collect();
    let targets = PushTargets {
        allow: all::<HostRule>(section, "allow", "")?,
        deny: all::<HostRule>(section, "deny", "")?,
        only_allowed: is_on("only_allowed"),
        plain_http: is_on("plain_http"),
        ports: if ports.is_empty() { PortRule::Usual } else { PortRule::Only(ports) },
        translators: all(section, "translators", "a network such as 2001:db8::/96")?,
    };
    let settings = PushSettings {
        targets,
        anonymous: is_on("anonymous"),
        challenge: match section.switch("challenge") {
            Some(true) => PushChallenge::Always,
            Some(false) => PushChallenge::Never,
            None => PushChallenge::Auto,
        },
        filter: events(section)?.coalesced(is_on("coalesce")),
        ..PushSettings::default()
    };
    Ok(section.switch("enabled").unwrap_or(true).then_some(settings))
}

/// The filter of the configured event kinds.
fn events(section: &ConfigSection) -> Result<PushFilter, Wrong> {
    let mut filter = PushFilter::ALL;
    for (index, item) in section.texts("events").unwrap_or_default().iter().enumerate() {
        let Some(kind) = PushFilter::named(&item.text) else {
            let message = format!("{:?} must be status, artifacts or final", item.text);
            return Err(section.wrong_item("events", index, message));
        };
        filter = filter.with(kind);
    }
    Ok(filter)
}

/// Parses every text of a list. `is_no` describes a valid value in the error; empty: the parser's
/// error is shown.
fn all<T: FromStr>(section: &ConfigSection, name: &str, is_no: &str) -> Result<Vec<T>, Wrong>
where
    T::Err: std::fmt::Display,
{
    let texts = section.texts(name).unwrap_or_default();
    let read = texts.iter().enumerate().map(|(index, item)| {
        item.text.parse().map_err(|error: T::Err| match is_no {
            "" => section.wrong_item(name, index, format!("{:?}: {error}", item.text)),
            is_no => section.wrong_item(name, index, format!("{:?} is not {is_no}", item.text)),
        })
    });
    read.collect()
}

/// Files of keys that sign posts.
pub fn sign_keys(root: &ConfigSection) -> Vec<PathBuf> {
    let texts = root.section("push").and_then(|push| push.strings("sign_keys"));
    texts.unwrap_or_default().into_iter().map(PathBuf::from).collect()
}
