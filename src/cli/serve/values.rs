//! The values of flags: text in, a checked value or one line of what is wrong with it out.

use std::path::PathBuf;

use peregrine::{
    engine::{Binding, CardForm, Interface, Mount, Tenants, is_host, is_origin},
    limits::{LimitError, Limits, Unit},
    model::is_agent_name,
};

use super::{
    super::{nearest::nearest, usage::UsageError},
    args::AgentFlag,
};

/// Most threads that make sense to ask for.
const WORKERS_MAX: usize = 1024;

/// `[NAME=]KIND[:ARG]`; a `=` behind something that is no name belongs to the argument.
pub fn agent(text: &str) -> AgentFlag {
    let is_name = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !text.is_empty() && text.chars().all(plain)
    };
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) if is_name(name) => (Some(name.to_owned()), rest),
        _ => (None, text),
    };
    let (kind, arg) = match rest.split_once(':') {
        Some((kind, arg)) => (kind, Some(arg.to_owned())),
        None => (rest, None),
    };
    AgentFlag { name, kind: kind.to_owned(), arg }
}

/// An origin as browsers send it, or `*`.
///
/// # Errors
/// [`UsageError`].
pub fn ws_origin(text: String) -> Result<String, UsageError> {
    if is_origin(&text) {
        return Ok(text);
    }
    Err(UsageError(format!("--ws-origin {text:?} is neither like https://host:port nor *")))
}

/// A host without a port, or `*`.
///
/// # Errors
/// [`UsageError`].
pub fn allow_host(text: String) -> Result<String, UsageError> {
    if is_host(&text) {
        return Ok(text);
    }
    Err(UsageError(format!("--allow-host {text:?} is no name or address without a port, nor *")))
}

/// `FILE[=KID]`; the name is behind the last `=`.
pub fn card_key(text: &str) -> (PathBuf, Option<String>) {
    match text.rsplit_once('=') {
        Some((file, kid)) if !file.is_empty() => (file.into(), Some(kid.to_owned())),
        Some(_) | None => (text.into(), None),
    }
}

/// A number of threads.
///
/// # Errors
/// [`UsageError`].
pub fn workers(text: &str) -> Result<usize, UsageError> {
    let number = text.parse().ok().filter(|n| (1..=WORKERS_MAX).contains(n));
    number.ok_or_else(|| UsageError(format!("--workers {text:?} is not a number from 1 to 1024")))
}

/// `NAME=VALUE`; sets that limit and says its name.
///
/// # Errors
/// [`UsageError`].
pub fn limit(limits: &mut Limits, text: &str) -> Result<String, UsageError> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(UsageError(format!("--limit {text:?} is not NAME=VALUE")));
    };
    limits.set(name, value).map(|()| name.to_owned()).map_err(|error| match error {
        LimitError::Name => {
            let hint = nearest(name, Limits::NAMES.iter().copied());
            let hint = hint.map_or(String::new(), |name| format!("; did you mean {name}?"));
            UsageError(format!("there is no limit {name:?}{hint}"))
        }
        LimitError::Value => UsageError(format!(
            "--limit {name}: {value:?} is not a whole number above zero that fits"
        )),
        LimitError::Unit => {
            UsageError(format!("--limit {name}: {value:?} is not {}", Unit::of(name).examples()))
        }
    })
}

/// A budget of memory in bytes.
///
/// # Errors
/// [`UsageError`].
pub fn memory(text: &str) -> Result<u64, UsageError> {
    let unit = Unit::Bytes;
    unit.read(text).map_err(|_| UsageError(format!("--memory {text:?} is not {}", unit.examples())))
}

/// `PATH=DIALECT[:AGENT]`; whether the names exist is for the engine to say.
///
/// # Errors
/// [`UsageError`].
pub fn mount(text: &str) -> Result<Mount, UsageError> {
    let Some((path, dialect)) = text.split_once('=') else {
        return Err(UsageError(format!("--mount {text:?} is not PATH=DIALECT[:AGENT]")));
    };
    let (dialect, agent) = match dialect.split_once(':') {
        Some((dialect, agent)) => (dialect, Some(agent.to_owned())),
        None => (dialect, None),
    };
    Ok(Mount { path: path.to_owned(), dialect: dialect.to_owned(), agent })
}

/// `any`, or names separated by commas; whether an agent has one of them is for the engine to say.
///
/// # Errors
/// [`UsageError`].
pub fn tenants(text: &str) -> Result<Tenants, UsageError> {
    if text == "any" {
        return Ok(Tenants::Any);
    }
    match text.split(',').find(|name| !is_agent_name(name)) {
        None => Ok(Tenants::Named(text.split(',').map(str::to_owned).collect())),
        Some(name) => Err(UsageError(format!(
            "--tenants: {name:?} is neither any nor made of letters, digits, '-', '_', '.'"
        ))),
    }
}

/// The form of a card.
///
/// # Errors
/// [`UsageError`].
pub fn card(text: &str) -> Result<CardForm, UsageError> {
    match text {
        "v1" => Ok(CardForm::V1),
        "v03" => Ok(CardForm::V03),
        "hybrid" => Ok(CardForm::Hybrid),
        _ => Err(UsageError(format!("--card {text:?} is none of v1, v03, hybrid"))),
    }
}

/// `NAME[=URL]`, separated by commas.
///
/// # Errors
/// [`UsageError`].
pub fn interfaces(text: &str) -> Result<Vec<Interface>, UsageError> {
    let list = text.split(',').map(|entry| {
        let (word, url) = match entry.split_once('=') {
            Some((word, url)) => (word, Some(url.to_owned())),
            None => (entry, None),
        };
        let mut known = Binding::ALL.into_iter();
        match known.find(|binding| binding.word().eq_ignore_ascii_case(word)) {
            Some(binding) => Ok(Interface { binding, url }),
            None => {
                let words = Binding::ALL.map(Binding::word);
                let hint = match nearest(word, words.into_iter()) {
                    Some(name) => format!("did you mean {name}?"),
                    None => format!("there are {}", words.join(", ")),
                };
                Err(UsageError(format!("there is no interface {word:?}; {hint}")))
            }
        }
    });
    let list = list.collect::<Result<Vec<Interface>, UsageError>>()?;
    Interface::check(&list).map_err(|error| UsageError(error.to_string()))?;
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_an_equals_sign_is_no_name() {
        let flag = agent("script:dir/a=b.toml");
        assert_eq!((flag.name, flag.arg.as_deref()), (None, Some("dir/a=b.toml")));
    }
}
