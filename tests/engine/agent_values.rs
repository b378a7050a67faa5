//! Values that agents pass in: JSON is checked on entry, escaped text stays unchanged, messages get
//! ids.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use peregrine::{
    agent::{Agent, Job, Profile, Turn},
    engine::Setup,
    json::write::push_escaped,
    model::{
        ArtifactBuf, Content, Json, JsonObject, Message, MessageBuf, Part, PartBuf, PartsBuf,
        RawText, TaskEvent, TaskState, ValueError,
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::Lab;

/// An agent that is a closure.
struct Does<F>(F);

impl<F: Fn(Turn<'_>) + Send + Sync> Agent for Does<F> {
    fn start(&self, turn: Turn<'_>) {
        (self.0)(turn);
    }
}

fn lab(agent: impl Fn(Turn<'_>) + Send + Sync + 'static) -> Lab {
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("test", "Is tested."), Arc::new(Does(agent)))];
    Lab::new(Setup { agents, ..Setup::default() })
}

fn send(parts: Value) -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": parts } })
}

/// Publishes one event with the text or JSON `json`, at the boundary that `border` names.
fn publish(turn: &mut Turn<'_>, border: &str, json: &str) -> Result<(), ValueError> {
    let parts = PartsBuf::new().text("x");
    let at_ms = turn.now.unix_ms;
    let (state, message) = (TaskState::Working, None);
    match border {
        "data" => turn.artifact(&ArtifactBuf::new("a", &parts.data(Json::parse(json)?))),
        "part" => {
            let part = PartBuf::text("x").metadata(JsonObject::parse(json)?);
            turn.artifact(&ArtifactBuf::new("a", &parts.part(&part)));
        }
        "message" => {
            let message = MessageBuf::agent(&parts).metadata(JsonObject::parse(json)?);
            turn.status_with(TaskState::Working, &message);
        }
        "artifact" => {
            turn.artifact(&ArtifactBuf::new("a", &parts).metadata(JsonObject::parse(json)?));
        }
        "status" => {
            let metadata = Some(JsonObject::parse(json)?);
            turn.publish(&TaskEvent::Status { state, at_ms, message, metadata });
        }
        "update" => {
            let artifact = ArtifactBuf::new("a", &parts);
            turn.publish(&TaskEvent::Artifact {
                artifact: artifact.view(),
                append: false,
                last_chunk: true,
                metadata: Some(JsonObject::parse(json)?),
            });
        }
        _ => panic!("{border}"),
    }
    Ok(())
}

#[test]
fn invalid_agent_json_is_rejected_and_lists_stay_valid() {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let noted = refused.clone();
    let mut lab = lab(move |mut turn| {
        let text = turn.message.text();
        let (border, json) = text.split_once(' ').unwrap();
        match publish(&mut turn, border, json) {
            Ok(()) => turn.status(TaskState::Completed),
            Err(error) => {
                noted.lock().unwrap().push(error);
                turn.status(TaskState::Rejected);
            }
        }
    });
    let borders = ["data", "part", "message", "artifact", "status", "update"];
    let deep = format!("{}1{}", "{\"a\":".repeat(65), "}".repeat(65));
    for border in borders {
        for bad in ["{not json", "{\"a\":1}}", "{\"a\":\"\u{1}\"}", "{\"a\":1},\"b\":{}", &deep] {
            let sent = send(json!([{ "text": format!("{border} {bad}") }]));
            let task = lab.result("SendMessage", &sent)["task"].clone();
            assert_eq!(task["status"]["state"], "TASK_STATE_REJECTED", "{border} {bad}");
        }
        let sent = send(json!([{ "text": format!("{border} {{ \"a\": 1.50 }}") }]));
        let task = lab.result("SendMessage", &sent)["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{border}");
        let sent = send(json!([{ "text": format!("{border} [1]") }]));
        let state = lab.result("SendMessage", &sent)["task"]["status"]["state"].clone();
        assert_eq!(state == "TASK_STATE_COMPLETED", border == "data", "metadata is an object");
    }
    let refused = refused.lock().unwrap();
    assert_eq!(refused.len(), 6 * borders.len() - 1);
    let objects = refused.iter().filter(|error| **error == ValueError::NotAnObject).count();
    assert_eq!(objects, borders.len() - 1);
    assert!(
        refused
            .iter()
            .all(|error| { matches!(error, ValueError::Json(_) | ValueError::NotAnObject) })
    );
    // The list stays valid JSON: one broken task in it would fail to parse.
    let list = lab.result("ListTasks", &json!({ "includeArtifacts": true, "pageSize": 100 }));
    assert_eq!(list["totalSize"], 7 * borders.len());
}

