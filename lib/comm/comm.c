/* Joining and leaving, and the collectives over whatever engine there is. */
#include "comm/comm.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/comm_internal.h"
#include "config.h"

enum { DEFAULT_TIMEOUT_S = 300, LARGEST_CHUNK = 0x7fffffff, DEFAULT_CHUNK = 1 << 30 };

struct comm {
    int rank, size, local_rank, timeout_s;
    char host[COMM_HOST_SIZE];
    char libraries[384];
    struct launcher *launcher; /* NULL: a single process */
    struct watch *watch;       /* NULL: a single process */
    const struct comm_engine *engine;
    void *engine_state;
    bool engine_is_open;
};

/* ---- joining and leaving ---- */

static const char *engine_name(const struct comm *c, const struct comm_options *options)
{
    if (options->engine != NULL && strcmp(options->engine, "auto") != 0) return options->engine;
    return c->size == 1 ? "self" : options->gpus ? "nccl" : "mpi";
}

/* First of all the connections to the neighbours: from then on a rank that ends is noticed, whatever it was at. */
static int join(struct comm *c, const struct comm_options *options, struct tabft_failure *f)
{
    int error = 0;
    char agreement[128];
    TRY(launcher_join(&c->launcher, f));
    c->rank = launcher_rank(c->launcher);
    c->size = launcher_size(c->launcher);
    c->local_rank = launcher_local_rank(c->launcher);
    (void)snprintf(c->libraries, sizeof c->libraries, "%s", launcher_version(c->launcher));
    const struct watch_options watch = {.rank = c->rank,
                                        .size = c->size,
                                        .timeout_s = c->timeout_s,
                                        .host = c->host,
                                        .launcher = c->launcher,
                                        .last_words = options->last_words,
                                        .last_words_context = options->last_words_context};
    (void)snprintf(agreement, sizeof agreement, "tabft-%s,engine=%s,comm-timeout=%d", PACKAGE_VERSION,
                   engine_name(c, options), c->timeout_s);
    TRY(watch_open(&c->watch, &watch, f));
    watch_limit(c->watch, "joining");
    if (c->size > 1) TRY(watch_connect(c->watch, agreement, f));
    watch_relax(c->watch);
fail:
    return error;
}

static int engine_choose(struct comm *c, const struct comm_options *options, struct tabft_failure *f)
{
    int error = 0;
    const char *name = engine_name(c, options);
    if (strcmp(name, "self") == 0 && c->size > 1)
        FAIL(f, TABFT_USE, "engine self carries one rank, the launcher started %d; use --engine %s or one rank",
             c->size, options->gpus ? "nccl" : "mpi");
    TRY(engine_open(name, &c->engine, f));
    if (options->gpus && !comm_takes_device(c))
        FAIL(f, TABFT_USE, "engine %s carries no memory of GPUs between %d ranks; use --engine nccl, or one rank", name,
             c->size);
fail:
    return error;
}

/* Where ranks fail with one message, one line is enough: higher ranks give lower ones the time to speak and to tell
 * them. Seconds, less than the watchdog's grace. */
static double turn_to_speak(const struct comm *c) { return 0.05 * (c->rank < 40 ? c->rank : 40); }

/* Where all ranks fail at once: rank 0 speaks, and has a second for it on a busy machine. */
static void take_turn(const struct comm *c)
{
    const double turn = c->rank == 0 ? 0 : 0.9 + turn_to_speak(c);
    const struct timespec t = {(time_t)turn, (long)(1e9 * (turn - floor(turn)))};
    (void)nanosleep(&t, NULL);
    if (c->watch != NULL) watch_await_end(c->watch);
}

/* What a rank's engine has said, and where. */
struct words {
    char host[COMM_HOST_SIZE];
    struct comm_engine_words of;
};
enum { WORDS_SIZE = COMM_HOST_SIZE + COMM_ENGINE_UNIQUE + COMM_ENGINE_INVITATION + 8 };

