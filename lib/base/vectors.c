#include "base/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"

/* Elements that a thread takes at a time: elementwise work shows nothing of it. */
enum { PIECE = 1 << 15, PIECE_ADAMW = 1 << 14 };

static size_t blocks_of(size_t count, size_t each) { return count / each + (count % each > 0); }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static int host_memory_new(void *state, void **out, size_t bytes, const char *what, struct tabft_failure *f)
{
    (void)state;
    return memory_new_aligned(out, bytes, 1, what, f);
}

static void host_memory_free(void *state, void *memory)
{
    (void)state;
    free(memory);
}

struct pair_job {
    void *to;
    const void *from;
    size_t count;
};

static void copy_piece(void *context, size_t piece, int thread)
{
    (void)thread;
    const struct pair_job *job = context;
    const size_t each = PIECE * sizeof(float), begin = piece * each;
    memcpy((char *)job->to + begin, (const char *)job->from + begin, smaller(each, job->count - begin));
}

static void host_copy(void *state, void *to, const void *from, size_t bytes)
{
    struct pair_job job = {to, from, bytes};
    threads_run(state, blocks_of(bytes, PIECE * sizeof(float)), copy_piece, &job);
}

static void zero_piece(void *context, size_t piece, int thread)
{
    (void)thread;
    const struct pair_job *job = context;
    const size_t each = PIECE * sizeof(float), begin = piece * each;
    memset((char *)job->to + begin, 0, smaller(each, job->count - begin));
}

static void host_zero(void *state, void *to, size_t bytes)
{
    struct pair_job job = {to, NULL, bytes};
    threads_run(state, blocks_of(bytes, PIECE * sizeof(float)), zero_piece, &job);
}

static void add_piece(void *context, size_t piece, int thread)
{
    (void)thread;
    const struct pair_job *job = context;
    const size_t begin = piece * PIECE, n = smaller(PIECE, job->count - begin);
    float *restrict to = (float *)job->to + begin;
    const float *restrict from = (const float *)job->from + begin;
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

static void host_add(void *state, float *to, const float *from, size_t count)
{
    struct pair_job job = {to, from, count};
    threads_run(state, blocks_of(count, PIECE), add_piece, &job);
}

struct square_job {
    const float *x;
    size_t count;
    double *sums;
};

static void square_block(void *context, size_t block, int thread)
{
    (void)thread;
    const struct square_job *job = context;
    const size_t begin = block * VECTORS_BLOCK, n = smaller(VECTORS_BLOCK, job->count - begin);
    const float *x = job->x + begin;
    double lane[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++) lane[j] += (double)x[i + j] * (double)x[i + j];
    for (size_t j = 0; i + j < n; j++) lane[j] += (double)x[i + j] * (double)x[i + j];
    job->sums[block] = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static void host_square_sums(void *state, const float *x, size_t count, double *sums)
{
    struct square_job job = {x, count, sums};
    threads_run(state, blocks_of(count, VECTORS_BLOCK), square_block, &job);
}

static void adamw_piece(void *context, size_t piece, int thread)
{
    (void)thread;
    const struct vectors_adamw u = *(const struct vectors_adamw *)context;
    const size_t begin = piece * PIECE_ADAMW, end = begin + smaller(PIECE_ADAMW, u.count - begin);
    float *restrict weights = u.weights, *restrict moment1 = u.moment1, *restrict moment2 = u.moment2;
    for (size_t i = begin; i < end; i++) {
        const float g = u.gradient[i] * u.clip, w = weights[i] * u.keep;
        const float m = moment1[i] + u.blend1 * (g - moment1[i]);
        const float v = moment2[i] * u.keep2 + u.blend2 * g * g;
        moment1[i] = m;
        moment2[i] = v;
        weights[i] = w - u.rate * m / (sqrtf(v) / u.root2 + u.epsilon);
    }
}

static void host_adamw(void *state, const struct vectors_adamw *step)
{
    struct vectors_adamw job = *step;
    threads_run(state, blocks_of(job.count, PIECE_ADAMW), adamw_piece, &job);
}

static int host_finish(void *state, struct tabft_failure *f)
{
    (void)state, (void)f;
    return 0;
}

void vectors_host(struct vectors *out, struct threads *pool)
{
    *out = (struct vectors){
        .state = pool,
        .host = true,
        .memory_new = host_memory_new,
        .memory_free = host_memory_free,
        .copy_in = host_copy,
        .copy_out = host_copy,
        .copy = host_copy,
        .zero = host_zero,
        .add = host_add,
        .square_sums = host_square_sums,
        .adamw = host_adamw,
        .finish = host_finish,
    };
}
