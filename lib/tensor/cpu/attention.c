/* Attention in memory that grows with rows, not rows x rows: blocks of keys pass by, and each row keeps its maximum,
 * its sum and its output so far (forward); backward makes the scores of a block again. A row's forward bits depend on
 * its own numbers and its context alone. Backward gives one thread all that attends to one key-value head of a
 * sequence. */
#define TABFT_TENSOR_ROOM
#include <math.h>
#include <string.h>

#include "tensor/cpu/cpu_internal.h"

enum {
    KEYS = 256,      /* keys of a block, forward */
    ROWS = 24,       /* rows whose scores stay in the nearest cache, forward */
    CHUNK = 1920,    /* rows of a unit of work, forward: each packs the keys for itself; fewer where units are few */
    CHUNK_LEAST = 120,
    UNITS = 8,       /* units a thread that are enough */
    KEYS_BACK = 448, /* keys of a block and rows of a block, backward */
    ROWS_BACK = 48,
    PADDING = 16 /* behind each row of scores, so that rows fall into different cache sets */
};

struct attention {
    struct cpu *cpu;
    const struct op_call *call;
    const struct op_attention *sizes;
    size_t padded_width;   /* of a head, up to a whole panel */
    float scale, scale2;   /* 1 / sqrt(width), and times log2(e) */
    size_t scratch_floats; /* of one thread */
    size_t chunk;          /* rows of a unit, forward */
};

static struct attention attention_of(void *state, const struct op_call *call, size_t scratch_floats)
{
    struct attention a = {.cpu = state, .call = call, .sizes = &call->op->attention, .scratch_floats = scratch_floats};
    double scale = 1.0 / sqrt((double)a.sizes->width);
    a.padded_width = round_up(a.sizes->width, a.cpu->k->nr);
    a.scale = (float)scale;
    a.scale2 = (float)(scale * 1.4426950408889634);
    return a;
}

static size_t place(const struct op_attention_stride *s, size_t sequence, size_t token)
{
    return sequence * s->sequence + token * s->token + s->column;
}

/* The rows of one kind (context or query) that a query head has, and the key-value head it uses. */
struct part {
    size_t first, rows, kv_head;
};
static struct part part_of(const struct op_attention *s, bool query, size_t head)
{
    if (query) return (struct part){s->n_context, s->n_query, head / (s->heads / s->query_kv_heads)};
    return (struct part){0, s->n_context, head / (s->heads / s->context_kv_heads)};
}

/* ---- forward: a unit is up to CHUNK rows of one head of one sequence ---- */

static size_t chunks_of(size_t rows, size_t chunk) { return (rows + chunk - 1) / chunk; }

static size_t forward_units(const struct op_attention *s, size_t chunk)
{
    return s->sequences * s->heads * (chunks_of(s->n_context, chunk) + chunks_of(s->n_query, chunk));
}

/* How many rows a unit has changes nothing but who computes them. */
static size_t chunk_for(const struct op_attention *s, size_t n_threads)
{
    size_t chunk = CHUNK;
    while (chunk > CHUNK_LEAST && forward_units(s, chunk) < UNITS * n_threads) chunk /= 2;
    return chunk;
}

static size_t forward_floats(const struct cpu *cpu, const struct op_attention *s)
{
    size_t keys = round_up(smaller(KEYS, s->n_keys), cpu->k->nr), width = round_up(s->width, cpu->k->nr);
    return round_up(keys * s->width + keys * width + ROWS * (KEYS + PADDING + 1) + 2 * CHUNK, 16);
}

/* Where a unit keeps its state; pointers into the thread's scratch. */
struct forward_memory {
    float *k, *v, *scores, *factor, *maximum, *sum;
};

/* Rows from `token` on, the unit's rows `first` and following, against a block of keys; the output gathers in its own
 * place and is divided by the sum at the end. */
