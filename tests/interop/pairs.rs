//! A task made in any pair is read, listed, streamed, continued and canceled in every other, and is
//! the same task there.

use super::{
    client::{Client, Filter},
    expected_task::{Expected, stream_in},
    life::assert_shown,
    message_spec::text_spec,
    model::{Event, Numbered, V01},
    server::Server,
    streams::{finish, held_by, send_text},
    variants::every_way,
};

/// Runs a scenario with the maker of a task and another client, for every pair of pairs, by hand and
/// by our client, without and with TLS.
fn in_every_pair(name: &str, mut scenario: impl FnMut(&mut Client, &mut Client)) {
    for server in Server::both(name, &[]) {
        let clients = || every_way().map(|variant| server.client(variant));
        let mut askers: Vec<Client> = clients().collect();
        for mut maker in clients() {
            for asker in &mut askers {
                let (made, accessed, scheme) =
                    (maker.variant, asker.variant, server.endpoint.scheme());
                eprintln!("made in {made:?}, asked in {accessed:?}, by {scheme}:");
                scenario(&mut maker, asker);
            }
        }
    }
}

#[test]
fn task_can_be_read_and_listed_across_bindings_and_versions() {
    in_every_pair("read", |maker, asker| {
        let spec = text_spec("done");
        let task = maker.send(&spec).expect("an answer").task();
        let mut expects = Expected::begun(&task.id, &task.context, &spec);
        expects.done();
        let target = maker.target(&task);
        assert_shown(asker, &target, &expects);
        if !asker.variant.lists() {
            return;
        }
        let filter = Filter { context: Some(&task.context), artifacts: true, ..Filter::default() };
        let page = asker.list(&Filter { history: Some(10), ..filter.clone() }).expect("a page");
        let listed: Vec<_> =
            page.tasks.into_iter().map(|t| t.without_generated_ids(target.made)).collect();
        assert_eq!(listed, [expects.in_form(asker.variant.form(), target.made)]);
        // Without the members that were not requested (A2A 1.0 §3.1.4).
        let bare = asker.list(&Filter { artifacts: false, ..filter }).expect("a page");
        assert!(bare.tasks[0].artifacts.is_empty() && bare.tasks[0].history.is_empty());
    });
}

#[test]
fn task_can_be_streamed_across_bindings_and_versions() {
    in_every_pair("streamed", |maker, asker| {
        // The maker's stream has all events; the subscription starts at the current state.
        let spec = text_spec("hold");
        let mut first = maker.stream(&spec).expect("a stream");
        let (id, begun) = first.begin();
        let context = match &begun.event {
            Event::Task(task) => task.context.clone(),
            Event::Status { .. } => String::new(),
            other => panic!("{other:?}"),
        };
        let mut expects = Expected::begun(&id, &context, &spec);
        let mut all = vec![expects.shown()];
        let mut seen_first = vec![begun, first.expect()];
        all.push(expects.status("working", ""));
        let target = maker.target(&expects.task);
        let mut second = asker.subscribe(&target).expect("a stream");
        let snapshot = second.expect();
        if let Event::Task(task) = &snapshot.event {
            expects.task.context.clone_from(&task.context);
        }
        let mut later = vec![expects.shown()];
        let mut seen_second = vec![snapshot];
        // The asker continues it, and both see the events.
        let events = finish(asker, &mut expects);
        all.extend(events.iter().cloned());
        later.extend(events);
        seen_first.extend(first.rest());
        seen_second.extend(second.rest());
        let made = target.made;
        assert_eq!(seen_first, stream_in(maker.variant.form(), made, &all));
        assert_eq!(seen_second, stream_in(asker.variant.form_for(made), made, &later));
    });
}

#[test]
fn task_can_be_continued_across_bindings_and_versions() {
    in_every_pair("continued", |maker, asker| {
        let first = text_spec("ask");
        let task = maker.send(&first).expect("an answer").task();
        let target = maker.target(&task);
        let mut expects = Expected::begun(&task.id, &task.context, &first);
        expects.status("working", "");
        expects.status("input-required", "What next?");
        // Alternately, with and without the conversation, and as a stream at the end.
        send_text(asker, &mut expects, "ask");
        expects.status("working", "");
        expects.status("input-required", "What next?");
        let again = text_spec("ask").to(&task).within(&task.context);
        maker.send(&again).expect("an answer");
        expects.add_message(&again);
        expects.status("working", "");
        expects.status("input-required", "What next?");
        let end = text_spec("done").to(&task).within(&task.context);
        let stream = asker.stream(&end).expect("a stream");
        expects.add_message(&end);
        let mut events = vec![expects.shown()];
        events.extend(expects.done());
        // Some messages have no ids of their own: see `without_generated_ids`.
        let normalized =
            |one: Numbered| Numbered { event: one.event.without_generated_ids(V01), ..one };
        let seen: Vec<_> = stream.rest().into_iter().map(normalized).collect();
        assert_eq!(seen, stream_in(asker.variant.form(), V01, &events));
        for client in [maker, asker] {
            let task = client.get(&target).expect("a task");
            assert_eq!(
                task.shows(),
                ["ask", "What next?", "ask", "What next?", "ask", "What next?", "done"]
            );
            assert_eq!(task.state, "completed");
        }
    });
}

#[test]
fn task_can_be_canceled_across_bindings_and_versions() {
    in_every_pair("canceled", |maker, asker| {
        let (target, mut expects) = held_by(maker);
        let mut stream = maker.subscribe(&target).expect("a stream");
        let mut events = vec![expects.shown()];
        let mut seen = vec![stream.expect()];
        let task = asker.cancel(&target).expect("a canceled task");
        assert_eq!((&task.id, task.state.as_str()), (&target.id, "canceled"));
        events.push(expects.status("canceled", ""));
        seen.extend(stream.rest());
        assert_eq!(seen, stream_in(maker.variant.form_for(target.made), target.made, &events));
        assert_shown(maker, &target, &expects);
        assert_shown(asker, &target, &expects);
    });
}
