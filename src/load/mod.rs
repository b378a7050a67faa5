//! The load generator: starts calls when they are due, independently of the server, and records the
//! results.
//!
//! Invariant: the schedule of calls does not depend on the server (open loop), and latency counts
//! from the due time of a call. Calls that were late, held back, unfinished at the end or answered
//! incorrectly are counted and reported; slow calls are never left out. With other implementations
//! of [`LoadClock`] and [`Transport`](crate::client::Transport) a run works in simulated time.

mod answer_check;
mod behaviour;
mod clock;
mod comparison;
mod failure;
mod floor;
mod machine;
mod measures;
mod objective;
mod operation;
mod plan;
mod probe;
mod progress;
mod recording;
pub mod report;
mod run;
mod schedule;
mod self_test;
mod webhooks;
mod worker;
mod workload;

pub use clock::{LoadClock, SystemClock};
pub use comparison::compare;
pub use floor::{AnswerDelay, FloorServer};
pub use machine::{MachineFacts, ProcessSample};
pub use measures::{LoadMeasures, LoadSlice, OperationMeasures};
pub use objective::Objective;
pub use operation::LoadOperation;
pub use plan::{
    AgentBehaviour, Arrivals, CallLimits, CheckLevel, LoadPace, LoadPlan, PayloadShape,
    PayloadSize, PlannedCall, RateSpan, RecordedCall,
};
pub use probe::{CallProbe, ProbedTransport};
pub use progress::LoadProgress;
pub use recording::{read_recording, write_recording};
pub use run::{LoadRun, LoadedTarget, WebhookTarget};
pub use self_test::{SelfTestLine, SelfTestVerdict, self_test};
pub use webhooks::WebhookReceiver;
pub use worker::{LoadWorker, SharedMeasures, WorkerSetup};
pub use workload::{Workload, arrivals};
