//! Streams in every pair: their events, the order, the end, and resumption.

use serde_json::json;

use super::{
    client::{By, Call, Client, Op, Stream, Target},
    expected_task::{Expected, stream_in},
    life::in_every_way,
    message_spec::{MessageSpec, text_spec},
    model::{Event, Last, Numbered, Role},
    server::Server,
    variants::{VARIANTS, every_way},
};

/// Begins a task that the observer continues, and the expected task.
fn held(server: &Server) -> (Target, Expected) {
    held_by(&mut server.observer())
}

/// The same, made by this client.
pub fn held_by(client: &mut Client) -> (Target, Expected) {
    let spec = text_spec("hold");
    let task = client.send(&spec).expect("an answer").task();
    let mut expects = Expected::begun(&task.id, &task.context, &spec);
    expects.status("working", "");
    (client.target(&task), expects)
}

/// Sends the next message to the task.
pub fn send_text(client: &mut Client, expects: &mut Expected, text: &str) {
    let spec = text_spec(text).to(&expects.task);
    client.send(&spec).expect("an answer").task();
    expects.add_message(&spec);
}

/// Completes a held task with this client: three chunks and the end.
pub fn finish(client: &mut Client, expects: &mut Expected) -> Vec<Numbered> {
    let mut events = Vec::new();
    for (text, chunk, append, last) in [
        ("chunk", "a", false, false),
        ("chunk more", "b", true, false),
        ("chunk last", "c", true, true),
    ] {
        send_text(client, expects, text);
        events.push(expects.chunk(chunk, append, last));
    }
    send_text(client, expects, "end");
    events.push(expects.status("completed", "The end."));
    events
}

fn open(client: &mut Client, spec: &MessageSpec) -> Stream {
    client.stream(spec).expect("a stream")
}

#[test]
fn stream_has_all_events_of_its_task() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let spec = text_spec("done");
        let mut stream = open(client, &spec);
        let (id, first) = stream.begin();
        let context = context_of(&first).unwrap_or_else(|| "unknown".to_owned());
        let mut expects = Expected::begun(&id, &context, &spec);
        let mut events = vec![expects.shown()];
        events.extend(expects.done());
        let mut seen = vec![first];
        seen.extend(stream.rest());
        assert_eq!(seen, stream_in(client.variant.form(), client.variant.generation, &events));
    });
}

/// The conversation that a first event names; 0.1 does not.
fn context_of(first: &Numbered) -> Option<String> {
    match &first.event {
        Event::Task(task) => Some(task.context.clone()),
        Event::Message(_) | Event::Status { .. } | Event::Artifact { .. } => None,
    }
}

#[test]
fn stream_of_a_direct_message_has_one_event() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let seen = open(client, &text_spec("ping")).rest();
        let [Numbered { seq: None, event }] = &seen[..] else { panic!("{seen:?}") };
        match event {
            Event::Message(message) => {
                assert!(client.variant.has_messages());
                assert_eq!((message.role, message.first_text()), (Role::Agent, "pong"));
            }
            Event::Status { state, message, last, .. } => {
                assert!(!client.variant.has_messages());
                assert_eq!((state.as_str(), *last), ("completed", Last(Some(true))));
                assert_eq!(message.as_ref().expect("a message").first_text(), "pong");
            }
            Event::Task(_) | Event::Artifact { .. } => panic!("{event:?}"),
        }
    });
}

#[test]
fn stream_ends_at_input_required_and_a_new_stream_continues() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let (first, form) = (text_spec("ask"), client.variant.form());
        let seen = open(client, &first).rest();
        let (id, context) = match &seen[0].event {
            Event::Task(task) => (task.id.clone(), task.context.clone()),
            Event::Status { task, .. } => (task.clone(), "unknown".to_owned()),
            other => panic!("{other:?}"),
        };
        let mut expects = Expected::begun(&id, &context, &first);
        let mut events = vec![expects.shown()];
        events.push(expects.status("working", ""));
        events.push(expects.status("input-required", "What next?"));
        assert_eq!(seen, stream_in(form, client.variant.generation, &events));
        // It always begins with the current task (wire §5.1), with the message in its history.
        let next = text_spec("done").to(&expects.task);
        expects.add_message(&next);
        let seen = open(client, &next).rest();
        let mut events = vec![expects.shown()];
        events.extend(expects.done());
        assert_eq!(seen, stream_in(form, client.variant.generation, &events));
    });
}

