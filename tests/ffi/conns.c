/* Connections as bytes, with a clock and random bits of the program. */
#include <peregrine.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char CARD[] = "{\"name\":\"many\",\"description\":\"Many ways to answer.\"}";

static void fail(int line)
{
    fprintf(stderr, "line %d\n", line);
    exit(1);
}
#define MUST(condition) ((condition) ? (void)0 : fail(__LINE__))
#define DONE(call) MUST((call) == PEREGRINE_STATUS_OK)

static uint64_t engine, now_ms = 5000;
static uint32_t seed = 1;
static volatile int wakes;

static void wake(void *user, uint64_t handle)
{
    PeregrineProgress progress;
    (void)user;
    MUST(peregrine_conn_advance(handle, NULL, 0, false, &progress) == PEREGRINE_STATUS_BUSY);
    __sync_fetch_and_add(&wakes, 1);
}

static void now(void *user, uint64_t *mono_ms, uint64_t *unix_ms)
{
    (void)user;
    *mono_ms = now_ms;
    *unix_ms = 1800000000000 + now_ms;
}

static void bits(void *user, uint8_t *out)
{
    (void)user;
    for (int at = 0; at < 16; at++) {
        seed = seed * 1664525 + 1013904223;
        out[at] = (uint8_t)(seed >> 24);
    }
}

static void *work(void *argument)
{
    uint64_t job = (uint64_t)(uintptr_t)argument;
    usleep(20000);
    DONE(peregrine_job_status(job, 3, NULL, 0));
    DONE(peregrine_job_release(job));
    return NULL;
}

static void answer(void *user, uint64_t turn)
{
    uint64_t job = 0, other = 0;
    PeregrineProgress progress;
    pthread_t thread;
    (void)user;
    MUST(peregrine_conn_new(engine, NULL, 0, 0, &other) == PEREGRINE_STATUS_BUSY);
    MUST(peregrine_conn_advance(engine, NULL, 0, false, &progress) == PEREGRINE_STATUS_BUSY);
    DONE(peregrine_turn_defer(turn, &job));
    MUST(pthread_create(&thread, NULL, work, (void *)(uintptr_t)job) == 0);
    pthread_detach(thread);
}

static uint64_t begin(void)
{
    uint64_t conn = 0;
    DONE(peregrine_conn_new(engine, (const uint8_t *)"::1", 3, PEREGRINE_LOOPBACK, &conn));
    return conn;
}

/* Takes the output of a connection, by pieces. */
static void take(uint64_t conn, char *text, size_t *len)
{
    const uint8_t *data = NULL;
    size_t piece = 0;
    for (;;) {
        DONE(peregrine_conn_output(conn, &data, &piece));
        if (piece == 0) break;
        MUST(peregrine_conn_consume(conn, piece + 1) == PEREGRINE_STATUS_VALUE);
        piece = piece > 100 ? 100 : piece;
        memcpy(text + *len, data, piece);
        *len += piece;
        DONE(peregrine_conn_consume(conn, piece));
    }
    MUST(data == NULL);
    text[*len] = 0;
}

