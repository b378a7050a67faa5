//! Recordings for replays: calls with their times, one line of JSON for each call.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    LoadOperation, LoadPlan, PayloadShape, PayloadSize, PlannedCall, RecordedCall,
    schedule::CallSchedule,
};

/// A line of a recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedLine {
    /// Milliseconds since the start.
    at_ms: f64,
    /// The operation of the call.
    operation: String,
    /// Bytes of the message's text.
    #[serde(default = "usual_payload")]
    payload: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<usize>,
}

fn usual_payload() -> usize {
    64
}

/// Maximum calls of a recording.
const CALLS_MAX: usize = 10_000_000;
/// Maximum kinds of calls in a recording. Kinds differ in more than the time and the payload.
const KINDS_MAX: usize = 1_000;

/// Returns the calls of all workers of a plan as lines of JSON, in the order of their times.
///
/// # Errors
/// A sentence: the plan is a closed loop, which has no scheduled times, or has more calls than a
/// recording allows.
pub fn write_recording(plan: &LoadPlan) -> Result<String, String> {
    if !plan.is_open() {
        let why = "a closed loop cannot be recorded: its answers determine the times of the calls";
        return Err(why.to_owned());
    }
    let mut calls = Vec::new();
    for worker in 0..plan.threads() {
        let mut schedule = CallSchedule::new(plan, worker);
        while let Some(due) = schedule.next(0) {
            if calls.len() >= CALLS_MAX {
                return Err(format!("a recording has at most {CALLS_MAX} calls"));
            }
            calls.push((due.due_ns.unwrap_or_default(), due));
        }
    }
    calls.sort_by_key(|(due_ns, _)| *due_ns);
    let lines = calls.iter().map(|(due_ns, due)| {
        let call = &plan.calls[due.call];
        let line = RecordedLine {
            at_ms: *due_ns as f64 / 1e6,
            operation: call.operation.name().to_owned(),
            payload: due.payload_bytes,
            shape: (call.shape != PayloadShape::Text).then(|| call.shape.name().to_owned()),
            events: call.operation.is_streaming().then_some(call.events),
            chunk_bytes: (call.chunk_bytes > 0).then_some(call.chunk_bytes),
            hold_ms: call.operation.needs_hold().then_some(call.hold.as_millis() as u64),
            subscribers: (call.operation == LoadOperation::Subscribe).then_some(call.subscribers),
            batch: (call.operation == LoadOperation::Batch).then_some(call.batch),
        };
        // Serialization of numbers and texts does not fail.
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    });
    Ok(lines.collect())
}

/// The plan that replays a recording, with all other settings from `base`. It lasts as long as the
/// recording, including the warm-up.
///
/// # Errors
/// A sentence with the invalid line and the error.
pub fn read_recording(text: &str, base: &LoadPlan) -> Result<LoadPlan, String> {
    let (mut calls, mut recorded): (Vec<PlannedCall>, Vec<RecordedCall>) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: String| format!("line {}: {why}", index + 1);
        let line: RecordedLine =
            serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        if !(line.at_ms >= 0.0 && line.at_ms < 1e12) || line.payload > PayloadSize::BYTES_MAX {
            return Err(wrong("at_ms or payload is out of range".to_owned()));
        }
        let planned = line.planned().map_err(wrong)?;
        let call = calls.iter().position(|existing| *existing == planned).unwrap_or_else(|| {
            calls.push(planned);
            calls.len() - 1
        });
        if calls.len() > KINDS_MAX {
            return Err(wrong(format!("more than {KINDS_MAX} kinds of calls")));
        }
        let due_ns = (line.at_ms * 1e6).round() as u64;
        recorded.push(RecordedCall { due_ns, call, payload_bytes: line.payload });
    }
    recorded.sort_by_key(|call| call.due_ns);
    let Some(last) = recorded.last() else { return Err("the recording has no calls".to_owned()) };
    let whole = Duration::from_nanos(last.due_ns + 1);
    // If the recording is shorter than the warm-up, all calls are counted.
    let warmup = if base.warmup < whole { base.warmup } else { Duration::ZERO };
    let plan = LoadPlan {
        warmup,
        duration: whole - warmup,
        replay: Some(Arc::from(recorded)),
        ..base.clone()
    };
    Ok(plan.with_calls(calls))
}

impl RecordedLine {
    fn planned(&self) -> Result<PlannedCall, String> {
        let operation = LoadOperation::of_name(&self.operation)
            .ok_or_else(|| format!("unknown operation {:?}", self.operation))?;
        let usual = PlannedCall::new(operation);
        Ok(PlannedCall {
            shape: self.shape.as_deref().map_or(Ok(usual.shape), PayloadShape::parse)?,
            events: self.events.unwrap_or(usual.events).max(1),
            chunk_bytes: self.chunk_bytes.unwrap_or_default(),
            hold: self.hold_ms.map_or(usual.hold, Duration::from_millis),
            subscribers: (self.subscribers.unwrap_or(usual.subscribers))
                .clamp(1, PlannedCall::SUBSCRIBERS_MAX),
            batch: self.batch.unwrap_or(usual.batch).clamp(1, PlannedCall::BATCH_MAX),
            ..usual
        })
    }
}
