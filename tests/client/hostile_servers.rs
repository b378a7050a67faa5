//! Servers, cards and networks that try to harm the client.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Waker},
};

use peregrine::{
    client::{
        Client, ClientBuilder, ClientError, ClientErrorKind, ClientLimits, EventKind, SendRequest,
        TransportError,
        card::AgentCard,
        credentials::{Credentials, CredentialsError, Secret},
    },
    model::TaskState,
};

use crate::scripted::*;

/// Finds a card by a redirect from one origin to another, and calls its agent; returns the
/// requests, and the error.
fn redirected(from: &str, to: &'static str) -> (Vec<String>, Option<ClientErrorKind>) {
    let transport = Scripted::new(move |request| {
        let is_moved = request.origin.to_string() == to;
        match (is_moved, request.target) {
            (true, "/card") => Reply::json(&card("HTTP+JSON", to)),
            (true, _) => Reply::json(MESSAGE),
            (false, _) => Reply::of(302, &[("location", &format!("{to}/card"))], ""),
        }
    });
    let requests = Arc::clone(&transport.requests);
    let bearer = Some(Secret::new("hidden"));
    let builder =
        ClientBuilder::new().credentials(Credentials { bearer, ..Credentials::default() });
    let client = settled(builder.discover_over(transport, from)).unwrap();
    let sent = settled(client.send(&SendRequest::text("hello")));
    let requests = requests.lock().unwrap().clone();
    (requests, sent.err().map(|error| error.kind.clone()))
}

/// Over plain http, any machine on the path can answer.
#[test]
fn card_redirect_to_another_host_sends_no_credentials() {
    for from in ["http://agent.test", "https://agent.test"] {
        let (requests, error) = redirected(from, "https://evil.test");
        let refused =
            matches!(error, Some(ClientErrorKind::Credentials(CredentialsError::OtherOrigin(_))));
        assert!(refused, "{error:?}");
        assert!(requests.iter().all(|line| !line.contains("token")), "{requests:?}");
    }
    let (requests, error) = redirected("http://agent.test", "https://agent.test");
    assert_eq!(error, None);
    assert_eq!(requests.last().unwrap(), "https://agent.test/message:send with a token");
}

#[test]
fn interface_query_is_appended_after_the_method_path() {
    let transport = Scripted::new(|_| Reply::json(MESSAGE));
    let client = client(transport, "HTTP+JSON", "http://agent.test/a/?key=1");
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    let _ = settled(client.get_task("t", Some(3)));
    let requests = client.transport().requests.lock().unwrap().clone();
    assert_eq!(
        requests,
        [
            "http://agent.test/a/message:send?key=1",
            "http://agent.test/a/tasks/t?historyLength=3&key=1"
        ]
    );
}

/// Bytes that yield no content, such as an endless coding, do not extend the time.
#[test]
fn stalled_body_times_out_with_the_call() {
    let transport = Scripted::new(|_| {
        let mut reply = Reply::json("{");
        reply.pieces.push_back(Piece::Silence);
        reply
    });
    let client = client(transport, "HTTP+JSON", "http://agent.test");
    let error = settled(client.send(&SendRequest::text("hello"))).unwrap_err();
    assert!(
        matches!(error.kind, ClientErrorKind::Transport(TransportError::Timeout(_))),
        "{error}"
    );
}

#[test]
fn websocket_closed_by_server_is_not_reused() {
    let opened = AtomicU64::new(0);
    let transport = Scripted::new(move |request| {
        // Each session answers one call, and then closes.
        let id = opened.fetch_add(1, Relaxed) + 1;
        Reply::socket(request, vec![vec![result(id, MESSAGE)]])
    });
    let client = client(transport, "WEBSOCKET", "http://agent.test");
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    assert_eq!(client.transport().requests.lock().unwrap().len(), 2);
}

#[test]
fn silent_websocket_stream_ends_with_an_error() {
    let transport = Scripted::new(|request| {
        let first = vec![result(1, TASK), Piece::Silence];
        Reply::socket(request, vec![first, Vec::new()])
    });
    let client = client(transport, "WEBSOCKET", "http://agent.test");
    settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        stream.next().await.unwrap().unwrap();
        assert!(stream.next().await.unwrap().is_err());
    });
}

