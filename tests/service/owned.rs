//! Owned copies of calls and tasks.

use peregrine::{
    model::{
        ArtifactBuf, Call, CallBuf, Generation, Get, JsonObject, List, MessageBuf, PartsBuf,
        PushCall, PushConfig, PushConfigBuf, PushForm, PushRequest, RawText, Refusal, Send,
        SendMode, Target, TaskBuf, TaskLimits, TaskState, TaskView, Text,
    },
    service::{Cursor, Follow, StreamResponse},
};

fn raw(text: &str) -> RawText<'_> {
    RawText::parse(text).unwrap()
}

/// All contents of a call, in one form for all operations.
fn call_text(call: &Call<'_>) -> String {
    let object = |object: Option<JsonObject<'_>>| object.map(|object| object.as_str().to_owned());
    let bytes = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match call {
        Call::Send(send) => {
            let Send { message, has_own_id, task_id, client_chooses_id, context_id, mode, .. } =
                *send;
            let (modes, metadata) = (send.accepted_output_modes.map(bytes), object(send.metadata));
            let ids = (message.message_id(), has_own_id, task_id, context_id, client_chooses_id);
            let how = (mode, send.history, send.generation, bytes(message.packed()));
            let push = send.push.map(config_text);
            format!("send {ids:?} {how:?} {modes:?} {metadata:?} {push:?}")
        }
        Call::Get(Get { id, context_id, history, wait }) => {
            format!("{id:?} {context_id:?} {history:?} {wait:?}")
        }
        Call::List(list) => {
            let which = (list.context_id, list.status, list.page_size, list.after_ms);
            let page = (list.page_token.map(bytes), list.history, list.include_artifacts);
            format!("list {which:?} {page:?}")
        }
        Call::Cancel(target) => format!("cancel {}", target_text(target)),
        Call::Subscribe(target) => format!("subscribe {}", target_text(target)),
        Call::Push(push) => push_text(push),
        Call::ExtendedCard => "card".to_owned(),
    }
}

fn push_text(push: &PushRequest<'_>) -> String {
    let call = match push.call {
        PushCall::Set(config) => config_text(config),
        other => format!("{other:?}"),
    };
    format!("{call} {:?}", push.form)
}

fn config_text(config: PushConfig<'_>) -> String {
    let (ids, secrets) = ((config.id(), config.task_id()), (config.token(), config.credentials()));
    format!("{ids:?} {:?} {:?} {secrets:?}", config.url(), config.scheme())
}

fn target_text(target: &Target<'_>) -> String {
    let Target { id, context_id, metadata, generation, after } = *target;
    let metadata = metadata.map(|metadata| metadata.as_str().to_owned());
    format!("{id:?} {context_id:?} {metadata:?} {generation:?} {after:?}")
}

