/* Ranks and bytes: who is there (PMIx or a single process), collectives through an engine (self, mpi, later nccl), a
 * watchdog, and how a failing rank ends the others. Nothing here knows gradients; reduce.h adds the fixed-shape sum. */
#ifndef TABFT_COMM_COMM_H
#define TABFT_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct comm;

struct comm_options {
    const char *engine;  /* "auto", "self", "mpi" */
    int timeout_s;       /* a collective that takes longer ends the run (--comm-timeout) */
};

/* Finds the launcher, joins the ranks, opens the engine. Refuses (TABFT_USE) what cannot be meant: SLURM_STEP_NUM_TASKS > 1
 * without a PMIx server ("add --mpi=pmix"), several ranks without an engine that carries them. */
int comm_open(struct comm **out, const struct comm_options *options, struct tabft_failure *f) TABFT_MUST_CHECK;
int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);       /* world size */
int comm_local_rank(const struct comm *c); /* among the ranks of this node */
const char *comm_engine(const struct comm *c);
const char *comm_launcher(const struct comm *c); /* "pmix (slurm)", "pmix", "none" */

/* Collectives: every rank calls the same ones in the same order with matching sizes. Buffers are host memory. */
int comm_barrier(struct comm *c, struct tabft_failure *f) TABFT_MUST_CHECK;
int comm_broadcast(struct comm *c, void *data, size_t bytes, int root, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Every rank gives `bytes`, gets size*bytes in rank order. */
int comm_gather_all(struct comm *c, const void *send, size_t bytes, void *receive, struct tabft_failure *f) TABFT_MUST_CHECK;
/* As gather_all with own sizes: rank r gives bytes[r]; offsets are the running sums. */
int comm_gather_all_v(struct comm *c, const void *send, const size_t *bytes, void *receive, struct tabft_failure *f) TABFT_MUST_CHECK;
/* To rank r go send_bytes[r] bytes at send + send_offset[r]; likewise received. Sizes beyond 2^31 are handled. */
int comm_exchange(struct comm *c, const void *send, const size_t *send_bytes, const size_t *send_offset,
                  void *receive, const size_t *receive_bytes, const size_t *receive_offset, struct tabft_failure *f) TABFT_MUST_CHECK;

/* The agreement: `code` of the worst rank in *agreed on every rank (0 if all are 0); on a rank with code != 0 its message
 * is printed by the caller before. Used where a rank may have failed alone (loading, preprocessing). */
int comm_agree(struct comm *c, int code, int *agreed, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Ends all ranks with `status` (the caller has printed its line): PMIx_Abort, engine abort, _exit. Does not return. */
void comm_abort(struct comm *c, int status) __attribute__((noreturn));
/* Clean end; every rank calls it. NULL is fine. */
void comm_close(struct comm *c);

#endif
