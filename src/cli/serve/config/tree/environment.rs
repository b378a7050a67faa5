//! `PEREGRINE_*`: a variable for each value of a configuration.
//!
//! Invariant: the variable of `limits.tasks_max` is `PEREGRINE_LIMITS_TASKS_MAX`: the path in
//! capitals, with `_` for every character that is not a letter or digit. An unknown variable is an
//! error if it resembles one of these or begins with the name of a section; any other variable
//! belongs to another program.

use super::{
    hint,
    section::{ConfigEntry, ConfigSection, ConfigSource, SourcedValue, Wrong},
    shape::Shape,
};

/// The prefix of the variables.
const PREFIX: &str = "PEREGRINE_";
/// The variable of `--config`.
const CONFIG: &str = "CONFIG";

/// The variables of the environment.
#[derive(Clone, Debug, Default)]
pub struct Variables(Vec<(String, String)>);

impl Variables {
    /// The environment with these variables.
    pub fn new<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Variables {
        Variables(
            all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        )
    }

    /// The value of a variable.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(other, _)| other == name)?;
        Some(&found.1)
    }

    /// The path of the configuration file in `PEREGRINE_CONFIG`.
    pub fn config(&self) -> Option<&str> {
        self.value("PEREGRINE_CONFIG").filter(|path| !path.is_empty())
    }
}

/// The variable of a path such as `limits.tasks_max`, without the prefix.
fn capitals(path: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    path.chars().map(letter).collect()
}

/// Sets the values of the variables; an empty variable is ignored.
///
/// # Errors
/// [`Wrong`]: a variable resembles a known variable, means two keys, or has a value that does not
/// fit the shape.
pub fn with_variables(root: &mut ConfigSection, variables: &Variables) -> Result<(), Wrong> {
    let mut all = Vec::new();
    value_paths(root, &mut Vec::new(), &mut all);
    for (name, value) in &variables.0 {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if rest == CONFIG {
            continue;
        }
        let source = ConfigSource::Variable(name.clone());
        let wrong = |message| Wrong { source: source.clone(), key: String::new(), message };
        let mut found = all.iter().filter(|(other, _)| other == rest);
        let path = match (found.next(), found.next()) {
            (Some((_, path)), None) => path,
            (Some(_), Some(_)) => {
                return Err(wrong("it is the variable of two keys; set them in the file".into()));
            }
            (None, _) if is_of_service(rest) || !is_near(root, rest, &all) => continue,
            (None, _) => {
                let names = all.iter().map(|(name, _)| name.as_str());
                // The prefix is common to all variables.
                let hint = hint(rest, names).replace("mean ", "mean PEREGRINE_");
                return Err(wrong(format!("unknown key{hint}")));
            }
        };
        if value.is_empty() {
            continue;
        }
        set(root, path, value, &source).map_err(wrong)?;
    }
    Ok(())
}

/// Whether Kubernetes sets the variable in every container for a service with a name that begins
/// with peregrine: `SERVICE_HOST`, `SERVICE_PORT…`, `PORT`, `PORT_3000_TCP…`.
fn is_of_service(rest: &str) -> bool {
    let rest = format!("_{rest}");
    rest.contains("_SERVICE_HOST")
        || rest.contains("_SERVICE_PORT")
        || rest.ends_with("_PORT")
        || rest.contains("_PORT_")
}

/// Whether the name begins with the name of a section or resembles the name of a value.
fn is_near(root: &ConfigSection, rest: &str, all: &[(String, Vec<usize>)]) -> bool {
    let is_section = |shape: &Shape| matches!(shape, Shape::Section(_) | Shape::Named(_));
    let mut sections = root.keys.iter().filter(|key| is_section(&key.shape));
    sections.any(|key| rest.starts_with(&format!("{}_", capitals(key.name))))
        || !hint(rest, all.iter().map(|(name, _)| name.as_str())).is_empty()
}

/// The names of all values that can be set, and the path to each value: indexes of keys. For named
/// sections, the index of the section follows the index of the key.
fn value_paths(
    section: &ConfigSection,
    path: &mut Vec<usize>,
    all: &mut Vec<(String, Vec<usize>)>,
) {
    for (index, key) in section.keys.iter().enumerate() {
        path.push(index);
        match (&key.shape, &section.entries[index]) {
            (_, Some(ConfigEntry::Section(inner))) => value_paths(inner, path, all),
            (_, Some(ConfigEntry::Named(inner))) => {
                for (at, (_, inner)) in inner.iter().enumerate() {
                    path.push(at);
                    value_paths(inner, path, all);
                    path.pop();
                }
            }
            (Shape::Section(_) | Shape::Sections(_) | Shape::Named(_), _) => {}
            (_, _) => all.push((capitals(&format!("{}{}", section.path, key.name)), path.clone())),
        }
        path.pop();
    }
}

/// Sets the value at the end of a path.
fn set(
    section: &mut ConfigSection,
    path: &[usize],
    text: &str,
    source: &ConfigSource,
) -> Result<(), String> {
    let Some((index, rest)) = path.split_first() else { return Ok(()) };
    section.source.get_or_insert_with(|| source.clone());
    let keys = section.keys;
    match section.entries.get_mut(*index) {
        Some(Some(ConfigEntry::Section(inner))) => set(inner, rest, text, source),
        Some(Some(ConfigEntry::Named(all))) => {
            let Some((at, rest)) = rest.split_first() else { return Ok(()) };
            all.get_mut(*at).map_or(Ok(()), |(_, inner)| set(inner, rest, text, source))
        }
        Some(slot) => {
            let value = keys[*index].shape.read(text)?;
            *slot = Some(ConfigEntry::Value(SourcedValue { value, source: source.clone() }));
            Ok(())
        }
        None => Ok(()),
    }
}
