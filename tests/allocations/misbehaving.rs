//! What servers that misbehave leave behind in their client: nothing.
//!
//! What is held is counted, in descriptors, tasks and live bytes of the heap. How much memory the
//! process has says less: an allocator keeps what was freed, that of AddressSanitizer most of all.

#[path = "../client/misbehaviours.rs"]
mod misbehaviours;
#[allow(dead_code, reason = "the tests of the client use the rest")]
#[path = "../client/wire.rs"]
mod wire;

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use peregrine::client::TransportError;

use self::{
    misbehaviours::{Case, cases},
    wire::{Ask, GET, PATIENCE, RawServer, client, read_request},
};
use super::{ALLOCATOR, COUNTING};

/// What the process holds.
#[derive(Clone, Copy, Debug)]
struct Holding {
    descriptors: usize,
    tasks: usize,
    bytes: isize,
}

fn holding() -> Holding {
    let stats = ALLOCATOR.stats();
    Holding {
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        bytes: stats.bytes_allocated as isize - stats.bytes_deallocated as isize,
    }
}

/// Counts a thread of the server while it lives.
struct Serving(Arc<AtomicUsize>);

impl Serving {
    fn new(count: &Arc<AtomicUsize>) -> Serving {
        count.fetch_add(1, SeqCst);
        Serving(Arc::clone(count))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Waits until the server has seen all its connections closed.
async fn until_idle(serving: &AtomicUsize) {
    let ends = async {
        while serving.load(SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ends).await.expect("all connections are closed");
}

#[test]
fn ten_thousand_of_them_leave_nothing_behind() {
    let _counting = COUNTING.lock();
    let is_timeout = |error: &TransportError| matches!(error, TransportError::Timeout(_));
    let all: Vec<Case> = cases().into_iter().filter(|(.., error)| !is_timeout(error)).collect();
    let count = all.len();
    let serving = Arc::new(AtomicUsize::new(0));
    let alive = Arc::clone(&serving);
    let server = RawServer::new(move |number, mut stream| {
        let _alive = Serving::new(&alive);
        let (_, answer, after, _) = &all[number % count];
        if read_request(&mut stream).is_some() && stream.write_all(answer).is_ok() {
            after(stream);
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client();
        let ask = Ask { head_ms: 60_000, idle_ms: 60_000, is_repeatable: false, ..GET };
        let url = server.url();
        let mut before = None;
        for number in 0..11_000 {
            if number == 1_000 {
                until_idle(&serving).await;
                before = Some(holding());
            }
            ask.whole(&client, &url).await.unwrap_err();
        }
        until_idle(&serving).await;
        let (before, after) = (before.unwrap(), holding());
        // One of each ten thousand would be seen; a thread that is just ending is not one.
        assert!(after.descriptors < before.descriptors + 100, "{before:?} {after:?}");
        assert!(after.tasks <= before.tasks + 1, "{before:?} {after:?}");
        assert!(after.bytes < before.bytes + 64 * 1024, "{before:?} {after:?}");
    });
}
