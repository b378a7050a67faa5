//! The agents that come with the crate, run on a task without a server.

use std::sync::Arc;

use peregrine::{
    agent::{
        Agent, Closed, Ending, JobHost, RequestView, Turn, TurnHost, echo::Echo, script::Script,
    },
    model::{
        Content, EventBuf, Generation, Json, Message, MessageBuf, Part, PartBuf, PartsBuf, RawText,
        TaskBuf, TaskEvent, TaskState, TaskView,
    },
    service::{AgentIndex, Entropy, Handle, Now, Scope},
};

/// Returns the same bits each time.
struct Same;

impl Entropy for Same {
    fn bits(&mut self) -> u128 {
        0
    }
}

/// A server with one task and a clock that jumps to the time at which the agent resumes.
struct Server<A> {
    agent: A,
    task: Option<TaskBuf>,
    now_ms: u64,
    resumes: usize,
}

struct Host<'t>(&'t Option<TaskBuf>);

impl TurnHost for Host<'_> {
    fn commit(&mut self, _: &mut EventBuf) -> Result<(Handle, Arc<dyn JobHost>), Closed> {
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

    /// Sends one message and lists the agent's events until the agent no longer waits.
    fn send(&mut self, id: &str, parts: &PartsBuf) -> Vec<String> {
        let message = MessageBuf::agent(parts).id(id);
        let mut lines = Vec::new();
        let mut token = None;
        loop {
            let mut events = EventBuf::default();
            let mut ending = Ending::Returned;
            let turn = Turn {
                message: message.view(),
                state: self.task.as_ref().map(|task| task.task().state()),
                task_id: RawText::parse("task").unwrap(),
                context_id: RawText::parse("context").unwrap(),
                request: RequestView::without_caller(Scope::of(AgentIndex(0)), [None; 2]),
                now: Now { mono_ms: self.now_ms, unix_ms: self.now_ms },
                entropy: &mut Same,
                events: &mut events,
                ending: &mut ending,
                host: &mut Host(&self.task),
            };
            match token {
                None => self.agent.start(turn),
                Some(token) => self.agent.resume(turn, token),
            }
            self.apply(&events, message.view(), &mut lines);
            match ending {
                Ending::Returned => return lines,
                Ending::Replied(message) => {
                    lines.push(format!("message {}", message_text(message.view())));
                    return lines;
                }
                Ending::Resume { after_ms, token: next } => {
                    lines.push(format!("wait {after_ms}"));
                    self.now_ms += after_ms;
                    self.resumes += 1;
                    token = Some(next);
                }
                Ending::Detached | Ending::Deferred => panic!("no agent here detaches"),
                Ending::Refused(fault) => panic!("no agent here refuses: {fault}"),
            }
        }
    }

    fn text(&mut self, text: &str) -> Vec<String> {
        self.send("m", &PartsBuf::new().text(text))
    }

    fn apply(&mut self, events: &EventBuf, message: Message<'_>, lines: &mut Vec<String>) {
        let task = self.task.get_or_insert_with(|| {
            TaskBuf::new("task", "context", Generation::V1).expect("short ids")
        });
        for event in events.iter(Some(message)) {
            task.apply(&event).expect("the task takes every event");
            lines.push(shown(&event));
        }
        if task.task().seq() == 0 {
            self.task = None;
        }
    }
}

fn shown(event: &TaskEvent<'_>) -> String {
    match event {
        TaskEvent::UserMessage { .. } => panic!("agents publish no turns"),
        TaskEvent::Status { state, message, .. } => match message {
            None => format!("{state:?}"),
            Some(message) => format!("{state:?} {}", message_text(*message)),
        },
        TaskEvent::Artifact { artifact, append, last_chunk, .. } => {
            let id = artifact.artifact_id();
            let parts = artifact.parts().map(part).collect::<Vec<_>>().join(" ");
            let append = if *append { "+" } else { "" };
            let last = if *last_chunk { "." } else { "" };
            format!("{id}{append}{last} {parts}")
        }
    }
}

fn message_text(message: Message<'_>) -> String {
    let id = message.message_id();
    format!("{id}: {}", message.parts().map(part).collect::<Vec<_>>().join(" "))
}

