/* Calls of the program itself, on a server and on an engine without sockets. */
#include <peregrine.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES(text) (const uint8_t *)(text), strlen(text)

static const char CARD[] = "{\"name\":\"many\",\"description\":\"Many ways to answer.\"}";
static const char OTHER[] = "{\"name\":\"other\",\"description\":\"Another one.\"}";

static void fail(int line)
{
    fprintf(stderr, "line %d\n", line);
    exit(1);
}
#define MUST(condition) ((condition) ? (void)0 : fail(__LINE__))
#define DONE(call) MUST((call) == PEREGRINE_STATUS_OK)

static uint64_t target;

static void *work(void *argument)
{
    uint64_t job = (uint64_t)(uintptr_t)argument;
    bool is_over = false;
    char text[64];
    size_t len = 0;
    DONE(peregrine_job_text(job, (uint8_t *)text, sizeof text, &len));
    DONE(peregrine_job_status(job, 2, BYTES("on it")));
    for (int n = 0; len == 4 && n < 1000 && !is_over; n++) {
        usleep(10000);
        DONE(peregrine_job_is_over(job, &is_over));
    }
    if (len != 4) {
        DONE(peregrine_job_status(job, 3, BYTES("done")));
    }
    DONE(peregrine_job_release(job));
    return NULL;
}

static void answer(void *user, uint64_t turn)
{
    char text[64];
    size_t len = 0;
    uint64_t job = 0, call = 0;
    PeregrineCall request;
    pthread_t thread;
    memset(&request, 0, sizeof request);
    DONE(peregrine_turn_text(turn, (uint8_t *)text, sizeof text, &len));
    MUST(peregrine_call_new(target, 4, &request, &call) == PEREGRINE_STATUS_BUSY);
    if (user != NULL || (len == 4 && memcmp(text, "ping", 4) == 0)) {
        DONE(peregrine_turn_reply(turn, BYTES(user == NULL ? "pong" : "other")));
        return;
    }
    DONE(peregrine_turn_defer(turn, &job)); /* "wait" until it is canceled, else two events */
    MUST(pthread_create(&thread, NULL, work, (void *)(uintptr_t)job) == 0);
    pthread_detach(thread);
}

static void wake(void *user, uint64_t handle)
{
    (void)user;
    MUST(peregrine_call_release(handle) == PEREGRINE_STATUS_BUSY);
}

static const char *agent, *owner, *tenant;

static uint64_t begin(uint32_t op, const char *json)
{
    uint64_t call = 0;
    PeregrineCall request = {BYTES(json), (const uint8_t *)agent, agent ? strlen(agent) : 0,
                             (const uint8_t *)owner, owner ? strlen(owner) : 0,
                             (const uint8_t *)tenant, tenant ? strlen(tenant) : 0};
    DONE(peregrine_call_new(target, op, &request, &call));
    return call;
}

/* The next answer of a call; the text is the caller's. */
static char *next(uint64_t call, bool is_error)
{
    static char text[65536];
    PeregrineReply reply;
    DONE(peregrine_call_next(call, UINT64_MAX, &reply));
    MUST(reply.json != NULL && reply.is_error == is_error && !reply.is_over);
    memcpy(text, reply.json, reply.json_len);
    text[reply.json_len] = 0;
    return text;
}

static char *ask(uint32_t op, const char *json, bool is_error)
{
    uint64_t call = begin(op, json);
    char *text = next(call, is_error);
    PeregrineReply reply;
    DONE(peregrine_call_next(call, 0, &reply));
    MUST(reply.is_over && reply.json == NULL);
    DONE(peregrine_call_release(call));
    MUST(peregrine_call_release(call) == PEREGRINE_STATUS_HANDLE);
    return text;
}

static char *message(const char *text, const char *more)
{
    static char json[512];
    snprintf(json, sizeof json,
             "{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"%s\"}]"
             "}%s}", text, more);
    return json;
}

static void *close_soon(void *call)
{
    usleep(50000);
    DONE(peregrine_call_close(*(uint64_t *)call));
    return NULL;
}

