/*
 * Peregrine: an A2A server for programs in C. Made by cbindgen from src/ffi: do not edit.
 *
 * Objects are handles, numbers that are never given twice; one that is stale, foreign or zero is
 * PEREGRINE_STATUS_HANDLE. Text is UTF-8 with its length in bytes, without a zero byte at its end;
 * it is copied. Text comes out into a buffer of the caller's: `len` says how many bytes there are,
 * and where the buffer is too short nothing is written.
 *
 * A callback must neither unwind nor jump, nor end its thread (pthread_exit); a thread must not be
 * canceled (pthread_cancel) inside of a function. `wake` and `ended` are called under locks of the
 * library: a mutex that they take must not be held during a call of the library. A thread that calls
 * the library needs 256 KiB of stack, and more if the library is not optimized.
 *
 * Each function lists its errors; any may also return PEREGRINE_STATUS_INTERNAL,
 * PEREGRINE_STATUS_BUSY in a callback that must call nothing, and PEREGRINE_STATUS_VALUE for a
 * length that is larger than the memory.
 */

#ifndef PEREGRINE_H
#define PEREGRINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The version of this interface. It grows by one when a program that was compiled for the version
 * before does not work any more.
 */
#define PEREGRINE_ABI_VERSION 1

/**
 * The connection is encrypted: URLs on cards begin with `https`.
 */
#define PEREGRINE_SECURE 1

/**
 * The listener can be reached from this machine alone: requests that name other hosts are refused,
 * so that no web page reaches it (`docs/guide/proxy.md`).
 */
#define PEREGRINE_LOOPBACK 2

/**
 * A body follows, and be it empty.
 */
#define PEREGRINE_BODY 4

/**
 * The answer may have trailers, as in HTTP/2: gRPC needs them.
 */
#define PEREGRINE_TRAILERS 8

/**
 * What a call has come to.
 */
typedef enum PeregrineStatus {
  /**
   * It was done.
   */
  PEREGRINE_STATUS_OK = 0,
  /**
   * A pointer is null that must not be.
   */
  PEREGRINE_STATUS_NULL = 1,
  /**
   * The handle is zero, stale, or of another kind.
   */
  PEREGRINE_STATUS_HANDLE = 2,
  /**
   * A text is no UTF-8.
   */
  PEREGRINE_STATUS_UTF8 = 3,
  /**
   * A value is out of range, or cannot be read.
   */
  PEREGRINE_STATUS_VALUE = 4,
  /**
   * The task takes no more events: it has ended or was canceled, or the turn was answered.
   */
  PEREGRINE_STATUS_CLOSED = 5,
  /**
   * The buffer is too short; nothing was written, and the length is the required one.
   */
  PEREGRINE_STATUS_SPACE = 6,
  /**
   * The server cannot do it: its configuration is wrong, the address is taken, it runs already.
   */
  PEREGRINE_STATUS_SERVER = 7,
  /**
   * The library has failed; this is a mistake in it.
   */
  PEREGRINE_STATUS_INTERNAL = 8,
  /**
   * A callback cannot call this function, which would wait for the callback.
   */
  PEREGRINE_STATUS_BUSY = 9,
  /**
   * A limit is reached: as many requests and connections are open as may.
   */
  PEREGRINE_STATUS_FULL = 10,
} PeregrineStatus;

/**
 * What to do with a socket.
 */
typedef enum PeregrineNext {
  /**
   * Keep it.
   */
  PEREGRINE_NEXT_OPEN = 0,
  /**
   * Send the output, close for writing, ignore input for a while (`linger_ms`), then close.
   */
  PEREGRINE_NEXT_CLOSE = 1,
  /**
   * Close it now, by a reset.
   */
  PEREGRINE_NEXT_ABORT = 2,
  /**
   * The peer speaks HTTP/2, which a server does and an engine does not: close it.
   */
  PEREGRINE_NEXT_HTTP2 = 3,
} PeregrineNext;

/**
 * The operation of a call, and the request of A2A 1.0 that it has as JSON.
 */
typedef enum PeregrineOp {
  /**
   * A `SendMessageRequest`; the answer is a `SendMessageResponse`.
   */
  PEREGRINE_OP_SEND = 1,
  /**
   * A `SendMessageRequest`; each answer is a `StreamResponse`.
   */
  PEREGRINE_OP_STREAM = 2,
  /**
   * A `GetTaskRequest`; the answer is a `Task`.
   */
  PEREGRINE_OP_GET = 3,
  /**
   * A `ListTasksRequest`, or no text; the answer is a `ListTasksResponse`.
   */
  PEREGRINE_OP_LIST = 4,
  /**
   * A `CancelTaskRequest`; the answer is a `Task`.
   */
  PEREGRINE_OP_CANCEL = 5,
  /**
   * A `SubscribeToTaskRequest`; each answer is a `StreamResponse`.
   */
  PEREGRINE_OP_SUBSCRIBE = 6,
} PeregrineOp;

