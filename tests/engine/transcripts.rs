//! The transcripts of the dialects: `tests/data/<dialect>/*.txt`.
//!
//! A transcript is a list of commands, one per line; indented lines continue the previous one, and
//! `#` begins a comment. Some build the task: `task ID CONTEXT GENERATION`, `user MESSAGE`, `status
//! {"state","at","message","metadata"}` (`at` in ms after 2026-01-01), `artifact
//! {"artifact","append","lastChunk","metadata"}`, `direct CONTEXT MESSAGE`; messages are 1.0 JSON.
//! Some produce text: `call METHOD PARAMS`, `reply METHOD`, `page METHOD`, `snapshot METHOD`,
//! `event METHOD` (the newest one), `answer METHOD` and `item METHOD` (the direct message), `error
//! METHOD KIND FIELD DETAIL`, `push METHOD` (a configuration, or `list`, `none`, `gone`), `method
//! NAME`; options are `history=N`, `task=ID`, `artifacts`, `closes`, `header`, `scheme=NAME`.
//! `gives TEXT` compares it as text, `is JSON` as a JSON value.

use std::{cell::Cell, path::Path};

use peregrine::{
    dialect::{self, Dialect, Method, ReadCx, WriteCx},
    fault::{Fault, FaultKind},
    json::{Parser, Value},
    limits::Limits,
    model::{
        Artifact, Call, Content, EventBuf, Generation, JsonObject, List, Message, Op, Part,
        PushCall, PushConfig, PushConfigBuf, PushReply, PushRequest, RawText, Reply, Role, Send,
        Target, TaskBuf, TaskEvent, TaskLimits, TaskState,
        pack::{Packer, artifact_tag, message_tag},
    },
    service::StreamResponse,
};

const NEW_YEAR_MS: u64 = 1_767_225_600_000;
const FRESH: &str = "00000000-0000-4000-8000-000000000000";

#[test]
fn dialect_transcripts_give_their_expected_output() {
    for dialect in dialect::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(dialect.name);
        let mut files = 0;
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder:?}: {e}")) {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ext| ext == "txt") {
                files += 1;
                run(dialect, &path);
            }
        }
        assert!(files > 0, "no transcript of {}", dialect.name);
    }
}

/// Each method of each dialect is called in one of its transcripts.
#[test]
fn transcripts_use_every_method() {
    for dialect in dialect::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(dialect.name);
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
        let files = entries.map(|entry| entry.unwrap().path());
        let text: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        for method in dialect.methods {
            let called = text.lines().any(|line| {
                let mut words = line.split(' ');
                words.next() == Some("call") && words.next() == Some(method.name)
            });
            assert!(called, "{} {}", dialect.name, method.name);
        }
    }
}

fn run(dialect: &Dialect, path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut scene = Scene::default();
    let mut checks = 0;
    for (number, line) in commands(&text) {
        let (command, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let location = format!("{}:{number}: {line}\n", path.display());
        match command {
            "gives" => assert_eq!(scene.output, rest, "{location}"),
            "is" => {
                let value = |text: &str| -> serde_json::Value {
                    serde_json::from_str(text).unwrap_or_else(|e| panic!("{location}{e} in {text}"))
                };
                assert_eq!(value(&scene.output), value(rest), "{location}{}", scene.output);
            }
            _ => scene.command(dialect, command, rest, &location),
        }
        checks += usize::from(command == "gives" || command == "is");
    }
    assert!(checks > 0, "{path:?} checks nothing");
}

/// The commands with their line numbers.
pub fn commands(text: &str) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        match commands.last_mut() {
            _ if line.trim().is_empty() || line.starts_with('#') => {}
            Some((_, command)) if line.starts_with(' ') => {
                command.push(' ');
                command.push_str(line.trim());
            }
            _ => commands.push((at + 1, line.trim().to_owned())),
        }
    }
    commands
}

#[derive(Default)]
struct Scene {
    task: Option<TaskBuf>,
    newest: EventBuf,
    direct: Option<(String, Vec<u8>)>,
    output: String,
}

