//! The log of the binary: what a line contains and what it omits, and that no call waits for it.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Command, Stdio, id},
};

use serde_json::Value;

use crate::support::{
    ask::{V1, post, rpc, say},
    binary::{Binary, Tcp, eventually},
};

/// A file for the server's stderr.
fn file(name: &str) -> (std::path::PathBuf, Stdio) {
    let path = std::env::temp_dir().join(format!("peregrine-{name}-{}", id()));
    let stderr = File::create(&path).unwrap();
    (path, stderr.into())
}

/// The lines of a log; deletes the file.
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
fn access_log_line_records_call_and_outcome() {
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
        ("version", "1.0".into()),
        ("peer", "127.0.0.1".into()),
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
    assert_eq!(nothing["reason"], "Method not found");
    assert_eq!(nothing["peer"], "127.0.0.1");
    assert_eq!(nothing["method"], "_OTHER");
}

/// A configuration in a file of its own.
fn config(name: &str, text: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("peregrine-{name}-{}.toml", id()));
    std::fs::write(&path, text).unwrap();
    path
}

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Callers with read scope only, one of them limited to one stream at a time; a second agent.
fn callers(logs: &str) -> String {
    format!(
        "[logs]\n{logs}\n[auth]\nask_scopes = true\n[[auth.api_keys]]\nname = \"alice\"\n\
         key = \"{KEY}\"\nscopes = [\"a2a:read\"]\nquota = \"few\"\n\
         [quotas.named.few]\ncalls_per_minute = 4\ncall_burst = 4\n"
    )
}

/// Starts a server with this configuration, has `make_calls` call it, and returns its access lines.
#[cfg(feature = "auth")]
fn access_lines(name: &str, text: &str, make_calls: impl FnOnce(&Binary)) -> Vec<Value> {
    let (path, stderr) = file(name);
    let config = config(name, text);
    let server = Binary::start_with(&["--config", config.to_str().unwrap()], stderr);
    make_calls(&server);
    end(server);
    std::fs::remove_file(config).unwrap();
    let all = lines(path);
    all.into_iter().filter(|line| line["target"] == "peregrine::access").collect()
}

#[cfg(feature = "auth")]
#[test]
fn refused_requests_are_logged_despite_sampling() {
    let key = [("A2A-Version", "1.0"), ("X-API-Key", KEY)];
    let wrong = [("A2A-Version", "1.0"), ("X-API-Key", "hush-hush")];
    let list = rpc("ListTasks", &Value::Null);
    let send = rpc(V1.send(), &V1.params(say("hi")));
    let text = callers("access = 1000000");
    let logged = access_lines("refused", &text, |server| {
        let request = |bytes: &[u8], status| {
            let mut tcp = server.connect();
            tcp.write(bytes);
            assert_eq!(tcp.reply().status, status);
        };
        // The first of a million calls has a line.
        request(&post("/", &key, &list), 200);
        request(&post("/", &[("A2A-Version", "1.0")], &list), 401);
        request(&post("/", &wrong, &list), 401);
        request(b"GET /nowhere?hush-hush HTTP/1.1\r\nHost: localhost\r\n\r\n", 404);
        request(b"GET /agents/hush-hush HTTP/1.1\r\nHost: localhost\r\n\r\n", 404);
        request(b"PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405);
        request(b"GET / HTTP/1.1\r\nHost: hush-hush.example\r\n\r\n", 421);
        let long = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n";
        request(long.as_bytes(), 413);
        // Three calls of the quota are left.
        request(&post("/", &key, &send), 403);
        request(&post("/", &key, &list), 200);
        request(&post("/", &key, &list), 200);
        request(&post("/", &key, &list), 429);
    });
    let statuses: Vec<_> = logged.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 401, 401, 404, 404, 405, 421, 413, 403, 429], "{logged:?}");
    assert!(logged.iter().all(|line| line["peer"] == "127.0.0.1"), "{logged:?}");
    let refused = &logged[1..];
    assert!(refused.iter().all(|line| line["reason"].as_str().unwrap().len() > 9), "{logged:?}");
    assert!(!format!("{logged:?}").contains("hush-hush"), "{logged:?}");
    assert_eq!(logged[2]["reason"], "the API key is unknown");
    assert_eq!(logged[8]["reason"], "missing scope \"a2a:send\"");
    assert_eq!(logged[9]["limit"], "quotas.calls");
    assert!(logged[9]["principal"].is_string() && logged[9]["principal"] == logged[8]["principal"]);
}