#[test]
fn owned_call_equals_the_borrowed_call() {
    let message = MessageBuf::agent(&PartsBuf::new().text("hé\"llo").text("again")).id("m-1");
    let metadata = JsonObject::parse(r#"{ "a" : 1.50 }"#).unwrap();
    let config = PushConfigBuf::new("https://h").id("p").task_id("t").bearer("s");
    let full = Send {
        has_own_id: true,
        message: message.view(),
        task_id: Some(raw("t-1")),
        client_chooses_id: true,
        context_id: Some(raw(r"c\n1")),
        mode: SendMode::Stream,
        history: Some(3),
        accepted_output_modes: Some(b"[\"text/plain\"]"),
        metadata: Some(metadata),
        push: Some(config.view()),
        generation: Generation::V01,
    };
    let bare = Send {
        has_own_id: true,
        task_id: None,
        client_chooses_id: false,
        context_id: None,
        mode: SendMode::Wait,
        history: None,
        accepted_output_modes: None,
        metadata: None,
        push: None,
        ..full
    };
    let target = Target {
        id: raw("t-2"),
        context_id: Some(raw("")),
        metadata: Some(metadata),
        generation: Generation::V03,
        after: Some(7),
    };
    let list = List {
        context_id: Some(raw("c-2")),
        status: Some(TaskState::Working),
        page_size: Some(9),
        page_token: Some(b""),
        history: Some(1),
        after_ms: Some(8),
        include_artifacts: true,
    };
    let get = Get { id: raw("t-3"), context_id: None, history: Some(0), wait: None };
    for call in [
        Call::Send(full),
        Call::Send(bare),
        Call::Get(get),
        Call::List(list),
        Call::List(List::default()),
        Call::Cancel(target),
        Call::Subscribe(Target { metadata: None, context_id: None, after: None, ..target }),
        Call::Push(PushRequest {
            call: PushCall::Set(config.view()),
            form: PushForm::StreamResponse,
        }),
        Call::Push(PushRequest {
            call: PushCall::Get { task_id: raw("t"), id: None },
            form: PushForm::Task01,
        }),
        Call::Push(PushRequest {
            call: PushCall::List {
                task_id: raw("t"),
                page_size: Some(3),
                page_token: Some(raw("x")),
            },
            form: PushForm::Task03,
        }),
        Call::Push(PushRequest {
            call: PushCall::Delete { task_id: raw("t"), id: Some(raw("p")) },
            form: PushForm::EvoAi,
        }),
        Call::ExtendedCard,
    ] {
        let owned = CallBuf::of(&call);
        // It moves to another thread without borrowed data.
        let thread_text =
            std::thread::spawn(move || call_text(&owned.clone().view())).join().unwrap();
        assert_eq!(thread_text, call_text(&call));
    }
}

fn shown(view: TaskView<'_>) -> (String, String, u64, TaskState, Vec<String>, Vec<String>) {
    let (id, context_id) = (view.id().to_string(), view.context_id().to_string());
    let history = view.history(None).map(|message| message.message_id().to_string());
    let artifacts = view.artifacts().map(|artifact| artifact.head().artifact_id().to_string());
    let state = view.status().state;
    (id, context_id, view.seq(), state, history.collect(), artifacts.collect())
}

#[test]
fn owned_task_is_built_from_events_and_copied_from_views() {
    let message = |id: &str| MessageBuf::agent(&PartsBuf::new().text("text")).id(id);
    let mut task = TaskBuf::new("t \"1\"", raw(r"c\u00e9"), Generation::V1).unwrap();
    task.user_message(message("m-1").view()).unwrap();
    task.status(TaskState::Working, 5, Some(&message("m-2"))).unwrap();
    let working = TaskBuf::of(task.view());
    task.artifact(&ArtifactBuf::new("a-1", &PartsBuf::new().text("made"))).unwrap();
    task.status(TaskState::Completed, 6, None).unwrap();
    assert_eq!(task.user_message(message("m-3").view()), Err(Refusal::Terminal));

    let (id, context_id) = ("t \"1\"".to_owned(), "cé".to_owned());
    let (m1, m2, a1) = ("m-1".to_owned(), "m-2".to_owned(), "a-1".to_owned());
    let then = (id.clone(), context_id.clone(), 1, TaskState::Working, vec![m1.clone()], vec![]);
    let now = (id, context_id, 3, TaskState::Completed, vec![m1, m2], vec![a1]);
    assert_eq!(shown(task.view()), now);
    assert_eq!(shown(working.view()), then);
    // A copy of the earlier state, made after the task has changed.
    assert_eq!(shown(TaskBuf::of(task.task().view_at(1)).view()), then);

    let long = "x".repeat(70_000);
    let refused = TaskBuf::new(Text::from(&*long), "c", Generation::V1);
    assert_eq!(refused.err(), Some(Refusal::TooLarge));
}

#[test]
fn owned_task_enforces_its_limits() {
    let limits = TaskLimits { bytes_max: 500, history_max: 2, artifacts_max: 1, replay_max: 9 };
    let mut task = TaskBuf::new("t", "c", Generation::V1).unwrap().within(limits);
    let message = |id: &str| MessageBuf::agent(&PartsBuf::new().text("text")).id(id);
    for id in ["m-1", "m-2", "m-3"] {
        task.user_message(message(id).view()).unwrap();
    }
    let ids = |task: &TaskBuf| shown(task.view()).4;
    assert_eq!(ids(&task), ["m-2", "m-3"]);
    let made = |id, length| ArtifactBuf::new(id, &PartsBuf::new().text(&"x".repeat(length)));
    assert_eq!(task.artifact(&made("a-1", 500)), Err(Refusal::TooLarge));
    task.artifact(&made("a-1", 5)).unwrap();
    // A copy changes independently, without limits.
    let mut copy = TaskBuf::of(task.view());
    copy.artifact(&made("a-2", 500)).unwrap();
    assert_eq!(task.artifact(&made("a-2", 5)), Err(Refusal::TooManyArtifacts));
    assert_eq!((shown(task.view()).5.len(), shown(copy.view()).5.len()), (1, 2));
}

#[test]
fn cursor_reads_snapshot_and_events_of_owned_task() {
    let mut task = TaskBuf::new("t", "c", Generation::V1).unwrap();
    task.status(TaskState::Submitted, 1, None).unwrap();
    let mut cursor = Cursor { seq: 1, snapshot: true, ..Cursor::default() };
    let mut seen = Vec::new();
    let mut read = |cursor: &mut Cursor, task: &TaskBuf| {
        let follow = cursor.show_new(task.task(), &mut |item| {
            seen.push(match item {
                StreamResponse::Snapshot(view) => (view.seq(), "snapshot"),
                StreamResponse::Event { seq, last, .. } => (seq, if last { "last" } else { "" }),
                StreamResponse::Message { .. } => panic!("a task's stream has no message"),
            });
            true
        });
        (follow, std::mem::take(&mut seen))
    };
    assert_eq!(read(&mut cursor, &task), (Follow::Pending, vec![(1, "snapshot")]));
    task.status(TaskState::Working, 2, None).unwrap();
    task.status(TaskState::Completed, 3, None).unwrap();
    assert_eq!(read(&mut cursor, &task), (Follow::End, vec![(2, ""), (3, "last")]));
}
