//! `send`: every outcome in text and in JSON, parts, continuations, and invalid uses.

use std::net::TcpListener;

use crate::{
    agent::{Clerk, echo},
    run::{User, assert_floor, field, files},
};

#[test]
fn send_prints_result_for_every_form_of_agent_reference() {
    let (_server, url) = echo(&[]);
    let output = User::new().ok(&["send", &url, "hello"]);
    assert!(output.err.is_empty(), "{output:?}");
    assert_floor(&output.out);
    assert_eq!(output.field("State"), "COMPLETED");
    assert_eq!(output.field("Artifact"), "echo");
    assert_eq!(output.block("Text"), "hello");
    assert!(!output.field("Task").is_empty() && !output.field("Context").is_empty());
    // The other ways to name the agent.
    let bare = url.strip_prefix("http://").unwrap();
    assert_eq!(User::new().ok(&["send", "-a", bare, "hello"]).block("Text"), "hello");
    assert_eq!(User::of(&url).ok(&["send", "hello"]).block("Text"), "hello");
    let card = format!("{url}/.well-known/agent-card.json");
    assert_eq!(User::new().ok(&["-a", &card, "send", "hello"]).block("Text"), "hello");
    let user = User::new();
    user.write("work/card.json", &user.ok(&["card", "get", &url, "-o", "json"]).out);
    assert_eq!(user.ok(&["send", "-a", "card.json", "hello"]).block("Text"), "hello");
    let file = format!("file://{}", user.path("work/card.json").display());
    assert_eq!(user.ok(&["send", "-a", &file, "hello"]).block("Text"), "hello");
}

