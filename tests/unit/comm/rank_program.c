/* A program for several ranks, started by the tests in tests/faults and tests/slurm under srun and mpirun. RANK_ENGINE
 * names the engine; with RANK_GPUS set the ranks have GPUs, and sums are made as if in their memory, which on the emulation
 * of tests/cuda is the host's.
 *   rank_program sum CHUNK THREADS SHAPE...   collectives, then a step of each SHAPE "ITEMSxPARAMETERS"; rank 0 prints
 *                                             a line each
 *   rank_program die HOW WHERE RANK TIMEOUT   RANK (-1: the last, -2: the middle) ends by HOW: kill segv abort exit0
 *                                             exit1 error stop hang gpu (the emulated one fails), WHERE: start (before it
 *                                             joins), init (joined, without an engine), engine (within NCCL's own start,
 *                                             on the emulation: it can only hang), open, collective, close
 *   rank_program differ RANK                  that rank has another value
 *   rank_program idle SECONDS                 all wait for rank 0; prints the most CPU time a waiting rank used, as a
 *                                             share of the time it waited
 *   rank_program describe                     what comm_describe says
 * In the folder RANK_SIGNS, where set, a file for each process is named by its pid, and "died" appears just before a
 * rank ends; at WHERE start that rank waits for a file "launched" there. */
#include <nettle/sha2.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/threads.h"
#include "comm/comm.h"
#include "comm/reduce.h"

/* The failure of the main thread, as bin/ shows it. */
static _Noreturn void end_failed(struct comm *c, const struct tabft_failure *f)
{
    char line[TABFT_MESSAGE_SIZE + 128];
    const int n = snprintf(line, sizeof line, "rank_program: rank %d (%s): %s\n", comm_rank(c), comm_host(c),
                           f->message);
    if (write(STDERR_FILENO, line, (size_t)n) < 0) _exit(4);
    comm_abort(c, tabft_exit_status(f->code));
}

/* With RANK_WORDS set, the caller's own last words instead of the built-in ones. */
static void last_words(void *context, int rank, const char *host, const char *message)
{
    char line[TABFT_MESSAGE_SIZE];
    const int n = message != NULL
                      ? snprintf(line, sizeof line, "rank_program: rank %d (%s): %s, %s\n", rank, host,
                                 (const char *)context, message)
                      : snprintf(line, sizeof line, "rank %d (%s): %s, quietly\n", rank, host, (const char *)context);
    if (write(STDERR_FILENO, line, (size_t)n) < 0) _exit(4);
}

static struct comm_options options_of(size_t chunk, int timeout_s)
{
    char *words = getenv("RANK_WORDS");
    return (struct comm_options){.engine = getenv("RANK_ENGINE"),
                                 .gpus = getenv("RANK_GPUS") != NULL,
                                 .timeout_s = timeout_s,
                                 .chunk_bytes = chunk,
                                 .last_words = words != NULL ? last_words : NULL,
                                 .last_words_context = words};
}

static void open_or_end(struct comm **c, size_t chunk, int timeout_s)
{
    struct tabft_failure f = {0};
    const struct comm_options options = options_of(chunk, timeout_s);
    if (comm_open(c, &options, &f) < 0) end_failed(*c, &f);
}

static float gradient_of(size_t item, size_t parameter)
{
    uint32_t x = (uint32_t)(item * 2654435761u + parameter * 40503u + 977u);
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)(int32_t)x / (float)(1u << (x % 31));
}

static uint32_t pattern(int from, int to, size_t i) { return (uint32_t)(from * 7919 + to * 104729) + (uint32_t)i; }