#[cfg(feature = "auth")]
#[test]
fn refused_request_log_shows_forwarded_client_address() {
    if Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let text = format!("trusted_proxies = [\"127.0.0.1\"]\n{}", callers("access = 1"));
    let forwarded = "X-Forwarded-For: 192.0.2.9, 127.0.0.1";
    let logged = access_lines("forwarded", &text, |server| {
        let url = |path: &str| format!("http://{}{path}", server.addr());
        let large = "x".repeat(17 * 1024 * 1024);
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let request = |path: &str, more: &[&str], status: &str| {
                let mut curl = Command::new("curl");
                curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", version]);
                curl.args(["-H", forwarded, "-H", "Expect:"]).args(more).arg(url(path));
                let mut curl = curl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                // The server may refuse it before all of it arrived.
                let _ = curl.stdin.take().unwrap().write_all(large.as_bytes());
                let output = curl.wait_with_output().unwrap().stdout;
                assert_eq!(String::from_utf8_lossy(&output), status, "{path} {more:?}");
            };
            let key = format!("X-API-Key: {KEY}");
            request("/", &["-d", "{}"], "401");
            request("/nowhere", &[], "404");
            request("/", &["-H", "Host: other.example"], "421");
            request(
                "/",
                &["-H", &key, "-H", "Transfer-Encoding: chunked", "-T", "-", "-X", "POST"],
                "413",
            );
        }
    });
    let statuses: Vec<_> = logged.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [[401, 404, 421, 413]; 2].concat(), "{logged:?}");
    assert!(logged.iter().all(|line| line["peer"] == "192.0.2.9"), "{logged:?}");
}

#[cfg(feature = "auth")]
#[test]
fn refused_requests_are_logged_or_counted_as_unlogged() {
    let text = callers("access = 1");
    let logged = access_lines("flood", &text, |server| {
        for _ in 0..3 {
            let mut tcp = server.connect();
            let one = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n";
            tcp.write(&one.repeat(400));
            for _ in 0..400 {
                assert_eq!(tcp.reply().status, 404);
            }
        }
    });
    let count = |line: &Value| line["unlogged"].as_u64();
    let unlogged: u64 = logged.iter().filter_map(count).sum();
    let lines = logged.iter().filter(|line| line["status"] == 404).count() as u64;
    assert_eq!((lines + unlogged, lines >= 100), (1_200, true), "{lines} {unlogged}");
}

#[cfg(feature = "auth")]
#[test]
fn log_lines_show_principal_name_or_keyed_hash() {
    let key = [("A2A-Version", "1.0"), ("X-API-Key", KEY)];
    let list = post("/", &key, &rpc("ListTasks", &Value::Null));
    let shown = |name: &str, logs: &str| {
        let logged = access_lines(name, &callers(&format!("access = 1\n{logs}")), |server| {
            let mut tcp = server.connect();
            tcp.write(&list);
            assert_eq!(tcp.reply().status, 200);
        });
        logged[0]["principal"].as_str().unwrap().to_owned()
    };
    assert_eq!(shown("names", "principal = \"name\""), "alice");
    let under = |key: &str| shown("key", &format!("hash_key = \"{key} of sixteen bytes\""));
    let (one, other) = (under("one"), under("two"));
    assert!(one != other && one.len() == 16, "{one} {other}");
    assert_eq!(under("one"), one);
    let secret = config("hash-key", "one of sixteen bytes\n");
    assert_eq!(shown("key", &format!("hash_key_file = {secret:?}")), one);
    std::fs::remove_file(secret).unwrap();
    let (first, second) = (shown("own", ""), shown("own", ""));
    assert!(first != second && first != one && first.len() == 16, "{first} {second}");
}

