//! Streams in every pair: what they hold, in which order, where they end, and how they go on.

use serde_json::json;

use super::{
    canon::{Event, Numbered, Role},
    expect::{Story, stream_in},
    life::in_every_way,
    link::{Ask, By, Client, Op, Stream, Target},
    server::Server,
    talk::{Talk, talk},
    ways::WAYS,
};

/// Begins a task that the witness moves on, and tells what it has become.
fn held(server: &Server) -> (Target, Story) {
    held_by(&mut server.witness())
}

/// The same, made by this client.
pub fn held_by(client: &mut Client) -> (Target, Story) {
    let talk = talk("hold");
    let task = client.send(&talk).expect("an answer").task();
    let mut story = Story::begun(&task.id, &task.context, &talk);
    story.status("working", "");
    (client.target(&task), story)
}

/// Sends the next message to the task.
pub fn tell(client: &mut Client, story: &mut Story, text: &str) {
    let talk = talk(text).to(&story.task);
    client.send(&talk).expect("an answer").task();
    story.told(&talk);
}

/// The rest of a held task's life, told by this client: three chunks and the end.
pub fn finish(client: &mut Client, story: &mut Story) -> Vec<Numbered> {
    let mut told = Vec::new();
    for (text, chunk, append, last) in [
        ("chunk", "a", false, false),
        ("chunk more", "b", true, false),
        ("chunk last", "c", true, true),
    ] {
        tell(client, story, text);
        told.push(story.chunk(chunk, append, last));
    }
    tell(client, story, "end");
    told.push(story.status("completed", "The end."));
    told
}

fn open(client: &mut Client, talk: &Talk) -> Stream {
    client.stream(talk).expect("a stream")
}

#[test]
fn a_stream_tells_the_whole_life_of_its_task() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let talk = talk("done");
        let mut stream = open(client, &talk);
        let (id, first) = stream.begin();
        let context = context_of(&first).unwrap_or_else(|| "unknown".to_owned());
        let mut story = Story::begun(&id, &context, &talk);
        let mut told = vec![story.shown()];
        told.extend(story.done());
        let mut seen = vec![first];
        seen.extend(stream.rest());
        assert_eq!(seen, stream_in(client.way.form(), client.way.generation, &told));
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
fn a_direct_message_is_the_whole_stream() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let seen = open(client, &talk("ping")).rest();
        let [Numbered { seq: None, event }] = &seen[..] else { panic!("{seen:?}") };
        match event {
            Event::Message(message) => {
                assert!(client.way.has_messages());
                assert_eq!((message.role, message.first_text()), (Role::Agent, "pong"));
            }
            Event::Status { state, says, last, .. } => {
                assert!(!client.way.has_messages());
                assert_eq!((state.as_str(), *last), ("completed", Some(true)));
                assert_eq!(says.as_ref().expect("a message").first_text(), "pong");
            }
            Event::Task(_) | Event::Artifact { .. } => panic!("{event:?}"),
        }
    });
}

#[test]
fn a_stream_ends_at_input_required_and_the_next_message_opens_another() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let (first, form) = (talk("ask"), client.way.form());
        let seen = open(client, &first).rest();
        let (id, context) = match &seen[0].event {
            Event::Task(task) => (task.id.clone(), task.context.clone()),
            Event::Status { task, .. } => (task.clone(), "unknown".to_owned()),
            other => panic!("{other:?}"),
        };
        let mut story = Story::begun(&id, &context, &first);
        let mut told = vec![story.shown()];
        told.push(story.status("working", ""));
        told.push(story.status("input-required", "What next?"));
        assert_eq!(seen, stream_in(form, client.way.generation, &told));
        // Always led by the task as it is (wire §5.1), with the message in its history.
        let next = talk("done").to(&story.task);
        story.told(&next);
        let seen = open(client, &next).rest();
        let mut told = vec![story.shown()];
        told.extend(story.done());
        assert_eq!(seen, stream_in(form, client.way.generation, &told));
    });
}

#[test]
fn a_stream_stays_open_at_auth_required() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let first = talk("sign in");
        let mut stream = open(client, &first);
        let (id, _) = stream.begin();
        let asked = stream.expect();
        let state = super::canon::state_in(client.way.form(), "auth-required");
        assert!(
            matches!(&asked.event, Event::Status { state: s, last, .. }
                if *s == state && *last != Some(true)),
            "{asked:?}"
        );
        // The credentials come out of band (A2A 1.0 §7.6.1), here as an end.
        client.cancel(&Target { id, made: client.way.generation }).expect("a canceled task");
        let end = stream.rest();
        assert!(
            matches!(&end[..], [Numbered { event: Event::Status { state, .. }, .. }]
                if state == "canceled"),
            "{end:?}"
        );
    });
}

#[test]
fn a_subscriber_sees_the_task_and_then_all_that_follows() {
    let server = Server::start();
    let mut witness = server.witness();
    in_every_way(&server, |client| {
        let (target, mut story) = held(&server);
        let mut stream = client.subscribe(&target).expect("a stream");
        // The first event says that it is attached; only then does the task go on.
        let mut told = vec![story.shown()];
        let mut seen = vec![stream.expect()];
        told.extend(finish(&mut witness, &mut story));
        seen.extend(stream.rest());
        assert_eq!(seen, stream_in(client.way.form_for(target.made), target.made, &told));
    });
}

