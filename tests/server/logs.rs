//! The log of the binary: what a line says and what it does not, and that nobody waits for it.

use std::{
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    process::{Stdio, id},
};

use serde_json::Value;

use crate::support::{
    ask::{V1, post, rpc, say},
    binary::{Binary, Tcp, eventually},
};

/// A file for what a server says on stderr.
fn file(name: &str) -> (std::path::PathBuf, Stdio) {
    let path = std::env::temp_dir().join(format!("peregrine-{name}-{}", id()));
    let stderr = File::create(&path).unwrap();
    (path, stderr.into())
}

/// The lines of a log, and the file gone.
fn lines(path: std::path::PathBuf) -> Vec<Value> {
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect()
}

fn end(mut server: Binary) {
    server.terminate();
    assert!(server.wait());
}

#[test]
fn a_call_has_a_line_that_says_what_became_of_it() {
    let (path, stderr) = file("access");
    let server = Binary::start_with(&["--access-log"], stderr);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let fields =
        [("A2A-Version", "1.0"), ("traceparent", &*parent), ("Authorization", "Bearer hush-hush")];
    let body = rpc(V1.send(), &V1.params(say("hi")));
    let mut tcp = server.connect();
    tcp.write(&post("/?secret=hush-hush", &fields, &body));
    let reply = tcp.reply();
    tcp.write(&post("/", &[("A2A-Version", "1.0")], &rpc("Nothing", &Value::Null)));
    tcp.reply();
    end(server);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hush-hush"), "{text}");
    let all = lines(path);
    let calls: Vec<&Value> =
        all.iter().filter(|line| line["target"] == "peregrine::access").collect();
    let [sent, nothing] = calls[..] else { panic!("{text}") };
    for (name, value) in [
        ("method", Value::from("SendMessage")),
        ("binding", "jsonrpc".into()),
        ("generation", "1.0".into()),
        ("agent", "echo".into()),
        ("task", reply.result()["task"]["id"].clone()),
        ("status", 200.into()),
        ("outcome", "ok".into()),
        ("bytes_in", body.len().into()),
        ("trace_id", trace.into()),
    ] {
        assert_eq!(sent[name], value, "{name}: {sent}");
    }
    assert!(sent["us"].is_u64() && sent["bytes_out"].as_u64() > Some(100), "{sent}");
    assert_eq!(nothing["outcome"], "METHOD_NOT_FOUND");
    assert_eq!(nothing["method"], "_OTHER");
}

#[test]
fn unknown_filters_of_tasks_are_named_once() {
    let (path, stderr) = file("filters");
    let server = Binary::start_with(&[], stderr);
    let mut tcp = server.connect();
    for _ in 0..3 {
        let filters = serde_json::json!({"lastUpdatedAfter": 1, "pageSize": 5, "a\nb": 1});
        tcp.write(&post("/", &[("A2A-Version", "1.0")], &rpc("ListTasks", &filters)));
        assert!(tcp.reply().result()["tasks"].is_array());
        tcp.write(b"GET /tasks?createdAfter=1&status=working HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(tcp.reply().status, 200);
    }
    end(server);
    let all = lines(path);
    let warned = all.iter().filter(|line| line["level"] == "WARN");
    let texts: Vec<String> = warned.map(|line| line["message"].to_string()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(
        texts[0].contains("lastUpdatedAfter") && texts[1].contains("createdAfter"),
        "{texts:?}"
    );
}

#[test]
fn without_the_flag_no_call_has_a_line_and_with_a_number_one_of_so_many() {
    for (flags, expected) in
        [(&[][..], 0), (&["--access-log=3"][..], 2), (&["--access-log", "--log=warn"], 0)]
    {
        let (path, stderr) = file(&format!("sample-{expected}-{}", flags.len()));
        let server = Binary::start_with(flags, stderr);
        let mut tcp = server.connect();
        for _ in 0..6 {
            tcp.write(&post("/", &[("A2A-Version", "1.0")], &rpc("ListTasks", &Value::Null)));
            tcp.reply();
        }
        drop(tcp);
        end(server);
        let all = lines(path);
        let calls = all.iter().filter(|line| line["target"] == "peregrine::access").count();
        assert_eq!(calls, expected, "{flags:?} {all:?}");
    }
}

#[test]
fn a_limit_that_is_hit_is_said_once_a_second() {
    let (path, stderr) = file("limit");
    let server = Binary::start_with(&["--limit", "streams_max=1"], stderr);
    let stream = |text| {
        let body = rpc("SendStreamingMessage", &V1.params(say(text)));
        post("/", &[("A2A-Version", "1.0")], &body)
    };
    let mut held = server.connect();
    held.write(&stream("hold:60000:1"));
    held.read_until("\r\n\r\n");
    let mut tcp = server.connect();
    for _ in 0..20 {
        tcp.write(&stream("hi"));
        tcp.reply();
    }
    drop((tcp, held));
    end(server);
    let all = lines(path);
    let said = |line: &&Value| {
        let message = line["message"].as_str().unwrap_or_default();
        message.starts_with("the limit streams_max was hit")
    };
    let count = all.iter().filter(said).count();
    // Twenty calls take seconds on a machine that has much to do, but never one each.
    assert!((1..20).contains(&count), "{all:?}");
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_call() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let stderr = Stdio::from(OwnedFd::from(writer));
    let flags = ["--access-log", "--admin", "127.0.0.1:0"];
    let mut server = Binary::start_with(&flags, stderr);
    let one = post("/", &[("A2A-Version", "1.0")], &rpc("ListTasks", &Value::Null));
    let mut tcp = server.connect();
    // Far more lines than a pipe and the queue have room for.
    for _ in 0..150 {
        tcp.write(&one.repeat(100));
        for _ in 0..100 {
            assert_eq!(tcp.reply().status, 200);
        }
    }
    let admin = server.said("admin").strip_prefix("http://").unwrap().parse().unwrap();
    eventually("what is lost is counted", || {
        let mut tcp = Tcp::to(admin);
        tcp.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let text = tcp.reply().text().to_owned();
        let lost =
            text.lines().find_map(|line| line.strip_prefix("peregrine_log_lines_lost_total "));
        lost.is_some_and(|lost| lost.parse::<u64>().unwrap() > 0)
    });
    // The end of the process waits for it a moment, and no longer.
    drop(tcp);
    server.terminate();
    assert!(server.wait());
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(said.contains("peregrine::access"));
}
