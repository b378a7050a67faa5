//! Wrong answers of a server are caught: none counts as a good call, and each is an error of the
//! kind that names the fault.

use std::process::Command;

use serde_json::{Value, json};

use crate::{faults::Fault, faulty_agent::FaultyAgent, support::binary::PATH};

/// The number of calls in a run.
const CALLS: u64 = 12;

/// A scenario, and the method that gets faulty answers in a test.
struct Tested {
    scenario: &'static str,
    method: &'static str,
    has_numbers: bool,
}

impl Tested {
    const fn new(scenario: &'static str, method: &'static str) -> Tested {
        Tested { scenario, method, has_numbers: true }
    }

    /// The report of a run against this agent.
    fn bench(&self, agent: &FaultyAgent, check: &str) -> Value {
        let url = format!("http://{}", agent.addr);
        let calls = CALLS.to_string();
        let output = Command::new(PATH)
            .args(["bench", &url, "-o", "json", "--scenario", self.scenario, "--check", check])
            .args(["--requests", &calls, "--concurrency", "4", "--warmup", "0s"])
            .args(["--duration", "30s", "--timeout", "2s", "--hold", "300ms"])
            .args(["--subscribers", "1", "--batch", "4"])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", self.scenario);
        let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["targets"][0].take()
    }

    /// Checks that each wrong answer is an error of this kind, and each right one a good call.
    fn check(&self, fault: Fault, kind: &str) -> Result<(), String> {
        let agent = FaultyAgent::start(self.method, Some(fault), self.has_numbers);
        let target = self.bench(&agent, "full");
        let wrong = agent.wrong();
        let is_caught = wrong >= 4
            && target["errors"] == json!({ kind: wrong })
            && target["requests"] == CALLS
            && target["latency_us"]["count"] == CALLS - wrong;
        let (errors, examples) = (&target["errors"], &target["error_examples"]);
        let error = format!("{fault:?}: {wrong} are {kind}, not {errors} {examples}\n");
        is_caught.then_some(()).ok_or(error)
    }

    fn catches(&self, faults: &[(Fault, &str)]) {
        let missed: String =
            faults.iter().filter_map(|(fault, kind)| self.check(*fault, kind).err()).collect();
        assert!(missed.is_empty(), "{}:\n{missed}", self.scenario);
    }
}

const SEND: Tested = Tested::new("send", "SendMessage");
const GET: Tested = Tested::new("get", "GetTask");
const BATCH: Tested = Tested::new("batch", "Batch");
const LIST: Tested = Tested::new("list", "ListTasks");
const CANCEL: Tested = Tested::new("cancel", "CancelTask");
const STREAM: Tested = Tested::new("stream", "SendStreamingMessage");
const SUBSCRIBE: Tested = Tested::new("subscribe", "SubscribeToTask");
const RESUME: Tested = Tested::new("resume", "SubscribeToTask");
const PUSH: Tested = Tested::new("push", "SendStreamingMessage");

const ALL: [&Tested; 9] =
    [&SEND, &GET, &BATCH, &LIST, &CANCEL, &STREAM, &SUBSCRIBE, &RESUME, &PUSH];

#[test]
fn bench_reports_no_errors_for_a_correct_server() {
    for has_numbers in [true, false] {
        for tested in ALL {
            let tested = Tested { has_numbers, ..*tested };
            let agent = FaultyAgent::start(tested.method, None, has_numbers);
            let target = tested.bench(&agent, "full");
            let examples = &target["error_examples"];
            assert_eq!(target["errors"], json!({}), "{}: {examples:#}", tested.scenario);
            assert_eq!(target["requests"], CALLS, "{}", tested.scenario);
        }
    }
}

#[test]
fn send_answer_with_wrong_id_or_text_is_counted_as_error() {
    SEND.catches(&[
        (Fault::ExchangedAnswers, "other_id"),
        (Fault::ExchangedResults, "other_answer"),
        (Fault::OldAnswer, "other_id"),
        (Fault::OldResult, "other_answer"),
        (Fault::OtherId, "other_id"),
        (Fault::NoId, "other_id"),
        (Fault::OtherText, "other_answer"),
    ]);
}

#[test]
fn invalid_or_unfinished_send_result_is_counted_as_error() {
    SEND.catches(&[
        (Fault::ResultAndError, "internal"),
        (Fault::NoResult, "unreadable"),
        (Fault::NoStatus, "unreadable"),
        (Fault::NoTaskId, "unreadable"),
        (Fault::UnknownState, "unreadable"),
        (Fault::StateOf03, "other_generation"),
        (Fault::StillWorking, "task_unfinished"),
        (Fault::Failed, "task_failed"),
        (Fault::AuthRequired, "task_unfinished"),
    ]);
}

#[test]
fn bad_or_late_http_response_is_counted_as_error() {
    SEND.catches(&[
        (Fault::Truncated, "unreadable"),
        (Fault::OtherMediaType, "content_type"),
        (Fault::NoMediaType, "content_type"),
        (Fault::Html, "http_200"),
        (Fault::Status500, "http_500"),
        (Fault::Status429, "http_429"),
        (Fault::EmptyBody, "http_200"),
        (Fault::ClosedInBody, "closed"),
        (Fault::TooShortBody, "timeout"),
        (Fault::TooSlow, "timeout"),
    ]);
}