fn part(part: Part<'_>) -> String {
    let text = |text: RawText<'_>| text.raw_str().to_owned();
    let content = match part.content() {
        Content::Text(raw) => text(raw),
        Content::Raw(raw) => format!("raw={}", text(raw)),
        Content::Url(raw) => format!("url={}", text(raw)),
        Content::Data(json) => format!("data={}", json.as_str()),
        Content::Unknown(part) => format!("unknown={}", part.as_str()),
    };
    let named = part.filename().map_or(String::new(), |raw| format!(" name={}", text(raw)));
    let typed = part.media_type().map_or(String::new(), |raw| format!(" type={}", text(raw)));
    format!("[{content}{named}{typed}]")
}

#[test]
fn echo_returns_parts_unchanged() {
    let parts = PartsBuf::new()
        .text("say \"hi\"")
        .part(&PartBuf::bytes(b"foo").filename("a.txt").media_type("text/plain"))
        .part(&PartBuf::url("https://example.com/x"))
        .data(Json::parse("{ \"n\" : 1e400 }").unwrap());
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
    assert_eq!((task.task().seq(), task.task().state()), (1000, TaskState::Completed));
    let artifact = task.view().artifacts().next().expect("there is an artifact");
    assert_eq!(artifact.parts().count(), 998);
}

#[test]
fn echo_holds_and_then_streams() {
    let mut server = Server::new(Echo);
    let lines = server.text("hold:250:3");
    assert_eq!(lines, ["wait 250", "Working", "echo. [chunk 1]", "Completed"]);
    assert_eq!((server.now_ms, server.resumes), (250, 1));
    assert_eq!(Server::new(Echo).text("hold:0:1"), ["wait 0", "Completed"]);
}

#[test]
fn echo_rejects_out_of_range_arguments() {
    let too_many = "Rejected task-end: [stream:N:BYTES takes at most 16384 events of 65536 bytes]";
    assert_eq!(Server::new(Echo).text("stream:16385"), [too_many]);
    assert_eq!(Server::new(Echo).text("stream:99999999999999999999"), [too_many]);
    let too_long = "Rejected task-end: [hold:MS:N:BYTES takes at most 600000 ms and 16384 events \
                    of 65536 bytes]";
    assert_eq!(Server::new(Echo).text("hold:600001:1"), [too_long]);
    assert_eq!(Server::new(Echo).text("hold:1:16385"), [too_long]);
}

/// A rule with these steps and no condition.
fn steps(steps: &str) -> String {
    format!("[[rule]]\n{}", steps.replace("[[step]]", "[[rule.step]]"))
}

fn script(toml: &str) -> Server<Script> {
    Server::new(Script::parse(toml).expect("the script is valid"))
}

fn refused(toml: &str) -> String {
    Script::parse(toml).expect_err(toml).to_string()
}

