//! A service that answers later, from another thread: with a message, a task, a fault, a stream, or
//! not yet.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Poll, Waker},
    thread,
};

use peregrine::{
    agent::Profile,
    fault::{Fault, FaultKind},
    model::{
        Call, CallBuf, Content, Generation, MessageBuf, PartsBuf, RawText, Reply, TaskBuf,
        TaskState,
    },
    service::{
        AgentIndex, Answer, CallCx, Cursor, Each, Follow, Handle, Lifecycle, Outcome, Service,
        SharedWaker, WaitHandle,
    },
};
use serde_json::{Value, json};
use tokio_stream::StreamExt;
use tonic::Code;

use crate::{
    grpc_client::{Rig, reason, run, say as grpc_say, state, task, text_message_v03, v1, v03},
    support::{
        ask::{Gen, OutgoingMessage, post, rpc, rpc_id, say},
        binary::Tcp,
        ws,
    },
};

const AT_MS: u64 = 1_790_000_000_000;

/// A thread's answer to a call.
enum ThreadAnswer {
    Message(MessageBuf),
    Task(TaskBuf),
    Fault(Fault),
    /// The answer is that of the call with this number.
    Again(u64),
    Stream(TaskBuf),
}

/// A call in progress.
#[derive(Default)]
struct Slot {
    result: Option<ThreadAnswer>,
    waker: Option<Arc<SharedWaker>>,
}

#[derive(Default)]
struct Later {
    slots: Arc<Mutex<HashMap<u64, Slot>>>,
    next: AtomicU64,
}

type Slots = Mutex<HashMap<u64, Slot>>;

fn change(slots: &Slots, number: u64, change: impl FnOnce(&mut Slot)) {
    let waker = {
        let mut slots = slots.lock().unwrap();
        let Some(slot) = slots.get_mut(&number) else { return };
        change(slot);
        slot.waker.as_ref().and_then(|waker| waker.take())
    };
    waker.inspect(Waker::wake_by_ref);
}

/// Runs on its own thread, with only the call.
fn work(slots: &Slots, number: u64, call: &CallBuf) {
    let Call::Send(send) = call.view() else { return };
    let part = send.message.parts().next().expect("a part");
    let Content::Text(text) = part.content() else { panic!("a part of text") };
    let parts = PartsBuf::new().text("here it is");
    let message = MessageBuf::agent(&parts).id(&*format!("m-{number}"));
    let mut task = TaskBuf::new(&*format!("t-{number}"), "c-1", Generation::V1).unwrap();
    task.user_message(send.message).unwrap();
    task.status(TaskState::Submitted, AT_MS, None).unwrap();
    let result = match &*text.to_str() {
        "message" => ThreadAnswer::Message(message.clone()),
        "task" => {
            task.status(TaskState::Completed, AT_MS, Some(&message)).unwrap();
            ThreadAnswer::Task(task)
        }
        "again" => {
            slots.lock().unwrap().insert(number + 1, Slot::default());
            ThreadAnswer::Again(number + 1)
        }
        "stream" => ThreadAnswer::Stream(task),
        _ => {
            ThreadAnswer::Fault(Fault::because(FaultKind::ContentTypeNotSupported, "no such words"))
        }
    };
    let (again, streams) =
        (matches!(result, ThreadAnswer::Again(_)), matches!(result, ThreadAnswer::Stream(_)));
    change(slots, number, |slot| slot.result = Some(result));
    if again {
        change(slots, number + 1, |slot| slot.result = Some(ThreadAnswer::Message(message)));
    } else if streams {
        for state in [TaskState::Working, TaskState::Completed] {
            change(slots, number, |slot| {
                let Some(ThreadAnswer::Stream(task)) = &mut slot.result else { panic!("a stream") };
                task.status(state, AT_MS, None).unwrap();
            });
        }
    }
}

impl Lifecycle for Later {}

impl Service for Later {
    fn call(
        &self,
        _: &mut CallCx<'_>,
        call: Call<'_>,
        _: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let Call::Send(_) = call else { return Err(FaultKind::UnsupportedOperation.into()) };
        let number = self.next.fetch_add(2, Relaxed);
        self.slots.lock().unwrap().insert(number, Slot::default());
        let (slots, call) = (Arc::clone(&self.slots), CallBuf::of(&call));
        thread::spawn(move || work(&slots, number, &call));
        let handle = Handle { key: number, ..Handle::default() };
        Ok(Outcome::Pending(WaitHandle { handle, ..WaitHandle::default() }))
    }

