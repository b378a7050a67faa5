/* Agents of every kind, which the program itself calls over a socket. */
#include <arpa/inet.h>
#include <peregrine.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES(text) (const uint8_t *)(text), strlen(text)

static const char CARD[] = "{\"name\":\"many\",\"description\":\"Many ways to answer.\"}";

static uint64_t server;

static void fail(int line)
{
    fprintf(stderr, "line %d\n", line);
    exit(1);
}
#define MUST(condition) ((condition) ? (void)0 : fail(__LINE__))
#define DONE(call) MUST((call) == PEREGRINE_STATUS_OK)

typedef PeregrineStatus Getter(uint64_t handle, uint8_t *out, size_t capacity, size_t *len);

static void is(Getter *getter, uint64_t handle, const char *wanted)
{
    char text[256];
    size_t len = 0;
    DONE(getter(handle, (uint8_t *)text, sizeof text, &len));
    MUST(len == strlen(wanted) && memcmp(text, wanted, len) == 0);
}

/* A request that has everything, except header fields. */
static void asked_by_alice(uint64_t turn)
{
    uint64_t job = 0;
    uint32_t state = 77;
    is(peregrine_turn_caller, turn, "alice");
    is(peregrine_turn_tenant, turn, "acme");
    is(peregrine_turn_metadata, turn, "{\"k\":1}");
    is(peregrine_turn_headers, turn, "{}");
    is(peregrine_turn_context_id, turn, "talk");
    DONE(peregrine_turn_defer(turn, &job));
    MUST(peregrine_turn_caller(turn, NULL, 0, NULL) == PEREGRINE_STATUS_CLOSED);
    is(peregrine_job_caller, job, "alice");
    is(peregrine_job_tenant, job, "acme");
    is(peregrine_job_metadata, job, "{\"k\":1}");
    is(peregrine_job_headers, job, "{}");
    is(peregrine_job_context_id, job, "talk");
    DONE(peregrine_job_state(job, &state));
    MUST(state == 0);
    DONE(peregrine_job_reply(job, BYTES("hello")));
    is(peregrine_job_context_id, job, "talk");
    MUST(peregrine_job_caller(job, NULL, 0, NULL) == PEREGRINE_STATUS_CLOSED);
    MUST(peregrine_job_state(job, &state) == PEREGRINE_STATUS_CLOSED);
    DONE(peregrine_job_release(job));
}

/* A request that has header fields, and nothing else. */
static void asked_over_http(uint64_t turn)
{
    uint64_t job = 0;
    is(peregrine_turn_caller, turn, "");
    is(peregrine_turn_tenant, turn, "");
    is(peregrine_turn_metadata, turn, "");
    is(peregrine_turn_headers, turn, "{\"x-number\":\"7\"}");
    DONE(peregrine_turn_defer(turn, &job));
    is(peregrine_job_caller, job, "");
    is(peregrine_job_tenant, job, "");
    is(peregrine_job_metadata, job, "");
    is(peregrine_job_headers, job, "{\"x-number\":\"7\"}");
    DONE(peregrine_job_reply(job, BYTES("hello")));
    DONE(peregrine_job_release(job));
}

static void *work(void *argument)
{
    uint64_t job = (uint64_t)(uintptr_t)argument;
    char text[64];
    size_t len = 0;
    bool is_over = false;
    DONE(peregrine_job_text(job, (uint8_t *)text, sizeof text, &len));
    DONE(peregrine_job_status(job, 2, BYTES("on it")));
    if (len == 4 && memcmp(text, "wait", 4) == 0) {
        for (int n = 0; n < 1000 && !is_over; n++) {
            usleep(10000);
            DONE(peregrine_job_is_over(job, &is_over));
        }
        MUST(is_over);
        MUST(peregrine_job_status(job, 3, NULL, 0) == PEREGRINE_STATUS_CLOSED);
    } else {
        char id[128], event[512];
        DONE(peregrine_job_task_id(job, (uint8_t *)id, sizeof id, &len));
        snprintf(event, sizeof event,
                 "{\"artifactUpdate\":{\"taskId\":\"%.*s\",\"contextId\":\"\",\"artifact\":"
                 "{\"artifactId\":\"a\",\"parts\":[{\"text\":\"made in C\"}]}}}",
                 (int)len, id);
        DONE(peregrine_job_publish_json(job, BYTES(event)));
        MUST(peregrine_job_publish_json(job, BYTES("{}")) == PEREGRINE_STATUS_VALUE);
        DONE(peregrine_job_status(job, 3, NULL, 0));
        MUST(peregrine_job_reply(job, BYTES("late")) == PEREGRINE_STATUS_CLOSED);
    }
    DONE(peregrine_job_release(job));
    MUST(peregrine_job_release(job) == PEREGRINE_STATUS_HANDLE);
    return NULL;
}