#[test]
fn send_reads_stdin_and_quiet_prints_only_the_text() {
    let (_server, url) = echo(&[]);
    let user = User::new();
    for words in [
        &["send", &url, "-", "-q"][..],
        &["send", &url, "--quiet"],
        &["send", "-a", &url, "-q"],
        &["send", "-q", "--stream", "-a", &url],
    ] {
        let output = user.run_with(words, "two\nlines\n");
        assert_eq!((output.code, output.out.as_str()), (Some(0), "two\nlines\n"), "{output:?}");
    }
    // A message, and the options that follow it.
    assert_eq!(user.ok(&["send", &url, "ping", "-q"]).out, "pong\n");
    let task = user.json(&["send", &url, "hello"])["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(user.ok(&["task", "get", &url, &task, "-q"]).out, "hello\n");
    // With part flags the standard input is not read, and JSON takes precedence over -q.
    assert_eq!(user.run_with(&["send", &url, "--text", "a", "-q"], "b").out, "a\n");
    assert!(user.json(&["send", &url, "hello", "-q"])["task"].is_object());
    let output = user.run_with(&["send", &url], "");
    assert_eq!(output.code, Some(2));
    assert!(output.err.contains("the standard input is empty"), "{output:?}");
}

#[test]
fn send_json_is_one_document_with_task_or_message() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    let task = user.json(&["send", "hello"])["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "hello");
    let message = user.json(&["send", "ping"]);
    assert_eq!(message["message"]["parts"][0]["text"], "pong");
    assert_eq!(message.as_object().unwrap().len(), 1);
    let output = user.ok(&["send", "ping"]);
    assert_floor(&output.out);
    assert_eq!(output.block("Text"), "pong");
}

#[test]
fn send_polls_agent_without_streaming_until_task_ends() {
    let clerk = Clerk::start("polled", &["--no-streaming"]);
    let user = User::of(&clerk.url());
    for words in [&["send", "slow"][..], &["send", "slow", "--stream"]] {
        let output = user.ok(words);
        assert_floor(&output.out);
        assert_eq!(output.block("Text"), "at last");
    }
    let task = user.json(&["send", "slow"])["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(user.ok(&["send", "ping", "--stream"]).code, Some(0));
    let lines = user.ok(&["send", "slow", "--stream", "-o", "json"]).lines();
    assert_eq!(lines.last().unwrap()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn async_send_prints_ids_without_waiting() {
    let clerk = Clerk::start("async", &[]);
    let user = User::of(&clerk.url());
    let task = user.json(&["send", "never", "--async"])["task"].clone();
    assert!(task["id"].is_string() && task["contextId"].is_string(), "{task}");
    let output = user.ok(&["send", "never", "--no-wait"]);
    assert_floor(&output.out);
    let next = format!("peregrine task get --wait {}", output.field("Task"));
    assert_eq!(output.field("Next"), next);
    // A flag overrides the environment.
    let user = User::of(&clerk.url()).with("A2ACLI_ASYNC", "true");
    assert!(user.ok(&["send", "slow"]).field("State") != "COMPLETED");
    assert_eq!(user.ok(&["send", "slow", "--wait"]).field("State"), "COMPLETED");
}

#[test]
fn failed_or_paused_task_exits_zero_with_a_warning() {
    let clerk = Clerk::start("outcomes", &[]);
    let url = clerk.url();
    let user = User::new();
    for (text, state, warned) in [
        ("fail", "FAILED", "ended as FAILED"),
        ("reject", "REJECTED", "ended as REJECTED"),
        ("ask", "INPUT_REQUIRED", "waits for your answer"),
        ("authorize", "AUTH_REQUIRED", "waits for an authorization"),
    ] {
        let output = user.ok(&["send", "-a", &url, text]);
        assert_floor(&output.out);
        assert_eq!(output.field("State"), state);
        assert!(output.err.contains(warned), "{output:?}");
        let next = field(&output.out, "Next");
        let resume = format!("peregrine send -a {url} --task-id {}", output.field("Task"));
        let is_paused = state.ends_with("REQUIRED");
        assert_eq!(next.is_some_and(|next| next.starts_with(&resume)), is_paused, "{output:?}");
        let json = user.ok(&["send", "-a", &url, text, "-o", "json"]);
        let state = format!("TASK_STATE_{state}");
        assert_eq!(json.document()["task"]["status"]["state"], state);
        assert!(json.err.contains(warned), "{json:?}");
        assert_eq!(json.err.contains("peregrine send -a"), is_paused, "{json:?}");
    }
}

#[test]
fn the_printed_command_resumes_the_task() {
    let clerk = Clerk::start("resume", &[]);
    let user = User::new();
    let paused = user.ok(&["send", &clerk.url(), "ask"]);
    let next = paused.field("Next").replace("<reply>", "large");
    let words: Vec<&str> = next.strip_prefix("peregrine ").unwrap().split(' ').collect();
    let words: Vec<&str> = words.iter().map(|word| word.trim_matches('"')).collect();
    let done = user.ok(&words);
    assert_eq!(done.block("Text"), "one large coffee");
    assert_eq!(done.field("Task"), paused.field("Task"));
    // With the right context as well, and with a wrong one.
    let paused = user.ok(&["send", &clerk.url(), "ask"]);
    let user = User::of(&clerk.url());
    let (task, context) = (paused.field("Task"), paused.field("Context"));
    let words = ["send", "large", "--task-id", task, "--context-id"];
    let wrong: Vec<&str> = words.into_iter().chain(["not-its-context"]).collect();
    let before = user.json(&["task", "list"])["totalSize"].clone();
    let words_json: Vec<&str> = wrong.iter().copied().chain(["-o", "json"]).collect();
    let refused = user.run(&words_json);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.document()["error"]["code"].as_str().unwrap().ends_with("Error"));
    let right: Vec<&str> = words.into_iter().chain([context]).collect();
    assert_eq!(user.ok(&right).field("Task"), task);
    assert_eq!(user.json(&["task", "list"])["totalSize"], before);
}

#[test]
fn send_to_unknown_or_finished_task_creates_no_task() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    for extra in [&[][..], &["--stream"], &["--async"]] {
        let mut words = vec!["send", "hello", "--task-id", "none"];
        words.extend(extra);
        let error = user.failure(&words, "TaskNotFoundError", 1);
        assert_eq!(error["a2aCode"], -32001);
        assert!(error["hint"].as_str().unwrap().contains("--debug"), "{error}");
    }
    assert_eq!(user.json(&["task", "list"])["totalSize"], 0);
    // A finished task is refused as well.
    let task = user.json(&["send", "hello"])["task"]["id"].clone();
    let words = ["send", "hello", "--task-id", task.as_str().unwrap(), "-o", "json"];
    let refused = user.run(&words);
    assert_eq!(refused.code, Some(1));
    assert!(refused.document()["error"]["code"].as_str().unwrap().ends_with("Error"));
    assert_eq!(user.json(&["task", "list"])["totalSize"], 1);
}

#[test]
fn only_the_card_cache_persists_between_calls() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    let first = user.json(&["send", "one"])["task"].clone();
    let second = user.json(&["send", "two"])["task"].clone();
    assert_ne!(first["contextId"], second["contextId"]);
    // A card is not session state, and is cached unless the user disables it.
    assert_eq!(files(&user.path("home/.config/a2a-cli")), ["cards"]);
    for name in files(&user.path("home/.config/a2a-cli/cards")) {
        let cached = user.path("home/.config/a2a-cli/cards").join(name);
        let cached = std::fs::read_to_string(cached).unwrap();
        assert!(!cached.contains(first["id"].as_str().unwrap()), "{cached}");
        assert!(!cached.contains(first["contextId"].as_str().unwrap()), "{cached}");
    }
    let other = User::of(&url);
    other.ok(&["send", "one", "--card-cache=false"]);
    assert!(files(&other.path("home/.config/a2a-cli")).is_empty());
    assert_eq!(files(&user.path("work")), ["inner"]);
    assert_eq!(user.run(&["send", "three", "--continue"]).code, Some(2));
}

#[test]
fn send_with_context_id_creates_new_task_in_context() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    let first = user.json(&["send", "one"])["task"].clone();
    let context = first["contextId"].as_str().unwrap();
    let second = user.json(&["send", "two", "--context-id", context])["task"].clone();
    assert_eq!(second["contextId"], first["contextId"]);
    assert_ne!(second["id"], first["id"]);
}

