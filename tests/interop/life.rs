//! From a message to the end of its task, in every pair.

use super::{
    client::{Client, Op, Target},
    expected_task::{Expected, rich_parts},
    message_spec::{MessageSpec, text_spec},
    model::{Answer, Form, Message, Part, Role},
    server::Server,
    variants::{Variant, every_way},
};

/// Runs a scenario in every pair, by hand and by our client, against one server; a failure names
/// the pair.
pub fn in_every_way(server: &Server, mut scenario: impl FnMut(&mut Client)) {
    for variant in every_way() {
        eprintln!("in {variant:?}:");
        scenario(&mut server.client(variant));
    }
}

/// A message with every member that its generation can express.
fn rich(text: &str, variant: Variant) -> MessageSpec {
    let mut spec = text_spec(text).with(&rich_parts());
    spec.metadata = serde_json::json!({"trace": {"id": "t-1", "n": 2.5}});
    // Fields that the generation cannot express are not sent, so other generations do not show
    // them.
    let sent = Message {
        parts: spec.parts.clone(),
        extensions: vec!["https://example.com/ext/v1".to_owned()],
        references: vec!["an-older-task".to_owned(), "another".to_owned()],
        ..Message::of_text("", Role::User, "")
    };
    let sent = sent.shown_in(variant.form());
    MessageSpec {
        parts: sent.parts,
        extensions: sent.extensions,
        references: sent.references,
        ..spec
    }
}

pub fn assert_shown(client: &mut Client, target: &Target, expects: &Expected) {
    let form = client.variant.form_for(target.made);
    let task = client.get(target).expect("the task");
    assert_eq!(task, expects.in_form(form, target.made), "in {:?}", client.variant);
}

#[test]
fn task_reads_the_same_across_bindings_and_versions() {
    let server = Server::start();
    let mut made = Vec::new();
    in_every_way(&server, |client| {
        let spec = rich("done", client.variant);
        let task = client.send(&spec).expect("an answer").task();
        let mut expects = Expected::begun(&task.id, &task.context, &spec);
        expects.done();
        assert_eq!(task, expects.in_form(client.variant.form(), client.variant.generation));
        if client.variant.names_tasks() {
            assert_eq!(task.id, format!("client-{}", spec.id));
        }
        made.push((client.target(&task), expects));
    });
    in_every_way(&server, |client| {
        for (target, expects) in &made {
            assert_shown(client, target, expects);
        }
    });
}

#[test]
fn direct_message_leaves_no_stored_task() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let spec = text_spec("ping").within("a-spec");
        match client.send(&spec).expect("an answer") {
            Answer::Message(message) => {
                assert!(client.variant.has_messages());
                assert_eq!((message.role, message.first_text()), (Role::Agent, "pong"));
            }
            Answer::Task(task) => {
                assert!(!client.variant.has_messages());
                assert_eq!(task.id, format!("client-{}", spec.id));
                assert_eq!((task.state.as_str(), task.context.as_str()), ("completed", "a-spec"));
                assert_eq!(task.message.expect("a message").first_text(), "pong");
            }
        }
    });
    let page = server.observer().list(&super::client::Filter::default()).expect("a page");
    assert_eq!(page.total, 0);
}

#[test]
fn send_waits_for_the_end_of_the_task() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let task = client.send(&text_spec("slow")).expect("an answer").task();
        assert_eq!(task.state, "completed");
        assert_eq!(task.artifacts[0].parts, [Part::text("late")]);
    });
}

#[test]
fn non_blocking_send_returns_the_current_state() {
    let server = Server::start();
    in_every_way(&server, |client| {
        if !client.variant.can_return_at_once() {
            return;
        }
        let task = client.send(&text_spec("later").at_once()).expect("an answer").task();
        assert_eq!(task.state, "working");
        // It does not affect a task that completes at once.
        let task = client.send(&text_spec("done").at_once()).expect("an answer").task();
        assert_eq!(task.state, "completed");
    });
}

#[test]
fn a_waiting_send_returns_when_its_task_is_canceled() {
    let server = Server::start();
    let mut observer = server.observer();
    in_every_way(&server, |client| {
        let context = format!("wait-{:?}", client.variant);
        let mut waits = server.client(client.variant);
        let spec = text_spec("later").within(&context);
        let waiting = std::thread::spawn(move || waits.send(&spec));
        let filter = super::client::Filter { context: Some(&context), ..Default::default() };
        let task = loop {
            let mut page = observer.list(&filter).expect("a page");
            if let Some(task) = page.tasks.pop() {
                break task;
            }
        };
        let made = client.variant.generation;
        client.cancel(&Target { id: task.id.clone(), made }).expect("a canceled task");
        let answer = waiting.join().expect("no panic").expect("an answer").task();
        assert_eq!((answer.id, answer.state.as_str()), (task.id, "canceled"));
    });
}

