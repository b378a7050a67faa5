//! The faults that the agent of the tests can put into its answers.

use std::{
    io::{Error, Write},
    net::TcpStream,
    thread,
};

use serde_json::{Value, json};

use crate::faulty_agent::{HeldTask, TOO_LONG, respond};

/// One item of a stream.
#[derive(Clone)]
pub struct StreamItem {
    pub number: Option<u64>,
    pub json: Value,
}

/// A fault of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    // Answers: faults of their JSON.
    ExchangedAnswers,
    ExchangedResults,
    OldAnswer,
    OldResult,
    OtherId,
    NoId,
    ResultAndError,
    NoResult,
    NoStatus,
    NoTaskId,
    UnknownState,
    StateOf03,
    StillWorking,
    Failed,
    AuthRequired,
    OtherText,
    TaskOfAnotherId,
    MessageInstead,
    StillRunning,
    RepeatedTask,
    TooManyTasks,
    EmptyPage,
    TaskWithoutId,
    TaskWithoutStatus,
    AnswerLeftOut,
    AnswerDoubled,
    AnswersExchanged,
    // Answers: faults of HTTP.
    Truncated,
    OtherMediaType,
    NoMediaType,
    Html,
    Status500,
    Status429,
    EmptyBody,
    ClosedInBody,
    TooShortBody,
    TooSlow,
    // Streams.
    NoEnd,
    NeverOver,
    ClosedInEvent,
    EventAfterEnd,
    WorkingAfterEnd,
    SubmittedAgain,
    UnknownStateInStream,
    ChunkLeftOut,
    ChunkRepeated,
    ChunksExchanged,
    ChunkReplaced,
    NumberLeftOut,
    EventRepeated,
    NumbersFromOne,
    EventOfAnotherTask,
    TwoTasks,
    OtherContext,
    EventOfAnotherCall,
    FirstEventLost,
    FirstEventRepeated,
    /// Not a fault: a subscription that begins in the middle, with the task's current content.
    JoinsLate,
    // Webhooks.
    NoWebhook,
    WebhookOfAnotherTask,
}

impl Fault {
    /// True if two calls get each other's answers.
    pub fn exchanges(self) -> bool {
        matches!(self, Fault::ExchangedAnswers | Fault::ExchangedResults)
    }

    /// True if [`Fault::respond`] writes the response.
    pub fn is_of_http(self) -> bool {
        use Fault::*;
        matches!(
            self,
            Truncated
                | OtherMediaType
                | NoMediaType
                | Html
                | Status500
                | Status429
                | EmptyBody
                | ClosedInBody
                | TooShortBody
                | TooSlow
        )
    }

    /// Puts the fault into the right answer. `other`: the answer to another call.
    pub fn apply_to_answer(self, mut right: Value, other: &Value) -> Value {
        let task = if right.pointer("/result/task").is_some() { "/result/task" } else { "/result" };
        match self {
            Fault::ExchangedAnswers | Fault::OldAnswer => return other.clone(),
            Fault::ExchangedResults | Fault::OldResult => right["result"] = other["result"].clone(),
            Fault::OtherId => right["id"] = json!("999999"),
            Fault::NoId => drop(right.as_object_mut().unwrap().remove("id")),
            Fault::ResultAndError => {
                right["error"] = json!({ "code": -32603, "message": "internal error" });
            }
            Fault::NoResult => drop(right.as_object_mut().unwrap().remove("result")),
            Fault::MessageInstead => {
                right["result"] = json!({
                    "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "no task" }],
                });
            }
            Fault::RepeatedTask => {
                let tasks = right["result"]["tasks"].as_array_mut().unwrap();
                tasks.truncate(49);
                tasks.push(tasks[0].clone());
            }
            Fault::TooManyTasks => {
                let tasks = right["result"]["tasks"].as_array_mut().unwrap();
                for number in tasks.len()..=50 {
                    let mut task = tasks[0].clone();
                    task["id"] = json!(format!("more-{number}"));
                    tasks.push(task);
                }
            }
            Fault::EmptyPage => right["result"]["tasks"] = json!([]),
            Fault::TaskWithoutId => remove(&mut right["result"]["tasks"][0], "id"),
            Fault::TaskWithoutStatus => remove(&mut right["result"]["tasks"][0], "status"),
            Fault::AnswerLeftOut => drop(right.as_array_mut().unwrap().pop()),
            Fault::AnswerDoubled => {
                let answers = right.as_array_mut().unwrap();
                answers.push(answers[0].clone());
            }
            Fault::AnswersExchanged => {
                let [first, second] = [0, 1].map(|index| right[index]["result"].clone());
                (right[0]["result"], right[1]["result"]) = (second, first);
            }
            _ => {
                let task = right.pointer_mut(task).unwrap();
                self.apply_to_task(task);
            }
        }
        right
    }

    fn apply_to_task(self, task: &mut Value) {
        match self {
            Fault::NoStatus => remove(task, "status"),
            Fault::NoTaskId => remove(task, "id"),
            Fault::UnknownState => task["status"]["state"] = json!("TASK_STATE_SLEEPING"),
            Fault::StateOf03 => task["status"]["state"] = json!("completed"),
            Fault::StillWorking | Fault::StillRunning => {
                task["status"]["state"] = json!("TASK_STATE_WORKING");
            }
            Fault::Failed => task["status"]["state"] = json!("TASK_STATE_FAILED"),
            Fault::AuthRequired => task["status"]["state"] = json!("TASK_STATE_AUTH_REQUIRED"),
            Fault::OtherText => task["artifacts"][0]["parts"][0]["text"] = json!("another text"),
            Fault::TaskOfAnotherId => task["id"] = json!("task-x"),
            other => panic!("{other:?} is no fault of a task"),
        }
    }

