/* Votes: what attention gives the keys of each class together. As in attention.c, blocks of keys pass by and each row
 * keeps its maximum, its sum and, instead of an output, its votes; backward makes the scores of a block again. A row's
 * forward bits depend on its own numbers and the keys alone. Backward gives one thread all of a head. */
#define TABFT_TENSOR_ROOM
#include <math.h>
#include <string.h>

#include "tensor/cpu/cpu_internal.h"

enum {
    KEYS = 256, /* keys of a block */
    ROWS = 48,  /* rows of a block */
    PADDING = 16,
    STRIDE = KEYS + PADDING, /* of scores */
    BEFORE = 2               /* numbers before a head's votes: maximum, 1 / sum */
};
static const float least = 1e-5f, more = 3e-5f;

struct vote {
    struct cpu *cpu;
    const struct op_call *call;
    const struct op_vote *sizes;
    size_t padded_width;
    float scale, scale2;   /* 1 / sqrt(width), and times log2(e) */
    size_t scratch_floats; /* of one thread */
    float *slopes;         /* backward: of the loss by a head's votes [rows][n_classes] */
};

/* A thread's scratch; forward has no use for what comes after `votes`. */
struct vote_memory {
    float *k_columns, *scores, *maximum, *sum, *factor, *votes;
    float *k_rows, *dk, *q_rows, *slopes;
};

static size_t layout(const struct cpu *cpu, const struct op_vote *s, bool backward, float *base, struct vote_memory *m)
{
    const size_t nr = cpu->k->nr, width = round_up(s->width, nr);
    float **const pieces[] = {&m->k_columns, &m->scores, &m->maximum, &m->sum,    &m->factor,
                              &m->votes,     &m->k_rows, &m->dk,      &m->q_rows, &m->slopes};
    const size_t floats[] = {round_up(KEYS, nr) * s->width,
                             ROWS * STRIDE,
                             ROWS,
                             ROWS,
                             ROWS,
                             s->n_classes,
                             KEYS * width,
                             KEYS * width,
                             ROWS * width,
                             ROWS * STRIDE};
    const size_t n = sizeof floats / sizeof *floats;
    size_t at = 0;
    for (size_t i = 0; i < (backward ? n : 6); i++) {
        if (base != NULL) *pieces[i] = base + at;
        at += round_up(floats[i], 16);
    }
    return at;
}

static struct vote vote_of(void *state, const struct op_call *call, bool backward)
{
    struct vote v = {.cpu = state, .call = call, .sizes = &call->op->vote};
    const double scale = 1.0 / sqrt((double)v.sizes->width);
    v.padded_width = round_up(v.sizes->width, v.cpu->k->nr);
    v.scale = (float)scale;
    v.scale2 = (float)(scale * 1.4426950408889634);
    v.scratch_floats = layout(v.cpu, v.sizes, backward, NULL, &(struct vote_memory){0});
    return v;
}

static size_t row_blocks(size_t rows) { return (rows + ROWS - 1) / ROWS; }

/* What one head of one row keeps: see struct op_vote. */
static float *kept(const struct vote *v, size_t row, size_t head)
{
    const struct op_vote *s = v->sizes;
    return (float *)v->call->out[1] + (row * s->heads + head) * (BEFORE + s->n_classes);
}

/* p of a class: the mean of the heads'. */
static float share(const struct vote *v, size_t row, size_t class)
{
    float sum = 0;
    for (size_t h = 0; h < v->sizes->heads; h++) sum += kept(v, row, h)[BEFORE + class];
    return sum / (float)v->sizes->heads;
}

/* Scores of a block of rows of a head against the packed keys. */
static void make_scores(const struct vote *v, const struct vote_memory *m, size_t head, size_t row, size_t rows,
                        size_t keys)
{
    const struct op_vote *s = v->sizes;
    v->cpu->k->product(&(struct product){.m = rows,
                                         .n = keys,
                                         .k = s->width,
                                         .a = (const float *)v->call->in[0] + (row * s->heads + head) * s->width,
                                         .a_row = s->heads * s->width,
                                         .a_step = 1,
                                         .b = m->k_columns,
                                         .c = m->scores,
                                         .c_row = STRIDE});
}

