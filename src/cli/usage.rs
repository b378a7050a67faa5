//! Errors of usage in one line, whereas an error of clap has several lines.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// An error of usage in one line.
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError(pub String);

impl UsageError {
    /// An error with its line.
    pub fn new(line: impl Into<String>) -> UsageError {
        UsageError(line.into())
    }
}

/// Converts an error of clap: text to print, or an error in one line. `suggest`: returns
/// suggestions for a wrong word.
///
/// # Errors
/// [`UsageError`].
pub fn verdict(
    error: &clap::Error,
    suggest: impl Fn(&str) -> Vec<String>,
) -> Result<String, UsageError> {
    let of = |kind| context(error, kind);
    let arg = of(ContextKind::InvalidArg).unwrap_or_default();
    let value = of(ContextKind::InvalidValue).unwrap_or_default();
    let line = match error.kind() {
        ErrorKind::DisplayHelp => return Ok(error.render().to_string()),
        ErrorKind::DisplayVersion => {
            return Ok(concat!("peregrine ", env!("CARGO_PKG_VERSION"), "\n").to_owned());
        }
        ErrorKind::UnknownArgument if arg.starts_with('-') => {
            let hint = of(ContextKind::SuggestedArg);
            let hint = hint.map_or(String::new(), |name| format!("; did you mean {name}?"));
            format!("unknown flag {}{hint}", flag_alone(&arg))
        }
        ErrorKind::UnknownArgument => format!("unexpected argument {arg:?}; see peregrine --help"),
        ErrorKind::InvalidSubcommand => {
            let word = of(ContextKind::InvalidSubcommand).unwrap_or_default();
            match suggest(&word).as_slice() {
                [] => format!("unknown command {word:?}; see peregrine --help"),
                names => format!("unknown command {word:?}; did you mean {}?", names.join(", or ")),
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("{} needs a value: {arg}", flag_alone(&arg))
        }
        ErrorKind::TooManyValues if !arg.starts_with('-') => {
            "too many arguments; quote a text that has spaces".to_owned()
        }
        ErrorKind::TooManyValues => format!("{} takes no value", flag_alone(&arg)),
        ErrorKind::MissingSubcommand => {
            let names = all(error, ContextKind::ValidSubcommand);
            let names = names.into_iter().filter(|name| name != "help").collect::<Vec<_>>();
            format!("missing subcommand; available: {}", names.join(", "))
        }
        ErrorKind::ArgumentConflict => {
            let other = of(ContextKind::PriorArg).unwrap_or_default();
            format!("{} and {} cannot be combined", flag_alone(&arg), flag_alone(&other))
        }
        ErrorKind::MissingRequiredArgument => format!("{arg} is missing"),
        ErrorKind::InvalidUtf8 => "an argument is not UTF-8".to_owned(),
        _ => first_line(&error.render().to_string()),
    };
    Err(UsageError(line))
}

/// The `--flag` in `--flag <VALUE>`.
fn flag_alone(arg: &str) -> &str {
    arg.split([' ', '=']).next().unwrap_or(arg)
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(all) => all.first().cloned(),
        ContextValue::StyledStr(text) => Some(text.to_string()),
        // Numbers and flags of clap add nothing to the name; clap may add more kinds of values.
        _ => None,
    }
}

fn all(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(all)) => all.clone(),
        _ => Vec::new(),
    }
}

/// The first line, without clap's prefix.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
