/* The engine of one rank: what it would send is already in place when an operation starts. */
#include "comm/comm_internal.h"

#include <stdio.h>

static void self_prepare(void) {}

static void self_version(char *text, size_t size) { (void)snprintf(text, size, "built in"); }

static int self_open(void **state, const struct comm_engine_place *place, struct comm_engine_words *words,
                     char message[COMM_ENGINE_MESSAGE])
{
    (void)words;
    *state = NULL;
    if (place->size == 1) return 0;
    (void)snprintf(message, COMM_ENGINE_MESSAGE, "it carries 1 rank, this is rank %d of %d", place->rank,
                   place->size);
    return -1;
}

static int self_ready(void *state, const char *invitation, char message[COMM_ENGINE_MESSAGE])
{
    (void)state, (void)invitation, (void)message;
    return 0;
}

static int self_barrier(void *state, char message[COMM_ENGINE_MESSAGE])
{
    (void)state, (void)message;
    return 0;
}

static int self_broadcast(void *state, void *data, size_t bytes, int root, char message[COMM_ENGINE_MESSAGE])
{
    (void)state, (void)data, (void)bytes, (void)root, (void)message;
    return 0;
}

static int self_gather_all(void *state, const size_t *bytes, void *receive, bool device,
                           char message[COMM_ENGINE_MESSAGE])
{
    (void)state, (void)bytes, (void)receive, (void)device, (void)message;
    return 0;
}

static int self_exchange(void *state, const char *send, const size_t *send_bytes, const size_t *send_offset,
                         char *receive, const size_t *receive_bytes, const size_t *receive_offset, bool device,
                         char message[COMM_ENGINE_MESSAGE])
{
    (void)state, (void)send, (void)send_bytes, (void)send_offset;
    (void)receive, (void)receive_bytes, (void)receive_offset, (void)device, (void)message;
    return 0;
}

static int self_test(void *state, bool *done, bool *moved, char message[COMM_ENGINE_MESSAGE])
{
    (void)state, (void)message;
    *done = *moved = true;
    return 0;
}

static void self_close(void *state) { (void)state; }

const struct comm_engine comm_engine_self = {
    .abi = COMM_ENGINE_ABI,
    .name = "self",
    .prepare = self_prepare,
    .version = self_version,
    .open = self_open,
    .ready = self_ready,
    .barrier = self_barrier,
    .broadcast = self_broadcast,
    .gather_all = self_gather_all,
    .exchange = self_exchange,
    .test = self_test,
    .close = self_close,
};
