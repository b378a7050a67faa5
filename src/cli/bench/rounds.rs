//! Compares several agents under the same load in rounds, so that a disturbance affects all of
//! them.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use peregrine::load::{
    LoadPlan, LoadedTarget, compare,
    report::{ComparisonReport, TargetReport},
};

use super::{
    super::{calls::Invocation, eprint, failure::CommandFailure},
    BenchPlan, BenchTarget, internal,
    target::TargetAddress,
};

/// The hidden command that runs the minimal server.
pub const FLOOR_COMMAND: &str = "bench-floor";

/// The minimal server, in a child process that ends when this value is dropped.
pub struct FloorProcess {
    child: Child,
    url: String,
}

impl FloorProcess {
    /// Starts the server, with answers of `answer_bytes` bytes.
    ///
    /// # Errors
    /// A [`CommandFailure`]: the process cannot be started.
    pub fn start(answer_bytes: usize) -> Result<FloorProcess, CommandFailure> {
        let failed =
            |error: std::io::Error| internal(format!("cannot start the floor server: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args([FLOOR_COMMAND, &answer_bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut url = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut url).map_err(failed)?;
        }
        Ok(FloorProcess { child, url: url.trim().to_owned() })
    }
}

impl Drop for FloorProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts the load of each phase on all agents, one after the other in each round.
///
/// # Errors
/// A [`CommandFailure`].
pub fn compare_in_rounds(
    on: &Invocation<'_>,
    first: BenchTarget<'_>,
    bench: &BenchPlan<'_>,
    runtime: &tokio::runtime::Runtime,
) -> Result<(Vec<TargetReport>, Vec<ComparisonReport>), CommandFailure> {
    let plan = bench.phases.first().ok_or_else(|| internal("nothing to do".to_owned()))?;
    let floor = match bench.has_floor {
        true => Some(FloorProcess::start(runtime.block_on(first.answer_bytes(plan))?)?),
        false => None,
    };
    let mut targets = vec![first];
    for (index, url) in bench.compared.iter().enumerate() {
        let address = TargetAddress { url, pid: bench.pids.get(index + 1).copied() };
        targets.push(runtime.block_on(BenchTarget::of(on, address, bench))?);
    }
    if let Some(floor) = &floor {
        let address = TargetAddress { url: &floor.url, pid: Some(floor.child.id()) };
        targets.push(runtime.block_on(BenchTarget::of(on, address, bench))?);
    }
    let (mut reports, mut comparisons) = (Vec::new(), Vec::new());
    for plan in &bench.phases {
        let rounds = rounds(&targets, plan, bench.rounds, runtime)?;
        let of_rounds: Vec<Vec<TargetReport>> =
            rounds.iter().map(|rounds| rounds.iter().map(TargetReport::of).collect()).collect();
        for other in of_rounds.iter().skip(1) {
            comparisons.extend(compare(&of_rounds[0], other));
        }
        let joined = rounds.into_iter().filter_map(LoadedTarget::joined);
        reports.extend(joined.map(|target| TargetReport::of(&target)));
        if reports.iter().any(|report| report.interrupted) {
            break;
        }
    }
    Ok((reports, comparisons))
}

/// Measures the rounds of each target.
fn rounds(
    targets: &[BenchTarget<'_>],
    plan: &LoadPlan,
    rounds: usize,
    runtime: &tokio::runtime::Runtime,
) -> Result<Vec<Vec<LoadedTarget>>, CommandFailure> {
    // Each round replays the whole recording.
    let duration = match plan.replay {
        Some(_) => plan.duration,
        None => plan.duration.div_f64(rounds as f64).max(Duration::from_millis(100)),
    };
    let mut measured: Vec<Vec<LoadedTarget>> = targets.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        eprint(&format!("{}: round {} of {rounds}\n", plan.name, round + 1));
        for (target, of_target) in targets.iter().zip(&mut measured) {
            // Each round has its own calls, the same for all targets.
            let plan = LoadPlan { duration, seed: plan.seed + round as u64, ..plan.clone() };
            let loaded = runtime.block_on(target.load(&plan))?;
            let Some(loaded) = loaded.filter(|loaded| !loaded.is_interrupted) else {
                return whole_rounds(measured, round);
            };
            of_target.push(loaded);
        }
    }
    Ok(measured)
}

/// The rounds that all targets completed before the user ended the comparison.
fn whole_rounds(
    mut measured: Vec<Vec<LoadedTarget>>,
    rounds: usize,
) -> Result<Vec<Vec<LoadedTarget>>, CommandFailure> {
    if rounds == 0 {
        return Err(internal("interrupted before all agents had a round".to_owned()));
    }
    for of_target in &mut measured {
        of_target.truncate(rounds);
        of_target.iter_mut().for_each(|target| target.is_interrupted = true);
    }
    Ok(measured)
}
