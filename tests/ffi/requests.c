/* Requests that the program has parsed itself, on an engine without sockets. */
#include <peregrine.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES(text) (const uint8_t *)(text), strlen(text)

static const char CARD[] = "{\"name\":\"many\",\"description\":\"Many ways to answer.\"}";

static void fail(int line)
{
    fprintf(stderr, "line %d\n", line);
    exit(1);
}
#define MUST(condition) ((condition) ? (void)0 : fail(__LINE__))
#define DONE(call) MUST((call) == PEREGRINE_STATUS_OK)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static unsigned long wakes, releases;
static uint64_t engine;

static void wake(void *user, uint64_t handle)
{
    MUST(user == &wakes && handle != 0);
    MUST(peregrine_exchange_release(handle) == PEREGRINE_STATUS_BUSY);
    pthread_mutex_lock(&lock);
    wakes++;
    pthread_cond_signal(&woken);
    pthread_mutex_unlock(&lock);
}

static void release(void *user)
{
    (void)user;
    releases++;
}

static void *work(void *argument)
{
    uint64_t job = (uint64_t)(uintptr_t)argument;
    usleep(20000);
    DONE(peregrine_job_status(job, 2, BYTES("on it")));
    usleep(20000);
    DONE(peregrine_job_status(job, 3, BYTES("done")));
    DONE(peregrine_job_release(job));
    return NULL;
}

static void answer(void *user, uint64_t turn)
{
    char text[64];
    size_t len = 0;
    uint64_t job = 0, wait_ms = 0, other = 0;
    PeregrineRequest request;
    PeregrineAnswer there;
    (void)user;
    memset(&request, 0, sizeof request);
    DONE(peregrine_turn_text(turn, (uint8_t *)text, sizeof text, &len));
    /* what would wait for this callback */
    MUST(peregrine_engine_tick(engine, &wait_ms) == PEREGRINE_STATUS_BUSY);
    MUST(peregrine_engine_release(engine) == PEREGRINE_STATUS_BUSY);
    MUST(peregrine_exchange_new(engine, &request, &other) == PEREGRINE_STATUS_BUSY);
    MUST(peregrine_exchange_poll(engine, &there) == PEREGRINE_STATUS_BUSY);
    if (len == 4 && memcmp(text, "ping", 4) == 0) {
        DONE(peregrine_turn_reply(turn, BYTES("pong")));
    } else {
        pthread_t thread;
        DONE(peregrine_turn_defer(turn, &job));
        MUST(pthread_create(&thread, NULL, work, (void *)(uintptr_t)job) == 0);
        pthread_detach(thread);
    }
}

static PeregrineField field(const char *name, const char *value)
{
    PeregrineField field = {(const uint8_t *)name, strlen(name), (const uint8_t *)value,
                            strlen(value)};
    return field;
}

static uint64_t begin(const char *method, const char *target, const char *host, uint32_t flags)
{
    uint64_t exchange = 0;
    PeregrineField fields[4] = {field("Host", host), field("content-type", "application/json"),
                                field("A2A-Version", "1.0"), field("accept", "*/*")};
    PeregrineRequest request = {(const uint8_t *)method, strlen(method), (const uint8_t *)target,
                                strlen(target), NULL, 0, fields, 4, (const uint8_t *)"127.0.0.1",
                                9, flags | PEREGRINE_LOOPBACK};
    DONE(peregrine_exchange_new(engine, &request, &exchange));
    return exchange;
}

/* Takes an answer to its end; the text is the caller's. */
static char *finish(uint64_t exchange, PeregrineAnswer *there, uint32_t status)
{
    static char text[1 << 20];
    size_t len = 0;
    for (;;) {
        unsigned long before;
        pthread_mutex_lock(&lock);
        before = wakes;
        pthread_mutex_unlock(&lock);
        DONE(peregrine_exchange_poll(exchange, there));
        if (there->content_len > 0) {
            size_t piece = there->content_len > 100 ? 100 : there->content_len;
            memcpy(text + len, there->content, piece);
            len += piece;
            MUST(peregrine_exchange_consume(exchange, SIZE_MAX) == PEREGRINE_STATUS_VALUE);
            DONE(peregrine_exchange_consume(exchange, piece));
        } else if (there->is_over) {
            break;
        } else {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += there->wait_ms > 5000 ? 5 : 1;
            pthread_mutex_lock(&lock);
            while (before == wakes && pthread_cond_timedwait(&woken, &lock, &until) == 0) {
            }
            pthread_mutex_unlock(&lock);
        }
    }
    MUST(there->status == status);
    text[len] = 0;
    return text;
}