static void use(void)
{
    char by_id[256], id[37];
    PeregrineReply reply;
    pthread_t thread;
    agent = tenant = NULL;
    owner = "alice";

    MUST(strstr(ask(PEREGRINE_OP_SEND, message("ping", ""), false), "\"pong\"") != NULL);
    agent = "other";
    MUST(strstr(ask(PEREGRINE_OP_SEND, message("ping", ""), false), "\"other\"") != NULL);
    agent = "nobody";
    ask(PEREGRINE_OP_SEND, message("ping", ""), true);
    agent = NULL;

    /* a stream, event by event */
    uint64_t call = begin(PEREGRINE_OP_STREAM, message("go", ""));
    bool is_done = false;
    int events = 0;
    for (;;) {
        DONE(peregrine_call_next(call, UINT64_MAX, &reply));
        if (reply.is_over) break;
        MUST(reply.json_len > 2 && reply.json[0] == '{' && !reply.is_error);
        char *event = strndup((const char *)reply.json, reply.json_len);
        is_done |= strstr(event, "TASK_STATE_COMPLETED") != NULL;
        free(event);
        events++;
    }
    MUST(events >= 2 && is_done);
    DONE(peregrine_call_release(call));

    /* a task: get, list, subscribe, cancel, by its owner alone */
    char *begun = ask(PEREGRINE_OP_SEND,
                      message("wait", ",\"configuration\":{\"returnImmediately\":true}"), false);
    char *at = strstr(begun, "\"task\":{\"id\":\"");
    MUST(at != NULL);
    snprintf(id, sizeof id, "%.36s", at + strlen("\"task\":{\"id\":\""));
    snprintf(by_id, sizeof by_id, "{\"id\":\"%s\",\"historyLength\":1}", id);
    MUST(strstr(ask(PEREGRINE_OP_GET, by_id, false), id) != NULL);
    MUST(strstr(ask(PEREGRINE_OP_LIST, "{\"pageSize\":5}", false), id) != NULL);
    MUST(strstr(ask(PEREGRINE_OP_LIST, "", false), id) != NULL);
    snprintf(by_id, sizeof by_id, "{\"id\":\"%s\"}", id);
    owner = "bob";
    MUST(strstr(ask(PEREGRINE_OP_GET, by_id, true), "TASK_NOT_FOUND") != NULL);
    MUST(strstr(ask(PEREGRINE_OP_LIST, "", false), id) == NULL);
    owner = "alice";
    tenant = "space";
    MUST(strstr(ask(PEREGRINE_OP_GET, by_id, true), "TASK_NOT_FOUND") != NULL);
    tenant = NULL;
    call = begin(PEREGRINE_OP_SUBSCRIBE, by_id);
    MUST(strstr(next(call, false), id) != NULL);
    /* nothing has come; a wait that another thread ends */
    do {
        DONE(peregrine_call_next(call, 0, &reply));
    } while (reply.json != NULL);
    MUST(!reply.is_over);
    MUST(pthread_create(&thread, NULL, close_soon, &call) == 0);
    DONE(peregrine_call_next(call, UINT64_MAX, &reply));
    MUST(reply.is_over && reply.json == NULL);
    pthread_join(thread, NULL);
    DONE(peregrine_call_release(call));
    call = begin(PEREGRINE_OP_SUBSCRIBE, by_id);
    MUST(strstr(next(call, false), id) != NULL);
    MUST(strstr(ask(PEREGRINE_OP_CANCEL, by_id, false), "TASK_STATE_CANCELED") != NULL);
    do {
        DONE(peregrine_call_next(call, UINT64_MAX, &reply));
    } while (!reply.is_over);
    DONE(peregrine_call_release(call));

    /* errors are answers */
    ask(PEREGRINE_OP_SEND, "{\"message\":", true);
    MUST(strstr(ask(PEREGRINE_OP_GET, "{\"id\":\"a%b c?:cancel#+\"}", true), "TASK_NOT_FOUND") != NULL);
}

