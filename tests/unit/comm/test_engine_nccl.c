/* The nccl engine by its table, over the emulation of NCCL in tests/cuda: processes are the ranks, and nothing but the engine
 * is between them. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/plugin.h"
#include "comm/engine.h"
#include "unit.h"

enum { RANKS_MAX = 4, WAIT_S = 100 };

/* What the ranks of a test share. */
struct world {
    pthread_barrier_t meet;
    char invitation[COMM_ENGINE_INVITATION];
};

struct rank {
    int rank, size;
    struct world *world;
    const struct comm_engine *engine;
    void *state;
    char message[COMM_ENGINE_MESSAGE];
};

/* A rank's part of a test, in a process of its own: ends it by EXPECT where something is not as it must be. */
typedef void body(struct rank *r);
#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "rank %d of %d, line %d: %s: ", r->rank, r->size, __LINE__, #condition);             \
            (void)fprintf(stderr, __VA_ARGS__);                                                                        \
            (void)fprintf(stderr, " %s\n", r->message);                                                                \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static const struct comm_engine *open_plugin(void)
{
    const struct plugin_kind kind = {.word = "engine", .entry = COMM_ENGINE_ENTRY, .abi = COMM_ENGINE_ABI};
    struct tabft_failure f = {0};
    char folder[PLUGIN_PATH_MAX], path[PLUGIN_PATH_MAX];
    const void *table = NULL;
    const char *build = getenv("top_builddir");
    (void)snprintf(folder, sizeof folder, "%s/tests/cuda/plugins", build != NULL ? build : ".");
    ck_assert_int_eq(setenv("TABFT_PLUGIN_PATH", folder, 1), 0);
    MUST(plugin_open(&kind, "nccl", "", "", &table, path, &f));
    return table;
}

/* Opens; the ranks wait for each other. */
static int join(struct rank *r, size_t chunk)
{
    const struct comm_engine_place place = {.rank = r->rank, .size = r->size, .local_rank = r->rank, .chunk = chunk};
    struct comm_engine_words own = {"", ""};
    const int code = r->engine->open(&r->state, &place, &own, r->message);
    if (r->rank == 0) memcpy(r->world->invitation, own.invitation, sizeof own.invitation);
    if (code == 0) EXPECT(strncmp(own.unique, "GPU-00000000-", 13) == 0, "the GPU's name is '%s'", own.unique);
    pthread_barrier_wait(&r->world->meet);
    return code;
}

static void join_well(struct rank *r, size_t chunk)
{
    EXPECT(join(r, chunk) == 0, "open");
    EXPECT(r->engine->ready(r->state, r->world->invitation, r->message) == 0, "ready");
}

/* 0 when it is done, -1 when it failed. */
static int finish(struct rank *r)
{
    struct timespec from, now, pause = {0, 20000};
    bool done = false, moved;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (;;) {
        if (r->engine->test(r->state, &done, &moved, r->message) < 0) return -1;
        if (done) return 0;
        clock_gettime(CLOCK_MONOTONIC, &now);
        EXPECT(now.tv_sec - from.tv_sec < WAIT_S, "nothing comes");
        nanosleep(&pause, NULL);
    }
}

static void run_ranks(int size, int n_devices, body *b)
{
    struct world *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    pid_t child[RANKS_MAX];
    char text[16];
    ck_assert_ptr_ne(w, MAP_FAILED);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&w->meet, &shared, (unsigned)size);
    (void)snprintf(text, sizeof text, "%d", n_devices);
    ck_assert_int_eq(setenv("CUDA_EMULATION_DEVICES", text, 1), 0);
    const struct comm_engine *engine = open_plugin();
    for (int rank = 0; rank < size; rank++) {
        child[rank] = fork();
        ck_assert_int_ge(child[rank], 0);
        if (child[rank] == 0) {
            struct rank r = {.rank = rank, .size = size, .world = w, .engine = engine};
            b(&r);
            _exit(0);
        }
    }
    for (int rank = 0; rank < size; rank++) {
        int status;
        ck_assert_int_eq(waitpid(child[rank], &status, 0), child[rank]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d of %d: status %x", rank, size, status);
    }
    munmap(w, sizeof *w);
}

