/* Rows put together and picked out: the tokens of a table, and every n-th row. */
#define TABFT_TENSOR_ROOM
#include <string.h>

#include "tensor/cpu/cpu_internal.h"

struct rows {
    struct cpu *cpu;
    const struct op_call *call;
};

/* ---- assemble: one block is one row of the table ---- */

static void assemble_row(void *context, size_t row, int thread)
{
    const struct rows *r = context;
    const struct op_assemble *s = &r->call->op->assemble;
    const size_t e = s->width;
    float *to = (float *)r->call->out[0] + row * (s->n_groups + 1) * e;
    (void)thread;
    if (row < s->n_thinking) {
        for (size_t c = 0; c <= s->n_groups; c++)
            memcpy(to + c * e, (const float *)r->call->in[3] + row * e, e * sizeof *to);
        return;
    }
    const size_t i = row - s->n_thinking;
    memcpy(to, (const float *)r->call->in[0] + i * s->n_groups * e, s->n_groups * e * sizeof *to);
    r->cpu->k->add(s->n_groups * e, r->call->in[1], to);
    memcpy(to + s->n_groups * e, (const float *)r->call->in[2] + i * e, e * sizeof *to);
}

static void assemble_row_backward(void *context, size_t row, int thread)
{
    const struct rows *r = context;
    const struct op_assemble *s = &r->call->op->assemble;
    const struct cpu_kernels *k = r->cpu->k;
    const size_t e = s->width;
    const float *d = r->call->d_out + row * (s->n_groups + 1) * e;
    float *const *d_in = r->call->d_in;
    (void)thread;
    if (row < s->n_thinking) {
        if (d_in[3] == NULL) return;
        cpu_put(d, e, r->call->add[3], k, d_in[3] + row * e);
        for (size_t c = 1; c <= s->n_groups; c++) k->add(e, d + c * e, d_in[3] + row * e);
        return;
    }
    const size_t i = row - s->n_thinking;
    if (d_in[0] != NULL) cpu_put(d, s->n_groups * e, r->call->add[0], k, d_in[0] + i * s->n_groups * e);
    if (d_in[2] != NULL) cpu_put(d + s->n_groups * e, e, r->call->add[2], k, d_in[2] + i * e);
}

/* The column embeddings' gradient: one block is a group, its sum over rows in parts of the split, each part in order.
 */
static void assemble_group_backward(void *context, size_t group, int thread)
{
    const struct rows *r = context;
    const struct op_assemble *s = &r->call->op->assemble;
    const size_t e = s->width;
    const struct cpu_split split = cpu_split_of(s->n_rows);
    float *part = (float *)r->call->scratch + (size_t)thread * e, *to = r->call->d_in[1] + group * e;
    if (!r->call->add[1]) memset(to, 0, e * sizeof *to);
    for (size_t first = 0; first < s->n_rows; first += split.rows) {
        memset(part, 0, e * sizeof *part);
        for (size_t i = first; i < smaller(first + split.rows, s->n_rows); i++)
            r->cpu->k->add(e, r->call->d_out + ((s->n_thinking + i) * (s->n_groups + 1) + group) * e, part);
        r->cpu->k->add(e, part, to);
    }
}

static void assemble_forward(void *state, const struct op_call *call)
{
    struct rows r = {state, call};
    threads_run(r.cpu->pool, call->op->assemble.n_thinking + call->op->assemble.n_rows, assemble_row, &r);
}

static void assemble_backward(void *state, const struct op_call *call)
{
    struct rows r = {state, call};
    threads_run(r.cpu->pool, call->op->assemble.n_thinking + call->op->assemble.n_rows, assemble_row_backward, &r);
    if (call->d_in[1] != NULL) threads_run(r.cpu->pool, call->op->assemble.n_groups, assemble_group_backward, &r);
}

static size_t assemble_backward_scratch(const void *state, const struct op *op)
{
    return ((const struct cpu *)state)->n_threads * op->assemble.width * sizeof(float);
}

/* ---- select ---- */

static void select_forward(void *state, const struct op_call *call)
{
    const struct op_select *s = &call->op->select;
    const size_t count = s->run * s->width;
    (void)state;
    for (size_t i = 0; i * s->run < s->rows; i++)
        memcpy((float *)call->out[0] + i * count, (const float *)call->in[0] + (s->first + i * s->step) * s->width,
               count * sizeof(float));
}

static void select_backward(void *state, const struct op_call *call)
{
    const struct op_select *s = &call->op->select;
    const struct cpu *cpu = state;
    const size_t count = s->run * s->width;
    if (call->d_in[0] == NULL) return;
    for (size_t i = 0; i * s->run < s->rows; i++)
        cpu_put(call->d_out + i * count, count, call->add[0], cpu->k,
                call->d_in[0] + (s->first + i * s->step) * s->width);
}

const struct tensor_kernels cpu_assemble = {cpu_no_scratch, assemble_backward_scratch, assemble_forward,
                                           assemble_backward};
const struct tensor_kernels cpu_select = {cpu_no_scratch, cpu_no_scratch, select_forward, select_backward};
