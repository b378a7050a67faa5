//! Random sequences of calls, handles and lengths, for the fuzz target `ffi`.
//!
//! Invariant: the driver passes only arguments that a program may pass. Each pointer is null, or
//! points at as many bytes as its length; handles, order and contents are arbitrary. No call may
//! fail with `Internal`, and returned pointers stay valid as long as the header promises.

use std::{
    cell::{Cell, RefCell},
    ffi::c_void,
    ptr, slice,
};

use super::*;

/// Handles that one input can have.
const HANDLES_MAX: usize = 64;
/// Engines that one input can start; each start takes a while.
const ENGINES_MAX: usize = 2;

const SETTINGS: &[u8] = b"workers = 1\n[limits]\nconnections_max = 4\n";
const CARD: &[u8] = b"{\"name\":\"a\",\"description\":\"b\"}";
const SEND: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendStreamingMessage\",\"params\":\
    {\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"x\"}]}}}";
const MESSAGE: &[u8] = b"{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":\
    [{\"text\":\"x\"}]}}";
const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
    A2A-Version: 1.0\r\nContent-Length: 148\r\n\r\n";

thread_local! {
    /// The rest of the input.
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static HANDLES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static NOW_MS: Cell<u64> = const { Cell::new(0) };
}

fn byte() -> u8 {
    INPUT.with_borrow_mut(Vec::pop).unwrap_or_default()
}

fn keep(handle: u64) {
    HANDLES.with_borrow_mut(|handles| {
        if handle != 0 && handles.len() < HANDLES_MAX {
            handles.push(handle);
        }
    });
}

/// An issued handle, or an arbitrary number.
fn any_handle() -> u64 {
    let at = usize::from(byte());
    HANDLES.with_borrow(|handles| match handles.len() {
        0 => at as u64,
        _ if at > 250 => u64::MAX - at as u64,
        count => handles[at % count],
    })
}

/// A text: a valid request, bytes of the input, or empty. A null pointer may have any length.
fn any_text() -> (*const u8, usize, Vec<u8>) {
    let text: Vec<u8> = match byte() % 8 {
        0 => return (ptr::null(), usize::from(byte()), Vec::new()),
        1 => Vec::new(),
        2 => SEND.to_vec(),
        3 => MESSAGE.to_vec(),
        4 => [HEAD, SEND].concat(),
        5 => CARD.to_vec(),
        _ => (0..byte() % 32).map(|_| byte()).collect(),
    };
    (text.as_ptr(), text.len(), text)
}

fn check(status: PeregrineStatus) -> bool {
    assert_ne!(status, PeregrineStatus::Internal);
    status == PeregrineStatus::Ok
}

/// Reads a text that the library returned.
fn read(data: *const u8, len: usize) {
    if !data.is_null() {
        // SAFETY: the library returned the pointer, and no call has followed.
        let bytes = unsafe { slice::from_raw_parts(data, len) };
        std::hint::black_box(bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
    }
}

extern "C" fn wake(_: *mut c_void, handle: u64) {
    // No function of the library may be called here.
    assert_eq!(peregrine_exchange_release(handle), PeregrineStatus::Busy);
}

extern "C" fn now(_: *mut c_void, mono_ms: *mut u64, unix_ms: *mut u64) {
    // SAFETY: both point at numbers.
    unsafe { (*mono_ms, *unix_ms) = (NOW_MS.get(), NOW_MS.get()) };
}

extern "C" fn on_turn(_: *mut c_void, turn: u64) {
    keep(turn);
    for _ in 0..3 {
        let (data, len, _text) = any_text();
        let mut out = [0; 16];
        // SAFETY: texts have their stated lengths, and the other pointers point at values.
        unsafe {
            let (at, mut size, mut job) = (out.as_mut_ptr(), 0, 0);
            check(match byte() % 10 {
                0 => peregrine_turn_reply(turn, data, len),
                1 => peregrine_turn_status(turn, byte().into(), data, len),
                2 => peregrine_turn_artifact(turn, data, len, data, len),
                3 => peregrine_turn_fail_error(turn, data, len),
                4 => peregrine_turn_text(turn, at, 16, &mut size),
                5 => peregrine_turn_message(turn, at, 16, ptr::null_mut()),
                6 => {
                    let status = peregrine_turn_defer(turn, &mut job);
                    keep(job);
                    status
                }
                7 => peregrine_job_release(any_handle()),
                8 => {
                    let status = peregrine_engine_release(any_handle());
                    assert_ne!(status, PeregrineStatus::Ok);
                    status
                }
                _ => return,
            });
        }
    }
}

extern "C" fn on_cancel(_: *mut c_void, cancel: u64) {
    keep(cancel);
    if byte().is_multiple_of(2) {
        check(peregrine_cancel_agree(cancel));
    }
}

extern "C" fn on_end(_: *mut c_void, job: u64) {
    assert_eq!(peregrine_job_release(job), PeregrineStatus::Busy);
}

fn engine(engines: &mut usize) {
    let (data, len, _text) = any_text();
    let engine = any_handle();
    let (turn, cancel) = (Some(on_turn as _), Some(on_cancel as _));
    let agent = PeregrineAgent { user: ptr::null_mut(), turn, cancel, release: None };
    // SAFETY: texts have their stated lengths, and the other pointers point at values.
    check(unsafe {
        match byte() % 8 {
            0 | 1 if *engines < ENGINES_MAX => {
                *engines += 1;
                let (wake, now) = (Some(wake as _), Some(now as _));
                let user = ptr::null_mut();
                let host = PeregrineHost { user, wake, now, random: None, release: None };
                let mut engine = 0;
                check(peregrine_engine_new(SETTINGS.as_ptr(), SETTINGS.len(), &host, &mut engine));
                keep(engine);
                check(peregrine_engine_agent(engine, CARD.as_ptr(), CARD.len(), &agent));
                peregrine_engine_start(engine)
            }
            2 => peregrine_engine_agent(engine, data, len, &agent),
            3 => peregrine_engine_start(engine),
            4 => peregrine_engine_cut(engine),
            5 => {
                let mut is_idle = false;
                peregrine_engine_drain(engine, &mut is_idle)
            }
            6 => peregrine_engine_release(engine),
            _ => {
                let mut wait_ms = 0;
                peregrine_engine_tick(engine, &mut wait_ms)
            }
        }
    });
}

fn new_exchange() -> PeregrineStatus {
    let host = (&b"host"[..], &b"localhost"[..]);
    let media = (&b"content-type"[..], &b"application/json"[..]);
    let fields = [host, media, (&b"a2a-version"[..], &b"1.0"[..])].map(|(name, value)| {
        let (name_len, value_len) = (name.len(), value.len());
        PeregrineField { name: name.as_ptr(), name_len, value: value.as_ptr(), value_len }
    });
    let (method, method_len, _method) = any_text();
    let is_good = byte() < 200;
    let request = PeregrineRequest {
        method: if is_good { b"POST".as_ptr() } else { method },
        method_len: if is_good { 4 } else { method_len },
        target: b"/".as_ptr(),
        target_len: 1,
        authority: ptr::null(),
        authority_len: 0,
        fields: fields.as_ptr(),
        fields_len: usize::from(byte()).min(fields.len()),
        address: ptr::null(),
        address_len: 0,
        flags: if is_good { PEREGRINE_BODY } else { byte().into() },
    };
    let mut exchange = 0;
    // SAFETY: texts have their stated lengths, and the other pointers point at values.
    let status = unsafe { peregrine_exchange_new(any_handle(), &request, &mut exchange) };
    keep(exchange);
    status
}

fn exchange() {
    let (data, len, _text) = any_text();
    let exchange = any_handle();
    let (null, none) = (ptr::null(), 0);
    let mut answer = PeregrineAnswer {
        status: 0,
        fields: 0,
        content: null,
        content_len: 0,
        trailers: 0,
        wait_ms: 0,
        is_over: false,
        wants_body: false,
    };
    let mut field = PeregrineField { name: null, name_len: none, value: null, value_len: none };
    // SAFETY: texts have their stated lengths, and the other pointers point at values.
    check(unsafe {
        match byte() % 10 {
            0 | 1 => new_exchange(),
            2 => peregrine_exchange_push(exchange, data, len),
            3 => peregrine_exchange_end(exchange),
            4 => peregrine_exchange_whole(exchange, data, len, &mut answer),
            5 => peregrine_exchange_consume(exchange, byte().into()),
            6 => peregrine_exchange_field(exchange, byte().into(), &mut field),
            7 => peregrine_exchange_trailer(exchange, byte().into(), &mut field),
            8 => peregrine_exchange_release(exchange),
            _ => peregrine_exchange_poll(exchange, &mut answer),
        }
    });
    read(answer.content, answer.content_len);
    read(field.name, field.name_len);
    read(field.value, field.value_len);
}

fn conn() {
    let (data, len, _text) = any_text();
    let conn = any_handle();
    let (mut new, mut out, mut out_len) = (0, ptr::null(), 0);
    // SAFETY: texts have their stated lengths, and the other pointers point at values.
    check(unsafe {
        match byte() % 6 {
            0 => {
                let flags = byte().into();
                let status = peregrine_conn_new(conn, ptr::null(), 0, flags, &mut new);
                keep(new);
                status
            }
            1 => peregrine_conn_output(conn, &mut out, &mut out_len),
            2 => peregrine_conn_consume(conn, byte().into()),
            3 => peregrine_conn_release(conn),
            _ => {
                let mut progress = std::mem::zeroed();
                peregrine_conn_advance(conn, data, len, byte() > 250, &mut progress)
            }
        }
    });
    read(out, out_len);
}

fn call() {
    let (json, json_len, _json) = any_text();
    let (owner, owner_len, _owner) = any_text();
    let call = any_handle();
    let (agent, agent_len, tenant, tenant_len) = (ptr::null(), 0, ptr::null(), 0);
    let request =
        PeregrineCall { json, json_len, agent, agent_len, owner, owner_len, tenant, tenant_len };
    let mut reply = PeregrineReply {
        json: ptr::null(),
        json_len: 0,
        wait_ms: 0,
        is_error: false,
        is_over: false,
    };
    let mut new = 0;
    // SAFETY: texts have their stated lengths, and the other pointers point at values.
    check(unsafe {
        match byte() % 5 {
            0 => {
                let status = peregrine_call_new(call, (byte() % 8).into(), &request, &mut new);
                keep(new);
                status
            }
            1 => peregrine_call_release(call),
            2 => peregrine_call_close(call),
            _ => peregrine_call_next(call, 0, &mut reply),
        }
    });
    read(reply.json, reply.json_len);
}

fn job() {
    let (data, len, _text) = any_text();
    let (job, mut out) = (any_handle(), [0; 64]);
    let (mut size, mut is_over) = (0, false);
    let notice = PeregrineNotice { user: ptr::null_mut(), ended: Some(on_end as _), release: None };
    // SAFETY: texts have their stated lengths, and the other pointers point at values.
    check(unsafe {
        match byte() % 14 {
            0 => peregrine_job_text(job, out.as_mut_ptr(), 64, &mut size),
            1 => peregrine_job_message(job, out.as_mut_ptr(), 64, &mut size),
            2 => peregrine_job_task_id(job, out.as_mut_ptr(), 64, &mut size),
            3 => peregrine_job_is_over(job, &mut is_over),
            4 => peregrine_job_reply(job, data, len),
            5 => peregrine_job_status(job, byte().into(), data, len),
            6 => peregrine_job_publish_json(job, data, len),
            7 => peregrine_job_publish_protobuf(job, (byte() % 6).into(), data, len),
            8 => peregrine_job_fail(job, data, len),
            9 => peregrine_job_fail_error(job, data, len),
            10 => peregrine_job_watch(job, &notice),
            11 => peregrine_cancel_agree(job),
            12 => peregrine_cancel_refuse(job, data, len),
            _ => peregrine_job_release(job),
        }
    });
}

/// Calls on a server that is never started, because a started one has sockets and threads.
fn server() {
    let (data, len, _text) = any_text();
    let (server, mut new, mut port) = (any_handle(), 0, 0);
    // SAFETY: texts have their stated lengths, and the other pointers point at values.
    check(unsafe {
        match byte() % 6 {
            0 => {
                let status = peregrine_server_new(data, len, &mut new);
                keep(new);
                status
            }
            1 => peregrine_server_port(server, &mut port),
            2 => peregrine_server_reload(server, data, len),
            3 => peregrine_server_shutdown(server),
            4 => peregrine_server_release(server),
            _ => peregrine_last_error(ptr::null_mut(), 0, &mut len.clone()),
        }
    });
}

/// Makes the calls that these bytes encode, then releases everything.
pub fn drive(bytes: &[u8]) {
    INPUT.set(bytes.iter().rev().copied().collect());
    NOW_MS.set(1_000);
    let mut engines = 0;
    while INPUT.with_borrow(|input| !input.is_empty()) {
        match byte() % 16 {
            0 | 1 => engine(&mut engines),
            2..=5 => exchange(),
            6 | 7 => conn(),
            8..=10 => call(),
            11..=13 => job(),
            14 => server(),
            _ => NOW_MS.set(NOW_MS.get() + (u64::from(byte()) << (byte() % 32))),
        }
    }
    for handle in HANDLES.take() {
        for release in [
            peregrine_exchange_release,
            peregrine_conn_release,
            peregrine_call_release,
            peregrine_job_release,
            peregrine_cancel_agree,
            peregrine_engine_release,
            peregrine_server_release,
        ] {
            check(release(handle));
            assert_eq!(release(handle), PeregrineStatus::Handle);
        }
    }
}
