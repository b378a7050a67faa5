//! What a gateway costs, beside nginx that passes the same bytes.
//!
//! `cargo bench --bench gateway`: an echo agent on core 1, and before it, on core 0, this server as
//! a gateway, and nginx as a reverse proxy that keeps its connections to the agent. 16 connections
//! ask in turns. `ratio` is the gateway's CPU time for a request divided by nginx's, the median of
//! interleaved rounds. Needs Linux, `taskset` and `nginx`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/load.rs"]
mod load;
#[path = "support/served.rs"]
mod served;
mod support;

use std::{fs, path::PathBuf};

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
    /// One process that passes everything to this port.
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

/// Prints the ratio of two servers for requests that are answered with the same state.
fn ratio(name: &str, [below, ours]: [(&Served, &[u8]); 2]) {
    let mut loads = [below, ours].map(|(served, request)| {
        let answer = served.ask(request);
        let found = count(&answer, b"TASK_STATE_COMPLETED");
        assert_eq!(found, 1, "{name}: {}", String::from_utf8_lossy(&answer));
        let mut load = Load::new(served, (CONNECTIONS, 1), request, answer.len());
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
        let id = task_id(&served.ask(&message));
        post(&call("GetTask", &format!(r#"{{"id":"{id}"}}"#)))
    });
    ratio("GetTask", [(theirs, &direct), (&gateway, &relayed)]);
}
