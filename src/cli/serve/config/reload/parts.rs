//! The parts of a configuration that a reload changes in addition to the agents, and the detection
//! of changes in each part.

use super::{
    super::tree::{ConfigEntry, ConfigSection, Shape},
    difference::is_same,
    watch::Stamp,
};

/// The live sections, and the words for them in messages.
const PARTS: [(&str, &str); 5] = [
    ("auth", "callers"),
    ("quotas", "quotas"),
    ("logs", "logs"),
    ("tls", "TLS"),
    ("limits", "limits"),
];

/// The live sections of a configuration in effect.
pub struct LiveParts {
    root: ConfigSection,
    /// The stamps of the files of each part; the content of a file may change.
    files: Vec<Vec<Stamp>>,
}

impl LiveParts {
    /// The live sections of a configuration.
    pub fn of(root: &ConfigSection) -> LiveParts {
        let files = PARTS.iter().map(|(name, _)| {
            let mut stamps = Vec::new();
            root.section(name).into_iter().for_each(|section| note_files(section, &mut stamps));
            stamps
        });
        LiveParts { root: root.clone(), files: files.collect() }
    }

    /// The words of the changed parts; `can_change`: whether the server can change a part.
    pub fn changed(&self, next: &LiveParts, can_change: impl Fn(&str) -> bool) -> Vec<&str> {
        let parts = PARTS.iter().enumerate().filter(|(at, (name, _))| {
            can_change(name)
                && (self.files[*at] != next.files[*at]
                    || match (self.root.section(name), next.root.section(name)) {
                        (Some(before), Some(after)) => is_other(before, after),
                        (_, _) => false,
                    })
        });
        parts.map(|(_, (_, word))| *word).collect()
    }
}

/// Whether a live key has another value.
fn is_other(before: &ConfigSection, after: &ConfigSection) -> bool {
    let mut entries = after.keys.iter().zip(&before.entries).zip(&after.entries);
    entries.any(|((key, before), after)| match (before, after) {
        (Some(ConfigEntry::Section(before)), Some(ConfigEntry::Section(after))) => {
            before.is_set() != after.is_set() || is_other(before, after)
        }
        (before, after) => key.is_live && !is_same(before.as_ref(), after.as_ref()),
    })
}

fn note_files(section: &ConfigSection, stamps: &mut Vec<Stamp>) {
    for (key, entry) in section.keys.iter().zip(&section.entries) {
        match entry {
            Some(ConfigEntry::Value(_)) if matches!(key.shape, Shape::Path) => {
                stamps.extend(section.path(key.name).map(|file| Stamp::of_file(&file)));
            }
            Some(ConfigEntry::Value(_)) | None => {}
            Some(ConfigEntry::Section(inner)) => note_files(inner, stamps),
            Some(ConfigEntry::Sections(all)) => all.iter().for_each(|one| note_files(one, stamps)),
            Some(ConfigEntry::Named(all)) => {
                all.iter().for_each(|(_, one)| note_files(one, stamps));
            }
        }
    }
}

/// A list in words, such as `callers, quotas and logs`.
pub fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{
        super::super::{
            sections,
            tree::{self, Variables},
        },
        *,
    };

    fn parts(text: &str, folder: &Path) -> LiveParts {
        let root = tree::read(text, sections::KEYS, folder, &Variables::default()).unwrap();
        LiveParts::of(&root)
    }

    #[test]
    fn changed_config_parts_are_listed() {
        let (folder, any) = (Path::new("none"), |_: &str| true);
        let key = "[[auth.api_keys]]\nname = \"a\"\nkey = \"sixteen-bytes-ok\"\n";
        let one = parts(&format!("workers = 1\n{key}"), folder);
        for (text, expected) in [
            (format!("\n\nworkers = 2\n{key}"), ""),
            (format!("{key}tenants = [\"x\"]\n"), "callers"),
            (format!("{key}[auth.certificates]\n"), "callers"),
            (format!("{key}[auth]\nask_scopes = true\n"), ""),
            (format!("{key}[quotas.named.small]\nstreams = 1\n"), "quotas"),
            (format!("{key}[logs]\naccess = 1\n[limits]\ntasks_max = 7\n"), "logs"),
            (format!("{key}[limits]\ndrain_ms = 7\n"), "limits"),
            (
                "[quotas.known]\nstreams = 1\n[logs]\naccess = 1\n".to_owned(),
                "callers, quotas and logs",
            ),
        ] {
            assert_eq!(list(&one.changed(&parts(&text, folder), any)), expected, "{text}");
        }
        let next = parts("", folder);
        assert!(one.changed(&next, |name| name != "auth").is_empty());
    }

    #[test]
    fn changed_certificate_file_is_reported_as_changed_tls() {
        let folder = std::env::temp_dir().join(format!("peregrine-parts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let text = "[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
        let write = |content: &str| fs::write(folder.join("cert.pem"), content).unwrap();
        write("one");
        let before = parts(text, &folder);
        assert!(before.changed(&parts(text, &folder), |_| true).is_empty());
        write("another");
        assert_eq!(before.changed(&parts(text, &folder), |_| true), ["TLS"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