static void forward_rows(const struct attention *a, const struct forward_memory *m, size_t sequence, size_t head,
                         size_t token, size_t rows, size_t first, size_t keys, bool is_first)
{
    const struct op_attention *s = a->sizes;
    const struct cpu_kernels *k = a->cpu->k;
    const size_t stride = KEYS + PADDING;
    float *o = (float *)a->call->out[0] + place(&s->o, sequence, token) + head * s->width;
    k->product(&(struct product){.m = rows,
                                 .n = round_up(keys, PADDING),
                                 .k = s->width,
                                 .a = (const float *)a->call->in[0] + place(&s->q, sequence, token) + head * s->width,
                                 .a_row = s->q.token,
                                 .a_step = 1,
                                 .b = m->k,
                                 .c = m->scores,
                                 .c_row = stride});
    k->softmax_block(rows, keys, m->scores, stride, a->scale2, m->maximum + first, m->sum + first, m->factor);
    if (!is_first) k->scale_rows(rows, s->width, o, s->o.token, m->factor);
    k->product(&(struct product){.m = rows,
                                 .n = s->width,
                                 .k = keys,
                                 .a = m->scores,
                                 .a_row = stride,
                                 .a_step = 1,
                                 .b = m->v,
                                 .c = o,
                                 .c_row = s->o.token,
                                 .init = is_first ? NULL : o,
                                 .init_row = s->o.token});
}

static void forward_finish(const struct attention *a, const struct forward_memory *m, size_t sequence, size_t head,
                           size_t token, size_t rows, size_t first)
{
    const struct op_attention *s = a->sizes;
    float *statistics = (float *)a->call->out[1] + place(&s->statistics, sequence, token) + head * 2;
    for (size_t i = 0; i < rows; i++, statistics += s->statistics.token) {
        m->factor[i] = 1.0f / m->sum[first + i];
        statistics[0] = m->maximum[first + i];
        statistics[1] = m->factor[i];
    }
    a->cpu->k->scale_rows(rows, s->width, (float *)a->call->out[0] + place(&s->o, sequence, token) + head * s->width,
                          s->o.token, m->factor);
}

static void forward_unit(void *context, size_t unit, int thread)
{
    const struct attention *a = context;
    const struct op_attention *s = a->sizes;
    const struct cpu_kernels *k = a->cpu->k;
    const size_t context_chunks = chunks_of(s->n_context, a->chunk);
    const size_t head = unit % s->heads, sequence = unit / s->heads % s->sequences,
                 chunk = unit / s->heads / s->sequences;
    const bool query = chunk >= context_chunks;
    const struct part part = part_of(s, query, head);
    const size_t begin = (query ? chunk - context_chunks : chunk) * a->chunk,
                 rows = smaller(a->chunk, part.rows - begin), token = part.first + begin;
    struct forward_memory m = {.k = (float *)a->call->scratch + (size_t)thread * a->scratch_floats};
    const size_t block = round_up(smaller(KEYS, s->n_keys), k->nr);
    m.v = m.k + block * s->width;
    m.scores = m.v + block * a->padded_width;
    m.factor = m.scores + ROWS * (KEYS + PADDING);
    m.maximum = m.factor + ROWS;
    m.sum = m.maximum + CHUNK;
    for (size_t i = 0; i < rows; i++) {
        m.maximum[i] = -INFINITY;
        m.sum[i] = 0.0f;
    }
    for (size_t j = 0; j < s->n_keys; j += KEYS) {
        const size_t keys = smaller(KEYS, s->n_keys - j);
        k->pack_columns(s->width, keys,
                        (const float *)a->call->in[1] + place(&s->k, sequence, j) + part.kv_head * s->width, s->k.token,
                        1.0f, m.k);
        k->pack_rows(keys, s->width,
                     (const float *)a->call->in[2] + place(&s->v, sequence, j) + part.kv_head * s->width, s->v.token,
                     1.0f, m.v);
        for (size_t i = 0; i < rows; i += ROWS) {
            const size_t n = smaller(ROWS, rows - i);
            forward_rows(a, &m, sequence, head, token + i, n, i, keys, j == 0);
            if (j + keys == s->n_keys) forward_finish(a, &m, sequence, head, token + i, n, i);
        }
    }
}

static void attention_forward(void *state, const struct op_call *call)
{
    const struct op_attention *s = &call->op->attention;
    struct attention a = attention_of(state, call, forward_floats(state, s));
    a.chunk = chunk_for(s, a.cpu->n_threads);
    threads_run(a.cpu->pool, forward_units(s, a.chunk), forward_unit, &a);
}

static size_t forward_scratch(const void *state, const struct op *op)
{
    const struct cpu *cpu = state;
    return cpu->n_threads * forward_floats(cpu, &op->attention) * sizeof(float);
}

/* ---- backward: a unit is one key-value head of one sequence ---- */

/* Of a block of keys: packed for q k^T and dO v^T (columns), scaled for dS k (rows), and the sums of their gradients.
 * Of a block of rows: dO and the scaled q packed, the scores and their slopes, the statistics. Of all rows that use a
 * key-value head: the mean of the slopes, dO O. */