#[test]
fn caller_json_and_text_pass_through_unchanged() {
    let mut lab = lab(|mut turn| {
        let part = turn.message.parts().next().unwrap();
        let Content::Data(data) = part.content() else { panic!("data") };
        let name = part.filename().unwrap();
        assert_eq!(name, "caf\u{e9} \"1\"/\\.txt");
        let again = PartBuf::data(data)
            .metadata(part.metadata().unwrap())
            .filename(name)
            .media_type(part.media_type().unwrap());
        let artifact = ArtifactBuf::new(turn.message.message_id(), &PartsBuf::new().part(&again))
            .name(name)
            .description(&*name.to_str())
            .metadata(turn.request.metadata.unwrap());
        turn.artifact(&artifact);
        turn.status(TaskState::Completed);
    });
    let name = r#"caf\u00e9 \"1\"\/\\.txt"#;
    let part = format!(
        r#"{{"data":{{ "n" : 1.50 }},"metadata":{{"p":1e400}},"filename":"{name}","mediaType":"a\/b"}}"#
    );
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"metadata":{{"r": [ ]}},
            "message":{{"messageId":"m-1","role":"ROLE_USER","parts":[{part}]}}}}}}"#
    );
    let reply = lab.ask(&crate::support::ask::post("/", &[], &body));
    let text = reply.text();
    // Once in the history, once in the artifact.
    assert_eq!(text.matches(&part).count(), 2, "{text}");
    let escaped = r#"café \"1\"/\\.txt"#;
    let expected = format!(r#""name":"{name}","description":"{escaped}","metadata":{{"r": [ ]}}"#);
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn messages_without_an_id_get_fresh_ones() {
    let jobs: Arc<Mutex<Vec<Job>>> = Arc::default();
    let detached = jobs.clone();
    let mut lab = lab(move |mut turn| {
        let message = MessageBuf::agent(&PartsBuf::new().text("x"));
        match &*turn.message.text() {
            "reply" => turn.reply(message),
            "named" => turn.reply(message.id("mine")),
            "job" => detached.lock().unwrap().push(turn.detach().unwrap()),
            "ids" => {
                let ids: HashSet<_> = (0..100).map(|_| turn.fresh_id()).collect();
                assert!(ids.len() == 100 && ids.iter().all(|id| id.len() == 36));
                turn.status(TaskState::Completed);
            }
            _ => {
                turn.status_with(TaskState::Working, &message);
                turn.status_with(TaskState::Working, &message);
                turn.status_with(TaskState::Completed, &message);
            }
        }
    });
    let mut seen = HashSet::new();
    let mut fresh = |message: &Value| {
        let id = message["messageId"].as_str().expect("an id").to_owned();
        assert_eq!((id.len(), &id[14..15]), (36, "4"), "a random UUID: {id}");
        assert!(seen.insert(id));
    };
    for _ in 0..3 {
        fresh(&lab.result("SendMessage", &send(json!([{ "text": "reply" }])))["message"]);
        let task = lab.result("SendMessage", &send(json!([{ "text": "task" }])))["task"].clone();
        fresh(&task["status"]["message"]);
        let messages =
            task["history"].as_array().unwrap().iter().filter(|m| m["role"] != "ROLE_USER");
        assert_eq!(messages.map(&mut fresh).count(), 2);
    }
    let named = lab.result("SendMessage", &send(json!([{ "text": "named" }])));
    assert_eq!(named["message"]["messageId"], "mine");
    lab.result("SendMessage", &send(json!([{ "text": "ids" }])));
    for _ in 0..2 {
        let mut sent = send(json!([{ "text": "job" }]));
        sent["configuration"] = json!({ "returnImmediately": true });
        let task = lab.result("SendMessage", &sent)["task"].clone();
        let mut job = jobs.lock().unwrap().pop().unwrap();
        let message = MessageBuf::agent(&PartsBuf::new().text("x"));
        job.status(TaskState::Working, Some(&message)).unwrap();
        let own: HashSet<_> = (0..100).map(|_| job.fresh_id()).collect();
        assert_eq!(own.len(), 100);
        drop(job);
        let task = lab.result("GetTask", &json!({ "id": task["id"] }));
        assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
        fresh(&task["status"]["message"]);
        fresh(&task["history"][1]);
    }
}

#[test]
fn builders_set_every_field_once() {
    let object = |text| JsonObject::parse(text).unwrap();
    let part = PartBuf::bytes(&[0, 1, 2, 0xff])
        .filename("wrong")
        .filename("a.bin")
        .media_type("application/octet-stream")
        .metadata(object("{\"a\":0}"))
        .metadata(object("{\"a\":1}"));
    let same = PartBuf::base64("AAEC_w").unwrap();
    assert_eq!(part.view().content(), same.view().content());
    assert_eq!(PartBuf::base64("A").err(), Some(ValueError::NotBase64));
    assert_eq!(PartBuf::base64("a\"b").err(), Some(ValueError::NotBase64));
    let parts = PartsBuf::new().text("t").part(&part).part(same.view());
    let message = MessageBuf::agent(&parts)
        .context_id("c\"")
        .task_id("t")
        .reference_task_id("r1")
        .reference_task_id("r2")
        .extension("urn:x")
        .metadata(object("{}"))
        .id("old")
        .id("new");
    let artifact = ArtifactBuf::new("a", &parts)
        .name("n")
        .description("d")
        .extension("urn:y")
        .metadata(object("{}"));
    let view = message.view();
    assert_eq!((view.message_id().to_string(), view.parts().count()), ("new".to_owned(), 3));
    assert!(view.context_id().unwrap() == "c\"" && view.task_id().unwrap() == "t");
    assert_eq!(
        view.reference_task_ids().map(|id| id.to_string()).collect::<Vec<_>>(),
        ["r1", "r2"]
    );
    assert!(view.extensions().all(|uri| uri == "urn:x") && view.metadata().is_some());
    let mut lab = lab(move |mut turn| {
        turn.chunk(&artifact, false, false);
        turn.chunk(&ArtifactBuf::new("a", &PartsBuf::new().text("more")), true, true);
        turn.status_with(TaskState::Completed, &message);
    });
    let task = lab.result("SendMessage", &send(json!([{ "text": "go" }])))["task"].clone();
    let shown = json!({
        "raw": "AAEC/w==", "filename": "a.bin", "mediaType": "application/octet-stream",
        "metadata": { "a": 1 },
    });
    let (first, last) = (json!({ "text": "t" }), json!({ "raw": "AAEC/w==" }));
    assert_eq!(
        task["artifacts"][0],
        json!({
            "artifactId": "a", "name": "n", "description": "d", "metadata": {},
            "parts": [first, shown, last, { "text": "more" }], "extensions": ["urn:y"],
        })
    );
    assert_eq!(
        task["status"]["message"],
        json!({
            "messageId": "new", "contextId": "c\"", "taskId": "t", "role": "ROLE_AGENT",
            "parts": [first, shown, last], "metadata": {}, "extensions": ["urn:x"],
            "referenceTaskIds": ["r1", "r2"],
        })
    );
}

#[test]
fn invalid_packed_bytes_are_rejected() {
    let message = MessageBuf::agent(&PartsBuf::new().data(Json::parse("[1]").unwrap())).id("m");
    let packed = message.view().packed();
    assert!(Message::from_packed(packed).is_ok() && Part::from_packed(packed).is_err());
    for end in 1..packed.len() {
        // Cut between two fields, the bytes are a valid, shorter message.
        let cut = Message::from_packed(&packed[..end]);
        assert!(cut.is_ok() || cut.err() == Some(ValueError::NotPacked), "{end}");
    }
    let twice = [packed, packed].concat();
    assert_eq!(Message::from_packed(&twice).err(), Some(ValueError::NotPacked));
    let broken = [packed, &[6, 9, 0, 0, 0][..], b"{not json"].concat();
    assert!(matches!(Message::from_packed(&broken), Err(ValueError::Json(_))));
    let list = [packed, &[6, 2, 0, 0, 0][..], b"[]"].concat();
    assert_eq!(Message::from_packed(&list).err(), Some(ValueError::NotAnObject));
    let quote = [packed, &[7, 1, 0, 0, 0][..], b"\""].concat();
    assert_eq!(Message::from_packed(&quote).err(), Some(ValueError::NotRawText));
}

/// Any text with any mix of escaped and plain characters.
fn spelled() -> impl Strategy<Value = (String, String)> {
    prop::collection::vec((any::<char>(), any::<bool>()), 0..40).prop_map(|chars| {
        let (mut text, mut raw) = (String::new(), Vec::new());
        for (c, as_hex) in chars {
            text.push(c);
            if as_hex {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                units.iter().for_each(|unit| raw.extend(format!("\\u{unit:04x}").bytes()));
            } else {
                push_escaped(&mut raw, c.encode_utf8(&mut [0; 4]));
            }
        }
        (text, String::from_utf8(raw).unwrap())
    })
}

proptest! {
    /// Raw JSON text passes a builder unchanged; plain text is escaped once. Both equal the text.
    #[test]
    fn builders_preserve_escaped_and_plain_text(spelled in spelled()) {
        let (text, raw) = spelled;
        let spelling = RawText::parse(&raw).unwrap();
        prop_assert_eq!(spelling.to_str(), text.as_str());
        prop_assert!(spelling == text.as_str());
        let part = PartBuf::text(spelling).filename(spelling).media_type(text.as_str());
        let again = PartBuf::text(&text)
            .filename(part.view().filename().unwrap())
            .media_type(part.view().media_type().unwrap());
        for view in [part.view(), again.view()] {
            let Content::Text(value) = view.content() else { panic!("text") };
            prop_assert!(value == text.as_str() && value == spelling);
            prop_assert_eq!(view.filename().unwrap().raw(), raw.as_bytes());
            prop_assert_eq!(view.media_type().unwrap().to_string(), text.clone());
        }
        // Ids are stored unescaped, so that equal ids are equal bytes.
        let [one, other] = [MessageBuf::agent(&PartsBuf::new()).id(spelling),
            MessageBuf::agent(&PartsBuf::new()).id(&text)];
        prop_assert_eq!(one.view().packed(), other.view().packed());
    }
}
