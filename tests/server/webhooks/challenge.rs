//! The challenge of 0.1's sample (wire §6): a receiver that does not answer with its token gets no
//! posts.

use super::{
    failing::stream,
    receiver::{Does, Receiver, responds},
};
use crate::support::binary::Binary;

const CHALLENGE: &str = "GET /hook?k=1&validationToken=";

fn answers(text: &str) -> Does {
    Does::Responds(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()))
}

#[test]
fn a_webhook_gets_no_posts_before_it_answers_the_challenge() {
    let config = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("challenge.toml");
    std::fs::write(&config, "[push]\nchallenge = true\nallow = [\"localhost\"]\n").unwrap();
    let server = Binary::start(&["--config", config.to_str().unwrap()]);
    let wrong = std::sync::atomic::AtomicUsize::new(0);
    let receiver = Receiver::new(move |_, post| match post.path.strip_prefix(CHALLENGE) {
        // A redirect, another text and an empty answer all fail.
        Some(token) => match wrong.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => answers("another"),
            1 => responds("204 No Content"),
            2 => Does::Responds(
                "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".to_owned(),
            ),
            _ => answers(&format!("{token}\n")),
        },
        None => responds("200 OK"),
    });
    let mut url = receiver.url("/hook?k=1");
    let events = stream(server.addr(), "stream:3", &url);
    receiver.assert_received("/hook?k=1", &events);
    let paths = receiver.by_path();
    let challenges: Vec<_> = paths.iter().filter(|(path, _)| path.starts_with(CHALLENGE)).collect();
    let (path, gets) = challenges[0];
    assert_eq!((challenges.len(), gets.len()), (1, 4), "{path}");
    assert!(path.len() >= CHALLENGE.len() + 36, "{path}");
    for secret in ["authorization", "x-a2a-notification-token", "a2a-notification-id"] {
        assert!(gets.iter().all(|get| !get.fields.contains_key(secret)));
    }
    // The posts came after the answer.
    assert_eq!(receiver.count(), 4 + events.len());
    // A receiver that answers nothing else gets no posts.
    let silent = Receiver::willing();
    url = silent.url("/hook");
    stream(server.addr(), "stream:3", &url);
    super::receiver::patiently("a second challenge", || silent.count() >= 2);
    assert!(silent.all("/hook").is_empty());
    server.assert_lives();
}