struct backward_memory {
    float *k_columns, *v_columns, *k_rows, *dk, *dv;
    float *d_rows, *q_rows, *scores, *slopes, *maximum, *inverse, *mean;
};

static size_t rows_of_head(const struct op_attention *s)
{
    return s->heads / s->context_kv_heads * s->n_context + s->heads / s->query_kv_heads * s->n_query;
}

static size_t backward_layout(const struct cpu *cpu, const struct op_attention *s, float *base,
                              struct backward_memory *m)
{
    const size_t nr = cpu->k->nr, most = smaller(KEYS_BACK, s->n_keys), keys = round_up(most, nr),
                 width = round_up(s->width, nr), stride = KEYS_BACK + PADDING;
    float **const pieces[] = {&m->k_columns, &m->v_columns, &m->k_rows, &m->dk,      &m->dv,      &m->d_rows,
                              &m->q_rows,    &m->scores,    &m->slopes, &m->maximum, &m->inverse, &m->mean};
    const size_t floats[] = {keys * s->width,    keys * s->width,    most * width,     most * width,
                             most * width,       ROWS_BACK * width,  ROWS_BACK * width, ROWS_BACK * stride,
                             ROWS_BACK * stride, ROWS_BACK,          ROWS_BACK,        rows_of_head(s)};
    size_t at = 0;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        if (base != NULL) *pieces[i] = base + at;
        at += round_up(floats[i], 16);
    }
    return at;
}

/* Prepares a block of rows from `token` on: see struct backward_memory. */
static void backward_load(const struct attention *a, const struct backward_memory *m, size_t sequence, size_t head,
                          size_t token, size_t rows, float *mean, bool first_keys)
{
    const struct op_attention *s = a->sizes;
    const struct cpu_kernels *k = a->cpu->k;
    const float *statistics = (const float *)a->call->out[1] + place(&s->statistics, sequence, token) + head * 2;
    const size_t at = place(&s->o, sequence, token) + head * s->width;
    const float *d = a->call->d_out + at, *o = (const float *)a->call->out[0] + at;
    for (size_t i = 0; i < rows; i++, statistics += s->statistics.token) {
        m->maximum[i] = statistics[0];
        m->inverse[i] = statistics[1];
        if (first_keys) mean[i] = k->dot(s->width, d + i * s->o.token, o + i * s->o.token);
    }
    k->pack_rows(rows, s->width, d, s->o.token, 1.0f, m->d_rows);
    k->pack_rows(rows, s->width, (const float *)a->call->in[0] + place(&s->q, sequence, token) + head * s->width,
                 s->q.token, a->scale, m->q_rows);
}

/* One block of rows against the block of keys at hand; `mean` are the rows' own. */
static void backward_rows(const struct attention *a, const struct backward_memory *m, size_t sequence, size_t head,
                          size_t token, size_t rows, size_t keys, float *mean, bool first_keys, bool first_rows)
{
    const struct op_attention *s = a->sizes;
    const struct cpu_kernels *k = a->cpu->k;
    const size_t stride = KEYS_BACK + PADDING, width = s->width, padded = a->padded_width;
    const size_t q_at = place(&s->q, sequence, token) + head * width;
    backward_load(a, m, sequence, head, token, rows, mean, first_keys);
    k->product(&(struct product){.m = rows,
                                 .n = round_up(keys, PADDING),
                                 .k = width,
                                 .a = (const float *)a->call->in[0] + q_at,
                                 .a_row = s->q.token,
                                 .a_step = 1,
                                 .b = m->k_columns,
                                 .c = m->scores,
                                 .c_row = stride});
    k->product(&(struct product){.m = rows,
                                 .n = round_up(keys, PADDING),
                                 .k = width,
                                 .a = a->call->d_out + place(&s->o, sequence, token) + head * width,
                                 .a_row = s->o.token,
                                 .a_step = 1,
                                 .b = m->v_columns,
                                 .c = m->slopes,
                                 .c_row = stride});
    k->softmax_slopes(rows, keys, m->scores, m->slopes, stride, a->scale2, m->maximum, m->inverse, mean);
    k->product(&(struct product){.m = keys,
                                 .n = width,
                                 .k = rows,
                                 .a = m->scores,
                                 .a_row = 1,
                                 .a_step = stride,
                                 .b = m->d_rows,
                                 .c = m->dv,
                                 .c_row = padded,
                                 .init = first_rows ? NULL : m->dv,
                                 .init_row = padded});
    k->product(&(struct product){.m = keys,
                                 .n = width,
                                 .k = rows,
                                 .a = m->slopes,
                                 .a_row = 1,
                                 .a_step = stride,
                                 .b = m->q_rows,
                                 .c = m->dk,
                                 .c_row = padded,
                                 .init = first_rows ? NULL : m->dk,
                                 .init_row = padded});
    float *dq = a->call->d_in[0] + q_at;
    const float *init = first_keys && !a->call->add[0] ? NULL : dq;
    k->product(&(struct product){.m = rows,
                                 .n = width,
                                 .k = keys,
                                 .a = m->slopes,
                                 .a_row = stride,
                                 .a_step = 1,
                                 .b = m->k_rows,
                                 .c = dq,
                                 .c_row = s->q.token,
                                 .init = init,
                                 .init_row = s->q.token});
}