/* ---- forward: a unit is a block of rows ---- */

/* Adds a block of keys to a row's votes, in a sum of its own first. */
static void count_votes(const struct vote *v, const struct vote_memory *m, size_t i, size_t keys, const int32_t *codes,
                        float *votes)
{
    const float *p = m->scores + i * STRIDE;
    const size_t n = v->sizes->n_classes;
    memset(m->votes, 0, n * sizeof *m->votes);
    for (size_t j = 0; j < keys; j++) m->votes[codes[j]] += p[j];
    for (size_t c = 0; c < n; c++) votes[c] = votes[c] * m->factor[i] + m->votes[c];
}

static void forward_head(const struct vote *v, const struct vote_memory *m, size_t head, size_t row, size_t rows)
{
    const struct op_vote *s = v->sizes;
    const struct cpu_kernels *k = v->cpu->k;
    const size_t stride = s->heads * s->width;
    for (size_t i = 0; i < rows; i++) {
        m->maximum[i] = -INFINITY;
        m->sum[i] = 0.0f;
        memset(kept(v, row + i, head), 0, (BEFORE + s->n_classes) * sizeof(float));
    }
    for (size_t j = 0; j < s->n_keys; j += KEYS) {
        const size_t keys = smaller(KEYS, s->n_keys - j);
        k->pack_columns(s->width, keys, (const float *)v->call->in[1] + j * stride + head * s->width, stride, 1.0f,
                        m->k_columns);
        make_scores(v, m, head, row, rows, keys);
        k->softmax_block(rows, keys, m->scores, STRIDE, v->scale2, m->maximum, m->sum, m->factor);
        for (size_t i = 0; i < rows; i++)
            count_votes(v, m, i, keys, (const int32_t *)v->call->in[2] + j, kept(v, row + i, head) + BEFORE);
    }
    for (size_t i = 0; i < rows; i++) {
        float *to = kept(v, row + i, head);
        to[0] = m->maximum[i];
        to[1] = 1.0f / m->sum[i];
        for (size_t c = 0; c < s->n_classes; c++) to[BEFORE + c] *= to[1];
    }
}

static void forward_unit(void *context, size_t unit, int thread)
{
    const struct vote *v = context;
    const struct op_vote *s = v->sizes;
    const size_t row = unit * ROWS, rows = smaller(ROWS, s->rows - row);
    struct vote_memory m;
    layout(v->cpu, s, false, (float *)v->call->scratch + (size_t)thread * v->scratch_floats, &m);
    float *out = v->call->out[0];
    for (size_t h = 0; h < s->heads; h++) forward_head(v, &m, h, row, rows);
    for (size_t i = row; i < row + rows; i++)
        for (size_t c = 0; c < s->n_classes; c++) {
            const float p = share(v, i, c), kept_up = p > least ? p : least;
            out[i * s->n_classes + c] = (float)log((double)kept_up + (double)more);
        }
}

static void vote_forward(void *state, const struct op_call *call)
{
    struct vote v = vote_of(state, call, false);
    threads_run(v.cpu->pool, row_blocks(v.sizes->rows), forward_unit, &v);
}

static size_t forward_scratch(const void *state, const struct op *op)
{
    const struct cpu *cpu = state;
    return cpu->n_threads * layout(cpu, &op->vote, false, NULL, &(struct vote_memory){0}) * sizeof(float);
}

/* ---- backward: a unit is a head ---- */

static void slopes_block(void *context, size_t block, int thread)
{
    const struct vote *v = context;
    const struct op_vote *s = v->sizes;
    (void)thread;
    for (size_t i = block * ROWS; i < smaller((block + 1) * ROWS, s->rows); i++)
        for (size_t c = 0; c < s->n_classes; c++) {
            const size_t at = i * s->n_classes + c;
            const float p = share(v, i, c);
            v->slopes[at] = p < least ? 0.0f : v->call->d_out[at] / ((p + more) * (float)s->heads);
        }
}

