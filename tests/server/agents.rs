//! Agents are added, replaced and removed under load: every call is answered by a program that the
//! agent had at some moment of the call, and no task is lost.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use peregrine::{
    agent::{Adopted, Agent, Profile, Turn, echo::Echo},
    engine::Agents,
    limits::Limits,
    model::{MessageBuf, PartsBuf, TaskState},
    net::{Running, Server},
};
use serde_json::{Value, json};

use crate::support::{
    ask::{V1, post, rpc, say, text_of},
    binary::{PATIENCE, Tcp, eventually},
};

const CALLERS: usize = 4;
const ROUNDS: usize = 150;

/// Answers with the number of its program; a task of it waits until a program adopts it.
struct Numbered(u64);

impl Agent for Numbered {
    fn start(&self, mut turn: Turn<'_>) {
        let message = MessageBuf::agent(&PartsBuf::new().text(&self.0.to_string()));
        match turn.message.parts().next().and_then(|part| part.as_text()).map(|text| text.raw()) {
            Some(b"task") => turn.status_with(TaskState::Completed, &message),
            Some(b"wait") => turn.resume_after(PATIENCE.as_millis() as u64, 0),
            _ => turn.reply(message),
        }
    }

    fn adopt(&self, task: Adopted) {
        let message = MessageBuf::agent(&PartsBuf::new().text(&self.0.to_string()));
        let mut job = task.into_job();
        assert!(job.status(TaskState::Completed, Some(&message)).is_ok());
    }
}

fn serve() -> (Running, SocketAddr, Agents) {
    let server = Server::new().agent(Echo::profile(), Echo).allow_host("*").workers(2);
    let limits = Limits { connections_max: 64, ..Limits::default() };
    let running = server.limits(limits).listen("127.0.0.1:0").start().unwrap();
    let (addr, agents) = (running.addrs()[0], running.agents().unwrap().clone());
    (running, addr, agents)
}

fn profile(name: &str, number: u64) -> Profile {
    Profile::new(name, &number.to_string())
}

fn send(name: &str, text: &str) -> Vec<u8> {
    post(&format!("/agents/{name}"), &[], &rpc("SendMessage", &V1.params(say(text))))
}

fn read(line: &mut Tcp, name: &str, id: &Value) -> Value {
    let read = rpc("GetTask", &json!({ "id": id }));
    line.write(&post(&format!("/agents/{name}"), &[], &read));
    line.reply().json()
}

fn number_of(holder: &Value) -> u64 {
    text_of(holder).parse().unwrap_or_else(|_| panic!("{holder}"))
}

/// Changes agents until all callers are done.
fn change_until_done(done: &AtomicUsize, mut change: impl FnMut()) {
    eventually("all callers are done", || {
        change();
        done.load(SeqCst) == CALLERS
    });
}

#[test]
fn calls_during_agent_replacement_use_a_current_program() {
    let (running, addr, agents) = serve();
    let names: Vec<String> = (0..CALLERS).map(|at| format!("agent-{at}")).collect();
    // The program of an agent after so many changes.
    let program = |change: u64, at: usize| change * CALLERS as u64 + at as u64;
    for (at, name) in names.iter().enumerate() {
        agents.add(profile(name, program(0, at)), Arc::new(Numbered(program(0, at)))).unwrap();
    }
    let (begun, ended, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (names, begun, ended, done) = (&names, &begun, &ended, &done);
            scope.spawn(move || {
                let (mut line, mut tasks) = (Tcp::to(addr), Vec::new());
                for round in 0..ROUNDS {
                    let at = (caller + round) % CALLERS;
                    let earliest = ended.load(SeqCst);
                    // A waiting task is answered by the agent's next program.
                    let text = ["hi", "task", "wait"][round % 3];
                    line.write(&send(&names[at], text));
                    let answer = line.reply().json();
                    let (message, task) = (&answer["result"]["message"], &answer["result"]["task"]);
                    let number = match text {
                        "hi" => number_of(message),
                        _ => number_of(&task["status"]["message"]),
                    };
                    assert_eq!(number % CALLERS as u64, at as u64, "another agent has answered");
                    let (change, latest) = (number / CALLERS as u64, begun.load(SeqCst));
                    assert!((earliest..=latest).contains(&change), "{earliest} {change} {latest}");
                    if text != "hi" {
                        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
                        tasks.push((at, task["id"].clone()));
                    }
                }
                for (at, id) in tasks {
                    assert_eq!(read(&mut line, &names[at], &id)["result"]["id"], id);
                }
                done.fetch_add(1, SeqCst);
            });
        }
        change_until_done(&done, || {
            let change = begun.fetch_add(1, SeqCst) + 1;
            for (at, name) in names.iter().enumerate() {
                let number = program(change, at);
                agents.replace(profile(name, number), Arc::new(Numbered(number))).unwrap();
            }
            ended.store(change, SeqCst);
        });
    });
    assert!(begun.load(SeqCst) > 10);
    drop(running);
}

#[test]
fn agents_added_and_removed_under_load_answer_or_refuse() {
    let (running, addr, agents) = serve();
    let done = AtomicUsize::new(0);
    let (answered, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (done, answered, refused) = (&done, &answered, &refused);
            scope.spawn(move || {
                let (mut line, mut tasks) = (Tcp::to(addr), Vec::new());
                let at = caller % 2;
                let name = format!("agent-{at}");
                for round in 0..ROUNDS {
                    let text = ["hi", "task", "wait"][round % 3];
                    line.write(&send(&name, text));
                    let reply = line.reply();
                    if reply.status == 404 {
                        // Only an agent that was never added is not found, so it has no tasks.
                        assert!(tasks.is_empty());
                        refused.fetch_add(1, SeqCst);
                        continue;
                    }
                    let answer = reply.json();
                    if answer.get("error").is_some() {
                        assert_eq!(answer["error"]["code"], -32004, "{answer}");
                        refused.fetch_add(1, SeqCst);
                        continue;
                    }
                    answered.fetch_add(1, SeqCst);
                    let (message, task) = (&answer["result"]["message"], &answer["result"]["task"]);
                    match (text, task["status"]["state"].as_str()) {
                        ("hi", _) => assert_eq!(number_of(message), at as u64),
                        ("wait", state) => assert_eq!(state, Some("TASK_STATE_FAILED"), "{answer}"),
                        (_, state) => {
                            assert_eq!(number_of(&task["status"]["message"]), at as u64);
                            assert_eq!(state, Some("TASK_STATE_COMPLETED"), "{answer}");
                        }
                    }
                    if text != "hi" {
                        let id = task["id"].clone();
                        // The task is there, whichever program answers now.
                        assert_eq!(read(&mut line, &name, &id)["result"]["id"], id);
                        tasks.push(id);
                    }
                }
                for id in tasks {
                    assert_eq!(read(&mut line, &name, &id)["result"]["id"], id);
                }
                done.fetch_add(1, SeqCst);
            });
        }
        let mut is_there = false;
        change_until_done(&done, || {
            is_there = !is_there;
            for at in 0..2 {
                let name = format!("agent-{at}");
                match is_there {
                    true => drop(agents.add(profile(&name, at), Arc::new(Numbered(at))).unwrap()),
                    false => agents.remove(&name).unwrap(),
                }
            }
        });
    });
    assert!(answered.load(SeqCst) > 0 && refused.load(SeqCst) > 0);
    drop(running);
}