    fn poll(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        let number = wait.handle.key;
        let mut slots = self.slots.lock().unwrap();
        let slot = slots.get_mut(&number).expect("a call that waits");
        let Some(result) = slot.result.take() else {
            if let Some(waker) = wait.waiter.arm(wake) {
                slot.waker = Some(waker);
            }
            return Poll::Pending;
        };
        Poll::Ready(match result {
            ThreadAnswer::Stream(task) => {
                slot.result = Some(ThreadAnswer::Stream(task));
                let handle = Handle { key: number, ..Handle::default() };
                let cursor = Cursor { handle, seq: 1, snapshot: true, ..Cursor::default() };
                return Poll::Ready(Ok(Outcome::Stream { cursor, generation: Generation::V1 }));
            }
            result => {
                slots.remove(&number);
                match result {
                    ThreadAnswer::Message(message) => {
                        let context_id = RawText::parse("c-1").unwrap();
                        answer(Reply::Message { message: message.view(), context_id });
                        Ok(Outcome::Answered)
                    }
                    ThreadAnswer::Task(task) => {
                        answer(Reply::Task { view: task.view(), history: None });
                        Ok(Outcome::Answered)
                    }
                    ThreadAnswer::Again(number) => {
                        let handle = Handle { key: number, ..Handle::default() };
                        Ok(Outcome::Pending(WaitHandle { handle, ..WaitHandle::default() }))
                    }
                    ThreadAnswer::Fault(fault) => Err(fault),
                    ThreadAnswer::Stream(_) => unreachable!("handled above"),
                }
            }
        })
    }

    fn follow(&self, cursor: &mut Cursor, wake: &Waker, each: &mut Each<'_>) -> Follow {
        let mut slots = self.slots.lock().unwrap();
        let Some(slot) = slots.get_mut(&cursor.handle.key) else { return Follow::Gone };
        let Some(ThreadAnswer::Stream(task)) = &slot.result else { return Follow::Gone };
        let follow = cursor.show_new(task.task(), each);
        match follow {
            Follow::Pending => slot.waker = cursor.waiter.arm(wake).or(slot.waker.take()),
            Follow::End => _ = slots.remove(&cursor.handle.key),
            Follow::More | Follow::Gone => {}
        }
        follow
    }

    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        (agent == AgentIndex(0)).then(|| Arc::new(Profile::new("later", "Answers later.")))
    }
}

fn rig() -> Rig {
    Rig::with(|setup| {
        setup.agents.clear();
        setup.service = Some(Arc::<Later>::default());
        setup.allow_hosts.push("a.example".to_owned());
    })
}

fn connect(rig: &Rig) -> Tcp {
    Tcp::to(rig.0.addrs()[0])
}

/// Checks the JSON of the answer to these words; the answer is `of`.
fn check(words: &str, of: &Value) {
    match words {
        "message" | "again" => assert_eq!(of["message"]["parts"][0]["text"], "here it is"),
        "task" => {
            assert_eq!(of["task"]["status"]["state"], "TASK_STATE_COMPLETED");
            assert_eq!(of["task"]["history"][0]["parts"][0]["text"], "task");
        }
        other => panic!("{other}: {of}"),
    }
}

#[test]
fn deferred_json_rpc_calls_are_answered() {
    let rig = rig();
    let mut line = connect(&rig);
    for words in ["message", "task", "again"] {
        line.write(&post("/", &[], &rpc("SendMessage", &Gen::V1.params(say(words)))));
        check(words, &line.reply().json()["result"]);
    }
    line.write(&post("/", &[], &rpc("message/send", &Gen::V03.params(say("task")))));
    assert_eq!(line.reply().json()["result"]["status"]["state"], "completed");
    line.write(&post("/", &[], &rpc("SendMessage", &Gen::V1.params(say("what")))));
    assert_eq!(line.reply().json()["error"]["code"], -32005);

    let all = ["message", "task", "again", "what"].map(|words| {
        let message = OutgoingMessage { id: words, ..say(words) };
        rpc_id(&format!("\"{words}\""), "SendMessage", &Gen::V1.params(message))
    });
    line.write(&post("/", &[], &format!("[{}]", all.join(","))));
    let answers = line.reply().json();
    for answer in answers.as_array().unwrap() {
        match answer["id"].as_str().unwrap() {
            "what" => assert_eq!(answer["error"]["code"], -32005),
            words => check(words, &answer["result"]),
        }
    }
    assert_eq!(answers.as_array().unwrap().len(), 4);
}

#[test]
fn deferred_http_json_calls_are_answered() {
    let rig = rig();
    let mut line = connect(&rig);
    for words in ["message", "task", "again"] {
        line.write(&post("/message:send", &[], &Gen::V1.params(say(words)).to_string()));
        check(words, &line.reply().json());
    }
    line.write(&post("/message:send", &[], &Gen::V1.params(say("what")).to_string()));
    let refused = line.reply();
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("CONTENT_TYPE_NOT_SUPPORTED"), "{}", refused.text());
}