/* As text: "host=unique=invitation", in which host names have no "=". */
static int read_words(struct words *w, const char *text)
{
    const size_t host = strcspn(text, "=");
    if (text[host] != '=' || host >= sizeof w->host) return -1;
    const char *unique = text + host + 1;
    const size_t n = strcspn(unique, "=");
    if (unique[n] != '=' || n >= sizeof w->of.unique || strlen(unique + n + 1) >= sizeof w->of.invitation) return -1;
    (void)snprintf(w->host, sizeof w->host, "%.*s", (int)host, text);
    (void)snprintf(w->of.unique, sizeof w->of.unique, "%.*s", (int)n, unique);
    (void)snprintf(w->of.invitation, sizeof w->of.invitation, "%s", unique + n + 1);
    return 0;
}

/* Two ranks of a host with one GPU would each plan for all of its memory, and NCCL carries none of them. */
static int compare_words(const struct comm *c, const struct words *all, struct tabft_failure *f)
{
    for (int i = 0; i < c->size; i++)
        for (int j = 0; j < i; j++) {
            if (all[i].of.unique[0] == '\0' || strcmp(all[i].of.unique, all[j].of.unique) != 0 ||
                strcmp(all[i].host, all[j].host) != 0)
                continue;
            take_turn(c);
            return tabft_fail(f, TABFT_USE,
                              "ranks %d and %d have one GPU, %s of %s; start as many ranks a node as it has GPUs, with "
                              "srun --gpus-per-task=1",
                              j, i, all[i].of.unique, all[i].host);
        }
    return 0;
}

/* Brings rank 0's invitation to all ranks; collective, and none goes on before all are there. Fails alike on all ranks
 * where two have what should be a rank's own. */
static int share_words(struct comm *c, struct comm_engine_words *words, struct tabft_failure *f)
{
    int error = 0;
    char text[WORDS_SIZE];
    struct words *all = NULL;
    (void)snprintf(text, sizeof text, "%s=%s=%s", c->host, words->unique, words->invitation);
    TRY(memory_new(&all, (size_t)c->size, sizeof *all, "the engine's words", f));
    TRY(launcher_say(c->launcher, text, f));
    for (int r = 0; r < c->size; r++) {
        TRY(launcher_said(c->launcher, r, text, sizeof text, f));
        if (read_words(&all[r], text) < 0)
            FAIL(f, TABFT_SYSTEM, "PMIx, the engine's words: rank %d's are not what TabFT writes", r);
    }
    TRY(compare_words(c, all, f));
    *words = all[0].of;
fail:
    free(all);
    return error;
}

static int engine_start(struct comm *c, size_t chunk, struct tabft_failure *f)
{
    int error = 0;
    char message[COMM_ENGINE_MESSAGE] = "", version[256] = "";
    struct comm_engine_words words = {"", ""};
    const struct comm_engine_place place = {
        .rank = c->rank, .size = c->size, .local_rank = c->local_rank, .chunk = chunk};
    if (c->watch != NULL) watch_limit(c->watch, "starting the engine");
    c->engine->prepare();
    if (c->engine->open(&c->engine_state, &place, &words, message) < 0)
        FAIL(f, TABFT_SYSTEM, "engine %s: %s", c->engine->name, message);
    c->engine_is_open = true;
    if (c->size > 1 && c->engine->invites) TRY(share_words(c, &words, f));
    else if (c->size > 1) TRY(launcher_meet(c->launcher, f));
    if (c->engine->ready(c->engine_state, words.invitation, message) < 0)
        FAIL(f, TABFT_SYSTEM, "engine %s: %s", c->engine->name, message);
    if (c->watch != NULL) watch_relax(c->watch);
    if (c->engine != &comm_engine_self) {
        const size_t n = strlen(c->libraries);
        c->engine->version(version, sizeof version);
        (void)snprintf(c->libraries + n, sizeof c->libraries - n, "%s%s", n > 0 ? "; " : "", version);
    }
fail:
    return error;
}

int comm_open(struct comm **out, const struct comm_options *options, struct tabft_failure *f)
{
    int error = 0;
    bool pmix = false;
    struct comm *c = NULL;
    *out = NULL;
    const size_t chunk = options->chunk_bytes == 0 ? DEFAULT_CHUNK : options->chunk_bytes;
    if (options->timeout_s < 0) FAIL(f, TABFT_USE, "--comm-timeout %d: seconds, at least 1", options->timeout_s);
    if (chunk > LARGEST_CHUNK) FAIL(f, TABFT_USE, "pieces of %zu bytes are more than an engine takes", chunk);
    TRY(launcher_detect(&pmix, f));
    TRY(memory_new(&c, 1, sizeof *c, "the ranks", f));
    *out = c;
    c->size = 1;
    c->timeout_s = options->timeout_s == 0 ? DEFAULT_TIMEOUT_S : options->timeout_s;
    launcher_host(c->host);
    if (pmix) TRY(join(c, options, f));
    TRY(engine_choose(c, options, f));
    TRY(engine_start(c, chunk, f));
fail:
    return error;
}