impl Scene {
    fn command(&mut self, dialect: &Dialect, command: &str, rest: &str, location: &str) {
        let (first, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        match command {
            "task" => {
                let (context, generation) = tail.split_once(' ').expect(location);
                let generation = match generation {
                    "0.1" => Generation::V01,
                    "0.3" => Generation::V03,
                    "1.0" => Generation::V1,
                    _ => panic!("{location}"),
                };
                let ids = [first, context].map(|id| RawText::parse(id).unwrap());
                let task = TaskBuf::new(ids[0], ids[1], generation).unwrap();
                let (bytes_max, history_max) = (1 << 20, 9);
                let (artifacts_max, replay_max) = (9, 99);
                let limits = TaskLimits { bytes_max, history_max, artifacts_max, replay_max };
                self.task = Some(task.within(limits));
            }
            "user" => {
                let packed = packed_message(rest);
                self.apply(&TaskEvent::UserMessage {
                    message: Message::from_packed(&packed).unwrap(),
                });
            }
            "status" => self.status(rest),
            "artifact" => self.artifact(rest),
            "direct" => self.direct = Some((first.to_owned(), packed_message(tail))),
            "method" => {
                let method = dialect.method(first.as_bytes());
                self.output = method.map_or("none".to_owned(), |m| format!("{:?}", m.op));
            }
            _ => {
                let method = dialect
                    .method(first.as_bytes())
                    .unwrap_or_else(|| panic!("{location}no method"));
                self.output = self.produce(command, method, tail, location);
            }
        }
    }

    fn produce(&self, command: &str, method: &Method, tail: &str, location: &str) -> String {
        let option =
            |name: &str| tail.split(' ').find_map(|o| o.strip_prefix(name)?.strip_prefix('='));
        let has = |name: &str| tail.split(' ').any(|word| word == name);
        let history = option("history").map(|n| n.parse().unwrap());
        let task_id = option("task").unwrap_or("").as_bytes();
        let cx = WriteCx { op: method.op, task_id, history, unix_ms: NEW_YEAR_MS };
        let mut out = Vec::new();
        let direct = || {
            let (context, message) = self.direct.as_ref().expect(location);
            (Message::from_packed(message).unwrap(), RawText::parse(context).unwrap())
        };
        let task = || self.task.as_ref().expect(location).task();
        match command {
            "call" => return read(method, tail),
            "error" => {
                let (kind, rest) = tail.split_once(' ').unwrap_or((tail, ""));
                (method.wire.encode.fault)(&mut out, &fault(kind, rest), &cx);
            }
            "reply" => {
                let reply = Reply::Task { view: task().view(), history };
                (method.encode_for(task().generation()).reply)(&mut out, &reply, &cx);
            }
            "page" => {
                let artifacts = has("artifacts");
                (method.wire.encode.reply)(&mut out, &Reply::PageStart, &cx);
                if let Some(task) = &self.task {
                    let reply = Reply::PageTask { view: task.view(), history, artifacts };
                    (method.wire.encode.reply)(&mut out, &reply, &cx);
                    (method.wire.encode.reply)(&mut out, &reply, &cx);
                }
                let end = Reply::PageEnd { next: "next", page_size: 50, total: 2 };
                (method.wire.encode.reply)(&mut out, &end, &cx);
            }
            "push" => {
                let config = push_config(has("header"), option("scheme"));
                let (config, task_id) = (config.view(), RawText::parse("t1").unwrap());
                for reply in push_replies(tail, task_id, config) {
                    (method.wire.encode.reply)(&mut out, &Reply::Push(reply), &cx);
                }
            }
            "answer" => {
                let (message, context_id) = direct();
                (method.wire.encode.reply)(&mut out, &Reply::Message { message, context_id }, &cx);
            }
            "item" => {
                let (message, context_id) = direct();
                (method.wire.encode.event)(
                    &mut out,
                    &StreamResponse::Message { message, context_id },
                    &cx,
                );
            }
            "snapshot" => {
                let encode = method.encode_for(task().generation());
                (encode.event)(&mut out, &StreamResponse::Snapshot(task().view()), &cx);
            }
            "event" => {
                let task = task();
                let item = StreamResponse::Event {
                    seq: task.seq(),
                    event: self.newest.iter(None).last().expect(location),
                    artifact_index: task.view().artifacts().last().map_or(0, |a| a.index()),
                    task_id: task.view().id(),
                    context_id: task.view().context_id(),
                    last: has("closes"),
                };
                (method.encode_for(task.generation()).event)(&mut out, &item, &cx);
            }
            _ => panic!("{location}no such command"),
        }
        String::from_utf8(out).unwrap()
    }

    fn apply(&mut self, event: &TaskEvent<'_>) {
        self.newest.clear();
        self.newest.push(event);
        self.task.as_mut().unwrap().apply(event).unwrap();
    }

    fn status(&mut self, json: &str) {
        let mut parser = Parser::new();
        let value = parser.parse(json.as_bytes(), 64).unwrap();
        let state = value.get("state").unwrap();
        let state = TaskState::ALL.into_iter().find(|s| state.str_eq(&format!("{s:?}"))).unwrap();
        let message = value.get("message").map(|message| packed_message(message.raw_str()));
        let at_ms = NEW_YEAR_MS + value.get("at").map_or(0, |at| at.as_i64().unwrap() as u64);
        let metadata = value.get("metadata").map(object);
        let message = message.as_deref().map(|m| Message::from_packed(m).unwrap());
        self.apply(&TaskEvent::Status { state, at_ms, message, metadata });
    }

    fn artifact(&mut self, json: &str) {
        let mut parser = Parser::new();
        let value = parser.parse(json.as_bytes(), 64).unwrap();
        let packed = packed_artifact(value.get("artifact").unwrap());
        let is = |name: &str| value.get(name).and_then(|flag| flag.as_bool()) == Some(true);
        self.apply(&TaskEvent::Artifact {
            artifact: Artifact::from_packed(&packed).unwrap(),
            append: is("append"),
            last_chunk: is("lastChunk"),
            metadata: value.get("metadata").map(object),
        });
    }
}

fn object(value: Value<'_>) -> JsonObject<'_> {
    JsonObject::parse(value.raw()).unwrap()
}

/// Parses the rest of an `error` command: `FIELD DETAIL`, `-` for no field, or nothing.
fn fault(kind: &str, rest: &str) -> Fault {
    let kind = FaultKind::ALL.into_iter().find(|k| format!("{k:?}") == kind).unwrap();
    if rest.is_empty() {
        return Fault::new(kind);
    }
    let (field, detail) = rest.split_once(' ').unwrap();
    match field {
        "-" => Fault::because(kind, detail.to_owned()),
        field => Fault { kind, ..Fault::param(field.to_owned().leak(), detail.to_owned()) },
    }
}

/// Reads the message of a 1.0 SendMessage.
fn packed_message(json: &str) -> Vec<u8> {
    let (limits, mut parser, mut pack) = (Limits::default(), Parser::new(), Vec::new());
    let params = format!("{{\"message\":{json}}}");
    let cx = ReadCx {
        op: Op::Send,
        limits: &limits,
        fresh_id: FRESH.as_bytes(),
        after: None,
        task: None,
        tokens: Cell::default(),
        tenant: Cell::default(),
    };
    let value = parser.parse(params.as_bytes(), 64).unwrap();
    let method = dialect::STANDARD.method(b"SendMessage").unwrap();
    match (method.wire.decode)(&cx, Some(value), &mut pack).unwrap() {
        Call::Send(send) => send.message.packed().to_vec(),
        _ => unreachable!(),
    }
}

fn packed_artifact(value: Value<'_>) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut packer = Packer(&mut packed);
    let string = |name: &str| value.get(name)?.string_raw();
    packer.put_some(artifact_tag::ARTIFACT_ID, string("artifactId"));
    packer.put_some(artifact_tag::NAME, string("name"));
    packer.put_some(artifact_tag::DESCRIPTION, string("description"));
    let parts = value.get("parts").unwrap().raw_str();
    let message = packed_message(&format!("{{\"role\":\"ROLE_AGENT\",\"parts\":{parts}}}"));
    for part in Message::from_packed(&message).unwrap().parts() {
        packer.put(artifact_tag::PART, part.packed());
    }
    packer.put_some(artifact_tag::METADATA, value.get("metadata").map(|m| m.raw_str().as_bytes()));
    for extension in value.get("extensions").iter().flat_map(|list| list.elements()) {
        packer.put(artifact_tag::EXTENSION, extension.string_raw().unwrap());
    }
    packed
}

fn push_config(has_header: bool, scheme: Option<&str>) -> PushConfigBuf {
    let config = PushConfigBuf::new("https://e").id("p\"1").token("k");
    let config = if has_header { config.header("X", "hush").header("Y", "hush") } else { config };
    match scheme {
        Some(scheme) => config.authentication(scheme, "hush"),
        None => config,
    }
}

/// The reply selected by `tail`: a list of two, none, deleted, or one.
fn push_replies<'a>(
    tail: &str,
    task_id: RawText<'a>,
    config: PushConfig<'a>,
) -> Vec<PushReply<'a>> {
    let listed = PushReply::Listed { task_id, config };
    match tail.split(' ').next() {
        Some("list") => {
            vec![PushReply::ListStart, listed, listed, PushReply::ListEnd { next: "n" }]
        }
        Some("none") => vec![PushReply::NoConfig { task_id }],
        Some("gone") => vec![PushReply::Deleted],
        _ => vec![PushReply::Config { task_id, config }],
    }
}