/**
 * A call: the request and its caller.
 */
typedef struct PeregrineCall {
  /**
   * The request, JSON. That of a send is read where it is.
   */
  const uint8_t *json;
  /**
   * Its length in bytes.
   */
  size_t json_len;
  /**
   * The name of the agent in paths; null: the first agent.
   */
  const uint8_t *agent;
  /**
   * Its length in bytes.
   */
  size_t agent_len;
  /**
   * The name of the caller, which owns its tasks, as if a trusted proxy had named it: it has all
   * scopes and needs no credential. 1 to 256 bytes without control characters. Null,
   * with length 0: an anonymous caller.
   */
  const uint8_t *owner;
  /**
   * Its length in bytes.
   */
  size_t owner_len;
  /**
   * The tenant; null: the tenant in the request, if any.
   */
  const uint8_t *tenant;
  /**
   * Its length in bytes.
   */
  size_t tenant_len;
} PeregrineCall;

/**
 * A reply of a call.
 */
typedef struct PeregrineReply {
  /**
   * The answer or event, JSON of A2A 1.0. It stays good until the next
   * `peregrine_call_next` or `peregrine_call_release` of this call. Null: there is none.
   */
  const uint8_t *json;
  /**
   * Its length in bytes.
   */
  size_t json_len;
  /**
   * Without JSON, and unless `is_over`: poll again in so many milliseconds at the latest;
   * `UINT64_MAX`: for ever.
   */
  uint64_t wait_ms;
  /**
   * True: it is an error, `{"error": …}` as HTTP+JSON has it (A2A 1.0 §11.6).
   */
  bool is_error;
  /**
   * True: nothing follows, and there is no JSON. False without JSON: nothing has come in time.
   */
  bool is_over;
} PeregrineReply;

/**
 * What a connection wants next.
 */
typedef struct PeregrineProgress {
  /**
   * Bytes at the front of the input that are done with.
   */
  size_t consumed;
  /**
   * The connection needs this many bytes of input, counted from the first byte that is not
   * consumed, before it can advance; 0: unknown.
   */
  size_t need;
  /**
   * Bytes of output (`peregrine_conn_output`).
   */
  size_t unsent;
  /**
   * Advance again in so many milliseconds at the latest; `UINT64_MAX`: for ever.
   */
  uint64_t wait_ms;
  /**
   * A `PeregrineNext`.
   */
  uint32_t next;
  /**
   * False: leave input in the socket.
   */
  bool reads;
} PeregrineProgress;

/**
 * The callbacks of a program that drives an engine. They come from any thread, also from several
 * at once, and must neither block nor call a function of the library
 * (`PEREGRINE_STATUS_BUSY`). Locks of the library may be held.
 */
typedef struct PeregrineHost {
  /**
   * Given to every callback.
   */
  void *user;
  /**
   * The object with this handle has more to do: poll the exchange, advance the connection, poll
   * the call, or tick the engine. The handle may be released already. Not null.
   */
  void (*wake)(void *user, uint64_t handle);
  /**
   * The time in ms: of a clock that never goes back, and since the Unix epoch. Null: the clocks
   * of the system.
   */
  void (*now)(void *user, uint64_t *mono_ms, uint64_t *unix_ms);
  /**
   * Fills 16 bytes with random bits that no peer can guess. Null: the random bits of the system.
   */
  void (*random)(void *user, uint8_t *out);
  /**
   * The engine, all that it has opened, and its jobs are released; no other callback comes after
   * it. May be null.
   */
  void (*release)(void *user);
} PeregrineHost;

/**
 * The callbacks of an agent. They come from several threads at once, those of the server's
 * workers, and must not block: a callback that needs time defers the turn
 * (`peregrine_turn_defer`).
 */
typedef struct PeregrineAgent {
  /**
   * Given to every callback.
   */
  void *user;
  /**
   * A message for the agent. The turn is good on this thread, until the callback returns.
   */
  void (*turn)(void *user, uint64_t turn);
  /**
   * A client wants a task to end: the handle is the program's until it is decided. Null: the
   * task ends at once.
   */
  void (*cancel)(void *user, uint64_t cancel);
  /**
   * The server needs the agent no more; no other callback comes after it. It must neither block
   * nor call a function of the library (`PEREGRINE_STATUS_BUSY`). May be null.
   */
  void (*release)(void *user);
} PeregrineAgent;