/* ---- what arrives ---- */

static unsigned char byte_of(int from, int to, size_t i) { return (unsigned char)((size_t)(from * 31 + to * 7) + i * 2654435761u / 65536); }

static char *new_bytes(struct rank *r, size_t n)
{
    char *p = malloc(n + 1);
    EXPECT(p != NULL, "no memory");
    memset(p, 0x5a, n + 1);
    return p;
}

static void check_broadcast(struct rank *r, size_t bytes)
{
    char *data = new_bytes(r, bytes);
    for (int root = 0; root < r->size; root++) {
        for (size_t i = 0; i < bytes; i++) data[i] = root == r->rank ? (char)byte_of(root, 0, i) : 0;
        EXPECT(r->engine->broadcast(r->state, data, bytes, root, r->message) == 0, "broadcast");
        EXPECT(finish(r) == 0, "broadcast of %zu", bytes);
        for (size_t i = 0; i < bytes; i++)
            EXPECT(data[i] == (char)byte_of(root, 0, i), "byte %zu of %zu from %d", i, bytes, root);
    }
    free(data);
}

/* Sizes between 0 and `most`, others for each pair. */
static size_t size_of(int from, int to, size_t most) { return most * (size_t)((from * 3 + to * 5 + 1) % 4) / 3; }

static void check_gather(struct rank *r, size_t most, bool device)
{
    size_t bytes[RANKS_MAX], all = 0, at = 0;
    for (int q = 0; q < r->size; q++) all += bytes[q] = size_of(q, 0, most);
    char *data = new_bytes(r, all);
    for (int q = 0; q < r->size; at += bytes[q], q++)
        for (size_t i = 0; i < bytes[q]; i++) data[at + i] = q == r->rank ? (char)byte_of(q, 9, i) : 0;
    EXPECT(r->engine->gather_all(r->state, bytes, data, device, r->message) == 0, "gather_all");
    EXPECT(finish(r) == 0, "gather_all");
    at = 0;
    for (int q = 0; q < r->size; at += bytes[q], q++)
        for (size_t i = 0; i < bytes[q]; i++)
            EXPECT(data[at + i] == (char)byte_of(q, 9, i), "byte %zu of %zu from %d", i, bytes[q], q);
    EXPECT(data[all] == 0x5a, "behind the end");
    free(data);
}

static void check_exchange(struct rank *r, size_t most, bool device)
{
    size_t sizes[4][RANKS_MAX] = {{0}};
    const size_t room = most + 3;
    char *send = new_bytes(r, room * RANKS_MAX), *receive = new_bytes(r, room * RANKS_MAX);
    for (int q = 0; q < r->size; q++) {
        sizes[0][q] = size_of(r->rank, q, most);
        sizes[2][q] = size_of(q, r->rank, most);
        sizes[1][q] = sizes[3][q] = (size_t)q * room;
        for (size_t i = 0; i < sizes[0][q]; i++) send[(size_t)q * room + i] = (char)byte_of(r->rank, q, i);
    }
    EXPECT(r->engine->exchange(r->state, send, sizes[0], sizes[1], receive, sizes[2], sizes[3], device, r->message) == 0, "exchange");
    EXPECT(finish(r) == 0, "exchange");
    for (int q = 0; q < r->size; q++)
        for (size_t i = 0; i < room; i++) {
            const bool comes = q != r->rank && i < sizes[2][q];
            EXPECT(receive[(size_t)q * room + i] == (comes ? (char)byte_of(q, r->rank, i) : 0x5a), "byte %zu of %zu from %d",
                   i, sizes[2][q], q);
        }
    free(send);
    free(receive);
}

static void all_arrives(struct rank *r)
{
    static const size_t sizes[] = {0, 1, 1000, 3 << 20, 9000001}; /* some rounds of the block for the host's memory */
    join_well(r, 1 << 30);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_broadcast(r, sizes[i]);
        check_gather(r, sizes[i], false);
        check_exchange(r, sizes[i], false);
        check_gather(r, sizes[i], true);
        check_exchange(r, sizes[i], true);
        EXPECT(r->engine->barrier(r->state, r->message) == 0 && finish(r) == 0, "barrier");
    }
    r->engine->close(r->state);
}

