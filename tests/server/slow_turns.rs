//! Agents that block their worker: a program that asked for it gets their names, and `Server::run`
//! prints them on stderr. One of these tests runs itself again as a server.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use peregrine::{
    agent::{Agent, CancelRequest, Job, Profile, Turn, echo::Echo},
    model::{MessageBuf, PartsBuf},
    net::{self, Running, Server, SlowTurn},
};
use serde_json::{Value, json};

use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say},
    binary::{PATIENCE, Tcp, eventually},
};

const VARIABLE: &str = "PEREGRINE_TEST_SLOW_TURNS";
const TEST: &str = "slow_turns::a_blocked_worker_is_reported_once_with_its_agent";

/// Blocks its worker, against the rules: in `start`, when it is called again, or in a cancel.
struct Sleepy;

impl Agent for Sleepy {
    fn start(&self, turn: Turn<'_>) {
        match turn.message.text().as_str() {
            "later" => turn.resume_after(1, 0),
            "cancel" => turn.resume_after(1_000_000, 0),
            _ => self.resume(turn, 0),
        }
    }

    fn resume(&self, turn: Turn<'_>, _: u64) {
        hold();
        turn.reply(MessageBuf::agent(&PartsBuf::new().text("good morning")));
    }

    fn cancel(&self, _: CancelRequest<'_>) {
        hold();
    }
}

fn hold() {
    thread::sleep(Duration::from_millis(120));
}

fn server() -> Server {
    let dozing = net::async_agent(|job: Job| async move {
        hold();
        job.reply(MessageBuf::agent(&PartsBuf::new().text("good morning")))
    });
    let server = Server::new()
        .agent(Profile::new("sleepy", "Sleeps."), Sleepy)
        .agent(Profile::new("dozing", "Sleeps in a future."), dozing)
        .agent(Profile::new("echo", "Does not."), Echo);
    server.allow_host("*").listen("127.0.0.1:0").workers(1)
}

fn send(addr: SocketAddr, agent: &str, text: &str) -> Value {
    let params = V1.params(OutgoingMessage { at_once: text == "cancel", ..say(text) });
    let mut line = Tcp::to(addr);
    line.write(&post(&format!("/agents/{agent}"), &[], &rpc(V1.send(), &params)));
    line.reply().result()
}

/// A server that reports slow turns to its program.
fn reporting() -> (Running, Receiver<SlowTurn>) {
    let (sender, reports) = channel();
    let server = server().on_slow_turn(move |slow| sender.send(slow.clone()).unwrap());
    (server.start().unwrap(), reports)
}

#[test]
fn slow_turn_callback_names_agent_that_blocked_worker() {
    for (agent, text) in
        [("sleepy", "now"), ("sleepy", "later"), ("sleepy", "cancel"), ("dozing", "now")]
    {
        let (running, reports) = reporting();
        let addr = running.addrs()[0];
        let answer = send(addr, agent, text);
        if text == "cancel" {
            let params = json!({ "id": answer["task"]["id"] });
            let mut line = Tcp::to(addr);
            line.write(&post("/agents/sleepy", &[], &rpc(V1.cancel(), &params)));
            assert_eq!(line.reply().result()["id"], params["id"]);
        }
        let slow = reports.recv_timeout(PATIENCE).unwrap();
        assert_eq!(slow.agent, agent, "{text}");
        assert!(slow.ms > 50, "{slow:?}");
        // The next report would come in a minute.
        send(addr, "sleepy", "now");
        send(addr, "echo", "hello");
        running.shutdown();
        running.join();
        assert!(reports.try_recv().is_err());
    }
}

/// A server in its own process, which ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // If it has ended, nothing is left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_blocked_worker_is_reported_once_with_its_agent() {
    if std::env::var_os(VARIABLE).is_some() {
        let ready = |running: &Running| println!("\naddr {}", running.addrs()[0]);
        return server().run_then(ready).unwrap();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", TEST]).env(VARIABLE, "1");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut server = Process(child.unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let addr = lines.find_map(|line| line.unwrap().strip_prefix("addr ")?.parse().ok()).unwrap();
    (0..2).for_each(|_| drop(send(addr, "sleepy", "now")));
    send(addr, "echo", "hello");
    let pid = server.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut output = String::new();
    server.0.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(output.matches("blocked a worker").count(), 1, "{output}");
    assert!(output.contains("the agent \"sleepy\""), "{output}");
    eventually("the server ends", || server.0.try_wait().unwrap().is_some());
}
