//! The client's readers and writers are the inverse of the server's, over each binding, generation
//! and dialect.
//!
//! - A call that the client writes arrives at the service as the same call, as far as the
//!   generation can express it; a call it cannot express at all is an error before any byte is
//!   sent.
//! - An answer of the service, read by the client, is the JSON of 1.0 that a server of 1.0 writes
//!   for it, as far as the generation can express it.
//! - The client reads the push configurations that it writes.
//!
//! Protocol buffer messages hold JSON as a `Struct`, in which each number is a double.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use peregrine::{
    binding::{
        grpc::{fields::v03::create_task_push_notification_config_request, frame},
        interfaces::Binding,
    },
    client::{
        CallError, CallId, Format, FormatBuffers, HttpMethod, ReplyHead, WrittenCall,
        format::push_json,
    },
    dialect::{self, Wire, WriteCx, rest},
    engine::{Mount, Setup, Tenants},
    fault::{Fault, FaultKind},
    json::{Kind, Parser, Value},
    model::{
        Artifact, Call, CallBuf, Generation, JsonObject, Message, Op, OutgoingCall, Profile,
        PushCall, PushConfig, PushConfigBuf, PushFilter, PushForm, PushReply, PushRequest, RawText,
        Received, ReceivedKind, Reply, Send, SendMode, Target, TaskBuf, TaskEvent, TaskState,
        call::{Get, List},
        pack::{Packer, artifact_tag, part_tag},
    },
    pb::Fields,
    service::{
        AgentIndex, Answer, CallCx, Cursor, Each, Follow, Lifecycle, Outcome, Service,
        StreamResponse, WaitHandle,
    },
    sse::SseParser,
};
use proptest::{
    prelude::*,
    test_runner::{TestCaseResult, TestRunner},
};

use crate::{
    carriers::{Exchanges, Sockets},
    dialect::{FRESH, MessageModel, expressible, identifier, message, metadata},
    support::Lab,
};

use Generation::{V01, V1, V03};

/// A format, the path where it is served, and the families of its writers.
struct ServedFormat {
    format: Format,
    path: &'static str,
    wire: &'static Wire,
}

/// All formats.
fn all_formats() -> Vec<ServedFormat> {
    let mut all = Vec::new();
    let paths = [
        ("standard", ""),
        ("langsmith", "/langsmith"),
        ("evo_ai", "/evo_ai"),
        ("rabbithole", "/rabbithole"),
        ("a2a_rust", "/a2a_rust"),
        ("tutorial", "/tutorial"),
        ("fasta2a", "/fasta2a"),
    ];
    for (name, path) in paths {
        let dialect = dialect::by_name(name).unwrap();
        for generation in [V01, V03, V1] {
            let sends = |method: &&dialect::Method| {
                method.op == Op::Send && method.generation() == generation
            };
            let Some(row) = dialect.methods.iter().find(sends) else { continue };
            let format = Format::of_dialect(Binding::JsonRpc, generation, name).unwrap();
            all.push(ServedFormat { format, path, wire: row.wire });
        }
    }
    for form in [&rest::V1, &rest::V03] {
        let wire = form.method(Op::Send).unwrap().wire;
        let format = Format::standard(Binding::HttpJson, form.generation);
        all.push(ServedFormat { format, path: "", wire });
    }
    for generation in [V01, V03, V1] {
        let sends =
            |method: &&dialect::Method| method.op == Op::Send && method.generation() == generation;
        let wire = dialect::STANDARD.methods.iter().find(sends).unwrap().wire;
        let format = Format::standard(Binding::WebSocket, generation);
        all.push(ServedFormat { format, path: "", wire });
    }
    // gRPC has the same restrictions as the proto of HTTP+JSON.
    for (name, form) in [("standard", &rest::V1), ("standard", &rest::V03), ("a2a_rust", &rest::V1)]
    {
        let wire = form.method(Op::Send).unwrap().wire;
        let format = Format::of_dialect(Binding::Grpc, form.generation, name).unwrap();
        all.push(ServedFormat { format, path: "", wire });
    }
    all
}

impl ServedFormat {
    fn name(&self) -> String {
        format!(
            "{} {:?} {:?}",
            self.format.dialect(),
            self.format.generation(),
            self.format.binding()
        )
    }

    /// LangSmith's 0.3, which names the context in calls.
    fn has_threads(&self) -> bool {
        self.format.dialect() == "langsmith" && self.format.generation() == V03
    }

    /// Formats that have tasks only, without a context in their events.
    fn is_like_v01(&self) -> bool {
        self.format.generation() == V01 || self.format.dialect() == "evo_ai"
    }

    /// The proto of 0.3, as JSON or not.
    fn is_v03_proto(&self) -> bool {
        let is_proto = matches!(self.format.binding(), Binding::HttpJson | Binding::Grpc);
        is_proto && self.format.generation() == V03
    }

    /// Protocol buffer messages, in which JSON is a `Struct`.
    fn is_struct(&self) -> bool {
        self.format.binding() == Binding::Grpc && self.format.dialect() != "a2a_rust"
    }

    /// JSON in a comparable form.
    fn comparable(&self, json: &str) -> String {
        sorted(Parser::new().parse(json.as_bytes(), 64).expect(json), self.is_struct())
    }
}

/// The answer of the service.
#[derive(Clone, Default)]
enum Scripted {
    #[default]
    Nothing,
    Fault(Fault),
    Task(TaskBuf),
    Message(Vec<u8>),
    Page(Vec<TaskBuf>),
    Push(PushConfigBuf),
}

/// Records the call, and answers with the given value.
struct Mirror {
    scripted: Mutex<Scripted>,
    recorded: Mutex<Option<(CallBuf, Option<String>)>>,
    profile: Arc<Profile>,
}

impl Lifecycle for Mirror {}

