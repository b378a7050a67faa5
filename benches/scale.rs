//! How much more a call costs when threads share one engine than when each has its own.
//!
//! `cargo bench --bench scale` prints the ratio for SendMessage, of anonymous callers and of one
//! authenticated owner, a stream of 100 events and GetTask, once the stores are full. Two threads,
//! each with its own worker, make the same calls on one engine and on one engine each, in turns;
//! the result is the median of the rounds' additional CPU time. A round in which a thread had to
//! wait for a core does not count: threads share memory only while both run. `-- CASE` runs one
//! case, `-- CASE THREADS` with more threads. Answers are asserted, times are not.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code, reason = "other benches use the rest")]
#[path = "support/callers.rs"]
mod callers;
mod support;

use std::{
    fs,
    sync::{
        Arc, Barrier,
        mpsc::{Receiver, Sender, channel},
    },
    task::Waker,
    thread,
    time::{Duration, Instant},
};

use peregrine::{
    agent::echo::Echo,
    engine::{Conn, Cx, Engine, Setup, Start, Worker},
    limits::Limits,
    service::{Now, Peer},
};

use support::{Counter, NOW, TEXT, call, count, post, send, task_id};

type Requests = Arc<[Vec<u8>]>;

/// The allocator of the binary: memory that another thread has allocated costs more to free.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The tasks to read in turns.
const READ: usize = 512;
const ROUNDS: usize = 101;

/// Name, tasks that fill the store of one thread (a shared store holds as many for each), calls of
/// a thread in one round, and a text of each answer with its count.
struct Case {
    name: &'static str,
    tasks: usize,
    calls: usize,
    answer: &'static str,
    times: usize,
}

const DONE: &str = "\"TASK_STATE_COMPLETED\"";

/// The case with one owner for all calls.
const OWNED: &str = "send_owner";

const CASES: [Case; 4] = [
    Case { name: "send", tasks: 20_000, calls: 600, answer: DONE, times: 1 },
    Case { name: OWNED, tasks: 20_000, calls: 600, answer: DONE, times: 1 },
    Case { name: "stream_100", tasks: 4_000, calls: 60, answer: "\ndata: ", times: 101 },
    Case { name: "get", tasks: 20_000, calls: 1_500, answer: DONE, times: 1 },
];

fn engine(workers: usize, tasks: usize, is_owned: bool) -> Arc<Engine> {
    let agents: Vec<(_, Arc<dyn peregrine::agent::Agent>)> =
        vec![(Echo::profile(), Arc::new(Echo))];
    let limits = Limits { tasks_max: tasks * workers, ..Limits::default() };
    // Without rates, which are counted once per caller. All messages have one id.
    let setup = if is_owned { callers::setup(false, false) } else { Setup::default() };
    let setup = Setup { agents, limits, ..setup };
    let base_url = "http://127.0.0.1:3000".to_owned();
    let start = Start { secret: 7, unix_ms: Arc::new(|| NOW.unix_ms), workers, base_url };
    setup.build(start).expect("a sound setup")
}

/// A worker on a thread of its own, with one connection.
struct Thread {
    engine: Arc<Engine>,
    worker: Worker,
    conn: Conn,
    out: Vec<u8>,
    start: Instant,
}

/// An order to a thread: requests in turn, and the number of calls; all threads begin together.
struct Order {
    requests: Requests,
    calls: usize,
    /// How many of the last created tasks to report.
    keep: usize,
    begin: Arc<Barrier>,
}

/// The thread's result: CPU time, start and end, the last answer, the last created tasks.
struct Report {
    cpu: Duration,
    start: Instant,
    end: Instant,
    answer: Vec<u8>,
    made: Vec<String>,
}

