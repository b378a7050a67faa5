//! Sockets that the embedding program has bound are served like the server's own.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Barrier, Mutex,
        mpsc::{Sender, channel},
    },
};

use peregrine::{
    agent::{Agent, Profile, Turn, echo::Echo},
    model::{MessageBuf, PartsBuf},
    net::{Server, ServerError},
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::support::{
    ask::{V1, get, post, rpc, say},
    binary::{PATIENCE, Tcp},
};

const CARD: &str = "/.well-known/agent-card.json";

fn server() -> Server {
    Server::new().agent(Echo::profile(), Echo).allow_host("a.example")
}

fn bound() -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

/// A socket that shares its port with others, and does not listen yet.
fn reusable(port: u16) -> (TcpListener, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
    let socket = TcpListener::from(socket);
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

/// Asks for the card on a connection of its own.
fn assert_served(addr: SocketAddr) {
    let mut tcp = Tcp::to(addr);
    tcp.write(&get(CARD));
    assert_eq!(tcp.reply().status, 200);
}

#[test]
fn bound_socket_serves_connections_made_before_start() {
    for workers in [1, 3] {
        let (socket, addr) = bound();
        let mut early = Tcp::to(addr);
        early.write(&get(CARD));
        let running = server().listener(socket).workers(workers).start().unwrap();
        assert_eq!(running.addrs(), [addr]);
        assert_eq!(running.base_url(), format!("http://{addr}"));
        assert_eq!(early.reply().status, 200);
        (0..16).for_each(|_| assert_served(addr));
        running.shutdown();
        running.join();
        // The listener is gone: the port is free.
        drop(TcpListener::bind(addr).unwrap());
    }
}

/// Reports that a call has come, and answers it when another worker has got one.
struct Meeting {
    arrivals: Mutex<Sender<()>>,
    both: Barrier,
}

impl Agent for Meeting {
    fn start(&self, turn: Turn<'_>) {
        self.arrivals.lock().unwrap().send(()).unwrap();
        self.both.wait();
        turn.reply(MessageBuf::agent(&PartsBuf::new().text("met")));
    }
}

#[test]
fn workers_share_one_socket() {
    let (socket, addr) = bound();
    let (arrivals, receiver) = channel();
    let agent = Meeting { arrivals: Mutex::new(arrivals), both: Barrier::new(2) };
    let server = Server::new().agent(Profile::new("a", "b"), agent).allow_host("a.example");
    let _running = server.workers(2).listener(socket).start().unwrap();
    let send = post("/", &[], &rpc(V1.send(), &V1.params(say("hi"))));
    let mut clients = [(); 2].map(|()| {
        let mut tcp = Tcp::to(addr);
        tcp.write(&send);
        // Its worker waits, so the other worker accepts the next connection.
        receiver.recv_timeout(PATIENCE).expect("a worker that is free takes it");
        tcp
    });
    clients.iter_mut().for_each(|tcp| assert_eq!(tcp.reply().status, 200));
}

#[test]
fn each_socket_on_a_shared_address_is_served() {
    for workers in [1, 2, 3] {
        let (first, addr) = reusable(0);
        let (second, _) = reusable(addr.port());
        let running = server().listener(first).listener(second).workers(workers).start().unwrap();
        assert_eq!(running.addrs(), [addr]);
        // The system chooses one of the two by the port of the client.
        (0..64).for_each(|_| assert_served(addr));
        drop(running);
    }
}

#[test]
fn bound_socket_and_listen_address_are_both_served() {
    let (socket, addr) = bound();
    let running = server().listener(socket).listen("127.0.0.1:0").workers(2).start().unwrap();
    assert_eq!((running.addrs().len(), running.addrs()[1]), (2, addr));
    running.addrs().iter().for_each(|addr| assert_served(*addr));
}

#[test]
fn public_bound_socket_needs_allow_anonymous() {
    let socket = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let refused = server().workers(1).listener(socket()).start();
    assert!(matches!(refused.err(), Some(ServerError::Public(_))));
    assert!(server().workers(1).allow_anonymous().listener(socket()).start().is_ok());
}
