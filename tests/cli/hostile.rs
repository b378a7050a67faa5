//! A hostile agent and the terminal, the folder and the memory of its caller.

use serde_json::json;

use crate::{
    fake::{Fake, card, ok},
    run::{PATH, RunOutput, User, files},
};

/// All characters that control a terminal or a log viewer.
const STEERING: &str = "\u{1b}[31m\u{7f}\u{85}\u{9b}\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\
                        \u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";

/// Panics if the output has an unescaped character of [`STEERING`].
fn assert_plain(output: &RunOutput) {
    let steers = |c: char| c != '\n' && (c.is_control() || STEERING.contains(c) && !c.is_ascii());
    for text in [&output.out, &output.err] {
        let found: Vec<char> = text.chars().filter(|c| steers(*c)).collect();
        assert!(found.is_empty(), "{found:?} in {output:?}");
    }
}

#[test]
fn agent_control_characters_are_escaped_in_output() {
    let fake = Fake::start(|request, _, url| {
        let text = format!("a{STEERING}b");
        let more = json!({ "name": text, "description": text });
        let part = |kind: &str| json!({ kind: text, "mediaType": text, "filename": text });
        let data = json!({ "data": { &text: text }, "metadata": { &text: text } });
        let parts = json!([part("text"), part("url"), data, { &text: text }]);
        let status = json!({ "state": "TASK_STATE_COMPLETED", "message": {
            "messageId": "m", "role": "ROLE_AGENT", "parts": parts, "metadata": { &text: text } } });
        let artifact = json!({ "artifactId": text, "name": text, "parts": parts });
        let task = json!({ "id": text, "contextId": text, "status": status,
            "artifacts": [artifact] });
        match request.rpc() {
            "" => ok("application/json", &card(url, &more)),
            "SendMessage" => request.result(&json!({ "task": task })),
            _ => {
                let error = json!({ "code": -32001, "message": text, "data": [{ &text: text }] });
                let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
                ok("application/json", &body.to_string())
            }
        }
    });
    let user = User::of(&fake.url);
    for format in ["text", "json"] {
        for words in [
            &["send", "hi"][..],
            &["send", "hi", "--verbose"],
            &["send", "hi", "--debug"],
            &["card", "get"],
            &["task", "get", "t"],
        ] {
            let words: Vec<&str> = words.iter().copied().chain(["-o", format]).collect();
            let output = user.run(&words);
            assert!(
                output.out.contains("2028") || output.err.contains("2028"),
                "{words:?} {output:?}"
            );
            assert_plain(&output);
        }
    }
    assert_plain(&user.ok(&["send", "hi", "--quiet"]));
    assert_plain(&user.run_with(&["chat"], "hi\n"));
    let read = user.json(&["send", "hi"]);
    let text = read["task"]["artifacts"][0]["name"].as_str().unwrap();
    assert_eq!(text, format!("a{STEERING}b"));
}

#[test]
fn downloaded_file_names_never_begin_with_dash_or_dot() {
    let names = ["-rf", "--", "-", ".-x", "\u{2028}-e", " -\u{202e}.bashrc", ".", "a/-b", "-.env"];
    let fake = Fake::start(move |request, _, url| {
        let part = |name: &&str| json!({ "raw": "eA==", "filename": name });
        let parts: Vec<_> = names.iter().map(part).collect();
        let mut artifacts = vec![json!({ "artifactId": "1", "parts": parts })];
        artifacts.push(json!({ "artifactId": "-2", "parts": [{ "text": "x" }] }));
        artifacts.push(json!({ "artifactId": "3", "name": "-n", "parts": [{ "text": "x" }] }));
        let status = json!({ "state": "TASK_STATE_COMPLETED" });
        match request.rpc() {
            "" => ok("application/json", &card(url, &json!({}))),
            _ => request.result(&json!({ "id": "t", "contextId": "c", "status": status,
                "artifacts": artifacts })),
        }
    });
    let user = User::of(&fake.url);
    user.ok(&["task", "download", "t", "--dir", "got"]);
    let saved = files(&user.path("work/got"));
    assert_eq!(saved.len(), names.len() + 2, "{saved:?}");
    assert!(saved.iter().all(|name| !name.starts_with(['-', '.'])), "{saved:?}");
}

/// The peak memory of a run in kilobytes, and its output.
#[cfg(target_os = "linux")]
fn peak(user: &User, words: &[&str]) -> (u64, RunOutput) {
    let mut child = user.command(words).spawn().unwrap();
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        peak = peak.max(now.unwrap_or_default());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    (peak, RunOutput::of(child))
}

#[cfg(target_os = "linux")]
#[test]
fn oversized_body_is_rejected_and_buffered_once() {
    /// The memory of a run without the content, and how far content may run ahead of its check.
    const REST_KB: u64 = 40 * 1024;
    let fake = Fake::start(|request, number, url| match (request.rpc(), number) {
        ("", _) => ok("application/json", &card(url, &json!({}))),
        _ => {
            let status = if request.rpc() == "GetTask" { "500 Oops" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n{{");
            [head.into_bytes(), vec![b' '; 80 << 20]].concat()
        }
    });
    let user = User::of(&fake.url);
    for words in [&["send", "hi"][..], &["task", "get", "t"]] {
        let (kilobytes, output) = peak(&user, words);
        assert_eq!(output.code, Some(1), "{words:?}: {}", output.out);
        assert!(output.err.contains("body_bytes_max"), "{words:?}: {}", output.err);
        assert!(kilobytes > 64 * 1024, "it was not seen to the end: {kilobytes}");
        assert!(kilobytes < 64 * 1024 + REST_KB, "{words:?}: {kilobytes} kB of {PATH}");
    }
}