/// Reads params, and describes the call or the fault.
fn read(method: &Method, params: &str) -> String {
    let (limits, mut parser, mut pack) = (Limits::default(), Parser::new(), Vec::new());
    let cx = ReadCx {
        op: method.op,
        limits: &limits,
        fresh_id: FRESH.as_bytes(),
        after: Some(7),
        task: None,
        tokens: Cell::default(),
        tenant: Cell::default(),
    };
    let value = (!params.is_empty()).then(|| parser.parse(params.as_bytes(), 64).expect("params"));
    match (method.wire.decode)(&cx, value, &mut pack) {
        Ok(call) => describe(&call),
        Err(fault) => {
            let field = fault.field.unwrap_or("-");
            format!("refused {:?} {field}: {}", fault.kind, fault.message())
        }
    }
}

#[derive(Default)]
struct Words(String);

impl Words {
    fn add(&mut self, word: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(word);
    }

    fn raw(&mut self, name: &str, raw: Option<&[u8]>) {
        if let Some(raw) = raw {
            self.add(&format!("{name}={}", std::str::from_utf8(raw).unwrap()));
        }
    }
}

fn describe(call: &Call<'_>) -> String {
    let mut words = Words::default();
    match call {
        Call::Send(send) => describe_send(&mut words, send),
        Call::Get(get) => {
            words.add("get");
            words.raw("id", Some(get.id.raw()));
            words.raw("context", get.context_id.map(RawText::raw));
            words.raw("history", get.history.map(|n| n.to_string()).as_deref().map(str::as_bytes));
        }
        Call::List(list) => describe_list(&mut words, list),
        Call::Cancel(target) => describe_target(&mut words, "cancel", target),
        Call::Subscribe(target) => describe_target(&mut words, "subscribe", target),
        Call::Push(push) => describe_push(&mut words, push),
        Call::ExtendedCard => words.add("extended-card"),
    }
    words.0
}