static void answer(void *user, uint64_t turn)
{
    char text[64];
    size_t len = 0;
    uint64_t job = 0;
    (void)user;
    DONE(peregrine_turn_text(turn, (uint8_t *)text, sizeof text, &len));
    if (len == 4 && memcmp(text, "ping", 4) == 0) {
        MUST(peregrine_server_release(server) == PEREGRINE_STATUS_SERVER);
        DONE(peregrine_turn_reply(turn, BYTES("pong")));
        MUST(peregrine_turn_reply(turn, BYTES("twice")) == PEREGRINE_STATUS_CLOSED);
    } else if (len == 4 && memcmp(text, "task", 4) == 0) {
        DONE(peregrine_turn_artifact(turn, BYTES("a"), BYTES("at once")));
        MUST(peregrine_turn_status(turn, 77, NULL, 0) == PEREGRINE_STATUS_VALUE);
        DONE(peregrine_turn_status(turn, 3, NULL, 0));
    } else if (len == 5 && memcmp(text, "alice", 5) == 0) {
        asked_by_alice(turn);
    } else if (len == 4 && memcmp(text, "http", 4) == 0) {
        asked_over_http(turn);
    } else {
        pthread_t thread;
        DONE(peregrine_turn_defer(turn, &job));
        MUST(pthread_create(&thread, NULL, work, (void *)(uintptr_t)job) == 0);
        pthread_detach(thread);
    }
}

static void decide(void *user, uint64_t cancel)
{
    char id[128];
    size_t len = 0;
    (void)user;
    DONE(peregrine_cancel_task_id(cancel, (uint8_t *)id, sizeof id, &len));
    MUST(len > 0);
    DONE(peregrine_cancel_agree(cancel));
    MUST(peregrine_cancel_refuse(cancel, BYTES("too late")) == PEREGRINE_STATUS_HANDLE);
}

/* The body of the answer to a call. */
static char *call(uint16_t port, const char *method, const char *params)
{
    static char answer[65536];
    char request[2048], body[1024];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    size_t got = 0;
    int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(connect(socket_fd, (struct sockaddr *)&address, sizeof address) == 0);
    snprintf(body, sizeof body, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":%s}",
             method, params);
    snprintf(request, sizeof request,
             "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "A2A-Version: 1.0\r\nX-Number: 7\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    MUST(write(socket_fd, request, strlen(request)) == (ssize_t)strlen(request));
    for (ssize_t n; (n = read(socket_fd, answer + got, sizeof answer - 1 - got)) > 0;) {
        got += (size_t)n;
    }
    answer[got] = 0;
    close(socket_fd);
    return answer;
}

static char *send_text(uint16_t port, const char *text, const char *more)
{
    char params[512];
    snprintf(params, sizeof params,
             "{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"%s\"}]}%s}",
             text, more);
    return call(port, "SendMessage", params);
}

static void send_as_alice(void)
{
    static const char JSON[] =
        "{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"contextId\":\"talk\","
        "\"parts\":[{\"text\":\"alice\"}]},\"metadata\":{\"k\":1}}";
    PeregrineCall request = {BYTES(JSON), NULL, 0, BYTES("alice"), BYTES("acme")};
    PeregrineReply reply;
    uint64_t call = 0;
    DONE(peregrine_call_new(server, PEREGRINE_OP_SEND, &request, &call));
    DONE(peregrine_call_next(call, 10000, &reply));
    MUST(reply.json != NULL && !reply.is_error);
    DONE(peregrine_call_release(call));
}

int main(void)
{
    PeregrineAgent agent = {NULL, answer, decide, NULL};
    uint16_t port = 0;
    DONE(peregrine_server_new(BYTES("listen = [\"127.0.0.1:0\"]\n"), &server));
    MUST(peregrine_server_header(server, BYTES("x-number")) == PEREGRINE_STATUS_SERVER);
    DONE(peregrine_server_agent(server, BYTES(CARD), &agent));
    DONE(peregrine_server_header(server, BYTES("x-number")));
    DONE(peregrine_server_start(server));
    DONE(peregrine_server_port(server, &port));
    MUST(strstr(send_text(port, "ping", ""), "\"pong\"") != NULL);
    MUST(strstr(send_text(port, "task", ""), "\"at once\"") != NULL);
    MUST(strstr(send_text(port, "http", ""), "\"hello\"") != NULL);
    send_as_alice();
    char *made = send_text(port, "job", "");
    MUST(strstr(made, "\"made in C\"") != NULL && strstr(made, "TASK_STATE_COMPLETED") != NULL);
    char *begun = send_text(port, "wait", ",\"configuration\":{\"returnImmediately\":true}");
    char *id = strstr(begun, "\"task\":{\"id\":\"");
    MUST(id != NULL);
    id += strlen("\"task\":{\"id\":\"");
    char params[256];
    snprintf(params, sizeof params, "{\"id\":\"%.36s\"}", id);
    MUST(strstr(call(port, "CancelTask", params), "TASK_STATE_CANCELED") != NULL);
    usleep(200000); /* the job sees it */
    DONE(peregrine_server_release(server));
    puts("ok");
    return 0;
}
