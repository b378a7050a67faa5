//! The interface between a scenario and a binding: values in and out, over a real socket.

use serde_json::{Value, json};

use super::{
    message_spec::MessageSpec,
    model::{Answer, Event, Gen, Numbered, Page, Task},
    variants::Variant,
};

/// An operation of A2A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    PushSet,
    PushGet,
    PushList,
    PushDelete,
    ExtendedCard,
}

/// Where a client sends the version and the last event seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A header, or the binding's equivalent.
    Field,
    /// The query, where the binding has one.
    Query,
}

/// A call, with params in its own form.
#[derive(Clone, Debug)]
pub struct Call {
    pub op: Op,
    pub params: Value,
    /// The last event seen.
    pub after: Option<(u64, By)>,
    /// A version other than the generation's.
    pub version: Option<(&'static str, By)>,
}

/// A refusal, with all that the binding reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fault {
    /// JSON-RPC code.
    pub code: Option<i64>,
    /// HTTP status.
    pub http: Option<u16>,
    /// Name of the gRPC status.
    pub status: Option<String>,
    /// `reason` of the ErrorInfo.
    pub reason: Option<String>,
    /// Fields of the BadRequest, or the field that 0.x names.
    pub fields: Vec<String>,
    pub message: String,
}

/// An item of a stream.
#[derive(Clone, Debug)]
pub enum Item {
    Event { seq: Option<u64>, value: Value },
    Fault(Fault),
    End,
}

/// A stream.
pub trait Items {
    fn next(&mut self) -> Item;
}

/// Requests that are not valid calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Junk {
    /// Bytes that cannot be parsed.
    Unreadable,
    /// Parsed, but not a request.
    NotARequest,
    /// A method, path or rpc that does not exist.
    NoSuchMethod,
    /// Content of an unsupported type.
    MediaType,
}

/// A binding.
pub trait Link: Send {
    /// Requests one answer.
    fn call(&mut self, call: &Call) -> Result<Value, Fault>;

    /// Requests a stream. A binding that sends nothing before the first event reports a refusal in
    /// its place.
    fn open(&mut self, call: &Call) -> Result<Box<dyn Items>, Fault>;

    /// Sends junk; `None` if the binding cannot express it.
    fn junk(&mut self, junk: Junk) -> Option<Fault>;
}

/// A task, and the generation by which it was made.
#[derive(Clone, Debug)]
pub struct Target {
    pub id: String,
    pub made: Gen,
}

/// Which tasks to list.
#[derive(Clone, Debug, Default)]
pub struct Filter<'a> {
    pub context: Option<&'a str>,
    pub state: Option<&'a str>,
    pub size: Option<u32>,
    pub token: Option<&'a str>,
    pub artifacts: bool,
    pub history: Option<u32>,
}

/// A client of one pair.
pub struct Client {
    pub variant: Variant,
    pub link: Box<dyn Link>,
}

/// A stream, read into events.
pub struct Stream {
    items: Box<dyn Items>,
    form: super::model::Form,
    made: Gen,
}

impl Call {
    pub fn new(op: Op, params: Value) -> Call {
        Call { op, params, after: None, version: None }
    }
}

impl Client {
    pub fn send(&mut self, spec: &MessageSpec) -> Result<Answer, Fault> {
        let form = self.variant.value_form(self.variant.form());
        let value = self.link.call(&Call::new(Op::Send, form.send_params(spec)))?;
        Ok(form.answer(&value))
    }

    pub fn stream(&mut self, spec: &MessageSpec) -> Result<Stream, Fault> {
        let form = self.variant.value_form(self.variant.form());
        let items = self.link.open(&Call::new(Op::Stream, form.send_params(spec)))?;
        Ok(Stream { items, form, made: self.variant.generation })
    }

    /// Reads a task with ten messages of its history.
    pub fn get(&mut self, target: &Target) -> Result<Task, Fault> {
        self.get_with(target, 10)
    }

