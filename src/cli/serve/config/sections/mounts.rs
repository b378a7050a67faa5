//! `[[mounts]]`: dialects at separate paths.

use peregrine::engine::{BuildError, Mount};

use super::super::tree::{ConfigEntry, ConfigSection, Key, Shape, Wrong, key};

const KEYS: &[Key] = &[
    key("path", Shape::Text, "", "Absolute path; / for the root"),
    key("dialect", Shape::Text, "", "Name of the dialect, see docs/dialects.md"),
    key("agent", Shape::Text, "", "Name of the agent; default: the default agent"),
];

/// The keys of the section.
pub fn keys() -> &'static [Key] {
    KEYS
}

/// The mounts; the engine checks whether the names exist. A flag has the form
/// `PATH=DIALECT[:AGENT]`.
///
/// # Errors
/// [`Wrong`].
pub fn read(root: &ConfigSection) -> Result<Vec<Mount>, Wrong> {
    let of_flags = root.texts("mounts").unwrap_or_default().iter().enumerate();
    let of_flags = of_flags.map(|(index, item)| {
        let text = &item.text;
        let wrong =
            || root.wrong_item("mounts", index, format!("{text:?} is not PATH=DIALECT[:AGENT]"));
        let (path, dialect) = text.split_once('=').ok_or_else(wrong)?;
        let (dialect, agent) = match dialect.split_once(':') {
            Some((dialect, agent)) => (dialect, Some(agent.to_owned())),
            None => (dialect, None),
        };
        Ok(Mount { path: path.to_owned(), dialect: dialect.to_owned(), agent })
    });
    let of_file = root.sections("mounts").iter().map(|mount| {
        let text = |name| mount.text(name).map(str::to_owned);
        let missing = |name| mount.wrong(name, "is missing");
        Ok(Mount {
            path: text("path").ok_or_else(|| missing("path"))?,
            dialect: text("dialect").ok_or_else(|| missing("dialect"))?,
            agent: text("agent"),
        })
    });
    of_flags.chain(of_file).collect()
}

/// The position of the mount with this text under a key. Of several mounts, the last one is the
/// duplicate.
pub fn blame(root: &ConfigSection, name: &str, text: &str, error: &BuildError) -> Option<Wrong> {
    if let Some(ConfigEntry::Value(_)) = root.entry("mounts") {
        return Some(root.wrong("mounts", error.to_string()));
    }
    let has = |mount: &&ConfigSection| {
        mount.text(name).is_some_and(|own| own.trim_end_matches('/') == text.trim_end_matches('/'))
    };
    let mount = root.sections("mounts").iter().rfind(has)?;
    Some(mount.wrong(name, error.to_string()))
}
