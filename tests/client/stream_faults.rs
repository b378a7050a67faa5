//! Faults of servers over each binding, and the name of the error that each gives.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use peregrine::client::{
    Client, ClientBuilder, ClientError, ClientErrorKind, ClientLimits, EventKind, HttpRequest,
    SendRequest, TransportError, card::AgentCard,
};

pub use crate::items::{ALL, ItemKind, Over, item, pb};
use crate::scripted::*;

/// A stream of these pieces.
pub fn stream(over: Over, request: &HttpRequest<'_>, pieces: Vec<Piece>) -> Reply {
    let media = match over {
        Over::WebSocket => return Reply::socket(request, vec![pieces]),
        Over::Grpc => "application/grpc",
        Over::JsonRpc | Over::Rest => "text/event-stream",
    };
    let mut reply = Reply::of(200, &[("content-type", media)], "");
    reply.pieces = pieces.into();
    reply
}

fn client(over: Over, transport: Scripted, limits: ClientLimits) -> Client<Scripted> {
    let card = AgentCard::read(card(over.binding(), "http://agent.test").as_bytes()).unwrap();
    ClientBuilder::new().limits(limits).connect_over(transport, card, None).unwrap()
}

/// Follows a stream: its first connection sends these pieces, its later ones nothing. Returns the
/// number of changes and the error.
fn followed(
    over: Over,
    limits: ClientLimits,
    pieces: impl Fn() -> Vec<Piece> + Send + Sync + 'static,
) -> (usize, Option<ClientError>) {
    let is_first = AtomicBool::new(true);
    let transport = Scripted::new(move |request| match is_first.swap(false, Relaxed) {
        true => stream(over, request, pieces()),
        false => stream(over, request, vec![Piece::Break]),
    });
    let client = client(over, transport, limits);
    settled(async {
        let mut stream = match client.stream(&SendRequest::text("hello")).await {
            Ok(stream) => stream,
            Err(error) => return (0, Some(error)),
        };
        let mut changes = 0;
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    changes += usize::from(matches!(event.kind(), EventKind::Change { .. }))
                }
                Err(error) => return (changes, Some(error)),
            }
        }
        (changes, None)
    })
}

fn kind(over: Over, limits: ClientLimits, events: &[(ItemKind, u64)]) -> (usize, ClientErrorKind) {
    let bytes: Vec<Vec<u8>> = events.iter().map(|(kind, id)| item(over, *kind, *id)).collect();
    let pieces = move || bytes.iter().cloned().map(Piece::Bytes).collect();
    let (changes, error) = followed(over, limits, pieces);
    (changes, error.unwrap_or_else(|| panic!("{over:?}: no error")).kind.clone())
}

const X: ItemKind = ItemKind::Artifact("t", 1);

#[test]
fn stream_event_of_another_task_is_an_error() {
    for over in ALL {
        let events = [(ItemKind::Task, 1), (X, 1), (ItemKind::Artifact("u", 1), 1)];
        let (changes, error) = kind(over, ClientLimits::default(), &events);
        assert_eq!((changes, error), (1, ClientErrorKind::OtherTask), "{over:?}");
    }
}

#[test]
fn garbage_stream_item_gives_an_unreadable_error() {
    for over in ALL {
        let events = [(ItemKind::Task, 1), (X, 1), (ItemKind::Garbage, 1)];
        let (changes, error) = kind(over, ClientLimits::default(), &events);
        assert_eq!(changes, 1, "{over:?}");
        assert!(matches!(error, ClientErrorKind::Unreadable(_)), "{over:?}: {error:?}");
    }
}

#[test]
fn stream_item_for_another_call_is_rejected() {
    for over in [Over::JsonRpc, Over::WebSocket] {
        let events = [(ItemKind::Task, 1), (X, 2)];
        let (changes, error) = kind(over, ClientLimits::default(), &events);
        assert_eq!(changes, 0, "{over:?}");
        assert!(matches!(error, ClientErrorKind::Unreadable(_)), "{over:?}: {error:?}");
    }
}

#[test]
fn an_event_above_the_byte_limit_is_refused() {
    const MIB: usize = 1 << 20;
    for over in ALL {
        let large = ItemKind::Artifact("t", MIB);
        let events = [(ItemKind::Task, 1), (large, 1), (ItemKind::Artifact("u", 1), 1)];
        let (changes, error) = kind(over, ClientLimits::default(), &events);
        assert_eq!((changes, error), (1, ClientErrorKind::OtherTask), "{over:?}");
        let limits = ClientLimits { event_bytes_max: MIB, ..ClientLimits::default() };
        let (changes, error) = kind(over, limits, &events);
        let expected = TransportError::TooLarge("event_bytes_max");
        assert_eq!((changes, error), (0, ClientErrorKind::Transport(expected)), "{over:?}");
    }
}

/// The other half never comes, however often the stream is resumed.
#[test]
fn truncated_event_is_not_delivered() {
    for over in ALL {
        let pieces = move || {
            let mut half = item(over, X, 1);
            half.truncate(half.len() / 2);
            let (task, one) = (item(over, ItemKind::Task, 1), item(over, X, 1));
            vec![Piece::Bytes(task), Piece::Bytes(one), Piece::Bytes(half), Piece::Break]
        };
        let (changes, error) = followed(over, ClientLimits::default(), pieces);
        let expected = TransportError::Closed { before_response: false };
        let kind = error.map(|error| error.kind.clone());
        assert_eq!((changes, kind), (1, Some(ClientErrorKind::Transport(expected))), "{over:?}");
    }
}

/// The error of a unary call that is answered with these pieces.
fn called(over: Over, pieces: impl Fn() -> Vec<Piece> + Send + Sync + 'static) -> ClientErrorKind {
    let transport = Scripted::new(move |request| {
        let media = if over == Over::Grpc { "application/grpc" } else { "application/json" };
        if over == Over::WebSocket {
            return Reply::socket(request, vec![pieces()]);
        }
        let mut reply = Reply::of(200, &[("content-type", media), ("grpc-status", "0")], "");
        reply.pieces = pieces().into();
        reply
    });
    let client = client(over, transport, ClientLimits::default());
    let sent = settled(client.send(&SendRequest::text("hello")));
    sent.map(|_| ()).expect_err("no answer").kind.clone()
}

#[test]
fn cut_stalled_or_invalid_answers_give_named_errors() {
    let half = |over: Over| {
        let mut half = item(over, ItemKind::Task, 1);
        half.truncate(half.len() / 2);
        half
    };
    for over in ALL {
        let cut = called(over, move || vec![Piece::Bytes(half(over)), Piece::Break]);
        let closed = TransportError::Closed { before_response: false };
        assert_eq!(cut, ClientErrorKind::Transport(closed), "{over:?}");
        let stalled = called(over, move || vec![Piece::Bytes(half(over)), Piece::Silence]);
        let is_late = |kind| matches!(kind, ClientErrorKind::Transport(TransportError::Timeout(_)));
        assert!(is_late(stalled), "{over:?}");
        let garbage = called(over, move || match over {
            Over::WebSocket | Over::Grpc => vec![Piece::Bytes(item(over, ItemKind::Garbage, 1))],
            Over::JsonRpc | Over::Rest => vec![Piece::Bytes(b"[{]".to_vec())],
        });
        assert!(matches!(garbage, ClientErrorKind::Unreadable(_)), "{over:?}: {garbage:?}");
    }
}