impl Service for Mirror {
    fn call(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let tenant = cx.caller.tenant.map(str::to_owned);
        *self.recorded.lock().unwrap() = Some((CallBuf::of(&call), tenant));
        let is_stream = match call {
            Call::Send(send) => send.mode == SendMode::Stream,
            Call::Subscribe(_) => true,
            _ => false,
        };
        match &*self.scripted.lock().unwrap() {
            Scripted::Nothing => return Err(Fault::new(FaultKind::Internal)),
            Scripted::Fault(fault) => return Err(fault.clone()),
            Scripted::Task(task) if is_stream => {
                let generation = task.view().generation();
                let cursor = Cursor { snapshot: true, ..Cursor::default() };
                return Ok(Outcome::Stream { cursor, generation });
            }
            Scripted::Task(task) => answer(Reply::Task { view: task.view(), history: Some(99) }),
            Scripted::Message(packed) => answer(Reply::Message {
                message: Message::from_packed(packed).unwrap(),
                context_id: RawText::parse("c").unwrap(),
            }),
            Scripted::Page(tasks) => {
                answer(Reply::PageStart);
                for task in tasks {
                    let (view, history, artifacts) = (task.view(), Some(99), true);
                    answer(Reply::PageTask { view, history, artifacts });
                }
                answer(Reply::PageEnd { next: "more", page_size: 50, total: 51 });
            }
            Scripted::Push(config) => answer_push(&call, config.view(), answer),
        }
        Ok(Outcome::Answered)
    }

    fn poll(
        &self,
        _: &mut WaitHandle,
        _: &Waker,
        _: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        Poll::Pending
    }

    fn follow(&self, cursor: &mut Cursor, _: &Waker, each: &mut Each<'_>) -> Follow {
        match &*self.scripted.lock().unwrap() {
            Scripted::Task(task) => cursor.show_new(task.task(), each),
            Scripted::Nothing
            | Scripted::Fault(_)
            | Scripted::Message(_)
            | Scripted::Page(_)
            | Scripted::Push(_) => Follow::Gone,
        }
    }

    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        (agent.0 == 0).then(|| Arc::clone(&self.profile))
    }

    fn has_push(&self) -> bool {
        true
    }
}

/// The configuration, a list with it twice, or a deletion.
fn answer_push(call: &Call<'_>, config: PushConfig<'_>, answer: &mut Answer<'_>) {
    let Call::Push(PushRequest { call, .. }) = call else { panic!("it is about configurations") };
    let task_id = config.task_id().unwrap_or_default();
    let replies = match call {
        PushCall::Set(_) | PushCall::Get { .. } => vec![PushReply::Config { task_id, config }],
        PushCall::List { .. } => {
            let listed = PushReply::Listed { task_id, config };
            vec![PushReply::ListStart, listed, listed, PushReply::ListEnd { next: "more" }]
        }
        PushCall::Delete { .. } => vec![PushReply::Deleted],
    };
    replies.into_iter().for_each(|reply| answer(Reply::Push(reply)));
}

/// A server with every dialect mounted, and its service.
struct MirrorServer {
    lab: Lab,
    mirror: Arc<Mirror>,
    sockets: Sockets,
    exchanges: Exchanges,
    buffers: FormatBuffers,
    written: WrittenCall,
}

impl MirrorServer {
    fn new() -> MirrorServer {
        let profile = Arc::new(Profile::new("mirror", "Says what it is told."));
        let (scripted, recorded) = (Mutex::default(), Mutex::default());
        let mirror = Arc::new(Mirror { scripted, recorded, profile });
        let names = dialect::ALL.iter().map(|dialect| dialect.name);
        let mount =
            |name: &str| Mount { path: format!("/{name}"), dialect: name.to_owned(), agent: None };
        let mounts = names.filter(|name| *name != "standard").map(mount).collect();
        let service: Option<Arc<dyn Service>> = Some(mirror.clone());
        let lab = Lab::new(Setup { service, mounts, tenants: Tenants::Any, ..Setup::default() });
        let (buffers, written) = (FormatBuffers::default(), WrittenCall::default());
        let (exchanges, sockets) = (Exchanges::new(&lab), Sockets::default());
        MirrorServer { lab, mirror, sockets, exchanges, buffers, written }
    }

    /// The server's answer to the last written call: head and content.
    fn send_http(&mut self, served: &ServedFormat) -> (u16, Option<String>, Vec<u8>) {
        let written = &self.written;
        let path = format!("{}{}", served.path, written.path);
        let path = if path.is_empty() { "/" } else { &path };
        let mut head = format!("{} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n", written.method.name());
        head += &format!("Accept: {}\r\n", written.accept);
        if let Some(version) = served.format.version_header() {
            head += &format!("A2A-Version: {version}\r\n");
        }
        if let Some(content_type) = written.content_type {
            head += &format!("Content-Type: {content_type}\r\n");
        }
        if written.method == HttpMethod::Post {
            head += &format!("Content-Length: {}\r\n", written.body.len());
        } else {
            assert!(written.body.is_empty());
        }
        let reply = self.lab.ask(&[head.as_bytes(), b"\r\n", &written.body].concat());
        let content_type = reply.field("content-type").map(str::to_owned);
        (reply.status, content_type, reply.body)
    }

    /// Writes a call and sends it; returns the canonical JSON of all answers. `None`: this format
    /// cannot express the call.
    fn call(
        &mut self,
        served: &ServedFormat,
        call: &OutgoingCall<'_>,
        tenant: Option<&str>,
        scripted: Scripted,
    ) -> Option<Vec<String>> {
        let answered = self.try_call(served, call, tenant, scripted)?;
        Some(answered.unwrap_or_else(|error| panic!("{}: {error}", served.name())))
    }

    fn try_call(
        &mut self,
        served: &ServedFormat,
        call: &OutgoingCall<'_>,
        tenant: Option<&str>,
        scripted: Scripted,
    ) -> Option<Result<Vec<String>, CallError>> {
        served.format.write(call, 7, tenant, &mut self.written).ok()?;
        *self.mirror.scripted.lock().unwrap() = scripted;
        *self.mirror.recorded.lock().unwrap() = None;
        Some(match served.format.binding() {
            Binding::JsonRpc | Binding::HttpJson => self.call_http(served, call.op()),
            Binding::WebSocket => self.call_socket(served, call.op()),
            Binding::Grpc => self.call_rpc(served, call.op()),
        })
    }

    fn call_http(&mut self, served: &ServedFormat, op: Op) -> Result<Vec<String>, CallError> {
        let (status, content_type, body) = self.send_http(served);
        let content_type = content_type.map(String::into_bytes);
        let head = ReplyHead { status, content_type: content_type.as_deref() };
        let (format, mut received) = (&served.format, Received::new());
        if !head.is_event_stream() {
            format.read_reply(
                &mut self.buffers,
                CallId { op, rpc_id: 7 },
                head,
                &body,
                &mut received,
            )?;
            return Ok(vec![json(&received, op)]);
        }
        let (mut parser, mut rest, mut items) = (SseParser::new(1 << 24), &*body, Vec::new());
        while !rest.is_empty() {
            let step = parser.advance(rest).unwrap();
            rest = &rest[step.ate..];
            let Some(event) = step.event else { continue };
            let (data, is_error) = (event.data, event.kind == "error");
            format.read_item(&mut self.buffers, 7, data, is_error, &mut received)?;
            items.push(json(&received, op));
        }
        Ok(items)
    }