/**
 * A header field; neither text ends with a zero byte.
 */
typedef struct PeregrineField {
  /**
   * The name.
   */
  const uint8_t *name;
  /**
   * Its length in bytes.
   */
  size_t name_len;
  /**
   * The value.
   */
  const uint8_t *value;
  /**
   * Its length in bytes.
   */
  size_t value_len;
} PeregrineField;

/**
 * The head of a request. All of it is copied.
 */
typedef struct PeregrineRequest {
  /**
   * The method.
   */
  const uint8_t *method;
  /**
   * Its length in bytes.
   */
  size_t method_len;
  /**
   * Path and query, as they came.
   */
  const uint8_t *target;
  /**
   * Its length in bytes.
   */
  size_t target_len;
  /**
   * `:authority` of HTTP/2; null: the field `Host` says it.
   */
  const uint8_t *authority;
  /**
   * Its length in bytes.
   */
  size_t authority_len;
  /**
   * The fields, in their order.
   */
  const struct PeregrineField *fields;
  /**
   * How many there are.
   */
  size_t fields_len;
  /**
   * The IP address of the other side as text, without a port; null: unknown.
   */
  const uint8_t *address;
  /**
   * Its length in bytes.
   */
  size_t address_len;
  /**
   * `PEREGRINE_SECURE`, `PEREGRINE_LOOPBACK`, `PEREGRINE_BODY` and `PEREGRINE_TRAILERS`.
   */
  uint32_t flags;
} PeregrineRequest;

/**
 * What there is of an answer.
 */
typedef struct PeregrineAnswer {
  /**
   * The status of HTTP; 0: it is not known yet, and neither are the fields.
   */
  uint32_t status;
  /**
   * The number of header fields (`peregrine_exchange_field`).
   */
  size_t fields;
  /**
   * The next piece of the content. It stays good until `peregrine_exchange_consume` or
   * `peregrine_exchange_release`.
   */
  const uint8_t *content;
  /**
   * Its length in bytes; 0: there is none now.
   */
  size_t content_len;
  /**
   * The number of trailers (`peregrine_exchange_trailer`), once `is_over`.
   */
  size_t trailers;
  /**
   * Poll again in so many milliseconds at the latest; `UINT64_MAX`: for ever.
   */
  uint64_t wait_ms;
  /**
   * True: the answer is complete.
   */
  bool is_over;
  /**
   * False: the rest of the body may be thrown away.
   */
  bool wants_body;
} PeregrineAnswer;

/**
 * A function that is called at the end of a job. It comes from any thread, and must neither block
 * nor call a function of the library (`PEREGRINE_STATUS_BUSY`). Locks of the library may be held.
 */
typedef struct PeregrineNotice {
  /**
   * Given to every callback.
   */
  void *user;
  /**
   * The job may be over: its task has ended, for instance because a client canceled it, or the
   * caller has left before there was one. Ask `peregrine_job_is_over` soon, on another thread or
   * later: it tells, and arms the notice again. The handle may be released already.
   */
  void (*ended)(void *user, uint64_t job);
  /**
   * No other callback comes after it. May be null.
   */
  void (*release)(void *user);
} PeregrineNotice;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the interface that the library has; compare it with `PEREGRINE_ABI_VERSION`. Any
 * thread.
 */
uint32_t peregrine_abi_version(void);

/**
 * Begins a call (`PeregrineOp`) on a server or engine that runs. There is no socket and no
 * credential: the program names the caller. Errors of the call are its answer. Released by
 * `peregrine_call_release`. On an engine, `wake` names the call when it may have replies: one wake
 * may stand for several, and there is none for replies that are there at once. A program that does
 * not wait in `peregrine_call_next` calls it at first, and after each wake, until it has no JSON.
 * Any thread, but not a callback: a job may call, and be called.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `VALUE` (no such operation, an invalid or too long
 * name of an agent, owner, tenant or task, a request that is not a JSON object), `SERVER` (it does
 * not run), `FULL` (`connections_max` are open).
 *
 * # Safety
 * `request` points at a `PeregrineCall`, whose pointers are null or point at as many bytes as
 * their lengths say; `call` points at a `uint64_t`.
 */
enum PeregrineStatus peregrine_call_new(uint64_t server_or_engine,
                                        uint32_t op,
                                        const struct PeregrineCall *request,
                                        uint64_t *call);

/**
 * The answer, or the next event; waits for it at most so many milliseconds, 0: not at all,
 * `UINT64_MAX`: for ever. Any thread, one at a time for each call, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`.
 *
 * # Safety
 * `reply` points at a `PeregrineReply`.
 */