/* Every pair of ranks exchanges another number of words; all that arrives is looked at. */
static int check_exchange(struct comm *c, struct tabft_failure *f)
{
    int error = 0;
    const size_t n = (size_t)comm_size(c), most = 3000;
    size_t *sizes = NULL;
    uint32_t *send = NULL, *receive = NULL;
    TRY(memory_new(&sizes, 4 * n, sizeof *sizes, "sizes", f));
    TRY(memory_new(&send, n * most, sizeof *send, "words", f));
    TRY(memory_new(&receive, n * most, sizeof *receive, "words", f));
    size_t *send_bytes = sizes, *send_offset = sizes + n, *receive_bytes = sizes + 2 * n,
    *receive_offset = sizes + 3 * n;
    for (size_t r = 0; r < n; r++) {
        const int self = comm_rank(c), other = (int)r;
        send_bytes[r] = (size_t)((self * 31 + other * 17) % 5) * 600 * 4;
        receive_bytes[r] = (size_t)((other * 31 + self * 17) % 5) * 600 * 4;
        send_offset[r] = receive_offset[r] = r * most * 4;
        for (size_t i = 0; i < send_bytes[r] / 4; i++) send[r * most + i] = pattern(self, other, i);
    }
    TRY(comm_exchange(c, send, send_bytes, send_offset, receive, receive_bytes, receive_offset, f));
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < most; i++) {
            const uint32_t expected = i < receive_bytes[r] / 4 ? pattern((int)r, comm_rank(c), i) : 0;
            if (receive[r * most + i] != expected)
                FAIL(f, TABFT_NOT_HELD, "exchange: word %zu from rank %zu is %u instead of %u", i, r,
                     receive[r * most + i], expected);
        }
fail:
    free(sizes);
    free(send);
    free(receive);
    return error;
}

static int check_collectives(struct comm *c, struct tabft_failure *f)
{
    int error = 0;
    const size_t words = 5000;
    uint32_t *data = NULL;
    int *ranks = NULL;
    TRY(memory_new(&data, words, sizeof *data, "words", f));
    TRY(memory_new(&ranks, (size_t)comm_size(c), sizeof *ranks, "ranks", f));
    for (int root = 0; root < comm_size(c); root++) {
        for (size_t i = 0; i < words; i++) data[i] = comm_rank(c) == root ? pattern(root, 0, i) : 0;
        TRY(comm_broadcast(c, data, words * sizeof *data, root, f));
        for (size_t i = 0; i < words; i++)
            if (data[i] != pattern(root, 0, i)) FAIL(f, TABFT_NOT_HELD, "broadcast from rank %d: word %zu", root, i);
    }
    const int own = comm_rank(c);
    TRY(comm_gather_all(c, &own, sizeof own, ranks, f));
    for (int r = 0; r < comm_size(c); r++)
        if (ranks[r] != r) FAIL(f, TABFT_NOT_HELD, "all-gather: rank %d's place holds %d", r, ranks[r]);
    TRY(check_exchange(c, f));
    int agreed = 1;
    TRY(comm_agree(c, 0, &agreed, f));
    if (agreed != 0) FAIL(f, TABFT_NOT_HELD, "agreement on 0 gave %d", agreed);
    TRY(comm_agree(c, own == comm_size(c) - 1 ? TABFT_INPUT : TABFT_STOPPED, &agreed, f));
    if (agreed != TABFT_INPUT) FAIL(f, TABFT_NOT_HELD, "agreement on the worst gave %d", agreed);
fail:
    free(data);
    free(ranks);
    return error;
}

