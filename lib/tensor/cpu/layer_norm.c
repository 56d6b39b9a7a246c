/* Layer normalisation: rows in blocks; the gradients of w and bias in parts, as in linear.c. */
#define TABFT_TENSOR_ROOM
#include "tensor/cpu/cpu_internal.h"

enum { BLOCK_ROWS = 128 };

struct norm {
    struct cpu *cpu;
    const struct op_call *call;
    struct cpu_split split;
};

static void norm_block(void *context, size_t block, int thread)
{
    const struct norm *n = context;
    const struct op_layer_norm *s = &n->call->op->layer_norm;
    const float *w = n->call->in[1], *bias = n->call->in[2];
    const size_t first = block * BLOCK_ROWS, at = first * s->width, rows = smaller(BLOCK_ROWS, s->rows - first);
    float *y = (float *)n->call->out[0] + at;
    (void)thread;
    n->cpu->k->layer_norm(rows, s->width, s->epsilon, (const float *)n->call->in[0] + at, y);
    if (w == NULL) return;
    for (size_t i = 0; i < rows; i++, y += s->width)
        for (size_t j = 0; j < s->width; j++) y[j] = y[j] * w[j] + bias[j];
}

static size_t blocks(const struct op_call *call) { return (call->op->layer_norm.rows + BLOCK_ROWS - 1) / BLOCK_ROWS; }

static void norm_forward(void *state, const struct op_call *call)
{
    struct norm n = {.cpu = state, .call = call};
    threads_run(n.cpu->pool, blocks(call), norm_block, &n);
}

static void norm_block_backward(void *context, size_t block, int thread)
{
    const struct norm *n = context;
    const struct op_call *c = n->call;
    const struct op_layer_norm *s = &c->op->layer_norm;
    const size_t first = block * BLOCK_ROWS, at = first * s->width;
    (void)thread;
    n->cpu->k->layer_norm_backward(smaller(BLOCK_ROWS, s->rows - first), s->width, s->epsilon,
                                   (const float *)c->in[0] + at, c->d_out + at, c->d_in[0] + at, c->add[0]);
}

/* One part of the rows, row by row, with its shares of the gradients of w and bias. */
static void norm_part(void *context, size_t part, int thread)
{
    const struct norm *n = context;
    const struct op_call *c = n->call;
    const struct op_layer_norm *s = &c->op->layer_norm;
    const size_t e = s->width, parts = n->split.parts;
    const float *w = c->in[1];
    float *const dw = (float *)c->scratch + part * e, *const d_bias = dw + parts * e;
    float *const y = (float *)c->scratch + (parts + (size_t)thread) * 2 * e, *const d = y + e;
    memset(dw, 0, e * sizeof *dw);
    memset(d_bias, 0, e * sizeof *d_bias);
    for (size_t r = part * n->split.rows; r < smaller((part + 1) * n->split.rows, s->rows); r++) {
        const float *x = (const float *)c->in[0] + r * e, *dy = c->d_out + r * e;
        n->cpu->k->layer_norm(1, e, s->epsilon, x, y);
        for (size_t j = 0; j < e; j++) {
            dw[j] += dy[j] * y[j];
            d_bias[j] += dy[j];
            d[j] = dy[j] * w[j];
        }
        n->cpu->k->layer_norm_backward(1, e, s->epsilon, x, d, c->d_in[0] + r * e, c->add[0]);
    }
}

static void norm_backward(void *state, const struct op_call *call)
{
    const struct op_layer_norm *s = &call->op->layer_norm;
    struct norm n = {.cpu = state, .call = call, .split = cpu_split_of(s->rows)};
    if (call->in[1] == NULL) {
        threads_run(n.cpu->pool, blocks(call), norm_block_backward, &n);
        return;
    }
    threads_run(n.cpu->pool, n.split.parts, norm_part, &n);
    for (size_t i = 1; i <= 2; i++) {
        if (call->d_in[i] == NULL) continue;
        if (!call->add[i]) memset(call->d_in[i], 0, s->width * sizeof *call->d_in[i]);
        cpu_split_sum(n.cpu, n.split.parts, s->width, (const float *)call->scratch + (i - 1) * n.split.parts * s->width,
                      call->d_in[i]);
    }
}

static size_t norm_backward_scratch(const void *state, const struct op *op)
{
    return (cpu_split_parts_max(op->layer_norm.rows) + ((const struct cpu *)state)->n_threads) * 2 *
           op->layer_norm.width * sizeof(float);
}

const struct tensor_kernels cpu_layer_norm = {cpu_no_scratch, norm_backward_scratch, norm_forward, norm_backward};