int comm_rank(const struct comm *c) { return c == NULL ? 0 : c->rank; }
int comm_size(const struct comm *c) { return c == NULL ? 1 : c->size; }
int comm_local_rank(const struct comm *c) { return c == NULL ? 0 : c->local_rank; }
const char *comm_host(const struct comm *c) { return c == NULL ? "localhost" : c->host; }
const char *comm_engine(const struct comm *c) { return c == NULL || c->engine == NULL ? "self" : c->engine->name; }
bool comm_takes_device(const struct comm *c) { return comm_size(c) == 1 || c->engine->device_memory; }
const char *comm_libraries(const struct comm *c) { return c == NULL ? "" : c->libraries; }

const char *comm_launcher(const struct comm *c)
{
    if (c == NULL || c->launcher == NULL) return "none";
    return launcher_is_slurm(c->launcher) ? "pmix (slurm)" : "pmix";
}

void comm_describe(char *text, size_t size)
{
    char pmix[512], mpi[512], nccl[512];
    launcher_describe(pmix, sizeof pmix);
    engine_describe("mpi", mpi, sizeof mpi);
    engine_describe("nccl", nccl, sizeof nccl);
    (void)snprintf(text, size, "  launcher pmix: %s\n  engine self: built in\n  engine mpi: %s\n  engine nccl: %s\n",
                   pmix, mpi, nccl);
}

void comm_abort(struct comm *c, int status)
{
    struct tabft_failure ignored = {0};
    struct launcher *launcher = c == NULL ? NULL : c->launcher;
    bool pmix = false;
    if (status == 0) status = 5;
    /* A rank that fails before it has joined joins now, to end those that would wait for it. */
    if (launcher == NULL && (launcher_detect(&pmix, &ignored) < 0 || !pmix || launcher_join(&launcher, &ignored) < 0))
        launcher = NULL;
    watch_abort(c == NULL ? NULL : c->watch, launcher, status);
}

void comm_close(struct comm *c)
{
    if (c == NULL) return;
    if (c->watch != NULL) watch_limit(c->watch, "the end of the run");
    if (c->engine_is_open) c->engine->close(c->engine_state);
    if (c->watch != NULL) watch_goodbye(c->watch);
    launcher_leave(c->launcher);
    watch_close(c->watch);
    free(c);
}

/* ---- waiting ---- */

/* Between two looks: yield while an answer is near, then sleep longer and longer, so that ranks that wait leave the
 * processors to those that work. */
static void back_off(double idle)
{
    struct timespec t = {0, 50000};
    if (idle < 0.0005) {
        (void)sched_yield();
        return;
    }
    if (idle > 0.1) t.tv_nsec = 1000000;
    (void)nanosleep(&t, NULL);
}

/* An engine that lost a rank seldom says which. The watchdog knows soon and then ends this process with the name; also where
 * a GPU failed as it reached into the memory of another that is gone. */
static int engine_failed(const struct comm *c, int how, const char *what, const char *message, struct tabft_failure *f)
{
    const struct timespec t = {2, 0};
    if (c->watch != NULL) (void)nanosleep(&t, NULL);
    return tabft_fail(f, how == COMM_ENGINE_OWN ? TABFT_SYSTEM : TABFT_PEER, "%s: engine %s: %s", what, c->engine->name,
                      message);
}

