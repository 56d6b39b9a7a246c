/* What happens to queries (and keys) before they meet: heads turned by place and normalised, and modulation by the
 * number of keys and by themselves. */
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

/* ---- heads ---- */

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

/* All heads of a row. */
static void turn_all(const struct op_heads *s, const float *turns, float sign, const float *x, float *y, bool add)
{
    for (size_t h = 0; h < s->heads * s->head_width; h += s->head_width)
        turn(s->head_width, turns, sign, x + h, y + h, add);
}

static const float *turns_of(const struct queries *q, size_t row)
{
    const struct op_heads *s = &q->call->op->heads;
    return q->call->in[1] == NULL ? NULL : (const float *)q->call->in[1] + row % s->tokens * s->head_width;
}

static void heads_block(void *context, size_t block, int thread)
{
    const struct queries *q = context;
    const struct op_heads *s = &q->call->op->heads;
    const float *w = q->call->in[2];
    const size_t all = s->heads * s->head_width, each = s->norms == 0 ? 0 : s->heads / s->norms;
    (void)thread;
    for (size_t r = block * BLOCK_ROWS; r < smaller((block + 1) * BLOCK_ROWS, s->rows); r++) {
        const float *x = (const float *)q->call->in[0] + r * s->width, *turns = turns_of(q, r), *from = x;
        float *y = (float *)q->call->out[0] + r * s->width;
        if (turns != NULL) {
            turn_all(s, turns, 1.0f, x, y, false);
            from = y;
        }
        for (size_t i = 0; i < s->norms; i++)
            q->cpu->k->rms_norm(each, s->head_width, s->epsilon, from + i * each * s->head_width, w + i * s->head_width,
                                y + i * each * s->head_width);
        if (y != x) memcpy(y + all, x + all, (s->width - all) * sizeof *y);
    }
}

static void heads_forward(void *state, const struct op_call *call)
{
    struct queries q = {.cpu = state, .call = call};
    threads_run(q.cpu->pool, blocks(call->op->heads.rows), heads_block, &q);
}

/* One row's heads back through the norms, from dy to dx [heads * head_width]; `turned` is room for as many. */
static void norms_backward(const struct queries *q, const float *x, const float *turns, const float *dy, float *turned,
                           float *dx, float *dw)
{
    const struct op_heads *s = &q->call->op->heads;
    const size_t each = s->heads / s->norms, w = s->head_width;
    if (turns != NULL) {
        turn_all(s, turns, 1.0f, x, turned, false);
        x = turned;
    }
    for (size_t i = 0; i < s->norms; i++)
        q->cpu->k->rms_norm_backward(each, w, s->epsilon, x + i * each * w, (const float *)q->call->in[2] + i * w,
                                     dy + i * each * w, dx + i * each * w, false, dw + i * w);
}

/* One part of the rows, with its share of the norms' gradient. */
static void heads_part(void *context, size_t part, int thread)
{
    const struct queries *q = context;
    const struct op_call *c = q->call;
    const struct op_heads *s = &c->op->heads;
    const size_t all = s->heads * s->head_width, norms = s->norms * s->head_width;
    float *dw = NULL, *room = NULL; /* without norms there is no scratch */
    if (norms > 0) {
        dw = (float *)c->scratch + part * norms;
        room = (float *)c->scratch + q->split.parts * norms + (size_t)thread * 2 * all;
        memset(dw, 0, norms * sizeof *dw);
    }
    for (size_t r = part * q->split.rows; r < smaller((part + 1) * q->split.rows, s->rows); r++) {
        const float *x = (const float *)c->in[0] + r * s->width, *dy = c->d_out + r * s->width, *turns = turns_of(q, r);
        const float *d = dy;
        float *dx = c->d_in[0] + r * s->width;
        if (s->norms > 0) {
            norms_backward(q, x, turns, dy, room, room + all, dw);
            d = room + all;
        }
        if (turns != NULL) turn_all(s, turns, -1.0f, d, dx, c->add[0]);
        else cpu_put(d, all, c->add[0], q->cpu->k, dx);
        if (dx != dy) cpu_put(dy + all, s->width - all, c->add[0], q->cpu->k, dx + all);
    }
}

static void heads_backward(void *state, const struct op_call *call)
{
    const struct op_heads *s = &call->op->heads;
    const size_t norms = s->norms * s->head_width;
    struct queries q = {.cpu = state, .call = call, .split = cpu_split_of(s->rows)};
    if (norms == 0) q.split = (struct cpu_split){blocks(s->rows), BLOCK_ROWS}; /* no sums: more parts do not matter */
    threads_run(q.cpu->pool, q.split.parts, heads_part, &q);
    if (norms == 0 || call->d_in[2] == NULL) return;
    if (!call->add[2]) memset(call->d_in[2], 0, norms * sizeof *call->d_in[2]);
    cpu_split_sum(q.cpu, q.split.parts, norms, call->scratch, call->d_in[2]);
}

static size_t heads_scratch(const void *state, const struct op *op)
{
    const struct op_heads *s = &op->heads;
    return (cpu_split_parts_max(s->rows) * s->norms * s->head_width +
            (s->norms == 0 ? 0 : ((const struct cpu *)state)->n_threads * 2 * s->heads * s->head_width)) *
           sizeof(float);
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

const struct tensor_kernels cpu_heads = {cpu_no_scratch, heads_scratch, heads_forward, heads_backward};
const struct tensor_kernels cpu_modulate = {cpu_no_scratch, modulate_scratch, modulate_forward, modulate_backward};
