/* Vectors in memory that the host cannot read, as a GPU's: pointers into it are no addresses of the host's, and nothing
 * is done before `finish`. What is called is then done by the host's table. */
#ifndef TABFT_TESTS_VECTORS_FAR_H
#define TABFT_TESTS_VECTORS_FAR_H

#include <stdlib.h>
#include <string.h>

#include "base/vectors.h"

/* No address of a process has this bit. */
#define VECTORS_FAR ((uintptr_t)1 << 62)
static inline void *vectors_near(const void *far) { return (void *)((uintptr_t)far - VECTORS_FAR); }

enum vectors_far_kind { FAR_COPY, FAR_ZERO, FAR_ADD, FAR_SQUARES, FAR_ADAMW };
struct vectors_far_call {
    enum vectors_far_kind kind;
    void *to;
    const void *from;
    size_t n;
    struct vectors_adamw step;
};

struct vectors_far {
    struct vectors host;
    struct vectors_far_call *calls;
    size_t n_calls;
};

static inline struct vectors_far_call *vectors_far_note(void *state, enum vectors_far_kind kind, void *to,
                                                        const void *from, size_t n)
{
    struct vectors_far *v = state;
    v->calls = realloc(v->calls, (v->n_calls + 1) * sizeof *v->calls);
    if (v->calls == NULL) abort();
    v->calls[v->n_calls] = (struct vectors_far_call){.kind = kind, .to = to, .from = from, .n = n};
    return &v->calls[v->n_calls++];
}

static inline int vectors_far_finish(void *state, struct tabft_failure *f)
{
    struct vectors_far *v = state;
    for (size_t i = 0; i < v->n_calls; i++) {
        const struct vectors_far_call *c = &v->calls[i];
        switch (c->kind) {
        case FAR_COPY: v->host.copy(v->host.state, c->to, c->from, c->n); break;
        case FAR_ZERO: v->host.zero(v->host.state, c->to, c->n); break;
        case FAR_ADD: v->host.add(v->host.state, c->to, c->from, c->n); break;
        case FAR_SQUARES: v->host.square_sums(v->host.state, c->from, c->n, c->to); break;
        case FAR_ADAMW: v->host.adamw(v->host.state, &c->step); break;
        }
    }
    v->n_calls = 0;
    free(v->calls);
    v->calls = NULL;
    return v->host.finish(v->host.state, f);
}

static inline int vectors_far_new(void *state, void **out, size_t bytes, const char *what, struct tabft_failure *f)
{
    struct vectors_far *v = state;
    const int error = v->host.memory_new(v->host.state, out, bytes, what, f);
    if (error < 0) return error;
    memset(*out, 0xff, bytes);
    *out = (void *)((uintptr_t)*out + VECTORS_FAR);
    return 0;
}

static inline void vectors_far_free(void *state, void *memory)
{
    struct vectors_far *v = state;
    struct tabft_failure ignored = {0};
    (void)vectors_far_finish(v, &ignored);
    if (memory != NULL) v->host.memory_free(v->host.state, vectors_near(memory));
}

static inline void vectors_far_in(void *state, void *to, const void *from, size_t bytes)
{
    (void)vectors_far_note(state, FAR_COPY, vectors_near(to), from, bytes);
}
static inline void vectors_far_out(void *state, void *to, const void *from, size_t bytes)
{
    (void)vectors_far_note(state, FAR_COPY, to, vectors_near(from), bytes);
}
static inline void vectors_far_copy(void *state, void *to, const void *from, size_t bytes)
{
    (void)vectors_far_note(state, FAR_COPY, vectors_near(to), vectors_near(from), bytes);
}
static inline void vectors_far_zero(void *state, void *to, size_t bytes)
{
    (void)vectors_far_note(state, FAR_ZERO, vectors_near(to), NULL, bytes);
}
static inline void vectors_far_add(void *state, float *to, const float *from, size_t count)
{
    (void)vectors_far_note(state, FAR_ADD, vectors_near(to), vectors_near(from), count);
}
static inline void vectors_far_squares(void *state, const float *x, size_t count, double *sums)
{
    (void)vectors_far_note(state, FAR_SQUARES, vectors_near(sums), vectors_near(x), count);
}
static inline void vectors_far_adamw(void *state, const struct vectors_adamw *step)
{
    struct vectors_far_call *c = vectors_far_note(state, FAR_ADAMW, NULL, NULL, 0);
    c->step = *step;
    c->step.weights = vectors_near(step->weights);
    c->step.moment1 = vectors_near(step->moment1);
    c->step.moment2 = vectors_near(step->moment2);
    c->step.gradient = vectors_near(step->gradient);
}

/* `state` is the caller's, until the last operation. */
static inline void vectors_far(struct vectors *out, struct vectors_far *state, struct threads *pool)
{
    *state = (struct vectors_far){.calls = NULL};
    vectors_host(&state->host, pool);
    *out = (struct vectors){
        .state = state,
        .host = false,
        .memory_new = vectors_far_new,
        .memory_free = vectors_far_free,
        .copy_in = vectors_far_in,
        .copy_out = vectors_far_out,
        .copy = vectors_far_copy,
        .zero = vectors_far_zero,
        .add = vectors_far_add,
        .square_sums = vectors_far_squares,
        .adamw = vectors_far_adamw,
        .finish = vectors_far_finish,
    };
}

#endif
