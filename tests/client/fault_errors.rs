//! Each fault of a server, over each binding and through the whole client, gives a named error
//! before its deadline.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use peregrine::client::{
    CallOptions, ClientBuilder, ClientErrorKind, ClientLimits, TransportError, retry::Backoff,
};

use crate::{items::ALL, server_faults::*, wire::*};

static STALL: OnceLock<ServerFault> = OnceLock::new();

fn builder(call_ms: u64) -> ClientBuilder {
    let backoff = Backoff { attempts_max: 1, base_ms: 1, ..Backoff::default() };
    let limits = ClientLimits {
        stream_idle_ms: call_ms,
        event_bytes_max: EVENT_BYTES_MAX,
        ..ClientLimits::default()
    };
    ClientBuilder::new().limits(limits).options(CallOptions {
        call_ms,
        backoff,
        ..CallOptions::default()
    })
}

#[test]
fn each_server_fault_gives_a_named_error() {
    for over in ALL {
        let all = Arc::new(server_faults(over));
        let (now, served) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&all));
        let at = Arc::clone(&now);
        let server = RawServer::new(move |_, stream| {
            serve(over, stream, || &served[at.load(SeqCst)]);
        });
        run(async {
            for (number, server_fault) in all.iter().enumerate() {
                now.store(number, SeqCst);
                let client = agent(over, server.addr, client(), builder(10_000));
                for way in WAYS {
                    let found = way.call(&client).await.map_err(|error| error.kind.clone());
                    let about = format!("{over:?} {way:?}: {}: {found:?}", server_fault.name);
                    let error = found.expect_err(&about);
                    assert!(server_fault.expected.iter().any(|name| name.is(&error)), "{about}");
                }
            }
        });
    }
}

#[test]
fn a_silent_server_ends_with_the_calls_timeout() {
    for over in ALL {
        let server =
            RawServer::new(move |_, stream| serve(over, stream, || STALL.get_or_init(stall)));
        run(async {
            let client = agent(over, server.addr, client(), builder(100));
            for way in WAYS {
                let error = way.call(&client).await.expect_err("no answer").kind.clone();
                let is_late =
                    matches!(error, ClientErrorKind::Transport(TransportError::Timeout(_)));
                assert!(is_late, "{over:?} {way:?}: {error:?}");
            }
        });
    }
}