static void misuse(void)
{
    static const char *const WRONG[] = {"[]", "{", "{}", "{\"id\":3}", "{\"id\":\"a\",\"x\":{}}",
                                        "{\"id\":\"a/b\"}", "{\"id\":\"..\"}", "{\"id\":\"%2e%2e\"}"};
    static const char *const OWNERS[] = {"", "a\nb", "\x01", "a\xc2\x80"};
    static char many[200000];
    uint64_t call = 0;
    char misaligned[sizeof(PeregrineCall) + 1];
    PeregrineReply reply;
    PeregrineCall request;
    memset(&request, 0, sizeof request);
    MUST(peregrine_call_new(target, 4, NULL, &call) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_call_new(target, 4, &request, NULL) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_call_new(target, 0, &request, &call) == PEREGRINE_STATUS_VALUE);
    MUST(peregrine_call_new(target, 7, &request, &call) == PEREGRINE_STATUS_VALUE);
    MUST(peregrine_call_new(0, 4, &request, &call) == PEREGRINE_STATUS_HANDLE);
    request.owner_len = 3;
    MUST(peregrine_call_new(target, 4, &request, &call) == PEREGRINE_STATUS_NULL);
    request.owner = (const uint8_t *)"\xff\xff\xff";
    MUST(peregrine_call_new(target, 4, &request, &call) == PEREGRINE_STATUS_UTF8);
    request.owner = NULL;
    request.owner_len = 0;
    request.tenant = (const uint8_t *)"a/b";
    request.tenant_len = 3;
    MUST(peregrine_call_new(target, 4, &request, &call) == PEREGRINE_STATUS_VALUE);
    request.tenant = NULL;
    request.tenant_len = 0;
    for (size_t at = 0; at < sizeof WRONG / sizeof *WRONG; at++) {
        request.json = (const uint8_t *)WRONG[at];
        request.json_len = strlen(WRONG[at]);
        MUST(peregrine_call_new(target, PEREGRINE_OP_GET, &request, &call)
             == PEREGRINE_STATUS_VALUE);
    }
    memset(many, 'z', sizeof many);
    memcpy(many, "{\"id\":\"", 7);
    memcpy(many + sizeof many - 2, "\"}", 2);
    request.json = (const uint8_t *)many;
    request.json_len = sizeof many;
    MUST(peregrine_call_new(target, PEREGRINE_OP_GET, &request, &call) == PEREGRINE_STATUS_VALUE);
    memcpy(many + 7, "a\",\"q\":\"", 8);
    request.json_len = 5000;
    memcpy(many + request.json_len - 2, "\"}", 2);
    MUST(peregrine_call_new(target, PEREGRINE_OP_GET, &request, &call) == PEREGRINE_STATUS_VALUE);
    request.json = NULL;
    request.json_len = 0;
    for (size_t at = 0; at < sizeof OWNERS / sizeof *OWNERS; at++) {
        request.owner = (const uint8_t *)OWNERS[at];
        request.owner_len = strlen(OWNERS[at]);
        MUST(peregrine_call_new(target, 4, &request, &call) == PEREGRINE_STATUS_VALUE);
    }
    memset(many, 'o', sizeof many);
    request.owner = (const uint8_t *)many;
    request.owner_len = 257;
    MUST(peregrine_call_new(target, 4, &request, &call) == PEREGRINE_STATUS_VALUE);
    request.owner = NULL;
    request.owner_len = 0;
    memcpy(misaligned + 1, &request, sizeof request);
    DONE(peregrine_call_new(target, 4, (PeregrineCall *)(void *)(misaligned + 1), &call));
    MUST(peregrine_call_next(call, 0, NULL) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_call_next(target, 0, &reply) == PEREGRINE_STATUS_HANDLE);
    MUST(peregrine_exchange_release(call) == PEREGRINE_STATUS_HANDLE);
    DONE(peregrine_call_release(call));
}

int main(void)
{
    static const char SETTINGS[] =
        "listen = [\"127.0.0.1:0\"]\ntenants = [\"space\"]\n"
        "[[auth.api_keys]]\nname = \"a\"\nkey = \"sixteen-bytes-ok\"\n";
    PeregrineHost host = {NULL, wake, NULL, NULL, NULL};
    PeregrineAgent one = {NULL, answer, NULL, NULL}, other = {&host, answer, NULL, NULL};
    uint64_t late = 0;

    DONE(peregrine_server_new(BYTES(SETTINGS), &target));
    DONE(peregrine_server_agent(target, BYTES(CARD), &one));
    DONE(peregrine_server_agent(target, BYTES(OTHER), &other));
    PeregrineCall request;
    memset(&request, 0, sizeof request);
    MUST(peregrine_call_new(target, 4, &request, &late) == PEREGRINE_STATUS_SERVER);
    DONE(peregrine_server_start(target));
    use();
    misuse();
    /* an anonymous caller, where callers are authenticated */
    owner = NULL;
    MUST(strstr(ask(PEREGRINE_OP_LIST, "", true), "UNAUTHENTICATED") != NULL);
    /* a call that outlives its server */
    owner = "alice";
    late = begin(PEREGRINE_OP_LIST, "");
    DONE(peregrine_server_release(target));
    next(late, false);
    DONE(peregrine_call_release(late));

    DONE(peregrine_engine_new(BYTES(SETTINGS), &host, &target));
    DONE(peregrine_engine_agent(target, BYTES(CARD), &one));
    DONE(peregrine_engine_agent(target, BYTES(OTHER), &other));
    DONE(peregrine_engine_start(target));
    use();
    misuse();
    usleep(200000); /* the jobs see their ends */
    DONE(peregrine_engine_release(target));
    puts("ok");
    return 0;
}