#[cfg(feature = "auth")]
#[test]
fn slowed_address_is_logged_once() {
    let (path, stderr) = file("slowed");
    let config = config("slowed", &callers(""));
    let server = Binary::start_with(&["--config", config.to_str().unwrap()], stderr);
    let wrong = [("A2A-Version", "1.0"), ("X-API-Key", "hush-hush")];
    for _ in 0..12 {
        let mut tcp = server.connect();
        tcp.write(&post("/", &wrong, &rpc("ListTasks", &Value::Null)));
        assert_eq!(tcp.reply().status, 401);
    }
    end(server);
    std::fs::remove_file(config).unwrap();
    let all = lines(path);
    let text = |line: &Value| line["message"].as_str().unwrap_or_default().to_owned();
    let slowed: Vec<_> = all.iter().map(text).filter(|text| text.contains("slowed")).collect();
    let expected = "the address 127.0.0.1 is slowed: it sent 10 wrong credentials within 300 s";
    assert_eq!(slowed, [expected], "{all:?}");
    assert_eq!(all.iter().filter(|line| line["target"] == "peregrine::access").count(), 0);
}

#[cfg(feature = "auth")]
#[test]
fn operator_changes_are_logged_and_reads_are_not() {
    let (path, stderr) = file("operator");
    let config = config("operator", &callers(""));
    let flags = ["--config", config.to_str().unwrap(), "--admin", "127.0.0.1:0"];
    let server = Binary::start_with(&flags, stderr);
    let admin = server.banner("admin").trim_start_matches("http://").parse().unwrap();
    for (line, fields, status) in [
        ("POST /tasks/a%20b/fail", format!("X-API-Key: {KEY}\r\n"), 404),
        ("DELETE /push/dead", String::new(), 200),
        ("GET /tasks", String::new(), 200),
    ] {
        let mut tcp = Tcp::to(admin);
        let head =
            format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{fields}\r\n");
        tcp.write(head.as_bytes());
        assert_eq!(tcp.reply().status, status, "{line}");
    }
    end(server);
    std::fs::remove_file(config).unwrap();
    let all = lines(path);
    let text = |line: &Value| line["message"].as_str().unwrap_or_default().to_owned();
    let texts: Vec<_> = all.iter().map(text).filter(|text| text.contains("operator")).collect();
    let expected = [
        "an operator at 127.0.0.1 (\"key  alice\"): POST /tasks/a%20b/fail: 404",
        "an operator at 127.0.0.1: DELETE /push/dead: 200",
    ];
    assert_eq!(texts, expected, "{all:?}");
}

#[test]
fn unknown_task_list_filters_are_logged_once() {
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
fn access_log_is_off_by_default_and_samples_one_in_n() {
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
fn log_lines_for_a_reached_limit_are_rate_limited() {
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
    let is_report = |line: &&Value| {
        let message = line["message"].as_str().unwrap_or_default();
        message.starts_with("the limit streams_max was reached")
    };
    let count = all.iter().filter(is_report).count();
    // Twenty calls take seconds on a busy machine, but never a second each.
    assert!((1..20).contains(&count), "{all:?}");
}

#[test]
fn an_unread_log_delays_no_call() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let stderr = Stdio::from(OwnedFd::from(writer));
    let flags = ["--access-log", "--admin", "127.0.0.1:0"];
    let mut server = Binary::start_with(&flags, stderr);
    let one = post("/", &[("A2A-Version", "1.0")], &rpc("ListTasks", &Value::Null));
    let mut tcp = server.connect();
    // Far more lines than a pipe and the queue hold.
    for _ in 0..150 {
        tcp.write(&one.repeat(100));
        for _ in 0..100 {
            assert_eq!(tcp.reply().status, 200);
        }
    }
    let admin = server.banner("admin").strip_prefix("http://").unwrap().parse().unwrap();
    eventually("what is lost is counted", || {
        let mut tcp = Tcp::to(admin);
        tcp.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let text = tcp.reply().text().to_owned();
        let lost =
            text.lines().find_map(|line| line.strip_prefix("peregrine_log_lines_lost_total "));
        lost.is_some_and(|lost| lost.parse::<u64>().unwrap() > 0)
    });
    // The process waits for the log briefly at its end, and no longer.
    drop(tcp);
    server.terminate();
    assert!(server.wait());
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    assert!(output.contains("peregrine::access"));
}
