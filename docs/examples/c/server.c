/* An A2A agent in C: it answers each message with its text in upper case. */
#include <ctype.h>
#include <inttypes.h>
#include <peregrine.h>
#include <stdio.h>
#include <string.h>

static const char CARD[] = "{\"name\":\"shout\",\"description\":\"Says it louder.\"}";

static void answer(void *user, uint64_t turn)
{
    char text[4096];
    size_t len = 0;
    (void)user;
    if (peregrine_turn_text(turn, (uint8_t *)text, sizeof text, &len) != PEREGRINE_STATUS_OK) {
        return; /* a turn without an answer fails */
    }
    for (size_t at = 0; at < len; at++) {
        text[at] = (char)toupper((unsigned char)text[at]);
    }
    peregrine_turn_reply(turn, (const uint8_t *)text, len);
}

int main(int argc, char **argv)
{
    const char *settings = argc > 1 ? argv[1] : "";
    PeregrineAgent agent = {NULL, answer, NULL, NULL};
    uint64_t server = 0;
    uint16_t port = 0;
    peregrine_server_new((const uint8_t *)settings, strlen(settings), &server);
    if (peregrine_server_agent(server, (const uint8_t *)CARD, strlen(CARD), &agent)
            != PEREGRINE_STATUS_OK
        || peregrine_server_start(server) != PEREGRINE_STATUS_OK) {
        char why[512];
        size_t len = 0;
        peregrine_last_error((uint8_t *)why, sizeof why, &len);
        fprintf(stderr, "%.*s\n", (int)len, why);
        return 1;
    }
    peregrine_server_port(server, &port);
    printf("http://127.0.0.1:%" PRIu16 ", until Enter\n", port);
    fflush(stdout);
    getchar();
    return peregrine_server_release(server) == PEREGRINE_STATUS_OK ? 0 : 1;
}
