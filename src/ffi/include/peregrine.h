/*
 * Peregrine: an A2A server for programs in C. Made by cbindgen from src/ffi: do not edit.
 *
 * Objects are handles, numbers that are never given twice; one that is stale, foreign or zero is
 * PEREGRINE_STATUS_HANDLE. Text is UTF-8 with its length in bytes, without a zero byte at its end;
 * it is copied. Text comes out into a buffer of the caller's: `len` says how many bytes there are,
 * and where the buffer is too short nothing is written. A callback must neither unwind nor jump.
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
   * The buffer is too short; nothing was written, and the length says what is needed.
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
} PeregrineStatus;

/**
 * The callbacks of an agent. They come from several threads at once, those of the server's
 * workers, and must not block: one that needs time takes the turn along
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
   * The server needs the agent no more; no other callback comes after it. May be null.
   */
  void (*release)(void *user);
} PeregrineAgent;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the interface that the library has; compare it with `PEREGRINE_ABI_VERSION`. Any
 * thread.
 */
uint32_t peregrine_abi_version(void);

/**
 * The text parts of the message, one after another.
 *
 * # Safety
 * `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
 * `size_t`.
 */
enum PeregrineStatus peregrine_job_text(uint64_t job, uint8_t *out, size_t capacity, size_t *len);

/**
 * The message in the JSON of A2A 1.0.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_job_message(uint64_t job,
                                           uint8_t *out,
                                           size_t capacity,
                                           size_t *len);

/**
 * The task's id.
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
 * left before there was one. Ask it between two steps of long work.
 *
 * # Safety
 * `is_over` points at a `bool`.
 */
enum PeregrineStatus peregrine_job_is_over(uint64_t job, bool *is_over);

/**
 * Answers with a message of this text, and without a task; a task that exists is completed by it.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_reply(uint64_t job, const uint8_t *data, size_t len);

/**
 * Publishes a status (`TaskState` of `a2a.proto`), with a message of the agent unless `len` is 0.
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
 * `statusUpdate` and `artifactUpdate`.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_publish_json(uint64_t job, const uint8_t *data, size_t len);

/**
 * Publishes an event of A2A 1.0 in protocol buffers. `field` is its number in `StreamResponse`: 1
 * a `Task`, 2 a `Message`, 3 a `TaskStatusUpdateEvent`, 4 a `TaskArtifactUpdateEvent`.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_publish_protobuf(uint64_t job,
                                                    uint32_t field,
                                                    const uint8_t *data,
                                                    size_t len);

/**
 * Ends the turn with an error: a task fails with this text, a call without one fails with it.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_job_fail(uint64_t job, const uint8_t *data, size_t len);

/**
 * Releases the job. A task that neither has ended nor waits for its client fails, as does a call
 * that has no answer.
 */
enum PeregrineStatus peregrine_job_release(uint64_t job);

/**
 * The id of the task that a client wants to end.
 *
 * # Safety
 * As for `peregrine_job_text`.
 */
enum PeregrineStatus peregrine_cancel_task_id(uint64_t cancel,
                                              uint8_t *out,
                                              size_t capacity,
                                              size_t *len);

/**
 * Agrees: the task is canceled. The handle is released.
 */
enum PeregrineStatus peregrine_cancel_agree(uint64_t cancel);

/**
 * Refuses with this text: the task goes on. The handle is released.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_cancel_refuse(uint64_t cancel, const uint8_t *data, size_t len);

/**
 * Makes a server of a configuration, the text of a TOML file (`docs/peregrine.toml`); `len` 0: of
 * what is built in. It does not start yet. It is released by `peregrine_server_release`.
 *
 * # Safety
 * `data` points at `len` bytes; `server` points at a `uint64_t`.
 */
enum PeregrineStatus peregrine_server_new(const uint8_t *data, size_t len, uint64_t *server);

/**
 * Adds an agent, before the start: its card in the JSON of any generation of A2A, and its
 * callbacks. The first agent answers at `/`, each at `/agents/NAME`. The callbacks are copied;
 * where this fails, `release` is not called.
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
 * Starts the server, whose workers are threads of its own. One that could not start has ended.
 */
enum PeregrineStatus peregrine_server_start(uint64_t server);

/**
 * The port of the first address; 0: the server listens on sockets with a path alone.
 *
 * # Safety
 * `port` points at a `uint16_t`.
 */
enum PeregrineStatus peregrine_server_port(uint64_t server, uint16_t *port);

/**
 * A URL under which this machine reaches the server, without a slash at the end.
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
 * Stops accepting, and lets what runs end within `drain_ms`; returns at once.
 */
enum PeregrineStatus peregrine_server_shutdown(uint64_t server);

/**
 * Shuts the server down if it runs, waits for its end, and releases the handle. In a callback for
 * a turn it does nothing (`PEREGRINE_STATUS_SERVER`).
 */
enum PeregrineStatus peregrine_server_release(uint64_t server);

/**
 * The text of the last error of this thread, in UTF-8 and without a zero byte at its end. Any
 * thread; the text stays until the next error.
 *
 * # Safety
 * `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
 * `size_t`.
 */
enum PeregrineStatus peregrine_last_error(uint8_t *out, size_t capacity, size_t *len);

/**
 * The text parts of the message, one after another. Only in the callback.
 *
 * # Safety
 * `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
 * `size_t`.
 */
enum PeregrineStatus peregrine_turn_text(uint64_t turn, uint8_t *out, size_t capacity, size_t *len);

/**
 * The message in the JSON of A2A 1.0. Only in the callback.
 *
 * # Safety
 * As for `peregrine_turn_text`.
 */
enum PeregrineStatus peregrine_turn_message(uint64_t turn,
                                            uint8_t *out,
                                            size_t capacity,
                                            size_t *len);

/**
 * The task's id; if the message starts a task, the one that it would have. Only in the callback.
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
 * # Safety
 * `state` points at a `uint32_t`.
 */
enum PeregrineStatus peregrine_turn_state(uint64_t turn, uint32_t *state);

/**
 * Answers with a message of this text, and without a task; a task that exists is completed by it.
 * Only in the callback, which can do nothing more with the turn.
 *
 * # Safety
 * `data` points at `len` bytes.
 */
enum PeregrineStatus peregrine_turn_reply(uint64_t turn, const uint8_t *data, size_t len);

/**
 * Publishes a status (`TaskState` of `a2a.proto`), with a message of the agent unless `len` is 0.
 * Only in the callback.
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
 * # Safety
 * `id` points at `id_len` bytes, `data` at `len` bytes.
 */
enum PeregrineStatus peregrine_turn_artifact(uint64_t turn,
                                             const uint8_t *id,
                                             size_t id_len,
                                             const uint8_t *data,
                                             size_t len);

/**
 * Takes the turn along: `job` is good on any thread until it is released
 * (`peregrine_job_release`), and the call waits for it. Only in
 * the callback, which can do nothing more with the turn.
 *
 * # Safety
 * `job` points at a `uint64_t`.
 */
enum PeregrineStatus peregrine_turn_defer(uint64_t turn, uint64_t *job);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PEREGRINE_H */
