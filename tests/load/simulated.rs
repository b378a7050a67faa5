//! A simulated server, clock and runtime: a run of minutes ends in milliseconds, and each latency
//! is fixed in advance.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Instant,
};

use peregrine::{
    client::{
        Client, ClientBuilder, HttpRequest, HttpResponse, Transport, TransportError,
        card::AgentCard,
    },
    load::{LoadClock, LoadMeasures, LoadPlan, LoadWorker, SharedMeasures, WorkerSetup},
    service::Now,
};

/// The simulated time, and the tasks that wait for a later time.
#[derive(Clone, Default)]
pub struct World(Arc<Mutex<WorldState>>);

#[derive(Default)]
struct WorldState {
    now_ns: u64,
    waiting: BinaryHeap<Reverse<WaitingTask>>,
    next: u64,
    wakers: std::collections::HashMap<u64, Waker>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct WaitingTask {
    due_ns: u64,
    number: u64,
}

impl World {
    fn now_ns(&self) -> u64 {
        self.0.lock().unwrap().now_ns
    }

    /// Waits until this time.
    fn wait(&self, due_ns: u64) -> impl Future<Output = ()> + Send + use<> {
        let world = self.clone();
        let mut number = None;
        poll_fn(move |cx| {
            let mut state = world.0.lock().unwrap();
            if state.now_ns >= due_ns {
                return Poll::Ready(());
            }
            let own = *number.get_or_insert_with(|| {
                state.next += 1;
                let number = state.next;
                state.waiting.push(Reverse(WaitingTask { due_ns, number }));
                number
            });
            state.wakers.insert(own, cx.waker().clone());
            Poll::Pending
        })
    }

    /// Runs the future to its end; the time advances from one awaited time to the next.
    fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            let mut state = self.0.lock().unwrap();
            let Reverse(next) = state.waiting.pop().expect("a time that is waited for");
            state.now_ns = state.now_ns.max(next.due_ns);
            let waker = state.wakers.remove(&next.number);
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl LoadClock for World {
    fn now_ns(&self) -> u64 {
        World::now_ns(self)
    }

    fn sleep_until(&self, due_ns: u64) -> impl Future<Output = ()> {
        self.wait(due_ns)
    }
}

/// The time at which a request that arrives at this time is answered, in nanoseconds.
pub type AnsweredAt = fn(u64) -> u64;

/// A server that answers each message with a completed task, at fixed times.
struct SimulatedServer {
    world: World,
    answered_at: AnsweredAt,
}

struct SimulatedAnswer(Option<Vec<u8>>);

impl HttpResponse for SimulatedAnswer {
    fn status(&self) -> u16 {
        200
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        (name == "content-type").then_some(b"application/json")
    }

    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        out: &mut Vec<u8>,
        _: usize,
    ) -> Poll<Result<bool, TransportError>> {
        let Some(body) = self.0.take() else { return Poll::Ready(Ok(false)) };
        out.extend_from_slice(&body);
        Poll::Ready(Ok(true))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, TransportError>> {
        unreachable!("no upgrade")
    }
}

impl Transport for SimulatedServer {
    type Response = SimulatedAnswer;

    async fn request(&self, request: HttpRequest<'_>) -> Result<SimulatedAnswer, TransportError> {
        let call: serde_json::Value = serde_json::from_slice(request.body).unwrap();
        let status = serde_json::json!({"state": "TASK_STATE_COMPLETED"});
        let task = serde_json::json!({"id": "t", "contextId": "c", "status": status});
        let answer =
            serde_json::json!({"jsonrpc": "2.0", "id": call["id"], "result": {"task": task}});
        self.world.wait((self.answered_at)(self.world.now_ns())).await;
        Ok(SimulatedAnswer(Some(answer.to_string().into_bytes())))
    }

    fn sleep_until(&self, due_ms: u64) -> impl Future<Output = ()> + Send {
        // Timeouts that do not occur are not awaited; otherwise the time would advance to them.
        let is_over = self.world.now_ns() >= due_ms * 1_000_000;
        poll_fn(move |_| if is_over { Poll::Ready(()) } else { Poll::Pending })
    }

    fn now(&self) -> Now {
        let mono_ms = self.world.now_ns() / 1_000_000;
        Now { mono_ms, unix_ms: 1_800_000_000_000 + mono_ms }
    }

    fn random(&self) -> u128 {
        7
    }
}

const CARD: &str = r#"{"name": "simulated", "description": "", "version": "1",
    "supportedInterfaces": [{"url": "http://simulated.example/", "protocolBinding": "JSONRPC",
        "protocolVersion": "1.0"}],
    "capabilities": {}, "defaultInputModes": [], "defaultOutputModes": [], "skills": []}"#;

/// Measures a run of this plan against a server with these answer times.
pub fn measure(plan: &LoadPlan, answered_at: AnsweredAt) -> LoadMeasures {
    let world = World::default();
    let server = SimulatedServer { world: world.clone(), answered_at };
    let card = AgentCard::read(CARD.as_bytes()).unwrap();
    let client: Client<SimulatedServer> =
        ClientBuilder::new().connect_over(server, card, None).unwrap();
    let shared = SharedMeasures::new(plan);
    let worker = LoadWorker::new(WorkerSetup {
        clients: vec![client],
        clock: world.clone(),
        start: Instant::now(),
        plan,
        index: 0,
        shared: Arc::clone(&shared),
        webhooks: None,
    });
    let run: Pin<Box<dyn Future<Output = ()>>> = Box::pin(worker.run(Vec::new()));
    world.run(run);
    shared.lock().clone()
}
