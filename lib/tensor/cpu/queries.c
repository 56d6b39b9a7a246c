/* What happens to queries (and keys) before they meet: rotation by place, and modulation by the number of keys and by
 * themselves. */
#define TABFT_TENSOR_ROOM
#include <math.h>
#include <string.h>

#include "tensor/cpu/cpu_internal.h"

enum { BLOCK_ROWS = 128 };

struct queries {
    struct cpu *cpu;
    const struct op_call *call;
    struct cpu_split split;
};

static size_t blocks(size_t rows) { return (rows + BLOCK_ROWS - 1) / BLOCK_ROWS; }

/* ---- rotate ---- */

/* One head from x to y, which may be x; `sign` -1 turns back. */
static void turn(size_t width, const float *turns, float sign, const float *x, float *y, bool add)
{
    const size_t half = width / 2;
    for (size_t j = 0; j < half; j++) {
        const float c = turns[j], s = sign * turns[j + half], a = x[j], b = x[j + half];
        y[j] = (add ? y[j] : 0.0f) + (a * c - b * s);
        y[j + half] = (add ? y[j + half] : 0.0f) + (b * c + a * s);
    }
}

static void rotate_block(void *context, size_t block, int thread)
{
    const struct queries *q = context;
    const struct op_rotate *s = &q->call->op->rotate;
    const bool back = q->call->d_out != NULL, add = back && q->call->add[0];
    const float *from = back ? q->call->d_out : q->call->in[0];
    float *to = back ? q->call->d_in[0] : q->call->out[0];
    const size_t heads = s->heads * s->head_width;
    (void)thread;
    for (size_t r = block * BLOCK_ROWS; r < smaller((block + 1) * BLOCK_ROWS, s->rows); r++) {
        const float *x = from + r * s->width, *turns = (const float *)q->call->in[1] + r % s->tokens * s->head_width;
        float *y = to + r * s->width;
        for (size_t h = 0; h < heads; h += s->head_width)
            turn(s->head_width, turns, back ? -1.0f : 1.0f, x + h, y + h, add);
        if (x != y) cpu_put(x + heads, s->width - heads, add, q->cpu->k, y + heads);
    }
}

static void rotate_run(void *state, const struct op_call *call)
{
    struct queries q = {.cpu = state, .call = call};
    threads_run(q.cpu->pool, blocks(call->op->rotate.rows), rotate_block, &q);
}

/* ---- modulate ---- */

static void modulate_block(void *context, size_t block, int thread)
{
    const struct queries *q = context;
    const struct op_modulate *s = &q->call->op->modulate;
    const float *x = q->call->in[0], *m = q->call->in[1], *base = q->call->in[2];
    float *y = q->call->out[0];
    (void)thread;
    for (size_t r = block * BLOCK_ROWS; r < smaller((block + 1) * BLOCK_ROWS, s->rows); r++)
        for (size_t j = 0, at = r * s->width; j < s->width; j++, at++)
            y[at] = x[at] * (base[j] * (1.0f + tanhf(m[at])));
}

static void modulate_forward(void *state, const struct op_call *call)
{
    struct queries q = {.cpu = state, .call = call};
    threads_run(q.cpu->pool, blocks(call->op->modulate.rows), modulate_block, &q);
}

/* One part of the rows, with its share of the base's gradient. */
static void modulate_part(void *context, size_t part, int thread)
{
    const struct queries *q = context;
    const struct op_modulate *s = &q->call->op->modulate;
    const struct op_call *c = q->call;
    const float *x = c->in[0], *m = c->in[1], *base = c->in[2];
    float *dx = c->d_in[0], *dm = c->d_in[1], *d_base = (float *)c->scratch + part * s->width;
    (void)thread;
    memset(d_base, 0, s->width * sizeof *d_base);
    for (size_t r = part * q->split.rows; r < smaller((part + 1) * q->split.rows, s->rows); r++)
        for (size_t j = 0, at = r * s->width; j < s->width; j++, at++) {
            const float t = tanhf(m[at]), d = c->d_out[at], by_base = d * base[j];
            d_base[j] += d * x[at] * (1.0f + t);
            if (dx != NULL) dx[at] = (c->add[0] ? dx[at] : 0.0f) + by_base * (1.0f + t);
            if (dm != NULL) dm[at] = (c->add[1] ? dm[at] : 0.0f) + by_base * x[at] * (1.0f - t * t);
        }
}

static void modulate_backward(void *state, const struct op_call *call)
{
    const struct op_modulate *s = &call->op->modulate;
    struct queries q = {.cpu = state, .call = call, .split = cpu_split_of(s->rows)};
    threads_run(q.cpu->pool, q.split.parts, modulate_part, &q);
    if (call->d_in[2] == NULL) return;
    if (!call->add[2]) memset(call->d_in[2], 0, s->width * sizeof *call->d_in[2]);
    cpu_split_sum(q.cpu, q.split.parts, s->width, call->scratch, call->d_in[2]);
}

static size_t modulate_scratch(const void *state, const struct op *op)
{
    (void)state;
    return cpu_split_parts_max(op->modulate.rows) * op->modulate.width * sizeof(float);
}

const struct tensor_kernels cpu_rotate = {cpu_no_scratch, cpu_no_scratch, rotate_run, rotate_run};
const struct tensor_kernels cpu_modulate = {cpu_no_scratch, modulate_scratch, modulate_forward, modulate_backward};
