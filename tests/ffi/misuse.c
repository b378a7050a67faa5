/* What a program may do wrong: each is a status, and nothing else happens. */
#include <peregrine.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(wanted, call)                                                                        \
    do {                                                                                           \
        PeregrineStatus got = (call);                                                              \
        if (got != (wanted)) {                                                                     \
            fprintf(stderr, "line %d: %d in place of %d: %s\n", __LINE__, got, wanted, #call);     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK PEREGRINE_STATUS_OK
#define BYTES(text) (const uint8_t *)(text), strlen(text)

static const char CARD[] = "{\"name\":\"a\",\"description\":\"b\"}";
static int released;

static void nothing(void *user, uint64_t turn)
{
    (void)user;
    (void)turn;
}

static void release(void *user)
{
    (void)user;
    released++;
}

static void *call_elsewhere(void *server)
{
    uint16_t port = 0;
    CHECK(OK, peregrine_server_port(*(uint64_t *)server, &port));
    CHECK(PEREGRINE_STATUS_HANDLE, peregrine_turn_reply(*(uint64_t *)server, BYTES("x")));
    return NULL;
}

int main(void)
{
    PeregrineAgent agent = {NULL, nothing, NULL, release};
    PeregrineAgent empty = {NULL, NULL, NULL, NULL};
    uint64_t server = 0, other = 0, job = 0;
    uint16_t port = 0;
    bool is_over = false;
    uint8_t text[4];
    size_t len = 0;
    char misaligned[16];

    CHECK(OK, peregrine_last_error(NULL, 0, &len));
    if (peregrine_abi_version() != PEREGRINE_ABI_VERSION || len != 0) return 1;

    /* null, text that is none, lengths beyond all memory */
    CHECK(PEREGRINE_STATUS_NULL, peregrine_server_new(NULL, 3, &server));
    CHECK(PEREGRINE_STATUS_NULL, peregrine_server_new(NULL, 0, NULL));
    CHECK(PEREGRINE_STATUS_UTF8, peregrine_server_new((const uint8_t *)"\xff", 1, &server));
    CHECK(PEREGRINE_STATUS_VALUE, peregrine_server_new(text, SIZE_MAX, &server));

    /* handles: zero, never given, of another kind */
    CHECK(PEREGRINE_STATUS_HANDLE, peregrine_server_start(0));
    CHECK(PEREGRINE_STATUS_HANDLE, peregrine_server_start(UINT64_MAX));
    CHECK(OK, peregrine_server_new(BYTES("listen = [\"127.0.0.1:0\"]\n"), &server));
    CHECK(PEREGRINE_STATUS_HANDLE, peregrine_job_release(server));
    CHECK(PEREGRINE_STATUS_HANDLE, peregrine_cancel_agree(server));
    CHECK(PEREGRINE_STATUS_HANDLE, peregrine_turn_defer(server, &job));
    CHECK(PEREGRINE_STATUS_NULL, peregrine_turn_defer(server, NULL));
    CHECK(PEREGRINE_STATUS_HANDLE, peregrine_job_is_over(server, &is_over));

    /* agents */
    CHECK(PEREGRINE_STATUS_NULL, peregrine_server_agent(server, BYTES(CARD), NULL));
    CHECK(PEREGRINE_STATUS_NULL, peregrine_server_agent(server, BYTES(CARD), &empty));
    CHECK(PEREGRINE_STATUS_VALUE, peregrine_server_agent(server, BYTES("[]"), &agent));
    CHECK(OK, peregrine_server_agent(server, BYTES(CARD), &agent));

    /* order: not before the start, not twice, no agents behind it */
    CHECK(PEREGRINE_STATUS_SERVER, peregrine_server_port(server, &port));
    CHECK(PEREGRINE_STATUS_SERVER, peregrine_server_shutdown(server));
    CHECK(OK, peregrine_server_start(server));
    CHECK(PEREGRINE_STATUS_SERVER, peregrine_server_start(server));
    CHECK(PEREGRINE_STATUS_SERVER, peregrine_server_agent(server, BYTES(CARD), &agent));

    /* places: null, misaligned, too short */
    CHECK(PEREGRINE_STATUS_NULL, peregrine_server_port(server, NULL));
    CHECK(OK, peregrine_server_port(server, (uint16_t *)(void *)(misaligned + 1)));
    CHECK(OK, peregrine_server_port(server, &port));
    if (port == 0 || memcmp(&port, misaligned + 1, sizeof port) != 0) return 1;
    CHECK(PEREGRINE_STATUS_NULL, peregrine_server_url(server, NULL, 4, &len));
    CHECK(PEREGRINE_STATUS_SPACE, peregrine_server_url(server, text, sizeof text, &len));
    if (len < strlen("http://127.0.0.1:1")) return 1;
    CHECK(PEREGRINE_STATUS_SPACE, peregrine_server_url(server, NULL, 0, NULL));

    pthread_t thread;
    pthread_create(&thread, NULL, call_elsewhere, &server);
    pthread_join(thread, NULL);

    /* a configuration that is wrong, an address that is taken */
    CHECK(OK, peregrine_server_new(BYTES("lisen = 1\n"), &other));
    CHECK(PEREGRINE_STATUS_SERVER, peregrine_server_start(other));
    CHECK(PEREGRINE_STATUS_SPACE, peregrine_last_error(NULL, 0, &len));
    char why[512];
    CHECK(OK, peregrine_last_error((uint8_t *)why, sizeof why, &len));
    if (memcmp(why, "settings:1: ", 12) != 0) return 1;
    CHECK(OK, peregrine_server_release(other));

    /* released once, and gone */
    CHECK(OK, peregrine_server_release(server));
    CHECK(PEREGRINE_STATUS_HANDLE, peregrine_server_release(server));
    CHECK(PEREGRINE_STATUS_HANDLE, peregrine_server_port(server, &port));
    if (released != 1) return 1;
    puts("ok");
    return 0;
}
