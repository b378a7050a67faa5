//! `push dead`: dead letters of a server, asked of its `--admin` listener.
//!
//! Law: what a server keeps of others is shown and never believed: it steers no terminal. Whoever
//! names neither a number nor `--all` changes nothing.

use std::{env, fmt::Write, future::poll_fn, time::Duration};

use clap::ArgMatches;
use peregrine::{
    client::{
        HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpVersion, Transport, TransportError,
    },
    net::{HttpClient, HttpClientOptions},
};
use serde_json::Value;

use super::{
    failure::{CommandFailure, FailureCode},
    json_line::json_line,
    say,
    settings::{OutputFormat, Settings},
    text::{TextOutput, one_line},
};

/// The variable that says where the listener is: that of the server's own key `admin`.
const VARIABLE: &str = "PEREGRINE_ADMIN";

/// How long is waited without `--timeout`.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most that an answer may have, in bytes: all letters that a server keeps, with long ids.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Does one of the commands, `what`.
///
/// # Errors
/// A [`CommandFailure`].
pub fn run(
    what: &str,
    flags: &ArgMatches,
    settings: &Settings,
    format: OutputFormat,
) -> Result<(), CommandFailure> {
    let (method, path) = asked(what, flags)?;
    let listener = AdminAddress::of(flags)?;
    let patience = settings.time("timeout")?.unwrap_or(PATIENCE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let no_room = |error| internal(format!("the system has no room: {error}"));
    let answer = runtime.map_err(no_room)?.block_on(async {
        let asking = tokio::time::timeout(patience, listener.ask(method, &path));
        asking.await.unwrap_or_else(|_| {
            let line =
                format!("{} s are over, and {listener} has not answered", patience.as_secs_f64());
            Err(CommandFailure::new(FailureCode::Timeout, line))
        })
    })?;
    match format {
        OutputFormat::Json => say(&json_line(answer.trim())),
        OutputFormat::Text => say(&shown(what, &read(&answer)?)),
    }
    Ok(())
}

/// What the words ask of the server.
fn asked(what: &str, flags: &ArgMatches) -> Result<(HttpMethod, String), CommandFailure> {
    let is_all = flags.try_get_one("all").ok().flatten() == Some(&true);
    let number = flags.try_get_one::<String>("number").ok().flatten();
    let one = match number {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            let line = format!("{text:?} is no number of a dead letter");
            CommandFailure::usage(line).hint("peregrine push dead list")
        })?),
    };
    let method = match what {
        "replay" => HttpMethod::Post,
        "drop" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    };
    let behind = if what == "replay" { "/replay" } else { "" };
    match (one, is_all || what == "list") {
        (Some(number), false) => Ok((method, format!("/push/dead/{number}{behind}"))),
        (None, true) => Ok((method, format!("/push/dead{behind}"))),
        (Some(_), true) => {
            Err(CommandFailure::usage("a number and --all contradict each other".to_owned()))
        }
        (None, false) => {
            let line = "which one? name its number, or --all".to_owned();
            Err(CommandFailure::usage(line).hint("peregrine push dead list"))
        }
    }
}

/// Where a server is asked by whoever runs it.
struct AdminAddress {
    /// As it was said.
    said: String,
    url: String,
    /// The socket, where it is one of this machine.
    unix: Option<String>,
}

impl std::fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.said)
    }
}

impl AdminAddress {
    fn of(flags: &ArgMatches) -> Result<AdminAddress, CommandFailure> {
        let flag = flags.get_many::<String>("admin").into_iter().flatten().next_back().cloned();
        let said = flag.or_else(|| env::var(VARIABLE).ok()).filter(|said| !said.is_empty());
        let said = said.ok_or_else(|| {
            let line =
                format!("no server is named: --admin ADDR, --admin unix:PATH, or {VARIABLE}");
            CommandFailure::usage(line).hint("it is what peregrine serve --admin was given")
        })?;
        let unix = said.strip_prefix("unix:").map(str::to_owned);
        let url = match &unix {
            Some(_) => "http://localhost/".to_owned(),
            None => format!("http://{}/", said.trim_start_matches("http://").trim_end_matches('/')),
        };
        let address = AdminAddress { said, url, unix };
        let parsed = HttpOrigin::parse(&address.url);
        match parsed {
            Ok(url) if url.path == "/" => Ok(address),
            Ok(_) => {
                Err(CommandFailure::usage(format!("--admin {address}: it is an address alone")))
            }
            Err(error) => Err(CommandFailure::usage(format!("--admin {address}: {error}"))),
        }
    }

