//! Async agents over real sockets: a future runs while a client can see its result, and is dropped
//! when none can.

use std::{
    future::pending,
    sync::mpsc::{Receiver, Sender, channel},
};

use peregrine::{
    agent::{Closed, Deferred, Profile},
    limits::Limits,
    model::{MessageBuf, PartsBuf, TaskState},
    net::{self, Running, Server},
};
use serde_json::json;

use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say, text_of},
    binary::{PATIENCE, Tcp, eventually},
};

/// Sends an event when it is dropped.
struct Guard(Sender<&'static str>);

impl Drop for Guard {
    fn drop(&mut self) {
        // The test may be over.
        let _ = self.0.send("dropped");
    }
}

fn words(text: &str) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(text))
}

/// "wait" and "stubborn" never end; "long" ends when its task is canceled; "task" ends its task
/// when its caller has disconnected; other texts are echoed.
async fn answer(deferred: Deferred, events: Sender<&'static str>) -> Result<(), Closed> {
    match deferred.message().text().as_str() {
        "wait" => {
            let _guard = Guard(events.clone());
            let _ = events.send("begun");
            pending().await
        }
        "stubborn" => {
            let _job = deferred.into_job()?;
            pending().await
        }
        "long" => {
            let job = deferred.into_job()?;
            job.canceled().await;
            Ok(())
        }
        "task" => {
            let (_guard, mut job) = (Guard(events.clone()), deferred.into_job()?);
            job.status(TaskState::Working, None)?;
            job.caller_gone().await;
            let _ = events.send("alone");
            net::sleep(std::time::Duration::from_millis(1)).await;
            job.status(TaskState::Completed, Some(&words("done")))
        }
        text => {
            deferred.reply(words(text));
            Ok(())
        }
    }
}

/// A server of one worker with room for one deferred call, and the events of its futures.
fn serve() -> (Running, Receiver<&'static str>) {
    serve_under(Limits { deferred_calls_max: 1, ..Limits::default() })
}

fn serve_under(limits: Limits) -> (Running, Receiver<&'static str>) {
    let (events, received) = channel();
    let agent = net::async_agent(move |deferred| answer(deferred, events.clone()));
    let server = Server::new().agent(Profile::new("async", "Takes its time."), agent);
    let server = server.allow_host("*").workers(1).limits(limits);
    (server.listen("127.0.0.1:0").start().unwrap(), received)
}

fn call(running: &Running, method: &str, params: &serde_json::Value) -> Tcp {
    let mut line = Tcp::to(running.addrs()[0]);
    line.write(&post("/", &[], &rpc(method, params)));
    line
}

#[test]
fn a_future_is_dropped_when_its_caller_disconnects() {
    let (running, received) = serve();
    for method in [V1.send(), V1.stream()] {
        let line = call(&running, method, &V1.params(say("wait")));
        assert_eq!(received.recv_timeout(PATIENCE), Ok("begun"));
        let refused = call(&running, V1.send(), &V1.params(say("hello"))).reply();
        assert!(refused.text().contains("deferred_calls_max"), "{}", refused.text());
        drop(line);
        assert_eq!(received.recv_timeout(PATIENCE), Ok("dropped"));
        // Its slot is free for another call.
        let result = call(&running, V1.send(), &V1.params(say("hello"))).reply().result();
        assert_eq!(text_of(&result["message"]), "hello");
    }
    running.shutdown();
    running.join();
}

#[test]
fn future_with_a_task_continues_after_a_disconnect() {
    let (running, received) = serve();
    let mut line = call(&running, V1.stream(), &V1.params(say("task")));
    line.read_until("TASK_STATE_WORKING");
    let id = line.peek().unwrap().events()[0].result()["task"]["id"].clone();
    drop(line);
    assert_eq!(received.recv_timeout(PATIENCE), Ok("alone"));
    eventually("the task ends", || {
        let task = call(&running, V1.get(), &json!({ "id": id })).reply().result();
        task["status"]["message"]["parts"][0]["text"] == "done"
    });
    assert_eq!(received.recv_timeout(PATIENCE), Ok("dropped"));
    running.shutdown();
    running.join();
}

#[test]
fn async_futures_max() {
    let (running, _received) = serve_under(Limits { async_futures_max: 1, ..Limits::default() });
    let now = |text| V1.params(OutgoingMessage { at_once: true, ..say(text) });
    let task = call(&running, V1.send(), &now("long")).reply().result()["task"].take();
    for method in [V1.send(), V1.stream()] {
        let refused = call(&running, method, &now("hello")).reply();
        assert_eq!(refused.code(), -32000);
        assert!(refused.text().contains("async_futures_max"), "{}", refused.text());
    }
    call(&running, V1.cancel(), &json!({ "id": task["id"] })).reply().result();
    eventually("the future ends", || {
        let reply = call(&running, V1.send(), &now("hello")).reply();
        reply.text().contains("hello")
    });
    // A future that outlives its task keeps its slot.
    let task = call(&running, V1.send(), &now("stubborn")).reply().result()["task"].take();
    call(&running, V1.cancel(), &json!({ "id": task["id"] })).reply().result();
    let refused = call(&running, V1.send(), &now("hello")).reply();
    assert!(refused.text().contains("async_futures_max"), "{}", refused.text());
    running.shutdown();
    running.join();
}
