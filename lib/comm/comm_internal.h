/* What the files of lib/comm share; nobody else includes it. */
#ifndef TABFT_COMM_COMM_INTERNAL_H
#define TABFT_COMM_COMM_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/failure.h"
#include "comm/comm.h"
#include "comm/engine.h"

/* Seconds of CLOCK_MONOTONIC. */
static inline double comm_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { COMM_HOST_SIZE = 64, COMM_CARD_SIZE = 1024 };

/* ---- launcher.c: who started us; the PMIx client, opened at run time ---- */
struct launcher;

/* Refuses launches that meant several ranks but give this process no way to see them; *pmix says whether to join. */
int launcher_detect(bool *pmix, struct tabft_failure *f) TABFT_MUST_CHECK;
/* This node's name: what Slurm calls it, else the host name's first part. */
void launcher_host(char host[COMM_HOST_SIZE]);
/* Opens libpmix.so.2 with local symbols and joins. */
int launcher_join(struct launcher **out, struct tabft_failure *f) TABFT_MUST_CHECK;
int launcher_rank(const struct launcher *l);
int launcher_size(const struct launcher *l);
int launcher_local_rank(const struct launcher *l);
bool launcher_is_slurm(const struct launcher *l);
/* Waits until every rank calls it. */
int launcher_meet(struct launcher *l, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Gives `card` to the others (put, commit, fence; the fence waits for all ranks), then anybody's can be had. */
int launcher_publish(struct launcher *l, const char *card, struct tabft_failure *f) TABFT_MUST_CHECK;
int launcher_card(struct launcher *l, int rank, char card[COMM_CARD_SIZE], struct tabft_failure *f) TABFT_MUST_CHECK;
/* The same for what engines have to tell each other; `size` bytes with the 0. */
int launcher_say(struct launcher *l, const char *words, struct tabft_failure *f) TABFT_MUST_CHECK;
int launcher_said(struct launcher *l, int rank, char *words, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Asks the launcher to end all ranks with `status`. May block; may not return. */
void launcher_abort(struct launcher *l, int status);
void launcher_leave(struct launcher *l); /* NULL is fine */
/* "PMIx 4.2.2, /usr/lib/…/libpmix.so.2" or why not; joins nothing. */
void launcher_describe(char *text, size_t size);
const char *launcher_version(const struct launcher *l);

/* ---- engines.c: engines by name ---- */
extern const struct comm_engine comm_engine_self;

/* The engine of `name`; a plugin stays loaded until the process ends. TABFT_USE when there is none. */
int engine_open(const char *name, const struct comm_engine **out, struct tabft_failure *f) TABFT_MUST_CHECK;
void engine_describe(const char *name, char *text, size_t size);

/* ---- watch.c: the ring of connections between neighbours and the thread that watches it ---- */
struct watch;

struct watch_options {
    int rank, size, timeout_s;
    const char *host; /* copied */
    struct launcher *launcher;
    comm_last_words *last_words;
    void *last_words_context;
};

/* Starts the watchdog's thread (also for one rank: it bounds what blocks). */
int watch_open(struct watch **out, const struct watch_options *options, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Meets the neighbours: publishes this rank's address, connects to the next rank, is connected to by the previous one.
 * Neighbours must have the same `agreement` (version, engine; a text without spaces). */
int watch_connect(struct watch *w, const char *agreement, struct tabft_failure *f) TABFT_MUST_CHECK;
/* From now on `what` may take the timeout (plus a grace: the caller's own limit comes first); then the run ends.
 * watch_relax takes the limit away. */
void watch_limit(struct watch *w, const char *what);
void watch_relax(struct watch *w);
/* Counts the collectives of this rank, so that neighbours can tell who is behind. */
void watch_advance(struct watch *w);
/* What is known about why others are late: "; rank 3 on n4 has been silent for 12 s" or "". */
void watch_suspect(struct watch *w, char *text, size_t size);
/* Where another rank has spoken and this process ends with it: waits for that, so that nothing more is said. Returns
 * otherwise. */
void watch_await_end(struct watch *w);
/* Tells the neighbours that this rank is done; their connections may end from now on. */
void watch_goodbye(struct watch *w);
/* Tells everyone, PMIx_Abort, _exit: the one place below bin/ that ends the process. `w` NULL: before there was a
 * watchdog; `launcher` NULL too: before anything was joined. */
void watch_abort(struct watch *w, struct launcher *launcher, int status) __attribute__((noreturn));
void watch_close(struct watch *w); /* NULL is fine */

#endif