    async fn ask(&self, method: HttpMethod, path: &str) -> Result<String, CommandFailure> {
        let options = HttpClientOptions::default();
        let client = match &self.unix {
            Some(path) => HttpClient::over_unix(path, options),
            None => HttpClient::new(options),
        };
        let client = client.map_err(|error| internal(error.to_string()))?;
        let lost = |error: TransportError| {
            let line = format!("{self}: {error}");
            CommandFailure::new(FailureCode::Unreachable, line)
                .hint("is it what peregrine serve --admin was given?")
        };
        let url = HttpOrigin::parse(&self.url);
        let origin = url.map_err(|error| CommandFailure::usage(error.to_string()))?.origin;
        let request = HttpRequest {
            method,
            origin: &origin,
            target: path,
            fields: Default::default(),
            body: &[],
            version: HttpVersion::Http1,
            // Whoever called limits the time of all.
            head_due_ms: u64::MAX,
            body_idle_ms: u64::MAX,
            is_repeatable: false,
        };
        let mut response = client.request(request).await.map_err(lost)?;
        let mut body = Vec::new();
        loop {
            let room = ANSWER_BYTES_MAX.saturating_sub(body.len());
            if room == 0 {
                return Err(internal(format!("{self} says too much")));
            }
            if !poll_fn(|cx| response.poll_read(cx, &mut body, room)).await.map_err(lost)? {
                break;
            }
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        match response.status() {
            200 => Ok(text),
            status => Err(self.refusal(status, &text)),
        }
    }

    /// What a status other than 200 means.
    fn refusal(&self, status: u16, text: &str) -> CommandFailure {
        let said = serde_json::from_str(text).unwrap_or(Value::Null);
        let failure = match (said["error"].as_str(), status) {
            (Some(error), 404) => {
                CommandFailure::new(FailureCode::NotFound, error).hint("peregrine push dead list")
            }
            (Some(error), _) => internal(error.to_owned()),
            (None, 404) => internal(format!("{self} is no --admin of a server with webhooks")),
            (None, _) => internal(format!("{self} says no more than HTTP status {status}")),
        };
        CommandFailure { a2a_code: Some(status.into()), ..failure }
    }
}

fn internal(line: String) -> CommandFailure {
    CommandFailure::new(FailureCode::Internal, line)
}

fn read(answer: &str) -> Result<Value, CommandFailure> {
    serde_json::from_str(answer).map_err(|_| internal("what it says is no JSON".to_owned()))
}

/// The members of a letter, and what they are called.
const COLUMNS: [(&str, &str); 8] = [
    ("number", "Number"),
    ("time", "Time"),
    ("reason", "Reason"),
    ("taskId", "Task"),
    ("configId", "Push config"),
    ("sequence", "Sequence"),
    ("origin", "Origin"),
    ("error", "Error"),
];

/// The answer for people.
fn shown(what: &str, answer: &Value) -> String {
    let cell = |letter: &Value, name: &str| match &letter[name] {
        Value::String(text) if !text.is_empty() => one_line(text),
        Value::Number(number) => number.to_string(),
        _ => "-".to_owned(),
    };
    let mut output = TextOutput::new(false);
    match what {
        "list" => {
            let letters = answer.as_array().map_or(&[][..], Vec::as_slice);
            let rows = letters.iter().map(|letter| COLUMNS.map(|(name, _)| cell(letter, name)));
            return table(&rows.collect::<Vec<_>>());
        }
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

/// Columns under their names, each as wide as its widest cell.
fn table(rows: &[[String; COLUMNS.len()]]) -> String {
    let head = COLUMNS.map(|(_, label)| label.to_uppercase());
    let mut widths = [0; COLUMNS.len()];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in [&head].into_iter().chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.into_iter().zip(row) {
            // Writing to a String never fails.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn letters_are_a_table_and_steer_nothing() {
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
