//! A full limit of connections: a newcomer takes the slot of the peer that holds the most.

use std::{
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

#[cfg(feature = "push")]
use peregrine::engine::PushSettings;
use peregrine::{engine::Setup, limits::Limits};
use serde_json::json;
use socket2::{Domain, Socket, Type};

use crate::{
    grpc_client::{Rig, run, say},
    http2::{fetch, grpc, status_of},
    support::{
        ask::{self, OutgoingMessage, V1, get, get_with},
        binary::{PATIENCE, Tcp, eventually, unread},
        callers::ByName,
    },
};

const CARD: &str = "/.well-known/agent-card.json";
/// The start of an HTTP/2 client: its preface and an empty SETTINGS frame.
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingpong";

/// Opens a connection from 127.0.0.`last`.
pub fn from(last: u8, addr: SocketAddr) -> Tcp {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
    socket.connect(&addr.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Tcp::over(stream)
}

fn served(tcp: &mut Tcp) -> bool {
    // The server may close a refused connection before the client writes.
    let _ = std::io::Write::write_all(&mut tcp.stream, &get(CARD));
    tcp.read_first() == Some(200) && tcp.reply().status == 200
}

fn wait_until_read(peers: &[Tcp]) {
    let streams: Vec<&TcpStream> = peers.iter().map(|tcp| &tcp.stream).collect();
    eventually("everything is read", || unread(&streams) == 0);
}

fn rig(limits: Limits, change: impl FnOnce(&mut Setup)) -> Rig {
    Rig::with(|setup| {
        setup.limits = limits;
        setup.allow_hosts.push("a.example".to_owned());
        change(setup);
    })
}

/// A server that accepts four connections.
fn of_four() -> Rig {
    rig(Limits { connections_max: 4, ..Limits::default() }, |_| ())
}

#[test]
fn new_peer_gets_http2_slot_of_peer_with_most() {
    let rig = rig(Limits { http2_connections_max: 4, ..Limits::default() }, |_| ());
    let addr = rig.0.addrs()[0];
    let mut held: Vec<Tcp> = (0..4).map(|_| from(2, addr)).collect();
    for tcp in &mut held {
        tcp.write(BEGIN);
        tcp.write(PING);
        tcp.read_until("pingpong");
    }
    run(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 3], 0).into()).unwrap();
        let stream = socket.connect(addr).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let request = grpc("/lf.a2a.v1.A2AService/SendMessage").body(()).unwrap();
        let message = crate::http2::framed(&say("hello"));
        let (status, why) = status_of(fetch(&mut client, request, &message).await).await;
        assert_eq!((status, why.as_str()), (0, ""));
        // The oldest has ended by GOAWAY with NO_ERROR; the others live.
        let goaway = held[0].read_to_end();
        assert!(goaway.ends_with(b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0"), "{goaway:?}");
        for tcp in &mut held[1..] {
            tcp.take();
            tcp.write(PING);
            tcp.read_until("pingpong");
        }
    });
}

#[test]
fn new_peer_gets_slot_of_unfinished_http2_preface() {
    let rig = of_four();
    let mut held: Vec<Tcp> = (0..4).map(|_| from(2, rig.0.addrs()[0])).collect();
    held.iter_mut().for_each(|tcp| tcp.write(&BEGIN[..20]));
    wait_until_read(&held);
    assert!(served(&mut from(3, rig.0.addrs()[0])));
}

#[test]
fn new_peers_get_slots_of_unfinished_request_heads() {
    let rig = of_four();
    let mut held: Vec<Tcp> = (0..4).map(|_| from(2, rig.0.addrs()[0])).collect();
    held.iter_mut().for_each(|tcp| tcp.write(b"POST / HTTP/1.1\r\nHos"));
    wait_until_read(&held);
    let mut newcomers = [from(3, rig.0.addrs()[0]), from(3, rig.0.addrs()[0])];
    assert!(newcomers.iter_mut().all(served));
    for tcp in &mut held[..2] {
        let refusal = String::from_utf8(tcp.read_to_end()).unwrap();
        assert!(refusal.starts_with("HTTP/1.1 408 "), "{refusal}");
        assert!(refusal.contains("connection: close"));
    }
    // Now both peers hold half of the slots, and neither takes from the other.
    assert!(!served(&mut from(2, rig.0.addrs()[0])) && !served(&mut from(3, rig.0.addrs()[0])));
    assert!(held[2].is_silent() && held[3].is_silent() && newcomers.iter_mut().all(served));
}