    fn call_socket(&mut self, served: &ServedFormat, op: Op) -> Result<Vec<String>, CallError> {
        let MirrorServer { lab, sockets, buffers, written, .. } = self;
        assert!(written.path.is_empty());
        let (format, mut received, mut items) = (&served.format, Received::new(), Vec::new());
        for message in sockets.call(lab, format, &written.body) {
            let head = ReplyHead { status: 200, content_type: None };
            match op.is_streaming() {
                true => format.read_item(buffers, 7, &message, false, &mut received)?,
                false => format.read_reply(
                    buffers,
                    CallId { op, rpc_id: 7 },
                    head,
                    &message,
                    &mut received,
                )?,
            }
            // Only this ends a stream on an open connection.
            if op.is_streaming() && received.kind() == ReceivedKind::Nothing {
                return Ok(items);
            }
            items.push(json(&received, op));
        }
        assert!(!op.is_streaming(), "a stream without an end: {items:?}");
        Ok(items)
    }

    fn call_rpc(&mut self, served: &ServedFormat, op: Op) -> Result<Vec<String>, CallError> {
        let answer = self.exchanges.call(&self.lab, &served.format, &self.written);
        let (mut received, mut items) = (Received::new(), Vec::new());
        for message in answer.messages() {
            served.format.read_message(&mut self.buffers, op, message, &mut received)?;
            items.push(json(&received, op));
        }
        served.format.grpc_end(answer.head(), answer.end())?;
        Ok(items)
    }

    fn recorded(&self) -> (CallBuf, Option<String>) {
        self.mirror.recorded.lock().unwrap().take().expect("a call")
    }
}

/// The received answer in canonical form.
fn json(received: &Received, op: Op) -> String {
    let mut out = Vec::new();
    push_json(&mut out, received, op);
    String::from_utf8(out).unwrap()
}

/// A message that this format can express.
fn fitting(message: &MessageModel, served: &ServedFormat) -> MessageModel {
    let mut message = expressible(message, served.wire);
    if served.is_struct() {
        without_empty_names(&mut message);
        // The member that marks wrapped data occurs once, and alone it is not metadata.
        for part in message.parts.iter_mut().filter(|_| served.is_v03_proto()) {
            let is_wrapped = part.content.0 == part_tag::DATA && !part.content.1.starts_with('{');
            part.metadata.take_if(|text| is_wrapped && text.contains("data_part_compat"));
        }
    }
    message
}

/// An empty name is unset.
fn without_empty_names(message: &mut MessageModel) {
    for part in &mut message.parts {
        part.filename.take_if(|name| name.is_empty());
        part.media_type.take_if(|name| name.is_empty());
    }
}

/// A message that a server sends and that survives the format unchanged.
fn fitting_reply(message: &MessageModel, served: &ServedFormat) -> MessageModel {
    let mut message = fitting(message, served);
    if served.format.generation() == V01 {
        message.id.clear();
    }
    without_empty_names(&mut message);
    message
}

fn raw(text: &str) -> RawText<'_> {
    RawText::parse(text).unwrap()
}

fn object(text: &Option<String>) -> Option<JsonObject<'_>> {
    text.as_deref().map(|text| JsonObject::parse(text).unwrap())
}

/// The model packed, with the role of the agent.
fn by_agent(message: &MessageModel) -> Vec<u8> {
    const USER: &[u8] = &[4, 1, 0, 0, 0, 1];
    let mut packed = message.pack();
    let at = packed.windows(USER.len()).position(|window| window == USER).unwrap();
    packed[at + USER.len() - 1] = 2;
    packed
}

/// A task with all members, from messages that fit.
fn task(
    served: &ServedFormat,
    messages: &[MessageModel; 4],
    state: TaskState,
    context: &str,
) -> TaskBuf {
    let [user, working, whole, done] =
        messages.each_ref().map(|message| fitting_reply(message, served));
    let mut task = TaskBuf::new("t-1", context, served.format.generation()).unwrap();
    let user = user.pack();
    task.user_message(Message::from_packed(&user).unwrap()).unwrap();
    let meta = object(&whole.metadata);
    let packed_message = by_agent(&working);
    let message = Some(Message::from_packed(&packed_message).unwrap());
    let (at_ms, state_now) = (1_790_000_000_123, TaskState::Working);
    let status = TaskEvent::Status { state: state_now, at_ms, message, metadata: meta };
    task.apply(&status).unwrap();
    for (id, append) in [("0", false), ("1", false), ("1", true), ("0", true)] {
        let mut packed = Vec::new();
        let mut packer = Packer(&mut packed);
        packer.put(artifact_tag::ARTIFACT_ID, id.as_bytes());
        if !append {
            packer.put(artifact_tag::NAME, b"n\\n");
            packer.put_some(artifact_tag::METADATA, whole.metadata.as_deref().map(str::as_bytes));
        }
        let pack = whole.pack();
        for part in Message::from_packed(&pack).unwrap().parts() {
            packer.put(artifact_tag::PART, part.packed());
        }
        if !append && served.format.generation() != V01 {
            packer.put(artifact_tag::EXTENSION, b"https://e");
        }
        let artifact = Artifact::from_packed(&packed).unwrap();
        let last_chunk = append;
        task.apply(&TaskEvent::Artifact { artifact, append, last_chunk, metadata: meta }).unwrap();
    }
    let packed_message = by_agent(&done);
    let message = Some(Message::from_packed(&packed_message).unwrap());
    let last = TaskEvent::Status { state, at_ms: at_ms + 1, message, metadata: None };
    task.apply(&last).unwrap();
    task
}

