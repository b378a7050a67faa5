//! The load generator: calls at the times they are due, whatever the server does meanwhile, and
//! what came of them.
//!
//! Law: a call is due by a schedule that does not know the server (open loop), and its latency
//! counts from then on. What was late, held back, cut off at the end or answered wrongly is counted
//! and reported; nothing that took long is left out. Over [`LoadClock`] and
//! [`Transport`](crate::client::Transport) a run works in simulated time as well as over sockets.

mod answer_check;
mod clock;
mod failure;
mod machine;
mod measures;
mod operation;
mod plan;
mod probe;
pub mod report;
mod run;
mod schedule;
mod worker;

pub use clock::{LoadClock, SystemClock};
pub use machine::{MachineFacts, ProcessSample};
pub use measures::{LoadMeasures, LoadSlice, OperationMeasures};
pub use operation::{LoadOperation, echoes};
pub use plan::{Arrivals, CheckLevel, LoadPace, LoadPlan};
pub use probe::{CallProbe, ProbedTransport};
pub use run::{LoadRun, LoadedTarget};
pub use worker::{LoadWorker, SharedMeasures};
