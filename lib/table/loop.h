/* Failures in parallel loops: of all blocks that failed, the one with the lowest number is kept, so that the message
 * does not depend on threads. */
#ifndef TABFT_TABLE_LOOP_H
#define TABFT_TABLE_LOOP_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct loop_failure {
    pthread_mutex_t lock;
    size_t block;
    struct tabft_failure failure;
};

static inline void loop_failure_open(struct loop_failure *l)
{
    pthread_mutex_init(&l->lock, NULL);
    l->block = SIZE_MAX;
    l->failure = (struct tabft_failure){0};
}

/* In a body, after block `block` failed with `f`. Thread safe. */
static inline void loop_failure_keep(struct loop_failure *l, size_t block, const struct tabft_failure *f)
{
    pthread_mutex_lock(&l->lock);
    if (l->failure.code == 0 || block < l->block) {
        l->block = block;
        l->failure = *f;
    }
    pthread_mutex_unlock(&l->lock);
}

/* After the loop: 0, or the failure passed on to f. */
static inline int loop_failure_close(struct loop_failure *l, struct tabft_failure *f)
{
    pthread_mutex_destroy(&l->lock);
    if (l->failure.code == 0) return 0;
    return tabft_fail(f, l->failure.code, "%s", l->failure.message);
}

#endif
