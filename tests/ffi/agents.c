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
             "A2A-Version: 1.0\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
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

int main(void)
{
    PeregrineAgent agent = {NULL, answer, decide, NULL};
    uint16_t port = 0;
    DONE(peregrine_server_new(BYTES("listen = [\"127.0.0.1:0\"]\n"), &server));
    DONE(peregrine_server_agent(server, BYTES(CARD), &agent));
    DONE(peregrine_server_start(server));
    DONE(peregrine_server_port(server, &port));
    MUST(strstr(send_text(port, "ping", ""), "\"pong\"") != NULL);
    MUST(strstr(send_text(port, "task", ""), "\"at once\"") != NULL);
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
