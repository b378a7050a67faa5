//! A remote agent that restarts: a door, open or shut, and servers behind it.
//!
//! While shut, the door breaks off all connections and refuses new ones; it keeps its port. If the
//! same server is there when the door opens, it has its tasks, as if it had stored them on a disk;
//! a new server has none of them.

use std::{
    io::copy,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use peregrine::{
    agent::{Closed, Deferred, Profile},
    binding::interfaces::{Binding, Interface},
    engine::Setup,
    model::{ArtifactBuf, MessageBuf, PartsBuf, TaskState},
    net::{self, Running, Server},
};
use serde_json::json;
use socket2::{Domain, Socket, Type};

use crate::support::{
    ask::{post, rpc},
    binary::Tcp,
};

/// The port of a remote agent.
struct Door {
    addr: SocketAddr,
    /// Reserves the port while no server listens.
    _port: Socket,
    listening: Option<Listening>,
}

/// An open door.
struct Listening {
    is_shut: Arc<AtomicBool>,
    links: Links,
    thread: JoinHandle<()>,
}

/// Both sides of all connections.
type Links = Arc<Mutex<Vec<TcpStream>>>;

fn bound(addr: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_port(true).expect("a port of several sockets");
    socket.bind(&addr.into()).expect("a port");
    socket
}

impl Door {
    fn new() -> Door {
        let port = bound((Ipv4Addr::LOCALHOST, 0).into());
        let addr = port.local_addr().expect("an address").as_socket().expect("an address");
        Door { addr, _port: port, listening: None }
    }

    fn open(&mut self, server: SocketAddr) {
        let socket = bound(self.addr);
        socket.listen(1024).expect("a listener");
        let listener = TcpListener::from(socket);
        let (is_shut, links) = (Arc::new(AtomicBool::new(false)), Links::default());
        let (shut, all) = (Arc::clone(&is_shut), Arc::clone(&links));
        let thread = thread::spawn(move || {
            for client in listener.incoming() {
                if shut.load(SeqCst) {
                    return;
                }
                pass(client.expect("a connection"), server, &all);
            }
        });
        self.listening = Some(Listening { is_shut, links, thread });
    }

    fn shut(&mut self) {
        let Some(Listening { is_shut, links, thread }) = self.listening.take() else { return };
        is_shut.store(true, SeqCst);
        // Wakes the accept loop, which checks again whether the door is shut.
        drop(TcpStream::connect(self.addr));
        thread.join().expect("no panic");
        for link in lock(&links).drain(..) {
            let _ = link.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shut();
    }
}

fn lock(links: &Links) -> MutexGuard<'_, Vec<TcpStream>> {
    links.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forwards a connection.
fn pass(client: TcpStream, server: SocketAddr, links: &Links) {
    let Ok(server) = TcpStream::connect(server) else { return };
    let two = || [&client, &server].map(|side| side.try_clone().expect("a socket"));
    lock(links).extend(two());
    for [mut from, mut to] in [two(), {
        let [client, server] = two();
        [server, client]
    }] {
        let _ = (from.set_nodelay(true), to.set_nodelay(true));
        thread::spawn(move || {
            let _ = copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

/// A remote agent that can be restarted.
pub struct Restarted {
    door: Door,
    binding: Binding,
    server: Option<Running>,
    /// Releases held tasks.
    gate: Arc<AtomicBool>,
}

fn words(text: &str) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(text))
}

/// `ask` asks for input; any other text is answered by an artifact of two chunks. Between the
/// chunks are the opening of the gate (`hold`), this many milliseconds, or one. `late` waits for
/// the gate before its task.
async fn answer(deferred: Deferred, gate: Arc<AtomicBool>) -> Result<(), Closed> {
    let text = deferred.message().text();
    let pause = |ms| net::sleep(Duration::from_millis(ms));
    while text == "late" && !gate.load(SeqCst) && !deferred.is_caller_gone() {
        pause(5).await;
    }
    let mut job = deferred.into_job()?;
    if text == "ask" {
        return job.status(TaskState::InputRequired, Some(&words("what?")));
    }
    job.status(TaskState::Working, None)?;
    let chunk = |text| ArtifactBuf::new("a", &PartsBuf::new().text(text));
    job.chunk(&chunk("one"), false, false)?;
    while text == "hold" && !gate.load(SeqCst) && !job.is_closed() {
        pause(5).await;
    }
    pause(text.parse().unwrap_or(1)).await;
    job.chunk(&chunk("two"), true, true)?;
    job.status(TaskState::Completed, Some(&words("done")))
}

impl Restarted {
    /// Starts one with only this interface in its card.
    pub fn new(binding: Binding) -> Restarted {
        let (door, gate) = (Door::new(), Arc::new(AtomicBool::new(false)));
        let mut restarted = Restarted { door, binding, server: None, gate };
        restarted.replace();
        restarted
    }

    /// The value of `--agent` for it.
    pub fn agent(&self) -> String {
        format!("a2a:http://{}", self.door.addr)
    }

    /// Ends all connections and becomes unreachable.
    pub fn stop(&mut self) {
        self.door.shut();
    }

    /// Comes back with its tasks.
    pub fn come_back(&mut self) {
        let server = self.server.as_ref().expect("a server");
        self.door.open(server.addrs()[0]);
    }

    /// Comes back without its tasks, or starts for the first time.
    pub fn replace(&mut self) {
        self.stop();
        let gate = Arc::clone(&self.gate);
        let agent = net::async_agent(move |deferred| answer(deferred, Arc::clone(&gate)));
        let agents = vec![(Profile::new("remote", "Restarts."), Arc::new(agent) as _)];
        let setup = Setup {
            agents,
            interfaces: vec![Interface::of(self.binding)],
            public_url: Some(format!("http://{}", self.door.addr)),
            allow_hosts: vec!["*".to_owned()],
            ..Setup::default()
        };
        let server = Server::with(setup).listen("127.0.0.1:0").workers(1);
        if let Some(before) = self.server.replace(server.start().expect("a server")) {
            before.shutdown();
        }
        self.come_back();
    }

    /// Cancels the task that waits for input, without an event to its subscribers.
    pub fn end_waiting(&self) {
        let mut line = Tcp::to(self.server.as_ref().expect("a server").addrs()[0]);
        let mut call = |method, params| {
            line.write(&post("/", &[("A2A-Version", "1.0")], &rpc(method, &params)));
            line.reply().result()
        };
        let list = call("ListTasks", json!({"status": "TASK_STATE_INPUT_REQUIRED"}));
        call("CancelTask", json!({"id": list["tasks"][0]["id"]}));
    }

    /// Releases held tasks.
    pub fn open_gate(&self) {
        self.gate.store(true, SeqCst);
    }
}
