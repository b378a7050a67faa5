//! Operations of a client, against an engine in the same process.

use peregrine::{
    client::{
        Binding, CallOptions, Client, ClientBuilder, ClientErrorKind, ListTasks, ProtocolVersion,
        SendRequest, card::AgentCard,
    },
    fault::FaultKind,
    model::TaskState,
};

use crate::in_process::InProcess;

pub fn run<R>(future: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub async fn client(builder: ClientBuilder) -> Client<InProcess> {
    builder.discover_over(InProcess::echo(), "http://agent.test").await.unwrap()
}

/// A client of an agent with a 0.1 card.
fn connected(builder: ClientBuilder) -> Client<InProcess> {
    const CARD: &[u8] = br#"{"name":"echo","url":"http://agent.test/","version":"1",
        "capabilities":{"streaming":true},"skills":[]}"#;
    let card = AgentCard::read(CARD).unwrap();
    builder.connect_over(InProcess::echo(), card, None).unwrap()
}

const VARIANTS: [(Binding, &str); 5] = [
    (Binding::JsonRpc, "1.0"),
    (Binding::HttpJson, "1.0"),
    (Binding::JsonRpc, "0.3"),
    (Binding::HttpJson, "0.3"),
    (Binding::JsonRpc, "0.1"),
];

fn builder(binding: Binding, version: &str) -> ClientBuilder {
    let version = ProtocolVersion::parse(version).unwrap();
    ClientBuilder::new().transports([binding]).version(version)
}

#[test]
fn sent_task_is_readable_but_not_cancelable_once_completed() {
    for (binding, version) in VARIANTS {
        run(async {
            let client = match version {
                // Cards of 0.1 have no versions, and this one lists no others.
                "0.1" => connected(builder(binding, version)),
                _ => client(builder(binding, version)).await,
            };
            let mut request = SendRequest::text("hello");
            if version == "0.1" {
                request = request.task_id("t-1");
            }
            let sent = client.send(&request).await.unwrap();
            assert_eq!(sent.state(), Some(TaskState::Completed), "{binding:?} {version}");
            let id = sent.task_id().unwrap().to_str().into_owned();
            let read = client.get_task(&id, None).await.unwrap();
            let artifacts = read.task().unwrap().artifacts();
            let texts: Vec<String> = artifacts
                .flat_map(|artifact| artifact.parts())
                .map(|part| part.as_text().unwrap().to_str().into_owned())
                .collect();
            assert_eq!(texts, ["hello"], "{binding:?} {version}");
            let error = client.cancel_task(&id, None).await.unwrap_err();
            assert_eq!(error.fault_kind(), Some(FaultKind::TaskNotCancelable), "{error}");
            let error = client.get_task("nobody", None).await.unwrap_err();
            assert_eq!(error.fault_kind(), Some(FaultKind::TaskNotFound), "{error}");
        });
    }
}

#[test]
fn tasks_are_listed_page_by_page() {
    run(async {
        let client = client(ClientBuilder::new()).await;
        for _ in 0..3 {
            client.send(&SendRequest::text("x")).await.unwrap();
        }
        let mut list = ListTasks { page_size: Some(2), ..ListTasks::default() };
        let page = client.list_tasks(&list).await.unwrap();
        let (count, total) =
            (page.page().unwrap().tasks().count(), page.page().unwrap().total_size);
        assert_eq!((count, total), (2, 3));
        let next = page.page().unwrap().next_page_token;
        list.page_token = Some(next.to_str().into_owned());
        let page = client.list_tasks(&list).await.unwrap();
        assert_eq!(page.page().unwrap().tasks().count(), 1);
        assert!(page.page().unwrap().next_page_token.is_empty());
    });
}

#[test]
fn send_returns_a_direct_message() {
    run(async {
        let client = client(ClientBuilder::new()).await;
        let answer = client.send(&SendRequest::text("ping")).await.unwrap();
        assert_eq!(answer.message().unwrap().text(), "pong");
        assert!(answer.task().is_none());
        let mut json = Vec::new();
        answer.write_json(&mut json);
        assert!(json.starts_with(b"{\"message\":{"), "{}", String::from_utf8_lossy(&json));
    });
}

#[test]
fn undeclared_capabilities_are_not_requested() {
    run(async {
        let client = client(ClientBuilder::new()).await;
        let before = client.transport().requests.load(std::sync::atomic::Ordering::Relaxed);
        let error = client.list_push_configs("t", None, None).await.unwrap_err();
        assert_eq!(error.kind, ClientErrorKind::NotDeclared("push notifications"));
        let error = client.extended_card().await.unwrap_err();
        assert_eq!(error.kind, ClientErrorKind::NotDeclared("extended card"));
        let after = client.transport().requests.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(before, after);
    });
}

#[test]
fn assumes_push_sends_webhook_calls_with_one_warning() {
    use std::sync::{Arc, Mutex};

    run(async {
        let (warnings, mut options) = (Arc::new(Mutex::new(Vec::new())), CallOptions::default());
        options.assumes_push = true;
        let sink = Arc::clone(&warnings);
        let builder = ClientBuilder::new().options(options);
        let builder = builder.on_warning(move |line| sink.lock().unwrap().push(line.to_owned()));
        let client = client(builder).await;
        // This agent has none, and reports so itself.
        for _ in 0..2 {
            let error = client.list_push_configs("t", None, None).await.unwrap_err();
            let kind = error.fault_kind();
            assert_eq!(kind, Some(FaultKind::PushNotificationNotSupported), "{error}");
        }
        let warnings = warnings.lock().unwrap();
        assert!(matches!(&warnings[..], [one] if one.contains("does not declare")), "{warnings:?}");
    });
}
