/* One user of a folder at a time, across processes, nodes and reboots, without flock (which shared file systems may
 * not carry) and without comparing clocks.
 *
 * A lock is a file ".lock-N" that is published whole and never replaced. It says which process of which kernel holds
 * it, for which batch job, and a number in it moves every few seconds while that process lives. A lock whose holder
 * is gone is not removed first: its successor creates ".lock-<N+1>", which only one can do, and then removes it.
 * Gone is a holder
 * - of this kernel and process namespace whose process is no longer there,
 * - of an earlier attempt of the same batch job (a requeued job starts when its last process has ended),
 * - whose number stands still for `stale_ms`, by the clock of who watches it.
 * The last may also be a process that was suspended for so long: it finds that out by file_lock_check. */
#ifndef TABFT_FILE_LOCK_H
#define TABFT_FILE_LOCK_H

#include <stdint.h>

#include "base/failure.h"

struct file_lock;

struct file_lock_rules {
    const char *job; /* what the batch system calls this job, with its cluster; "" or NULL where there is none */
    uint64_t attempt; /* how often the job was started before */
    unsigned beat_ms, stale_ms; /* 0: 5 s and 45 s; all users of a folder have the same */
    void (*say)(void *context, const char *line); /* a wait, a lock taken over; may be NULL */
    void *context;
};

/* Takes the lock of a folder that exists, at most after stale_ms. Errors: TABFT_USE where a living process holds it,
 * with host, process and job; TABFT_INPUT for a file of that name that is no lock; TABFT_SYSTEM. */
int file_lock_take(struct file_lock **out, const char *folder, const struct file_lock_rules *rules,
                   struct tabft_failure *f) TABFT_MUST_CHECK;
/* Still the holder? TABFT_USE where another has taken over, with its host, process and job. */
int file_lock_check(struct file_lock *l, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Ends the lock and frees l. Also a signal that ends the process removes it. NULL is fine. */
void file_lock_release(struct file_lock *l);

#endif
