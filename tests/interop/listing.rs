//! Lists, in every pair that supports them (wire §1.3: the pairs of 1.0).

use super::{
    client::{Client, Filter},
    message_spec::text_spec,
    server::Server,
    variants::{VARIANTS, every_way},
};

/// Runs a scenario in every pair that lists.
fn in_every_listing_way(server: &Server, mut scenario: impl FnMut(&mut Client)) {
    for variant in every_way().filter(|variant| variant.lists()) {
        eprintln!("in {variant:?}:");
        scenario(&mut server.client(variant));
    }
}

#[test]
fn tasks_are_listed_by_conversation_and_state() {
    let server = Server::start();
    // One of each state in each conversation, made in every pair.
    for &variant in VARIANTS {
        let mut client = server.client(variant);
        for context in ["one", "two"] {
            for text in ["done", "hold", "ask", "sign in", "refuse", "fail"] {
                client.send(&text_spec(text).within(context)).expect("an answer");
            }
        }
    }
    let each = VARIANTS.len() as u64;
    in_every_listing_way(&server, |client| {
        for (context, state, total) in [
            (None, None, 12 * each),
            (Some("one"), None, 6 * each),
            (Some("nobody's"), None, 0),
            (None, Some("TASK_STATE_COMPLETED"), 2 * each),
            (Some("two"), Some("TASK_STATE_WORKING"), each),
            (Some("two"), Some("TASK_STATE_INPUT_REQUIRED"), each),
            (Some("two"), Some("TASK_STATE_AUTH_REQUIRED"), each),
            (Some("two"), Some("TASK_STATE_REJECTED"), each),
            (Some("two"), Some("TASK_STATE_CANCELED"), 0),
        ] {
            let filter = Filter { context, state, size: Some(100), ..Filter::default() };
            let page = client.list(&filter).expect("a page");
            assert_eq!(page.total, total, "{filter:?}");
            let (shown, is_last) = (page.tasks.len() as u64, page.next.is_empty());
            assert_eq!((shown, is_last), (total.min(100), total <= 100), "{filter:?}");
            for task in page.tasks {
                assert!(context.is_none_or(|context| task.context == context), "{task:?}");
                assert!(task.artifacts.is_empty() && task.history.is_empty(), "{task:?}");
            }
        }
    });
}

#[test]
fn lists_hold_every_task_once_in_one_order_for_all_clients() {
    let server = Server::start();
    let mut made = Vec::new();
    for number in 0..11 {
        let mut client = server.client(VARIANTS[number % VARIANTS.len()]);
        made.push(client.send(&text_spec("done")).expect("an answer").task().id);
    }
    made.reverse();
    in_every_listing_way(&server, |client| {
        let (mut seen, mut token) = (Vec::new(), None::<String>);
        loop {
            let filter = Filter { size: Some(4), token: token.as_deref(), ..Filter::default() };
            let page = client.list(&filter).expect("a page");
            assert_eq!((page.size, page.total), (4, 11));
            seen.extend(page.tasks.into_iter().map(|task| task.id));
            if page.next.is_empty() {
                break;
            }
            token = Some(page.next);
        }
        // Newest first by the last change; within a millisecond in any order.
        assert_eq!(seen.len(), made.len());
        let (mut seen_sorted, mut made_sorted) = (seen.clone(), made.clone());
        seen_sorted.sort();
        made_sorted.sort();
        assert_eq!(seen_sorted, made_sorted);
    });
    // The same order in every pair.
    let mut orders = Vec::new();
    in_every_listing_way(&server, |client| {
        let page = client.list(&Filter::default()).expect("a page");
        assert_eq!((page.size, page.next.as_str()), (50, ""));
        orders.push(page.tasks.into_iter().map(|task| task.id).collect::<Vec<_>>());
    });
    assert!(orders.iter().all(|order| *order == orders[0]), "{orders:?}");
}
