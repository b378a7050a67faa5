//! Refusals of the store, and their errors for clients.

use crate::fault::{Fault, FaultKind};

/// Why the store refused a change. Nothing is changed then, unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `tasks_max` is reached and no task may be evicted.
    Full,
    /// `store_bytes_max` is reached and no task may be evicted.
    OutOfBytes,
    /// The caller holds its share of the store, and has no finished tasks.
    OwnShareFull {
        /// Seconds until the first of its running tasks fails, unless that task has an event
        /// before.
        retry_s: u32,
    },
    /// The message, or the task with this event, exceeds a limit of one task.
    TooLarge,
    /// The id that the client chose is in use.
    Taken,
    /// The task is in a terminal state.
    Terminal,
    /// The caller has this maximum of running tasks.
    ShareExhausted(u32),
    /// The callers of the tenant together have this maximum of running tasks.
    TenantShareExhausted(u32),
    /// The running tasks of the caller hold this maximum of KiB, or would exceed it.
    ShareBytesExhausted(u32),
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Fault {
        match refused {
            Refused::Full => Fault::at_limit("tasks_max"),
            Refused::OutOfBytes => Fault::at_limit("store_bytes_max"),
            Refused::OwnShareFull { retry_s } => {
                let why = "the caller's share of the store is full";
                let detail = format!("{why}; retry when one of its tasks has ended");
                let fault = Fault::because(FaultKind::RateLimited, detail);
                Fault { retry_s: Some(retry_s), ..fault }.of_limit("owner_share")
            }
            Refused::TooLarge => Fault::param("message", "the task has no room for this message")
                .of_limit("task_bytes_max"),
            Refused::Taken => Fault::param("id", "a task with this id is being created"),
            Refused::Terminal => Fault::new(FaultKind::TaskTerminal),
            Refused::ShareExhausted(most) | Refused::TenantShareExhausted(most) => {
                let why = match refused {
                    Refused::TenantShareExhausted(_) => "the tenant has too many running tasks",
                    _ => "the caller has too many running tasks",
                };
                let detail = format!("{why} ({most}); retry when one has ended or waits for input");
                Fault::share_used_up("quotas.running_tasks", most, detail)
            }
            Refused::ShareBytesExhausted(kib_max) => {
                let why = "running tasks of the caller hold too many bytes";
                let retry = "retry when one has ended or waits for input";
                let detail = format!("{why} ({kib_max} KiB); {retry}");
                Fault::share_used_up("quotas.running_bytes", kib_max, detail)
            }
        }
    }
}
