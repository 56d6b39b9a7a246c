/* Ranks and bytes: who is there (PMIx or a single process), collectives through an engine (self, mpi, nccl), a watchdog,
 * and how a failing rank ends the others. Nothing here knows gradients; reduce.h adds the fixed-shape sum.
 *
 * Environment that is read: PMIX_NAMESPACE (a PMIx server is there: srun --mpi=pmix, Open MPI's mpirun, prterun),
 * SLURM_STEP_NUM_TASKS, PMI_SIZE and OMPI_COMM_WORLD_SIZE (a launcher that meant several ranks), SLURMD_NODENAME
 * (the node's name in messages), and what base/plugin.h reads to find engines.
 *
 * Threads: one struct comm is used by one thread (the one that opened it), but comm_abort may be called from any. */
#ifndef TABFT_COMM_COMM_H
#define TABFT_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct comm;

/* What to do before a rank ends because of another one: print `message` (one line, no newline; NULL where another rank
 * has spoken already), remove temporary files. Called at most once, from the watchdog's thread, while the main thread may
 * be anywhere; the process ends right after. */
typedef void comm_last_words(void *context, int rank, const char *host, const char *message);

struct comm_options {
    const char *engine; /* "auto" (also NULL): self for one rank, else mpi, or nccl with gpus; "self"; "mpi"; "nccl" */
    bool gpus;          /* the ranks compute on GPUs: several need an engine that takes their memory */
    int timeout_s;      /* joining or a collective that takes longer ends the run (--comm-timeout); 0: 300 */
    size_t chunk_bytes; /* largest piece handed to an engine at once; 0: 1 GiB; at most 2^31 - 1. Tests make it small */
    comm_last_words *last_words; /* NULL: "<program>: rank R (host): message" to stderr */
    void *last_words_context;
};

/* Finds the launcher, joins the ranks, opens the engine. Refuses (TABFT_USE) what cannot be meant:
 * SLURM_STEP_NUM_TASKS > 1 without a PMIx server ("add --mpi=pmix"), several ranks without an engine that carries
 * them, or the memory of their GPUs, two ranks with one GPU, neighbours of another version, engine or timeout. *out is
 * set on failure too (NULL where nothing was joined): print the message, then comm_abort(*out, status), which ends the
 * ranks that wait for this one. To be called before anything that may fail: a process that ends before its neighbours
 * know it is missed only by srun --kill-on-bad-exit=1, or when the others have waited for timeout_s. */
int comm_open(struct comm **out, const struct comm_options *options, struct tabft_failure *f) TABFT_MUST_CHECK;

/* All of these take NULL as a single process. */
int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);             /* world size */
int comm_local_rank(const struct comm *c);       /* among the ranks of this node */
const char *comm_host(const struct comm *c);     /* this node's name */
const char *comm_engine(const struct comm *c);   /* "self", "mpi", "nccl" */
const char *comm_launcher(const struct comm *c); /* "pmix (slurm)", "pmix", "none" */
/* The versions of what carries the ranks, one line: "PMIx 4.2.2; Open MPI v4.1.4"; "" for a single process without
 * launcher. */
const char *comm_libraries(const struct comm *c);

/* What this machine offers, for --version: lines "  name: what, where" about the PMIx library and the engines,
 * found without starting or joining anything. Writes at most `size` bytes including the 0. */
void comm_describe(char *text, size_t size);

/* Collectives: every rank calls the same ones in the same order with matching sizes. Buffers are host memory; send
 * and receive do not overlap except where said. Errors: TABFT_PEER when it took longer than the timeout or the
 * engine lost a rank; the message names the collective and a rank that is silent or behind where one is known.
 * After an error only comm_abort may follow. A rank that dies ends this process from the watchdog's thread (status
 * 5), wherever it is. */
int comm_barrier(struct comm *c, struct tabft_failure *f) TABFT_MUST_CHECK;
int comm_broadcast(struct comm *c, void *data, size_t bytes, int root, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Every rank gives `bytes`, gets size*bytes in rank order. `send` may be the own place in `receive`. */
int comm_gather_all(struct comm *c, const void *send, size_t bytes, void *receive,
                    struct tabft_failure *f) TABFT_MUST_CHECK;
/* As gather_all with own sizes: rank r gives bytes[r]; offsets are the running sums. */
int comm_gather_all_v(struct comm *c, const void *send, const size_t *bytes, void *receive,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
/* To rank r go send_bytes[r] bytes at send + send_offset[r]; likewise received. Sizes beyond 2^31 are handled. */
int comm_exchange(struct comm *c, const void *send, const size_t *send_bytes, const size_t *send_offset, void *receive,
                  const size_t *receive_bytes, const size_t *receive_offset, struct tabft_failure *f) TABFT_MUST_CHECK;

/* The same of memory that the engine sees and the host may not (a GPU's), where comm_takes_device says that it does.
 * Nothing may be under way on it. A rank's part for itself is not copied: the caller has put it in its place. */
bool comm_takes_device(const struct comm *c);
int comm_gather_all_device(struct comm *c, const size_t *bytes, void *values, struct tabft_failure *f) TABFT_MUST_CHECK;
int comm_exchange_device(struct comm *c, const void *send, const size_t *send_bytes, const size_t *send_offset,
                         void *receive, const size_t *receive_bytes, const size_t *receive_offset,
                         struct tabft_failure *f) TABFT_MUST_CHECK;

/* The agreement: the worst `code` of all ranks in *agreed on every rank (0 if all are 0); a rank with code != 0 has
 * printed its message before. Used where a rank may have failed alone (loading, preprocessing) and for stop
 * requests. Worst first: SYSTEM, INPUT, USE, NOT_HELD, PEER, STOPPED. */
int comm_agree(struct comm *c, int code, int *agreed, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Refuses (TABFT_USE, the same message on every rank, a little later on higher ones) unless all ranks give the same
 * text: version, options, digest of the data, instruction set. `name` says what it is ("the data digest"). The
 * message shows both values. */
int comm_check_equal(struct comm *c, const char *name, const char *value, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Ends all ranks with `status` (the caller has printed its line; 0 is made 5): the others are told, PMIx_Abort,
 * _exit. The first status of all ranks becomes the launcher's. NULL: a rank that failed before comm_open; where a
 * launcher is there it is told too. Does not return. */
void comm_abort(struct comm *c, int status) __attribute__((noreturn));
/* Clean end; every rank calls it and waits for the others in it. A rank that ends without it is taken for dead.
 * NULL is fine. */
void comm_close(struct comm *c);

#endif
