//! `config show`: the settings, and the source of each setting. The output is a valid configuration
//! with a comment after each value; secrets are omitted.

use std::{collections::HashMap, fmt::Write};

use peregrine::{agent::Profile, auth::Quota, limits::memory_bytes_default};

use super::{
    super::agents::Loaded,
    Config, ConfigOrigin, Program, Serve,
    tree::{ConfigEntry, ConfigSection, ConfigSource, ConfigValue, Key, Shape},
};

/// The text of an unset value, and its source.
type BuiltIn = (String, &'static str);

/// The settings in effect.
pub fn show(origin: &ConfigOrigin, config: &Config, agents: &[Loaded]) -> String {
    let mut shown = ShownConfig { text: String::new(), file: origin.name() };
    let serve = &config.serve;
    let mut built_in = HashMap::from([
        ("workers".to_owned(), (serve.workers.to_string(), "default")),
        ("memory".to_owned(), (memory_bytes_default(serve.workers).to_string(), "default")),
    ]);
    let defaults = peregrine::limits::Limits::default().rows();
    for ((name, value), (_, default)) in serve.setup.limits.rows().into_iter().zip(defaults) {
        let source = if value == default { "default" } else { "memory" };
        built_in.insert(format!("limits.{name}"), (value.to_string(), source));
    }
    let shares = shares(serve);
    for of in ["known", "anonymous"] {
        let rows =
            shares.iter().map(|(name, value)| (format!("quotas.{of}.{name}"), value.clone()));
        built_in.extend(rows);
    }
    if let Some(first) = agents.first() {
        let name = quoted(&first.profile.name);
        built_in.insert("default_agent".to_owned(), (name, "default"));
    }
    shown.values(&config.root, "", &built_in);
    match config.root.entry("mounts") {
        Some(ConfigEntry::Value(sourced)) => {
            for mount in &serve.setup.mounts {
                let source = shown.source(&sourced.source);
                shown.line("\n[[mounts]]");
                shown.row("path", &quoted(&mount.path), &source);
                shown.row("dialect", &quoted(&mount.dialect), &source);
                if let Some(agent) = &mount.agent {
                    shown.row("agent", &quoted(agent), &source);
                }
            }
        }
        _ => shown.tables("mounts", config.root.sections("mounts")),
    }
    shown.inner_tables(config.root.section("auth"), "auth", &HashMap::new());
    shown.inner_tables(config.root.section("quotas"), "quotas", &shares);
    for (at, loaded) in agents.iter().enumerate() {
        let name = &loaded.profile.name;
        let own = config.root.named("agents").iter().find(|(other, _)| other == name);
        shown.line(&format!("\n[agents.{}]", key_name(name)));
        let built_in = profile(&loaded.profile);
        match own {
            Some((_, section)) => shown.agent(name, section, &built_in),
            None => {
                let spec = serve.agents.get(at);
                let source = if spec.is_some() { "flag --agent" } else { "default" };
                match spec.map(|spec| &spec.program) {
                    Some(Program::Script(file)) => {
                        shown.row("script", &quoted(&file.display().to_string()), source);
                    }
                    Some(Program::Remote(remote)) => {
                        shown.row("upstream.url", &quoted(&remote.url), source);
                    }
                    Some(Program::Function(function)) => {
                        shown.row("kind", "\"http\"", source);
                        shown.row("upstream.url", &quoted(&function.url), source);
                    }
                    Some(Program::Process(process)) => {
                        shown.row("command", &quoted(&process.command), source);
                    }
                    Some(Program::Echo) | None => shown.row("kind", "\"echo\"", source),
                }
                for (name, (value, source)) in &built_in {
                    shown.row(name, value, source);
                }
            }
        }
    }
    shown.text
}

/// The default quota of each caller: with authentication, each caller has a share.
fn shares(serve: &Serve) -> HashMap<String, BuiltIn> {
    let has_client_ca = serve.tls.as_ref().is_some_and(|files| files.client_ca.is_some());
    if serve.auth.is_none() && (!has_client_ca || serve.anonymous) {
        return HashMap::new();
    }
    let share = Quota::share_of(&serve.setup.limits);
    let all = [
        ("streams", share.streams, 1),
        ("running_tasks", share.running_tasks, 1),
        ("running_bytes", share.running_kib, 1024),
        ("waiting_calls", share.waiting_calls, 1),
    ];
    let total = |most: Option<u32>, unit: u64| u64::from(most.unwrap_or_default()) * unit;
    let built_in = |most, unit| (total(most, unit).to_string(), "limits");
    all.into_iter().map(|(name, most, unit)| (name.to_owned(), built_in(most, unit))).collect()
}

/// Members of an agent's card that the configuration does not set.
fn profile(profile: &Profile) -> Vec<(&'static str, BuiltIn)> {
    let list = |items: &[String]| array(items.iter().map(String::as_str));
    vec![
        ("description", (quoted(&profile.description), "agent")),
        ("version", (quoted(&profile.version), "agent")),
        ("input_modes", (list(&profile.input_modes), "agent")),
        ("output_modes", (list(&profile.output_modes), "agent")),
        ("streaming", (profile.streaming.to_string(), "agent")),
    ]
}

struct ShownConfig {
    text: String,
    file: String,
}

impl ShownConfig {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn row(&mut self, name: &str, value: &str, source: &str) {
        // Writing to a String never fails.
        let _ = writeln!(self.text, "{name} = {value}  # {source}");
    }

    fn source(&self, source: &ConfigSource) -> String {
        match source {
            ConfigSource::File(line) => format!("{}:{line}", self.file),
            ConfigSource::Variable(name) => format!("environment {name}"),
            ConfigSource::Flag(name) => format!("flag --{name}"),
        }
    }

    /// The values of a section and of its inner sections; `path` is the prefix of their names.
    fn values(&mut self, section: &ConfigSection, path: &str, built_in: &HashMap<String, BuiltIn>) {
        for (key, entry) in section.keys.iter().zip(&section.entries) {
            let name = format!("{path}{}", key.name);
            match entry {
                Some(ConfigEntry::Section(inner)) => {
                    self.values(inner, &format!("{name}."), built_in)
                }
                Some(ConfigEntry::Value(_)) if is_tables(key) => {}
                Some(ConfigEntry::Value(sourced)) => {
                    let source = self.source(&sourced.source);
                    self.value(key, &name, &sourced.value, &source);
                }
                Some(ConfigEntry::Sections(_) | ConfigEntry::Named(_)) => {}
                None if is_tables(key) => {}
                None => match (built_in.get(&name), key.default) {
                    (Some((value, source)), _) => self.row(&name, value, source),
                    (None, "") => self.line(&format!("# {name} is not set")),
                    (None, default) => self.row(&name, default, "default"),
                },
            }
        }
    }

    /// The tables of the sections that may occur several times.
    fn inner_tables(
        &mut self,
        section: Option<&ConfigSection>,
        path: &str,
        built_in: &HashMap<String, BuiltIn>,
    ) {
        let Some(section) = section else { return };
        for (key, entry) in section.keys.iter().zip(&section.entries) {
            let name = format!("{path}.{}", key.name);
            match entry {
                Some(ConfigEntry::Section(inner)) => {
                    self.inner_tables(Some(inner), &name, built_in);
                }
                Some(ConfigEntry::Sections(all)) => self.tables(&name, all),
                Some(ConfigEntry::Named(all)) => {
                    for (own, inner) in all {
                        self.line(&format!("\n[{name}.{}]", key_name(own)));
                        self.values(inner, "", built_in);
                    }
                }
                Some(ConfigEntry::Value(_)) | None => {}
            }
        }
    }

    fn value(&mut self, key: &Key, name: &str, value: &ConfigValue, source: &str) {
        if key.is_secret {
            return self.line(&format!("# {name} is set and not shown  # {source}"));
        }
        let text = match value {
            ConfigValue::Switch(is_on) => is_on.to_string(),
            ConfigValue::Whole(number) => number.to_string(),
            ConfigValue::Text(text) => match key.shape {
                Shape::Measure(_) if text.bytes().all(|b| b.is_ascii_digit()) => text.clone(),
                _ => quoted(text),
            },
            ConfigValue::Path(path) => quoted(&path.display().to_string()),
            ConfigValue::Texts(items) => array(items.iter().map(|item| item.text.as_str())),
        };
        self.row(name, &text, source);
    }

    /// The tables of several sections with one name.
    fn tables(&mut self, path: &str, sections: &[ConfigSection]) {
        for section in sections {
            self.line(&format!("\n[[{path}]]"));
            self.values(section, "", &HashMap::new());
        }
    }

    fn agent(&mut self, name: &str, section: &ConfigSection, built_in: &[(&'static str, BuiltIn)]) {
        let built_in = built_in.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        self.values(section, "", &built_in.collect());
        let path = format!("agents.{}", key_name(name));
        self.tables(&format!("{path}.skills"), section.sections("skills"));
        self.tables(&format!("{path}.extensions"), section.sections("extensions"));
    }
}

fn is_tables(key: &Key) -> bool {
    matches!(key.shape, Shape::Sections(_) | Shape::Named(_))
}

fn array<'a>(items: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", items.map(quoted).collect::<Vec<_>>().join(", "))
}

/// A name as a key of TOML, quoted if it has a dot.
fn key_name(name: &str) -> String {
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

/// A basic string of TOML, with `$$` for a dollar.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '$' => quoted.push_str("$$"),
            '\n' => quoted.push_str("\\n"),
            letter if letter.is_control() => {
                // Writing to a String never fails.
                let _ = write!(quoted, "\\u{:04X}", letter as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::{
        super::tree::{SourcedValue, key},
        *,
    };

    #[test]
    fn config_show_hides_secrets_and_quotes_values() {
        const KEYS: &[Key] = &[
            Key { is_secret: true, ..key("token", Shape::Text, "", "") },
            Key { is_secret: true, ..key("keys", Shape::Texts, "", "") },
            key("name", Shape::Text, "", ""),
            key("other", Shape::Text, "\"x\"", ""),
        ];
        let mut section = ConfigSection::new(KEYS, "auth.".to_owned(), None);
        let mut set = |name: &str, value: ConfigValue, source: ConfigSource| {
            section.set(name, ConfigEntry::Value(SourcedValue { value, source }));
        };
        let variable = ConfigSource::Variable("PEREGRINE_AUTH_TOKEN".to_owned());
        set("token", ConfigValue::Text("hidden-1".to_owned()), variable);
        set("keys", ConfigValue::Texts(vec!["hidden-2".into()]), ConfigSource::File(3));
        set("name", ConfigValue::Text("a \"$\\\n\u{1}".to_owned()), ConfigSource::Flag("name"));
        let mut shown = ShownConfig { text: String::new(), file: "p.toml".to_owned() };
        shown.values(&section, "auth.", &HashMap::new());
        let lines: Vec<&str> = shown.text.lines().collect();
        assert_eq!(
            lines,
            [
                "# auth.token is set and not shown  # environment PEREGRINE_AUTH_TOKEN",
                "# auth.keys is set and not shown  # p.toml:3",
                "auth.name = \"a \\\"$$\\\\\\n\\u0001\"  # flag --name",
                "auth.other = \"x\"  # default",
            ]
        );
    }
}
