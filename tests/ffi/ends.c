/* The ends of waits: a call is closed, a server is released, an engine is cut. And what wakes a
 * program, what its release callbacks may do, and a reload that takes long. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <peregrine.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES(text) (const uint8_t *)(text), strlen(text)

static const char CARD[] = "{\"name\":\"own\",\"description\":\"An agent of the program.\"}";
static const char LOOPBACK[] = "listen = [\"127.0.0.1:0\"]\n";

static void fail(int line)
{
    fprintf(stderr, "line %d\n", line);
    exit(1);
}
#define MUST(condition) ((condition) ? (void)0 : fail(__LINE__))
#define DONE(call) MUST((call) == PEREGRINE_STATUS_OK)

static uint64_t target, job, polled, cancel;
static pthread_barrier_t both;
static volatile int wakes, releases, reloads, stops;

static void wake(void *user, uint64_t handle)
{
    (void)user;
    if (handle == polled) __sync_fetch_and_add(&wakes, 1);
}

/* "now": a reply; else a job, with a task unless the text is "call" */
static void turn(void *user, uint64_t turn)
{
    char text[16];
    size_t len = 0;
    (void)user;
    DONE(peregrine_turn_text(turn, (uint8_t *)text, sizeof text, &len));
    if (len == 3) {
        DONE(peregrine_turn_reply(turn, BYTES("done")));
        return;
    }
    DONE(peregrine_turn_defer(turn, &job));
    if (memcmp(text, "call", 4) != 0) DONE(peregrine_job_status(job, 2, NULL, 0));
}

static void decide_later(void *user, uint64_t handle)
{
    (void)user;
    cancel = handle;
}

/* The library may hold locks here: its functions return BUSY. */
static void release(void *user)
{
    uint16_t port = 0;
    bool is_over = false;
    (void)user;
    MUST(peregrine_server_port(target, &port) == PEREGRINE_STATUS_BUSY);
    MUST(peregrine_job_is_over(job, &is_over) == PEREGRINE_STATUS_BUSY);
    releases++;
}

static const PeregrineAgent AGENT = {NULL, turn, decide_later, release};
static const PeregrineHost HOST = {NULL, wake, NULL, NULL, NULL};

static void start_server(void)
{
    DONE(peregrine_server_new(BYTES(LOOPBACK), &target));
    DONE(peregrine_server_agent(target, BYTES(CARD), &AGENT));
    DONE(peregrine_server_start(target));
}

static void start_engine(void)
{
    DONE(peregrine_engine_new(NULL, 0, &HOST, &target));
    DONE(peregrine_engine_agent(target, BYTES(CARD), &AGENT));
    DONE(peregrine_engine_start(target));
}

static uint64_t begin_json(uint32_t op, const char *json)
{
    uint64_t call = 0;
    PeregrineCall request = {BYTES(json), NULL, 0, (const uint8_t *)"me", 2, NULL, 0};
    DONE(peregrine_call_new(target, op, &request, &call));
    return call;
}

static uint64_t begin(uint32_t op, const char *text)
{
    char json[256];
    snprintf(json, sizeof json,
             "{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"%s\"}]}}",
             text);
    return begin_json(op, json);
}

/* Reads replies to the end; returns whether the last one was an error. */
static void *read_all(void *call)
{
    PeregrineReply reply;
    unsigned sum = 0;
    uintptr_t is_error = 0;
    for (;;) {
        DONE(peregrine_call_next(*(uint64_t *)call, UINT64_MAX, &reply));
        if (reply.is_over) break;
        MUST(reply.json_len > 0);
        for (size_t at = 0; at < reply.json_len; at++) sum += reply.json[at];
        is_error = reply.is_error;
    }
    MUST(reply.json == NULL && reply.json_len == 0 && sum != 1);
    return (void *)is_error;
}

static void *publish(void *unused)
{
    char text[2001];
    (void)unused;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    while (!stops) DONE(peregrine_job_status(job, 2, BYTES(text)));
    return NULL;
}

/* One thread reads a stream, another ends that: what was read stays good until the release. */
static void close_calls(void)
{
    start_server();
    for (int round = 0; round < 10; round++) {
        pthread_t reader, publisher;
        uint64_t call = begin(PEREGRINE_OP_STREAM, "task");
        stops = 0;
        MUST(pthread_create(&publisher, NULL, publish, NULL) == 0);
        MUST(pthread_create(&reader, NULL, read_all, &call) == 0);
        usleep(2000 + 500 * (unsigned)round);
        DONE(peregrine_call_close(call));
        pthread_join(reader, NULL);
        DONE(peregrine_call_release(call));
        MUST(peregrine_call_close(call) == PEREGRINE_STATUS_HANDLE);
        stops = 1;
        pthread_join(publisher, NULL);
        DONE(peregrine_job_release(job));
    }
    DONE(peregrine_server_release(target));
}

/* A thread waits for an agent that never answers. */
static void end_wait(bool is_engine, uint32_t op, const char *text)
{
    pthread_t reader;
    void *is_error = NULL;
    is_engine ? start_engine() : start_server();
    uint64_t call = begin(op, text);
    MUST(pthread_create(&reader, NULL, read_all, &call) == 0);
    usleep(50000);
    DONE(is_engine ? peregrine_engine_cut(target) : peregrine_server_release(target));
    pthread_join(reader, &is_error);
    MUST(op == PEREGRINE_OP_STREAM || is_error != NULL);
    DONE(peregrine_call_release(call));
    DONE(peregrine_job_release(job));
    if (is_engine) DONE(peregrine_engine_release(target));
}