/* One block of rows against the block of keys at hand. */
static void backward_rows(const struct vote *v, const struct vote_memory *m, size_t head, size_t row, size_t rows,
                          size_t key, size_t keys)
{
    const struct op_vote *s = v->sizes;
    const struct cpu_kernels *k = v->cpu->k;
    const int32_t *codes = (const int32_t *)v->call->in[2] + key;
    const size_t stride = s->heads * s->width, at = row * stride + head * s->width;
    make_scores(v, m, head, row, rows, keys);
    for (size_t i = 0; i < rows; i++) {
        const float *one = kept(v, row + i, head), *slopes = v->slopes + (row + i) * s->n_classes;
        float mean = 0;
        for (size_t c = 0; c < s->n_classes; c++) mean += slopes[c] * one[BEFORE + c];
        m->maximum[i] = one[0];
        m->sum[i] = one[1];
        m->factor[i] = mean;
        for (size_t j = 0; j < keys; j++) m->slopes[i * STRIDE + j] = slopes[codes[j]];
        for (size_t j = keys; j < round_up(keys, PADDING); j++) m->slopes[i * STRIDE + j] = 0.0f;
    }
    k->softmax_slopes(rows, keys, m->scores, m->slopes, STRIDE, v->scale2, m->maximum, m->sum, m->factor);
    k->pack_rows(rows, s->width, (const float *)v->call->in[0] + at, stride, v->scale, m->q_rows);
    k->product(&(struct product){.m = keys,
                                 .n = s->width,
                                 .k = rows,
                                 .a = m->slopes,
                                 .a_row = 1,
                                 .a_step = STRIDE,
                                 .b = m->q_rows,
                                 .c = m->dk,
                                 .c_row = v->padded_width,
                                 .init = row == 0 ? NULL : m->dk,
                                 .init_row = v->padded_width});
    float *dq = v->call->d_in[0] + at;
    k->product(&(struct product){.m = rows,
                                 .n = s->width,
                                 .k = keys,
                                 .a = m->slopes,
                                 .a_row = STRIDE,
                                 .a_step = 1,
                                 .b = m->k_rows,
                                 .c = dq,
                                 .c_row = stride,
                                 .init = key == 0 && !v->call->add[0] ? NULL : dq,
                                 .init_row = stride});
}

static void backward_unit(void *context, size_t head, int thread)
{
    const struct vote *v = context;
    const struct op_vote *s = v->sizes;
    const struct cpu_kernels *k = v->cpu->k;
    const size_t stride = s->heads * s->width;
    float *base = v->slopes + round_up(s->rows * s->n_classes, 16);
    struct vote_memory m;
    layout(v->cpu, s, true, base + (size_t)thread * v->scratch_floats, &m);
    for (size_t j = 0; j < s->n_keys; j += KEYS) {
        const size_t keys = smaller(KEYS, s->n_keys - j), at = j * stride + head * s->width;
        const float *key = (const float *)v->call->in[1] + at;
        k->pack_columns(s->width, keys, key, stride, 1.0f, m.k_columns);
        k->pack_rows(keys, s->width, key, stride, v->scale, m.k_rows);
        for (size_t i = 0; i < s->rows; i += ROWS) backward_rows(v, &m, head, i, smaller(ROWS, s->rows - i), j, keys);
        for (size_t i = 0; i < keys; i++)
            cpu_put(m.dk + i * v->padded_width, s->width, v->call->add[1], k, v->call->d_in[1] + at + i * stride);
    }
}

static void vote_backward(void *state, const struct op_call *call)
{
    struct vote v = vote_of(state, call, true);
    v.slopes = call->scratch;
    threads_run(v.cpu->pool, row_blocks(v.sizes->rows), slopes_block, &v);
    threads_run(v.cpu->pool, v.sizes->heads, backward_unit, &v);
}

static size_t backward_scratch(const void *state, const struct op *op)
{
    const struct cpu *cpu = state;
    const struct op_vote *s = &op->vote;
    return (round_up(s->rows * s->n_classes, 16) +
            cpu->n_threads * layout(cpu, s, true, NULL, &(struct vote_memory){0})) *
           sizeof(float);
}

const struct tensor_kernels cpu_vote = {forward_scratch, backward_scratch, vote_forward, vote_backward};
