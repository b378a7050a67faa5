//! Withdrawing a key ends the streams that it opened, and they resume with the caller's next key;
//! streams of other keys continue.

use std::{sync::mpsc::channel, thread};

use super::{
    client::{By, Item, Stream, Target},
    credentials::agent_sections,
    exchange::Approach,
    message_spec::text_spec,
    model::Event,
    soak::Changing,
    variants::{Binding, OBSERVER, VARIANTS, Variant},
};
use crate::support::binary::eventually;

/// Two callers with these keys, and streams that wake only for the withdrawal.
fn keys(one: &str, other: &str) -> String {
    let key = |name: &str, key: &str| {
        format!("[[auth.api_keys]]\nname = \"{name}\"\nkey = \"key-of-caller-{key}\"\n")
    };
    format!(
        "{}{}{}[limits]\nsse_keep_alive_ms = 3600000\nws_ping_ms = 3600000\n",
        key("one", one),
        key("other", other),
        agent_sections(),
    )
}

fn showing(key: &str) -> Approach {
    Approach::with(&[("X-API-Key", format!("key-of-caller-{key}"))])
}

/// A stream of a task that waits for the next message. The test reads it all the time, since the
/// server cuts off a client that does not answer a ping.
struct Open {
    variant: Variant,
    approach: Approach,
    target: Target,
    stream: Stream,
    /// The number of the last event.
    seq: u64,
}

impl Open {
    fn new(changing: &Changing, variant: Variant, key: &str) -> Open {
        let approach = showing(key);
        let mut client = changing.server.client_with(variant, &approach);
        let task = client.send(&text_spec("hold")).expect("an answer").task();
        let target = client.target(&task);
        let mut stream = client.subscribe(&target).expect("a stream");
        let first = stream.expect();
        assert!(matches!(first.event, Event::Task(_) | Event::Status { .. }), "{first:?}");
        let seq = first.seq.expect("a number");
        Open { variant, approach, target, stream, seq }
    }

    /// The key is withdrawn: the stream ends, and resumes with the caller's next key.
    fn ends_and_resumes(mut self, changing: &Changing) {
        match (self.variant.binding, self.stream.item()) {
            (Binding::JsonRpc | Binding::Rest, Item::End) => {}
            // The close code for unauthorized clients (RFC 6455 §7.4.2).
            (Binding::WebSocket, Item::End) => {
                assert_eq!(self.approach.replies.last().status, 3000)
            }
            (Binding::Grpc, Item::Fault(fault)) => {
                assert_eq!(fault.status.as_deref(), Some("UNAUTHENTICATED"), "{fault:?}");
            }
            (_, item) => panic!("{:?}: {item:?}", self.variant),
        }
        let mut next = changing.server.client_with(self.variant, &showing("second"));
        let after = Some((self.seq, By::Field));
        let stream = next.subscribe_after(&self.target, after).expect("a stream");
        cancel(changing, "second", &self.target);
        let rest = stream.rest();
        assert_eq!(rest.len(), 1, "{:?}: {rest:?}", self.variant);
    }
}

fn cancel(changing: &Changing, key: &str, target: &Target) {
    let mut client = changing.server.client_with(OBSERVER, &showing(key));
    client.cancel(target).expect("a canceled task");
}

#[test]
fn withdrawn_key_ends_its_streams_and_next_key_resumes_them() {
    let changing = &Changing::start("withdrawn", &keys("first", "stays"));
    thread::scope(|scope| {
        let (opened, targets) = channel();
        let (mut going, mut staying) = (Vec::new(), Vec::new());
        for &variant in VARIANTS {
            let opened_here = opened.clone();
            going.push(scope.spawn(move || {
                let open = Open::new(changing, variant, "first");
                opened_here.send(None).expect("somebody waits");
                drop(opened_here);
                open.ends_and_resumes(changing);
            }));
            let opened_here = opened.clone();
            staying.push(scope.spawn(move || {
                let open = Open::new(changing, variant, "stays");
                opened_here.send(Some(open.target.clone())).expect("somebody waits");
                drop(opened_here);
                // The same stream, without a break.
                assert_eq!(open.stream.rest().len(), 1, "{variant:?}");
            }));
        }
        drop(opened);
        let targets: Vec<Option<Target>> = targets.iter().collect();
        assert_eq!(targets.len(), 2 * VARIANTS.len());
        changing.replace(&keys("second", "stays"));
        eventually("the file is read", || changing.count_lines("was read again") == 1);
        going.into_iter().for_each(|thread| thread.join().expect("it goes on"));
        assert!(staying.iter().all(|thread| !thread.is_finished()));
        targets.iter().flatten().for_each(|target| cancel(changing, "stays", target));
        staying.into_iter().for_each(|thread| thread.join().expect("it stays"));
    });
}
