//! Reads the text of a file into a section.
//!
//! Invariant: the first error in the file is reported with its line. The TOML parser bounds the
//! nesting of values, and the tables of keys bound the nesting of sections.

use std::path::Path;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use peregrine::model::is_agent_name;

use super::{
    environment::Variables,
    expand::Expander,
    hint,
    section::{ConfigEntry, ConfigSection, ConfigSource, ConfigValue, Item, SourcedValue, Wrong},
    shape::{Key, Shape, choice},
};

/// Reads the text of a file; its paths are relative to `folder`.
///
/// # Errors
/// [`Wrong`]: invalid TOML, an unknown key, or a value that does not fit the shape.
pub fn read(
    text: &str,
    keys: &'static [Key],
    folder: &Path,
    variables: &Variables,
) -> Result<ConfigSection, Wrong> {
    let lines = Lines::of(text);
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.number(span.start));
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        Wrong { source: ConfigSource::File(line), key: String::new(), message }
    })?;
    let mut reader = FileReader { lines, folder, root: keys, expander: Expander::new(variables) };
    let mut root = ConfigSection::new(keys, String::new(), Some(ConfigSource::File(1)));
    reader.fill(&mut root, table.get_ref())?;
    Ok(root)
}

/// The offsets of the line ends of a text.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines(ends.map(|(offset, _)| offset).collect())
    }

    /// The number of the line with the byte at `offset`, from 1.
    fn number(&self, offset: usize) -> usize {
        1 + self.0.partition_point(|end| *end < offset)
    }
}

struct FileReader<'t> {
    lines: Lines,
    folder: &'t Path,
    root: &'static [Key],
    expander: Expander<'t>,
}

/// A value, its position in the text, and its key.
struct At<'v, 't> {
    value: &'v Spanned<DeValue<'t>>,
    line: usize,
    path: String,
}

impl At<'_, '_> {
    fn wrong(&self, message: impl Into<String>) -> Wrong {
        Wrong {
            source: ConfigSource::File(self.line),
            key: self.path.clone(),
            message: message.into(),
        }
    }
}

/// Whether the TOML type of a value fits a shape.
fn may_take(shape: &Shape, value: &DeValue<'_>) -> bool {
    match (shape, value) {
        (Shape::Switch | Shape::SwitchOr(_), DeValue::Boolean(_))
        | (Shape::Whole { .. } | Shape::Measure(_), DeValue::Integer(_))
        | (
            Shape::Text
            | Shape::Path
            | Shape::Choice(_)
            | Shape::Measure(_)
            | Shape::SwitchOr(_)
            | Shape::TextsOr(_),
            DeValue::String(_),
        )
        | (Shape::Section(_) | Shape::Named(_), DeValue::Table(_)) => true,
        (
            Shape::Texts | Shape::Paths | Shape::Numbers | Shape::TextsOr(_) | Shape::Sections(_),
            DeValue::Array(_),
        ) => true,
        (_, _) => false,
    }
}

/// The keys and values of a table in the order of the file, because the parser sorts them.
fn in_order<'v, 't>(table: &'v DeTable<'t>) -> Vec<(&'v str, usize, &'v Spanned<DeValue<'t>>)> {
    let pairs = table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span().start, value));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_by_key(|(_, start, _)| *start);
    pairs
}