enum PeregrineStatus peregrine_call_next(uint64_t call,
                                         uint64_t wait_ms,
                                         struct PeregrineReply *reply);

/**
 * Ends the replies of the call: `peregrine_call_next` returns `is_over` from now on, also on a
 * thread that waits in it. The reply that it has returned last stays good. Any thread, but not a
 * callback.
 *
 * Errors: `HANDLE`, `BUSY`.
 */
enum PeregrineStatus peregrine_call_close(uint64_t call);

/**
 * Releases the call, and the JSON of its last reply, which no thread may read any more: where
 * another thread uses the call, `peregrine_call_close` comes first, then the end of that use.
 * A call without an answer is given up as if its caller had left; its task continues. Any thread,
 * but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`.
 */
enum PeregrineStatus peregrine_call_release(uint64_t call);

/**
 * Begins a connection that the program has accepted: its bytes are those behind TLS, if there is
 * TLS. `address` is the IP address of the peer as text, without a port; null: unknown. `flags` are
 * `PEREGRINE_SECURE` and `PEREGRINE_LOOPBACK`. Released by `peregrine_conn_release`, at any time.
 * Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `VALUE` (an unknown flag, an address that is none),
 * `SERVER` (the engine was not started), `FULL` (`connections_max` are open).
 *
 * # Safety
 * `address` is null or points at `address_len` bytes; `conn` points at a `uint64_t`.
 */
enum PeregrineStatus peregrine_conn_new(uint64_t engine,
                                        const uint8_t *address,
                                        size_t address_len,
                                        uint32_t flags,
                                        uint64_t *conn);

/**
 * Advances as far as possible. `data` is all input that was received and not consumed; it is not
 * copied; `eof`: the peer has closed its side. Call it when input came, output was sent,
 * `wake` was called with this handle, or `wait_ms` have passed. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE`.
 *
 * # Safety
 * `data` points at `len` bytes; `progress` points at a `PeregrineProgress`.
 */
enum PeregrineStatus peregrine_conn_advance(uint64_t conn,
                                            const uint8_t *data,
                                            size_t len,
                                            bool eof,
                                            struct PeregrineProgress *progress);

/**
 * The bytes to send. The pointer is valid until the connection is advanced or released. Any
 * thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`.
 *
 * # Safety
 * `data` points at a `const uint8_t *`, which becomes null if there is nothing; `len` points at a
 * `size_t`.
 */
enum PeregrineStatus peregrine_conn_output(uint64_t conn, const uint8_t **data, size_t *len);

/**
 * So many bytes of the output were sent. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `VALUE` (there are fewer).
 */
enum PeregrineStatus peregrine_conn_consume(uint64_t conn, size_t len);

/**
 * Releases the connection. Its calls without an answer are given up as if the client had left. Any
 * thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`.
 */
enum PeregrineStatus peregrine_conn_release(uint64_t conn);

/**
 * Makes an engine of a configuration, the text of a TOML file as for `peregrine_server_new`; `len`
 * 0: the defaults. The program passes requests that it has parsed
 * (`peregrine_exchange_new`) or the bytes of connections (`peregrine_conn_new`), and calls
 * `peregrine_engine_tick`. The engine has no sockets and no threads, except one that fetches the
 * keys of `[auth.issuers]` and also calls `now`. Keys of listeners, TLS, logs, metrics and
 * webhooks have no effect; the program itself limits the connections of one address, and closes
 * those that it could not write to for `write_stall_ms`. The callbacks are copied; where this
 * fails, `release` is not called. Released by `peregrine_engine_release`. Any thread.
 *
 * Errors: `NULL` (also a host without `wake`), `UTF8`, `SERVER` (the system has no random bits).
 *
 * # Safety
 * `data` points at `len` bytes; `host` points at a `PeregrineHost` whose functions may be called
 * from any thread with its `user`; `engine` points at a `uint64_t`.
 */
enum PeregrineStatus peregrine_engine_new(const uint8_t *data,
                                          size_t len,
                                          const struct PeregrineHost *host,
                                          uint64_t *engine);

/**
 * Adds an agent before the start, as `peregrine_server_agent` does. Any thread.
 *
 * Errors: `NULL`, `HANDLE`, `VALUE` (the card), `SERVER` (it was started already).
 *
 * # Safety
 * As for `peregrine_server_agent`.
 */
enum PeregrineStatus peregrine_engine_agent(uint64_t engine,
                                            const uint8_t *card,
                                            size_t card_len,
                                            const struct PeregrineAgent *agent);

/**
 * As `peregrine_server_header`. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `SERVER` (there is no agent yet, or it was started already).
 *
 * # Safety
 * `name` points at `len` bytes.
 */