static int wait_done(struct comm *c, const char *what, struct tabft_failure *f)
{
    char message[COMM_ENGINE_MESSAGE] = "", late[256] = "";
    bool done = false, moved = false;
    /* `waited` grows by at most a second a look: a job that was suspended is not late. */
    double last = comm_now(), waited = 0, idle = 0;
    for (;;) {
        const int how = c->engine->test(c->engine_state, &done, &moved, message);
        if (how < 0) return engine_failed(c, how, what, message, f);
        if (done) return 0;
        const double t = comm_now(), passed = t - last < 1 ? t - last : 1;
        last = t;
        waited += passed;
        idle = moved ? 0 : idle + passed;
        if (waited > c->timeout_s + turn_to_speak(c)) break;
        back_off(idle);
    }
    if (c->watch != NULL) watch_suspect(c->watch, late, sizeof late);
    return tabft_fail(f, TABFT_PEER, "waited %d s for the other ranks: %s%s; all ranks end (--comm-timeout)",
                      c->timeout_s, what, late);
}

/* What every collective does around its start: count it, bound it, wait. */
static void collective_begin(struct comm *c, const char *what)
{
    if (c->watch == NULL) return;
    watch_advance(c->watch);
    watch_limit(c->watch, what);
}

static int collective_end(struct comm *c, int started, const char *what, const char *message, struct tabft_failure *f)
{
    int error = 0;
    if (started < 0) TRY(engine_failed(c, started, what, message, f));
    TRY(wait_done(c, what, f));
fail:
    if (error < 0 && c->engine->give_up != NULL) c->engine->give_up(c->engine_state);
    if (error < 0 && c->watch != NULL) watch_await_end(c->watch);
    if (c->watch != NULL) watch_relax(c->watch);
    return error;
}

/* ---- collectives; with one rank all is in place already ---- */

int comm_barrier(struct comm *c, struct tabft_failure *f)
{
    static const char what[] = "barrier";
    char message[COMM_ENGINE_MESSAGE] = "";
    if (comm_size(c) == 1) return 0;
    collective_begin(c, what);
    return collective_end(c, c->engine->barrier(c->engine_state, message), what, message, f);
}

int comm_broadcast(struct comm *c, void *data, size_t bytes, int root, struct tabft_failure *f)
{
    static const char what[] = "broadcast";
    char message[COMM_ENGINE_MESSAGE] = "";
    if (comm_size(c) == 1) return 0;
    collective_begin(c, what);
    return collective_end(c, c->engine->broadcast(c->engine_state, data, bytes, root, message), what, message, f);
}

/* The own part is in place. */
static int gather_all(struct comm *c, const size_t *bytes, void *receive, bool device, struct tabft_failure *f)
{
    static const char what[] = "all-gather";
    char message[COMM_ENGINE_MESSAGE] = "";
    if (comm_size(c) == 1) return 0;
    collective_begin(c, what);
    const int started = c->engine->gather_all(c->engine_state, bytes, receive, device, message);
    return collective_end(c, started, what, message, f);
}

int comm_gather_all_v(struct comm *c, const void *send, const size_t *bytes, void *receive, struct tabft_failure *f)
{
    size_t offset = 0;
    for (int r = 0; r < comm_rank(c); r++) offset += bytes[r];
    char *own = (char *)receive + offset;
    if (bytes[comm_rank(c)] > 0 && own != send) memcpy(own, send, bytes[comm_rank(c)]);
    return gather_all(c, bytes, receive, false, f);
}

int comm_gather_all_device(struct comm *c, const size_t *bytes, void *values, struct tabft_failure *f)
{
    return gather_all(c, bytes, values, true, f);
}

int comm_gather_all(struct comm *c, const void *send, size_t bytes, void *receive, struct tabft_failure *f)
{
    int error = 0;
    size_t *all = NULL;
    TRY(memory_new(&all, (size_t)comm_size(c), sizeof *all, "an all-gather", f));
    for (int r = 0; r < comm_size(c); r++) all[r] = bytes;
    TRY(comm_gather_all_v(c, send, all, receive, f));
fail:
    free(all);
    return error;
}

/* The part to oneself is in place. */
static int exchange(struct comm *c, const void *send, const size_t *send_bytes, const size_t *send_offset,
                    void *receive, const size_t *receive_bytes, const size_t *receive_offset, bool device,
                    struct tabft_failure *f)
{
    static const char what[] = "exchange";
    char message[COMM_ENGINE_MESSAGE] = "";
    if (comm_size(c) == 1) return 0;
    collective_begin(c, what);
    const int started = c->engine->exchange(c->engine_state, send, send_bytes, send_offset, receive, receive_bytes,
                                            receive_offset, device, message);
    return collective_end(c, started, what, message, f);
}

