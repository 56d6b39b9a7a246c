/* RMSNorm and GELU: rows in blocks; the norm weight's gradient in parts, as in linear.c. */
#define TABFT_TENSOR_ROOM
#include <string.h>

#include "tensor/cpu/cpu_internal.h"

enum { NORM_ROWS = 128, GELU_COUNT = 1 << 14 };

struct norm {
    struct cpu *cpu;
    const struct op_call *call;
    struct op_rms_norm sizes;
    struct cpu_split split;
};

static void norm_block(void *context, size_t block, int thread)
{
    const struct norm *n = context;
    const size_t first = block * NORM_ROWS, width = n->sizes.width;
    (void)thread;
    n->cpu->k->rms_norm(smaller(NORM_ROWS, n->sizes.rows - first), width, n->sizes.epsilon,
                        (const float *)n->call->in[0] + first * width, n->call->in[1],
                        (float *)n->call->out[0] + first * width);
}

static void norm_forward(void *state, const struct op_call *call)
{
    struct norm n = {.cpu = state, .call = call, .sizes = call->op->rms_norm};
    threads_run(n.cpu->pool, (n.sizes.rows + NORM_ROWS - 1) / NORM_ROWS, norm_block, &n);
}

static void norm_part(void *context, size_t part, int thread)
{
    const struct norm *n = context;
    const size_t width = n->sizes.width, first = part * n->split.rows;
    const size_t rows = smaller(n->split.rows, n->sizes.rows - first);
    float *dw = (float *)n->call->scratch + part * width;
    (void)thread;
    memset(dw, 0, width * sizeof *dw);
    n->cpu->k->rms_norm_backward(rows, width, n->sizes.epsilon, (const float *)n->call->in[0] + first * width,
                                 n->call->in[1], n->call->d_out + first * width, n->call->d_in[0] + first * width,
                                 n->call->add[0], dw);
}

static void norm_backward(void *state, const struct op_call *call)
{
    struct norm n = {.cpu = state,
                     .call = call,
                     .sizes = call->op->rms_norm,
                     .split = cpu_split_of(call->op->rms_norm.rows)};
    threads_run(n.cpu->pool, n.split.parts, norm_part, &n);
    if (call->d_in[1] != NULL) cpu_split_sum(n.cpu, n.split.parts, n.sizes.width, call->scratch, call->d_in[1]);
}

static size_t norm_backward_scratch(const void *state, const struct op *op)
{
    (void)state;
    return cpu_split_parts_max(op->rms_norm.rows) * op->rms_norm.width * sizeof(float);
}

static void gelu_block(void *context, size_t block, int thread)
{
    const struct norm *n = context;
    const struct op_call *c = n->call;
    const size_t first = block * GELU_COUNT, count = smaller(GELU_COUNT, c->op->gelu.rows * c->op->gelu.width - first);
    const float *x = (const float *)c->in[0] + first;
    (void)thread;
    if (c->d_out == NULL)
        n->cpu->k->gelu(count, x, (float *)c->out[0] + first);
    else
        n->cpu->k->gelu_backward(count, x, c->d_out + first, c->d_in[0] + first, c->add[0]);
}

static void gelu_run(void *state, const struct op_call *call)
{
    struct norm n = {.cpu = state, .call = call};
    size_t count = call->op->gelu.rows * call->op->gelu.width;
    threads_run(n.cpu->pool, (count + GELU_COUNT - 1) / GELU_COUNT, gelu_block, &n);
}

const struct tensor_kernels cpu_rms_norm = {cpu_no_scratch, norm_backward_scratch, norm_forward, norm_backward};
const struct tensor_kernels cpu_gelu = {cpu_no_scratch, cpu_no_scratch, gelu_run, gelu_run};