#[test]
fn deferred_websocket_calls_are_answered() {
    let rig = rig();
    let mut line = connect(&rig);
    line.write(&ws::upgrade("/", ""));
    line.read_until("\r\n\r\n");
    line.take();
    for words in ["message", "task", "again", "what"] {
        line.write(&ws::text(&rpc("SendMessage", &Gen::V1.params(say(words)))));
        line.read_until("}}");
        let mut received = line.take();
        while ws::frames(&received).0.is_empty() {
            assert!(line.read());
            received.extend(line.take());
        }
        let answer = ws::frames(&received).0[0].json();
        match words {
            "what" => assert_eq!(answer["error"]["code"], -32005),
            words => check(words, &answer["result"]),
        }
    }
}

#[test]
fn deferred_grpc_calls_are_answered() {
    let rig = rig();
    run(async {
        let mut client = rig.v1().await;
        for words in ["message", "again"] {
            let sent = client.send_message(grpc_say(words)).await.unwrap().into_inner();
            let Some(v1::send_message_response::Payload::Message(message)) = sent.payload else {
                panic!("{words}: {sent:?}");
            };
            assert_eq!(message.role(), v1::Role::Agent);
        }
        let sent = task(client.send_message(grpc_say("task")).await.unwrap().into_inner());
        assert_eq!(state(&sent), v1::TaskState::Completed);
        let refused = client.send_message(grpc_say("what")).await.unwrap_err();
        assert_eq!(reason(&refused, Code::InvalidArgument), "CONTENT_TYPE_NOT_SUPPORTED");
    });
}

#[test]
fn deferred_streaming_call_gets_stream_message_or_fault() {
    let rig = rig();
    let mut line = connect(&rig);
    let stream_body = |words: &str| rpc("SendStreamingMessage", &Gen::V1.params(say(words)));
    line.write(&post("/", &[], &stream_body("stream")));
    let events = line.reply().events();
    let last = events.last().unwrap().result();
    assert_eq!(events[0].result()["task"]["contextId"], json!("c-1"));
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    line.write(&post("/", &[], &stream_body("message")));
    let events = line.reply().events();
    assert_eq!(events.len(), 1);
    check("message", events[0].result());
    line.write(&post("/", &[], &stream_body("what")));
    assert_eq!(line.reply().json()["error"]["code"], -32005);
}

#[test]
fn deferred_grpc_streaming_call_gets_items_or_fault() {
    let rig = rig();
    run(async {
        let mut client = rig.v1().await;
        for (words, expected) in [
            ("stream", &["task", "status", "status"][..]),
            ("task", &["task"]),
            ("message", &["message"]),
            ("again", &["message"]),
        ] {
            let answer = client.send_streaming_message(grpc_say(words)).await.unwrap();
            let first = answer.metadata().get("a2a-event-id").map(|id| id.to_str().unwrap());
            assert_eq!(first, (words == "stream").then_some("1"), "{words}");
            let mut items = answer.into_inner();
            let mut kinds = Vec::new();
            while let Some(item) = items.next().await {
                kinds.push(kind(&item.unwrap()));
            }
            // A thread publishes meanwhile: events before the first poll are part of the task.
            let is_expected = match words {
                "stream" => kinds[0] == "task" && kinds.len() <= expected.len(),
                _ => kinds == expected,
            };
            assert!(is_expected, "{words}: {kinds:?}");
        }
        let refused = client.send_streaming_message(grpc_say("what")).await.unwrap_err();
        assert_eq!(reason(&refused, Code::InvalidArgument), "CONTENT_TYPE_NOT_SUPPORTED");
        // 0.3 and JSON in messages work in the same way.
        let mut old = rig.v03().await;
        let mut items =
            old.send_streaming_message(text_message_v03("task", true)).await.unwrap().into_inner();
        let only = items.next().await.unwrap().unwrap();
        assert!(matches!(only.payload, Some(v03::stream_response::Payload::Task(_))), "{only:?}");
        assert!(items.next().await.is_none());
    });
}

fn kind(item: &v1::StreamResponse) -> &'static str {
    use v1::stream_response::Payload;
    match item.payload {
        Some(Payload::Task(_)) => "task",
        Some(Payload::Message(_)) => "message",
        Some(Payload::StatusUpdate(_)) => "status",
        Some(Payload::ArtifactUpdate(_)) => "artifact",
        None => "nothing",
    }
}