impl FileReader<'_> {
    fn fill(&mut self, section: &mut ConfigSection, table: &DeTable<'_>) -> Result<(), Wrong> {
        for (name, start, value) in in_order(table) {
            let line = self.lines.number(start);
            let Some(index) = section.keys.iter().position(|key| key.name == name) else {
                return Err(self.unknown(section, name, &At { value, line, path: String::new() }));
            };
            let path = format!("{}{name}", section.path);
            let entry = self.entry(&section.keys[index], &At { value, line, path })?;
            section.entries[index] = Some(entry);
        }
        Ok(())
    }

    fn entry(&mut self, key: &Key, at: &At<'_, '_>) -> Result<ConfigEntry, Wrong> {
        match key.shape {
            Shape::Section(keys) => self.section(keys(), at).map(ConfigEntry::Section),
            Shape::Sections(keys) => {
                let DeValue::Array(tables) = at.value.get_ref() else {
                    return Err(at.wrong(format!("must be tables, each written [[{}]]", at.path)));
                };
                let tables = tables.iter().enumerate().map(|(index, value)| {
                    let path = format!("{}.{}", at.path, index + 1);
                    let line = self.lines.number(value.span().start);
                    self.section(keys(), &At { value, line, path })
                });
                tables.collect::<Result<Vec<_>, _>>().map(ConfigEntry::Sections)
            }
            Shape::Named(keys) => self.named(keys(), at),
            _ => {
                let value = self.value(&key.shape, at)?;
                Ok(ConfigEntry::Value(SourcedValue { value, source: ConfigSource::File(at.line) }))
            }
        }
    }

    fn section(&mut self, keys: &'static [Key], at: &At<'_, '_>) -> Result<ConfigSection, Wrong> {
        let DeValue::Table(table) = at.value.get_ref() else {
            return Err(at.wrong(format!("must be a table, written [{}]", at.path)));
        };
        let source = Some(ConfigSource::File(at.line));
        let mut section = ConfigSection::new(keys, format!("{}.", at.path), source);
        self.fill(&mut section, table)?;
        Ok(section)
    }

    fn named(&mut self, keys: &'static [Key], at: &At<'_, '_>) -> Result<ConfigEntry, Wrong> {
        let DeValue::Table(table) = at.value.get_ref() else {
            return Err(at.wrong(format!("must be tables, each written [{}.NAME]", at.path)));
        };
        let mut all = Vec::new();
        for (name, start, value) in in_order(table) {
            let line = self.lines.number(start);
            if !is_agent_name(name) {
                let made_of = "may only have letters, digits, '-', '_', '.'";
                let path = at.path.clone();
                return Err(At { value, line, path }.wrong(format!("the name {name:?} {made_of}")));
            }
            let at = At { value, line, path: format!("{}.{name}", at.path) };
            all.push((name.to_owned(), self.section(keys, &at)?));
        }
        Ok(ConfigEntry::Named(all))
    }

    fn value(&mut self, shape: &Shape, at: &At<'_, '_>) -> Result<ConfigValue, Wrong> {
        match (shape, at.value.get_ref()) {
            (Shape::Switch, DeValue::Boolean(is_on)) => Ok(ConfigValue::Switch(*is_on)),
            (Shape::Switch, _) => Err(at.wrong("must be true or false")),
            (Shape::SwitchOr(_), DeValue::Boolean(is_on)) => Ok(ConfigValue::Switch(*is_on)),
            (Shape::SwitchOr(_), DeValue::String(_)) => {
                let text = self.text(at)?;
                shape.read(&text).map_err(|message| at.wrong(message))
            }
            (Shape::SwitchOr(word), _) => Err(at.wrong(format!("must be true, false or {word:?}"))),
            (Shape::Whole { .. } | Shape::Measure(_), DeValue::Integer(number)) => {
                let digits = number.as_str().replace('_', "");
                let whole = u64::from_str_radix(&digits, number.radix()).ok();
                match (shape, whole) {
                    (Shape::Whole { min, max }, Some(whole)) if (*min..=*max).contains(&whole) => {
                        Ok(ConfigValue::Whole(whole))
                    }
                    (Shape::Whole { min, max }, _) => {
                        Err(at.wrong(format!("{digits} is not a number from {min} to {max}")))
                    }
                    (_, Some(whole)) => Ok(ConfigValue::Text(whole.to_string())),
                    (_, None) => Ok(ConfigValue::Text(digits)),
                }
            }
            (Shape::Whole { min, max }, _) => {
                Err(at.wrong(format!("must be a whole number from {min} to {max}")))
            }
            (Shape::Measure(_), DeValue::String(_)) => self.text(at).map(ConfigValue::Text),
            (Shape::Measure(unit), _) => Err(at.wrong(format!("must be {}", unit.examples()))),
            (Shape::Choice(words), _) => {
                let text = self.text(at)?;
                choice(words, &text).map_err(|message| at.wrong(message))
            }
            (Shape::Path, _) => Ok(ConfigValue::Path(self.folder.join(self.text(at)?))),
            (Shape::TextsOr(word), DeValue::String(_)) => match self.text(at)? {
                text if text == *word => Ok(ConfigValue::Text(text)),
                _ => Err(at.wrong(format!("must be {word:?} or an array of strings"))),
            },
            (Shape::Paths, _) => {
                let mut items = self.items(at, false, "must be an array of strings")?;
                for item in &mut items {
                    item.text = self.folder.join(&item.text).display().to_string();
                }
                Ok(ConfigValue::Texts(items))
            }
            (Shape::Texts | Shape::TextsOr(_), _) => {
                self.items(at, false, "must be an array of strings").map(ConfigValue::Texts)
            }
            (Shape::Numbers, _) => {
                self.items(at, true, "must be an array of whole numbers").map(ConfigValue::Texts)
            }
            (_, _) => self.text(at).map(ConfigValue::Text),
        }
    }

    fn text(&mut self, at: &At<'_, '_>) -> Result<String, Wrong> {
        let DeValue::String(text) = at.value.get_ref() else {
            return Err(at.wrong("must be a string"));
        };
        self.expander.expand(text).map_err(|message| at.wrong(message))
    }

    /// The items of an array: strings, and numbers if they are allowed.
    fn items(
        &mut self,
        at: &At<'_, '_>,
        may_be_numbers: bool,
        must: &str,
    ) -> Result<Vec<Item>, Wrong> {
        let DeValue::Array(values) = at.value.get_ref() else { return Err(at.wrong(must)) };
        let items = values.iter().map(|value| {
            let line = self.lines.number(value.span().start);
            let at = At { value, line, path: at.path.clone() };
            let text = match value.get_ref() {
                DeValue::Integer(number) if may_be_numbers => number.as_str().replace('_', ""),
                DeValue::String(_) => self.text(&at)?,
                _ => return Err(at.wrong(must)),
            };
            Ok(Item { text, line: Some(line) })
        });
        items.collect()
    }

    /// The error for an unknown key. Another section is suggested only if it accepts the value.
    fn unknown(&self, section: &ConfigSection, name: &str, at: &At<'_, '_>) -> Wrong {
        let value = at.value.get_ref();
        let accepts = |keys: &[Key], name: &str| {
            keys.iter().any(|key| key.name == name && may_take(&key.shape, value))
        };
        let sections = |keys: &'static [Key], path: &str| -> Vec<(String, &'static [Key])> {
            let inner = keys.iter().filter_map(|key| match key.shape {
                Shape::Section(keys) => Some((format!("{path}{}", key.name), keys())),
                _ => None,
            });
            inner.collect()
        };
        // `exec` is a kind of agent, as in `--agent exec:COMMAND`.
        let near = match name {
            "exec" if accepts(section.keys, "command") => "; did you mean command?".to_owned(),
            _ => hint(name, section.keys.iter().map(|key| key.name)),
        };
        let is_root = section.path.is_empty();
        // Inner sections first, since they are the most likely.
        let own = sections(section.keys, &section.path);
        let others = if is_root { Vec::new() } else { sections(self.root, "") };
        let is_of = |all: &[(String, &'static [Key])]| -> Vec<String> {
            let having = all.iter().filter(|(_, keys)| accepts(keys, name));
            having.map(|(path, _)| format!("[{path}]")).collect()
        };
        let joined = own.iter().chain(&others).find_map(|(path, keys)| {
            let last = path.rsplit('.').next().unwrap_or_default();
            let key = name.strip_prefix(last)?.strip_prefix(['_', '-', '.'])?;
            accepts(keys, key).then(|| format!("; it is the key {key} of [{path}]"))
        });
        let owners = [is_of(&own), is_of(&others)].into_iter().find(|found| !found.is_empty());
        let is_value = !matches!(value, DeValue::Table(_));
        let hint = if !near.is_empty() {
            near
        } else if !is_root && is_value && accepts(self.root, name) {
            "; it belongs above the first section".to_owned()
        } else if !is_root && accepts(self.root, name) {
            format!("; it is a separate section: [{name}]")
        } else if let Some(joined) = joined {
            joined
        } else {
            owners.map_or(String::new(), |all| format!("; it belongs to {}", all.join(" or ")))
        };
        let line = at.line;
        let path = section.path.trim_end_matches('.').to_owned();
        let message = format!("unknown key {name:?}{hint}");
        Wrong { source: ConfigSource::File(line), key: path, message }
    }
}
