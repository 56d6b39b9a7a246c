/* Tokens that come from elsewhere than their row: the same ones before each row, a row's own added to all of its
 * tokens, and those of a table. Sums over rows go in parts of the split, each part in order. */
#define TABFT_TENSOR_ROOM
#include <string.h>

#include "tensor/cpu/cpu_internal.h"

struct tokens {
    struct cpu *cpu;
    const struct op_call *call;
};

/* ---- prepend: one block is one row ---- */

static void prepend_row(void *context, size_t row, int thread)
{
    const struct tokens *t = context;
    const struct op_prepend *s = &t->call->op->prepend;
    const size_t lead = s->lead * s->width, rest = s->columns * s->width;
    float *to = (float *)t->call->out[0] + row * (lead + rest);
    (void)thread;
    memcpy(to, t->call->in[0], lead * sizeof *to);
    if (rest > 0) memcpy(to + lead, (const float *)t->call->in[1] + row * rest, rest * sizeof *to);
}

static void prepend_row_backward(void *context, size_t row, int thread)
{
    const struct tokens *t = context;
    const struct op_prepend *s = &t->call->op->prepend;
    const size_t lead = s->lead * s->width, rest = s->columns * s->width;
    (void)thread;
    cpu_put(t->call->d_out + row * (lead + rest) + lead, rest, t->call->add[1], t->cpu->k,
            t->call->d_in[1] + row * rest);
}

/* One block is one token of the lead, summed over rows. */
static void prepend_lead_backward(void *context, size_t token, int thread)
{
    const struct tokens *t = context;
    const struct op_prepend *s = &t->call->op->prepend;
    const size_t e = s->width;
    const struct cpu_split split = cpu_split_of(s->rows);
    float *part = (float *)t->call->scratch + (size_t)thread * e, *to = t->call->d_in[0] + token * e;
    if (!t->call->add[0]) memset(to, 0, e * sizeof *to);
    for (size_t first = 0; first < s->rows; first += split.rows) {
        memset(part, 0, e * sizeof *part);
        for (size_t i = first; i < smaller(first + split.rows, s->rows); i++)
            t->cpu->k->add(e, t->call->d_out + (i * (s->lead + s->columns) + token) * e, part);
        t->cpu->k->add(e, part, to);
    }
}

static void prepend_forward(void *state, const struct op_call *call)
{
    struct tokens t = {state, call};
    threads_run(t.cpu->pool, call->op->prepend.rows, prepend_row, &t);
}

static void prepend_backward(void *state, const struct op_call *call)
{
    struct tokens t = {state, call};
    if (call->d_in[1] != NULL) threads_run(t.cpu->pool, call->op->prepend.rows, prepend_row_backward, &t);
    if (call->d_in[0] != NULL) threads_run(t.cpu->pool, call->op->prepend.lead, prepend_lead_backward, &t);
}

static size_t prepend_scratch(const void *state, const struct op *op)
{
    return ((const struct cpu *)state)->n_threads * op->prepend.width * sizeof(float);
}

/* ---- add_rows: one block is TOKENS tokens ---- */

enum { TOKENS = 256 };

static void add_rows_block(void *context, size_t block, int thread)
{
    const struct tokens *t = context;
    const struct op_add_rows *s = &t->call->op->add_rows;
    const size_t first = block * TOKENS, end = smaller(first + TOKENS, s->tokens_in_all), e = s->width;
    const float *from = t->call->in[0];
    float *to = t->call->out[0];
    (void)thread;
    if (to != from) memcpy(to + first * e, from + first * e, (end - first) * e * sizeof *to);
    for (size_t i = first; i < smaller(end, s->rows * s->tokens); i++)
        t->cpu->k->add(e, (const float *)t->call->in[1] + i / s->tokens * e, to + i * e);
}

static void add_rows_block_backward(void *context, size_t block, int thread)
{
    const struct tokens *t = context;
    const struct op_add_rows *s = &t->call->op->add_rows;
    const size_t first = block * TOKENS, tokens = smaller(TOKENS, s->tokens_in_all - first);
    (void)thread;
    cpu_put(t->call->d_out + first * s->width, tokens * s->width, t->call->add[0], t->cpu->k,
            t->call->d_in[0] + first * s->width);
}

static void add_rows_row_backward(void *context, size_t row, int thread)
{
    const struct tokens *t = context;
    const struct op_add_rows *s = &t->call->op->add_rows;
    const float *d = t->call->d_out + row * s->tokens * s->width;
    float *to = t->call->d_in[1] + row * s->width;
    (void)thread;
    if (!t->call->add[1]) memset(to, 0, s->width * sizeof *to);
    for (size_t i = 0; i < s->tokens; i++) t->cpu->k->add(s->width, d + i * s->width, to);
}

static size_t token_blocks(const struct op_add_rows *s) { return (s->tokens_in_all + TOKENS - 1) / TOKENS; }

static void add_rows_forward(void *state, const struct op_call *call)
{
    struct tokens t = {state, call};
    threads_run(t.cpu->pool, token_blocks(&call->op->add_rows), add_rows_block, &t);
}

static void add_rows_backward(void *state, const struct op_call *call)
{
    struct tokens t = {state, call};
    if (call->d_in[0] != NULL) threads_run(t.cpu->pool, token_blocks(&call->op->add_rows), add_rows_block_backward, &t);
    if (call->d_in[1] != NULL) threads_run(t.cpu->pool, call->op->add_rows.rows, add_rows_row_backward, &t);
}

/* ---- lookup ---- */

static void lookup_forward(void *state, const struct op_call *call)
{
    const struct op_lookup *s = &call->op->lookup;
    const int32_t *codes = call->in[1];
    (void)state;
    for (size_t i = 0; i < s->rows; i++)
        memcpy((float *)call->out[0] + i * s->width, (const float *)call->in[0] + (size_t)codes[i] * s->width,
               s->width * sizeof(float));
}

/* One block is one entry of the table. */
static void lookup_entry_backward(void *context, size_t entry, int thread)
{
    const struct tokens *t = context;
    const struct op_lookup *s = &t->call->op->lookup;
    const int32_t *codes = t->call->in[1];
    const size_t e = s->width;
    const struct cpu_split split = cpu_split_of(s->rows);
    float *part = (float *)t->call->scratch + (size_t)thread * e, *to = t->call->d_in[0] + entry * e;
    if (!t->call->add[0]) memset(to, 0, e * sizeof *to);
    for (size_t first = 0; first < s->rows; first += split.rows) {
        memset(part, 0, e * sizeof *part);
        for (size_t i = first; i < smaller(first + split.rows, s->rows); i++)
            if ((size_t)codes[i] == entry) t->cpu->k->add(e, t->call->d_out + i * e, part);
        t->cpu->k->add(e, part, to);
    }
}

static void lookup_backward(void *state, const struct op_call *call)
{
    struct tokens t = {state, call};
    if (call->d_in[0] != NULL) threads_run(t.cpu->pool, call->op->lookup.entries, lookup_entry_backward, &t);
}

static size_t lookup_scratch(const void *state, const struct op *op)
{
    return ((const struct cpu *)state)->n_threads * op->lookup.width * sizeof(float);
}

const struct tensor_kernels cpu_prepend = {cpu_no_scratch, prepend_scratch, prepend_forward, prepend_backward};
const struct tensor_kernels cpu_add_rows = {cpu_no_scratch, cpu_no_scratch, add_rows_forward, add_rows_backward};
const struct tensor_kernels cpu_lookup = {cpu_no_scratch, lookup_scratch, lookup_forward, lookup_backward};
