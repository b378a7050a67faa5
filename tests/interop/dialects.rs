//! The platforms' dialects, spoken by our client: a task made through each is the same task for an
//! observer of 1.0. What a dialect cannot express is listed here, with its clause.

use serde_json::json;

use super::{
    client::{Call, Client, Fault, Item, Items, Link, Op},
    expected_task::{Expected, stream_in},
    message_spec::{MessageSpec, text_spec},
    model::{Answer, Event, Form, Message, Numbered, Task, V01, V1, V03},
    ours::Ours,
    server::Server,
    variants::{Binding, Carrier, Speaker, Variant},
};

/// A dialect's properties (docs/dialects.md).
struct Dialect {
    name: &'static str,
    variant: Variant,
    /// False: it has only tasks, so a direct message is a completed task.
    has_messages: bool,
    /// False: a stream has no task; its status is sent instead.
    streams_tasks: bool,
    has_subscribe: bool,
    /// False: a send has no configuration.
    has_configuration: bool,
    /// False: all A2A errors have one code.
    names_errors: bool,
}

const fn dialect(name: &'static str, binding: Binding, generation: super::model::Gen) -> Dialect {
    let carrier = match binding {
        Binding::JsonRpc | Binding::Rest | Binding::WebSocket => Carrier::Http1,
        Binding::Grpc => Carrier::Http2,
    };
    Dialect {
        name,
        variant: Variant { binding, generation, carrier, speaker: Speaker::Client },
        has_messages: true,
        streams_tasks: true,
        has_subscribe: true,
        has_configuration: true,
        names_errors: true,
    }
}

/// The four methods of 0.3.
const fn langsmith(binding: Binding) -> Dialect {
    Dialect { has_subscribe: false, has_configuration: false, ..dialect("langsmith", binding, V03) }
}

const fn evo_ai(binding: Binding) -> Dialect {
    Dialect {
        has_messages: false,
        streams_tasks: false,
        has_configuration: false,
        names_errors: false,
        ..dialect("evo_ai", binding, V03)
    }
}

const fn rabbithole(binding: Binding) -> Dialect {
    Dialect {
        has_messages: false,
        streams_tasks: false,
        has_subscribe: false,
        ..dialect("rabbithole", binding, V01)
    }
}

/// Every endpoint of a platform's dialect, as in `doors`.
const DIALECTS: &[Dialect] = &[
    langsmith(Binding::JsonRpc),
    langsmith(Binding::WebSocket),
    Dialect { has_subscribe: false, ..dialect("langsmith", Binding::JsonRpc, V1) },
    evo_ai(Binding::JsonRpc),
    evo_ai(Binding::WebSocket),
    rabbithole(Binding::JsonRpc),
    rabbithole(Binding::WebSocket),
    dialect("a2a_rust", Binding::JsonRpc, V1),
    dialect("a2a_rust", Binding::Rest, V1),
    dialect("a2a_rust", Binding::WebSocket, V1),
    dialect("a2a_rust", Binding::Grpc, V1),
    dialect("tutorial", Binding::JsonRpc, V03),
    dialect("fasta2a", Binding::JsonRpc, V03),
];

/// A client of a dialect.
struct DialectClient<'s> {
    dialect: &'s Dialect,
    link: Ours,
}

impl DialectClient<'_> {
    fn form(&self) -> Form {
        match self.dialect.name {
            // Its status is in the form of 0.1, its artifacts are in that of 0.3.
            "fasta2a" => Form::V1,
            _ => self.dialect.variant.form(),
        }
    }

    fn params(&self, spec: &MessageSpec) -> serde_json::Value {
        let mut params = Form::Canonical.send_params(spec);
        if !self.dialect.has_configuration {
            params["configuration"].take();
        }
        params
    }

    fn send(&mut self, spec: &MessageSpec) -> Answer {
        let call = Call::new(Op::Send, self.params(spec));
        Form::Canonical.answer(&self.link.call(&call).expect("an answer"))
    }

    fn about(&mut self, op: Op, task: &Task) -> Result<Task, Fault> {
        let params = json!({"id": task.id, "contextId": task.context, "historyLength": 10});
        let value = self.link.call(&Call::new(op, params))?;
        Ok(Form::Canonical.task(&value).without_generated_ids(self.dialect.variant.generation))
    }

    fn events(&mut self, op: Op, params: serde_json::Value) -> Vec<Numbered> {
        let mut items = self.link.open(&Call::new(op, params)).expect("a stream");
        std::iter::from_fn(|| next(&mut *items)).collect()
    }
}

fn next(items: &mut dyn Items) -> Option<Numbered> {
    match items.next() {
        Item::Event { seq, value } => Some(Numbered { seq, event: Form::Canonical.event(&value) }),
        Item::Fault(fault) => panic!("a fault in a stream: {fault:?}"),
        Item::End => None,
    }
}

