/* Servers whose configuration brings agents of its own: they leave nothing behind, and programs
 * that do not read do no harm. */
#include <arpa/inet.h>
#include <dirent.h>
#include <peregrine.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES(text) (const uint8_t *)(text), strlen(text)

static const char CARD[] = "{\"name\":\"own\",\"description\":\"It answers.\"}";
static const char PLAIN[] = "listen = [\"127.0.0.1:0\"]\n";
static const char UPSTREAM[] = "listen = [\"127.0.0.1:0\"]\n"
                               "[agents.far.upstream]\nurl = \"http://127.0.0.1:1\"\n";
static const char PROGRAMS[] = "listen = [\"127.0.0.1:0\"]\n"
                               "[agents.deaf]\ncommand = \"true\"\n"
                               "[agents.mask]\ncommand = \"grep SigBlk /proc/self/status\"\n";

static int released;

static void fail(int line)
{
    fprintf(stderr, "line %d\n", line);
    exit(1);
}
#define MUST(condition) ((condition) ? (void)0 : fail(__LINE__))
#define DONE(call) MUST((call) == PEREGRINE_STATUS_OK)

static void answer(void *user, uint64_t turn)
{
    (void)user;
    DONE(peregrine_turn_reply(turn, BYTES("pong")));
}

static void release(void *user)
{
    (void)user;
    released++;
}

static uint64_t start(const char *settings)
{
    PeregrineAgent agent = {NULL, answer, NULL, release};
    uint64_t server = 0;
    DONE(peregrine_server_new(BYTES(settings), &server));
    DONE(peregrine_server_agent(server, BYTES(CARD), &agent));
    DONE(peregrine_server_start(server));
    return server;
}

static int threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    MUST(folder != NULL);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static void ends_leave_nothing(void)
{
    /* the thread of the log stays for the next server */
    DONE(peregrine_server_release(start(PLAIN)));
    int before = threads();
    for (int n = 0; n < 3; n++) {
        uint64_t server = start(n == 0 ? PLAIN : UPSTREAM);
        if (n == 0) {
            DONE(peregrine_server_reload(server, BYTES(UPSTREAM)));
        }
        DONE(peregrine_server_release(server));
        MUST(released == n + 2);
    }
    /* the system removes an ended thread a moment after it was joined */
    for (int n = 0; n < 100 && threads() > before; n++) {
        usleep(10000);
    }
    MUST(threads() == before);
}

/* The answer of an agent to a message with this text. */
static char *message(uint16_t port, const char *agent, const char *text)
{
    static char answer[65536];
    char head[256];
    const char *begin = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMessage\",\"params\":{"
                        "\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[{"
                        "\"text\":\"";
    const char *parts[] = {head, begin, text, "\"}]}}}"};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    size_t got = 0;
    int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(connect(socket_fd, (struct sockaddr *)&address, sizeof address) == 0);
    snprintf(head, sizeof head,
             "POST /agents/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "A2A-Version: 1.0\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
             agent, strlen(parts[1]) + strlen(text) + strlen(parts[3]));
    for (int part = 0; part < 4; part++) {
        size_t len = strlen(parts[part]);
        MUST(write(socket_fd, parts[part], len) == (ssize_t)len);
    }
    for (ssize_t n; (n = read(socket_fd, answer + got, sizeof answer - 1 - got)) > 0;) {
        got += (size_t)n;
    }
    answer[got] = 0;
    close(socket_fd);
    return answer;
}

static void deaf_programs_do_no_harm(void)
{
    static char large[400001];
    uint64_t server = start(PROGRAMS);
    uint16_t port = 0;
    sigset_t blocked;
    memset(large, 'x', sizeof large - 1);
    DONE(peregrine_server_port(server, &port));
    /* SIGPIPE would end this program */
    MUST(strstr(message(port, "deaf", large), "TASK_STATE_COMPLETED") != NULL);
    /* the signals of this thread, and of the programs, are as before */
    MUST(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && !sigismember(&blocked, SIGPIPE));
    MUST(strstr(message(port, "mask", ""), "0000000000000000") != NULL);
    DONE(peregrine_server_release(server));
}

int main(void)
{
    signal(SIGPIPE, SIG_DFL);
    ends_leave_nothing();
    deaf_programs_do_no_harm();
    puts("ok");
    return 0;
}
