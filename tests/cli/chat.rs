//! `chat`: turns from a pipe.

use crate::{
    agent::Clerk,
    run::{User, assert_floor, field},
};

#[test]
fn turns_go_on_with_their_context_and_task() {
    for flags in [&[][..], &["--no-streaming"]] {
        let clerk = Clerk::start(&format!("chat-{}", flags.len()), flags);
        let user = User::of(&clerk.url());
        let said = user.run_with(&["chat"], "ask\n\nlarge\nlarge\n");
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_floor(&said.out);
        let tasks = |label| -> Vec<&str> {
            let lines = said.out.lines().filter_map(|line| field(line, label));
            let mut all: Vec<&str> = lines.collect();
            all.dedup();
            all
        };
        // The answer went to the task that asked; the third turn made another one beside it.
        assert_eq!(tasks("Task").len(), 2, "{said:?}");
        assert_eq!(tasks("Context").len(), 1, "{said:?}");
        assert_eq!(user.json(&["task", "list"])["totalSize"], 2);
    }
}

#[test]
fn an_input_that_has_ended_ends_the_chat() {
    let clerk = Clerk::start("chat-ends", &[]);
    let said = User::of(&clerk.url()).ok(&["chat"]);
    assert!(said.out.is_empty() && said.err.is_empty(), "{said:?}");
}
