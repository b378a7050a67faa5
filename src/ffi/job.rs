//! Deferred turns, and cancels that the program decides. Any thread.

use std::{ffi::c_void, sync::PoisonError};

use crate::embed::{EventField, HostCancel};

use super::{
    border,
    buffers::{bytes, give, put, with_text},
    handles,
    status::{FfiFailure, PeregrineStatus, run},
    turn::state_of,
};

/// Decides a cancel and releases its handle. Of two threads one decides.
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

/// The text parts of the message, one after another. Any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_text(
    job: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: as this function demands.
    unsafe { give(out, capacity, len, || handles::job(job)?.text().ok_or_else(over)) }
}

/// The message in the JSON of A2A 1.0. Any thread.
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
    // SAFETY: as this function demands.
    unsafe { give(out, capacity, len, || handles::job(job)?.message_json().ok_or_else(over)) }
}

/// The task's id. Any thread.
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
    // SAFETY: as this function demands.
    unsafe { give(out, capacity, len, || Ok(handles::job(job)?.task_id().to_owned())) }
}

/// Whether what the job publishes is refused: its task has ended or was canceled, or the caller has
/// left before there was one. Ask it between two steps of long work. Any thread.
///
/// Errors: `HANDLE`, `NULL`.
///
/// # Safety
/// `is_over` points at a `bool`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_is_over(job: u64, is_over: *mut bool) -> PeregrineStatus {
    run(|| {
        let job = handles::job(job)?;
        // SAFETY: as this function demands.
        unsafe { put(is_over, job.is_over()) }
    })
}

/// Answers with a message of this text, and without a task; a task that exists is completed by it.
/// Any thread.
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
    // SAFETY: as this function demands.
    unsafe { with_text(data, len, |words| Ok(handles::job(job)?.reply(words)?)) }
}

/// Publishes a status (`TaskState` of `a2a.proto`), with a message of the agent unless `len` is 0.
/// Any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `VALUE` (no such state), `CLOSED`.
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
    // SAFETY: as this function demands.
    unsafe { with_text(data, len, publish) }
}

/// Publishes an event of A2A 1.0 as JSON: a `StreamResponse` with one of `task`, `message`,
/// `statusUpdate` and `artifactUpdate`. Any thread.
///
/// Errors: `HANDLE`, `NULL`, `VALUE` (an event that cannot be read, or is of another task),
/// `CLOSED`.
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
        // SAFETY: as this function demands.
        let json = unsafe { bytes(data, len) }?;
        Ok(handles::job(job)?.publish_json(json)?)
    })
}

/// Publishes an event of A2A 1.0 in protocol buffers. `field` is its number in `StreamResponse`: 1
/// a `Task`, 2 a `Message`, 3 a `TaskStatusUpdateEvent`, 4 a `TaskArtifactUpdateEvent`. Any thread.
///
/// Errors: `HANDLE`, `NULL`, `VALUE` (no such field, an event that cannot be read, or is of another
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
        // SAFETY: as this function demands.
        let event = unsafe { bytes(data, len) }?;
        let field = EventField::of(field).ok_or_else(|| {
            FfiFailure::new(PeregrineStatus::Value, "the field of an event is 1, 2, 3 or 4")
        })?;
        Ok(handles::job(job)?.publish_protobuf(field, event)?)
    })
}

/// Ends the turn with an error: a task fails with this text, a call without one fails with it. Any
/// thread.
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
    // SAFETY: as this function demands.
    unsafe { with_text(data, len, |words| Ok(handles::job(job)?.fail(words)?)) }
}

/// As `peregrine_job_fail` for an error of the program, such as an exception. The log gets its
/// text, at most 4 KiB; the client gets it if `show_errors` allows, otherwise a reference. Any
/// thread.
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
    // SAFETY: as this function demands.
    unsafe { with_text(data, len, |words| Ok(handles::job(job)?.fail_for(words)?)) }
}

/// A function that is called at the end of a job. It comes from any thread, and must neither block
/// nor call a function of the library (`PEREGRINE_STATUS_BUSY`). Locks of the library may be held.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineNotice {
    /// Given to every callback.
    pub user: *mut c_void,
    /// The job may be over: its task has ended, for instance because a client canceled it, or the
    /// caller has left before there was one. Ask `peregrine_job_is_over` soon, on another thread or
    /// later: it tells, and arms the notice again. The handle may be released already.
    pub ended: Option<unsafe extern "C" fn(user: *mut c_void, job: u64)>,
    /// No other callback comes after it. May be null.
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
}

/// The callbacks, until the job is released or another notice replaces them.
struct NoticeCallbacks(PeregrineNotice);

// SAFETY: the program has promised that its callbacks may be called from any thread, with the
// pointer that it gave.
unsafe impl Send for NoticeCallbacks {}
// SAFETY: as above.
unsafe impl Sync for NoticeCallbacks {}

impl NoticeCallbacks {
    fn tell(&self, job: u64) {
        if let Some(ended) = self.0.ended {
            // SAFETY: a function of the program, called as it has agreed to.
            border::in_bare_callback(|| unsafe { ended(self.0.user, job) });
        }
    }
}

impl Drop for NoticeCallbacks {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: a function of the program, called as it has agreed to.
            border::in_bare_callback(|| unsafe { release(self.0.user) });
        }
    }
}

/// Calls the program when the job is over, so that it need not ask between two steps; a second
/// notice replaces the first. The callbacks are copied; where this fails, `release` is not
/// called. Any thread.
///
/// Errors: `HANDLE`, `NULL` (also a notice without `ended`).
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
        // SAFETY: not null, and as this function demands.
        let notice = unsafe { notice.read_unaligned() };
        if notice.ended.is_none() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "a notice has no callback"));
        }
        let callbacks = NoticeCallbacks(notice);
        turn.watch_with(move || callbacks.tell(job));
        Ok(())
    })
}

/// Releases the job. A task that neither has ended nor waits for its client fails, as does a call
/// that has no answer. Any thread.
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

/// The id of the task that a client wants to end. Any thread.
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
    // SAFETY: as this function demands.
    unsafe {
        give(out, capacity, len, || {
            let cancel = handles::cancel(cancel)?;
            let cancel = cancel.lock().unwrap_or_else(PoisonError::into_inner);
            cancel.as_ref().map(HostCancel::task_id).ok_or_else(decided)
        })
    }
}

/// Agrees: the task is canceled. The handle is released. Any thread.
///
/// Errors: `HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_cancel_agree(cancel: u64) -> PeregrineStatus {
    run(|| decide(cancel, HostCancel::agree))
}

/// Refuses with this text: the task continues. The handle is released. Any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`; after the last two the cancel is undecided.
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_cancel_refuse(
    cancel: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    // SAFETY: as this function demands.
    unsafe { with_text(data, len, |words| decide(cancel, |cancel| cancel.refuse(words))) }
}