/// JSON with its members ordered by name; the rest is unchanged, or has one text for each value of
/// a `Struct`.
fn sorted(value: Value<'_>, is_struct: bool) -> String {
    match value.kind() {
        Kind::Object => {
            let members = value.members();
            let mut members: Vec<String> = members
                .map(|(key, value)| {
                    let key = String::from_utf8_lossy(key.raw());
                    format!("{key}:{}", sorted(value, is_struct))
                })
                .collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        Kind::Array => {
            let elements = value.elements().map(|element| sorted(element, is_struct));
            format!("[{}]", elements.collect::<Vec<_>>().join(","))
        }
        Kind::Number if is_struct => {
            let number: f64 = value.raw_str().parse().unwrap();
            format!("{:?}", number.clamp(-f64::MAX, f64::MAX))
        }
        Kind::String if is_struct => {
            format!("{:?}", String::from_utf8_lossy(&value.text().unwrap()))
        }
        Kind::Null | Kind::Bool(_) | Kind::Number | Kind::String => value.raw_str().to_owned(),
    }
}

/// The output of a server of 1.0 for a reply.
fn v1_reply(served: &ServedFormat, op: Op, replies: &[Reply<'_>]) -> String {
    let mut out = Vec::new();
    for reply in replies {
        (dialect::V1.encode.reply)(&mut out, reply, &WriteCx::new(op));
    }
    served.comparable(str::from_utf8(&out).unwrap())
}

/// The output of a server of 1.0 for a stream of a task.
fn v1_stream(served: &ServedFormat, task: &TaskBuf) -> Vec<String> {
    let mut items = Vec::new();
    let mut cursor = Cursor { snapshot: true, ..Cursor::default() };
    let end = cursor.show_new(task.task(), &mut |item: StreamResponse<'_>| {
        let mut out = Vec::new();
        assert!((dialect::V1.encode.event)(&mut out, &item, &WriteCx::new(Op::Stream)));
        items.push(served.comparable(str::from_utf8(&out).unwrap()));
        true
    });
    assert_eq!(end, Follow::End);
    items
}

fn states(served: &ServedFormat) -> &'static [TaskState] {
    match served.is_like_v01() {
        true => &[TaskState::Completed, TaskState::Failed, TaskState::Canceled],
        false => &[TaskState::Completed, TaskState::Canceled, TaskState::Rejected],
    }
}

/// A send of this message without changes.
fn send<'a>(packed: &'a [u8], mode: SendMode) -> Send<'a> {
    Send {
        has_own_id: true,
        message: Message::from_packed(packed).unwrap(),
        task_id: None,
        client_chooses_id: false,
        context_id: None,
        mode,
        history: None,
        accepted_output_modes: None,
        metadata: None,
        push: None,
        generation: V1,
    }
}

fn check<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value) -> TestCaseResult) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&strategy, test).unwrap();
}

/// The parameters of a send in addition to the message.
#[derive(Clone, Debug)]
struct SendOptions {
    context: Option<String>,
    task: Option<String>,
    history: Option<u32>,
    modes: Option<&'static str>,
    metadata: Option<String>,
    mode: SendMode,
    tenant: Option<&'static str>,
}

