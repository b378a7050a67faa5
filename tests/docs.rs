//! The scripts and programs of `docs/guide` work as printed: scripts parse, and programs behave as
//! their pages describe, over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
};

use peregrine::{agent::script::Script, limits::Limits};
use serde_json::{Value, json};

#[allow(dead_code)]
#[path = "../docs/examples/agent.rs"]
mod agent;
#[allow(dead_code)]
#[path = "../docs/examples/engine.rs"]
mod engine;

/// The blocks of a page in this language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("```{language}\n");
    let after = page.split(fence.as_str()).skip(1);
    after.map(|text| text.split("```").next().unwrap()).collect()
}

#[test]
fn every_script_in_the_guide_parses() {
    let page = include_str!("../docs/guide/script.md");
    let scripts = blocks(page, "toml");
    assert!(!scripts.is_empty());
    for script in scripts {
        let script = Script::parse(script).unwrap();
        assert_eq!(script.profile().name, "greeter");
    }
}

/// Asserts that each Rust block of a page is part of its program.
fn assert_quotes(page: &str, program: &str) {
    let blocks = blocks(page, "rust");
    for block in &blocks {
        assert!(program.contains(block), "the program does not hold\n{block}");
    }
    assert!(blocks.len() > 3, "{} blocks", blocks.len());
}

#[test]
fn guide_pages_quote_their_example_programs() {
    let page = include_str!("../docs/guide/agent.md");
    assert_quotes(page, include_str!("../docs/examples/agent.rs"));
    let page = include_str!("../docs/guide/engine.md");
    assert_quotes(page, include_str!("../docs/examples/engine.rs"));
}

/// The page prints the verification code that the receivers of the official clients run.
#[test]
fn webhook_guide_contains_the_verification_programs() {
    let page = include_str!("../docs/guide/webhooks.md");
    let [python, js] = ["python", "js"].map(|language| blocks(page, language));
    assert!(python.contains(&include_str!("clients/verify_webhook.py")));
    assert!(js.contains(&include_str!("clients/verify_webhook.mjs")));
}

/// Sends a message and reads until the server closes.
fn post(addr: SocketAddr, path: &str, method: &str, message: Value) -> String {
    call(addr, path, method, &json!({ "message": message }))
}

/// Posts a call and reads until the server closes.
fn call(addr: SocketAddr, path: &str, method: &str, params: &Value) -> String {
    let mut answer = String::new();
    open(addr, path, method, params).read_to_string(&mut answer).unwrap();
    answer
}

/// Posts a call.
fn open(addr: SocketAddr, path: &str, method: &str, params: &Value) -> TcpStream {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nA2A-Version: 1.0\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

fn words(text: &str) -> Value {
    json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] })
}

fn result(answer: &str) -> Value {
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let answer: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
    answer["result"].clone()
}

