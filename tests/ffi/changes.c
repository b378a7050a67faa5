/* A configuration that is read again, jobs that are told of their ends, and errors of the program. */
#include <peregrine.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES(text) (const uint8_t *)(text), strlen(text)

static const char CARD[] = "{\"name\":\"own\",\"description\":\"An agent of the program.\"}";

static void fail(int line)
{
    fprintf(stderr, "line %d\n", line);
    exit(1);
}
#define MUST(condition) ((condition) ? (void)0 : fail(__LINE__))
#define DONE(call) MUST((call) == PEREGRINE_STATUS_OK)

static uint64_t server, waiting;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static int notices, releases;

static void ended(void *user, uint64_t job)
{
    bool is_over = false;
    MUST(user == &notices && job == waiting);
    MUST(peregrine_job_is_over(job, &is_over) == PEREGRINE_STATUS_BUSY);
    MUST(peregrine_job_release(job) == PEREGRINE_STATUS_BUSY);
    pthread_mutex_lock(&lock);
    notices++;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
}

static void release(void *user)
{
    MUST(user == &notices);
    releases++;
}

static void answer(void *user, uint64_t turn)
{
    char text[64];
    size_t len = 0;
    uint64_t job = 0;
    (void)user;
    DONE(peregrine_turn_text(turn, (uint8_t *)text, sizeof text, &len));
    MUST(peregrine_server_reload(server, NULL, 0) == PEREGRINE_STATUS_BUSY);
    if (text[0] == 't') { /* the turn, without a task and with one */
        if (text[1] == '2') DONE(peregrine_turn_status(turn, 2, NULL, 0));
        MUST(peregrine_turn_fail_error(turn, NULL, 3) == PEREGRINE_STATUS_NULL);
        DONE(peregrine_turn_fail_error(turn, BYTES("secret of the turn")));
        MUST(peregrine_turn_fail_error(turn, BYTES("again")) == PEREGRINE_STATUS_CLOSED);
        MUST(peregrine_turn_fail_error(turn + 1, BYTES("x")) == PEREGRINE_STATUS_HANDLE);
        return;
    }
    DONE(peregrine_turn_defer(turn, &job));
    if (text[0] == 'j') {
        if (text[1] == '2') DONE(peregrine_job_status(job, 2, NULL, 0));
        DONE(peregrine_job_fail_error(job, BYTES("secret of the job")));
        MUST(peregrine_job_fail_error(job, BYTES("again")) == PEREGRINE_STATUS_CLOSED);
        DONE(peregrine_job_release(job));
        return;
    }
    waiting = job;
    if (text[1] == '2') DONE(peregrine_job_status(job, 2, NULL, 0));
    PeregrineNotice notice = {&notices, ended, release}, none = {NULL, NULL, release};
    MUST(peregrine_job_watch(job, NULL) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_job_watch(job, &none) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_job_watch(server, &notice) == PEREGRINE_STATUS_HANDLE);
    DONE(peregrine_job_watch(job, &notice));
    DONE(peregrine_job_watch(job, &notice)); /* in its place */
}

static const char *agent;

static uint64_t begin(uint32_t op, const char *json)
{
    uint64_t call = 0;
    PeregrineCall request = {BYTES(json), (const uint8_t *)agent, agent ? strlen(agent) : 0,
                             (const uint8_t *)"me", 2, NULL, 0};
    DONE(peregrine_call_new(server, op, &request, &call));
    return call;
}

static char *ask(uint32_t op, const char *json)
{
    static char text[65536];
    PeregrineReply reply;
    uint64_t call = begin(op, json);
    DONE(peregrine_call_next(call, UINT64_MAX, &reply));
    MUST(reply.json != NULL);
    memcpy(text, reply.json, reply.json_len);
    text[reply.json_len] = 0;
    DONE(peregrine_call_release(call));
    return text;
}

static const char *message(const char *text, const char *more)
{
    static char json[512];
    snprintf(json, sizeof json,
             "{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"%s\"}]"
             "}%s}", text, more);
    return json;
}

