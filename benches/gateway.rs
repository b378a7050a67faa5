//! The cost of a gateway, compared with nginx that forwards the same bytes.
//!
//! `cargo bench --bench gateway`: an echo agent on core 1, and in front of it, on core 0, this
//! server as a gateway, and nginx as a reverse proxy that keeps its connections to the agent. 16
//! connections send in turns. `ratio` is the gateway's CPU time for a request divided by nginx's,
//! the median of interleaved rounds. `stream` lines are events of relayed streams of 100, delivered
//! in a second of the gateway's CPU time. Needs Linux, `taskset` and `nginx`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/load.rs"]
mod load;
#[path = "support/served.rs"]
mod served;
mod support;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
};

use load::Load;
use served::{SERVER, Served};
use support::{TEXT, call, count, post, send, task_id};

const CONNECTIONS: usize = 16;
const ROUNDS: usize = 9;

/// nginx, and the folder of its files.
struct Nginx {
    served: Served,
    folder: PathBuf,
}

impl Nginx {
    /// One process that forwards everything to this port.
    fn before(port: u16) -> Nginx {
        let folder = std::env::temp_dir().join(format!("peregrine-nginx-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let at = folder.display();
        let text = format!(
            "daemon off; master_process off; worker_processes 1; pid {at}/pid;
             error_log {at}/error.log; events {{ worker_connections 1024; }}
             http {{
               access_log off; keepalive_requests 100000000;
               client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
               fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
               upstream agent {{
                 server 127.0.0.1:{port}; keepalive 64; keepalive_requests 100000000;
               }}
               server {{
                 listen {own};
                 location / {{
                   proxy_pass http://agent; proxy_http_version 1.1;
                   proxy_set_header Connection \"\"; proxy_set_header Host $http_host;
                 }}
               }}
             }}"
        );
        let file = folder.join("nginx.conf");
        fs::write(&file, text).unwrap();
        let file = file.to_str().expect("a path");
        let served = Served::start_at(own.port(), &["nginx", "-c", file]);
        Nginx { served, folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Prints the ratio of two servers for requests with the same answer.
fn ratio(name: &str, [below, ours]: [(&Served, &[u8]); 2]) {
    let mut loads = [below, ours].map(|(served, request)| {
        let answer = served.request(request);
        let found = count(&answer, b"TASK_STATE_COMPLETED");
        assert_eq!(found, 1, "{name}: {}", String::from_utf8_lossy(&answer));
        let mut load = Load::new(served, CONNECTIONS, 1, request, answer.len());
        load.turn();
        load
    });
    let mut rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| {
            let [theirs, own] = &mut loads;
            (theirs.slice(below.0), own.slice(ours.0))
        })
        .collect();
    rounds.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let (theirs, own) = rounds[ROUNDS / 2];
    let ratio = own / theirs;
    let [theirs, own] = [theirs, own].map(|ns| ns / 1_000.0);
    println!("{name} ratio {ratio:.2}; nginx {theirs:.2} us, gateway {own:.2} us");
}

/// Events of a relayed stream.
const EVENTS: usize = 100;

/// The events of a connection until its stream ends, in addition to those in `before`.
fn events(stream: &mut TcpStream, before: Vec<u8>) -> usize {
    let mut text = before;
    let mut buffer = vec![0; 1 << 16];
    while !text.ends_with(b"\r\n0\r\n\r\n") {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..read]);
    }
    count(&text, b"\ndata: ")
}

/// Prints how many events of relayed streams reach their only subscriber.
fn one_subscriber(gateway: &Served) {
    let request = post(&send("SendStreamingMessage", &format!("stream:{EVENTS}")));
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| gateway.connect()).collect();
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (before, mut delivered) = (gateway.cpu_ns(), 0);
            for _ in 0..20 {
                streams.iter_mut().for_each(|stream| stream.write_all(&request).unwrap());
                let all = streams.iter_mut().map(|stream| events(stream, Vec::new()));
                delivered += all.sum::<usize>();
            }
            assert!(delivered >= 20 * CONNECTIONS * EVENTS, "{delivered}");
            delivered as f64 * 1e9 / (gateway.cpu_ns() - before) as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("stream, 1 subscriber: {:.0} events/s", rounds[ROUNDS / 2]);
}

/// Prints how many events of one relayed stream reach its 1,000 subscribers.
fn many_subscribers(gateway: &Served) {
    const SUBSCRIBERS: usize = 1_000;
    let mut first = gateway.connect();
    first.write_all(&post(&send("SendStreamingMessage", &format!("hold:5000:{EVENTS}")))).unwrap();
    let begun = read_until(&mut first, b"\n\n");
    let id = task_id(&begun);
    let subscribe = post(&call("SubscribeToTask", &format!(r#"{{"id":"{id}"}}"#)));
    let mut streams: Vec<(TcpStream, Vec<u8>)> = (0..SUBSCRIBERS)
        .map(|_| {
            let mut stream = gateway.connect();
            stream.write_all(&subscribe).unwrap();
            let begun = read_until(&mut stream, b"\n\n");
            (stream, begun)
        })
        .collect();
    let before = gateway.cpu_ns();
    let all = streams.iter_mut().map(|(stream, begun)| events(stream, std::mem::take(begun)));
    let delivered = all.sum::<usize>() - SUBSCRIBERS;
    let spent = gateway.cpu_ns() - before;
    assert!(delivered >= SUBSCRIBERS * (EVENTS - 1), "{delivered}");
    let rate = delivered as f64 * 1e9 / spent as f64;
    println!("stream, {SUBSCRIBERS} subscribers: {rate:.0} events/s");
}

/// Reads up to `end`.
fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let (mut text, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while count(&text, end) == 0 {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..read]);
    }
    text
}

fn main() {
    served::pin_load();
    let serve = [SERVER, "serve", "--workers", "1", "--listen", "127.0.0.1:PORT"];
    let agent = Served::start_on("1", &serve);
    let flag = format!("a2a:http://127.0.0.1:{}", agent.port);
    let gateway = Served::start(&[&serve[..], &["--agent", &flag]].concat());
    let nginx = Nginx::before(agent.port);
    let message = post(&send("SendMessage", TEXT));
    let theirs = &nginx.served;
    ratio("SendMessage", [(theirs, &message), (&gateway, &message)]);
    let [direct, relayed] = [theirs, &gateway].map(|served| {
        let id = task_id(&served.request(&message));
        post(&call("GetTask", &format!(r#"{{"id":"{id}"}}"#)))
    });
    ratio("GetTask", [(theirs, &direct), (&gateway, &relayed)]);
    one_subscriber(&gateway);
    many_subscribers(&gateway);
}