static void store_keys(const struct attention *a, const float *sum, size_t rows,
                       const struct op_attention_stride *stride, size_t sequence, size_t token, size_t column, bool add,
                       float *to)
{
    const size_t width = a->sizes->width;
    for (size_t i = 0; i < rows; i++) {
        float *row = to + place(stride, sequence, token + i) + column;
        if (add)
            a->cpu->k->add(width, sum + i * a->padded_width, row);
        else
            memcpy(row, sum + i * a->padded_width, width * sizeof *row);
    }
}

static size_t kv_heads(const struct op_attention *s)
{
    return s->context_kv_heads > s->query_kv_heads ? s->context_kv_heads : s->query_kv_heads;
}

static void backward_unit(void *context, size_t unit, int thread)
{
    const struct attention *a = context;
    const struct op_attention *s = a->sizes;
    const struct cpu_kernels *k = a->cpu->k;
    /* Where query tokens share a head, the units of the first heads are the longest: they go first, so that threads
     * end together. */
    const bool by_head = s->n_query > 0;
    const size_t kv_head = by_head ? unit / s->sequences : unit % kv_heads(s);
    const size_t sequence = by_head ? unit % s->sequences : unit / kv_heads(s);
    struct backward_memory m;
    backward_layout(a->cpu, s, (float *)a->call->scratch + (size_t)thread * a->scratch_floats, &m);
    for (size_t j = 0; j < s->n_keys; j += KEYS_BACK) {
        const size_t keys = smaller(KEYS_BACK, s->n_keys - j);
        const float *key = (const float *)a->call->in[1] + place(&s->k, sequence, j) + kv_head * s->width;
        const float *value = (const float *)a->call->in[2] + place(&s->v, sequence, j) + kv_head * s->width;
        k->pack_columns(s->width, keys, key, s->k.token, 1.0f, m.k_columns);
        k->pack_columns(s->width, keys, value, s->v.token, 1.0f, m.v_columns);
        k->pack_rows(keys, s->width, key, s->k.token, a->scale, m.k_rows);
        bool first_rows = true;
        float *mean = m.mean;
        for (size_t h = 0; h < 2 * s->heads; h++) {
            const size_t head = h % s->heads;
            const struct part part = part_of(s, h >= s->heads, head);
            if (part.kv_head != kv_head) continue;
            for (size_t i = 0; i < part.rows; i += ROWS_BACK) {
                const size_t rows = smaller(ROWS_BACK, part.rows - i);
                backward_rows(a, &m, sequence, head, part.first + i, rows, keys, mean, j == 0, first_rows);
                first_rows = false;
                mean += rows;
            }
        }
        store_keys(a, m.dk, keys, &s->k, sequence, j, kv_head * s->width, a->call->add[1], a->call->d_in[1]);
        store_keys(a, m.dv, keys, &s->v, sequence, j, kv_head * s->width, a->call->add[2], a->call->d_in[2]);
    }
}

static void attention_backward(void *state, const struct op_call *call)
{
    const struct op_attention *s = &call->op->attention;
    struct attention a = attention_of(state, call, backward_layout(state, s, NULL, &(struct backward_memory){0}));
    threads_run(a.cpu->pool, s->sequences * kv_heads(s), backward_unit, &a);
}

static size_t backward_scratch(const void *state, const struct op *op)
{
    const struct cpu *cpu = state;
    return cpu->n_threads * backward_layout(cpu, &op->attention, NULL, &(struct backward_memory){0}) * sizeof(float);
}

const struct tensor_kernels cpu_attention = {forward_scratch, backward_scratch, attention_forward, attention_backward};