impl Thread {
    fn advance(&mut self, request: &[u8], now: Now) {
        self.out.clear();
        let mut cx = Cx {
            engine: &self.engine,
            worker: &mut self.worker,
            now,
            wake: Waker::noop(),
            out: &mut self.out,
            unsent: 0,
            peer: Peer::default(),
        };
        let progress = self.conn.advance(&mut cx, request, false);
        assert_eq!(progress.consumed, request.len());
        assert!(self.out.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }

    fn obey(&mut self, order: &Order) -> Report {
        let mut made = Vec::new();
        order.begin.wait();
        let (before, start) = (cpu(), Instant::now());
        for at in 0..order.calls {
            let ms = self.start.elapsed().as_millis() as u64;
            let now = Now { mono_ms: NOW.mono_ms + ms, unix_ms: NOW.unix_ms + ms };
            let request = &order.requests[at % order.requests.len()];
            self.advance(request, now);
            if at + order.keep >= order.calls {
                made.push(task_id(&self.out));
            }
        }
        let end = Instant::now();
        Report { cpu: cpu() - before, start, end, answer: self.out.clone(), made }
    }
}

/// CPU time of this thread. The kernel brings the number up to date when the thread stops.
fn cpu() -> Duration {
    thread::sleep(Duration::from_micros(50));
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number"))
}

/// Threads that share an engine, or have one each.
struct Team {
    orders: Vec<Sender<Order>>,
    reports: Vec<Receiver<Report>>,
    /// The requests of each thread.
    requests: Vec<Requests>,
}

impl Team {
    fn new(case: &Case, threads: usize, is_shared: bool) -> Team {
        let (tasks, is_owned) = (case.tasks, case.name == OWNED);
        let shared = engine(threads, tasks, is_owned);
        let mut team = Team { orders: Vec::new(), reports: Vec::new(), requests: Vec::new() };
        let start = Instant::now();
        for index in 0..threads {
            let (order, orders) = channel::<Order>();
            let (report, reports) = channel();
            let (engine, index) = if is_shared {
                (Arc::clone(&shared), index)
            } else {
                (engine(1, tasks, is_owned), 0)
            };
            thread::spawn(move || {
                let seed = 1 + ((index as u128) << 64);
                let worker = Worker::new(index, engine.limits(), Box::new(Counter(seed)));
                let (conn, out) = (Conn::new(NOW), Vec::with_capacity(1 << 20));
                let mut thread = Thread { engine, worker, conn, out, start };
                while let Ok(order) = orders.recv() {
                    report.send(thread.obey(&order)).expect("somebody listens");
                }
            });
            team.orders.push(order);
            team.reports.push(reports);
        }
        // Once to fill the store, and once more to evict all of it.
        let fill: Requests = match case.name {
            "stream_100" => Arc::new([post(&send("SendStreamingMessage", "stream:100"))]),
            _ => Arc::new([request(&send("SendMessage", TEXT), is_owned)]),
        };
        let fill = vec![fill; threads];
        let first = team.round(&fill, tasks, tasks);
        let last = team.round(&fill, tasks + READ, READ);
        team.requests = fill;
        if case.name == "get" {
            let made = last.iter().map(|report| &report.made);
            team.requests = match is_shared {
                // Each thread reads the tasks of all.
                true => {
                    let all = made.flat_map(|made| &made[..READ / threads]);
                    vec![all.map(|id| get(id, is_owned)).collect(); threads]
                }
                false => {
                    made.map(|made| made.iter().map(|id| get(id, is_owned)).collect()).collect()
                }
            };
        }
        // The store was full: the first task is evicted.
        let evicted_requests =
            |report: &Report| -> Requests { Arc::new([get(&report.made[0], is_owned)]) };
        let evicted_requests: Vec<Requests> = first.iter().map(evicted_requests).collect();
        for report in team.round(&evicted_requests, 1, 0) {
            assert_eq!(count(&report.answer, b"-32001"), 1);
        }
        team
    }

    /// Makes all threads execute this many calls at the same time.
    fn round(&self, requests: &[Requests], calls: usize, keep: usize) -> Vec<Report> {
        let begin = Arc::new(Barrier::new(self.orders.len()));
        for (order, requests) in self.orders.iter().zip(requests) {
            let (requests, begin) = (Arc::clone(requests), Arc::clone(&begin));
            order.send(Order { requests, calls, keep, begin }).expect("a thread");
        }
        self.reports.iter().map(|report| report.recv().expect("a report")).collect()
    }
}

fn get(id: &str, is_owned: bool) -> Vec<u8> {
    request(&call("GetTask", &format!(r#"{{"id":"{id}"}}"#)), is_owned)
}

/// The request that carries a call, of an anonymous caller or of the owner.
fn request(body: &str, is_owned: bool) -> Vec<u8> {
    let request = String::from_utf8(post(body)).expect("a request of text");
    let lines = if is_owned { callers::KEY } else { "" };
    request.replacen("Accept: ", &format!("{lines}Accept: "), 1).into_bytes()
}

/// True when all threads ran at the same time, and none had to wait for a core.
fn ran_together(reports: &[Report]) -> bool {
    let starts = || reports.iter().map(|report| report.start);
    let ends = || reports.iter().map(|report| report.end);
    let (Some(first), Some(last)) = (starts().min(), ends().max()) else { return false };
    let (Some(from), Some(to)) = (starts().max(), ends().min()) else { return false };
    let most = (last - first) * 8 / 10;
    to.saturating_duration_since(from) >= most && reports.iter().all(|report| report.cpu >= most)
}

fn run(case: &Case, threads: usize) {
    let teams = [false, true].map(|is_shared| Team::new(case, threads, is_shared));
    let (mut own, mut shared, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut rounds = 0;
    while ratios.len() < ROUNDS && rounds < 10 * ROUNDS {
        let mut is_parallel = true;
        let spent = teams.each_ref().map(|team| {
            let reports = team.round(&team.requests, case.calls, 0);
            for report in &reports {
                assert_eq!(count(&report.answer, case.answer.as_bytes()), case.times);
            }
            is_parallel &= ran_together(&reports);
            let cpu: Duration = reports.iter().map(|report| report.cpu).sum();
            cpu.as_secs_f64() / (threads * case.calls) as f64
        });
        rounds += 1;
        // The first round warms up.
        if is_parallel && rounds > 1 {
            own.push(spent[0]);
            shared.push(spent[1]);
            ratios.push(spent[1] / spent[0]);
        }
    }
    let counted = ratios.len();
    if counted < ROUNDS / 10 {
        println!("{:12} not measured: there are no {threads} cores free", case.name);
        return;
    }
    let [own, shared, ratio] = [own, shared, ratios].map(|mut rounds| {
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    });
    println!(
        "{:12} {threads} threads: {:.2} us a call on engines of their own, {:.2} us on one: \
         {ratio:.2} times ({counted} of {rounds} rounds)",
        case.name,
        own * 1e6,
        shared * 1e6
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let threads = args.get(1).map_or(2, |number| number.parse().expect("a number of threads"));
    for case in &CASES {
        if args.first().is_none_or(|only| only == case.name) {
            run(case, threads);
        }
    }
}
