//! An agent's text reaches a terminal without control characters, and printed commands can be
//! pasted.

use serde_json::{Value, json};

use crate::{
    fake::{Fake, card, ok, status},
    run::User,
};

/// An agent with one task that has a name like a flag, and control characters in its text.
fn steering() -> Fake {
    const CONTROLS: &str = "\u{9b}31m\u{7f}\u{85}\u{202e}";
    Fake::start(|request, _, url| {
        let interface =
            json!({ "url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0" });
        let message =
            json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": CONTROLS }] });
        let status_ = json!({ "state": "TASK_STATE_INPUT_REQUIRED", "message": message });
        let task = json!({ "id": "--rf", "contextId": "c", "status": status_ });
        match request.target.as_str() {
            "/.well-known/agent-card.json" => {
                let members = json!({ "supportedInterfaces": [interface] });
                ok("application/json", &card(url, &members))
            }
            "/message:send" => ok("application/json", &json!({ "task": task }).to_string()),
            "/tasks/--rf" => ok("application/json", &task.to_string()),
            _ => status("404 Not Found", "text/plain", ""),
        }
    })
}

#[test]
fn json_output_escapes_control_characters_losslessly() {
    let agent = steering();
    let user = User::of(&agent.url);
    let output = user.ok(&["task", "get", "-o", "json", "--", "--rf"]);
    let is_steering = |letter: char| letter != '\n' && letter.is_control() || letter == '\u{202e}';
    assert!(!output.out.contains(is_steering), "{output:?}");
    let task: Value = serde_json::from_str(&output.out).unwrap();
    let text = &task["status"]["message"]["parts"][0]["text"];
    assert_eq!(text, "\u{9b}31m\u{7f}\u{85}\u{202e}");
}

#[test]
fn next_command_handles_task_id_that_looks_like_a_flag() {
    let agent = steering();
    let user = User::of(&agent.url);
    let output = user.ok(&["send", "hello"]);
    assert_eq!(output.field("Next"), "peregrine send --task-id=--rf \"<reply>\"");
    user.ok(&["send", "--task-id=--rf", "hello"]);
}
