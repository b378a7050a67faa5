//! Misbehaving servers leave nothing allocated in their client, whether the test uses the sockets
//! alone or the whole client over each binding.
//!
//! The test counts descriptors, tasks and live heap bytes. The memory of the process says less: an
//! allocator retains freed memory, that of AddressSanitizer most of all.

#[allow(dead_code, reason = "the tests of the client use the rest")]
#[path = "../client/frames.rs"]
mod frames;
#[path = "../client/http_fault_cases.rs"]
mod http_fault_cases;
#[path = "../client/items.rs"]
mod items;
#[allow(dead_code, reason = "the tests of the client use the rest")]
#[path = "../client/scripted.rs"]
mod scripted;
#[path = "../client/server_faults.rs"]
mod server_faults;
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

use peregrine::client::{
    CallOptions, Client, ClientBuilder, ClientErrorKind, ClientLimits, TransportError,
    retry::Backoff,
};
use peregrine::net::HttpClient;

use self::{
    http_fault_cases::{Case, cases},
    items::{ALL, Over},
    server_faults::{
        EVENT_BYTES_MAX, Expected, ServerFault, WAYS, agent, serve, server_faults, stall,
    },
    wire::{Ask, GET, PATIENCE, RawServer, client, read_request},
};
use super::{ALLOCATOR, COUNTING};

/// The resources that the process holds.
#[derive(Clone, Copy, Debug)]
struct Holding {
    descriptors: usize,
    tasks: usize,
    bytes: isize,
    blocks: isize,
}

fn holding() -> Holding {
    let stats = ALLOCATOR.stats();
    Holding {
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        bytes: stats.bytes_allocated as isize - stats.bytes_deallocated as isize,
        blocks: stats.allocations as isize - stats.deallocations as isize,
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
fn http_client_leaks_nothing_after_ten_thousand_faults() {
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
        let request = Ask { head_ms: 60_000, idle_ms: 60_000, is_repeatable: false, ..GET };
        let url = server.url();
        let mut before = None;
        for number in 0..11_000 {
            if number == 1_000 {
                until_idle(&serving).await;
                before = Some(holding());
            }
            request.whole(&client, &url).await.unwrap_err();
        }
        until_idle(&serving).await;
        let (before, after) = (before.unwrap(), holding());
        // One leak per ten thousand would show; a thread that is just ending is not one.
        assert!(after.descriptors < before.descriptors + 100, "{before:?} {after:?}");
        assert!(after.tasks <= before.tasks + 1, "{before:?} {after:?}");
        assert!(after.bytes < before.bytes + 64 * 1024, "{before:?} {after:?}");
    });
}

/// A server that misbehaves over one binding, and clients of it.
struct Scene {
    over: Over,
    all: Arc<Vec<ServerFault>>,
    now: Arc<AtomicUsize>,
    /// Keeps the server running.
    _server: RawServer,
    client: Client<HttpClient>,
    /// A client with a short timeout.
    hasty: Client<HttpClient>,
}

impl Scene {
    fn new(over: Over, serving: &Arc<AtomicUsize>) -> Scene {
        let mut all = server_faults(over);
        all.push(stall());
        let (all, now) = (Arc::new(all), Arc::new(AtomicUsize::new(0)));
        let (served, at, alive) = (Arc::clone(&all), Arc::clone(&now), Arc::clone(serving));
        let server = RawServer::new(move |_, stream| {
            let _alive = Serving::new(&alive);
            serve(over, stream, || &served[at.load(SeqCst)]);
        });
        let http = client;
        let client = |call_ms: u64| {
            let backoff = Backoff { attempts_max: 1, base_ms: 1, ..Backoff::default() };
            let options = CallOptions { call_ms, backoff, ..CallOptions::default() };
            let limits = ClientLimits {
                stream_idle_ms: call_ms,
                event_bytes_max: EVENT_BYTES_MAX,
                ..ClientLimits::default()
            };
            let builder = ClientBuilder::new().limits(limits).options(options);
            agent(over, server.addr, http(), builder)
        };
        let (hasty, client) = (client(50), client(60_000));
        Scene { over, all, now, _server: server, client, hasty }
    }

    /// Makes the server close the clients' idle connections.
    async fn close(&self) {
        let case = self.all.iter().position(ServerFault::closes).expect("one that closes");
        self.now.store(case, SeqCst);
        for client in [&self.client, &self.hasty] {
            WAYS[0].call(client).await.expect_err("no answer");
        }
    }

    /// Makes a call, which ends with the expected error; one of each hundred gets no answer.
    async fn call(&self, number: usize) {
        let stalls = self.all.len() - 1;
        let (case, way) = (number / WAYS.len() % stalls, WAYS[number % WAYS.len()]);
        let is_stalled = number % 100 == 99;
        let (case, client) = if is_stalled { (stalls, &self.hasty) } else { (case, &self.client) };
        self.now.store(case, SeqCst);
        let found = way.call(client).await.map_err(|error| error.kind.clone());
        let name = self.all[case].name;
        let about = || format!("{:?} {way:?}: {name}: {found:?}", self.over);
        let Err(error) = &found else { panic!("{}", about()) };
        let is_late = matches!(error, ClientErrorKind::Transport(TransportError::Timeout(_)));
        let expected = &self.all[case].expected;
        // A call may fail on a connection that the previous case has just closed.
        let is_lost = number.is_multiple_of(WAYS.len()) && Expected::Lost.is(error);
        let is_expected = match is_stalled {
            true => is_late,
            false => is_lost || expected.iter().any(|name| name.is(error)),
        };
        assert!(is_expected, "{}", about());
    }
}

/// The resources held after the last connection is closed.
async fn held(scenes: &[Scene], serving: &AtomicUsize) -> Holding {
    for scene in scenes {
        scene.close().await;
    }
    until_idle(serving).await;
    // The server's threads are just ending.
    tokio::time::sleep(Duration::from_millis(200)).await;
    holding()
}

#[test]
fn ten_thousand_misbehaving_calls_leak_nothing_over_any_binding() {
    let _counting = COUNTING.lock();
    let serving = Arc::new(AtomicUsize::new(0));
    let scenes = ALL.map(|over| Scene::new(over, &serving));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut before = None;
        for number in 0..2_750 {
            if number == 250 {
                before = Some(held(&scenes, &serving).await);
            }
            for scene in &scenes {
                scene.call(number).await;
            }
        }
        let (before, after) = (before.unwrap(), held(&scenes, &serving).await);
        // One leak per hundred calls would show; a thread that is just ending is not one.
        assert!(after.descriptors <= before.descriptors + 4, "{before:?} {after:?}");
        assert!(after.tasks <= before.tasks + 1, "{before:?} {after:?}");
        assert!(after.bytes < before.bytes + 32 * 1024, "{before:?} {after:?}");
        assert!(after.blocks < before.blocks + 64, "{before:?} {after:?}");
    });
}
