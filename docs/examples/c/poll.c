/* An A2A server on sockets of the program: one thread, poll(2), and the agent that echoes. */
#include <arpa/inet.h>
#include <peregrine.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MOST = 64, PIECE = 65536, BELL = MOST, LISTENER, INPUT, ALL };
static struct client { uint64_t conn; uint8_t *input; size_t len, room; } clients[MOST];
static struct pollfd fds[ALL];
static int bell; /* a descriptor that any thread may ring */

static void wake(void *user, uint64_t handle)
{
    if (user == NULL && handle != 0) eventfd_write(bell, 1);
}

static uint64_t go_on(struct client *c, struct pollfd *fd)
{
    PeregrineProgress now = {0};
    const uint8_t *out = NULL;
    ssize_t got = -1, sent = 0;
    size_t len = 0;
    if (c->room - c->len < PIECE) c->input = realloc(c->input, c->room = c->len + PIECE);
    if (fd->revents) got = recv(fd->fd, c->input + c->len, PIECE, MSG_DONTWAIT);
    c->len += got > 0 ? (size_t)got : 0;
    bool is_good = !peregrine_conn_advance(c->conn, c->input, c->len, got == 0, &now);
    memmove(c->input, c->input + now.consumed, c->len -= now.consumed);
    peregrine_conn_output(c->conn, &out, &len);
    if (len > 0) sent = send(fd->fd, out, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) peregrine_conn_consume(c->conn, (size_t)sent);
    fd->events = (now.reads ? POLLIN : 0) | (sent < (ssize_t)len ? POLLOUT : 0);
    if (is_good && now.next == PEREGRINE_NEXT_OPEN) return sent > 0 ? 0 : now.wait_ms;
    if (now.next == PEREGRINE_NEXT_CLOSE && sent < (ssize_t)len) return now.wait_ms;
    close(fd->fd), fd->fd = -1; /* a client that still sends should be heard for linger_ms */
    peregrine_conn_release(c->conn);
    free(c->input);
    *c = (struct client){0};
    return UINT64_MAX;
}

static uint64_t serve(uint64_t engine)
{
    uint64_t wait_ms = 0, due_ms;
    if (fds[BELL].revents) eventfd_read(bell, &(eventfd_t){0});
    peregrine_engine_tick(engine, &wait_ms);
    fds[LISTENER].events = 0; /* clients wait until a slot is free */
    for (int at = 0; at < MOST; at++) {
        if (fds[at].fd < 0 && fds[LISTENER].revents) {
            fds[at].fd = accept(fds[LISTENER].fd, NULL, NULL), fds[LISTENER].revents = 0;
            if (fds[at].fd >= 0)
                peregrine_conn_new(engine, NULL, 0, PEREGRINE_LOOPBACK, &clients[at].conn);
        }
        due_ms = fds[at].fd < 0 ? UINT64_MAX : go_on(&clients[at], &fds[at]);
        wait_ms = due_ms < wait_ms ? due_ms : wait_ms;
        if (fds[at].fd < 0) fds[LISTENER].events = POLLIN;
    }
    return wait_ms < 1000 ? wait_ms : 1000;
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    PeregrineHost host = {NULL, wake, NULL, NULL, NULL}; /* the clocks of the system */
    const char *text = argc > 1 ? argv[1] : "";
    uint64_t engine = 0, wait_ms = 0;
    for (int n = 0; n < ALL; n++) fds[n] = (struct pollfd){.fd = -1, .events = POLLIN};
    fds[BELL].fd = bell = eventfd(0, EFD_NONBLOCK);
    fds[LISTENER].fd = socket(AF_INET, SOCK_STREAM, 0), fds[INPUT].fd = STDIN_FILENO;
    if (bind(fds[LISTENER].fd, (void *)&at, sizeof at) || listen(fds[LISTENER].fd, MOST)) return 1;
    peregrine_engine_new((const uint8_t *)text, strlen(text), &host, &engine);
    if (peregrine_engine_start(engine) != PEREGRINE_STATUS_OK) return 1;
    getsockname(fds[LISTENER].fd, (void *)&at, &(socklen_t){sizeof at});
    fprintf(stderr, "http://127.0.0.1:%d, until standard input ends\n", ntohs(at.sin_port));
    while (!fds[INPUT].revents && poll(fds, ALL, (int)wait_ms) >= 0) wait_ms = serve(engine);
    return peregrine_engine_release(engine) == PEREGRINE_STATUS_OK ? 0 : 1;
}