#[test]
fn wrong_get_task_result_is_counted_as_error() {
    GET.catches(&[
        (Fault::TaskOfAnotherId, "other_task"),
        (Fault::OtherId, "other_id"),
        (Fault::StillRunning, "illegal_state"),
        (Fault::Failed, "illegal_state"),
        (Fault::OtherText, "other_answer"),
        (Fault::StateOf03, "other_generation"),
        (Fault::MessageInstead, "unreadable"),
        (Fault::NoStatus, "unreadable"),
    ]);
}

#[test]
fn invalid_list_page_is_counted_as_error() {
    LIST.catches(&[
        (Fault::RepeatedTask, "task_repeated"),
        (Fault::TooManyTasks, "page_too_long"),
        (Fault::EmptyPage, "tasks_missing"),
        (Fault::TaskWithoutId, "unreadable"),
        (Fault::TaskWithoutStatus, "unreadable"),
    ]);
}

#[test]
fn invalid_batch_answer_is_counted_as_error() {
    BATCH.catches(&[
        (Fault::AnswerLeftOut, "unreadable"),
        (Fault::AnswerDoubled, "unreadable"),
        (Fault::AnswersExchanged, "other_task"),
    ]);
}

#[test]
fn cancel_answer_with_running_or_wrong_task_is_an_error() {
    CANCEL
        .catches(&[(Fault::StillRunning, "not_canceled"), (Fault::TaskOfAnotherId, "other_task")]);
}

/// Faults of streams with and without event numbers.
const OF_STREAMS: &[(Fault, &str)] = &[
    (Fault::Html, "http_200"),
    (Fault::Status500, "http_500"),
    (Fault::NoEnd, "stream_cut"),
    (Fault::ClosedInEvent, "stream_cut"),
    (Fault::NeverOver, "timeout"),
    (Fault::EventAfterEnd, "event_after_end"),
    (Fault::WorkingAfterEnd, "event_after_end"),
    (Fault::SubmittedAgain, "illegal_state"),
    (Fault::UnknownStateInStream, "unreadable"),
    (Fault::StateOf03, "other_generation"),
    (Fault::ChunkLeftOut, "chunk_missing"),
    (Fault::ChunkRepeated, "chunk_repeated"),
    (Fault::ChunksExchanged, "chunk_missing"),
    (Fault::ChunkReplaced, "chunk_repeated"),
    (Fault::EventOfAnotherTask, "other_task"),
    (Fault::TwoTasks, "other_task"),
    (Fault::OtherContext, "other_context"),
    (Fault::EventOfAnotherCall, "other_id"),
];

#[test]
fn invalid_event_stream_is_counted_as_error() {
    STREAM.catches(OF_STREAMS);
    Tested { has_numbers: false, ..STREAM }.catches(OF_STREAMS);
}

#[test]
fn missing_or_repeated_event_number_is_counted_as_error() {
    STREAM.catches(&[
        (Fault::NumberLeftOut, "sequence_gap"),
        (Fault::EventRepeated, "event_repeated"),
        (Fault::NumbersFromOne, "event_repeated"),
    ]);
}

#[test]
fn invalid_subscription_stream_is_counted_as_error() {
    SUBSCRIBE.catches(&[
        (Fault::FirstEventLost, "sequence_gap"),
        (Fault::FirstEventRepeated, "event_repeated"),
        (Fault::ChunkLeftOut, "chunk_missing"),
        (Fault::EventOfAnotherTask, "other_task"),
        (Fault::EventAfterEnd, "event_after_end"),
    ]);
}

#[test]
fn late_start_of_subscription_is_accepted() {
    let agent = FaultyAgent::start(SUBSCRIBE.method, Some(Fault::JoinsLate), true);
    let target = SUBSCRIBE.bench(&agent, "full");
    assert_eq!(target["errors"], json!({}), "{:#}", target["error_examples"]);
    assert!(agent.wrong() > 0);
}

#[test]
fn invalid_resumed_stream_is_counted_as_error() {
    RESUME.catches(&[
        (Fault::FirstEventLost, "sequence_gap"),
        (Fault::FirstEventRepeated, "event_repeated"),
        (Fault::ChunkLeftOut, "chunk_missing"),
        (Fault::EventOfAnotherTask, "other_task"),
    ]);
    Tested { has_numbers: false, ..RESUME }.catches(&[
        (Fault::FirstEventLost, "events_lost"),
        (Fault::ChunkLeftOut, "chunk_missing"),
        (Fault::ChunkRepeated, "chunk_repeated"),
    ]);
}

#[test]
fn missing_or_foreign_webhook_is_counted_as_error() {
    PUSH.catches(&[
        (Fault::NoWebhook, "webhook_missing"),
        (Fault::WebhookOfAnotherTask, "other_task"),
    ]);
}

/// Without checks a run succeeds, and an answer that no client can parse is still an error.
#[test]
fn check_off_counts_only_client_errors() {
    for (tested, fault, errors) in [
        (&SEND, Fault::OtherText, json!({})),
        (&SEND, Fault::OtherId, json!({ "other_id": 4 })),
        (&STREAM, Fault::ChunkReplaced, json!({})),
        (&STREAM, Fault::NoEnd, json!({ "stream_cut": 4 })),
        (&LIST, Fault::RepeatedTask, json!({})),
    ] {
        let agent = FaultyAgent::start(tested.method, Some(fault), true);
        let target = tested.bench(&agent, "off");
        assert_eq!(target["requests"], CALLS, "{fault:?}");
        assert_eq!(target["errors"], errors, "{fault:?}");
    }
}