static size_t request(char *text, size_t room, const char *method)
{
    char body[512];
    snprintf(body, sizeof body,
             "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{\"message\":{\"messageId\""
             ":\"m\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"x\"}]}}}", method);
    int len = snprintf(text, room,
                       "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "A2A-Version: 1.0\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    return (size_t)len;
}

/* A request, whose bytes come one by one, and the answer of a job on another thread. */
static void exchange(uint64_t conn, const char *method, const char *wanted)
{
    static char out[65536];
    char input[2048];
    size_t have = 0, all = request(input, sizeof input, method), len = 0;
    PeregrineProgress progress = {0};
    out[0] = 0;
    for (size_t come = 1; come <= all; come++) {
        DONE(peregrine_conn_advance(conn, (const uint8_t *)input + have, come - have, false,
                                    &progress));
        MUST(progress.next == PEREGRINE_NEXT_OPEN);
        have += progress.consumed;
    }
    MUST(have == all);
    for (int n = 0; n < 1000 && strstr(out, wanted) == NULL; n++) {
        take(conn, out, &len);
        usleep(5000);
        DONE(peregrine_conn_advance(conn, NULL, 0, false, &progress));
        take(conn, out, &len);
    }
    MUST(strstr(out, "HTTP/1.1 200 ") == out && strstr(out, wanted) != NULL);
}

int main(void)
{
    static const char SETTINGS[] = "workers = 1\n[limits]\nconnections_max = 2\n";
    static const char HTTP2[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    PeregrineHost host = {NULL, wake, now, bits, NULL};
    PeregrineAgent agent = {NULL, answer, NULL, NULL};
    PeregrineProgress progress;
    const uint8_t *data = NULL;
    char text[4096], misaligned[sizeof progress + 1];
    uint64_t conn, other = 0, third = 0;
    size_t len = 0;

    DONE(peregrine_engine_new((const uint8_t *)SETTINGS, strlen(SETTINGS), &host, &engine));
    DONE(peregrine_engine_agent(engine, (const uint8_t *)CARD, strlen(CARD), &agent));
    MUST(peregrine_conn_new(engine, NULL, 0, 0, &other) == PEREGRINE_STATUS_SERVER);
    DONE(peregrine_engine_start(engine));

    conn = begin();
    exchange(conn, "SendMessage", "TASK_STATE_COMPLETED");
    exchange(conn, "SendStreamingMessage", "TASK_STATE_COMPLETED");
    MUST(wakes > 0);

    /* the clock is the program's: a connection that is idle ends */
    DONE(peregrine_conn_advance(conn, NULL, 0, false, &progress));
    MUST(progress.next == PEREGRINE_NEXT_OPEN && progress.wait_ms > 0);
    now_ms += progress.wait_ms;
    DONE(peregrine_conn_advance(conn, NULL, 0, false, &progress));
    MUST(progress.next == PEREGRINE_NEXT_CLOSE);
    now_ms = 0; /* it never goes back, and has no largest value */
    DONE(peregrine_conn_advance(conn, NULL, 0, false, &progress));
    now_ms = UINT64_MAX;
    DONE(peregrine_conn_advance(conn, NULL, 0, true, &progress));
    MUST(progress.next != PEREGRINE_NEXT_OPEN);
    DONE(peregrine_conn_release(conn));
    MUST(peregrine_conn_release(conn) == PEREGRINE_STATUS_HANDLE);
    MUST(peregrine_conn_advance(conn, NULL, 0, false, &progress) == PEREGRINE_STATUS_HANDLE);

    /* a peer that leaves in the middle of a request, garbage, HTTP/2, another host */
    conn = begin();
    request(text, sizeof text, "SendMessage");
    DONE(peregrine_conn_advance(conn, (const uint8_t *)text, 30, true, &progress));
    MUST(progress.next != PEREGRINE_NEXT_OPEN);
    DONE(peregrine_conn_release(conn));
    conn = begin();
    DONE(peregrine_conn_advance(conn, (const uint8_t *)"\x16\x03\x01\r\n\r\n", 7, false, &progress));
    MUST(progress.next != PEREGRINE_NEXT_OPEN);
    DONE(peregrine_conn_release(conn));
    conn = begin();
    DONE(peregrine_conn_advance(conn, (const uint8_t *)HTTP2, sizeof HTTP2, false, &progress));
    MUST(progress.next == PEREGRINE_NEXT_HTTP2);
    DONE(peregrine_conn_release(conn));
    conn = begin();
    strcpy(text, "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    DONE(peregrine_conn_advance(conn, (const uint8_t *)text, strlen(text), false, &progress));
    take(conn, text, &len);
    MUST(strstr(text, "HTTP/1.1 421 ") == text);

    /* misuse */
    MUST(peregrine_conn_new(engine, NULL, 0, PEREGRINE_BODY, &other) == PEREGRINE_STATUS_VALUE);
    MUST(peregrine_conn_new(engine, (const uint8_t *)"x", 1, 0, &other) == PEREGRINE_STATUS_VALUE);
    MUST(peregrine_conn_new(engine, NULL, 3, 0, &other) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_conn_new(engine, NULL, 0, 0, NULL) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_conn_new(conn, NULL, 0, 0, &other) == PEREGRINE_STATUS_HANDLE);
    DONE(peregrine_conn_new(engine, NULL, 0, 0, &other));
    MUST(peregrine_conn_new(engine, NULL, 0, 0, &third) == PEREGRINE_STATUS_FULL);
    MUST(peregrine_conn_advance(other, NULL, 3, false, &progress) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_conn_advance(other, NULL, 0, false, NULL) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_conn_advance(other, (const uint8_t *)text, SIZE_MAX, false, &progress)
         == PEREGRINE_STATUS_VALUE);
    DONE(peregrine_conn_advance(other, NULL, 0, false,
                                (PeregrineProgress *)(void *)(misaligned + 1)));
    MUST(peregrine_conn_output(other, NULL, &len) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_conn_output(other, &data, NULL) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_conn_consume(other, 1) == PEREGRINE_STATUS_VALUE);
    MUST(peregrine_exchange_release(other) == PEREGRINE_STATUS_HANDLE);
    DONE(peregrine_engine_release(engine));
    DONE(peregrine_conn_advance(conn, NULL, 0, true, &progress)); /* it outlives its engine */
    DONE(peregrine_conn_release(other));
    DONE(peregrine_conn_release(conn));
    puts("ok");
    return 0;
}
