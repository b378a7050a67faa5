//! `config show`: the settings, the source of each, and the stored tokens and cards of the user
//! (the command line's specification, §8.3).

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use serde::{Deserialize, de::IgnoredAny};

use serde_json::{Value, json};

use super::{super::text::one_line, SETTINGS, SettingSource, Settings, variable};
use super::{OutputFormat, Setting};

/// The mask of a secret.
const MASK: &str = "***";

/// The settings with their sources, in the given format; secrets are masked.
pub fn show(settings: &Settings, format: OutputFormat) -> String {
    let rows = SETTINGS.iter().map(|setting| (setting, shown(settings, setting)));
    match format {
        OutputFormat::Text => {
            let mut text = String::new();
            for (setting, (values, source)) in rows {
                let value = match values.is_empty() {
                    true => "-".to_owned(),
                    false => one_line(&values.join(", ")),
                };
                // Writing to a String never fails.
                let _ = writeln!(text, "{}: {value} ({source})", setting.name);
            }
            for (name, items, path) in stored(settings) {
                let items = if items.is_empty() { "-".to_owned() } else { items.join(", ") };
                let _ = writeln!(text, "{name}: {} ({})", one_line(&items), one_line(&path));
            }
            text
        }
        OutputFormat::Json => {
            let row = |(setting, (values, source)): (&Setting, (Vec<String>, String))| {
                let value = match setting.kind.separator() {
                    Some(_) => json!(values),
                    None => values.last().map_or(Value::Null, |value| json!(value)),
                };
                // The command line's specification, §7.2: `stream` is only a flag.
                let variable = (setting.name != "stream").then(|| variable(setting));
                let content = json!({"value": value, "source": source, "variable": variable});
                (setting.name.to_owned(), content)
            };
            let mut rows: serde_json::Map<String, Value> = rows.map(row).collect();
            for (name, items, path) in stored(settings) {
                let content = json!({"value": items, "source": path, "variable": null});
                rows.insert(name.to_owned(), content);
            }
            format!("{}\n", Value::Object(rows))
        }
    }
}

/// The stored tokens and cards, and their paths.
fn stored(settings: &Settings) -> Vec<(&'static str, Vec<String>, String)> {
    #[derive(Deserialize)]
    struct CardFile {
        url: String,
    }
    let Some(folder) = &settings.folder else { return Vec::new() };
    let (tokens, cards) = (folder.join("tokens.json"), folder.join("cards"));
    let read = |path: &Path| fs::read(path).unwrap_or_default();
    let agents: BTreeMap<String, IgnoredAny> =
        serde_json::from_slice(&read(&tokens)).unwrap_or_default();
    let files = fs::read_dir(&cards).into_iter().flatten().flatten();
    let urls =
        files.filter_map(|file| serde_json::from_slice::<CardFile>(&read(&file.path())).ok());
    // The query of a URL may be a secret.
    let bare = |url: String| url.split('?').next().unwrap_or_default().to_owned();
    let mut urls: Vec<String> = urls.map(|card| bare(card.url)).collect();
    urls.sort_unstable();
    let shown_path = |path: &Path| path.display().to_string();
    vec![
        ("kept-tokens", agents.into_keys().collect(), shown_path(&tokens)),
        ("kept-cards", urls, shown_path(&cards)),
    ]
}

fn shown(settings: &Settings, setting: &Setting) -> (Vec<String>, String) {
    let source = match settings.source(setting.name) {
        SettingSource::BuiltIn => "built-in".to_owned(),
        SettingSource::Global(path) | SettingSource::Local(path) => path.display().to_string(),
        SettingSource::Environment => format!("environment {}", variable(setting)),
        SettingSource::Flag => format!("flag --{}", setting.name),
    };
    let mask = |value: &str| match value.split_once(':') {
        // The name of a service parameter is not secret.
        Some((key, _)) if setting.name == "svc-param" => format!("{key}:{MASK}"),
        _ if setting.kind.is_secret() => MASK.to_owned(),
        _ => value.to_owned(),
    };
    (settings.list(setting.name).map(mask).collect(), source)
}
