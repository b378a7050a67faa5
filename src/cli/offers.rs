//! The values that a completion script offers.
//!
//! Invariant: offers do not restrict the values. Synonyms of a value are accepted as well, and the
//! code that reads the setting, which knows its source, reports an invalid value.

use std::ffi::OsStr;

use clap::{
    Arg, Command, ValueHint,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

/// Accepts any text, and offers some values.
#[derive(Clone)]
struct OfferedValues(Vec<&'static str>);

impl TypedValueParser for OfferedValues {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|value| PossibleValue::new(*value))))
    }
}

/// Offers values by the name of a value: its words, such as `text|json`, or files or folders. For
/// any other name it offers nothing, since a shell would offer files.
pub fn offering(arg: Arg, value_name: &'static str) -> Arg {
    let words = match value_name {
        "BINDING" => "jsonrpc|http+json|grpc|websocket",
        "VERSION" => "1.0|0.3|0.2|0.1",
        other => other,
    };
    if words.contains('|') && !words.contains(char::is_uppercase) {
        let offered = OfferedValues(words.split('|').collect());
        return arg.value_parser(offered).hide_possible_values(true);
    }
    arg.value_hint(match words {
        "DIR" => ValueHint::DirPath,
        // `--agent-card` accepts a file.
        "FILE" | "REF" | "PATH|URL" | "PATH|-" => ValueHint::FilePath,
        _ => ValueHint::Other,
    })
}
