//! From a message to the end of its task, in every pair.

use super::{
    canon::{Answer, Form, Message, Part, Role},
    expect::{Story, rich_parts},
    link::{Client, Op, Target},
    server::Server,
    talk::{Talk, talk},
    ways::{WAYS, Way},
};

/// Runs a scenario in every pair, against one server; a failure says in which.
pub fn in_every_way(server: &Server, mut scenario: impl FnMut(&mut Client)) {
    for &way in WAYS {
        eprintln!("in {way:?}:");
        scenario(&mut server.client(way));
    }
}

/// A message that leaves nothing out that its generation can say.
fn rich(text: &str, way: Way) -> Talk {
    let mut talk = talk(text).with(&rich_parts());
    talk.metadata = serde_json::json!({"trace": {"id": "t-1", "n": 2.5}});
    // What the generation cannot express is not sent, and so not to be shown elsewhere.
    let sent = Message {
        parts: talk.parts.clone(),
        extensions: vec!["https://example.com/ext/v1".to_owned()],
        references: vec!["an-older-task".to_owned(), "another".to_owned()],
        ..Message::says("", Role::User, "")
    };
    let sent = sent.shown_in(way.form());
    Talk { parts: sent.parts, extensions: sent.extensions, references: sent.references, ..talk }
}

pub fn assert_shown(client: &mut Client, target: &Target, story: &Story) {
    let form = client.way.form_for(target.made);
    let task = client.get(target).expect("the task");
    assert_eq!(task, story.in_form(form, target.made), "in {:?}", client.way);
}

#[test]
fn send_answers_with_the_whole_task_and_every_pair_reads_the_same() {
    let server = Server::start();
    let mut made = Vec::new();
    in_every_way(&server, |client| {
        let talk = rich("done", client.way);
        let task = client.send(&talk).expect("an answer").task();
        let mut story = Story::begun(&task.id, &task.context, &talk);
        story.done();
        assert_eq!(task, story.in_form(client.way.form(), client.way.generation));
        if client.way.names_tasks() {
            assert_eq!(task.id, format!("client-{}", talk.id));
        }
        made.push((client.target(&task), story));
    });
    in_every_way(&server, |client| {
        for (target, story) in &made {
            assert_shown(client, target, story);
        }
    });
}

#[test]
fn a_direct_message_leaves_no_task() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let talk = talk("ping").within("a-talk");
        match client.send(&talk).expect("an answer") {
            Answer::Message(message) => {
                assert!(client.way.has_messages());
                assert_eq!((message.role, message.first_text()), (Role::Agent, "pong"));
            }
            Answer::Task(task) => {
                assert!(!client.way.has_messages());
                assert_eq!(task.id, format!("client-{}", talk.id));
                assert_eq!((task.state.as_str(), task.context.as_str()), ("completed", "a-talk"));
                assert_eq!(task.says.expect("a message").first_text(), "pong");
            }
        }
    });
    let page = server.witness().list(&super::link::Filter::default()).expect("a page");
    assert_eq!(page.total, 0);
}

#[test]
fn send_waits_for_the_end_of_the_task() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let task = client.send(&talk("slow")).expect("an answer").task();
        assert_eq!(task.state, "completed");
        assert_eq!(task.artifacts[0].parts, [Part::text("late")]);
    });
}

#[test]
fn send_returns_at_once_where_it_is_asked_to() {
    let server = Server::start();
    in_every_way(&server, |client| {
        if !client.way.can_return_at_once() {
            return;
        }
        let task = client.send(&talk("later").at_once()).expect("an answer").task();
        assert_eq!(task.state, "working");
        // A task that is done at once is not affected.
        let task = client.send(&talk("done").at_once()).expect("an answer").task();
        assert_eq!(task.state, "completed");
    });
}

#[test]
fn a_waiting_send_is_answered_when_another_client_cancels_its_task() {
    let server = Server::start();
    let mut witness = server.witness();
    in_every_way(&server, |client| {
        let context = format!("wait-{:?}", client.way);
        let mut waits = server.client(client.way);
        let talk = talk("later").within(&context);
        let waiting = std::thread::spawn(move || waits.send(&talk));
        let filter = super::link::Filter { context: Some(&context), ..Default::default() };
        let task = loop {
            let mut page = witness.list(&filter).expect("a page");
            if let Some(task) = page.tasks.pop() {
                break task;
            }
        };
        let made = client.way.generation;
        client.cancel(&Target { id: task.id.clone(), made }).expect("a canceled task");
        let answer = waiting.join().expect("no panic").expect("an answer").task();
        assert_eq!((answer.id, answer.state.as_str()), (task.id, "canceled"));
    });
}

