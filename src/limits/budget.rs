//! One number for memory: a budget that is divided among the limits that depend on it.
//!
//! Invariants: the sum of the terms never exceeds the budget; limits of the protocol (bodies,
//! queries, depths, ids, frames) and explicitly configured limits are not changed; a budget below
//! the smallest workable sum is refused, and the error names that sum.

use std::fmt;

use super::Limits;

const MIB: u64 = 1024 * 1024;

/// The default budget of a server with up to [`WORKERS_INCLUDED`] workers, regardless of the
/// machine's memory.
pub const MEMORY_BYTES_DEFAULT: u64 = 4096 * MIB;

/// Memory added for each worker above [`WORKERS_INCLUDED`], for its current request and answer, so
/// that many cores do not reduce the store's memory.
pub const MEMORY_BYTES_PER_WORKER: u64 = 64 * MIB;

/// Workers for which [`MEMORY_BYTES_DEFAULT`] is sufficient.
pub const WORKERS_INCLUDED: usize = 4;

/// The default budget of a server with this many workers.
pub fn memory_bytes_default(workers: usize) -> u64 {
    let more = workers.saturating_sub(WORKERS_INCLUDED) as u64;
    MEMORY_BYTES_DEFAULT.saturating_add(more.saturating_mul(MEMORY_BYTES_PER_WORKER))
}

/// A limit that is derived from the budget.
struct Portion {
    name: &'static str,
    /// The smallest workable value.
    least: fn(&Limits) -> u64,
    /// The largest useful value; later portions get the surplus.
    most: u64,
    /// The portion gets `weight` divided by the sum of this and all later weights of the remaining
    /// budget.
    weight: u64,
}

/// The last portion gets the rest.
const PORTIONS: &[Portion] = &[
    Portion { name: "large_bodies_max", least: |_| 1, most: 1024, weight: 18 },
    Portion { name: "connections_max", least: |_| 64, most: 65_536, weight: 29 },
    Portion { name: "http2_connections_max", least: |_| 1, most: 2_048, weight: 188 },
    Portion { name: "tasks_max", least: |_| 1_024, most: 1 << 24, weight: 33 },
    Portion { name: "deferred_calls_max", least: |_| 64, most: 8_192, weight: 2 },
    Portion { name: "idempotency_entries_max", least: |_| 1_024, most: 262_144, weight: 2 },
    Portion { name: "idempotency_bytes_max", least: |_| MIB / 4, most: 16 * MIB, weight: 1 },
    Portion { name: "push_scopes_max", least: |_| 64, most: 1_024, weight: 0 },
    Portion { name: "push_dead_bytes_max", least: |_| MIB / 4, most: 16 * MIB, weight: 1 },
    Portion { name: "push_posts_bytes_max", least: |_| MIB / 4, most: 64 * MIB, weight: 1 },
    Portion { name: "push_bytes_max", least: |_| MIB / 4, most: 64 * MIB, weight: 2 },
    Portion { name: "reuse_bytes_max", least: |_| MIB, most: 128 * MIB, weight: 4 },
    Portion { name: "buffers_bytes_max", least: one_exchange, most: 1 << 40, weight: 57 },
    Portion { name: "store_bytes_max", least: two_tasks, most: 1 << 48, weight: 118 },
];

/// Bytes of a whole request and its answer.
fn one_exchange(limits: &Limits) -> u64 {
    let body = limits.largest_body_bytes().max(limits.largest_message_bytes());
    (2 * body + limits.head_bytes_max + limits.task_bytes_max) as u64
}

/// Bytes of a growing task, and of a task that is evicted for it.
fn two_tasks(limits: &Limits) -> u64 {
    2 * limits.task_bytes_max as u64
}

/// A budget with which a server cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLittleMemory {
    /// The budget, in bytes.
    pub bytes: u64,
    /// The smallest workable budget, in bytes.
    pub least: u64,
}

impl fmt::Display for TooLittleMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = self.least.div_ceil(MIB);
        write!(
            f,
            "{} MiB of memory are too little: these workers and limits need at least {least} MiB \
             (fewer workers, or a smaller body_bytes_max, evo_ai_body_bytes_max or \
             task_bytes_max, need less)",
            self.bytes / MIB
        )
    }
}

impl std::error::Error for TooLittleMemory {}

impl Limits {
    /// A copy of these limits, in which the limits that depend on memory are set so that
    /// [`Limits::memory_bytes_max`] is at most `bytes` for this many workers; the limits in `fixed`
    /// stay as they are.
    ///
    /// # Errors
    /// [`TooLittleMemory`], with the required sum.
    pub fn for_memory(
        &self,
        bytes: u64,
        workers: usize,
        is_secure: bool,
        fixed: &[&str],
    ) -> Result<Limits, TooLittleMemory> {
        let portions = || PORTIONS.iter().filter(|portion| !fixed.contains(&portion.name));
        let mut limits = self.clone();
        for portion in portions() {
            limits.put(portion.name, (portion.least)(self));
        }
        let mut sum = limits.memory_bytes_max(workers, is_secure);
        if sum > bytes {
            return Err(TooLittleMemory { bytes, least: sum });
        }
        let mut weights: u64 = portions().map(|portion| portion.weight).sum();
        for portion in portions() {
            let part = (u128::from(bytes - sum) * u128::from(portion.weight)) / u128::from(weights);
            let ceiling = sum + part as u64;
            weights -= portion.weight;
            // A higher limit never needs less memory, so bisection finds the highest that fits.
            let (mut fits, mut most) = ((portion.least)(self), portion.most);
            while fits < most {
                let middle = fits + (most - fits).div_ceil(2);
                limits.put(portion.name, middle);
                match limits.memory_bytes_max(workers, is_secure) <= ceiling {
                    true => fits = middle,
                    false => most = middle - 1,
                }
            }
            limits.put(portion.name, fits);
            sum = limits.memory_bytes_max(workers, is_secure);
        }
        Ok(limits)
    }