#[test]
fn parts_are_sent_in_flag_order_with_media_types() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    user.write("work/a.bin", "bytes");
    user.write("work/d.json", "{\"b\": 2.50, \"a\": 1}");
    let words = [
        "send",
        "first",
        "--data",
        "-",
        "--file",
        "a.bin",
        "--media-type",
        "application/x-a",
        "--text",
        "second",
        "--file",
        "https://h.example/b.png",
        "--data",
        "d.json",
        "-o",
        "json",
        "--metadata",
        "{\"k\":1}",
    ];
    let output = user.run_with(&words, "[1]");
    let task = output.document()["task"].clone();
    let parts = task["artifacts"][0]["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 6, "{task}");
    assert_eq!(parts[0]["text"], "first");
    assert_eq!(parts[1]["data"], serde_json::json!([1]));
    assert_eq!(parts[2]["raw"], "Ynl0ZXM=");
    assert_eq!(parts[2]["mediaType"], "application/x-a");
    assert_eq!(parts[2]["filename"], "a.bin");
    assert_eq!(parts[3]["text"], "second");
    assert_eq!(parts[4]["url"], "https://h.example/b.png");
    assert_eq!(parts[4]["mediaType"], "image/png");
    assert!(output.out.contains("2.50"), "{output:?}");
}

#[test]
fn every_part_of_an_artifact_is_rendered() {
    let clerk = Clerk::start("parts", &[]);
    for extra in [&[][..], &["--verbose"]] {
        let mut words = vec!["send", "files"];
        words.extend(extra);
        let output = User::of(&clerk.url()).ok(&words);
        assert_floor(&output.out);
        assert_eq!(output.field("Artifact name"), "the bundle");
        assert!(output.out.contains("Text:\nfirst line\n \nthird line\n\n"), "{output:?}");
        assert!(output.block("Data").contains("\"n\": 1"));
        assert_eq!(output.field("File"), "../../hello.txt");
        assert_eq!((output.field("Media type"), output.field("Size")), ("text/plain", "5 bytes"));
        assert_eq!(output.field("URL"), "https://files.example/big.bin");
    }
}

#[test]
fn every_binding_gives_the_same_results_and_errors() {
    let all = "jsonrpc,http+json,grpc,websocket";
    let clerk = Clerk::start("bindings", &["--interfaces", all]);
    let user = User::of(&clerk.url());
    for (binding, mark) in [
        ("jsonrpc", "\"method\":\"SendStreamingMessage\""),
        ("http+json", "/message:stream\n"),
        ("grpc", "/lf.a2a.v1.A2AService/SendStreamingMessage\n"),
        ("websocket", "Upgrade: websocket\n"),
    ] {
        let with = |words: &[&'static str]| -> Vec<&'static str> {
            words.iter().copied().chain(["--transport", binding]).collect()
        };
        let mut task = user.json(&with(&["send", "large"]))["task"].clone();
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "one large coffee", "{binding}");
        let error = user.failure(&with(&["task", "get", "none"]), "TaskNotFoundError", 1);
        assert_eq!(error["message"], "Task not found", "{binding}");
        assert_eq!(error["hint"], format!("peregrine task list --transport {binding}"));
        for member in ["id", "contextId"] {
            assert!(task[member].take().is_string(), "{binding}");
        }
        let lines = user.ok(&with(&["send", "large", "--stream", "-o", "json"])).lines();
        let last = lines.last().unwrap();
        let state = &last["statusUpdate"]["status"]["state"];
        assert_eq!(state, "TASK_STATE_COMPLETED", "{binding}: {lines:?}");
        let wire = user.ok(&with(&["send", "large", "--debug"])).err;
        assert!(wire.contains(mark), "{binding}: {wire}");
    }
    // The first listed transport that the card has is used; if it has none, the card's own order
    // decides.
    let (_server, url) = echo(&["--interfaces", "http+json"]);
    let words = ["send", &url, "hello", "--transport", "grpc", "--transport", "rest"];
    assert_eq!(User::new().ok(&words).block("Text"), "hello");
    let words = ["send", &url, "hello", "--transport", "grpc", "--debug"];
    assert!(User::new().ok(&words).err.contains("/message:"));
}