fn describe_push(words: &mut Words, push: &PushRequest<'_>) {
    let (name, id) = match push.call {
        PushCall::Set(config) => ("set", config.id()),
        PushCall::Get { id, .. } => ("get", id),
        PushCall::List { .. } => ("list", None),
        PushCall::Delete { id, .. } => ("delete", id),
    };
    words.add(&format!("push {name} {:?}", push.form));
    let task_id = push.call.task_id();
    words.raw("task", Some(task_id.raw()).filter(|id| !id.is_empty()));
    words.raw("id", id.map(RawText::raw));
    match push.call {
        PushCall::Set(config) => describe_config(words, config),
        PushCall::List { page_size, page_token, .. } => {
            words.raw("size", page_size.map(|n| n.to_string()).as_deref().map(str::as_bytes));
            words.raw("token", page_token.map(RawText::raw));
        }
        PushCall::Get { .. } | PushCall::Delete { .. } => {}
    }
}

fn describe_config(words: &mut Words, config: PushConfig<'_>) {
    words.raw("url", Some(config.url().raw()));
    words.raw("token", config.token().map(RawText::raw));
    words.raw("scheme", config.scheme().map(RawText::raw));
    words.raw("credentials", config.credentials().map(RawText::raw));
    words.raw("context", config.context_id().map(RawText::raw));
    for (name, value) in config.headers() {
        words.add(&format!("header={name}:{value}"));
    }
}