enum PeregrineStatus peregrine_engine_header(uint64_t engine, const uint8_t *name, size_t len);

/**
 * Starts the engine: from now on it takes requests and connections, and no agents. An engine that
 * could not start has ended. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `SERVER` (the configuration is wrong, or it was started already).
 */
enum PeregrineStatus peregrine_engine_start(uint64_t engine);

/**
 * Evicts expired tasks and does what else is due. Call it again when `wait_ms` milliseconds have
 * passed, or `wake` was called with the engine's handle; `UINT64_MAX`: for ever. Any thread, one
 * at a time, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `SERVER` (it was not started).
 *
 * # Safety
 * `wait_ms` points at a `uint64_t`.
 */
enum PeregrineStatus peregrine_engine_tick(uint64_t engine, uint64_t *wait_ms);

/**
 * From now on answers close their connections and new tasks are refused; `is_idle` tells whether
 * no call waits and no stream is open. It may be called again to ask that. Any thread, but not a
 * callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `SERVER` (it was not started).
 *
 * # Safety
 * `is_idle` points at a `bool`.
 */
enum PeregrineStatus peregrine_engine_drain(uint64_t engine, bool *is_idle);

/**
 * Answers what still waits with an error, and ends streams: calls of the program at once, which
 * wakes them, exchanges and connections when they are polled or advanced next. Any thread, but not
 * a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `SERVER` (it was not started).
 */
enum PeregrineStatus peregrine_engine_cut(uint64_t engine);

/**
 * Releases the handle. What the engine has opened stays usable until it is released itself. Any
 * thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`.
 */
enum PeregrineStatus peregrine_engine_release(uint64_t engine);

/**
 * Begins a request with this head. Poll it at once if it has no body, else give it the body
 * (`peregrine_exchange_push` and `peregrine_exchange_end`, or `peregrine_exchange_whole`). Names
 * of fields may have any case; fields of a connection are ignored. Errors of the request are its
 * answer, not an error here. Released by `peregrine_exchange_release`, at any time. Any
 * thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8` (the address), `VALUE` (an unknown flag, an address
 * that is none), `SERVER` (the engine was not started), `FULL` (`connections_max` requests and
 * connections are open).
 *
 * # Safety
 * `request` points at a `PeregrineRequest`, whose pointers point at as many bytes or fields as
 * their lengths say; `exchange` points at a `uint64_t`.
 */
enum PeregrineStatus peregrine_exchange_new(uint64_t engine,
                                            const struct PeregrineRequest *request,
                                            uint64_t *exchange);

/**
 * Appends a piece of the body, which is copied. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE`.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_exchange_push(uint64_t exchange, const uint8_t *data, size_t len);

/**
 * The body is complete: poll the exchange. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`.
 */
enum PeregrineStatus peregrine_exchange_end(uint64_t exchange);

/**
 * As push, end and poll for a body that came in one piece: it is read where it is, and copied only
 * if it has to wait. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE`.
 *
 * # Safety
 * `data` points at `len` bytes; `answer` points at a `PeregrineAnswer`.
 */
enum PeregrineStatus peregrine_exchange_whole(uint64_t exchange,
                                              const uint8_t *data,
                                              size_t len,
                                              struct PeregrineAnswer *answer);

/**
 * Advances as far as possible, and gives the available part of the answer. Call it at first, when
 * the body has ended, when `wake` was called with this handle, when `wait_ms` have passed, and
 * when content was consumed: while more than `output_bytes_max` is not, a stream waits. Any
 * thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`.
 *
 * # Safety
 * `answer` points at a `PeregrineAnswer`.
 */
enum PeregrineStatus peregrine_exchange_poll(uint64_t exchange, struct PeregrineAnswer *answer);

/**
 * Takes so many bytes from the front of the content. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `VALUE` (there is less).
 */
enum PeregrineStatus peregrine_exchange_consume(uint64_t exchange, size_t len);

/**
 * A header field of the answer. Its texts stay good until the exchange is released. Any thread,
 * but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE` (there are fewer).
 *
 * # Safety
 * `field` points at a `PeregrineField`.
 */
enum PeregrineStatus peregrine_exchange_field(uint64_t exchange,
                                              size_t index,
                                              struct PeregrineField *field);

/**
 * A trailer of the answer, as `peregrine_exchange_field`. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE` (there are fewer).
 *
 * # Safety
 * `field` points at a `PeregrineField`.
 */
enum PeregrineStatus peregrine_exchange_trailer(uint64_t exchange,
                                                size_t index,
                                                struct PeregrineField *field);