/// The client stops following a server that repeats itself and breaks off, over and over.
#[test]
fn stream_that_only_repeats_events_is_abandoned() {
    const FIELDS: &[(&str, &str)] = &[("content-type", "text/event-stream")];
    const UPDATE: &str = r#"{"statusUpdate":{"taskId":"t","contextId":"c",
        "status":{"state":"TASK_STATE_WORKING"}}}"#;
    let transport = Scripted::new(|_| {
        let update = UPDATE.replace('\n', "");
        let body = format!("id: 5\ndata: {TASK}\n\nid: 4\ndata: {update}\n\n");
        let mut reply = Reply::of(200, FIELDS, &body);
        reply.pieces.push_back(Piece::Break);
        reply
    });
    let client = client(transport, "HTTP+JSON", "http://agent.test");
    settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        stream.next().await.unwrap().unwrap();
        let next = stream.next().await;
        assert!(next.is_none_or(|event| event.is_err()));
    });
}

/// A caller that drops `next` before the subscription has sent anything loses none of the missed
/// events.
#[test]
fn dropping_next_during_a_resumption_loses_nothing() {
    const FIELDS: &[(&str, &str)] = &[("content-type", "text/event-stream")];
    const DONE: &str = r#""status":{"state":"TASK_STATE_COMPLETED"}"#;
    let transport = Scripted::new(|request| match request.target {
        "/message:stream" => {
            let mut reply = Reply::of(200, FIELDS, &format!("data: {TASK}\n\n"));
            reply.pieces.push_back(Piece::Break);
            reply
        }
        "/tasks/t:subscribe" => {
            let update = format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c",{DONE}}}}}"#);
            let mut reply = Reply::of(200, FIELDS, &format!("data: {update}\n\n"));
            reply.pieces.push_front(Piece::Wait);
            reply
        }
        _ => {
            let artifact = r#"{"artifactId":"a","parts":[{"text":"x"}]}"#;
            let task = format!(r#"{{"id":"t","contextId":"c",{DONE},"artifacts":[{artifact}]}}"#);
            Reply::json(&task)
        }
    });
    let client = client(transport, "HTTP+JSON", "http://agent.test");
    let mut stream = settled(client.stream(&SendRequest::text("hello"))).unwrap();
    settled(stream.next()).unwrap().unwrap();
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(pin!(stream.next()).poll(cx).is_pending());
    let mut changes = 0;
    while let Some(event) = settled(stream.next()) {
        let is_change = matches!(event.unwrap().kind(), EventKind::Change { .. });
        changes += u32::from(is_change);
    }
    // The artifact, and the end.
    assert!(changes >= 2, "{changes}");
}

const STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream")];
const COMPLETED: &str = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}"#;

/// A stream of one item, which then breaks.
fn cut_after(item: &str) -> Reply {
    let mut reply = Reply::of(200, STREAM, &format!("data: {item}\n\n"));
    reply.pieces.push_back(Piece::Break);
    reply
}

/// Reads a stream to its end; returns the last state, and the numbers of subscriptions and reads.
fn followed(client: &Client<Scripted>) -> (Option<TaskState>, usize, usize) {
    let state = settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        while let Some(event) = stream.next().await {
            event.unwrap();
        }
        stream.state()
    });
    let requests = client.transport().requests.lock().unwrap();
    let count = |end: &str| requests.iter().filter(|url| url.ends_with(end)).count();
    (state, count(":subscribe"), count("/tasks/t"))
}

