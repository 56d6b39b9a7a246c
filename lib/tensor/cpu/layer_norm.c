/* Layer normalisation without weights: rows in blocks. */
#define TABFT_TENSOR_ROOM
#include "tensor/cpu/cpu_internal.h"

enum { BLOCK_ROWS = 128 };

struct norm {
    struct cpu *cpu;
    const struct op_call *call;
};

static void norm_block(void *context, size_t block, int thread)
{
    const struct norm *n = context;
    const struct op_layer_norm *s = &n->call->op->layer_norm;
    const size_t first = block * BLOCK_ROWS, at = first * s->width, rows = smaller(BLOCK_ROWS, s->rows - first);
    const float *x = (const float *)n->call->in[0] + at;
    (void)thread;
    if (n->call->d_out == NULL)
        n->cpu->k->layer_norm(rows, s->width, s->epsilon, x, (float *)n->call->out[0] + at);
    else
        n->cpu->k->layer_norm_backward(rows, s->width, s->epsilon, x, n->call->d_out + at, n->call->d_in[0] + at,
                                       n->call->add[0]);
}

static void norm_run(void *state, const struct op_call *call)
{
    struct norm n = {state, call};
    threads_run(n.cpu->pool, (call->op->layer_norm.rows + BLOCK_ROWS - 1) / BLOCK_ROWS, norm_block, &n);
}

const struct tensor_kernels cpu_layer_norm = {cpu_no_scratch, cpu_no_scratch, norm_run, norm_run};