/**
 * Releases the exchange. Before its answer is complete this tells the engine that the client has
 * left. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`.
 */
enum PeregrineStatus peregrine_exchange_release(uint64_t exchange);

/**
 * The text parts of the message, one after another. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
 * `size_t`.
 */
enum PeregrineStatus peregrine_job_text(uint64_t job, uint8_t *out, size_t capacity, size_t *len);

/**
 * The message in the JSON of A2A 1.0. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_job_message(uint64_t job,
                                           uint8_t *out,
                                           size_t capacity,
                                           size_t *len);

/**
 * The task's id. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_job_task_id(uint64_t job,
                                           uint8_t *out,
                                           size_t capacity,
                                           size_t *len);

/**
 * Whether what the job publishes is refused: its task has ended or was canceled, or the caller has
 * left before there was one. Ask it between two steps of long work. Any thread.
 *
 * Errors: `HANDLE`, `NULL`.
 *
 * # Safety
 * `is_over` points at a `bool`.
 */
enum PeregrineStatus peregrine_job_is_over(uint64_t job, bool *is_over);

/**
 * Answers with a message of this text, and without a task; a task that exists is completed by it.
 * Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED`.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_reply(uint64_t job, const uint8_t *data, size_t len);

/**
 * Publishes a status (`TaskState` of `a2a.proto`), with a message of the agent unless `len` is 0.
 * Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `VALUE` (no such state), `CLOSED`.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_status(uint64_t job,
                                          uint32_t state,
                                          const uint8_t *data,
                                          size_t len);

/**
 * Publishes an event of A2A 1.0 as JSON: a `StreamResponse` with one of `task`, `message`,
 * `statusUpdate` and `artifactUpdate`. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `VALUE` (an event that cannot be read, or is of another task),
 * `CLOSED`.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_publish_json(uint64_t job, const uint8_t *data, size_t len);

/**
 * Publishes an event of A2A 1.0 in protocol buffers. `field` is its number in `StreamResponse`: 1
 * a `Task`, 2 a `Message`, 3 a `TaskStatusUpdateEvent`, 4 a `TaskArtifactUpdateEvent`. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `VALUE` (no such field, an event that cannot be read, or is of another
 * task), `CLOSED`.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_publish_protobuf(uint64_t job,
                                                    uint32_t field,
                                                    const uint8_t *data,
                                                    size_t len);

/**
 * Ends the turn with an error: a task fails with this text, a call without one fails with it. Any
 * thread.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED`.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_fail(uint64_t job, const uint8_t *data, size_t len);

/**
 * As `peregrine_job_fail` for an error of the program, such as an exception. The log gets its
 * text, at most 4 KiB; the client gets it if `show_errors` allows, otherwise a reference. Any
 * thread.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED`.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_fail_error(uint64_t job, const uint8_t *data, size_t len);

/**
 * Calls the program when the job is over, so that it need not ask between two steps; a second
 * notice replaces the first. The callbacks are copied; where this fails, `release` is not
 * called. Any thread.
 *
 * Errors: `HANDLE`, `NULL` (also a notice without `ended`).
 *
 * # Safety
 * `notice` points at a `PeregrineNotice` whose functions may be called from any thread with its
 * `user`.
 */
enum PeregrineStatus peregrine_job_watch(uint64_t job, const struct PeregrineNotice *notice);

/**
 * Releases the job. A task that neither has ended nor waits for its client fails, as does a call
 * that has no answer. Any thread.
 *
 * Errors: `HANDLE`.
 */
enum PeregrineStatus peregrine_job_release(uint64_t job);

/**
 * The id of the task that a client wants to end. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_cancel_task_id(uint64_t cancel,
                                              uint8_t *out,
                                              size_t capacity,
                                              size_t *len);

/**
 * Agrees: the task is canceled. The handle is released. Any thread.
 *
 * Errors: `HANDLE`.
 */
enum PeregrineStatus peregrine_cancel_agree(uint64_t cancel);

/**
 * Refuses with this text: the task continues. The handle is released. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`; after the last two the cancel is undecided.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_cancel_refuse(uint64_t cancel, const uint8_t *data, size_t len);

/**
 * The id of the conversation. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_turn_text`.
 */
enum PeregrineStatus peregrine_turn_context_id(uint64_t turn,
                                               uint8_t *out,
                                               size_t capacity,
                                               size_t *len);

/**
 * The name of the caller, where callers are authenticated; else empty. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_turn_text`.
 */
enum PeregrineStatus peregrine_turn_caller(uint64_t turn,
                                           uint8_t *out,
                                           size_t capacity,
                                           size_t *len);

/**
 * The tenant that the client named; else empty. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_turn_text`.
 */