START_TEST(everything_arrives)
{
    for (int size = 1; size <= RANKS_MAX; size++) run_ranks(size, RANKS_MAX, all_arrives);
}
END_TEST

/* 1,000 bytes stand for 2^31. */
static void small_pieces(struct rank *r)
{
    join_well(r, 1000);
    for (size_t most = 999; most < 30000; most += 7001) {
        check_broadcast(r, most);
        check_gather(r, most, most % 2 == 0);
        check_exchange(r, most, most % 2 == 1);
    }
    r->engine->close(r->state);
}

START_TEST(large_things_travel_in_pieces) { run_ranks(3, RANKS_MAX, small_pieces); }
END_TEST

/* ---- what goes wrong ---- */

static void last_one_dies(struct rank *r)
{
    const size_t bytes[RANKS_MAX] = {4, 4, 4};
    char data[12] = "";
    join_well(r, 1000);
    check_gather(r, 100, true);
    if (r->rank == 2) _exit(0);
    EXPECT(r->engine->gather_all(r->state, bytes, data, true, r->message) == 0, "gather_all");
    EXPECT(finish(r) < 0, "a rank that is gone was not missed");
    EXPECT(strstr(r->message, "remote process exited") != NULL, "another message");
    r->engine->close(r->state);
}

START_TEST(a_rank_that_is_gone_is_told) { run_ranks(3, RANKS_MAX, last_one_dies); }
END_TEST

/* A rank that is late holds the memory of what was started until that is given up. */
static void last_one_stays_away(struct rank *r)
{
    const size_t bytes[RANKS_MAX] = {4, 4, 4};
    bool done = true, moved;
    char *data = new_bytes(r, 12);
    join_well(r, 1000);
    if (r->rank != 2) {
        EXPECT(r->engine->gather_all(r->state, bytes, data, true, r->message) == 0, "gather_all");
        EXPECT(r->engine->test(r->state, &done, &moved, r->message) == 0 && !done, "it cannot be done");
    }
    pthread_barrier_wait(&r->world->meet);
    r->engine->give_up(r->state);
    free(data);
    r->engine->close(r->state);
}

START_TEST(what_takes_too_long_is_given_up) { run_ranks(3, RANKS_MAX, last_one_stays_away); }
END_TEST

static void one_gpu(struct rank *r)
{
    EXPECT(join(r, 1000) == 0, "open");
    EXPECT(r->engine->ready(r->state, r->world->invitation, r->message) < 0, "two ranks have one GPU");
    EXPECT(strstr(r->message, "Duplicate GPU") != NULL || strstr(r->message, "remote process") != NULL, "another message");
    r->engine->close(r->state);
}

START_TEST(two_ranks_on_one_gpu_are_refused) { run_ranks(2, 1, one_gpu); }
END_TEST

static void without_gpu(struct rank *r)
{
    EXPECT(join(r, 1000) < 0, "there is no GPU");
    EXPECT(strstr(r->message, "no GPU can be used (no CUDA-capable device is detected)") != NULL, "another message");
}

START_TEST(no_gpu_is_refused) { run_ranks(2, 0, without_gpu); }
END_TEST

static void wrong_invitation(struct rank *r)
{
    char invitation[COMM_ENGINE_INVITATION];
    EXPECT(join(r, 1000) == 0, "open");
    memcpy(invitation, r->world->invitation, sizeof invitation);
    invitation[strlen(invitation) - 1] = 'x';
    EXPECT(r->engine->ready(r->state, invitation, r->message) < 0, "taken");
    EXPECT(r->engine->ready(r->state, "", r->message) < 0, "taken");
    EXPECT(strstr(r->message, "no id of NCCL") != NULL, "another message");
    r->engine->close(r->state);
}

START_TEST(only_an_id_is_an_invitation) { run_ranks(1, 1, wrong_invitation); }
END_TEST

UNIT_MAIN("comm/engine_nccl", everything_arrives, large_things_travel_in_pieces, a_rank_that_is_gone_is_told,
          what_takes_too_long_is_given_up, two_ranks_on_one_gpu_are_refused, no_gpu_is_refused, only_an_id_is_an_invitation)