/* A program that polls: at first, and after each wake, until there is nothing. */
static int poll_call(bool *is_over)
{
    PeregrineReply reply;
    int count = 0;
    for (;; count++) {
        DONE(peregrine_call_next(polled, 0, &reply));
        *is_over = reply.is_over;
        if (reply.json == NULL) break;
        MUST(reply.wait_ms == UINT64_MAX);
    }
    MUST(reply.is_over || reply.wait_ms > 0);
    return count;
}

static void poll_calls(void)
{
    bool is_over = false;
    start_engine();
    polled = begin(PEREGRINE_OP_SEND, "now");
    MUST(poll_call(&is_over) == 1 && is_over);
    DONE(peregrine_call_release(polled));
    polled = begin(PEREGRINE_OP_STREAM, "task");
    MUST(poll_call(&is_over) >= 1 && !is_over);
    wakes = 0;
    for (int event = 0; event < 3; event++) DONE(peregrine_job_status(job, 2, BYTES("more")));
    MUST(wakes > 0);
    MUST(poll_call(&is_over) == 3 && !is_over);
    wakes = 0;
    MUST(poll_call(&is_over) == 0 && wakes == 0);
    DONE(peregrine_engine_cut(target)); /* wakes it */
    MUST(wakes > 0);
    poll_call(&is_over);
    MUST(is_over);
    DONE(peregrine_call_release(polled));
    DONE(peregrine_job_release(job));
    DONE(peregrine_engine_release(target));
}

static void release_agents(void)
{
    releases = 0;
    DONE(peregrine_server_new(BYTES("lisen = 1\n"), &target));
    DONE(peregrine_server_agent(target, BYTES(CARD), &AGENT));
    MUST(peregrine_server_start(target) == PEREGRINE_STATUS_SERVER);
    MUST(releases == 1);
    DONE(peregrine_server_release(target));
    start_engine();
    uint64_t call = begin(PEREGRINE_OP_SEND, "call");
    DONE(peregrine_call_release(call));
    DONE(peregrine_engine_release(target));
    DONE(peregrine_job_release(job)); /* the last part of the engine */
    MUST(releases == 2);
}

static void *refuse(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&both);
    return (void *)(uintptr_t)peregrine_cancel_refuse(cancel, BYTES("no"));
}

/* Two threads decide a cancel at the same time; for one of them the decision succeeds. */
static void decide_twice(void)
{
    start_engine();
    MUST(pthread_barrier_init(&both, NULL, 2) == 0);
    for (int round = 0; round < 300; round++) {
        pthread_t thread;
        char id[64], json[96];
        size_t len = 0;
        void *refused = NULL;
        uint64_t send = begin(PEREGRINE_OP_SEND, "task");
        DONE(peregrine_job_task_id(job, (uint8_t *)id, sizeof id, &len));
        snprintf(json, sizeof json, "{\"id\":\"%.*s\"}", (int)len, id);
        uint64_t call = begin_json(PEREGRINE_OP_CANCEL, json);
        MUST(pthread_create(&thread, NULL, refuse, NULL) == 0);
        pthread_barrier_wait(&both);
        PeregrineStatus agreed = peregrine_cancel_agree(cancel);
        pthread_join(thread, &refused);
        MUST((agreed == PEREGRINE_STATUS_OK) != ((uintptr_t)refused == PEREGRINE_STATUS_OK));
        MUST(agreed + (uintptr_t)refused == PEREGRINE_STATUS_HANDLE);
        DONE(peregrine_call_release(call));
        DONE(peregrine_call_release(send));
        DONE(peregrine_job_release(job));
    }
    pthread_barrier_destroy(&both);
    DONE(peregrine_engine_release(target));
}

static void *reload(void *settings)
{
    MUST(peregrine_server_reload(target, BYTES((const char *)settings)) != PEREGRINE_STATUS_BUSY);
    reloads++;
    return NULL;
}

/* A reload that waits for an agent which never answers: nothing else does. */
static void reload_long(void)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    char settings[256];
    pthread_t thread;
    uint16_t port = 0;
    bool is_over = false;
    int silent = socket(AF_INET, SOCK_STREAM, 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(bind(silent, (struct sockaddr *)&at, len) == 0 && listen(silent, 8) == 0);
    MUST(getsockname(silent, (struct sockaddr *)&at, &len) == 0);
    snprintf(settings, sizeof settings,
             "%s[agents.far.upstream]\nurl = \"http://127.0.0.1:%d\"\n", LOOPBACK,
             ntohs(at.sin_port));
    start_server();
    MUST(pthread_create(&thread, NULL, reload, settings) == 0);
    int accepted = accept(silent, NULL, NULL);
    MUST(accepted >= 0);
    DONE(peregrine_server_port(target, &port));
    polled = begin(PEREGRINE_OP_SEND, "now");
    MUST(poll_call(&is_over) == 1);
    DONE(peregrine_call_release(polled));
    DONE(peregrine_server_release(target));
    MUST(reloads == 0);
    close(silent);
    close(accepted);
    pthread_join(thread, NULL);
    MUST(reloads == 1);
}

int main(void)
{
    alarm(240);
    close_calls();
    for (int is_engine = 0; is_engine < 2; is_engine++) {
        end_wait(is_engine, PEREGRINE_OP_SEND, "call");
        end_wait(is_engine, PEREGRINE_OP_SEND, "task");
        end_wait(is_engine, PEREGRINE_OP_STREAM, "task");
    }
    poll_calls();
    release_agents();
    decide_twice();
    reload_long();
    puts("ok");
    return 0;
}
