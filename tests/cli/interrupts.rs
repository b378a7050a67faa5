//! Ctrl-C, and a reader that closes.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command},
};

use crate::{
    agent::Clerk,
    run::{RunOutput, User},
};

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
}

#[test]
fn ctrl_c_leaves_task_running_and_prints_cancel_command() {
    let clerk = Clerk::start("ctrl-c", &[]);
    let user = User::of(&clerk.url());
    for format in ["text", "json"] {
        let words = ["send", "never", "--debug", "-o", format];
        let mut child = user.command(&words).spawn().unwrap();
        // The client prints each event before it reads the next one, and checks signals after that.
        let mut shown = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        while !seen.contains("TASK_STATE_WORKING") {
            assert!(shown.read_line(&mut seen).unwrap() > 0, "{seen}");
        }
        interrupt(&child);
        shown.read_to_string(&mut seen).unwrap();
        let output = RunOutput::of(child);
        assert_eq!(output.code, Some(130), "{output:?} {seen}");
        let text = if format == "json" { &output.out } else { &seen };
        assert!(
            text.contains("is still running") && text.contains("peregrine task cancel"),
            "{text}"
        );
        let id = text.split("peregrine task cancel ").nth(1).unwrap();
        let id: String = id.chars().take_while(|c| c.is_ascii_hexdigit() || *c == '-').collect();
        let task = user.json(&["task", "get", &id]);
        assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
    }
}

#[test]
fn interrupted_stream_prints_task_then_error() {
    let clerk = Clerk::start("ctrl-c-stream", &[]);
    let user = User::of(&clerk.url());
    let mut child = user.command(&["send", "never", "--stream", "-o", "json"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("\"task\""), "{line}");
    interrupt(&child);
    let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
    assert!(rest.last().unwrap().contains("PEREGRINE_ERR_INTERRUPTED"), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn lost_agent_error_prints_task_get_command() {
    let clerk = Clerk::start("gone", &["--no-streaming"]);
    let user = User::of(&clerk.url());
    let words = ["send", "never", "--debug", "--poll-interval", "10ms"];
    let mut child = user.command(&words).spawn().unwrap();
    let mut shown = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("GetTask") {
        assert!(shown.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    drop(clerk);
    shown.read_to_string(&mut seen).unwrap();
    let output = RunOutput::of(child);
    assert_eq!(output.code, Some(3), "{output:?} {seen}");
    let hint = format!("peregrine task get --wait {}", output.field("Task"));
    assert!(seen.contains(&hint) && !output.field("Context").is_empty(), "{output:?} {seen}");
}