#[test]
fn send_works_with_each_dialect_flag() {
    let names = ["langsmith", "evo_ai", "a2a_rust", "tutorial", "fasta2a"];
    let mounts = names.map(|name| format!("/m/{name}={name}"));
    let flags: Vec<&str> = mounts.iter().flat_map(|mount| ["--mount", mount]).collect();
    let (_server, url) = echo(&flags);
    for name in names {
        let agent = format!("{url}/m/{name}");
        let version = if ["a2a_rust", "fasta2a"].contains(&name) { "1.0" } else { "0.3" };
        let words = ["send", &agent, "hello", "--dialect", name, "--a2a-version", version];
        let output = User::new().ok(&words);
        assert_eq!((output.field("State"), output.block("Text")), ("COMPLETED", "hello"), "{name}");
    }
    // A message that the dialect cannot express is not sent.
    let words = ["task", "get", &format!("{url}/m/langsmith"), "t-1", "--dialect", "langsmith"];
    let words = [&words[..], &["--a2a-version", "0.3", "--history", "11"]].concat();
    User::new().failure(&words, "UnsupportedOperationError", 1);
}

#[test]
fn versions_below_1_0_are_used_only_when_configured() {
    let (_server, url) = echo(&["--card", "v03"]);
    let user = User::of(&url);
    let error = user.failure(&["send", "hello"], "VersionNotSupportedError", 1);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("--a2a-version 0.3") && !message.contains("Client"), "{error}");
    let output = user.ok(&["send", "hello", "--a2a-version", "0.3"]);
    assert_eq!(output.block("Text"), "hello");
    let user = User::of(&url);
    user.failure(&["send", "hello", "--a2a-version", "1.0"], "VersionNotSupportedError", 1);
    let user = User::of(&url).with("A2ACLI_A2A_VERSION", "0.3");
    let task = user.json(&["send", "hello"])["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn unreachable_agent_and_missing_card_give_distinct_errors() {
    let user = User::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for extra in [&[][..], &["--stream"]] {
        let mut words = vec!["send", &closed, "hello"];
        words.extend(extra);
        let error = user.failure(&words, "A2ACLI_ERR_UNREACHABLE", 3);
        assert!(error["hint"].is_null(), "this machine was asked over http: {error}");
    }
    let (_server, url) = echo(&[]);
    let none = format!("{url}/nothing/here.json");
    user.failure(&["card", "get", &none], "A2ACLI_ERR_CARD_NOT_FOUND", 3);
    user.failure(&["card", "get", "./none.json"], "A2ACLI_ERR_CARD_NOT_FOUND", 3);
    user.write("work/bad.json", "{\"name\": 1}");
    user.failure(&["send", "bad.json", "hello"], "A2ACLI_ERR_CARD_INVALID", 1);
    let text = user.run(&["send", &closed, "hello"]);
    assert!(text.out.is_empty() && text.err.starts_with("Error: "), "{text:?}");
    assert!(text.err.contains("Code: A2ACLI_ERR_UNREACHABLE\n"), "{text:?}");
}

#[test]
fn debug_shows_the_wire_without_secrets() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url).with("A2ACLI_BEARER", "hidden-1").with("A2ACLI_API_KEY", "hidden-2");
    let words =
        ["send", "hello", "--debug", "--verbose", "--svc-param", "x-trace:hidden-3", "-o", "json"];
    let output = user.ok(&words);
    output.document();
    assert!(output.err.contains("> POST http://") && output.err.contains("< 200"), "{output:?}");
    assert!(
        output.err.contains("A2A-Version: 1.0") && output.err.contains("x-trace: ***"),
        "{output:?}"
    );
    assert!(output.err.contains("\"text\":\"hello\""), "{output:?}");
    assert!(!output.err.contains("hidden") && !output.out.contains("hidden"), "{output:?}");
}