/// Each subscription succeeds, and sends nothing new: the client polls the task until it has ended.
#[test]
fn repeatedly_cut_stream_falls_back_to_polling() {
    let reads = AtomicU64::new(0);
    let transport = Scripted::new(move |request| match request.target {
        "/tasks/t" if reads.fetch_add(1, Relaxed) == 20 => Reply::json(COMPLETED),
        "/tasks/t" => {
            Reply::json(TASK.strip_prefix(r#"{"task":"#).unwrap().strip_suffix('}').unwrap())
        }
        _ => cut_after(TASK),
    });
    let client = client(transport, "HTTP+JSON", "http://agent.test");
    assert_eq!(followed(&client), (Some(TaskState::Completed), 8, 21));
}

#[test]
fn long_lived_subscription_is_resumed_after_every_cut() {
    let (subscribed, clock) = (AtomicU64::new(0), Arc::new(AtomicU64::new(1)));
    let time = Arc::clone(&clock);
    let transport = Scripted::with_clock(&clock, move |request| match request.target {
        "/tasks/t:subscribe" if subscribed.fetch_add(1, Relaxed) == 30 => {
            cut_after(&format!(r#"{{"task":{COMPLETED}}}"#))
        }
        _ => {
            // A gateway that cuts connections after a silent minute.
            let mut reply = cut_after(TASK);
            reply.pieces.insert(1, Piece::Passes(Arc::clone(&time), 60_000));
            reply
        }
    });
    let client = client(transport, "HTTP+JSON", "http://agent.test");
    assert_eq!(followed(&client), (Some(TaskState::Completed), 31, 0));
}

#[test]
fn cut_stream_with_unreadable_task_reports_lost_connection() {
    let transport = Scripted::new(|request| match request.target {
        "/tasks/t" => Reply::of(502, &[], ""),
        _ => cut_after(TASK),
    });
    let client = client(transport, "HTTP+JSON", "http://agent.test");
    settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        stream.next().await.unwrap().unwrap();
        let error = stream.next().await.unwrap().err().unwrap();
        assert!(error.is_connection_lost(), "{error:?}");
    });
}

/// A task of this many artifacts, as events and as a whole.
fn artifacts(count: usize) -> (String, String) {
    let one = |n: usize| format!(r#"{{"artifactId":"a{n}","parts":[{{"text":"x"}}]}}"#);
    let event = |n: usize| {
        let artifact = one(n);
        let data = format!(
            r#"data: {{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{artifact}}}}}"#
        );
        data + "\n\n"
    };
    let events: String = (0..count).map(event).collect();
    let whole: Vec<String> = (0..count).map(one).collect();
    let end = COMPLETED.strip_suffix('}').unwrap();
    (events, format!(r#"{{"task":{end},"artifacts":[{}]}}}}"#, whole.join(",")))
}

#[test]
fn resumed_stream_over_artifacts_max_is_rejected() {
    let followed = |artifacts_max: usize| {
        let transport = Scripted::new(|request| {
            let (events, whole) = artifacts(20);
            match request.target {
                "/message:stream" => {
                    let mut reply = cut_after(TASK);
                    reply.pieces.insert(1, Piece::Bytes(events.into_bytes()));
                    reply
                }
                _ => cut_after(&whole),
            }
        });
        let card = AgentCard::read(card("HTTP+JSON", "http://agent.test").as_bytes()).unwrap();
        let limits = ClientLimits { artifacts_max, ..ClientLimits::default() };
        let builder = ClientBuilder::new().limits(limits);
        let client = builder.connect_over(transport, card, None).unwrap();
        settled(async {
            let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
            let mut changes = 0;
            while let Some(event) = stream.next().await {
                changes += usize::from(matches!(event?.kind(), EventKind::Change { .. }));
            }
            Ok::<_, ClientError>(changes)
        })
    };
    // Each artifact once, and the end.
    assert_eq!(followed(20), Ok(21));
    assert!(matches!(followed(19).unwrap_err().kind, ClientErrorKind::Unreadable(_)));
}

#[test]
fn card_larger_than_card_bytes_max_is_rejected() {
    let description = "x".repeat(2 << 20);
    let json = card("HTTP+JSON", "http://agent.test").replacen(
        '{',
        &format!(r#"{{"description":"{description}","#),
        1,
    );
    let found = |card_bytes_max: usize| {
        let json = json.clone();
        let transport = Scripted::new(move |_| Reply::json(&json));
        let limits = ClientLimits { card_bytes_max, ..ClientLimits::default() };
        let builder = ClientBuilder::new().limits(limits);
        settled(builder.discover_over(transport, "http://agent.test")).map(|_| ())
    };
    found(4 << 20).unwrap();
    let error = found(1 << 20).unwrap_err().kind.clone();
    let expected = TransportError::TooLarge("card_bytes_max");
    assert_eq!(error, ClientErrorKind::Transport(expected));
}

/// A card's validator could identify the client to another server.
#[test]
fn card_validators_are_not_sent_to_another_origin() {
    let json = card("HTTP+JSON", "http://agent.test");
    let count = AtomicU64::new(0);
    let transport = Scripted::new(move |request| {
        match (request.origin.to_string().as_str(), count.fetch_add(1, Relaxed)) {
            ("http://agent.test", 0) => Reply::of(200, &[("etag", "\"who\"")], &json),
            ("http://agent.test", _) => {
                Reply::of(302, &[("location", "http://other.test/card")], "")
            }
            _ => Reply::of(304, &[], ""),
        }
    });
    let client = settled(ClientBuilder::new().discover_over(transport, "http://agent.test"));
    let client = client.unwrap();
    // A server that never sent a card cannot declare it unchanged.
    let error = settled(client.refresh_card()).unwrap_err().kind.clone();
    assert_eq!(error, ClientErrorKind::NoCard(304));
    let fields = client.transport().fields.lock().unwrap().clone();
    assert!(fields[1].contains("If-None-Match: \"who\"") && !fields[2].contains("who"));
}
