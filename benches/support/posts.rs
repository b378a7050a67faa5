//! An engine with tasks and all their webhook deliveries still due.

#![allow(dead_code)]

use std::{sync::Arc, task::Waker};

use peregrine::{
    engine::{Outbox, Setup},
    push::{
        Pace, PushSettings, PushTargets,
        outbox::{NextRequest, PostOutcome, PostRequest},
    },
    service::Now,
};

use crate::engine::{Bench, post, with_room};

/// Posts of each task: its start, working, six chunks of its artifact, completed.
pub const OF_A_TASK: usize = 9;

/// A webhook's configuration in addition to its URL.
pub const BEARER: &str =
    r#","authentication":{"scheme":"Bearer","credentials":"0123456789abcdef"}"#;

/// The same, with signed posts (Standard Webhooks) and without a bearer token.
pub const SIGNED: &str = r#","authentication":{"scheme":"StandardWebhooks","credentials":
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}"#;

/// SendMessage with that text and a webhook.
pub fn hooked(text: &str, url: &str, with: &str) -> String {
    let message = format!(
        r#"{{"messageId":"0123456789abcdef","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}"#
    );
    let push = format!(r#"{{"taskPushNotificationConfig":{{"url":"{url}"{with}}}}}"#);
    let params = format!(r#"{{"message":{message},"configuration":{push}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{params}}}"#)
}

/// Completed tasks, each with a webhook at that URL; `at_a_time` concurrent posts.
pub fn outbox(tasks: usize, url: &str, with: &str, at_a_time: u32) -> Arc<dyn Outbox> {
    let targets = PushTargets { allow: vec!["localhost".parse().unwrap()], ..Default::default() };
    let pace = Pace { per_host: at_a_time, ..Pace::default() };
    let push = Some(PushSettings { targets, pace, ..PushSettings::default() });
    let mut bench = Bench::with(Setup { push, ..Setup::default() });
    let (mut input, length) = with_room(post(&hooked("stream:8", url, with)));
    for _ in 0..tasks {
        bench.round(&mut input, length);
        assert!(bench.text().contains("TASK_STATE_COMPLETED"), "{}", bench.text());
    }
    bench.engine().outbox().unwrap()
}

/// Makes this many post requests, each of which is delivered before the next.
pub fn run(count: u64) {
    let outbox = outbox(100, "http://localhost:9999/hooks/a2a", BEARER, 8);
    let now = Now { mono_ms: 2, unix_ms: 1_790_000_000_001 };
    let mut request = PostRequest::default();
    for turn in 0..count {
        let next = outbox.next(now, Waker::noop(), &mut request);
        assert_eq!(next, NextRequest::Post, "{turn}");
        outbox.done(&request, PostOutcome::Delivered, now, 0);
    }
    assert!(request.body.starts_with(b"{\""), "{request:?}");
}
