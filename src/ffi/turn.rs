//! Turns that are answered in their callback.

use std::cell::RefCell;

use crate::{
    agent::Turn,
    dialect::canonical,
    embed::HostTurn,
    model::{ArtifactBuf, MessageBuf, PartsBuf, TaskState},
};

use super::{
    border,
    buffers::{give, put, text, with_text},
    handles::{self, HandleObject},
    status::{FfiFailure, PeregrineStatus, run},
};

/// The turn that a callback on this thread may use.
struct LentTurn {
    handle: u64,
    /// True: the turn has published an event.
    has_events: bool,
    /// The turn, which must not outlive the callback; `None` after its answer.
    turn: Option<Turn<'static>>,
}

thread_local! {
    static LENT: RefCell<Option<LentTurn>> = const { RefCell::new(None) };
}

/// Lends a turn to a callback, which receives the handle.
pub(super) fn lend(turn: Turn<'_>, callback: impl FnOnce(u64)) {
    let handle = handles::fresh();
    // SAFETY: `Restore` takes the turn back before its lifetime ends, even if the callback unwinds.
    // No function returns a reference into the turn.
    let turn = unsafe { std::mem::transmute::<Turn<'_>, Turn<'static>>(turn) };
    // A callback that makes an in-process call may cause another turn on this thread.
    let before = LENT.replace(Some(LentTurn { handle, has_events: false, turn: Some(turn) }));
    let _restore = Restore(before);
    border::in_callback(|| callback(handle));
}

/// Restores the turn of the outer callback.
struct Restore(Option<LentTurn>);

impl Drop for Restore {
    fn drop(&mut self) {
        LENT.replace(self.0.take());
    }
}

fn with<R>(
    handle: u64,
    act: impl FnOnce(&mut Option<Turn<'static>>) -> Result<R, FfiFailure>,
) -> Result<R, FfiFailure> {
    with_lent(handle, |lent| act(&mut lent.turn))
}

fn with_lent<R>(
    handle: u64,
    act: impl FnOnce(&mut LentTurn) -> Result<R, FfiFailure>,
) -> Result<R, FfiFailure> {
    LENT.with_borrow_mut(|lent| match lent {
        Some(lent) if lent.handle == handle => act(lent),
        Some(_) | None => Err(FfiFailure::new(
            PeregrineStatus::Handle,
            "the turn belongs to another callback, or is used on another thread than its callback",
        )),
    })
}

pub(super) fn with_turn<R>(
    handle: u64,
    act: impl FnOnce(&mut Turn<'static>) -> Result<R, FfiFailure>,
) -> Result<R, FfiFailure> {
    with(handle, |turn| act(turn.as_mut().ok_or_else(answered)?))
}

/// As [`with_turn`], for an action that publishes an event.
fn publish(handle: u64, act: impl FnOnce(&mut Turn<'static>)) -> Result<(), FfiFailure> {
    with_lent(handle, |lent| {
        act(lent.turn.as_mut().ok_or_else(answered)?);
        lent.has_events = true;
        Ok(())
    })
}

fn answered() -> FfiFailure {
    FfiFailure::new(PeregrineStatus::Closed, "the turn was answered or deferred")
}

/// The state with this number of A2A 1.0 (`TaskState` in `a2a.proto`).
pub(super) fn state_of(number: u32) -> Result<TaskState, FfiFailure> {
    let found = TaskState::ALL.into_iter().find(|state| *state as u32 == number);
    found.filter(|state| *state != TaskState::Unspecified).ok_or_else(|| {
        FfiFailure::new(PeregrineStatus::Value, format!("unknown task state {number}"))
    })
}

fn agent_message(text: &str) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(text))
}

/// Writes the concatenated text parts of the message. Call only in the callback.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED` (already answered).
///
/// # Safety
/// `out` points at `capacity` bytes, or is null if `capacity` is 0; `len` is null or points at a
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_text(
    turn: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || with_turn(turn, |turn| Ok(turn.message.text()))) }
}

/// Writes the message in the JSON of A2A 1.0. Call only in the callback.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED` (already answered).
///
/// # Safety
/// As for `peregrine_turn_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_message(
    turn: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    let message = |turn: &mut Turn<'static>| {
        let mut json = Vec::new();
        canonical::message(&mut json, turn.message);
        Ok(json)
    };
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || with_turn(turn, message)) }
}