/* Waits for a notice, and for what the job says. */
static void await_end(int count)
{
    bool is_over = false;
    pthread_mutex_lock(&lock);
    while (notices < count) pthread_cond_wait(&told, &lock);
    pthread_mutex_unlock(&lock);
    for (int n = 0; n < 1000 && !is_over; n++) {
        DONE(peregrine_job_is_over(waiting, &is_over));
        usleep(1000);
    }
    MUST(is_over);
    DONE(peregrine_job_release(waiting));
}

int main(void)
{
    static const char HIDES[] = "listen = [\"127.0.0.1:0\"]\nshow_errors = false\n";
    static const char MORE[] =
        "listen = [\"127.0.0.1:0\"]\nshow_errors = false\n[agents.more]\nkind = \"echo\"\n";
    static const char *const FAILS[] = {"t1", "t2", "j1", "j2"};
    PeregrineAgent own = {NULL, answer, NULL, NULL};
    char by_id[128];

    /* texts of errors: for the operator, and for clients where that is said */
    for (int shows = 0; shows < 2; shows++) {
        const char *settings = shows ? "listen = [\"127.0.0.1:0\"]\n" : HIDES;
        DONE(peregrine_server_new(BYTES(settings), &server));
        DONE(peregrine_server_agent(server, BYTES(CARD), &own));
        MUST(peregrine_server_reload(server, NULL, 0) == PEREGRINE_STATUS_SERVER);
        DONE(peregrine_server_start(server));
        for (size_t at = 0; at < sizeof FAILS / sizeof *FAILS; at++) {
            char *answered = ask(PEREGRINE_OP_SEND, message(FAILS[at], ""));
            MUST((strstr(answered, "secret of the ") != NULL) == shows);
            MUST((strstr(answered, "reference ") != NULL) == !shows);
            MUST((strstr(answered, "TASK_STATE_FAILED") != NULL) == (FAILS[at][1] == '2'));
        }
        if (shows == 0) DONE(peregrine_server_release(server));
    }

    /* an agent of the configuration comes and goes; that of the program stays */
    agent = "more";
    MUST(strstr(ask(PEREGRINE_OP_SEND, message("hi", "")), "\"error\"") != NULL);
    DONE(peregrine_server_release(server));
    DONE(peregrine_server_new(BYTES(HIDES), &server));
    DONE(peregrine_server_agent(server, BYTES(CARD), &own));
    DONE(peregrine_server_start(server));
    DONE(peregrine_server_reload(server, BYTES(MORE)));
    MUST(strstr(ask(PEREGRINE_OP_SEND, message("hi", "")), "\"hi\"") != NULL);
    MUST(peregrine_server_reload(server, BYTES("agents = 3\n")) == PEREGRINE_STATUS_SERVER);
    DONE(peregrine_server_reload(server, NULL, 0)); /* what it had last */
    MUST(strstr(ask(PEREGRINE_OP_SEND, message("hi", "")), "\"hi\"") != NULL);
    DONE(peregrine_server_reload(server, BYTES(HIDES)));
    MUST(strstr(ask(PEREGRINE_OP_SEND, message("hi", "")), "\"error\"") != NULL);
    MUST(peregrine_server_reload(server, NULL, 3) == PEREGRINE_STATUS_NULL);
    MUST(peregrine_server_reload(server, (const uint8_t *)"\xff", 1) == PEREGRINE_STATUS_UTF8);
    MUST(peregrine_server_reload(0, NULL, 0) == PEREGRINE_STATUS_HANDLE);
    agent = NULL;

    /* the caller leaves before there is a task */
    uint64_t call = begin(PEREGRINE_OP_SEND, message("w1", ""));
    DONE(peregrine_call_release(call));
    await_end(1);
    /* a client cancels the task */
    char *begun = ask(PEREGRINE_OP_SEND,
                      message("w2", ",\"configuration\":{\"returnImmediately\":true}"));
    char *at = strstr(begun, "\"task\":{\"id\":\"");
    MUST(at != NULL);
    snprintf(by_id, sizeof by_id, "{\"id\":\"%.36s\"}", at + strlen("\"task\":{\"id\":\""));
    MUST(strstr(ask(PEREGRINE_OP_CANCEL, by_id), "TASK_STATE_CANCELED") != NULL);
    await_end(2);
    DONE(peregrine_server_release(server));
    MUST(releases == 4);
    puts("ok");
    return 0;
}