#[test]
fn input_required_task_continues_with_the_next_message() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let first = rich("ask", client.variant);
        let task = client.send(&first).expect("an answer").task();
        let mut expects = Expected::begun(&task.id, &task.context, &first);
        expects.status("working", "");
        expects.status("input-required", "What next?");
        let form = client.variant.form();
        assert_eq!(task, expects.in_form(form, client.variant.generation));
        // By the task alone, then by task and conversation.
        let second = text_spec("ask again").to(&task);
        expects.add_message(&second);
        expects.status("working", "");
        expects.status("input-required", "What next?");
        let paused = client.send(&second).expect("an answer").task();
        assert_eq!(paused, expects.in_form(form, client.variant.generation));
        let third = text_spec("done").to(&task).within(&task.context);
        expects.add_message(&third);
        expects.done();
        let ended = client.send(&third).expect("an answer").task();
        assert_eq!(ended, expects.in_form(form, client.variant.generation));
        let texts = ["ask", "What next?", "ask again", "What next?", "done"];
        assert_eq!(ended.shows(), texts);
    });
}

#[test]
fn tasks_share_a_named_context_or_get_a_fresh_context() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let context = format!("spec-{:?}", client.variant);
        let mut send = |spec: &MessageSpec| client.send(spec).expect("an answer").task();
        let tasks = [(); 2].map(|()| send(&text_spec("done").within(&context)));
        assert!(tasks.iter().all(|task| task.context == context));
        assert_ne!(tasks[0].id, tasks[1].id);
        // The server generates it if the client names none, and never twice (A2A 1.0 §3.4.1).
        let fresh = [(); 2].map(|()| send(&text_spec("done")).context);
        assert!(fresh[0] != fresh[1] && fresh.iter().all(|id| id.len() == 36), "{fresh:?}");
    });
}

#[test]
fn task_states_use_the_names_of_each_generation() {
    let server = Server::start();
    in_every_way(&server, |client| {
        for (text, state, message) in [
            ("sign in", "auth-required", "Who are you?"),
            ("refuse", "rejected", "Not that."),
            ("fail", "failed", "It broke."),
            ("hold", "working", ""),
        ] {
            let spec = text_spec(text);
            let task = client.send(&spec).expect("an answer").task();
            let mut expects = Expected::begun(&task.id, &task.context, &spec);
            expects.status(state, message);
            assert_eq!(task, expects.in_form(client.variant.form(), client.variant.generation));
        }
    });
}

#[test]
fn a_second_cancel_depends_on_the_generation() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let spec = text_spec("hold");
        let task = client.send(&spec).expect("an answer").task();
        let target = client.target(&task);
        let mut expects = Expected::begun(&task.id, &task.context, &spec);
        expects.status("working", "");
        expects.status("canceled", "");
        let form = client.variant.form_for(target.made);
        // In 0.1 the answers to reads and cancels have no history unless requested.
        let mut expected = expects.in_form(form, client.variant.generation);
        if form == Form::V01 {
            expected.history.clear();
        }
        assert_eq!(client.cancel(&target).expect("a canceled task"), expected);
        match client.cancel(&target) {
            Ok(task) => assert!(client.variant.cancels_twice() && task == expected),
            Err(fault) => {
                assert!(!client.variant.cancels_twice(), "{fault:?}");
                super::errors::assert_fault(
                    client.variant,
                    Op::Cancel,
                    "TaskNotCancelable",
                    &fault,
                );
            }
        }
        assert_shown(client, &target, &expects);
    });
}

#[test]
fn only_0_1_clients_can_choose_task_ids() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let mut spec = text_spec("done");
        spec.task = Some(format!("mine-{}", spec.id));
        match client.send(&spec) {
            Ok(answer) => {
                assert!(client.variant.names_tasks());
                assert_eq!(Some(answer.task().id), spec.task);
            }
            Err(fault) => {
                assert!(!client.variant.names_tasks(), "{fault:?}");
                super::errors::assert_fault(client.variant, Op::Send, "TaskNotFound", &fault);
            }
        }
    });
}

#[test]
fn history_length_limits_the_returned_history() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let task = client.send(&text_spec("ask")).expect("an answer").task();
        let task = client.send(&text_spec("done").to(&task)).expect("an answer").task();
        let target = client.target(&task);
        for (requested, shown) in [
            (0, &[][..]),
            (1, &["done"]),
            (2, &["What next?", "done"]),
            (9, &["ask", "What next?", "done"]),
        ] {
            let is_omitted = requested == 0 && !client.variant.can_request_no_history();
            let shown = if is_omitted { &["ask", "What next?", "done"] } else { shown };
            assert_eq!(
                client.get_with(&target, requested).expect("a task").shows(),
                shown,
                "{requested}"
            );
        }
    });
}