#[test]
fn a_stream_stays_open_at_auth_required() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let first = text_spec("sign in");
        let mut stream = open(client, &first);
        let (id, _) = stream.begin();
        let event = stream.expect();
        let state = super::model::state_in(client.variant.form(), "auth-required");
        assert!(
            matches!(&event.event, Event::Status { state: s, last, .. }
                if *s == state && *last == Last(Some(false))),
            "{event:?}"
        );
        // The credentials come out of band (A2A 1.0 §7.6.1); here the task ends instead.
        client.cancel(&Target { id, made: client.variant.generation }).expect("a canceled task");
        let end = stream.rest();
        assert!(
            matches!(&end[..], [Numbered { event: Event::Status { state, .. }, .. }]
                if state == "canceled"),
            "{end:?}"
        );
    });
}

#[test]
fn subscriber_gets_the_task_then_all_later_events() {
    let server = Server::start();
    let mut observer = server.observer();
    in_every_way(&server, |client| {
        let (target, mut expects) = held(&server);
        let mut stream = client.subscribe(&target).expect("a stream");
        // The first event shows that it is attached; only then does the task continue.
        let mut events = vec![expects.shown()];
        let mut seen = vec![stream.expect()];
        events.extend(finish(&mut observer, &mut expects));
        seen.extend(stream.rest());
        assert_eq!(seen, stream_in(client.variant.form_for(target.made), target.made, &events));
    });
}

#[test]
fn all_subscribers_get_the_same_events_in_order() {
    let server = Server::start();
    for &made in VARIANTS {
        let mut maker = server.client(made);
        let (target, mut expects) = held_by(&mut maker);
        // Two of each pair; one more disconnects early, without an effect on the others.
        let mut streams = Vec::new();
        for variant in every_way().chain(every_way()) {
            let mut client = server.client(variant);
            let mut stream = client.subscribe(&target).expect("a stream");
            let first = stream.expect();
            streams.push((client, stream, vec![first]));
        }
        let mut leaver = server.client(made).subscribe(&target).expect("a stream");
        leaver.expect();
        let mut events = vec![expects.shown()];
        send_text(&mut maker, &mut expects, "chunk");
        events.push(expects.chunk("a", false, false));
        leaver.expect();
        drop(leaver);
        events.extend(finish(&mut maker, &mut expects));
        for (client, stream, mut seen) in streams {
            seen.extend(stream.rest());
            let form = client.variant.form_for(target.made);
            assert_eq!(
                seen,
                stream_in(form, target.made, &events),
                "{made:?} in {:?}",
                client.variant
            );
        }
    }
}

#[test]
fn a_resumed_subscription_has_no_gap_and_no_repeat() {
    let server = Server::start();
    let mut observer = server.observer();
    in_every_way(&server, |client| {
        let (target, mut expects) = held(&server);
        let form = client.variant.form_for(target.made);
        let whole = client.subscribe(&target).expect("a stream");
        // Returns before there is a new event, and waits.
        let waits =
            client.subscribe_after(&target, Some((expects.seq, By::Field))).expect("a stream");
        let mut events = vec![expects.shown()];
        events.extend(finish(&mut observer, &mut expects));
        let expected = stream_in(form, target.made, &events);
        assert_eq!(whole.rest(), expected);
        assert_eq!(waits.rest(), expected[1..]);
        // Returns after the end, having seen all but some events.
        for (count, one) in events.iter().enumerate().take(events.len() - 1) {
            for by in [By::Field, By::Query] {
                let after = one.seq.expect("a number");
                let back = client.subscribe_after(&target, Some((after, by))).expect("a stream");
                assert_eq!(back.rest(), expected[count + 1..], "{after} by {by:?}");
            }
        }
        // A client that has seen all events of a finished task cannot subscribe.
        let call = Call::new(Op::Subscribe, json!({"id": target.id}));
        let fault = client.fault(&Call { after: Some((expects.seq, By::Field)), ..call });
        super::errors::assert_fault(client.variant, Op::Subscribe, "UnsupportedOperation", &fault);
    });
}