#[test]
fn a_task_asks_for_input_and_goes_on_with_the_next_message() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let first = rich("ask", client.way);
        let task = client.send(&first).expect("an answer").task();
        let mut story = Story::begun(&task.id, &task.context, &first);
        story.status("working", "");
        story.status("input-required", "What next?");
        let form = client.way.form();
        assert_eq!(task, story.in_form(form, client.way.generation));
        // By the task alone, then by task and conversation.
        let second = talk("ask again").to(&task);
        story.told(&second);
        story.status("working", "");
        story.status("input-required", "What next?");
        let asked = client.send(&second).expect("an answer").task();
        assert_eq!(asked, story.in_form(form, client.way.generation));
        let third = talk("done").to(&task).within(&task.context);
        story.told(&third);
        story.done();
        let ended = client.send(&third).expect("an answer").task();
        assert_eq!(ended, story.in_form(form, client.way.generation));
        let said = ["ask", "What next?", "ask again", "What next?", "done"];
        assert_eq!(ended.shows(), said);
    });
}

#[test]
fn a_conversation_goes_on_with_new_tasks() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let context = format!("talk-{:?}", client.way);
        let mut send = |talk: &Talk| client.send(talk).expect("an answer").task();
        let tasks = [(); 2].map(|()| send(&talk("done").within(&context)));
        assert!(tasks.iter().all(|task| task.context == context));
        assert_ne!(tasks[0].id, tasks[1].id);
        // Made by the server where the client names none, and never the same (A2A 1.0 §3.4.1).
        let fresh = [(); 2].map(|()| send(&talk("done")).context);
        assert!(fresh[0] != fresh[1] && fresh.iter().all(|id| id.len() == 36), "{fresh:?}");
    });
}

#[test]
fn every_state_is_spelled_as_its_generation_does() {
    let server = Server::start();
    in_every_way(&server, |client| {
        for (text, state, says) in [
            ("sign in", "auth-required", "Who are you?"),
            ("refuse", "rejected", "Not that."),
            ("fail", "failed", "It broke."),
            ("hold", "working", ""),
        ] {
            let talk = talk(text);
            let task = client.send(&talk).expect("an answer").task();
            let mut story = Story::begun(&task.id, &task.context, &talk);
            story.status(state, says);
            assert_eq!(task, story.in_form(client.way.form(), client.way.generation));
        }
    });
}

#[test]
fn cancel_ends_a_task_and_a_second_one_is_as_the_generation_says() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let talk = talk("hold");
        let task = client.send(&talk).expect("an answer").task();
        let target = client.target(&task);
        let mut story = Story::begun(&task.id, &task.context, &talk);
        story.status("working", "");
        story.status("canceled", "");
        let form = client.way.form_for(target.made);
        // The answers of 0.1 to reads and cancels hold no history that nobody asked for.
        let mut expected = story.in_form(form, client.way.generation);
        if form == Form::V01 {
            expected.history.clear();
        }
        assert_eq!(client.cancel(&target).expect("a canceled task"), expected);
        match client.cancel(&target) {
            Ok(task) => assert!(client.way.cancels_twice() && task == expected),
            Err(fault) => {
                assert!(!client.way.cancels_twice(), "{fault:?}");
                super::errors::assert_fault(client.way, Op::Cancel, "TaskNotCancelable", &fault);
            }
        }
        assert_shown(client, &target, &story);
    });
}

#[test]
fn only_0_1_names_its_tasks() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let mut talk = talk("done");
        talk.task = Some(format!("mine-{}", talk.id));
        match client.send(&talk) {
            Ok(answer) => {
                assert!(client.way.names_tasks());
                assert_eq!(Some(answer.task().id), talk.task);
            }
            Err(fault) => {
                assert!(!client.way.names_tasks(), "{fault:?}");
                super::errors::assert_fault(client.way, Op::Send, "TaskNotFound", &fault);
            }
        }
    });
}

#[test]
fn history_is_as_long_as_it_is_asked_for() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let task = client.send(&talk("ask")).expect("an answer").task();
        let task = client.send(&talk("done").to(&task)).expect("an answer").task();
        let target = client.target(&task);
        for (asked, shown) in [
            (0, &[][..]),
            (1, &["done"]),
            (2, &["What next?", "done"]),
            (9, &["ask", "What next?", "done"]),
        ] {
            let is_unsaid = asked == 0 && !client.way.can_ask_for_no_history();
            let shown = if is_unsaid { &["ask", "What next?", "done"] } else { shown };
            assert_eq!(client.get_with(&target, asked).expect("a task").shows(), shown, "{asked}");
        }
    });
}
