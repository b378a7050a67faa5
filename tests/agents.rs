//! The agents that come with the crate, run on a task without a server.

use std::sync::Arc;

use peregrine::{
    agent::{Agent, Closed, Ending, JobHost, Turn, TurnHost, echo::Echo},
    model::{
        Content, EventBuf, Generation, Message, MessageBuf, Part, PartsBuf, Task, TaskEvent,
        TaskLimits, TaskState, TaskView,
    },
    service::{Now, TaskKey},
};

const LIMITS: TaskLimits =
    TaskLimits { bytes_max: 1 << 20, history_max: 100, artifacts_max: 16, replay_max: 100 };

/// A server with one task and a clock that jumps to whatever the agent waits for.
struct Server<A> {
    agent: A,
    task: Option<Task>,
    now_ms: u64,
    resumes: usize,
}

struct Host<'t>(&'t Option<Task>);

impl TurnHost for Host<'_> {
    fn commit(&mut self, _: &mut EventBuf) -> Result<(TaskKey, Arc<dyn JobHost>), Closed> {
        Err(Closed)
    }

    fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        if let Some(task) = self.0 {
            each(task.view());
        }
    }
}

impl<A: Agent> Server<A> {
    fn new(agent: A) -> Server<A> {
        Server { agent, task: None, now_ms: 0, resumes: 0 }
    }

    /// Sends one message and lists what the agent does until it waits for nothing.
    fn send(&mut self, id: &str, parts: &PartsBuf) -> Vec<String> {
        let message = MessageBuf::agent(id, parts);
        let mut lines = Vec::new();
        let mut token = None;
        loop {
            let mut events = EventBuf::default();
            let mut ending = Ending::Returned;
            let turn = Turn {
                message: message.view(),
                state: self.task.as_ref().map(Task::state),
                task_id: b"task",
                context_id: b"context",
                metadata: None,
                now: Now { mono_ms: self.now_ms, unix_ms: self.now_ms },
                events: &mut events,
                ending: &mut ending,
                host: &mut Host(&self.task),
            };
            match token {
                None => self.agent.start(turn),
                Some(token) => self.agent.resume(turn, token),
            }
            self.apply(&events, &mut lines);
            match ending {
                Ending::Returned => return lines,
                Ending::Replied(message) => {
                    lines.push(format!("message {}", said(message.view())));
                    return lines;
                }
                Ending::Resume { after_ms, token: next } => {
                    lines.push(format!("wait {after_ms}"));
                    self.now_ms += after_ms;
                    self.resumes += 1;
                    token = Some(next);
                }
                Ending::Detached => panic!("no agent here detaches"),
            }
        }
    }

    fn text(&mut self, text: &str) -> Vec<String> {
        self.send("m", &PartsBuf::new().text(text))
    }

    fn apply(&mut self, events: &EventBuf, lines: &mut Vec<String>) {
        let task =
            self.task.get_or_insert_with(|| Task::new(b"task", b"context", Generation::V1, 0));
        for event in events.iter() {
            task.apply(&event, &LIMITS).expect("the task takes every event");
            lines.push(shown(&event));
        }
        if task.seq() == 0 {
            self.task = None;
        }
    }
}

fn shown(event: &TaskEvent<'_>) -> String {
    match event {
        TaskEvent::Turn { .. } => panic!("agents publish no turns"),
        TaskEvent::Status { state, message, .. } => match message {
            None => format!("{state:?}"),
            Some(message) => format!("{state:?} {}", said(*message)),
        },
        TaskEvent::Artifact { artifact, append, last_chunk, .. } => {
            let id = String::from_utf8_lossy(artifact.artifact_id());
            let parts = artifact.parts().map(part).collect::<Vec<_>>().join(" ");
            let append = if *append { "+" } else { "" };
            let last = if *last_chunk { "." } else { "" };
            format!("{id}{append}{last} {parts}")
        }
    }
}

fn said(message: Message<'_>) -> String {
    let id = String::from_utf8_lossy(message.message_id());
    format!("{id}: {}", message.parts().map(part).collect::<Vec<_>>().join(" "))
}

fn part(part: Part<'_>) -> String {
    let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
    let content = match part.content() {
        Content::Text(raw) => text(raw),
        Content::Raw(raw) => format!("raw={}", text(raw)),
        Content::Url(raw) => format!("url={}", text(raw)),
        Content::Data(raw) => format!("data={}", text(raw)),
    };
    let named = part.filename().map_or(String::new(), |raw| format!(" name={}", text(raw)));
    let typed = part.media_type().map_or(String::new(), |raw| format!(" type={}", text(raw)));
    format!("[{content}{named}{typed}]")
}

#[test]
fn echo_gives_parts_back_as_they_came() {
    let parts = PartsBuf::new()
        .text("say \"hi\"")
        .raw("Zm9v", Some("a.txt"), Some("text/plain"))
        .url("https://example.com/x", None, None)
        .data("{ \"n\" : 1e400 }");
    let mut server = Server::new(Echo);
    let lines = server.send("m", &parts);
    let parts = r#"[say \"hi\"] [raw=Zm9v name=a.txt type=text/plain] [url=https://example.com/x]"#;
    assert_eq!(lines, [format!(r#"echo. {parts} [data={{ "n" : 1e400 }}]"#), "Completed".into()]);
    let task = server.task.expect("there is a task");
    assert_eq!(task.view().artifacts().count(), 1);
}

#[test]
fn echo_answers_ping_without_a_task() {
    let mut server = Server::new(Echo);
    assert_eq!(server.text("ping"), ["message task-end: [pong]"]);
    assert!(server.task.is_none());
}

#[test]
fn echo_streams_n_events() {
    assert_eq!(Server::new(Echo).text("stream:1"), ["Completed"]);
    assert_eq!(Server::new(Echo).text("stream:2"), ["Working", "Completed"]);
    assert_eq!(Server::new(Echo).text("stream:3"), ["Working", "echo. [chunk 1]", "Completed"]);
    let four = ["Working", "echo [chunk 1]", "echo+. [chunk 2]", "Completed"];
    assert_eq!(Server::new(Echo).text("stream:4"), four);
    let mut server = Server::new(Echo);
    assert_eq!(server.text("stream:1000").len(), 1000);
    let task = server.task.expect("there is a task");
    assert_eq!((task.seq(), task.state()), (1000, TaskState::Completed));
    let artifact = task.view().artifacts().next().expect("there is an artifact");
    assert_eq!(artifact.parts().count(), 998);
}

#[test]
fn echo_holds_and_then_streams() {
    let mut server = Server::new(Echo);
    let lines = server.text("hold:250:3");
    assert_eq!(lines, ["Submitted", "wait 250", "Working", "echo. [chunk 1]", "Completed"]);
    assert_eq!((server.now_ms, server.resumes), (250, 1));
    assert_eq!(Server::new(Echo).text("hold:0:1"), ["Submitted", "wait 0", "Completed"]);
}

#[test]
fn echo_rejects_what_is_out_of_bounds() {
    let too_many = "Rejected task-end: [stream:N takes at most 16384 events]";
    assert_eq!(Server::new(Echo).text("stream:16385"), [too_many]);
    assert_eq!(Server::new(Echo).text("stream:99999999999999999999"), [too_many]);
    let too_long = "Rejected task-end: [hold:MS:N takes at most 600000 ms and 16384 events]";
    assert_eq!(Server::new(Echo).text("hold:600001:1"), [too_long]);
    assert_eq!(Server::new(Echo).text("hold:1:16385"), [too_long]);
}