#[test]
fn guide_agent_returns_the_documented_responses() {
    let running = agent::server().listen("127.0.0.1:0").workers(1).start().unwrap();
    let addr = running.addrs()[0];
    let send = |message| result(&post(addr, "/", "SendMessage", message));
    let pong = send(words("ping"))["message"].clone();
    assert_eq!((&pong["parts"][0]["text"], &pong["role"]), (&json!("pong"), &json!("ROLE_AGENT")));
    assert_eq!(pong["messageId"].as_str().map(str::len), Some(36));
    let artifact = send(words("report"))["task"]["artifacts"][0].clone();
    assert_eq!(artifact["name"], "Growth by region");
    assert_eq!(artifact["parts"][1]["data"], json!({ "north": 7 }));
    assert_eq!(artifact["parts"][2]["raw"], "cmVnaW9uLGdyb3d0aApub3J0aCw3Cg==");
    assert_eq!(artifact["parts"][2]["metadata"], json!({ "rows": 1 }));
    let mut files = words("sign");
    let file = json!({ "raw": "aGkK", "filename": "a \"b\".txt" });
    let data = json!({ "data": { "n": 1.50 }, "metadata": { "of": "files" } });
    files["parts"].as_array_mut().unwrap().extend([file, data.clone()]);
    let signed = send(files)["task"]["artifacts"][0]["parts"].clone();
    assert_eq!(signed, json!([{ "raw": "aGkKc2lnbmVkCg==", "filename": "a \"b\".txt" }, data]));
    let stream = post(addr, "/", "SendStreamingMessage", words("count"));
    assert!(stream.contains("text/event-stream"));
    for chunk in ["\"1 \"", "\"2 \"", "\"3 \"", "\"lastChunk\":true", "TASK_STATE_COMPLETED"] {
        assert!(stream.contains(chunk), "{chunk} in {stream}");
    }
    let paused = send(words("coffee"))["task"].clone();
    assert_eq!(paused["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(paused["status"]["message"]["parts"][0]["text"], "What size?");
    let mut size = words("large");
    size["taskId"] = paused["id"].clone();
    let cup = send(size)["task"].clone();
    assert_eq!(cup["artifacts"][0]["parts"][0]["text"], "one large coffee");
    let worked = send(words("work"))["task"].clone();
    assert_eq!(worked["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(worked["artifacts"][0]["parts"][0]["text"], "done");
    let refused = send(words("tea"))["task"]["status"].clone();
    assert_eq!(refused["state"], "TASK_STATE_REJECTED");
    let later = result(&post(addr, "/agents/later", "SendMessage", words("hi")))["task"].clone();
    assert_eq!(later["artifacts"][0]["parts"][0]["text"], "You said: hi");
    let printed = result(&post(addr, "/agents/printer", "SendMessage", words("hi")));
    assert_eq!(printed["task"]["status"]["message"]["parts"][0]["text"], "printed");
    running.shutdown();
    running.join();
}

#[test]
fn guide_clerk_replies_without_a_task_and_refuses_cancels() {
    let running = agent::server().listen("127.0.0.1:0").workers(1).start().unwrap();
    let addr = running.addrs()[0];
    let send_to_clerk = |message| post(addr, "/agents/clerk", "SendMessage", message);
    let price = result(&send_to_clerk(words("price")))["message"].clone();
    assert_eq!(price["parts"][0]["text"], "3 coins");
    let refused = send_to_clerk(words("tea"));
    assert!(refused.contains("-32004") && refused.contains("and nothing else"), "{refused}");
    let order = result(&send_to_clerk(words("order")))["task"].clone();
    assert_eq!(order["status"]["message"]["parts"][0]["text"], "Where to?");
    let refused = call(addr, "/agents/clerk", "CancelTask", &json!({ "id": order["id"] }));
    assert!(refused.contains("-32002") && refused.contains("an order is binding"), "{refused}");
    let mut address = words("the harbor");
    address["taskId"] = order["id"].clone();
    let sent = result(&send_to_clerk(address))["task"]["status"].clone();
    assert_eq!(sent["state"], "TASK_STATE_COMPLETED");
    assert_eq!(sent["message"]["parts"][0]["text"], "sent to the harbor");
    // These tasks were never stored here.
    let look = |method, id| call(addr, "/agents/clerk", method, &json!({ "id": id }));
    assert_eq!(result(&look("GetTask", "order-1"))["status"]["message"]["messageId"], "sent-1");
    assert!(look("CancelTask", "order-1").contains("-32002"));
    assert!(look("GetTask", "order-2").contains("-32001"));
}

#[test]
fn guide_agent_replaced_mid_task_finishes_its_stream() {
    let running = agent::server().listen("127.0.0.1:0").workers(1).start().unwrap();
    let (addr, agents) = (running.addrs()[0], running.agents().unwrap().clone());
    agent::hire(&agents).unwrap();
    let parcel = json!({ "message": words("a parcel") });
    let mut stream = open(addr, "/agents/courier", "SendStreamingMessage", &parcel);
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    while !answer.contains("stop 1 of 5") {
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "{answer}");
        answer.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    agent::update(&agents).unwrap();
    stream.read_to_string(&mut answer).unwrap();
    for stop in 1..=5 {
        let step = format!("stop {stop} of 5");
        assert!((1..=2).contains(&answer.matches(&step).count()), "{step} in {answer}");
    }
    assert!(answer.contains("delivered"), "{answer}");
}

#[test]
fn guide_engine_serves_sends_waits_and_streams() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || engine::serve(&listener));
    let send = |text| result(&post(addr, "/", "SendMessage", words(text)));
    assert_eq!(send("ping")["message"]["parts"][0]["text"], "pong");
    assert_eq!(send("hi")["task"]["artifacts"][0]["parts"][0]["text"], "hi");
    // The ticking thread calls the agent again, which wakes the waiting call.
    assert_eq!(send("hold:50:3")["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let stream = post(addr, "/", "SendStreamingMessage", words("hold:20:100"));
    assert!(stream.contains("chunk 98") && stream.contains("TASK_STATE_COMPLETED"), "{stream}");
}

/// The names of the flags at the starts of lines, after `begin`.
#[cfg(feature = "cli")]
fn flags<'t>(text: &'t str, begin: &str) -> BTreeSet<&'t str> {
    let names = text.lines().filter_map(|line| {
        let line = line.trim_start().strip_prefix(begin)?;
        line.starts_with("--").then(|| line.split([' ', '[', '=', '`', ',']).next().unwrap())
    });
    names.collect()
}

#[test]
#[cfg(feature = "cli")]
fn serve_page_lists_exactly_the_flags_of_serve() {
    let serve = std::process::Command::new(env!("CARGO_BIN_EXE_peregrine"))
        .args(["serve", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(serve.stdout).unwrap();
    let page = include_str!("../docs/reference/serve.md");
    let table = page.split("\n## Flags of `serve`\n").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let expected = flags(&help, "");
    assert!(expected.len() > 20, "{help}");
    assert_eq!(flags(table, "| `"), expected);
}

/// Each Markdown file in a folder and below.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = Vec::new();
    for path in entries {
        match path.is_dir() {
            true => found.extend(pages(&path)),
            false if path.extension().is_some_and(|kind| kind == "md") => found.push(path),
            false => {}
        }
    }
    found
}

#[test]
fn links_between_pages_lead_to_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = pages(&root.join("docs"));
    all.extend([root.join("README.md"), root.join(".github/CONTRIBUTING.md")]);
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
            let file = target.0.split('#').next().unwrap();
            let is_elsewhere = file.contains("://") || file.contains(' ') || file.is_empty();
            let path = page.parent().unwrap().join(file);
            assert!(is_elsewhere || path.exists(), "{}: {file}", page.display());
        }
    }
}

