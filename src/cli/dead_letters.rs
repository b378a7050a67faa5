//! `push dead`: the dead letters of a server, through its `--admin` listener.
//!
//! The server's answer is printed without control characters. Without a number or `--all` the
//! command changes nothing.

use clap::ArgMatches;
use peregrine::client::HttpMethod;
use serde_json::Value;

use super::{
    admin::{self, AdminOperation, cell, table},
    failure::CommandFailure,
    json_line::json_line,
    print,
    settings::{OutputFormat, Settings},
    text::TextOutput,
};

/// Runs the command `what`.
///
/// # Errors
/// A [`CommandFailure`].
pub fn run(
    what: &str,
    flags: &ArgMatches,
    settings: &Settings,
    format: OutputFormat,
) -> Result<(), CommandFailure> {
    let (method, path) = request(what, flags)?;
    let operation =
        AdminOperation { method, path: &path, content: b"", hint: "peregrine push dead list" };
    let answer = admin::perform(operation, flags, settings)?;
    match format {
        OutputFormat::Json => print(&json_line(answer.trim())),
        OutputFormat::Text => print(&shown(what, &admin::read(&answer)?)),
    }
    Ok(())
}

/// The request for the words.
fn request(what: &str, flags: &ArgMatches) -> Result<(HttpMethod, String), CommandFailure> {
    let is_all = flags.try_get_one("all").ok().flatten() == Some(&true);
    let number = flags.try_get_one::<String>("number").ok().flatten();
    let one = match number {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            let line = format!("{text:?} must be the number of a dead letter");
            CommandFailure::usage(line).hint("peregrine push dead list")
        })?),
    };
    let method = match what {
        "replay" => HttpMethod::Post,
        "drop" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    };
    let suffix = if what == "replay" { "/replay" } else { "" };
    match (one, is_all || what == "list") {
        (Some(number), false) => Ok((method, format!("/push/dead/{number}{suffix}"))),
        (None, true) => Ok((method, format!("/push/dead{suffix}"))),
        (Some(_), true) => {
            Err(CommandFailure::usage("a number and --all cannot be combined".to_owned()))
        }
        (None, false) => {
            let line = "missing the number of a dead letter, or --all".to_owned();
            Err(CommandFailure::usage(line).hint("peregrine push dead list"))
        }
    }
}

/// The members of a letter, and their labels.
const COLUMNS: [(&str, &str); 9] = [
    ("number", "Number"),
    ("time", "Time"),
    ("reason", "Reason"),
    ("taskId", "Task"),
    ("configId", "Push config"),
    ("sequence", "Sequence"),
    ("origin", "Origin"),
    ("replayable", "Replayable"),
    ("error", "Error"),
];

/// The answer as text.
fn shown(what: &str, answer: &Value) -> String {
    let mut output = TextOutput::new(false);
    match what {
        "list" => return table(COLUMNS, answer),
        "show" => {
            for (name, label) in COLUMNS {
                output.field(label, &cell(answer, name));
            }
        }
        _ => {
            for (name, label) in
                [("replayed", "Replayed"), ("gone", "Gone"), ("dropped", "Dropped")]
            {
                if let Some(count) = answer[name].as_u64() {
                    output.field(label, &count.to_string());
                }
            }
        }
    }
    output.text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dead_letter_table_has_no_control_characters() {
        let letter = json!({"number": 12, "time": "2026-01-31T12:00:00.000Z", "reason": "given_up",
            "taskId": "t\u{1b}[31m", "configId": "c", "sequence": 3, "origin": "https://a.example",
            "error": ""});
        let text = shown("list", &json!([letter]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].find("TASK"), lines[1].find("t\\u"), "{text}");
        assert!(!text.contains('\u{1b}') && lines[1].ends_with(" -"), "{text}");
        assert!(shown("show", &letter).contains("\nSequence: 3\n"));
        assert_eq!(shown("list", &json!([])).lines().count(), 1);
        let replayed = shown("replay", &json!({"replayed": 2, "gone": 1}));
        assert_eq!(replayed, "Replayed: 2\nGone: 1\n");
    }
}