enum PeregrineStatus peregrine_turn_tenant(uint64_t turn,
                                           uint8_t *out,
                                           size_t capacity,
                                           size_t *len);

/**
 * The request's metadata, a JSON object; without any, empty. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_turn_text`.
 */
enum PeregrineStatus peregrine_turn_metadata(uint64_t turn,
                                             uint8_t *out,
                                             size_t capacity,
                                             size_t *len);

/**
 * The header fields of the request that the agent receives (`peregrine_server_header`), a JSON
 * object of texts. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_turn_text`.
 */
enum PeregrineStatus peregrine_turn_headers(uint64_t turn,
                                            uint8_t *out,
                                            size_t capacity,
                                            size_t *len);

/**
 * The id of the conversation. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_job_context_id(uint64_t job,
                                              uint8_t *out,
                                              size_t capacity,
                                              size_t *len);

/**
 * The name of the caller, where callers are authenticated; else empty. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_job_caller(uint64_t job, uint8_t *out, size_t capacity, size_t *len);

/**
 * The tenant that the client named; else empty. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_job_tenant(uint64_t job, uint8_t *out, size_t capacity, size_t *len);

/**
 * The request's metadata, a JSON object; without any, empty. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_job_metadata(uint64_t job,
                                            uint8_t *out,
                                            size_t capacity,
                                            size_t *len);

/**
 * The header fields of the request that the agent receives (`peregrine_server_header`), a JSON
 * object of texts. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_job_headers(uint64_t job,
                                           uint8_t *out,
                                           size_t capacity,
                                           size_t *len);

/**
 * The state of the task before the message, as `TaskState` of `a2a.proto`; 0: the message started
 * the task. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `CLOSED`.
 *
 * # Safety
 * `state` points at a `uint32_t`.
 */
enum PeregrineStatus peregrine_job_state(uint64_t job, uint32_t *state);

/**
 * Makes a server of a configuration, the text of a TOML file (`docs/peregrine.toml`); `len` 0:
 * the defaults. It does not start yet. It is released by `peregrine_server_release`. Any
 * thread.
 *
 * Errors: `NULL`, `UTF8`.
 *
 * # Safety
 * `data` points at `len` bytes; `server` points at a `uint64_t`.
 */
enum PeregrineStatus peregrine_server_new(const uint8_t *data, size_t len, uint64_t *server);

/**
 * Adds an agent, before the start: its card in the JSON of any generation of A2A, and its
 * callbacks. The first agent answers at `/`, each at `/agents/NAME`. The callbacks are copied;
 * where this fails, `release` is not called. Any thread.
 *
 * Errors: `HANDLE`, `NULL` (also an agent without `turn`), `VALUE` (the card), `SERVER` (it was
 * started already).
 *
 * # Safety
 * `card` points at `card_len` bytes; `agent` points at a `PeregrineAgent` whose functions may be
 * called from any thread with its `user`.
 */
enum PeregrineStatus peregrine_server_agent(uint64_t server,
                                            const uint8_t *card,
                                            size_t card_len,
                                            const struct PeregrineAgent *agent);

/**
 * Passes a header field of requests with this name to the agent that was added last
 * (`peregrine_turn_headers`, `peregrine_job_headers`). A field that no agent can receive
 * is an error of the start. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `SERVER` (there is no agent yet, or it was started already).
 *
 * # Safety
 * `name` points at `len` bytes.
 */
enum PeregrineStatus peregrine_server_header(uint64_t server, const uint8_t *name, size_t len);

/**
 * Starts the server, whose workers are threads of its own. A server that could not start has
 * ended. It raises the soft limit of open files of the process (`RLIMIT_NOFILE`) as far as
 * `connections_max` needs, and logs to standard error. Any thread.
 *
 * Errors: `HANDLE`, `SERVER` (the configuration is wrong, the system refuses, or it was started
 * already).
 */
enum PeregrineStatus peregrine_server_start(uint64_t server);

/**
 * The port of the first address; 0: the server listens on sockets with a path alone. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SERVER` (it does not run).
 *
 * # Safety
 * `port` points at a `uint16_t`.
 */
enum PeregrineStatus peregrine_server_port(uint64_t server, uint16_t *port);

/**
 * A URL under which this machine reaches the server, without a slash at the end. Any thread.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `SERVER` (it does not run).
 *
 * # Safety
 * `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
 * `size_t`.
 */
enum PeregrineStatus peregrine_server_url(uint64_t server,
                                          uint8_t *out,
                                          size_t capacity,
                                          size_t *len);

