//! Receivers that fail in every way: no event is lost or out of order, and a repeated post is the
//! same.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use peregrine::{
    agent::echo::Echo,
    net::{ClientTls, HttpClientOptions, Running, Server},
    push::{Pace, PushSettings, PushTargets},
};
use serde_json::{Value, json};
use tokio_rustls::rustls::{self, ServerConfig};

use super::{
    cannot_run,
    receiver::{Does, Receiver, patiently, responds},
};
use crate::{
    certificates::{Authority, Issued},
    support::{
        ask::{V1, post, rpc, say},
        binary::{Binary, Tcp},
    },
};

const ALLOW: [&str; 2] = ["--push-allow", "localhost"];

/// Streams a task with a webhook, and returns all events of the stream.
pub fn stream(addr: SocketAddr, text: &str, url: &str) -> Vec<Value> {
    let mut tcp = Tcp::to(addr);
    open(&mut tcp, text, url);
    drain(&mut tcp)
}

fn open(tcp: &mut Tcp, text: &str, url: &str) {
    let mut params = V1.params(say(text));
    params["configuration"]["taskPushNotificationConfig"] = json!({"url": url});
    tcp.write(&post("/", &[("A2A-Version", "1.0")], &rpc(V1.stream(), &params)));
}

fn drain(tcp: &mut Tcp) -> Vec<Value> {
    let reply = tcp.reply();
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.events().iter().map(|event| event.result().clone()).collect()
}

/// A call over its own connection.
pub fn call(addr: SocketAddr, method: &str, params: &Value) -> Value {
    let mut tcp = Tcp::to(addr);
    tcp.write(&post("/", &[("A2A-Version", "1.0")], &rpc(method, params)));
    tcp.reply().json()
}

/// A server in this process that retries soon.
fn quick(tls: ClientTls) -> Running {
    let pace = Pace { pause_ms_min: 5, pause_ms_max: 20, ..Pace::default() };
    let allow = vec!["localhost".parse().unwrap()];
    let targets = PushTargets { allow, ..PushTargets::default() };
    let settings = PushSettings { targets, pace, ..PushSettings::default() };
    let options = HttpClientOptions { tls, ..HttpClientOptions::default() };
    let server = Server::new().agent(Echo::profile(), Echo).push(settings, options);
    server.allow_host("*").listen("127.0.0.1:0").workers(1).start().unwrap()
}

fn end(running: Running) {
    running.shutdown();
    running.join();
}

/// Applies `does` to the posts of these numbers, and accepts the others.
fn with(does: Does, numbers: &'static [usize]) -> Receiver {
    Receiver::new(move |n, _| match numbers.contains(&n) {
        true => does.clone(),
        false => responds("200 OK"),
    })
}

