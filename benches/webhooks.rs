//! The cost of a delivery to a webhook, compared with a floor that writes the same bytes and reads
//! the answer, and the cost of webhooks that wait for an unreachable receiver.
//!
//! `cargo bench --bench webhooks [-- CASE...]`: `ratio` is the webhook worker's CPU time for a post
//! over a pooled connection, kernel included, divided by that of the floor, the median of
//! interleaved rounds; `instructions` counts user-space instructions. Both sides are processes of
//! their own on core 0, the receiver has core 1. `waiting` has 100,000 tasks with a dead receiver:
//! the CPU time of 20 idle seconds, the resident memory of each task, and the cost of a SendMessage
//! meanwhile; `waiting_instructions` the same as instructions. Needs Linux, `taskset` and, for
//! instructions, `valgrind`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, dead_code)]

#[path = "support/bare_sender.rs"]
mod bare_sender;
#[path = "support/engine.rs"]
mod engine;
#[path = "support/posts.rs"]
mod posts;
#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/served.rs"]
mod served;
#[path = "support/waiting.rs"]
mod waiting;

use std::{
    fs,
    net::IpAddr,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    task::Waker,
    time::Instant,
};

use peregrine::{
    engine::{NextRequest, Outbox, PostOutcome, PostRequest, TargetError},
    net::{HttpClientOptions, WebhookWorker},
    service::Now,
};
use rustix::time::{ClockId, clock_gettime};

use bare_sender::Rounds;
use receiver::Receiver;
use served::VALGRIND;

/// The binary's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 15;

/// Posts before the measurement, and during it.
const WARM: usize = 2_000;
const COUNTED: usize = 20_000;

/// Posts that the floor repeats: those of a few tasks.
const RECORDED_POSTS: usize = 20 * posts::OF_A_TASK;

struct Case {
    name: &'static str,
    /// The configuration in addition to the URL.
    with: &'static str,
    /// Concurrent connections.
    at_a_time: u32,
    /// `None`: without a limit.
    at_most: Option<f64>,
}

const CASES: [Case; 3] = [
    Case { name: "eight", with: posts::BEARER, at_a_time: 8, at_most: Some(2.0) },
    Case { name: "one", with: posts::BEARER, at_a_time: 1, at_most: Some(2.0) },
    Case { name: "signed", with: posts::SIGNED, at_a_time: 8, at_most: None },
];

/// Nanoseconds of CPU that this thread has used.
fn cpu_ns() -> u64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}

/// An outbox that reads the CPU clock of the webhook worker's thread at two of its posts.
struct Clocked {
    outbox: Arc<dyn Outbox>,
    from: usize,
    upto: usize,
    done: AtomicUsize,
    from_ns: AtomicU64,
    spent_ns: mpsc::Sender<u64>,
}

impl Outbox for Clocked {
    fn next(&self, now: Now, wake: &Waker, request: &mut PostRequest) -> NextRequest {
        self.outbox.next(now, wake, request)
    }

    fn done(&self, request: &PostRequest, outcome: PostOutcome, now: Now, random: u64) {
        assert_eq!(outcome, PostOutcome::Delivered);
        self.outbox.done(request, outcome, now, random);
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done == self.from {
            self.from_ns.store(cpu_ns(), Ordering::Relaxed);
        }
        if done == self.upto {
            let _ = self.spent_ns.send(cpu_ns() - self.from_ns.load(Ordering::Relaxed));
        }
    }

    fn check_address(
        &self,
        host: &str,
        address: IpAddr,
        is_own: &dyn Fn(IpAddr) -> bool,
    ) -> Result<(), TargetError> {
        self.outbox.check_address(host, address, is_own)
    }
}

/// Posts to a receiver, with as many tasks as `all` posts need; returns the CPU time of the counted
/// posts.
fn post(case: &Case, port: u16, rounds: Rounds, all: usize) -> u64 {
    let Rounds { warm, counted } = rounds;
    let url = format!("http://localhost:{port}/hooks/a2a");
    let tasks = all.div_ceil(posts::OF_A_TASK);
    let outbox = posts::outbox(tasks, &url, case.with, case.at_a_time);
    let (spent_ns, spent) = mpsc::channel();
    let outbox = Arc::new(Clocked {
        outbox,
        from: warm,
        upto: warm + counted,
        done: AtomicUsize::new(0),
        from_ns: AtomicU64::new(0),
        spent_ns,
    });
    let begun = Instant::now();
    let mono_ms = move || begun.elapsed().as_millis() as u64 + 1;
    let _webhook_worker =
        WebhookWorker::start(outbox, HttpClientOptions::default(), mono_ms).unwrap();
    spent.recv().unwrap()
}

/// Runs as one of the two senders: `post-of NAME PORT WARM COUNT ALL`, or `floor-of NAME PORT WARM
/// COUNT FILE`, where the file has posts, each after its length.
fn be(args: &[String]) {
    let [kind, name, port, warm, count, last] = args else { panic!("{args:?}") };
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let port = port.parse().unwrap();
    let [warm, counted] = [warm, count].map(|text| text.parse().unwrap());
    let rounds = Rounds { warm, counted };
    let spent_ns = match &**kind {
        "post-of" => post(case, port, rounds, last.parse().unwrap()),
        _ => {
            let connections = case.at_a_time as usize;
            bare_sender::run(port, connections, read_posts(last), rounds, cpu_ns)
        }
    };
    println!("{spent_ns}");
}