static void hash_text(const void *data, size_t bytes, char hex[2 * SHA256_DIGEST_SIZE + 1])
{
    struct sha256_ctx sha;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&sha);
    sha256_update(&sha, bytes, data);
    sha256_digest(&sha, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static int sum_shape(struct comm *c, struct threads *pool, size_t items, size_t parameters, struct tabft_failure *f)
{
    int error = 0;
    struct reduce *r = NULL;
    float *values = NULL, *slice;
    double *losses = NULL, square = 0;
    char hash[2 * SHA256_DIGEST_SIZE + 1], loss_hash[2 * SHA256_DIGEST_SIZE + 1];
    struct timespec from, to;
    struct vectors v;
    vectors_host(&v, pool);
    v.host = getenv("RANK_GPUS") == NULL;
    TRY(memory_new_aligned(&values, parameters, sizeof *values, "values", f));
    TRY(memory_new(&losses, items, sizeof *losses, "losses", f));
    TRY(reduce_open(&r, c, &v, items, parameters, f));
    size_t begin, end;
    reduce_items(r, &begin, &end);
    for (size_t item = begin; item < end; item++) {
        float *place;
        bool add;
        TRY(reduce_place(r, item, &place, &add, f));
        for (size_t p = 0; p < parameters; p++) place[p] = (add ? place[p] : 0) + gradient_of(item, p);
        reduce_placed(r);
        losses[item] = 1.0 / (double)(item + 3);
    }
    TRY(comm_barrier(c, f));
    clock_gettime(CLOCK_MONOTONIC, &from);
    reduce_slice(r, &begin, &end);
    TRY(reduce_finish(r, &slice, f));
    TRY(reduce_square_sum(r, slice, &square, f));
    memcpy(values + begin, slice, (end - begin) * sizeof *values);
    TRY(reduce_gather(r, values, f));
    clock_gettime(CLOCK_MONOTONIC, &to);
    TRY(reduce_item_values(r, losses, f));
    hash_text(values, parameters * sizeof *values, hash);
    hash_text(losses, items * sizeof *losses, loss_hash);
    TRY(comm_check_equal(c, "the sum", hash, f));
    TRY(comm_check_equal(c, "the losses", loss_hash, f));
    if (comm_rank(c) == 0) {
        printf("%zux%zu %s %a %.16s\n", items, parameters, hash, square, loss_hash);
        if (getenv("RANK_TIMES") != NULL)
            fprintf(stderr, "%zux%zu: %.1f ms\n", items, parameters,
                    1e3 * (double)(to.tv_sec - from.tv_sec) + 1e-6 * (double)(to.tv_nsec - from.tv_nsec));
    }
fail:
    reduce_close(r);
    free(values);
    free(losses);
    return error;
}

static int run_sum(char **arguments)
{
    struct comm *c = NULL;
    struct threads *pool = NULL;
    struct tabft_failure f = {0};
    int error = 0;
    open_or_end(&c, (size_t)atol(arguments[0]), 300);
    TRY(threads_open(&pool, atoi(arguments[1]), &f));
    TRY(check_collectives(c, &f));
    for (char **shape = arguments + 2; *shape != NULL; shape++) {
        size_t items, parameters;
        if (sscanf(*shape, "%zux%zu", &items, &parameters) != 2) FAIL(&f, TABFT_USE, "'%s' is no shape", *shape);
        TRY(sum_shape(c, pool, items, parameters, &f));
    }
    threads_close(pool);
    comm_close(c);
    return 0;
fail:
    end_failed(c, &f);
    return error;
}

/* A file of that name in the folder of signs. */
static void put_sign(const char *name)
{
    char path[4096];
    const char *folder = getenv("RANK_SIGNS");
    if (folder == NULL) return;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL || fclose(file) != 0) _exit(4);
}

static void await_sign(const char *name)
{
    char path[4096];
    struct stat status;
    const char *folder = getenv("RANK_SIGNS");
    (void)snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : ".", name);
    while (stat(path, &status) != 0) usleep(10000);
}

static void die(struct comm *c, const char *how)
{
    struct tabft_failure f = {0};
    put_sign("died");
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "stop") == 0) raise(SIGSTOP);
    while (strcmp(how, "hang") == 0) pause(); /* the watchdog goes on */
    if (strcmp(how, "segv") == 0) raise(SIGSEGV);
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "exit0") == 0) exit(0);
    if (strcmp(how, "exit1") == 0) exit(1);
    if (strcmp(how, "gpu") == 0) {
        if (setenv("CUDA_EMULATION_FAILS", "0:0", 1) != 0) _exit(4);
        return;
    }
    tabft_fail(&f, TABFT_INPUT, "table.tbf: is broken; pack it again");
    if (strcmp(how, "error") == 0) end_failed(c, &f);
}