#[test]
fn failing_receivers_get_all_events_after_retries() {
    let server = Binary::start(&ALLOW);
    let elsewhere = Receiver::willing();
    let to = elsewhere.url("/elsewhere");
    let redirect = |status: &str| {
        let head = format!("HTTP/1.1 {status}\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        with(Does::Responds(head), &[0, 2])
    };
    let full = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
    let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let receivers = [
        ("takes all", 0, Receiver::willing()),
        ("slow", 0, with(Does::Later(Duration::from_secs(2)), &[0, 3])),
        ("hangs", 1, with(Does::Hangs, &[1])),
        ("resets", 2, with(Does::Resets, &[0, 2])),
        ("closes", 2, with(Does::Closes, &[0, 2])),
        ("breaks off", 2, with(Does::Breaks, &[0, 2])),
        ("500", 2, with(responds("500 Internal Server Error"), &[0, 2])),
        ("404", 2, with(responds("404 Not Found"), &[0, 2])),
        ("429", 2, with(Does::Responds(full.to_owned()), &[0, 2])),
        ("302", 2, redirect("302 Found")),
        ("308", 2, redirect("308 Permanent Redirect")),
        ("drips its head", 1, with(Does::DripsHead, &[1])),
        ("drips its content", 0, with(Does::DripsBody, &[1])),
        ("floods", 0, with(Does::Floods, &[0, 2, 3])),
        ("speaks no HTTP", 2, with(Does::Responds("hello\r\n\r\n".to_owned()), &[0, 2])),
        ("has a huge head", 2, with(Does::Responds(huge), &[0, 2])),
    ];
    // A slow receiver delays no other: all get their posts at the same time.
    thread::scope(|scope| {
        for (name, failures, receiver) in &receivers {
            let addr = server.addr();
            scope.spawn(move || {
                let events = stream(addr, "stream:6", &receiver.url("/hook?k=1"));
                assert_eq!(events.len(), 7, "{events:?}");
                let posts = receiver.assert_received("/hook?k=1", &events);
                // A connection that closes before the answer is retried once at once.
                assert!(posts >= events.len() + failures, "{name}: {posts} posts");
                // The configuration is still there.
                let task = &events[0]["task"]["id"];
                let method = "ListTaskPushNotificationConfigs";
                let listed = call(addr, method, &json!({"taskId": task}));
                assert_eq!(listed["result"]["configs"].as_array().unwrap().len(), 1, "{name}");
            });
        }
    });
    assert_eq!(elsewhere.connections(), 0, "a redirect was followed");
    server.assert_lives();
}

#[test]
fn webhook_config_is_deleted_after_410_response() {
    let server = Binary::start(&ALLOW);
    let receiver = with(responds("410 Gone"), &[1]);
    let events = stream(server.addr(), "stream:6", &receiver.url("/"));
    let task = &events[0]["task"]["id"];
    patiently("it is forgotten", || {
        let listed =
            call(server.addr(), "ListTaskPushNotificationConfigs", &json!({"taskId": task}));
        listed["result"]["configs"] == json!([])
    });
    let posts: Vec<Value> = receiver.all("/").iter().map(|post| post.json()).collect();
    assert_eq!(posts, events[..2]);
}

/// Twenty tasks to one receiver that fails most posts, so that its host has one pause after the
/// other.
#[test]
fn mostly_failing_receiver_gets_all_events_in_order() {
    let server = quick(ClientTls::default());
    let receiver = Arc::new(Receiver::new(|n, post| {
        let bits = post.id.bytes().fold(n as u64 + 1, |bits, byte| {
            (bits ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
        });
        match bits % 12 {
            0..4 => responds("200 OK"),
            4..7 => responds("503 Service Unavailable"),
            7 => Does::Resets,
            8 => Does::Breaks,
            9 => Does::Floods,
            10 => Does::Later(Duration::from_millis(20)),
            _ => Does::Closes,
        }
    }));
    let addr = server.addrs()[0];
    let streamed: Vec<(String, Vec<Value>)> = (0..20)
        .map(|n| {
            let path = format!("/{n}");
            let events = stream(addr, "stream:12", &receiver.url(&path));
            (path, events)
        })
        .collect();
    let posts: usize =
        streamed.iter().map(|(path, events)| receiver.assert_received(path, events)).sum();
    let events: usize = streamed.iter().map(|(_, events)| events.len()).sum();
    assert!(posts > events, "{posts} posts, {events} events");
    end(server);
}

fn server_config(issued: Issued) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(rustls::ALL_VERSIONS).unwrap();
    builder.with_no_client_auth().with_single_cert(vec![issued.cert], issued.key).unwrap()
}

#[test]
fn receiver_gets_no_posts_until_its_certificate_is_valid() {
    let (trusted, strange) =
        (Authority::new("webhooks-trusted"), Authority::new("webhooks-strange"));
    let server = quick(ClientTls::default().without_system_authorities().authority(trusted.file()));
    let other_name = rcgen::CertificateParams::new(["other.example".to_owned()]).unwrap();
    let wrong = [strange.server("strange"), trusted.issue("other", other_name)];
    let receiver = Receiver::over_tls(server_config(strange.server("first")));
    let events = stream(server.addrs()[0], "stream:4", &receiver.url("/"));
    for issued in wrong {
        receiver.shows(server_config(issued));
        let before = receiver.connections();
        patiently("it tries again", || receiver.connections() > before + 2);
        assert_eq!(receiver.count(), 0, "who shows a wrong certificate was told something");
    }
    receiver.shows(server_config(trusted.server("right")));
    assert_eq!(receiver.assert_received("/", &events), events.len());
    end(server);
}

/// The task continues meanwhile, so there are events from before, during and after the outage.
fn move_meanwhile(
    addr: SocketAddr,
    receiver: &mut Receiver,
    url: &str,
    moves: impl FnOnce(&mut Receiver),
) {
    let first = stream(addr, "stream:3", &format!("{url}1"));
    receiver.assert_received("/1", &first);
    let mut tcp = Tcp::to(addr);
    open(&mut tcp, "hold:300:6", &format!("{url}2"));
    receiver.wait_for("/2", 1);
    moves(receiver);
    let second = drain(&mut tcp);
    receiver.assert_received("/2", &second);
}

#[test]
fn restarted_receiver_gets_the_remaining_events() {
    let server = quick(ClientTls::default());
    let mut receiver = Receiver::willing();
    let url = receiver.url("/");
    let port = receiver.addr.port();
    // Where `localhost` has both families, it comes back at the other address.
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let is_both = ("localhost", port).to_socket_addrs().unwrap().any(|addr| addr.ip() == v6);
    let to = if is_both { v6 } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
    move_meanwhile(server.addrs()[0], &mut receiver, &url, |receiver| {
        receiver.moves(to, || thread::sleep(Duration::from_millis(600)));
    });
    end(server);
}

/// In a mount namespace, where the test writes the hosts file.
#[test]
fn receiver_host_with_changed_address_is_resolved_again() {
    let works = Command::new("unshare").args(["-rm", "true"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        return cannot_run("this machine has no namespaces for us");
    }
    let hosts = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts");
    let is_at = |addr: &str| std::fs::write(&hosts, format!("{addr} hook.test\n")).unwrap();
    is_at("127.0.0.1");
    let script = r#"mount --bind "$0" /etc/hosts && exec "$@""#;
    let file = hosts.to_str().unwrap();
    let server = Binary::start_in(
        &["unshare", "-rm", "sh", "-c", script, file],
        &["--push-allow", "hook.test"],
    );
    let mut receiver = Receiver::willing();
    let url = receiver.url("/").replace("localhost", "hook.test");
    move_meanwhile(server.addr(), &mut receiver, &url, |receiver| {
        receiver.moves(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), || is_at("127.0.0.2"));
    });
    assert_eq!(receiver.addr.ip(), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    // Back again, and over IPv6 if this machine has it.
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        receiver.moves(IpAddr::V6(Ipv6Addr::LOCALHOST), || is_at("::1"));
        let events = stream(server.addr(), "stream:3", &format!("{url}3"));
        receiver.assert_received("/3", &events);
    }
}
