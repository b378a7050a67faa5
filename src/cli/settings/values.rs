//! The values of settings, parsed; an error names the source of an invalid value.

use std::time::Duration;

use super::{
    super::{failure::CommandFailure, nearest::nearest},
    SETTINGS, SettingSource, Settings, variable,
};

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Labels and values, one a line.
    Text,
    /// JSON, in the types of the protocol.
    Json,
}

/// The longest time that can be set: a year.
const TIME_MS_MAX: u64 = 366 * 24 * 3_600_000;
const BINDINGS: [&str; 4] = ["jsonrpc", "http+json", "grpc", "websocket"];

impl Settings {
    /// The format of the output.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage.
    pub fn output(&self) -> Result<OutputFormat, CommandFailure> {
        match self.text("output").unwrap_or("text") {
            "text" => Ok(OutputFormat::Text),
            "json" => Ok(OutputFormat::Json),
            other => Err(self.wrong("output", other, "not text or json")),
        }
    }

    /// Whether a switch is on.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage.
    pub fn is_on(&self, name: &str) -> Result<bool, CommandFailure> {
        match self.text(name).unwrap_or("false").to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            other => Err(self.wrong(name, other, "not true or false")),
        }
    }

    /// A time: `500ms`, `2s`, `1m30s`, or a number of seconds.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage.
    pub fn time(&self, name: &str) -> Result<Option<Duration>, CommandFailure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong = || self.wrong(name, text, "not a time such as 500ms, 2s, 1m30s");
        let ms = milliseconds(text).filter(|ms| (1..=TIME_MS_MAX).contains(ms));
        Ok(Some(Duration::from_millis(ms.ok_or_else(wrong)?)))
    }

    /// The bindings that the user prefers, in order, as the words of `--interfaces`.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage.
    pub fn transports(&self) -> Result<Vec<&'static str>, CommandFailure> {
        let of = |text: &str| {
            let word = text.to_ascii_lowercase();
            let word = match word.as_str() {
                "json-rpc" => "jsonrpc",
                "rest" | "http-json" | "http_json" | "httpjson" => "http+json",
                "ws" => "websocket",
                other => other,
            };
            let found = BINDINGS.into_iter().find(|binding| *binding == word);
            found.ok_or_else(|| match nearest(word, BINDINGS.into_iter()) {
                Some(near) => {
                    self.wrong("transport", text, &format!("not a binding; did you mean {near}?"))
                }
                None => {
                    let all = format!("not one of {}", BINDINGS.join(", "));
                    self.wrong("transport", text, &all)
                }
            })
        };
        self.list("transport").map(of).collect()
    }

    /// Whether to assume that the agent supports push notifications even if its card does not
    /// declare them.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage.
    pub fn assumes_push(&self) -> Result<bool, CommandFailure> {
        match self.text("assume") {
            None | Some("") => Ok(false),
            Some("push") => Ok(true),
            Some(other) => Err(self.wrong("assume", other, "not push, the only value")),
        }
    }

    /// The service parameters.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage, which does not show the value.
    pub fn service_parameters(&self) -> Result<Vec<(&str, &str)>, CommandFailure> {
        let of = |text| {
            let pair = str::split_once(text, ':').map(|(key, value)| (key.trim(), value.trim()));
            let is_token = |key: &str| {
                let plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
                !key.is_empty() && key.bytes().all(plain)
            };
            let is_line = |value: &str| value.bytes().all(|b| (0x20..0x7f).contains(&b));
            pair.filter(|(key, value)| is_token(key) && is_line(value)).ok_or_else(|| {
                CommandFailure::usage("--svc-param must be KEY:VALUE in printable ASCII")
            })
        };
        self.list("svc-param").map(of).collect()
    }

    /// Whether the command, which waits by default, waits.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage: `--wait` and `--async` together.
    pub fn waits(&self) -> Result<bool, CommandFailure> {
        let (is_async, is_wait) = (self.is_on("async")?, self.is_on("wait")?);
        let (of_async, of_wait) = (self.source("async"), self.source("wait"));
        match (is_async, is_wait) {
            (true, true) if *of_async == SettingSource::Flag && of_async == of_wait => {
                Err(CommandFailure::usage("--wait and --async cannot be combined"))
            }
            (true, true) => Ok(of_wait > of_async),
            (true, false) => Ok(false),
            // Both settings disable waiting; a higher source wins here as well.
            (false, false) => Ok(self.text("wait").is_none() || of_async > of_wait),
            (false, true) => Ok(true),
        }
    }

    /// The failure of an invalid value, with its source.
    pub fn wrong(&self, name: &str, value: &str, what: &str) -> CommandFailure {
        CommandFailure::usage(format!("{}: {value:?} is {what}", self.label(name)))
    }

    /// The name and the source of a setting, for messages.
    pub fn label(&self, name: &str) -> String {
        let variable = SETTINGS.iter().find(|setting| setting.name == name).map(variable);
        let variable = variable.unwrap_or_default();
        match self.source(name) {
            SettingSource::Flag | SettingSource::BuiltIn => format!("--{name}"),
            SettingSource::Environment => format!("{variable} in the environment"),
            SettingSource::Local(path) | SettingSource::Global(path) => {
                format!("{variable} in {}", path.display())
            }
        }
    }
}

pub fn milliseconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000);
    }
    let (mut rest, mut sum) = (text, 0u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let factor = match &rest[..unit] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        rest = &rest[unit..];
        sum = sum.checked_add(number.checked_mul(factor)?)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_with_units() {
        for (text, ms) in [
            ("2", Some(2000)),
            ("500ms", Some(500)),
            ("1m30s", Some(90_000)),
            ("2h", Some(7_200_000)),
            ("", Some(0)),
            ("s", None),
            ("5x", None),
            ("-1s", None),
            ("1.5s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(milliseconds(text), ms, "{text}");
        }
    }
}
