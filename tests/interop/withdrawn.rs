//! A key that goes lets go whoever it let in, and the next one of the same caller goes on from there;
//! whose key stays notices nothing.

use super::{
    approach::Approach,
    canon::Event,
    credentials::places,
    link::{By, Client, Item, Stream, Target},
    message_spec::say,
    soak::Changing,
    variants::{Binding, OBSERVER, VARIANTS, Variant},
};
use crate::support::binary::eventually;

/// Two people, each with a key of this name, and streams that look at their credential often.
fn keys(one: &str, other: &str) -> String {
    let key =
        |name: &str, key: &str| format!("[[auth.api_keys]]\nname = \"{name}\"\nkey = \"{key}\"\n");
    format!(
        "{}{}{}[limits]\nsse_keep_alive_ms = 200\nws_ping_ms = 200\n",
        key("one", one),
        key("other", other),
        places(),
    )
}

fn showing(key: &str) -> Approach {
    Approach::with(&[("X-API-Key", key.to_owned())])
}

/// A stream of a task that waits for the next message.
struct Open {
    variant: Variant,
    approach: Approach,
    target: Target,
    stream: Stream,
    /// The number of the last event.
    seq: u64,
    /// Lives as long as the stream.
    client: Client,
}

fn open(changing: &Changing, variant: Variant, key: &str) -> Open {
    let approach = showing(key);
    let mut client = changing.server.client_with(variant, &approach);
    let task = client.send(&say("hold")).expect("an answer").task();
    let target = client.target(&task);
    let mut stream = client.subscribe(&target).expect("a stream");
    let first = stream.expect();
    assert!(matches!(first.event, Event::Task(_) | Event::Status { .. }), "{first:?}");
    let seq = first.seq.expect("a number");
    Open { variant, approach, target, stream, seq, client }
}

#[test]
fn streams_end_with_their_key_and_go_on_with_the_next() {
    let changing = Changing::start("withdrawn", &keys("first", "stays"));
    let open = |key: &str| -> Vec<Open> {
        VARIANTS.iter().map(|variant| open(&changing, *variant, key)).collect()
    };
    let (goes, stays) = (open("first"), open("stays"));
    changing.replace(&keys("second", "stays"));
    eventually("the file is read", || changing.said("was read again") == 1);
    for mut one in goes {
        eprintln!("in {:?}", one.variant);
        match (one.variant.binding, one.stream.item()) {
            (Binding::JsonRpc | Binding::Rest, Item::End) => {}
            // RFC 6455 §7.4.2: what is registered for those who are not let in.
            (Binding::WebSocket, Item::End) => assert_eq!(one.approach.heard.last().status, 3000),
            (Binding::Grpc, Item::Fault(fault)) => {
                assert_eq!(fault.status.as_deref(), Some("UNAUTHENTICATED"), "{fault:?}");
            }
            (_, item) => panic!("{item:?}"),
        }
        let mut next = changing.server.client_with(one.variant, &showing("second"));
        let after = Some((one.seq, By::Field));
        let stream = next.subscribe_after(&one.target, after).expect("a stream");
        let mut second = changing.server.client_with(OBSERVER, &showing("second"));
        second.cancel(&one.target).expect("a canceled task");
        let rest = stream.rest();
        assert_eq!(rest.len(), 1, "{rest:?}");
    }
    for mut one in stays {
        // The same connection, and the same stream.
        one.client.cancel(&one.target).expect("a canceled task");
        assert_eq!(one.stream.rest().len(), 1, "{:?}", one.variant);
    }
}