    /// Writes a response with the fault. `json`: the right content.
    pub fn respond(self, stream: &mut TcpStream, json: &str) -> std::io::Result<()> {
        const JSON: &str = "application/json";
        const PAGE: &str = "<!doctype html><title>Welcome</title>";
        match self {
            Fault::Truncated => respond(stream, "200 OK", JSON, &json[..json.len() / 2]),
            Fault::OtherMediaType => respond(stream, "200 OK", "text/plain", json),
            Fault::NoMediaType => {
                let length = json.len();
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{json}")
            }
            Fault::Html => respond(stream, "200 OK", "text/html", PAGE),
            Fault::Status500 => respond(stream, "500 Internal Server Error", "text/html", PAGE),
            Fault::Status429 => respond(stream, "429 Too Many Requests", "text/plain", "later"),
            Fault::EmptyBody => respond(stream, "200 OK", JSON, ""),
            Fault::ClosedInBody | Fault::TooShortBody => {
                let (length, half) = (json.len(), &json[..json.len() / 2]);
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nContent-Length: {length}\r\n\r\n{half}"
                )?;
                if self == Fault::TooShortBody {
                    thread::sleep(TOO_LONG);
                }
                Err(Error::other("closed"))
            }
            Fault::TooSlow => {
                thread::sleep(TOO_LONG);
                respond(stream, "200 OK", JSON, json)
            }
            other => panic!("{other:?} is no fault of HTTP"),
        }
    }

    /// Puts the fault into a stream.
    pub fn apply_to_stream(self, items: &mut Vec<StreamItem>, task: &HeldTask) {
        let numbered = |json| StreamItem { number: None, json };
        let end = items.len() - 1;
        match self {
            Fault::NoEnd | Fault::NeverOver | Fault::ClosedInEvent => drop(items.pop()),
            Fault::EventAfterEnd => items.push(numbered(task.chunk(99))),
            Fault::WorkingAfterEnd => {
                items.push(numbered(task.status_update("TASK_STATE_WORKING")));
            }
            Fault::SubmittedAgain => {
                items.insert(5, numbered(task.status_update("TASK_STATE_SUBMITTED")));
            }
            Fault::UnknownStateInStream => {
                items[1] = numbered(task.status_update("TASK_STATE_SLEEPING"));
            }
            Fault::StateOf03 => {
                items[1].json["statusUpdate"]["status"]["state"] = json!("working");
            }
            Fault::ChunkLeftOut => drop(items.remove(end - 3)),
            Fault::ChunkRepeated => items.insert(7, items[6].clone()),
            Fault::ChunksExchanged => items.swap(6, 7),
            Fault::ChunkReplaced => items[7] = items[6].clone(),
            Fault::NumberLeftOut => {}
            Fault::EventRepeated => items.insert(7, items[6].clone()),
            Fault::NumbersFromOne => {}
            Fault::EventOfAnotherTask => {
                items[6].json["artifactUpdate"]["taskId"] = json!("task-x");
            }
            Fault::TwoTasks => {
                let mut others = items.clone();
                for other in &mut others {
                    let text = other.json.to_string().replace(&task.id, "task-x");
                    other.json = serde_json::from_str(&text).unwrap();
                }
                items.splice(6..6, others);
            }
            Fault::OtherContext => {
                items[6].json["artifactUpdate"]["contextId"] = json!("context-x");
            }
            Fault::FirstEventLost => drop(items.remove(usize::from(items[0].is_task()))),
            Fault::JoinsLate => {
                let parts: Vec<Value> =
                    (1..=10).map(|chunk| json!({ "text": format!("chunk {chunk}") })).collect();
                let mut begun = task.json("TASK_STATE_WORKING");
                begun["artifacts"] = json!([{ "artifactId": "a", "parts": parts }]);
                let number = items[11].number;
                items.splice(..=11, [StreamItem { number, json: json!({ "task": begun }) }]);
            }
            Fault::FirstEventRepeated => {
                let first = usize::from(items[0].is_task());
                items.insert(first, items[first].clone());
            }
            _ => {}
        }
        // Unless the fault is in the numbers, they are right.
        if self == Fault::EventRepeated || self == Fault::FirstEventRepeated {
            return;
        }
        let mut next = items[0].number.unwrap();
        if self == Fault::FirstEventLost {
            return;
        }
        for (index, item) in items.iter_mut().enumerate() {
            match self {
                Fault::NumberLeftOut if index == 6 => next += 1,
                Fault::NumbersFromOne if index == 6 => next = 1,
                _ => {}
            }
            item.number = Some(next);
            next += 1;
        }
    }

    /// The call id in the events of a stream.
    pub fn stream_id(self, id: &Value) -> Value {
        if self == Fault::EventOfAnotherCall { json!("999999") } else { id.clone() }
    }

    /// Writes the faulty part at the end of a stream.
    pub fn before_end_of_stream(
        self,
        stream: &mut TcpStream,
        task: &HeldTask,
    ) -> std::io::Result<()> {
        match self {
            Fault::NeverOver => {
                thread::sleep(TOO_LONG);
                Err(Error::other("closed"))
            }
            Fault::ClosedInEvent => {
                let json = task.status_update("TASK_STATE_COMPLETED").to_string();
                let event = format!("data: {}", &json[..json.len() / 2]);
                write!(stream, "{:x}\r\n{event}\r\n", event.len())?;
                Err(Error::other("closed"))
            }
            _ => Ok(()),
        }
    }
}

impl StreamItem {
    fn is_task(&self) -> bool {
        self.json.get("task").is_some()
    }
}

fn remove(value: &mut Value, member: &str) {
    value.as_object_mut().unwrap().remove(member).unwrap();
}
