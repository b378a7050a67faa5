//! A remote agent with faulty HTTP/2 or gRPC: each call ends with a reason.

mod agent;

use crate::support::{
    ask::{V1, post, rpc, say, text_of},
    binary::Binary,
    configured::Configured,
    reply::Reply,
};

pub use agent::misbehaving;

/// What an agent does at a word of a message, and how its task ends.
pub struct FrameFault {
    pub word: &'static str,
    /// The state of the task, or `error`.
    pub end: &'static str,
    /// Part of the reason that the caller gets.
    reason: &'static str,
}

const fn fault(word: &'static str, end: &'static str, reason: &'static str) -> FrameFault {
    FrameFault { word, end, reason }
}

/// The faults of a `known` task break its stream; it has completed by the next read.
pub const FAULTS: &[FrameFault] = &[
    fault("good", "COMPLETED", ""),
    fault("goaway graceful", "COMPLETED", ""),
    fault("goaway", "FAILED", "no such thing"),
    fault("goaway known", "COMPLETED", ""),
    fault("cut", "FAILED", "no such thing"),
    fault("cut known", "COMPLETED", ""),
    fault("garbage", "FAILED", "no such thing"),
    fault("garbage known", "COMPLETED", ""),
    fault("oversized frame", "FAILED", "no such thing"),
    fault("reset", "FAILED", "no such thing"),
    fault("reset known", "COMPLETED", ""),
    fault("reset without error", "FAILED", "no such thing"),
    fault("reset without error known", "COMPLETED", ""),
    fault("stall", "FAILED", "no such thing"),
    fault("stall known", "COMPLETED", ""),
    fault("unavailable", "FAILED", "no such thing"),
    fault("unavailable known", "COMPLETED", ""),
    fault("internal", "FAILED", "it broke"),
    fault("close", "FAILED", "no such thing"),
    fault("close known", "COMPLETED", ""),
    fault("end", "FAILED", "no such thing"),
    fault("end known", "COMPLETED", ""),
    fault("half", "FAILED", "no such thing"),
    fault("half known", "COMPLETED", ""),
    fault("compressed", "FAILED", "is compressed"),
    fault("nonsense", "FAILED", "cannot be read"),
    fault("oversized", "FAILED", "event_bytes_max"),
    fault("other task", "FAILED", "another task"),
    fault("large", "COMPLETED", ""),
    fault("flood", "COMPLETED", ""),
    fault("endless", "FAILED", "limit"),
    fault("no: internal", "error", "-32603 \"no such thing"),
    fault("no: unavailable", "error", "-32000 \"no such thing"),
    fault("no: exhausted", "error", "-32000 \"no such thing"),
    fault("no: 429", "error", "-32000 \"the upstream agent refused the call"),
    fault("no: unimplemented", "error", "-32603 \"no such thing"),
    fault("no: status", "error", "-32006"),
    fault("no: html", "error", "-32006"),
    fault("no: 500", "error", "-32006"),
    fault("no: 503", "error", "-32000 \"the upstream agent cannot be"),
    fault("no: redirect", "error", "-32006"),
    fault("no: event", "error", "-32006"),
    fault("no: half", "error", "-32000 \"the upstream agent cannot be"),
    fault("no: compressed", "error", "-32006"),
    fault("no: nonsense", "error", "-32006"),
    fault("no: reset", "error", "-32000 \"the upstream agent cannot be"),
    fault("no: refused", "error", "-32000 \"the upstream agent cannot be"),
    fault("no: silence", "error", "-32000 \"the upstream agent cannot be"),
    fault("no: cut", "error", "-32000 \"the upstream agent cannot be"),
    fault("no: garbage", "error", "-32000 \"the upstream agent cannot be"),
    fault("no: goaway", "error", "-32000 \"the upstream agent cannot be"),
];

fn send(server: &Binary, text: &str) -> Reply {
    let mut line = server.connect();
    line.write(&post("/", &[("A2A-Version", "1.0")], &rpc(V1.send(), &V1.params(say(text)))));
    line.reply()
}

/// How a call ended, and the reason that its caller gets.
fn end_of(reply: &Reply) -> (String, String) {
    let json = reply.json();
    if json["error"].is_object() {
        let error = &json["error"];
        return ("error".to_owned(), format!("{} {}", error["code"], error["message"]));
    }
    let status = &V1.task(&json["result"])["status"];
    let message = if status["message"].is_object() { text_of(&status["message"]) } else { "" };
    let state = status["state"].as_str().expect("a state").trim_start_matches("TASK_STATE_");
    (state.to_owned(), message.to_owned())
}

#[test]
fn each_http2_or_grpc_fault_ends_call_with_its_reason() {
    let agent = format!("a2a:http://{}", misbehaving());
    let server = Binary::start(&["--agent", &agent, "--limit", "task_bytes_max=2_097_152"]);
    for FrameFault { word, end, reason } in FAULTS {
        let (ended, message) = end_of(&send(&server, word));
        assert_eq!(&ended, end, "{word}: {message}");
        assert!(message.contains(reason), "{word}: {message}");
    }
}

#[test]
fn invalid_http2_from_upstream_fails_the_call() {
    const HTTP1: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    for (output, expected) in [
        (&b"nonsense\r\n\r\n and more of it"[..], "HTTP/2 failed"),
        (HTTP1, "the server does not support HTTP/2"),
        (b"", "the connection closed"),
    ] {
        let addr = agent::serve(move |socket| agent::write_and_close(socket, output));
        let server = Binary::start(&["--agent", &format!("a2a:http://{addr}")]);
        let (ended, message) = end_of(&send(&server, "hello"));
        assert_eq!(ended, "error", "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn call_to_unresponsive_upstream_times_out() {
    for (addr, text) in [
        (agent::serve(agent::silent), "hello".to_owned()),
        // More than a window, which this agent does not open before it has the whole message.
        (misbehaving(), "x".repeat(100_000)),
    ] {
        let keys = format!("[agents.r.upstream]\nurl = \"http://{addr}\"\ncall_ms = 300\n");
        let configured = Configured::new(&format!("frames-{}", text.len()), &keys);
        let (ended, message) = end_of(&send(&configured.server, &text));
        assert_eq!(ended, "error", "{message}");
        assert!(message.contains("in time"), "{message}");
    }
}
