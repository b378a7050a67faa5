//! Deferred turns, and cancels that the program decides; both are usable from any thread.

use std::{ffi::c_void, sync::PoisonError};

use crate::embed::{EventField, HostCancel};

use super::{
    border,
    buffers::{bytes, give, put, with_text},
    handles,
    status::{FfiFailure, PeregrineStatus, run},
    turn::state_of,
};

/// Decides a cancel and releases its handle. If two threads decide at once, one of them gets an
/// error.
fn decide(handle: u64, decide: impl FnOnce(HostCancel)) -> Result<(), FfiFailure> {
    let cancel = handles::cancel(handle)?;
    handles::remove(handle);
    let undecided = cancel.lock().unwrap_or_else(PoisonError::into_inner).take();
    decide(undecided.ok_or_else(decided)?);
    Ok(())
}

fn decided() -> FfiFailure {
    FfiFailure::new(PeregrineStatus::Handle, "the cancel is decided already")
}

pub(super) fn over() -> FfiFailure {
    FfiFailure::new(PeregrineStatus::Closed, "the turn is over")
}

/// Writes the concatenated text parts of the message. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// `out` points at `capacity` bytes, or is null if `capacity` is 0; `len` is null or points at a
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_text(
    job: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || handles::job(job)?.text().ok_or_else(over)) }
}

/// Writes the message in the JSON of A2A 1.0. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_job_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_message(
    job: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || handles::job(job)?.message_json().ok_or_else(over)) }
}

/// Writes the id of the task. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`.
///
/// # Safety
/// As for `peregrine_job_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_task_id(
    job: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || Ok(handles::job(job)?.task_id().to_owned())) }
}

/// `is_over` receives true if events of the job are refused: its task has ended or was canceled, or
/// the caller disconnected before a task existed. Check this between two steps of long work. Call
/// from any thread.
///
/// Errors: `HANDLE`, `NULL`.
///
/// # Safety
/// `is_over` points at a `bool`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_is_over(job: u64, is_over: *mut bool) -> PeregrineStatus {
    run(|| {
        let job = handles::job(job)?;
        // SAFETY: upheld by the caller.
        unsafe { put(is_over, job.is_over()) }
    })
}

/// Answers with a message of this text, without a task. If the task already exists, the message
/// completes it. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED`.
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_reply(
    job: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { with_text(data, len, |words| Ok(handles::job(job)?.reply(words)?)) }
}

/// Publishes a status (`TaskState` of `a2a.proto`), with a message of the agent unless `len` is 0.
/// Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `VALUE` (unknown state), `CLOSED`.
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_status(
    job: u64,
    state: u32,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    let publish = |words: &str| {
        let words = Some(words).filter(|words| !words.is_empty());
        Ok(handles::job(job)?.status(state_of(state)?, words)?)
    };
    // SAFETY: upheld by the caller.
    unsafe { with_text(data, len, publish) }
}

/// Publishes an event of A2A 1.0 as JSON: a `StreamResponse` with one of `task`, `message`,
/// `statusUpdate` and `artifactUpdate`. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `VALUE` (the event is invalid, or belongs to another task), `CLOSED`.
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_publish_json(
    job: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    run(|| {
        // SAFETY: upheld by the caller.
        let json = unsafe { bytes(data, len) }?;
        Ok(handles::job(job)?.publish_json(json)?)
    })
}

/// Publishes an event of A2A 1.0 in protocol buffers. `field` is the number of its field in
/// `StreamResponse`: 1 for a `Task`, 2 for a `Message`, 3 for a `TaskStatusUpdateEvent`, 4 for a
/// `TaskArtifactUpdateEvent`. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `VALUE` (unknown field, or the event is invalid or belongs to another
/// task), `CLOSED`.
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_publish_protobuf(
    job: u64,
    field: u32,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    run(|| {
        // SAFETY: upheld by the caller.
        let event = unsafe { bytes(data, len) }?;
        let field = EventField::of(field).ok_or_else(|| {
            let why = format!("unknown event field {field}: must be 1, 2, 3 or 4");
            FfiFailure::new(PeregrineStatus::Value, why)
        })?;
        Ok(handles::job(job)?.publish_protobuf(field, event)?)
    })
}

