/* What the unit tests compute networks with. */
#ifndef TABFT_TESTS_UNIT_BACKEND_H
#define TABFT_TESTS_UNIT_BACKEND_H

#include "tensor/cpu/cpu.h"
#include "unit.h"

/* The CPU's backend on the threads of `pool` (NULL: one), for calls that borrow it. It stays open until the test ends.
 */
static inline const struct tensor_backend *unit_cpu(struct threads *pool)
{
    struct opened {
        struct tensor_backend backend;
        struct opened *before;
    };
    static struct opened *last;
    struct tabft_failure f = {0};
    struct opened *o = malloc(sizeof *o);
    ck_assert_ptr_nonnull(o);
    MUST(cpu_backend_open(&o->backend, pool, &f));
    o->before = last;
    last = o;
    return &o->backend;
}

#endif