fn describe_send(words: &mut Words, send: &Send<'_>) {
    words.add(&format!("send {:?} {:?}", send.mode, send.generation));
    words.raw("task", send.task_id.map(RawText::raw));
    if send.client_chooses_id {
        words.add("chosen");
    }
    words.raw("context", send.context_id.map(RawText::raw));
    words.raw("history", send.history.map(|n| n.to_string()).as_deref().map(str::as_bytes));
    words.raw("modes", send.accepted_output_modes);
    words.raw("metadata", send.metadata.map(JsonObject::raw));
    if let Some(config) = send.push {
        words.add("| push");
        words.raw("id", config.id().map(RawText::raw));
        describe_config(words, config);
    }
    words.add("|");
    let message = send.message;
    let id = message.message_id().raw();
    words.raw("message", Some(if id == FRESH.as_bytes() { b"fresh" } else { id }));
    words.raw("task", message.task_id().map(RawText::raw));
    words.raw("context", message.context_id().map(RawText::raw));
    words.add(if message.role() == Role::User { "user" } else { "agent" });
    for part in message.parts() {
        words.add("|");
        describe_part(words, part);
    }
    for (tag, bytes) in message.fields() {
        match tag {
            message_tag::METADATA => words.raw("| metadata", Some(bytes)),
            message_tag::EXTENSION => words.raw("| extension", Some(bytes)),
            message_tag::REFERENCE => words.raw("| reference", Some(bytes)),
            _ => {}
        }
    }
}

fn describe_part(words: &mut Words, part: Part<'_>) {
    match part.content() {
        Content::Text(raw) => words.raw("text", Some(raw.raw())),
        Content::Raw(raw) => words.raw("raw", Some(raw.raw())),
        Content::Url(raw) => words.raw("url", Some(raw.raw())),
        Content::Data(raw) => words.raw("data", Some(raw.raw())),
        Content::Unknown(part) => words.raw("unknown", Some(part.raw())),
    }
    words.raw("metadata", part.metadata().map(JsonObject::raw));
    words.raw("filename", part.filename().map(RawText::raw));
    words.raw("mediaType", part.media_type().map(RawText::raw));
}

fn describe_list(words: &mut Words, list: &List<'_>) {
    words.add("list");
    words.raw("context", list.context_id.map(RawText::raw));
    let numbers = [
        ("status", list.status.map(|s| s as u64)),
        ("size", list.page_size.map(u64::from)),
        ("history", list.history.map(u64::from)),
        ("after", list.after_ms.map(|ms| ms - NEW_YEAR_MS)),
    ];
    for (name, number) in numbers {
        words.raw(name, number.map(|n| n.to_string()).as_deref().map(str::as_bytes));
    }
    words.raw("token", list.page_token);
    if list.include_artifacts {
        words.add("artifacts");
    }
}

fn describe_target(words: &mut Words, name: &str, target: &Target<'_>) {
    words.add(&format!("{name} {:?}", target.generation));
    words.raw("id", Some(target.id.raw()));
    words.raw("context", target.context_id.map(RawText::raw));
    words.raw("metadata", target.metadata.map(JsonObject::raw));
    words.raw("after", target.after.map(|n| n.to_string()).as_deref().map(str::as_bytes));
}