    pub fn get_with(&mut self, target: &Target, history: u32) -> Result<Task, Fault> {
        let params = json!({"id": target.id, "historyLength": history});
        let value = self.link.call(&Call::new(Op::Get, params))?;
        Ok(self.form_for(target).task(&value).without_generated_ids(target.made))
    }

    pub fn list(&mut self, filter: &Filter<'_>) -> Result<Page, Fault> {
        let mut params = json!({});
        let mut set = |key: &str, value: Value| {
            if !value.is_null() {
                params[key] = value;
            }
        };
        set("contextId", filter.context.into());
        set("status", filter.state.into());
        set("pageSize", filter.size.into());
        set("pageToken", filter.token.into());
        set("historyLength", filter.history.into());
        set("includeArtifacts", filter.artifacts.then_some(true).into());
        let value = self.link.call(&Call::new(Op::List, params))?;
        Ok(self.variant.value_form(self.variant.form()).page(&value))
    }

    pub fn cancel(&mut self, target: &Target) -> Result<Task, Fault> {
        let value = self.link.call(&Call::new(Op::Cancel, json!({"id": target.id})))?;
        Ok(self.form_for(target).task(&value).without_generated_ids(target.made))
    }

    pub fn subscribe(&mut self, target: &Target) -> Result<Stream, Fault> {
        self.subscribe_after(target, None)
    }

    pub fn subscribe_after(
        &mut self,
        target: &Target,
        after: Option<(u64, By)>,
    ) -> Result<Stream, Fault> {
        let call = Call { after, ..Call::new(Op::Subscribe, json!({"id": target.id})) };
        let items = self.link.open(&call)?;
        Ok(Stream { items, form: self.form_for(target), made: target.made })
    }

    /// The fault that the call is answered with, unary or streamed.
    pub fn fault(&mut self, call: &Call) -> Fault {
        let variant = self.variant;
        let answer = match call.op {
            Op::Stream | Op::Subscribe => {
                match self.link.open(call).map(|mut items| items.next()) {
                    Ok(Item::Fault(fault)) if !variant.heads_streams() => return fault,
                    answer => answer.map(|item| format!("{item:?}")),
                }
            }
            _ => self.link.call(call).map(|value| value.to_string()),
        };
        answer.map_or_else(|fault| fault, |answer| panic!("{variant:?}, {call:?}: {answer}"))
    }

    /// The form of a task in the answer to a read, a cancel or a subscription.
    fn form_for(&self, target: &Target) -> super::model::Form {
        self.variant.value_form(self.variant.form_for(target.made))
    }

    /// A task that this client made.
    pub fn target(&self, task: &Task) -> Target {
        Target { id: task.id.clone(), made: self.variant.generation }
    }
}

impl Stream {
    /// The next event; `None` at an orderly end.
    pub fn next(&mut self) -> Option<Numbered> {
        match self.items.next() {
            Item::Event { seq, value } => {
                let event = self.form.event(&value).without_generated_ids(self.made);
                Some(Numbered { seq, event })
            }
            Item::Fault(fault) => panic!("a fault in a stream: {fault:?}"),
            Item::End => None,
        }
    }

    /// The next item.
    pub fn item(&mut self) -> Item {
        self.items.next()
    }

    /// The next event, which must exist.
    pub fn expect(&mut self) -> Numbered {
        self.next().expect("an event before the end")
    }

    /// The fault that ends the stream before its task.
    pub fn fault(&mut self) -> Fault {
        match self.items.next() {
            Item::Fault(fault) => fault,
            other => panic!("no fault: {other:?}"),
        }
    }

    /// All events up to the end.
    pub fn rest(mut self) -> Vec<Numbered> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// The task of the first event, and that event.
    pub fn begin(&mut self) -> (String, Numbered) {
        let first = self.expect();
        let id = match &first.event {
            Event::Task(task) => task.id.clone(),
            Event::Status { task, .. } | Event::Artifact { task, .. } => task.clone(),
            Event::Message(message) => panic!("no task: {message:?}"),
        };
        (id, first)
    }
}