/// Runs a scenario in every dialect; the observer speaks 1.0 by hand.
fn in_every_dialect(mut scenario: impl FnMut(&mut DialectClient<'_>, &mut Client)) {
    let mounts: Vec<String> =
        DIALECTS.iter().map(|dialect| format!("/{}={}", dialect.name, dialect.name)).collect();
    let once: std::collections::BTreeSet<&str> = mounts.iter().map(String::as_str).collect();
    let flags: Vec<&str> = once.into_iter().flat_map(|mount| ["--mount", mount]).collect();
    let server = Server::with(&flags);
    for dialect in DIALECTS {
        let Variant { binding, generation, .. } = dialect.variant;
        eprintln!("in {} over {binding:?}, {generation:?}:", dialect.name);
        let link = Ours::in_dialect(&server.endpoint, dialect.variant, Some(dialect.name));
        scenario(&mut DialectClient { dialect, link }, &mut server.observer());
    }
}

/// A message in its own conversation: LangSmith has no task without one.
fn in_own_context(text: &str, client: &DialectClient<'_>) -> MessageSpec {
    let spec = text_spec(text);
    let context = format!("{}-{}", client.dialect.name, spec.id);
    spec.within(&context)
}

#[test]
fn dialect_client_and_1_0_observer_see_the_same_task() {
    in_every_dialect(|client, observer| {
        let (spec, made) = (in_own_context("done", client), client.dialect.variant.generation);
        let task = client.send(&spec).task().without_generated_ids(made);
        let mut expects = Expected::begun(&task.id, spec.context.as_deref().unwrap(), &spec);
        expects.done();
        assert_eq!(task, expects.in_form(client.form(), made));
        assert_eq!(client.about(Op::Get, &task).unwrap(), task);
        let target = super::client::Target { id: task.id, made };
        assert_eq!(observer.get(&target).unwrap(), expects.in_form(Form::V1, made));
    });
}

#[test]
fn stream_in_every_dialect_has_the_expected_events() {
    in_every_dialect(|client, _| {
        let (spec, made) = (in_own_context("done", client), client.dialect.variant.generation);
        let seen = client.events(Op::Stream, client.params(&spec));
        let (id, context) = match &seen[0].event {
            Event::Task(task) => (task.id.clone(), task.context.clone()),
            Event::Status { task, .. } => (task.clone(), String::new()),
            other => panic!("{other:?}"),
        };
        let mut expects = Expected::begun(&id, &context, &spec);
        let mut events = vec![expects.shown()];
        events.extend(expects.done());
        let form = client.form();
        let mut expected = stream_in(form, made, &events);
        if !client.dialect.streams_tasks {
            expected[0] = stream_in(Form::V01, made, &events[..1]).remove(0);
        }
        assert_eq!(seen, expected);
    });
}

#[test]
fn cancel_in_a_dialect_is_seen_by_the_1_0_observer() {
    in_every_dialect(|client, observer| {
        let (spec, made) = (in_own_context("hold", client), client.dialect.variant.generation);
        let mut task = client.send(&spec).task();
        task.context = spec.context.clone().unwrap();
        let canceled = client.about(Op::Cancel, &task).unwrap();
        assert_eq!((&canceled.id, canceled.state.as_str()), (&task.id, "canceled"));
        let target = super::client::Target { id: task.id.clone(), made };
        assert_eq!(observer.get(&target).unwrap().state, "canceled");
        match client.about(Op::Cancel, &task) {
            Ok(again) => assert!(made == V1 && again == canceled),
            Err(fault) => {
                assert_ne!(made, V1, "{fault:?}");
                assert_named(client.dialect, &fault, "TaskNotCancelableError");
            }
        }
    });
}

fn assert_named(dialect: &Dialect, fault: &Fault, name: &str) {
    let reason = fault.reason.as_deref();
    assert_eq!(reason, dialect.names_errors.then_some(name), "{}: {fault:?}", dialect.name);
    assert!(!fault.message.is_empty());
}

#[test]
fn unknown_task_is_reported_by_name_if_dialect_names_errors() {
    in_every_dialect(|client, _| {
        let missing = Expected::begun("nobody", "nowhere", &text_spec("x")).task;
        for op in [Op::Get, Op::Cancel] {
            let fault = client.about(op, &missing).unwrap_err();
            assert_named(client.dialect, &fault, "TaskNotFoundError");
        }
    });
}

#[test]
fn direct_message_is_a_message_or_a_completed_task() {
    in_every_dialect(|client, _| {
        let spec = in_own_context("ping", client);
        let (message, state): (Message, _) = match client.send(&spec) {
            Answer::Message(message) => (message, None),
            Answer::Task(task) => (task.message.expect("a message"), Some(task.state)),
        };
        assert_eq!(message.first_text(), "pong");
        let expected = (!client.dialect.has_messages).then(|| "completed".to_owned());
        assert_eq!(state, expected);
    });
}

#[test]
fn subscribe_in_a_dialect_resumes_after_the_last_event() {
    in_every_dialect(|client, observer| {
        if !client.dialect.has_subscribe {
            return;
        }
        let spec = in_own_context("hold", client);
        let task = client.send(&spec).task();
        let context = spec.context.as_deref().unwrap();
        let mut expects = Expected::begun(&task.id, context, &spec);
        expects.status("working", "");
        let after = Some((expects.seq, super::client::By::Field));
        let made = client.dialect.variant.generation;
        let params = json!({"id": task.id});
        let call = Call { after, ..Call::new(Op::Subscribe, params) };
        let mut items = client.link.open(&call).expect("a stream");
        let events = super::streams::finish(observer, &mut expects);
        let seen: Vec<_> = std::iter::from_fn(|| next(&mut *items)).collect();
        assert_eq!(seen, stream_in(client.form(), made, &events));
    });
}