#[test]
fn a_resumption_after_eviction_sends_the_task_first() {
    let server = Server::with(&["--limit", "event_ring_max=20"]);
    let mut observer = server.observer();
    in_every_way(&server, |client| {
        let task = observer.send(&text_spec("rewrite")).expect("an answer").task();
        let target = observer.target(&task);
        // Submitted, two hundred times an artifact, working.
        let last = 202;
        let mut within = client.subscribe_after(&target, Some((last - 10, By::Field))).unwrap();
        let mut outside = client.subscribe_after(&target, Some((1, By::Field))).unwrap();
        let snapshot = outside.expect();
        assert_eq!(snapshot.seq, Some(last));
        assert!(matches!(snapshot.event, Event::Task(task) if task.state == "working"));
        let missed: Vec<_> = (0..10).map(|_| within.expect().seq).collect();
        assert_eq!(missed, (last - 9..=last).map(Some).collect::<Vec<_>>());
        observer.send(&text_spec("end").to(&task)).expect("an answer");
        for stream in [within, outside] {
            let [Numbered { seq, event: Event::Status { state, .. } }] = &stream.rest()[..] else {
                panic!("one event more");
            };
            assert_eq!((*seq, state.as_str()), (Some(last + 1), "completed"));
        }
    });
}

#[test]
fn a_subscription_outlasts_input_required_in_1_0() {
    let server = Server::start();
    let mut observer = server.observer();
    in_every_way(&server, |client| {
        let first = text_spec("ask");
        let task = observer.send(&first).expect("an answer").task();
        let target = observer.target(&task);
        let mut expects = Expected::begun(&task.id, &task.context, &first);
        expects.status("working", "");
        expects.status("input-required", "What next?");
        let form = client.variant.form_for(target.made);
        let mut stream = client.subscribe(&target).expect("a stream");
        let mut events = vec![expects.shown()];
        let mut seen = vec![stream.expect()];
        if client.variant.subscription_outlasts_input() {
            send_text(&mut observer, &mut expects, "done");
            events.extend(expects.done());
        }
        seen.extend(stream.rest());
        assert_eq!(seen, stream_in(form, target.made, &events));
    });
}

#[test]
fn a_task_outlives_the_stream_that_made_it() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let mut stream = open(client, &text_spec("hold"));
        let (id, _) = stream.begin();
        drop(stream);
        let target = Target { id, made: client.variant.generation };
        let task = client.get(&target).expect("a task");
        client.send(&text_spec("end").to(&task)).expect("an answer");
        assert_eq!(client.get(&target).expect("a task").state, "completed");
    });
}

#[test]
fn shutdown_ends_every_stream_with_an_error() {
    let mut server = Server::with(&["--limit", "drain_ms=100"]);
    let mut streams = Vec::new();
    for &variant in VARIANTS {
        let mut client = server.client(variant);
        let mut stream = open(&mut client, &text_spec("hold"));
        stream.expect();
        let working = stream.expect();
        assert!(matches!(&working.event, Event::Status { state, .. } if state == "working"));
        streams.push((client, stream));
    }
    server.binary.terminate();
    for (client, mut stream) in streams {
        let fault = stream.fault();
        super::errors::assert_cut(client.variant, &fault);
    }
    assert!(server.binary.wait(), "an orderly end");
}