int comm_exchange(struct comm *c, const void *send, const size_t *send_bytes, const size_t *send_offset, void *receive,
                  const size_t *receive_bytes, const size_t *receive_offset, struct tabft_failure *f)
{
    const int own = comm_rank(c);
    if (send_bytes[own] != receive_bytes[own])
        return tabft_fail(f, TABFT_SYSTEM, "exchange: rank %d sends itself %zu bytes and expects %zu", own,
                          send_bytes[own], receive_bytes[own]);
    if (send_bytes[own] > 0)
        memcpy((char *)receive + receive_offset[own], (const char *)send + send_offset[own], send_bytes[own]);
    return exchange(c, send, send_bytes, send_offset, receive, receive_bytes, receive_offset, false, f);
}

int comm_exchange_device(struct comm *c, const void *send, const size_t *send_bytes, const size_t *send_offset,
                         void *receive, const size_t *receive_bytes, const size_t *receive_offset,
                         struct tabft_failure *f)
{
    return exchange(c, send, send_bytes, send_offset, receive, receive_bytes, receive_offset, true, f);
}

/* ---- agreements ---- */

/* Larger is worse; see comm.h. */
static int badness(int code)
{
    switch (code) {
    case TABFT_OK: return 0;
    case TABFT_STOPPED: return 1;
    case TABFT_PEER: return 2;
    case TABFT_NOT_HELD: return 3;
    case TABFT_USE: return 4;
    case TABFT_INPUT: return 5;
    default: return 6;
    }
}

int comm_agree(struct comm *c, int code, int *agreed, struct tabft_failure *f)
{
    int error = 0;
    int32_t *codes = NULL;
    const int32_t own = code;
    TRY(memory_new(&codes, (size_t)comm_size(c), sizeof *codes, "an agreement", f));
    TRY(comm_gather_all(c, &own, sizeof own, codes, f));
    *agreed = 0;
    for (int r = 0; r < comm_size(c); r++)
        if (badness(codes[r]) > badness(*agreed)) *agreed = codes[r];
fail:
    free(codes);
    return error;
}

/* What a rank shows of its value: all of a short one; the beginning, length and a hash of a long one. */
struct shown {
    uint64_t length, hash;
    char text[176];
    char host[COMM_HOST_SIZE];
};

int comm_check_equal(struct comm *c, const char *name, const char *value, struct tabft_failure *f)
{
    int error = 0;
    struct shown own = {.hash = 0xcbf29ce484222325u};
    struct shown *all = NULL;
    own.length = strlen(value);
    for (const char *p = value; *p; p++) own.hash = (own.hash ^ (unsigned char)*p) * 0x100000001b3u; /* FNV-1a */
    const size_t most = sizeof own.text - sizeof "...";
    (void)snprintf(own.text, sizeof own.text, "%.*s%s", (int)most, value, own.length > most ? "..." : "");
    (void)snprintf(own.host, sizeof own.host, "%s", comm_host(c));
    TRY(memory_new(&all, (size_t)comm_size(c), sizeof *all, "an agreement", f));
    TRY(comm_gather_all(c, &own, sizeof own, all, f));
    for (int r = 1; r < comm_size(c); r++) {
        const bool same_text = strcmp(all[r].text, all[0].text) == 0;
        if (same_text && all[r].length == all[0].length && all[r].hash == all[0].hash) continue;
        take_turn(c);
        if (!same_text)
            FAIL(f, TABFT_USE, "%s differs: '%s' on rank 0 (%s), '%s' on rank %d (%s); give all ranks the same", name,
                 all[0].text, all[0].host, all[r].text, r, all[r].host);
        FAIL(f, TABFT_USE,
             "%s differs: %llu bytes with hash %016llx on rank 0 (%s), %llu with %016llx on rank %d (%s), "
             "both beginning '%s'; give all ranks the same",
             name, (unsigned long long)all[0].length, (unsigned long long)all[0].hash, all[0].host,
             (unsigned long long)all[r].length, (unsigned long long)all[r].hash, r, all[r].host, all[0].text);
    }
fail:
    free(all);
    return error;
}
