//! `admin task`: the tasks of all callers of a server, through its `--admin` listener.
//!
//! The server's answer is printed without control characters.

use clap::ArgMatches;
use peregrine::client::HttpMethod;
use serde_json::{Value, json};

use super::{
    admin::{self, AdminOperation, cell, table},
    failure::CommandFailure,
    json_line::json_line,
    print,
    settings::{OutputFormat, Settings},
    text::{TextOutput, one_line},
};

/// The flags that select tasks, and their names in the request.
const FILTERS: [(&str, &str); 4] =
    [("owner", "owner"), ("agent", "agent"), ("state", "state"), ("page-token", "pageToken")];

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
    let text = |name: &str| -> Option<String> {
        let values = flags.try_get_many::<String>(name).ok().flatten();
        values.into_iter().flatten().next_back().cloned()
    };
    let chosen = FILTERS.iter().filter_map(|(flag, name)| Some((*name, text(flag)?)));
    let mut query: Vec<String> =
        chosen.map(|(name, value)| format!("{name}={}", percent_encoded(&value))).collect();
    let id = text("id").unwrap_or_default();
    // A path segment has no separator and is not `.` or `..`; any other id is sent in the query.
    let is_segment = !id.contains(['/', '\\', '%']) && !id.contains(char::is_control);
    let segment = match is_segment && !id.chars().all(|c| c == '.') {
        true => format!("{}/", percent_encoded(&id)),
        false if what == "list" => String::new(),
        false => {
            query.push(format!("id={}", percent_encoded(&id)));
            String::new()
        }
    };
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let reason = text("reason").map(|reason| json!({ "reason": reason }).to_string());
    let (method, path) = match what {
        "list" => (HttpMethod::Get, format!("/tasks{query}")),
        what => (HttpMethod::Post, format!("/tasks/{segment}{what}{query}")),
    };
    let content = reason.unwrap_or_default();
    let hint = "peregrine admin task list";
    let operation = AdminOperation { method, path: &path, content: content.as_bytes(), hint };
    let answer = admin::perform(operation, flags, settings)?;
    match format {
        OutputFormat::Json => print(&json_line(answer.trim())),
        OutputFormat::Text => print(&shown(what, &admin::read(&answer)?)),
    }
    Ok(())
}

/// RFC 3986 §2.3: everything but unreserved characters is encoded.
fn percent_encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// The members of a task, and their columns.
const COLUMNS: [(&str, &str); 7] = [
    ("id", "Task"),
    ("state", "State"),
    ("statusTime", "Since"),
    ("agent", "Agent"),
    ("tenant", "Tenant"),
    ("owner", "Owner"),
    ("bytes", "Bytes"),
];

/// The answer as text.
fn shown(what: &str, answer: &Value) -> String {
    let mut output = TextOutput::new(false);
    if what != "list" {
        output.field("Task", &cell(answer, "id"));
        output.field("State", &cell(answer, "state"));
        if what == "cancel" && answer["state"] != "canceled" {
            output.field("Cancel", "the agent has not decided yet");
        }
        return output.text;
    }
    let mut text = table(COLUMNS, &answer["tasks"]);
    if let Some(token) = answer["nextPageToken"].as_str().filter(|token| !token.is_empty()) {
        output.field("Next page", &format!("--page-token {}", one_line(token)));
        text += &output.text;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_list_is_a_table_without_control_characters() {
        let task = json!({"id": "t\u{1b}[31m", "contextId": "c", "state": "working", "agent": "a",
            "tenant": "", "owner": "alice", "statusTime": "2026-01-31T12:00:00.000Z", "bytes": 7});
        let page = json!({"tasks": [task], "nextPageToken": "ab", "totalSize": 1});
        let text = shown("list", &page);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("STATE"), lines[1].find("working"), "{text}");
        assert!(!text.contains('\u{1b}') && lines[1].ends_with("alice  7"), "{text}");
        assert_eq!(lines[2], "Next page: --page-token ab");
        assert_eq!(percent_encoded("a/b c%é"), "a%2Fb%20c%25%C3%A9");
        let pending = shown("cancel", &json!({"id": "t", "state": "working"}));
        assert!(pending.contains("Cancel: the agent has not decided yet\n"), "{pending}");
    }
}
