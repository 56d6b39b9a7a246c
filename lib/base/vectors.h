/* Flat vectors of floats in the memory that a run computes in: the host's, or a GPU's. What a step does to gradients,
 * weights and moments outside of networks, as a table of functions that a backend fills. The host's is here.
 *
 * The bits are part of the contract, so that they do not depend on who computes: every operation is single additions,
 * subtractions, multiplications, divisions and square roots in the order written here, each rounded to its own type by
 * itself (to nearest, ties to even; no fused multiply-add, no flushing of subnormal numbers, no approximate division or
 * square root). For nvcc that means __fmul_rn and its like, or -fmad=false -prec-div=true -prec-sqrt=true -ftz=false.
 *
 * Operations run in the order in which they are called, maybe later than the call: what they write may be looked at
 * from outside (also by another library that was given the pointer) only after `finish`, and what copy_in reads must
 * stay as it is until then. Errors of operations surface in `finish`. Counts may be 0. Vectors of one operation do not
 * overlap. Not thread safe: one table, one user. */
#ifndef TABFT_BASE_VECTORS_H
#define TABFT_BASE_VECTORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"

struct threads;

/* Squares are summed over blocks of so many floats. */
enum { VECTORS_BLOCK = 1024 };

/* One step of AdamW over `count` parameters, every number in float32, with g, m, v of one element:
 *   g = gradient * clip
 *   m = moment1 + blend1 * (g - moment1)            stored as moment1
 *   v = moment2 * keep2 + (blend2 * g) * g          stored as moment2
 *   weights = weights * keep - (rate * m) / (sqrt(v) / root2 + epsilon) */
struct vectors_adamw {
    size_t count;
    float keep, clip, blend1, keep2, blend2, root2, epsilon, rate;
    float *weights, *moment1, *moment2;
    const float *gradient;
};

struct vectors {
    void *state;
    bool host; /* the memory is the host's: after `finish`, pointers into it may be read and written directly */

    /* Memory, aligned to 64 bytes, with any content; *out is never NULL on success. `what` names it in the message.
     * Errors: TABFT_SYSTEM. memory_free waits for operations on it, or sees to it that those on what takes its place come
     * later; NULL is fine. */
    int (*memory_new)(void *state, void **out, size_t bytes, const char *what, struct tabft_failure *f);
    void (*memory_free)(void *state, void *memory);

    void (*copy_in)(void *state, void *to, const void *from, size_t bytes);  /* from the host */
    void (*copy_out)(void *state, void *to, const void *from, size_t bytes); /* to the host */
    void (*copy)(void *state, void *to, const void *from, size_t bytes);     /* within the memory */
    void (*zero)(void *state, void *to, size_t bytes);
    void (*add)(void *state, float *to, const float *from, size_t count); /* to[i] += from[i] */
    /* sums[b], b < blocks of VECTORS_BLOCK (the last may be shorter): of block b's squares, in float64. x[i] squared goes
     * to lane i % 8 (both factors are made float64 first); a lane adds in ascending order, beginning with 0; the sum is
     * ((lane 0 + lane 1) + (lane 2 + lane 3)) + ((lane 4 + lane 5) + (lane 6 + lane 7)). `sums` lies in the memory. */
    void (*square_sums)(void *state, const float *x, size_t count, double *sums);
    void (*adamw)(void *state, const struct vectors_adamw *step);

    /* Waits until all is done. Errors: TABFT_SYSTEM, the first that any operation has met since the table was made. */
    int (*finish)(void *state, struct tabft_failure *f);
};

/* The host's: on the threads of `pool` (NULL: the caller alone), which is borrowed. Operations are done when they
 * return; bits do not depend on the number of threads. Nothing has to be closed. */
void vectors_host(struct vectors *out, struct threads *pool);

#endif