#[test]
fn no_connection_is_closed_up_to_connections_max() {
    let rig = of_four();
    let mut held: Vec<Tcp> = (0..3).map(|_| from(2, rig.0.addrs()[0])).collect();
    assert!(held.iter_mut().all(served));
    assert!(served(&mut from(3, rig.0.addrs()[0])));
    assert!(held.iter_mut().all(served));
}

#[test]
fn peer_with_most_connections_is_refused_another() {
    let rig = of_four();
    let mut held: Vec<Tcp> = (0..4).map(|_| from(2, rig.0.addrs()[0])).collect();
    assert!(held.iter_mut().all(served));
    let refusal = String::from_utf8(from(2, rig.0.addrs()[0]).read_to_end()).unwrap();
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    assert!(held.iter_mut().all(served));
}

#[test]
fn idle_connections_are_closed_before_active_ones() {
    let rig = of_four();
    let mut held: Vec<Tcp> = (0..4).map(|_| from(2, rig.0.addrs()[0])).collect();
    held[0].write(b"POST / HTTP/1.1\r\nHos");
    wait_until_read(&held);
    assert!(held[1..].iter_mut().all(served));
    let mut newcomers = [from(3, rig.0.addrs()[0]), from(4, rig.0.addrs()[0])];
    assert!(newcomers.iter_mut().all(served));
    assert!(held[1].read_to_end().is_empty() && held[2].read_to_end().is_empty());
    assert!(held[0].is_silent() && served(&mut held[3]));
}

#[test]
fn clients_of_trusted_proxy_count_as_separate_peers() {
    let trusted = "127.0.0.2".parse().unwrap();
    let limits = Limits { connections_max: 4, ..Limits::default() };
    let rig = rig(limits, |setup| setup.trusted_proxies = vec![trusted]);
    let mut held: Vec<Tcp> = (0..4).map(|_| from(2, rig.0.addrs()[0])).collect();
    // Until a request names its client, none of the proxy's connections ends.
    assert!(!served(&mut from(3, rig.0.addrs()[0])));
    for (tcp, client) in held.iter_mut().zip(["192.0.2.2", "192.0.2.1", "192.0.2.1", "192.0.2.1"]) {
        tcp.write(&get_with(CARD, &format!("X-Forwarded-For: {client}\r\n")));
        assert_eq!(tcp.reply().status, 200);
    }
    // A newcomer takes from the client with the most connections, a direct peer or a client of the
    // proxy.
    let mut direct = from(3, rig.0.addrs()[0]);
    assert!(served(&mut direct) && held[1].read_to_end().is_empty());
    let mut proxied = from(2, rig.0.addrs()[0]);
    proxied.write(&get_with(CARD, "X-Forwarded-For: 192.0.2.3\r\n"));
    assert!(proxied.reply().status == 200 && held[2].read_to_end().is_empty());
    assert!(served(&mut direct) && served(&mut held[0]) && served(&mut held[3]));
    // Now each holds one slot, which no newcomer takes.
    assert!(!served(&mut from(4, rig.0.addrs()[0])));
}

#[test]
#[cfg(feature = "push")]
fn anonymous_callers_share_half_of_push_bytes_max() {
    let rig = rig(Limits { push_bytes_max: 40_000, ..Limits::default() }, |setup| {
        setup.authenticator = Some(Arc::new(ByName::default()));
        setup.agents[0].0.anonymous = true;
        setup.push = Some(PushSettings { anonymous: true, ..PushSettings::default() });
    });
    let mut number = 0;
    // Sets configurations with origins of their own until one is refused; returns their number.
    let mut fill = |tcp: &mut Tcp, fields: &[(&str, &str)]| {
        for set in 0.. {
            number += 1;
            let url = format!("https://h{number}.example/");
            let id = format!("m-{number}");
            let mut params = V1.params(OutgoingMessage { id: &id, ..ask::say("hello") });
            params["configuration"]["taskPushNotificationConfig"] =
                json!({"url": url, "token": "x".repeat(1_500)});
            let fields = [&[("A2A-Version", "1.0")], fields].concat();
            tcp.write(&ask::post("/", &fields, &ask::rpc(V1.send(), &params)));
            let reply = tcp.reply();
            if reply.status != 200 {
                assert_eq!(reply.status, 429, "{}", reply.text());
                assert!(reply.text().contains("push_bytes_max"), "{}", reply.text());
                return set;
            }
        }
        unreachable!()
    };
    let addr = rig.0.addrs()[0];
    let of_peers = [2, 3, 4].map(|last| fill(&mut from(last, addr), &[]));
    assert_eq!(of_peers, [3, 3, 1]);
    assert_eq!(fill(&mut from(2, addr), &[("Authorization", "Bearer ann")]), 3);
}
