/* A pool of threads for loops over blocks. Which thread takes which block is open; what a block computes must
 * depend on its number alone, so results never depend on the number of threads. */
#ifndef TABFT_BASE_THREADS_H
#define TABFT_BASE_THREADS_H

#include <stddef.h>

#include "base/failure.h"

struct threads;

/* One block: `block` in [0, n_blocks), `thread` in [0, threads_count) for scratch memory. Must not fail:
 * a loop that can fail records its failure in `context` per block and the caller looks after the loop. */
typedef void threads_body(void *context, size_t block, int thread);

/* Starts count-1 threads (the caller is one of them); count >= 1. Ended by threads_close. */
int threads_open(struct threads **out, int count, struct tabft_failure *f) TABFT_MUST_CHECK;
void threads_close(struct threads *pool); /* NULL is fine */
int threads_count(const struct threads *pool); /* 1 for NULL */

/* Runs body for all blocks and returns when the last is done. NULL pool: in the calling thread.
 * Not reentrant: a body does not call it on the same pool. */
void threads_run(struct threads *pool, size_t n_blocks, threads_body *body, void *context);

/* The number of CPUs this process may use: affinity mask, bounded by SLURM_CPUS_PER_TASK where Slurm sets it.
 * What `--threads 0` means. */
int threads_default_count(void);

#endif