fn write_posts(path: &str, posts: &[Vec<u8>]) {
    let all = posts.iter().flat_map(|post| [&(post.len() as u32).to_be_bytes()[..], post].concat());
    fs::write(path, all.collect::<Vec<u8>>()).unwrap();
}

fn read_posts(path: &str) -> Vec<Vec<u8>> {
    let all = fs::read(path).unwrap();
    let (mut posts, mut rest) = (Vec::new(), &all[..]);
    while let Some((length, after)) = rest.split_first_chunk() {
        let (post, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        posts.push(post.to_vec());
        rest = after;
    }
    posts
}

/// Runs one of the two senders, and returns its output and that of callgrind.
fn child(prefix: &[&str], words: &[&str]) -> (u64, String) {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).args(prefix).arg(me).args(words);
    let output = command.stdin(Stdio::null()).output().expect("taskset");
    let (stdout, log) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{log}");
    (String::from_utf8_lossy(&stdout).trim().parse().unwrap(), log)
}

/// Both senders of a case: the floor writes the posts of the webhook worker.
struct Senders {
    name: &'static str,
    receiver: Receiver,
    file: String,
}

impl Senders {
    fn new(case: &Case) -> Senders {
        let receiver = Receiver::new(RECORDED_POSTS);
        let file = format!("{}/posts-{}", env!("CARGO_TARGET_TMPDIR"), case.name);
        let senders = Senders { name: case.name, receiver, file };
        senders.post(&[], Rounds { warm: 9, counted: RECORDED_POSTS }, RECORDED_POSTS + 100);
        assert!(senders.receiver.connections() <= case.at_a_time as usize);
        write_posts(&senders.file, &senders.receiver.recorded());
        senders
    }

    fn post(&self, prefix: &[&str], rounds: Rounds, all: usize) -> (u64, String) {
        let port = self.receiver.port.to_string();
        let numbers = [rounds.warm, rounds.counted, all].map(|number| number.to_string());
        let [warm, count, all] = &numbers;
        child(prefix, &["post-of", self.name, &port, warm, count, all])
    }

    fn floor(&self, prefix: &[&str], rounds: Rounds) -> (u64, String) {
        let port = self.receiver.port.to_string();
        let (warm, count) = (rounds.warm.to_string(), rounds.counted.to_string());
        child(prefix, &["floor-of", self.name, &port, &warm, &count, &self.file])
    }
}

fn ratios(case: &Case) {
    let senders = Senders::new(case);
    let (measured, all) = (Rounds { warm: WARM, counted: COUNTED }, WARM + COUNTED + 100);
    let mut rounds: Vec<[f64; 3]> = (0..ROUNDS)
        .map(|_| {
            let (floor, _) = senders.floor(&[], measured);
            let (ours, _) = senders.post(&[], measured, all);
            let [floor, ours] = [floor, ours].map(|ns| ns as f64 / COUNTED as f64 / 1_000.0);
            [ours / floor, floor, ours]
        })
        .collect();
    rounds.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let [ratio, floor, ours] = rounds[ROUNDS / 2];
    let posts = senders.receiver.recorded();
    let bytes = posts.iter().map(Vec::len).sum::<usize>() / posts.len();
    let bound = case.at_most.map_or("no bound".to_owned(), |most| format!("at most {most:.1}"));
    println!(
        "{:<8} ratio {ratio:.2} ({bound}), {ours:.2} of {floor:.2} us a post of {bytes} bytes, \
         {:.2} to {:.2}",
        case.name,
        rounds[0][0],
        rounds[ROUNDS - 1][0]
    );
}

/// User-space instructions of a post, of either whole process: two runs, subtracted.
fn instructions(case: &Case) {
    let senders = Senders::new(case);
    let (few, many) = (500, 3_500);
    let of = |run: &dyn Fn(usize) -> (u64, String)| {
        let counted = |count: usize| {
            let (_, log) = run(count);
            let line = log.lines().find(|line| line.contains("Collected :")).expect(&log);
            line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        (counted(many) - counted(few)) / (many - few) as u64
    };
    let floor = of(&|count| senders.floor(&VALGRIND, Rounds { warm: 0, counted: count }));
    let ours = of(&|count| {
        let rounds = Rounds { warm: 1, counted: count - 1 };
        senders.post(&VALGRIND, rounds, many + 100)
    });
    println!("{:<8} {ours} instructions a post, floor {floor}", case.name);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if args.first().is_some_and(|word| word.ends_with("-of")) {
        return be(&args);
    }
    let wanted = |name: &str| args.is_empty() || args.iter().any(|word| word == name);
    served::pin_load();
    let is_named = |case: &&Case| args.iter().any(|word| word == case.name);
    let all = !CASES.iter().any(|case| is_named(&case));
    let cases: Vec<&Case> = CASES.iter().filter(|case| all || is_named(case)).collect();
    let ratio_wanted = wanted("ratio") || !all && !wanted("instructions");
    if ratio_wanted {
        cases.iter().for_each(|case| ratios(case));
    }
    if wanted("instructions") {
        cases.iter().for_each(|case| instructions(case));
    }
    if wanted("waiting") {
        waiting::cpu();
    }
    if wanted("waiting_instructions") {
        waiting::instructions();
    }
}