/// Writes the id of the task; if the message starts a task, the id that this task would get. Call
/// only in the callback.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED` (already answered).
///
/// # Safety
/// As for `peregrine_turn_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_task_id(
    turn: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    let task_id = |turn: &mut Turn<'static>| Ok(turn.task_id.to_str().into_owned());
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || with_turn(turn, task_id)) }
}

/// Writes the state of the task before the message, as `TaskState` of `a2a.proto`; 0: the message
/// starts a task. Call only in the callback.
///
/// Errors: `HANDLE`, `NULL`, `CLOSED` (already answered).
///
/// # Safety
/// `state` points at a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_state(turn: u64, state: *mut u32) -> PeregrineStatus {
    run(|| {
        let number = with_turn(turn, |turn| Ok(turn.state.map_or(0, |state| state as u32)))?;
        // SAFETY: upheld by the caller.
        unsafe { put(state, number) }
    })
}

/// Answers with a message of this text, without a task. If the task already exists, the message
/// completes it. Call only in the callback; afterwards the turn cannot be used.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED` (already answered).
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_reply(
    turn: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    let reply = |words: &str| {
        with(turn, |turn| {
            turn.take().ok_or_else(answered)?.reply(agent_message(words));
            Ok(())
        })
    };
    // SAFETY: upheld by the caller.
    unsafe { with_text(data, len, reply) }
}

/// Publishes a status (`TaskState` of `a2a.proto`), with a message of the agent unless `len` is 0.
/// Call only in the callback.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `VALUE` (unknown state), `CLOSED` (already answered).
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_status(
    turn: u64,
    state: u32,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    let status = |words: &str| {
        let state = state_of(state)?;
        publish(turn, |turn| match words {
            "" => turn.status(state),
            words => turn.status_with(state, &agent_message(words)),
        })
    };
    // SAFETY: upheld by the caller.
    unsafe { with_text(data, len, status) }
}

/// Publishes an artifact with one text part. Call only in the callback.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED` (already answered).
///
/// # Safety
/// `id` points at `id_len` bytes, `data` at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_artifact(
    turn: u64,
    id: *const u8,
    id_len: usize,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    run(|| {
        // SAFETY: upheld by the caller.
        let (id, words) = unsafe { (text(id, id_len)?, text(data, len)?) };
        let artifact = ArtifactBuf::new(id, &PartsBuf::new().text(words));
        publish(turn, |turn| turn.artifact(&artifact))
    })
}

/// Ends the turn with an error of the program, such as an exception. If the turn has published
/// events, its task fails, otherwise the call fails. The log receives the text, at most 4 KiB; the
/// client receives it if `show_errors` allows, otherwise a reference. Call only in the callback;
/// afterwards the turn cannot be used.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED` (already answered, or the server has no room).
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_fail_error(
    turn: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    let fail = |words: &str| {
        with_lent(turn, |lent| {
            let turn = lent.turn.take().ok_or_else(answered)?;
            let deferred = turn.defer().map_err(|_| no_room())?;
            match lent.has_events {
                true => deferred.into_job().map_err(|_| no_room())?.fail_for(&words),
                false => deferred.fail_for(&words),
            }
            Ok(())
        })
    };
    // SAFETY: upheld by the caller.
    unsafe { with_text(data, len, fail) }
}

fn no_room() -> FfiFailure {
    let why = "the server has no room for the turn and has refused its message";
    FfiFailure::new(PeregrineStatus::Closed, why)
}

/// Defers the turn: the call waits for `job`, which is valid on any thread until
/// `peregrine_job_release`. Call only in the callback; afterwards the turn cannot be used.
///
/// Errors: `HANDLE`, `NULL`, `CLOSED` (already answered, or the server has no room and has refused
/// the message, which ends the turn).
///
/// # Safety
/// `job` points at a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_defer(turn: u64, job: *mut u64) -> PeregrineStatus {
    run(|| {
        if job.is_null() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "the pointer for a result is null"));
        }
        let deferred = with(turn, |turn| {
            let turn = turn.take().ok_or_else(answered)?;
            turn.defer().map_err(|_| no_room())
        })?;
        let handle = handles::insert(HandleObject::Job(HostTurn::new(deferred).into()));
        // SAFETY: not null; the rest is upheld by the caller.
        unsafe { put(job, handle) }
    })
}