static const char SEND[] =
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{\"message\":{\"messageId\":\"m\","
    "\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"%s\"}]}}}";

static void serve(void)
{
    char body[1024];
    PeregrineAnswer there;
    PeregrineField shown;
    bool has_type = false;

    /* a card, which has no body */
    uint64_t exchange = begin("GET", "/.well-known/agent-card.json", "localhost", 0);
    MUST(strstr(finish(exchange, &there, 200), "\"many\"") != NULL);
    for (size_t at = 0; at < there.fields; at++) {
        DONE(peregrine_exchange_field(exchange, at, &shown));
        has_type |= shown.name_len == 12 && memcmp(shown.name, "Content-Type", 12) == 0;
    }
    MUST(has_type);
    MUST(peregrine_exchange_field(exchange, there.fields, &shown) == PEREGRINE_STATUS_VALUE);
    MUST(peregrine_exchange_field(exchange, 0, NULL) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_exchange_trailer(exchange, 0, &shown) == PEREGRINE_STATUS_VALUE);
    DONE(peregrine_exchange_release(exchange));
    MUST(peregrine_exchange_poll(exchange, &there) == PEREGRINE_STATUS_HANDLE);
    MUST(peregrine_exchange_release(exchange) == PEREGRINE_STATUS_HANDLE);

    /* another host, as a web page of a stranger names it */
    exchange = begin("GET", "/.well-known/agent-card.json", "evil.example", 0);
    finish(exchange, &there, 421);
    DONE(peregrine_exchange_release(exchange));

    /* a body in one piece: the answer is there at once */
    snprintf(body, sizeof body, SEND, "SendMessage", "ping");
    exchange = begin("POST", "/", "localhost", PEREGRINE_BODY);
    DONE(peregrine_exchange_whole(exchange, BYTES(body), &there));
    MUST(there.status == 200 && there.is_over);
    MUST(strstr(finish(exchange, &there, 200), "\"pong\"") != NULL);
    DONE(peregrine_exchange_release(exchange));

    /* in pieces, of a job on another thread */
    snprintf(body, sizeof body, SEND, "SendMessage", "job");
    exchange = begin("POST", "/", "localhost", PEREGRINE_BODY);
    DONE(peregrine_exchange_poll(exchange, &there));
    MUST(there.wants_body && there.status == 0 && !there.is_over);
    for (size_t at = 0; at < strlen(body); at++) {
        DONE(peregrine_exchange_push(exchange, (const uint8_t *)body + at, 1));
    }
    DONE(peregrine_exchange_end(exchange));
    MUST(strstr(finish(exchange, &there, 200), "TASK_STATE_COMPLETED") != NULL);
    DONE(peregrine_exchange_release(exchange));

    /* the events of a stream */
    snprintf(body, sizeof body, SEND, "SendStreamingMessage", "job");
    exchange = begin("POST", "/", "localhost", PEREGRINE_BODY);
    DONE(peregrine_exchange_whole(exchange, BYTES(body), &there));
    MUST(!there.is_over);
    char *events = finish(exchange, &there, 200);
    MUST(strstr(events, "data: ") != NULL && strstr(events, "TASK_STATE_WORKING") != NULL);
    MUST(strstr(events, "TASK_STATE_COMPLETED") != NULL);
    DONE(peregrine_exchange_release(exchange));

    /* a client that leaves */
    exchange = begin("POST", "/", "localhost", PEREGRINE_BODY);
    DONE(peregrine_exchange_whole(exchange, BYTES(body), &there));
    DONE(peregrine_exchange_release(exchange));

    /* bytes that are no JSON are the client's fault: an answer, not an error */
    exchange = begin("POST", "/", "localhost", PEREGRINE_BODY);
    DONE(peregrine_exchange_whole(exchange, (const uint8_t *)"\xff\x00", 2, &there));
    MUST(strstr(finish(exchange, &there, 200), "-32700") != NULL);
    DONE(peregrine_exchange_release(exchange));
}

static void misuse(void)
{
    uint64_t exchange = 0, other = 0;
    char misaligned[sizeof(PeregrineRequest) + 1];
    PeregrineField fields[2] = {field("Host", "localhost"), {NULL, 3, NULL, 0}};
    PeregrineRequest request = {(const uint8_t *)"GET", 3, (const uint8_t *)"/", 1, NULL, 0, fields,
                                1, NULL, 0, PEREGRINE_LOOPBACK};
    PeregrineHost none = {NULL, NULL, NULL, NULL, release};
    PeregrineAnswer there;

    MUST(peregrine_engine_new(NULL, 0, NULL, &other) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_engine_new(NULL, 0, &none, &other) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_exchange_new(engine, NULL, &exchange) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_exchange_new(engine, &request, NULL) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_exchange_new(0, &request, &exchange) == PEREGRINE_STATUS_HANDLE);
    memcpy(misaligned + 1, &request, sizeof request);
    DONE(peregrine_exchange_new(engine, (PeregrineRequest *)(void *)(misaligned + 1), &exchange));
    MUST(peregrine_exchange_poll(exchange, NULL) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_exchange_poll(engine, &there) == PEREGRINE_STATUS_HANDLE);
    MUST(peregrine_exchange_push(exchange, NULL, 3) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_engine_tick(exchange, &other) == PEREGRINE_STATUS_HANDLE);
    MUST(peregrine_server_start(engine) == PEREGRINE_STATUS_HANDLE);
    MUST(peregrine_job_release(exchange) == PEREGRINE_STATUS_HANDLE);
    /* as many as may be open at once: connections_max is 2 */
    DONE(peregrine_exchange_new(engine, &request, &other));
    MUST(peregrine_exchange_new(engine, &request, &other) == PEREGRINE_STATUS_FULL);
    DONE(peregrine_exchange_release(other));
    DONE(peregrine_exchange_release(exchange));
    request.fields_len = 2;
    MUST(peregrine_exchange_new(engine, &request, &exchange) == PEREGRINE_STATUS_NULL);
    request.fields_len = SIZE_MAX;
    MUST(peregrine_exchange_new(engine, &request, &exchange) == PEREGRINE_STATUS_VALUE);
    request.fields_len = 1;
    request.target_len = SIZE_MAX;
    MUST(peregrine_exchange_new(engine, &request, &exchange) == PEREGRINE_STATUS_VALUE);
    request.target_len = 1;
    request.flags = 64;
    MUST(peregrine_exchange_new(engine, &request, &exchange) == PEREGRINE_STATUS_VALUE);
    request.flags = PEREGRINE_LOOPBACK;
    request.address = (const uint8_t *)"here";
    request.address_len = 4;
    MUST(peregrine_exchange_new(engine, &request, &exchange) == PEREGRINE_STATUS_VALUE);
}

int main(void)
{
    static const char SETTINGS[] = "workers = 2\n[limits]\nconnections_max = 2\n";
    PeregrineHost host = {&wakes, wake, NULL, NULL, release};
    PeregrineAgent agent = {NULL, answer, NULL, release};
    uint64_t wait_ms = 0, remote = 0;
    bool is_idle = false;
    DONE(peregrine_engine_new(BYTES(SETTINGS), &host, &engine));
    MUST(peregrine_engine_tick(engine, &wait_ms) == PEREGRINE_STATUS_SERVER);
    DONE(peregrine_engine_agent(engine, BYTES(CARD), &agent));
    DONE(peregrine_engine_start(engine));
    MUST(peregrine_engine_start(engine) == PEREGRINE_STATUS_SERVER);
    MUST(peregrine_engine_agent(engine, BYTES(CARD), &agent) == PEREGRINE_STATUS_SERVER);
    DONE(peregrine_engine_tick(engine, &wait_ms));
    serve();
    misuse();
    usleep(200000); /* the jobs whose clients have left */
    DONE(peregrine_engine_cut(engine));
    DONE(peregrine_engine_drain(engine, &is_idle));
    MUST(is_idle);
    DONE(peregrine_engine_release(engine));
    MUST(peregrine_engine_release(engine) == PEREGRINE_STATUS_HANDLE);
    MUST(releases == 2);

    /* an agent that needs sockets */
    static const char REMOTE[] = "[agents.far.upstream]\nurl = \"http://127.0.0.1:1\"\n";
    char why[512];
    size_t len = 0;
    DONE(peregrine_engine_new(BYTES(REMOTE), &host, &remote));
    MUST(peregrine_engine_start(remote) == PEREGRINE_STATUS_SERVER);
    DONE(peregrine_last_error((uint8_t *)why, sizeof why - 1, &len));
    why[len] = 0;
    MUST(strstr(why, "needs a server with sockets") != NULL);
    DONE(peregrine_engine_release(remote));
    MUST(releases == 3);
    puts("ok");
    return 0;
}