/**
 * Reads the configuration again, as `peregrine serve` does on SIGHUP: this text, or with `len` 0
 * the last one. Agents of the configuration, callers, quotas, TLS, the log and live limits change,
 * all or none; agents of the program stay. The log has a line for each change. This may take as
 * long as the agents of the configuration need to answer, and another reload of this server waits
 * meanwhile. Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `SERVER` (it does not run, or nothing has changed).
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_server_reload(uint64_t server, const uint8_t *data, size_t len);

/**
 * Stops accepting, and lets what runs end within `drain_ms`; returns at once. Any thread.
 *
 * Errors: `HANDLE`, `SERVER` (it does not run).
 */
enum PeregrineStatus peregrine_server_shutdown(uint64_t server);

/**
 * Shuts the server down if it runs, waits for its end, and releases the handle. Calls of the
 * program (`peregrine_call_new`) do not delay the end: those that wait are then answered with an
 * error, and their streams end. In a callback for a turn it does nothing
 * (`PEREGRINE_STATUS_SERVER`). Any thread, but not a callback.
 *
 * Errors: `HANDLE`, `SERVER` (in a callback).
 */
enum PeregrineStatus peregrine_server_release(uint64_t server);

/**
 * The text of the last error of this thread, in UTF-8 and without a zero byte at its end. Any
 * thread; the text stays until the next error.
 *
 * Errors: `NULL`, `SPACE`.
 *
 * # Safety
 * `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
 * `size_t`.
 */
enum PeregrineStatus peregrine_last_error(uint8_t *out, size_t capacity, size_t *len);

/**
 * The text parts of the message, one after another. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED` (it was answered).
 *
 * # Safety
 * `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
 * `size_t`.
 */
enum PeregrineStatus peregrine_turn_text(uint64_t turn, uint8_t *out, size_t capacity, size_t *len);

/**
 * The message in the JSON of A2A 1.0. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED` (it was answered).
 *
 * # Safety
 * As for `peregrine_turn_text`.
 */
enum PeregrineStatus peregrine_turn_message(uint64_t turn,
                                            uint8_t *out,
                                            size_t capacity,
                                            size_t *len);

/**
 * The task's id; if the message starts a task, the id that it would get. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED` (it was answered).
 *
 * # Safety
 * As for `peregrine_turn_text`.
 */
enum PeregrineStatus peregrine_turn_task_id(uint64_t turn,
                                            uint8_t *out,
                                            size_t capacity,
                                            size_t *len);

/**
 * The state of the task before the message, as `TaskState` of `a2a.proto`; 0: the message starts a
 * task. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `CLOSED` (it was answered).
 *
 * # Safety
 * `state` points at a `uint32_t`.
 */
enum PeregrineStatus peregrine_turn_state(uint64_t turn, uint32_t *state);

/**
 * Answers with a message of this text, and without a task; a task that exists is completed by it.
 * Only in the callback, which can do nothing more with the turn.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED` (it was answered).
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_turn_reply(uint64_t turn, const uint8_t *data, size_t len);

/**
 * Publishes a status (`TaskState` of `a2a.proto`), with a message of the agent unless `len` is 0.
 * Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `VALUE` (no such state), `CLOSED` (it was answered).
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_turn_status(uint64_t turn,
                                           uint32_t state,
                                           const uint8_t *data,
                                           size_t len);

/**
 * Publishes an artifact of one text. Only in the callback.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED` (it was answered).
 *
 * # Safety
 * `id` points at `id_len` bytes, `data` at `len` bytes.
 */
enum PeregrineStatus peregrine_turn_artifact(uint64_t turn,
                                             const uint8_t *id,
                                             size_t id_len,
                                             const uint8_t *data,
                                             size_t len);

/**
 * Ends the turn with an error of the program, such as an exception: the call fails, or the task
 * once events were published. The log gets the text, at most 4 KiB; the client gets it if
 * `show_errors` allows, otherwise a reference. Only in the callback, which can do nothing more
 * with the turn.
 *
 * Errors: `HANDLE`, `NULL`, `UTF8`, `CLOSED` (it was answered, or the server has no room).
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_turn_fail_error(uint64_t turn, const uint8_t *data, size_t len);

/**
 * Takes the turn along: `job` is good on any thread until it is released
 * (`peregrine_job_release`), and the call waits for it. Only in the callback, which can do nothing
 * more with the turn.
 *
 * Errors: `HANDLE`, `NULL`, `CLOSED` (it was answered, or the server has no room: it has refused
 * the message then, and the turn is gone).
 *
 * # Safety
 * `job` points at a `uint64_t`.
 */
enum PeregrineStatus peregrine_turn_defer(uint64_t turn, uint64_t *job);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PEREGRINE_H */