    /// As [`Limits::for_memory`] with [`memory_bytes_default`], or with the smallest workable
    /// budget if that is larger.
    pub fn for_default_memory(&self, workers: usize, is_secure: bool, fixed: &[&str]) -> Limits {
        let divided = |bytes| self.for_memory(bytes, workers, is_secure, fixed);
        let enough = |refused: TooLittleMemory| divided(refused.least);
        divided(memory_bytes_default(workers)).or_else(enough).unwrap_or_else(|_| self.clone())
    }

    /// Sets a limit to a number within its range.
    fn put(&mut self, name: &str, value: u64) {
        let set = self.set(name, &value.to_string());
        debug_assert!(set.is_ok(), "{name}={value}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shrinks(name: &str) -> bool {
        PORTIONS.iter().any(|portion| portion.name == name)
    }

    fn least(limits: &Limits, workers: usize, is_secure: bool, fixed: &[&str]) -> u64 {
        limits.for_memory(0, workers, is_secure, fixed).unwrap_err().least
    }

    proptest! {
        #[test]
        fn memory_sum_stays_within_the_budget(
            workers in 1..=64_usize,
            more in 0..(1_u64 << 36),
            is_secure: bool,
            by_hand in 0..PORTIONS.len(),
            is_by_hand: bool,
        ) {
            let base = Limits::default();
            let fixed: &[&str] = if is_by_hand { &[PORTIONS[by_hand].name] } else { &[] };
            let least = least(&base, workers, is_secure, fixed);
            let limits = base.for_memory(least + more, workers, is_secure, fixed).unwrap();
            prop_assert!(limits.memory_bytes_max(workers, is_secure) <= least + more);
            prop_assert_eq!(limits.check(), Ok(()));
            for ((name, before), (_, after)) in base.rows().into_iter().zip(limits.rows()) {
                if !shrinks(name) || fixed.contains(&name) {
                    prop_assert_eq!(before, after, "{}", name);
                }
            }
            let refused = TooLittleMemory { bytes: least - 1, least };
            let again = base.for_memory(least - 1, workers, is_secure, fixed);
            prop_assert_eq!(again, Err(refused));
        }

        #[test]
        fn more_memory_does_not_shrink_store_beyond_tolerance(
            workers in 1..=64_usize,
            less in 0..(1_u64 << 36),
            more in 0..(1_u64 << 36),
        ) {
            let base = Limits::default();
            let least = least(&base, workers, false, &[]);
            let store = |bytes| {
                base.for_memory(least + bytes, workers, false, &[]).unwrap().store_bytes_max
            };
            let (less, more) = (less.min(more), less.max(more));
            // The tolerance: bytes that remain unused because other limits grow in steps.
            prop_assert!(store(less) <= store(more) + 512 * MIB as usize);
        }
    }

    #[test]
    fn limits_use_over_99_percent_of_the_budget() {
        for mib in [512, 1024, 2048, 65_536] {
            let limits = Limits::default().for_memory(mib * MIB, 2, false, &[]).unwrap();
            let sum = limits.memory_bytes_max(2, false);
            assert!(sum > mib * MIB * 99 / 100, "{} of {mib}", sum / MIB);
        }
    }

    #[test]
    fn default_budget_suffices_for_1_to_64_workers() {
        for (workers, is_secure) in (1..=64).flat_map(|workers| [(workers, false), (workers, true)])
        {
            let limits = Limits::default().for_default_memory(workers, is_secure, &[]);
            let sum = limits.memory_bytes_max(workers, is_secure);
            assert!(sum <= memory_bytes_default(workers), "{workers}: {sum}");
            for (name, least) in [
                ("connections_max", 3_000),
                ("http2_connections_max", 230),
                // Each task may have a different owner, which costs six times as much.
                ("tasks_max", 78_000),
                ("buffers_bytes_max", 485 * MIB),
                ("store_bytes_max", 980 * MIB),
            ] {
                let (_, value) = limits.rows().into_iter().find(|row| row.0 == name).unwrap();
                assert!(value >= least, "{workers} {is_secure}: {name}={value}");
            }
        }
    }

    #[test]
    fn explicit_limit_is_not_changed_by_the_budget() {
        let base = Limits { store_bytes_max: 1 << 34, ..Limits::default() };
        let limits = base.for_default_memory(2, false, &["store_bytes_max"]);
        assert_eq!(limits.store_bytes_max, 1 << 34);
        assert!(limits.memory_bytes_max(2, false) < (1 << 34) + 512 * MIB);
    }

    #[test]
    fn too_little_memory_error_is_one_line() {
        let line = Limits::default().for_memory(MIB, 2, false, &[]).unwrap_err().to_string();
        assert!(line.starts_with("1 MiB of memory are too little") && !line.contains('\n'));
    }
}