/// Ends the turn with an error: its task fails with this text, or the call if it has no task. Call
/// from any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED`.
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_fail(
    job: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { with_text(data, len, |words| Ok(handles::job(job)?.fail(words)?)) }
}

/// As `peregrine_job_fail`, for an error of the program such as an exception. The log receives the
/// text, at most 4 KiB; the client receives it if `show_errors` allows, otherwise a reference. Call
/// from any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED`.
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_fail_error(
    job: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { with_text(data, len, |words| Ok(handles::job(job)?.fail_for(words)?)) }
}

/// The callbacks for the end of a job. They are called from any thread, and must neither block nor
/// call a function of the library (`PEREGRINE_STATUS_BUSY`), because locks of the library may be
/// held.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineNotice {
    /// Passed to every callback.
    pub user: *mut c_void,
    /// Called when the job may be over: its task has ended, for instance because a client canceled
    /// it, or the caller disconnected before a task existed. Then call `peregrine_job_is_over`,
    /// soon but after this callback or on another thread: it returns the certain answer, and arms
    /// the notice again. The handle may be released already.
    pub ended: Option<unsafe extern "C" fn(user: *mut c_void, job: u64)>,
    /// The last callback. May be null.
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
}

/// The callbacks, until the job is released or another notice replaces them.
struct NoticeCallbacks(PeregrineNotice);

// SAFETY: the program has promised that its callbacks may be called from any thread, with its
// `user` pointer.
unsafe impl Send for NoticeCallbacks {}
// SAFETY: as above.
unsafe impl Sync for NoticeCallbacks {}

impl NoticeCallbacks {
    fn notify(&self, job: u64) {
        if let Some(ended) = self.0.ended {
            // SAFETY: a callback of the program, called as its comment promises.
            border::in_bare_callback(|| unsafe { ended(self.0.user, job) });
        }
    }
}

impl Drop for NoticeCallbacks {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: a callback of the program, called as its comment promises.
            border::in_bare_callback(|| unsafe { release(self.0.user) });
        }
    }
}

/// Registers a notice for the end of the job, so that the program need not call
/// `peregrine_job_is_over` between two steps. A second notice replaces the first. The callbacks are
/// copied; if this function fails, `release` is not called. Call from any thread.
///
/// Errors: `HANDLE`, `NULL` (also if `ended` is null).
///
/// # Safety
/// `notice` points at a `PeregrineNotice` whose functions may be called from any thread with its
/// `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_watch(
    job: u64,
    notice: *const PeregrineNotice,
) -> PeregrineStatus {
    run(|| {
        let turn = handles::job(job)?;
        if notice.is_null() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "the notice is null"));
        }
        // SAFETY: not null; the rest is upheld by the caller.
        let notice = unsafe { notice.read_unaligned() };
        if notice.ended.is_none() {
            let why = "the callback ended of the notice is null";
            return Err(FfiFailure::new(PeregrineStatus::Null, why));
        }
        let callbacks = NoticeCallbacks(notice);
        turn.watch_with(move || callbacks.notify(job));
        Ok(())
    })
}

/// Releases the job. Its task fails unless it has ended or waits for its client; a call without an
/// answer fails, too. Call from any thread.
///
/// Errors: `HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_job_release(job: u64) -> PeregrineStatus {
    run(|| {
        handles::job(job)?.end();
        handles::remove(job);
        Ok(())
    })
}

/// Writes the id of the task that a client wants to end. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`.
///
/// # Safety
/// As for `peregrine_job_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_cancel_task_id(
    cancel: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe {
        give(out, capacity, len, || {
            let cancel = handles::cancel(cancel)?;
            let cancel = cancel.lock().unwrap_or_else(PoisonError::into_inner);
            cancel.as_ref().map(HostCancel::task_id).ok_or_else(decided)
        })
    }
}

/// Agrees: the task is canceled. The handle is released. Call from any thread.
///
/// Errors: `HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_cancel_agree(cancel: u64) -> PeregrineStatus {
    run(|| decide(cancel, HostCancel::agree))
}

/// Refuses with this text: the task continues. The handle is released. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`. After `NULL` and `UTF8` the cancel is still undecided.
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_cancel_refuse(
    cancel: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { with_text(data, len, |words| decide(cancel, |cancel| cancel.refuse(words))) }
}