static int run_die(char **arguments)
{
    const char *how = arguments[0], *where = arguments[1];
    int victim = atoi(arguments[2]);
    struct comm *c = NULL;
    struct tabft_failure f = {0};
    /* Before joining, a rank is known by the launcher's variables alone. */
    const char *rank = getenv("PMIX_RANK");
    const int early = rank != NULL && atoi(rank) == victim;
    if (strcmp(where, "start") == 0 && early) {
        /* srun ends a step by itself that loses a task before it knows all of them to be launched. */
        await_sign("launched");
        die(NULL, how);
    }
    if (strcmp(where, "init") == 0 && early) {
        /* Where the plugin cannot be found, opening stops half way. */
        const struct comm_options options = options_of(0, atoi(arguments[3]));
        if (setenv("TABFT_PLUGIN_PATH", "", 1) != 0 || comm_open(&c, &options, &f) == 0) return 1;
        die(c, how);
    }
    if (strcmp(where, "engine") == 0 && early) {
        if (setenv("NCCL_EMULATION_HANG", "1", 1) != 0) return 1;
        put_sign("died");
    }
    open_or_end(&c, 0, atoi(arguments[3]));
    if (victim < 0) victim = victim == -1 ? comm_size(c) - 1 : comm_size(c) / 2;
    const int dies = comm_rank(c) == victim;
    if (strcmp(where, "open") == 0 && dies) die(c, how);
    for (int i = 0; i < 3; i++)
        if (comm_barrier(c, &f) < 0) end_failed(c, &f);
    if (strcmp(where, "collective") == 0) {
        if (dies) {
            usleep(300000);
            die(c, how);
        }
        if (comm_barrier(c, &f) < 0) end_failed(c, &f);
    }
    if (strcmp(where, "close") == 0 && dies) {
        usleep(300000);
        die(c, how);
    }
    comm_close(c);
    return 0;
}

static int run_differ(char **arguments)
{
    struct comm *c = NULL;
    struct tabft_failure f = {0};
    open_or_end(&c, 0, 300);
    const char *value = comm_rank(c) == atoi(arguments[0]) ? "sha256:2222" : "sha256:1111";
    if (comm_check_equal(c, "the data digest", value, &f) < 0) end_failed(c, &f);
    comm_close(c);
    return 0;
}

/* Processor time of this process, all threads. */
static double seconds_used(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static int run_idle(char **arguments)
{
    struct comm *c = NULL;
    struct tabft_failure f = {0};
    double *used = NULL;
    int error = 0;
    open_or_end(&c, 0, 300);
    TRY(memory_new(&used, (size_t)comm_size(c), sizeof *used, "shares", &f));
    TRY(comm_barrier(c, &f));
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    const double before = seconds_used();
    if (comm_rank(c) == 0) sleep((unsigned)atoi(arguments[0]));
    TRY(comm_barrier(c, &f));
    clock_gettime(CLOCK_MONOTONIC, &to);
    const double own = (seconds_used() - before) /
                       ((double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    TRY(comm_gather_all(c, &own, sizeof own, used, &f));
    double most = 0;
    for (int r = 1; r < comm_size(c); r++) most = used[r] > most ? used[r] : most;
    if (comm_rank(c) == 0) printf("%.3f\n", most);
    free(used);
    comm_close(c);
    return 0;
fail:
    end_failed(c, &f);
    return error;
}

int main(int count, char **arguments)
{
    static char text[2048];
    char pid[24];
    (void)snprintf(pid, sizeof pid, "%ld", (long)getpid());
    put_sign(pid);
    if (count >= 5 && strcmp(arguments[1], "sum") == 0) return run_sum(arguments + 2);
    if (count == 6 && strcmp(arguments[1], "die") == 0) return run_die(arguments + 2);
    if (count == 3 && strcmp(arguments[1], "differ") == 0) return run_differ(arguments + 2);
    if (count == 3 && strcmp(arguments[1], "idle") == 0) return run_idle(arguments + 2);
    if (count == 2 && strcmp(arguments[1], "describe") == 0) {
        comm_describe(text, sizeof text);
        printf("%s", text);
        return 0;
    }
    fprintf(stderr, "rank_program: see its source for the arguments\n");
    return 2;
}
