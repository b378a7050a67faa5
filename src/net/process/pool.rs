//! The long-running processes of one agent.
//!
//! Invariants: there are at most `processes_max` processes. A turn goes to the process with the
//! fewest turns, or starts another process if all are busy. If a process ends before it has done
//! anything, the next one starts after a pause, which doubles each time.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{
    command::ProcessCommand, line_process::LineProcess, options::ProcessOptions, stderr::ProcessLog,
};
use crate::service::upstream::UpstreamMeter;

/// The first pause, and the longest pause.
const PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];

/// The command and its options.
pub(super) struct LinesProgram {
    pub command: ProcessCommand,
    pub options: ProcessOptions,
    pub log: ProcessLog,
    pub meter: Arc<UpstreamMeter>,
}

/// The processes of one agent.
pub(super) struct ProcessPool {
    pub program: Arc<LinesProgram>,
    state: Mutex<ProcessesState>,
    next_turn: AtomicU64,
}

#[derive(Default)]
struct ProcessesState {
    processes: Vec<Arc<LineProcess>>,
    /// Consecutive processes that ended before they did anything.
    failures: u32,
    /// When the next process may start.
    start_at: Option<Instant>,
}

impl ProcessPool {
    pub fn new(program: LinesProgram) -> ProcessPool {
        let program = Arc::new(program);
        ProcessPool { program, state: Mutex::default(), next_turn: AtomicU64::new(1) }
    }

    /// A number that no other turn has.
    pub fn next_turn(&self) -> u64 {
        self.next_turn.fetch_add(1, Relaxed)
    }

    /// Returns a process for a turn; waits while no process runs and none may start yet.
    ///
    /// # Errors
    /// The system cannot start a process.
    pub async fn process(&self) -> io::Result<Arc<LineProcess>> {
        loop {
            let start_at = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                match state.pick(&self.program)? {
                    Pick::Process(process) => return Ok(process),
                    Pick::Wait(until) => until,
                }
            };
            sleep_until(start_at).await;
        }
    }
}

enum Pick {
    Process(Arc<LineProcess>),
    /// No process may start before this time.
    Wait(Instant),
}

impl ProcessesState {
    fn pick(&mut self, program: &Arc<LinesProgram>) -> io::Result<Pick> {
        self.forget_ended();
        let best = self.processes.iter().min_by_key(|process| process.turns());
        if let Some(best) = best
            && (best.turns() == 0 || self.processes.len() >= program.options.processes_max)
        {
            return Ok(Pick::Process(Arc::clone(best)));
        }
        match (self.start_at.filter(|at| *at > Instant::now()), best) {
            (Some(_), Some(best)) => Ok(Pick::Process(Arc::clone(best))),
            (Some(at), None) => Ok(Pick::Wait(at)),
            (None, _) => {
                let process = LineProcess::start(program)?;
                program.meter.start_process();
                self.processes.push(Arc::clone(&process));
                Ok(Pick::Process(process))
            }
        }
    }

    fn forget_ended(&mut self) {
        let ProcessesState { processes, failures, start_at } = self;
        processes.retain(|process| {
            let has_ended = process.has_ended();
            if has_ended && process.has_worked() {
                (*failures, *start_at) = (0, None);
            } else if has_ended {
                let pause = PAUSE[0] * 2_u32.pow((*failures).min(10));
                *failures += 1;
                *start_at = Some(Instant::now() + pause.min(PAUSE[1]));
            }
            !has_ended
        });
    }
}