#[test]
fn all_subscribers_of_all_pairs_see_the_same_events_in_the_same_order() {
    let server = Server::start();
    for &made in WAYS {
        let mut maker = server.client(made);
        let (target, mut story) = held_by(&mut maker);
        // Two of each pair; one more leaves early, and nobody misses it.
        let mut streams = Vec::new();
        for &way in WAYS.iter().chain(WAYS) {
            let mut client = server.client(way);
            let mut stream = client.subscribe(&target).expect("a stream");
            let first = stream.expect();
            streams.push((client, stream, vec![first]));
        }
        let mut leaver = server.client(made).subscribe(&target).expect("a stream");
        leaver.expect();
        let mut told = vec![story.shown()];
        tell(&mut maker, &mut story, "chunk");
        told.push(story.chunk("a", false, false));
        leaver.expect();
        drop(leaver);
        told.extend(finish(&mut maker, &mut story));
        for (client, stream, mut seen) in streams {
            seen.extend(stream.rest());
            let form = client.way.form_for(target.made);
            assert_eq!(seen, stream_in(form, target.made, &told), "{made:?} in {:?}", client.way);
        }
    }
}

#[test]
fn a_subscriber_that_comes_back_misses_nothing_and_sees_nothing_twice() {
    let server = Server::start();
    let mut witness = server.witness();
    in_every_way(&server, |client| {
        let (target, mut story) = held(&server);
        let form = client.way.form_for(target.made);
        let whole = client.subscribe(&target).expect("a stream");
        // Comes back before there is anything new, and waits.
        let waits =
            client.subscribe_after(&target, Some((story.seq, By::Field))).expect("a stream");
        let mut told = vec![story.shown()];
        told.extend(finish(&mut witness, &mut story));
        let expected = stream_in(form, target.made, &told);
        assert_eq!(whole.rest(), expected);
        assert_eq!(waits.rest(), expected[1..]);
        // Comes back after the end, having seen all but some.
        for (count, one) in told.iter().enumerate().take(told.len() - 1) {
            for by in [By::Field, By::Query] {
                let after = one.seq.expect("a number");
                let back = client.subscribe_after(&target, Some((after, by))).expect("a stream");
                assert_eq!(back.rest(), expected[count + 1..], "{after} by {by:?}");
            }
        }
        // Who has seen all of a finished task has nothing to come for.
        let ask = Ask::new(Op::Subscribe, json!({"id": target.id}));
        let fault = client.fault(&Ask { after: Some((story.seq, By::Field)), ..ask });
        super::errors::assert_fault(client.way, Op::Subscribe, "UnsupportedOperation", &fault);
    });
}

#[test]
fn who_comes_back_too_late_gets_the_task_as_it_is_and_what_follows() {
    let server = Server::with(&["--limit", "event_ring_max=20"]);
    let mut witness = server.witness();
    in_every_way(&server, |client| {
        let task = witness.send(&talk("rewrite")).expect("an answer").task();
        let target = witness.target(&task);
        // Submitted, two hundred times an artifact, working.
        let last = 202;
        let mut within = client.subscribe_after(&target, Some((last - 10, By::Field))).unwrap();
        let mut behind = client.subscribe_after(&target, Some((1, By::Field))).unwrap();
        let snapshot = behind.expect();
        assert_eq!(snapshot.seq, Some(last));
        assert!(matches!(snapshot.event, Event::Task(task) if task.state == "working"));
        let missed: Vec<_> = (0..10).map(|_| within.expect().seq).collect();
        assert_eq!(missed, (last - 9..=last).map(Some).collect::<Vec<_>>());
        witness.send(&talk("end").to(&task)).expect("an answer");
        for stream in [within, behind] {
            let [Numbered { seq, event: Event::Status { state, .. } }] = &stream.rest()[..] else {
                panic!("one event more");
            };
            assert_eq!((*seq, state.as_str()), (Some(last + 1), "completed"));
        }
    });
}

#[test]
fn a_subscription_at_input_required_goes_on_where_the_generation_says_so() {
    let server = Server::start();
    let mut witness = server.witness();
    in_every_way(&server, |client| {
        let first = talk("ask");
        let task = witness.send(&first).expect("an answer").task();
        let target = witness.target(&task);
        let mut story = Story::begun(&task.id, &task.context, &first);
        story.status("working", "");
        story.status("input-required", "What next?");
        let form = client.way.form_for(target.made);
        let mut stream = client.subscribe(&target).expect("a stream");
        let mut told = vec![story.shown()];
        let mut seen = vec![stream.expect()];
        if client.way.subscription_outlasts_input() {
            tell(&mut witness, &mut story, "done");
            told.extend(story.done());
        }
        seen.extend(stream.rest());
        assert_eq!(seen, stream_in(form, target.made, &told));
    });
}

#[test]
fn a_task_outlives_the_stream_that_made_it() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let mut stream = open(client, &talk("hold"));
        let (id, _) = stream.begin();
        drop(stream);
        let target = Target { id, made: client.way.generation };
        let task = client.get(&target).expect("a task");
        client.send(&talk("end").to(&task)).expect("an answer");
        assert_eq!(client.get(&target).expect("a task").state, "completed");
    });
}

#[test]
fn the_end_of_the_server_is_an_error_in_every_stream() {
    let mut server = Server::with(&["--limit", "drain_ms=100"]);
    let mut streams = Vec::new();
    for &way in WAYS {
        let mut client = server.client(way);
        let mut stream = open(&mut client, &talk("hold"));
        stream.expect();
        let working = stream.expect();
        assert!(matches!(&working.event, Event::Status { state, .. } if state == "working"));
        streams.push((client, stream));
    }
    server.binary.terminate();
    for (client, mut stream) in streams {
        let fault = stream.fault();
        super::errors::assert_cut(client.way, &fault);
    }
    assert!(server.binary.wait(), "an orderly end");
}
