/* An engine on the clock of the program, which began long ago and says 2001. */
#include <peregrine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(text) (const uint8_t *)(text), strlen(text)
#define MESSAGE \
    "\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"x\"}]}"

static const char CARD[] = "{\"name\":\"own\",\"description\":\"It answers.\"}";

static uint64_t engine, job;
static uint64_t mono_ms = 700000000;
static char text[4096];

static void fail(int line)
{
    fprintf(stderr, "line %d\n", line);
    exit(1);
}
#define MUST(condition) ((condition) ? (void)0 : fail(__LINE__))
#define DONE(call) MUST((call) == PEREGRINE_STATUS_OK)

static void wake(void *user, uint64_t handle)
{
    (void)user;
    (void)handle;
}

static void now(void *user, uint64_t *mono, uint64_t *unix_ms)
{
    (void)user;
    *mono = mono_ms;
    *unix_ms = 1000000000000 + mono_ms - 700000000;
}

static void answer(void *user, uint64_t turn)
{
    (void)user;
    DONE(peregrine_turn_defer(turn, &job));
    DONE(peregrine_job_status(job, 2, NULL, 0));
}

static const char *call(uint32_t op, const char *json)
{
    PeregrineCall request = {BYTES(json), NULL, 0, (const uint8_t *)"me", 2, NULL, 0};
    PeregrineReply reply;
    uint64_t call = 0;
    DONE(peregrine_call_new(engine, op, &request, &call));
    DONE(peregrine_call_next(call, 0, &reply));
    MUST(reply.json != NULL && reply.json_len < sizeof text);
    memcpy(text, reply.json, reply.json_len);
    text[reply.json_len] = 0;
    DONE(peregrine_call_release(call));
    return text;
}

static void jobs_have_the_time_of_the_program(void)
{
    uint64_t wait_ms = 0;
    static const char SEND[] = "{\"configuration\":{\"returnImmediately\":true}," MESSAGE "}";
    MUST(strstr(call(PEREGRINE_OP_SEND, SEND), "2001-09-09T01:46:40.000Z") != NULL);
    /* the first tick: the last event is new */
    DONE(peregrine_engine_tick(engine, &wait_ms));
    MUST(strstr(call(PEREGRINE_OP_LIST, ""), "TASK_STATE_WORKING") != NULL);
    mono_ms += 1000;
    DONE(peregrine_job_status(job, 3, NULL, 0));
    MUST(strstr(call(PEREGRINE_OP_LIST, ""), "2001-09-09T01:46:41.000Z") != NULL);
    DONE(peregrine_job_release(job));
}

/* Keep-alives of a stream are due, but its client does not read. */
static void full_streams_do_not_spin(void)
{
    static char large[200000];
    static const char BODY[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendStreamingMessage\","
                               "\"params\":{" MESSAGE "}}";
    const char *fields[][2] = {
        {"host", "localhost"}, {"content-type", "application/json"}, {"a2a-version", "1.0"}};
    PeregrineField list[3];
    PeregrineRequest request = {.method = (const uint8_t *)"POST", .method_len = 4,
                                .target = (const uint8_t *)"/", .target_len = 1,
                                .fields = list, .fields_len = 3, .flags = PEREGRINE_BODY};
    PeregrineAnswer there;
    uint64_t exchange = 0;
    for (int n = 0; n < 3; n++) {
        list[n] = (PeregrineField){(const uint8_t *)fields[n][0], strlen(fields[n][0]),
                                   (const uint8_t *)fields[n][1], strlen(fields[n][1])};
    }
    memset(large, 'x', sizeof large - 1);
    DONE(peregrine_exchange_new(engine, &request, &exchange));
    DONE(peregrine_exchange_whole(exchange, BYTES(BODY), &there));
    MUST(there.wait_ms > 0 && there.wait_ms < UINT64_MAX);
    DONE(peregrine_job_status(job, 2, BYTES(large)));
    DONE(peregrine_exchange_poll(exchange, &there));
    MUST(there.content_len > 0);
    mono_ms += 60000;
    DONE(peregrine_exchange_poll(exchange, &there));
    MUST(there.wait_ms == UINT64_MAX && !there.is_over);
    /* once the client has read, the keep-alive counts again */
    while (there.content_len > 0) {
        DONE(peregrine_exchange_consume(exchange, there.content_len));
        DONE(peregrine_exchange_poll(exchange, &there));
    }
    MUST(there.wait_ms > 0 && there.wait_ms < UINT64_MAX);
    DONE(peregrine_exchange_release(exchange));
    DONE(peregrine_job_release(job));
}

int main(void)
{
    PeregrineAgent agent = {NULL, answer, NULL, NULL};
    PeregrineHost host = {NULL, wake, now, NULL, NULL};
    DONE(peregrine_engine_new(BYTES("[limits]\noutput_bytes_max = 65536\n"), &host, &engine));
    DONE(peregrine_engine_agent(engine, BYTES(CARD), &agent));
    DONE(peregrine_engine_start(engine));
    jobs_have_the_time_of_the_program();
    full_streams_do_not_spin();
    DONE(peregrine_engine_release(engine));
    puts("ok");
    return 0;
}