fn send_options() -> impl Strategy<Value = SendOptions> {
    let mode = prop::sample::select(vec![SendMode::Wait, SendMode::Return, SendMode::Stream]);
    let modes = prop::sample::select(vec![r#"["text/plain","a/b"]"#, "[]"]);
    // LangSmith's calls need both.
    let id = || prop::option::weighted(0.8, identifier());
    let tenant = prop::option::weighted(0.2, prop::sample::select(vec!["acme", "b-2"]));
    let history = prop::option::of(0..10_u32);
    (id(), id(), history, prop::option::of(modes), metadata(), mode, tenant).prop_map(
        |(context, task, history, modes, metadata, mode, tenant)| SendOptions {
            context,
            task,
            history,
            modes,
            metadata,
            mode,
            tenant,
        },
    )
}

/// The length of the history that arrives.
fn history_of(served: &ServedFormat, requested: Option<u32>) -> Option<u32> {
    match served.format.generation() {
        V01 => Some(requested.unwrap_or(0)),
        // Without presence 0 means unset.
        V03 if served.is_struct() => requested.or(Some(i32::MAX as u32)).filter(|count| *count > 0),
        V03 if served.is_v03_proto() => Some(requested.unwrap_or(i32::MAX as u32)),
        V03 | V1 => requested,
    }
}

fn text(raw: Option<RawText<'_>>) -> Option<String> {
    raw.map(|raw| raw.raw_str().to_owned())
}

#[test]
fn send_call_round_trips_in_each_format() {
    let all = all_formats();
    let server = RefCell::new(MirrorServer::new());
    let sent = RefCell::new(vec![0; all.len()]);
    check(128, (message(), send_options()), |(model, options)| {
        for (at, served) in all.iter().enumerate() {
            let mut model = fitting(&model, served);
            // LangSmith splits ids at colons and has no history length.
            let colon = |id: &Option<String>| id.as_ref().is_some_and(|id| id.contains(':'));
            let is_langsmith = served.has_threads();
            if model.parts.is_empty()
                || (is_langsmith && (colon(&model.task) || colon(&options.task)))
            {
                continue;
            }
            let packed = model.pack();
            let outgoing = Send {
                has_own_id: true,
                task_id: options.task.as_deref().map(raw),
                context_id: options.context.as_deref().map(raw),
                history: options.history,
                accepted_output_modes: options.modes.map(str::as_bytes),
                metadata: object(&options.metadata),
                ..send(&packed, options.mode)
            };
            let call = OutgoingCall::Send(outgoing);
            let mut server = server.borrow_mut();
            let scripted = Scripted::Task(task(
                served,
                &[0; 4].map(|_| model.clone()),
                states(served)[0],
                "c",
            ));
            if server.call(served, &call, options.tenant, scripted).is_none() {
                continue;
            }
            sent.borrow_mut()[at] += 1;
            let (recorded, tenant) = server.recorded();
            let Call::Send(recorded) = recorded.view() else { panic!("a send is a send") };
            prop_assert_eq!(tenant.as_deref(), options.tenant, "{}", served.name());
            prop_assert_eq!(recorded.mode, options.mode, "{}", served.name());
            prop_assert_eq!(
                recorded.history,
                history_of(served, options.history),
                "{}",
                served.name()
            );
            let is_rpc_v03 = served.format.generation() == V03 && !served.is_v03_proto();
            let has_configuration = !is_langsmith && served.format.dialect() != "evo_ai";
            let default_modes = Some("[]").filter(|_| is_rpc_v03 && has_configuration);
            let modes = recorded.accepted_output_modes.map(|modes| str::from_utf8(modes).unwrap());
            let is_set = |modes: &&str| !served.is_struct() || *modes != "[]";
            let requested = options.modes.filter(is_set);
            prop_assert_eq!(modes, requested.or(default_modes), "{}", served.name());
            let recorded_metadata =
                recorded.metadata.map(|object| served.comparable(object.as_str()));
            let metadata = options.metadata.as_deref().map(|text| served.comparable(text));
            prop_assert_eq!(&recorded_metadata, &metadata, "{}", served.name());
            let (own_task, own_context) = (model.task.clone(), model.context.clone());
            let task_id = if served.format.generation() == V01 {
                // Without one the client uses the message's id.
                let own_id = Some(model.id.clone()).filter(|id| !id.is_empty());
                options.task.clone().or(own_task).or(own_id)
            } else {
                own_task.or(options.task.clone())
            };
            prop_assert_eq!(text(recorded.task_id), task_id, "{}", served.name());
            let context_id = own_context.or(options.context.clone());
            prop_assert_eq!(text(recorded.context_id), context_id.clone(), "{}", served.name());
            if served.format.generation() == V01 {
                model.id = recorded.message.message_id().raw_str().to_owned();
            } else {
                model.task = model.task.or(options.task.clone());
                if served.format.dialect() != "evo_ai" {
                    model.context = context_id;
                }
            }
            let packed = model.pack();
            if served.is_struct() {
                let shown = |message| {
                    let context_id = RawText::default();
                    v1_reply(served, Op::Send, &[Reply::Message { message, context_id }])
                };
                let sent = shown(Message::from_packed(&packed).unwrap());
                prop_assert_eq!(shown(recorded.message), sent, "{}", served.name());
                continue;
            }
            prop_assert_eq!(recorded.message.packed(), &*packed, "{}", served.name());
        }
        Ok(())
    });
    // Each format accepted at least one call.
    let sent = sent.into_inner();
    assert!(sent.iter().all(|sent| *sent > 0), "{sent:?}");
}

#[test]
fn task_calls_round_trip_in_each_format() {
    let all = all_formats();
    let server = RefCell::new(MirrorServer::new());
    let ids = (identifier(), identifier(), prop::option::of(0..10_u32), metadata());
    check(48, ids, |(id, context, history, meta)| {
        for served in &all {
            let is_langsmith = served.has_threads();
            // Our server refuses a path with an encoded separator or control byte.
            let is_path = served.format.binding() == Binding::HttpJson;
            let hides = id.contains('/') || id.contains("\\n");
            if (is_langsmith && id.contains(':')) || (is_path && hides) {
                continue;
            }
            let mut server = server.borrow_mut();
            let scripted = || {
                Scripted::Task(task(
                    served,
                    &std::array::from_fn(|_| plain()),
                    TaskState::Failed,
                    "c",
                ))
            };
            let get = Get { id: raw(&id), context_id: Some(raw(&context)), history, wait: None };
            let call = OutgoingCall::Get(get);
            prop_assert!(
                server.call(served, &call, None, scripted()).is_some(),
                "{}",
                served.name()
            );
            let recorded = server.recorded().0;
            let Call::Get(ref recorded) = recorded.view() else { panic!("a get is a get") };
            prop_assert_eq!(recorded.id.raw_str(), &*id, "{}", served.name());
            // Params of names that both slash generations share are those of 0.3.
            let is_shared = served.format.generation() == V01 && served.path.is_empty();
            let arrives = if is_shared { history } else { history_of(served, history) };
            prop_assert_eq!(recorded.history, arrives, "{}", served.name());
            let named = is_langsmith.then(|| context.clone());
            prop_assert_eq!(text(recorded.context_id), named.clone(), "{}", served.name());
            for is_cancel in [true, false] {
                let target = Target {
                    id: raw(&id),
                    context_id: Some(raw(&context)),
                    metadata: object(&meta).filter(|_| is_cancel),
                    generation: V1,
                    after: None,
                };
                let call = match is_cancel {
                    true => OutgoingCall::Cancel(target),
                    false => OutgoingCall::Subscribe(target),
                };
                let answered = server.call(served, &call, None, scripted());
                let is_lost = served.is_v03_proto() && is_cancel && meta.is_some();
                let is_offered = served.format.offers(call.op());
                prop_assert_eq!(answered.is_some(), is_offered && !is_lost, "{}", served.name());
                if answered.is_none() {
                    continue;
                }
                let recorded = server.recorded().0;
                let (Call::Cancel(recorded) | Call::Subscribe(recorded)) = recorded.view() else {
                    panic!("a target is a target")
                };
                prop_assert_eq!(recorded.id.raw_str(), &*id, "{}", served.name());
                prop_assert_eq!(text(recorded.context_id), named.clone(), "{}", served.name());
                let recorded = recorded.metadata.map(|object| served.comparable(object.as_str()));
                let sent = meta.as_deref().filter(|_| is_cancel);
                let sent = sent.map(|text| served.comparable(text));
                prop_assert_eq!(recorded, sent, "{}", served.name());
            }
        }
        Ok(())
    });
}

/// A message with one text part.
fn plain() -> MessageModel {
    let part = crate::dialect::PartModel {
        content: (part_tag::TEXT, "x".to_owned()),
        metadata: None,
        filename: None,
        media_type: None,
    };
    MessageModel {
        id: FRESH.to_owned(),
        context: None,
        task: None,
        parts: vec![part],
        metadata: None,
        extensions: Vec::new(),
        references: Vec::new(),
    }
}

#[test]
fn list_call_and_its_page_round_trip_in_each_format() {
    let all = all_formats();
    let server = RefCell::new(MirrorServer::new());
    let numbers = (prop::option::of(1..=100_u32), prop::option::of(0..1_000_u32));
    let rest = (prop::option::of(0..253_402_300_799_999_u64), any::<bool>());
    let state = prop::option::of(prop::sample::select(TaskState::ALL[1..].to_vec()));
    let ids = (prop::option::of(identifier()), prop::option::of(identifier()));
    check(48, (numbers, rest, state, ids, message()), |(numbers, rest, status, ids, model)| {
        for served in all.iter().filter(|served| served.format.offers(Op::List)) {
            let list = List {
                context_id: ids.0.as_deref().map(raw),
                status,
                page_size: numbers.0,
                page_token: ids.1.as_deref().map(str::as_bytes),
                history: numbers.1,
                after_ms: rest.0,
                include_artifacts: rest.1,
            };
            let mut server = server.borrow_mut();
            let model = fitting(&model, served);
            let task = task(served, &[0; 4].map(|_| model.clone()), states(served)[1], "c");
            let scripted = Scripted::Page(vec![task.clone(), task.clone()]);
            let page = server.call(served, &OutgoingCall::List(list), None, scripted).unwrap();
            let recorded = server.recorded().0;
            let Call::List(ref recorded) = recorded.view() else { panic!("a list is a list") };
            prop_assert_eq!(text(recorded.context_id), ids.0.clone(), "{}", served.name());
            prop_assert_eq!(recorded.page_token, ids.1.as_deref().map(str::as_bytes));
            prop_assert_eq!(
                (recorded.status, recorded.page_size, recorded.history, recorded.after_ms),
                (status, numbers.0, numbers.1, rest.0)
            );
            prop_assert_eq!(recorded.include_artifacts, rest.1, "{}", served.name());
            let shown =
                || Reply::PageTask { view: task.view(), history: Some(99), artifacts: true };
            let end = Reply::PageEnd { next: "more", page_size: 50, total: 51 };
            let expected = v1_reply(served, Op::List, &[Reply::PageStart, shown(), shown(), end]);
            prop_assert_eq!(served.comparable(&page[0]), expected, "{}", served.name());
        }
        Ok(())
    });
}

#[test]
fn task_and_stream_replies_read_as_json_of_1_0() {
    let all = all_formats();
    let server = RefCell::new(MirrorServer::new());
    let messages = [message(), message(), message(), message()];
    check(40, (messages, 0..3_usize), |(messages, state)| {
        for served in &all {
            if messages.iter().any(|message| fitting(message, served).parts.is_empty()) {
                continue;
            }
            let mut server = server.borrow_mut();
            let packed = plain().pack();
            let task_now = task(served, &messages, states(served)[state], "c-1");
            let get =
                Get { id: raw("t-1"), context_id: Some(raw("c-1")), history: None, wait: None };
            let scripted = Scripted::Task(task_now.clone());
            let got =
                server.call(served, &OutgoingCall::Get(get), None, scripted).expect("written");
            let reply = Reply::Task { view: task_now.view(), history: Some(99) };
            let expected = v1_reply(served, Op::Get, &[reply]);
            prop_assert_eq!(served.comparable(&got[0]), expected, "{}", served.name());
            for mode in [SendMode::Wait, SendMode::Stream] {
                // Events of some formats have no context; their first event is a status in place of
                // the task.
                let is_less = mode == SendMode::Stream && served.is_like_v01();
                let context = if is_less { "" } else { "c-1" };
                let task = task(served, &messages, states(served)[state], context);
                let id = Some(raw("t-1"));
                let outgoing = Send { task_id: id, ..send(&packed, mode) };
                let call = OutgoingCall::Send(outgoing);
                let scripted = Scripted::Task(task.clone());
                let items = server.call(served, &call, None, scripted).expect("can be expressed");
                let items: Vec<String> = items.iter().map(|item| served.comparable(item)).collect();
                if mode == SendMode::Wait {
                    let reply = Reply::Task { view: task.view(), history: Some(99) };
                    prop_assert_eq!(
                        &items,
                        &vec![v1_reply(served, Op::Send, &[reply])],
                        "{}",
                        served.name()
                    );
                    continue;
                }
                let expected = v1_stream(served, &task);
                prop_assert_eq!(items.len(), expected.len(), "{} {:?}", served.name(), items);
                // Pydantic AI has no name for an unknown state.
                let skipped = usize::from(is_less || served.format.dialect() == "fasta2a");
                for (item, expected) in items.iter().zip(&expected).skip(skipped) {
                    prop_assert_eq!(item, expected, "{}", served.name());
                }
            }
        }
        Ok(())
    });
}

#[test]
fn direct_message_reply_reads_as_json_of_1_0() {
    let all = all_formats();
    let server = RefCell::new(MirrorServer::new());
    check(48, message(), |model| {
        for served in &all {
            let model = fitting_reply(&model, served);
            if model.parts.is_empty() {
                continue;
            }
            let mut server = server.borrow_mut();
            let (packed, packed_reply) = (plain().pack(), by_agent(&model));
            let outgoing = Send { task_id: Some(raw("t-1")), ..send(&packed, SendMode::Wait) };
            let call = OutgoingCall::Send(outgoing);
            let items =
                server.call(served, &call, None, Scripted::Message(packed_reply.clone())).unwrap();
            if served.is_like_v01() {
                // A completed task with that text.
                prop_assert!(items[0].contains("TASK_STATE_COMPLETED"), "{}", served.name());
                continue;
            }
            let (message, context_id) = (Message::from_packed(&packed_reply).unwrap(), raw("c"));
            let expected = v1_reply(served, Op::Send, &[Reply::Message { message, context_id }]);
            prop_assert_eq!(served.comparable(&items[0]), expected, "{}", served.name());
        }
        Ok(())
    });
}

/// The kind that arrives: kinds with one reason or one code are merged.
fn kind_of(served: &ServedFormat, kind: FaultKind) -> Option<FaultKind> {
    let (row, generation) = (kind.row(), served.format.generation());
    if generation == V1 || served.format.binding() == Binding::Grpc {
        return FaultKind::of_reason(row.reason);
    }
    let code = |kind: FaultKind| match generation {
        V01 => kind.row().code_v01,
        V03 | V1 => kind.row().code,
    };
    // Evo AI has one code for all faults outside of JSON-RPC.
    let is_own = served.format.dialect() == "evo_ai" && !(-32700..=-32600).contains(&row.code);
    let has_own_code = code(kind) != -32000 && !is_own;
    FaultKind::ALL.into_iter().find(|other| has_own_code && code(*other) == code(kind))
}

#[test]
fn faults_are_read_with_kind_and_message_in_each_format() {
    const WHY: &str = "50% \u{e4}: \"no\"";
    let (mut server, packed) = (MirrorServer::new(), plain().pack());
    let id = Some(raw("t"));
    let send_call = |mode| {
        OutgoingCall::Send(Send { task_id: id, context_id: Some(raw("c")), ..send(&packed, mode) })
    };
    let get = Get { id: raw("t"), context_id: Some(raw("c")), history: None, wait: None };
    let calls = [OutgoingCall::Get(get), send_call(SendMode::Wait), send_call(SendMode::Stream)];
    for served in all_formats() {
        // Answers to names that both slash generations share are those of 0.3.
        let is_shared = served.format.generation() == V01 && served.path.is_empty();
        for call in &calls[usize::from(is_shared)..] {
            for kind in FaultKind::ALL {
                let scripted = Scripted::Fault(Fault::because(kind, WHY));
                let answered =
                    server.try_call(&served, call, None, scripted).expect("can be expressed");
                let about = format!("{} {:?} {kind:?}", served.name(), call.op());
                let Err(CallError::Fault(fault)) = answered else {
                    panic!("{about}: {answered:?}")
                };
                assert_eq!(fault.kind, kind_of(&served, kind), "{about}: {fault:?}");
                let (dialect, generation) = (served.format.dialect(), served.format.generation());
                let has_reason = dialect != "evo_ai" && (dialect, generation) != ("fasta2a", V03);
                assert_eq!(fault.message.ends_with(WHY), has_reason, "{about}: {fault:?}");
            }
        }
    }
}

/// The service gets the configuration that the client writes, and the client reads the one that the
/// service sends, except credentials, which are not returned.
#[test]
fn push_configurations_and_their_answers_round_trip() {
    let all = all_formats();
    let server = RefCell::new(MirrorServer::new());
    let counts = RefCell::new(vec![0; all.len()]);
    // A path may not have an encoded slash, so HTTP+JSON cannot express each id.
    let texts = ["[a-zé ~_-]{1,12}", "[a-zé ~_-]{1,12}", "[a-z/?=%]{0,12}"];
    let optional = [prop::option::of(identifier()), prop::option::of(identifier())];
    let chosen = (prop::option::of(0..8_u8), prop::option::of(prop::bool::ANY));
    check(48, (texts, optional, chosen), |(texts, [token, credentials], (kinds, coalesce))| {
        let filter = (kinds.is_some() || coalesce.is_some()).then(|| filter(kinds, coalesce));
        let [task_id, id, path] = texts.each_ref().map(|text| raw(text));
        let url = format!("https://h/{}", path.raw_str());
        for (at, served) in all.iter().enumerate() {
            if served.format.dialect() == "evo_ai" {
                // Its one configuration does not belong to a task.
                continue;
            }
            let is_v01 = served.format.generation() == V01;
            let mut config = PushConfigBuf::new(raw(&url)).task_id(task_id);
            if !is_v01 {
                config = config.id(id);
            }
            if let Some(token) = &token {
                config = config.token(raw(token));
            }
            if let Some(credentials) = &credentials {
                config = config.authentication("Bearer", raw(credentials));
            }
            if let Some(filter) = filter
                && !served.is_struct()
            {
                config = config.filter(filter);
            }
            let view = config.view();
            let named = Some(id).filter(|_| !is_v01);
            let mut expected = String::new();
            for call in [
                PushCall::Set(view),
                PushCall::Get { task_id, id: named },
                PushCall::List { task_id, page_size: None, page_token: None },
                PushCall::Delete { task_id, id: named },
            ] {
                let (mut server, outgoing) = (server.borrow_mut(), OutgoingCall::Push(call));
                let scripted = Scripted::Push(config.clone());
                let Some(items) = server.call(served, &outgoing, None, scripted) else { continue };
                counts.borrow_mut()[at] += 1;
                let (recorded, _) = server.recorded();
                let Call::Push(recorded) = recorded.view() else {
                    panic!("it is about configurations")
                };
                prop_assert_eq!(members_of(&recorded.call), members_of(&call), "{}", served.name());
                let found = served.comparable(&items[0]);
                match call {
                    PushCall::Set(_) => {
                        let reply = Reply::Push(PushReply::Config { task_id, config: view });
                        expected = v1_reply(served, Op::PushSet, &[reply]);
                        let is_hidden = !expected.contains("credentials");
                        prop_assert!(is_hidden && found == without_empty_id(&expected));
                    }
                    PushCall::Get { .. } => prop_assert_eq!(found, without_empty_id(&expected)),
                    PushCall::List { .. } => {
                        let both = format!("configs:[{expected},{expected}]");
                        prop_assert!(found.contains(&both), "{} {found}", served.name());
                    }
                    PushCall::Delete { .. } => {}
                }
            }
        }
        Ok(())
    });
    for (served, count) in all.iter().zip(counts.into_inner()) {
        let must = match (served.format.dialect(), served.format.generation()) {
            ("standard" | "a2a_rust", V03 | V1) => 48 * 4,
            ("standard", V01) => 48 * 2,
            _ => 0,
        };
        assert!(count >= must, "{}: {count}", served.name());
    }
}

#[test]
fn evo_ai_push_configuration_has_headers_and_no_task() {
    let all = all_formats();
    let mut server = MirrorServer::new();
    let config = PushConfigBuf::new("https://h").bearer("s").header("X-Own", "\"x\"");
    for served in all.iter().filter(|served| served.format.dialect() == "evo_ai") {
        let call = OutgoingCall::Push(PushCall::Set(config.view()));
        server.call(served, &call, None, Scripted::Push(config.clone())).expect("can be expressed");
        let (recorded, _) = server.recorded();
        let Call::Push(PushRequest { call: PushCall::Set(recorded), form: PushForm::EvoAi }) =
            recorded.view()
        else {
            panic!("a configuration is set")
        };
        let headers: Vec<_> =
            recorded.headers().map(|(name, value)| format!("{name}:{value}")).collect();
        assert_eq!(headers, ["Authorization:Bearer s", "X-Own:\"x\""]);
        assert!(recorded.url() == "https://h" && recorded.task_id().is_none());
    }
}

/// The filter with the kinds of events of these bits.
fn filter(kinds: Option<u8>, coalesce: Option<bool>) -> PushFilter {
    let all = [PushFilter::STATUS, PushFilter::ARTIFACTS, PushFilter::FINAL];
    let filter = kinds.map_or(PushFilter::default(), |kinds| {
        let named = all.into_iter().enumerate().filter(|(at, _)| kinds & 1 << at != 0);
        named.fold(PushFilter::ALL, |filter, (_, kind)| filter.with(kind))
    });
    coalesce.map_or(filter, |coalesce| filter.coalesced(coalesce))
}

/// All members of a call about configurations.
fn members_of(call: &PushCall<'_>) -> String {
    match call {
        PushCall::Set(config) => {
            let ids = (text(config.id()), text(config.task_id()));
            let secrets = (text(config.token()), text(config.credentials()));
            let (scheme, filter) = (text(config.scheme()), config.filter());
            format!("{ids:?} {} {scheme:?} {secrets:?} {filter:?}", config.url())
        }
        other => format!("{other:?}"),
    }
}

/// Without an id, 1.0 writes an empty one, which the client ignores.
fn without_empty_id(json: &str) -> String {
    json.replace("id:,", "").replace("id:\"\",", "")
}

/// Other servers return the whole configuration with its credentials.
#[test]
fn written_push_configuration_is_read_back_unchanged() {
    let all = all_formats();
    let texts = [identifier(), identifier(), identifier()];
    let secrets = prop::option::of((identifier(), identifier()));
    let buffers = RefCell::new((FormatBuffers::default(), WrittenCall::default()));
    let are_read = RefCell::new(vec![false; all.len()]);
    check(48, (texts, prop::option::of(identifier()), secrets), |(texts, token, secrets)| {
        let [task_id, id, path] = texts.each_ref().map(|text| raw(text));
        let url = format!("https://h/{}", path.raw_str());
        let mut config = PushConfigBuf::new(raw(&url)).task_id(task_id).id(id);
        if let Some(token) = &token {
            config = config.token(raw(token));
        }
        if let Some((scheme, credentials)) = &secrets {
            config = config.authentication(raw(scheme), raw(credentials));
        }
        let call = OutgoingCall::Push(PushCall::Set(config.view()));
        let (buffers, written) = &mut *buffers.borrow_mut();
        let v1 = Format::standard(Binding::HttpJson, V1);
        v1.write(&call, 7, None, written).unwrap();
        let expected = String::from_utf8(written.body.clone()).unwrap();
        for (at, served) in all.iter().enumerate() {
            if served.format.write(&call, 7, None, written).is_err() {
                continue;
            }
            let mut received = Received::new();
            let Some(read) = answered_with(served, buffers, written, &mut received) else {
                continue;
            };
            prop_assert!(read.is_ok(), "{}: {read:?}", served.name());
            let found = served.comparable(&json(&received, Op::PushSet));
            prop_assert_eq!(found, served.comparable(&expected), "{}", served.name());
            are_read.borrow_mut()[at] = true;
        }
        Ok(())
    });
    // Some platforms lack the operation, and 0.1 has no configuration id.
    for (served, is_read) in all.iter().zip(are_read.into_inner()) {
        let must = served.format.dialect() == "standard" && served.format.generation() != V01;
        assert!(is_read || !must, "{}", served.name());
    }
}

/// Reads a written configuration as if it were the answer; `None`: there is none.
fn answered_with(
    served: &ServedFormat,
    buffers: &mut FormatBuffers,
    written: &WrittenCall,
    received: &mut Received,
) -> Option<Result<(), CallError>> {
    let (format, body) = (&served.format, &written.body);
    let head = ReplyHead { status: 200, content_type: None };
    let mut parser = Parser::new();
    match format.binding() {
        Binding::JsonRpc | Binding::WebSocket => {
            let params = parser.parse(body, 64).unwrap().get("params")?.raw_str();
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"7\",\"result\":{params}}}");
            let answer = answer.as_bytes();
            Some(format.read_reply(
                buffers,
                CallId { op: Op::PushSet, rpc_id: 7 },
                head,
                answer,
                received,
            ))
        }
        Binding::HttpJson => {
            let document = parser.parse(body, 64).unwrap();
            let config = document.get("config").unwrap_or(document).raw_str().as_bytes();
            Some(format.read_reply(
                buffers,
                CallId { op: Op::PushSet, rpc_id: 7 },
                head,
                config,
                received,
            ))
        }
        Binding::Grpc => {
            let message = frame::only(body, usize::MAX).unwrap().bytes;
            let is_v03 = format.generation() == V03;
            let config = Fields(message).find_map(|field| {
                let (number, value) = field.unwrap();
                (number == create_task_push_notification_config_request::CONFIG)
                    .then(|| value.bytes().unwrap())
            });
            let message = if is_v03 { config? } else { message };
            Some(format.read_message(buffers, Op::PushSet, message, received))
        }
    }
}

#[test]
fn inexpressible_call_fails_before_any_byte_is_written() {
    let mut written = WrittenCall::default();
    let mut refused = |format: Format, call: &OutgoingCall<'_>, tenant: Option<&str>| {
        let error = format.write(call, 1, tenant, &mut written).expect_err("cannot be expressed");
        assert!(written.body.is_empty() && written.path.is_empty());
        error.to_string()
    };
    let rpc = |generation| Format::standard(Binding::JsonRpc, generation);
    let of = |name, generation| Format::of_dialect(Binding::JsonRpc, generation, name).unwrap();
    let packed = plain().pack();
    let send_call = |mode| OutgoingCall::Send(send(&packed, mode));
    let list = OutgoingCall::List(List::default());
    let config = PushConfigBuf::new("https://h").task_id("t");
    let set = OutgoingCall::Push(PushCall::Set(config.view()));
    let filtered = config.clone().id("c").filter(PushFilter::FINAL);
    let set_filtered = OutgoingCall::Push(PushCall::Set(filtered.view()));
    for generation in [V1, V03] {
        assert_eq!(
            refused(Format::standard(Binding::Grpc, generation), &set_filtered, None),
            "the events of a push configuration does not exist in A2A gRPC"
        );
    }
    assert_eq!(refused(rpc(V03), &list, None), "ListTasks does not exist in A2A 0.3");
    assert_eq!(refused(rpc(V01), &list, None), "ListTasks does not exist in A2A 0.1");
    assert_eq!(
        refused(rpc(V03), &send_call(SendMode::Wait), Some("x")),
        "tenant does not exist in A2A 0.3"
    );
    assert_eq!(
        refused(rpc(V01), &send_call(SendMode::Return), None),
        "returnImmediately does not exist in A2A 0.1"
    );
    let langsmith = of("langsmith", V03);
    assert_eq!(
        refused(langsmith, &set, None),
        "CreateTaskPushNotificationConfig does not exist in A2A langsmith"
    );
    assert_eq!(
        refused(of("evo_ai", V03), &set, None),
        "the task of a push configuration does not exist in A2A evo_ai"
    );
    let dots =
        OutgoingCall::Get(Get { id: raw(".."), context_id: None, history: None, wait: None });
    assert_eq!(
        refused(Format::standard(Binding::HttpJson, V1), &dots, None),
        "an id or a tenant that cannot be a path segment does not exist in A2A HTTP+JSON"
    );
    assert_eq!(
        refused(Format::standard(Binding::HttpJson, V01), &dots, None),
        "GetTask does not exist in A2A 0.1"
    );
}