#[test]
fn script_publishes_statuses() {
    for (name, state) in [
        ("submitted", "Submitted"),
        ("working", "Working"),
        ("completed", "Completed"),
        ("failed", "Failed"),
        ("canceled", "Canceled"),
        ("rejected", "Rejected"),
        ("input-required", "InputRequired"),
        ("auth-required", "AuthRequired"),
    ] {
        let mut without_text = script(&steps(&format!("[[step]]\nstatus = '{name}'")));
        assert_eq!(without_text.text("x"), [state]);
        let text_line = "text = 'say \"hi\"'";
        let mut with_text = script(&steps(&format!("[[step]]\nstatus = '{name}'\n{text_line}")));
        assert_eq!(with_text.text("x"), [format!(r#"{state} task-1: [say \"hi\"]"#)]);
    }
}

#[test]
fn script_publishes_artifacts() {
    let toml = r#"
        [[rule]]
        [[rule.step]]
        artifact = "out"
        name = "Output"
        description = "What came out"
        parts = [
            { text = "chunk-1 " },
            { url = "https://example.com/o.txt", filename = "o.txt", media_type = "text/plain" },
            { bytes = "Zm9v", filename = "b.txt" },
            { data = ' {"key":"value","count":42} ', media_type = "application/json" },
        ]
        [[rule.step]]
        artifact = "out"
        parts = [{ text = "chunk-2" }]
        append = true
        last_chunk = true
        [[rule.step]]
        status = "completed"
    "#;
    let mut server = script(toml);
    let url = "[url=https://example.com/o.txt name=o.txt type=text/plain]";
    let data = r#"[data={"key":"value","count":42} type=application/json]"#;
    let first = format!("out [chunk-1 ] {url} [raw=Zm9v name=b.txt] {data}");
    assert_eq!(server.text("x"), [first.as_str(), "out+. [chunk-2]", "Completed"]);
    let task = server.task.expect("there is a task");
    let artifact = task.view().artifacts().next().expect("there is an artifact");
    assert_eq!(artifact.parts().count(), 5);
    let fields: Vec<_> = artifact.fields().map(|(tag, raw)| (tag, raw.to_vec())).collect();
    let text = |tag, text: &str| (tag, text.as_bytes().to_vec());
    assert_eq!(fields, [text(1, "out"), text(2, "Output"), text(3, "What came out")]);
}

#[test]
fn script_replies_with_a_direct_message() {
    let toml = steps("[[step]]\nmessage = [{ text = 'Direct' }, { data = '[1]' }]");
    let mut server = script(&toml);
    assert_eq!(server.text("x"), ["message task-1: [Direct] [data=[1]]"]);
    assert!(server.task.is_none());
}

#[test]
fn script_parse_step_replies_with_reader_output() {
    let toml = "[[rule]]\ntext = 'parse'\n[[rule.step]]\nparse = 'result 1.0'";
    let reader = |words: &str, payload: &[u8]| {
        let payload = String::from_utf8_lossy(payload);
        format!("{{\"words\":\"{words}\",\"payload\":{payload}}}")
    };
    let mut server = Server::new(Script::parse(toml).unwrap().with_reader(reader));
    let parts = PartsBuf::new().text("parse 0.3");
    let data = parts.clone().data(Json::parse("[1.0]").unwrap());
    let made = |payload| {
        let words = "result 1.0  0.3";
        format!(r#"message task-1: [data={{"words":"{words}","payload":{payload}}}]"#)
    };
    assert_eq!(server.send("m", &data), [made("[1.0]")]);
    // A payload that is not JSON is sent as text, as is a reader's output that is not JSON.
    assert_eq!(server.send("m", &parts.clone().text("7")), [made("7")]);
    let expected = r#"message task-1: [{\"words\":\"result 1.0  0.3\",\"payload\":{}]"#;
    assert_eq!(server.send("m", &parts.clone().text("{")), [expected]);
    let none = "message task-1: [the message has neither a data part nor a second text part]";
    assert_eq!(server.send("m", &parts), [none]);
    let mut without = script(toml);
    assert_eq!(without.send("m", &data), ["message task-1: [the script has no reader]"]);
}

#[test]
fn script_waits_before_each_repetition() {
    let toml = steps(
        "[[step]]\nstatus = 'working'\n\
         [[step]]\nstatus = 'working'\ntext = 'on'\nrepeat = 3\ndelay_ms = 1000\n\
         [[step]]\nstatus = 'completed'",
    );
    let mut server = script(&toml);
    let (wait, on) = ("wait 1000", |seq| format!("Working task-{seq}: [on]"));
    let lines = server.text("x");
    assert_eq!(
        lines,
        ["Working", wait, &on(2), wait, &on(3), wait, &on(4), "Completed"].map(String::from)
    );
    assert_eq!((server.now_ms, server.resumes), (3000, 3));
}

#[test]
fn script_delays_its_first_step() {
    let mut server = script(&steps("[[step]]\nstatus = 'completed'\ndelay_ms = 5"));
    assert_eq!(server.text("x"), ["wait 5", "Completed"]);
}

#[test]
fn script_adds_filler_of_payload_bytes() {
    let toml = steps(
        "[[step]]\nstatus = 'working'\npayload_bytes = 4\n\
         [[step]]\nstatus = 'working'\npayload_bytes = 3\ntext = 'a'\n\
         [[step]]\nartifact = 'big'\npayload_bytes = 5\n\
         [[step]]\nartifact = 'both'\nparts = [{ text = 'b' }]\npayload_bytes = 1\n\
         [[step]]\nstatus = 'failed'\npayload_bytes = 0",
    );
    let expected = [
        "Working task-1: [xxxx]",
        "Working task-2: [a] [xxx]",
        "big [xxxxx]",
        "both [b] [x]",
        "Failed",
    ];
    assert_eq!(script(&toml).text("x"), expected);
}

#[test]
fn script_yields_between_batches_of_many_events() {
    let mut server = script(&steps("[[step]]\nstatus = 'working'\nrepeat = 3000"));
    let lines = server.text("x");
    assert_eq!(lines.iter().filter(|line| *line == "Working").count(), 3000);
    assert_eq!(lines.iter().filter(|line| *line == "wait 0").count(), server.resumes);
    assert_eq!(server.resumes, 2);
    let large = "[[step]]\nartifact = 'a'\npayload_bytes = 200000\nrepeat = 4";
    assert_eq!(script(&steps(large)).text("x").len(), 4 + 1);
}

#[test]
fn script_takes_the_rule_with_the_longest_prefix() {
    let rule = |condition: &str, text: &str| {
        format!(
            "[[rule]]\n{condition}\n[[rule.step]]\nstatus = 'input-required'\ntext = '{text}'\n"
        )
    };
    let toml = [
        rule("", "any"),
        rule("text = 'ab'", "text ab"),
        rule("message_id = 'ab'", "id ab"),
        rule("message_id = 'abc'", "id abc"),
        rule("text = 'abcd'", "text abcd"),
        rule("message_id = 'zz'\ntext = 'q\"'", "both"),
    ]
    .concat();
    let answer_to = |id: &str, parts: &PartsBuf| {
        let lines = script(&toml).send(id, parts);
        lines[0].replace("InputRequired task-1: ", "")
    };
    let text = |text: &str| PartsBuf::new().text(text);
    assert_eq!(answer_to("x", &text("y")), "[any]");
    assert_eq!(answer_to("x", &text("abc")), "[text ab]");
    assert_eq!(answer_to("abx", &text("abx")), "[id ab]");
    assert_eq!(answer_to("abcx", &text("abc")), "[id abc]");
    assert_eq!(answer_to("abcx", &text("abcde")), "[text abcd]");
    assert_eq!(answer_to("ab", &PartsBuf::new().data(Json::parse("1").unwrap())), "[id ab]");
    assert_eq!(
        answer_to("x", &PartsBuf::new().data(Json::parse("1").unwrap()).text("ab").text("abcd")),
        "[text ab]"
    );
    assert_eq!(answer_to("zz1", &text("q\"uote")), "[both]");
    assert_eq!(answer_to("zz1", &text("uote")), "[any]");
}

#[test]
fn script_continues_an_existing_task() {
    let toml = r#"
        [[rule]]
        message_id = "ask"
        [[rule.step]]
        status = "input-required"
        text = "which?"
        [[rule]]
        message_id = "done"
        [[rule.step]]
        status = "completed"
        text = "that one"
        [[rule]]
        message_id = "direct"
        [[rule.step]]
        message = [{ text = "bye" }]
    "#;
    let mut server = script(toml);
    let parts = PartsBuf::new().text("x");
    assert_eq!(server.send("ask-1", &parts), ["InputRequired task-1: [which?]"]);
    assert_eq!(server.send("ask-1", &parts), ["InputRequired task-2: [which?]"]);
    assert_eq!(server.send("direct-1", &parts), ["message task-3: [bye]"]);
    assert_eq!(server.send("done-1", &parts), ["Completed task-3: [that one]"]);
}

#[test]
fn script_reports_when_no_rule_matches() {
    assert_eq!(script("").text("x"), ["Completed task-1: [no rule matches]"]);
}

#[test]
fn script_describes_its_agent() {
    let toml = r#"
        [agent]
        name = "kit"
        description = "For the kit"
        version = "9.1"
        input_modes = ["text/plain"]
        output_modes = ["image/png"]
        streaming = false
        documentation_url = "https://o/docs"
        icon_url = "https://o/icon.png"
        [agent.provider]
        organization = "O"
        url = "https://o/"
        [[agent.extensions]]
        uri = "urn:x"
        params = ' {"n": 1} '
        [[agent.skills]]
        id = "s"
        name = "Skill"
        description = "Does it"
        tags = ["t"]
        examples = ["e"]
        input_modes = ["text/html"]
        output_modes = ["image/gif"]
        scopes = ["art"]
        [[agent.skills]]
        id = "short"
    "#;
    let script = Script::parse(toml).expect("the script is valid");
    let profile = script.profile();
    assert_eq!((&*profile.name, &*profile.description), ("kit", "For the kit"));
    assert_eq!((&*profile.version, profile.streaming), ("9.1", false));
    assert_eq!(profile.input_modes, ["text/plain"]);
    assert_eq!(profile.output_modes, ["image/png"]);
    let provider = profile.provider.as_ref().expect("there is one");
    assert_eq!((&*provider.organization, &*provider.url), ("O", "https://o/"));
    assert_eq!(profile.documentation_url.as_deref(), Some("https://o/docs"));
    assert_eq!(profile.icon_url.as_deref(), Some("https://o/icon.png"));
    let params = profile.extensions[0].params.as_ref().expect("there are some");
    assert_eq!(params.view().as_str(), r#"{"n": 1}"#);
    assert_eq!(profile.skills[0].input_modes, ["text/html"]);
    assert_eq!(profile.skills[0].output_modes, ["image/gif"]);
    assert!(profile.skills[1].input_modes.is_empty());
    assert_eq!(
        (&profile.skills[0].scopes[..], profile.skills[1].scopes.len()),
        (&["art".to_owned()][..], 0)
    );
    assert_eq!((&*profile.skills[0].name, &*profile.skills[0].tags[0]), ("Skill", "t"));
    assert_eq!((&*profile.skills[1].name, &*profile.skills[1].tags[0]), ("short", "short"));
    let named = Script::parse("[agent]\nname = 'n'").expect("the script is valid");
    assert_eq!((&*named.profile().name, named.profile().streaming), ("n", true));
}

#[test]
fn script_step_errors_name_line_and_cause() {
    let step = |step: &str| refused(&format!("[[rule]]\n[[rule.step]]\n{step}"));
    let one = |message: &str| format!("line 3: rule 1, step 1: {message}");
    let part = |message: &str| format!("line 3: rule 1, step 1, part 1: {message}");
    let part_on_4 = |message: &str| format!("line 4: rule 1, step 1, part 1: {message}");
    for (toml, expected) in [
        ("stauts = 'working'", one("unknown key `stauts`; did you mean `status`?")),
        (
            "status = 'done'",
            one("`status` cannot be `done`; expected one of `submitted`, `working`, `completed`, \
                 `failed`, `canceled`, `input-required`, `rejected`, `auth-required`"),
        ),
        ("status = 'cancelled'", one("`status` cannot be `cancelled`; did you mean `canceled`?")),
        ("status = 1", one("`status` must be a string")),
        ("message = []", one("`message` must hold at least one part")),
        ("message = 'x'", one("`message` must be an array of tables")),
        ("message = ['x']", one("`message` must be an array of tables")),
        ("message = [['x']]", one("`message` must be an array of tables")),
        ("artifact = 'a'\nparts = [{ text = 1 }]", part_on_4("`text` must be a string")),
        ("message = [\n{ txt = 'x' }]", part_on_4("unknown key `txt`; did you mean `text`?")),
        ("message = [\n{ filename = 'x' }]", part_on_4(ONE_CONTENT)),
        ("message = [{ text = '', url = '' }]", part(ONE_CONTENT)),
        ("message = [{ filename = 'x' }]", part(ONE_CONTENT)),
        ("message = [{ bytes = 'Zg=' }]", part("`bytes` is not base64")),
        ("message = [{ data = '{' }]", part("`data` is not JSON: invalid JSON at byte 1")),
        ("message = [{ text = '', metadata = '[]' }]", part(NO_OBJECT)),
        ("message = [{ text = '', metadata = '{' }]", part(NO_JSON)),
        ("message = [{ txt = 'x' }]", part("unknown key `txt`; did you mean `text`?")),
    ] {
        assert_eq!(step(toml), expected);
    }
    for (toml, expected) in [
        ("artifact = 'a'", "`parts` must hold at least one part"),
        ("artifact = ''\nparts = []", "`artifact` must be a non-empty string"),
        ("delay_ms = 1", "needs exactly one of `status`, `artifact`, `message` and"),
        (
            "status = 'working'\nartifact = 'a'",
            "needs exactly one of `status`, `artifact`, `message`",
        ),
        (
            "status = 'working'\nrepeat = 2\nappend = true",
            "line 5: rule 1, step 1: unknown key `append`; expected one of `status`, `text`, \
             `payload_bytes`, `delay_ms`, `repeat`",
        ),
        ("status = 'working'\nrepeat = 1.0", "`repeat` must be a whole number from 1 to 1000000"),
        ("artifact = 'a'\nappend = 1", "line 4: rule 1, step 1: `append` must be true or false"),
        ("status = 'working'\nrepeat = 0", "`repeat` must be a whole number from 1 to 1000000"),
        ("status = 'failed'\nrepeat = 2", "`repeat` is not allowed on a step that ends the task"),
        ("status = 'working'\ndelay_ms = -1", "`delay_ms` must be a whole number from 0 to"),
        ("status = 'working'\npayload_bytes = 5000000", "`payload_bytes` must be a whole number"),
        ("message = [{ text = 'x' }]\ndelay_ms = 1", "`message` must be the only step"),
        ("parse = 'card'\ndelay_ms = 1", "`parse` must be the only step"),
        ("parse = ''", "`parse` must be a non-empty string"),
        ("parse = 'card'\ntext = 'x'", "unknown key `text`; expected one of `parse`"),
        ("status = 'failed'\n[[rule.step]]\nstatus = 'working'", "nothing can follow"),
        (
            "status = 'working'\n[[rule.step]]\nmessage = [{ text = 'x' }]",
            "line 5: rule 1, step 2: `message` must be the only step",
        ),
    ] {
        assert!(step(toml).contains(expected), "{}", step(toml));
    }
}

const NO_OBJECT: &str = "`metadata` cannot be used: it must be a JSON object";
const NO_JSON: &str = "`metadata` is not JSON: invalid JSON at byte 1";
const ONE_CONTENT: &str = "needs exactly one of `text`, `url`, `bytes` and `data`";

#[test]
fn script_errors_outside_steps_name_line_and_cause() {
    for (toml, expected) in [
        ("x =", "line 1: "),
        ("\nrules = 1", "line 2: unknown key `rules`; did you mean `rule`?"),
        ("[rule]", "line 1: `rule` must be an array of tables"),
        ("[[agent]]", "line 1: `agent` must be one table, written [agent]"),
        ("agent = ['x']", "line 1: `agent` must be one table, written [agent]"),
        (
            "[agent]\nprovider = 'x'",
            "line 2: agent: `provider` must be one table, written [provider]",
        ),
        (
            "[[agent.skills]]\nid = 's'\ntags = [\n1]",
            "line 3: agent, skill 1: `tags` must be an array of strings",
        ),
        ("[[rule]]", "line 1: rule 1: needs at least one [[rule.step]]"),
        ("[agent]\nnam = 'x'", "line 2: agent: unknown key `nam`; did you mean `name`?"),
        ("[agent]\nstreaming = 'x'", "line 2: agent: `streaming` must be true or false"),
        ("[agent]\ninput_modes = [1]", "line 2: agent: `input_modes` must be an array of strings"),
        (
            "[agent.provider]\nurl = 'x'",
            "line 1: agent, provider: `organization` must be a \
             non-empty string",
        ),
        (
            "[[agent.extensions]]\nuri = 'x'\nparams = '1'",
            "line 3: agent, extension 1: `params` cannot be used: it must be a JSON object",
        ),
        ("[[agent.skills]]\nname = 'x'", "line 1: agent, skill 1: `id` must be a non-empty string"),
        (
            "[[rule]]\n[[rule.step]]\nstatus = 'working'\n[[rule]]\n[[rule.step]]\n\
             status = 'working'",
            "line 4: rule 2: matches the same as rule 1",
        ),
    ] {
        assert!(refused(toml).starts_with(expected), "{}", refused(toml));
    }
}

#[test]
fn scripts_that_ship_are_valid() {
    let mut found = 0;
    for entry in std::fs::read_dir("tests/data").expect("the folder exists") {
        let path = entry.expect("the folder can be read").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).expect("the file can be read");
            let script = Script::parse(&text);
            assert!(script.is_ok(), "{}: {script:?}", path.display());
            found += 1;
        }
    }
    assert!(found >= 2, "the scripts of both conformance kits are there");
}

#[test]
fn conformance_1_0_script_gives_the_expected_responses() {
    let toml = std::fs::read_to_string("tests/data/conformance-1.0.toml").expect("it is there");
    let parts = PartsBuf::new().text("hi");
    let answer = |id: &str| script(&toml).send(id, &parts);
    assert_eq!(answer("tck-complete-task-1f"), ["Completed task-1: [Hello from TCK]"]);
    assert_eq!(answer("tck-message-response-1f"), ["message task-1: [Direct message response]"]);
    let file = "[url=https://example.com/output.txt name=output.txt type=text/plain]";
    assert!(answer("tck-artifact-file-url-1f")[0].ends_with(file));
    assert!(answer("tck-artifact-file-1f")[0].contains("[raw="));
    let chunked = ["Working", "out [chunk-1 ]", "out+. [chunk-2]", "Completed"];
    assert_eq!(answer("tck-stream-artifact-chunked-1f"), chunked);
}