#[test]
fn features_page_lists_exactly_the_crate_features() {
    let manifest = include_str!("../Cargo.toml").split("[features]").nth(1).unwrap();
    let manifest = manifest.split("\n[").next().unwrap();
    let names = manifest.lines().filter_map(|line| line.split_once(" = [").map(|(name, _)| name));
    let own = ["default", "internals", "test-echo"];
    let expected: BTreeSet<_> = names.filter(|name| !own.contains(name)).collect();
    let page = include_str!("../docs/reference/features.md");
    let shown = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    assert_eq!(shown.map(|(name, _)| name).collect::<BTreeSet<_>>(), expected);
}

/// The numbers of a row of the table of sizes, by the name in its first cell.
fn row(page: &str, name: &str) -> Vec<u64> {
    let begin = format!("| `{name}` |");
    let line = page.lines().find_map(|line| line.strip_prefix(&begin)).unwrap();
    let number = |cell: &str| cell.trim().trim_end_matches(" MiB").replace(',', "").parse().ok();
    line.split('|').filter_map(number).collect()
}

#[test]
#[cfg(feature = "grpc")]
fn sizing_page_matches_the_default_memory_limits() {
    let page = include_str!("../docs/guide/sizing.md");
    let sizes = [1, 2, 6, 16, 64].map(|workers| {
        let limits = Limits::default().for_default_memory(workers, false, &[]);
        [
            limits.store_bytes_max >> 20,
            limits.tasks_max,
            limits.buffers_bytes_max >> 20,
            limits.connections_max,
            limits.http2_connections_max,
            limits.reuse_bytes_max >> 20,
            limits.idempotency_entries_max,
        ]
    });
    let names = [
        "store_bytes_max",
        "tasks_max",
        "buffers_bytes_max",
        "connections_max",
        "http2_connections_max",
        "reuse_bytes_max",
        "idempotency_entries_max",
    ];
    let rows = |at: usize| sizes.map(|sizes| sizes[at] as u64).to_vec();
    let expected: Vec<_> = names.iter().enumerate().map(|(at, name)| (*name, rows(at))).collect();
    let shown: Vec<_> = names.iter().map(|name| (*name, row(page, name))).collect();
    assert_eq!(shown, expected);
}
