/* y = x w^T: w is packed once a call, rows go in blocks. The weight's gradient is a sum over rows: parts of fixed
 * size, each summed by one thread in blocks of ROW_BLOCK, then added up in order. */
#define TABFT_TENSOR_ROOM
#include "tensor/cpu/cpu_internal.h"

enum { ROW_BLOCK = 120, SUM_ROWS = 128 }; /* ROW_BLOCK: a multiple of every tile's rows; SUM_ROWS: see CPU_SPLIT_ROWS */

struct linear {
    struct cpu *cpu;
    const struct op_call *call;
    struct op_linear sizes;
    float *panels;  /* w packed for the product at hand */
    float *partial; /* [parts][out_width][in_width] then [parts][out_width] */
    float *blocks;  /* [threads][SUM_ROWS x in_width packed] */
    struct cpu_split split;
};

static size_t padded(const struct cpu *cpu, size_t n) { return round_up(n, cpu->k->nr); }

/* ---- forward ---- */

static void pack_weight_block(void *context, size_t panel, int thread)
{
    const struct linear *l = context;
    const size_t nr = l->cpu->k->nr, in = l->sizes.in_width, first = panel * nr;
    (void)thread;
    l->cpu->k->pack_columns(in, smaller(nr, l->sizes.out_width - first), (const float *)l->call->in[1] + first * in, in,
                            1.0f, l->panels + first * in);
}

static void forward_block(void *context, size_t block, int thread)
{
    const struct linear *l = context;
    const struct op_linear *s = &l->sizes;
    const size_t first = block * ROW_BLOCK;
    const float *bias = l->call->in[2], *residual = l->call->in[3];
    (void)thread;
    struct product p = {.m = smaller(ROW_BLOCK, s->rows - first),
                        .n = s->out_width,
                        .k = s->in_width,
                        .a = (const float *)l->call->in[0] + first * s->in_width,
                        .a_row = s->in_width,
                        .a_step = 1,
                        .b = l->panels,
                        .c = (float *)l->call->out[0] + first * s->out_width,
                        .c_row = s->out_width};
    if (residual != NULL) {
        p.init = residual + first * s->out_width;
        p.init_row = s->out_width;
    } else {
        p.init = bias;
    }
    l->cpu->k->product(&p);
    if (residual != NULL && bias != NULL)
        for (size_t i = 0; i < p.m; i++) l->cpu->k->add(s->out_width, bias, p.c + i * s->out_width);
}

static size_t row_blocks(size_t rows) { return (rows + ROW_BLOCK - 1) / ROW_BLOCK; }

static void linear_forward(void *state, const struct op_call *call)
{
    struct linear l = {.cpu = state, .call = call, .sizes = call->op->linear, .panels = call->scratch};
    threads_run(l.cpu->pool, padded(l.cpu, l.sizes.out_width) / l.cpu->k->nr, pack_weight_block, &l);
    threads_run(l.cpu->pool, row_blocks(l.sizes.rows), forward_block, &l);
}

/* ---- backward ---- */

static void input_block(void *context, size_t block, int thread)
{
    const struct linear *l = context;
    const struct op_linear *s = &l->sizes;
    const size_t first = block * ROW_BLOCK;
    (void)thread;
    struct product p = {.m = smaller(ROW_BLOCK, s->rows - first),
                        .n = s->in_width,
                        .k = s->out_width,
                        .a = l->call->d_out + first * s->out_width,
                        .a_row = s->out_width,
                        .a_step = 1,
                        .b = l->panels,
                        .c = l->call->d_in[0] + first * s->in_width,
                        .c_row = s->in_width,
                        .init_row = s->in_width};
    p.init = l->call->add[0] ? p.c : NULL;
    l->cpu->k->product(&p);
}

static void residual_block(void *context, size_t block, int thread)
{
    const struct linear *l = context;
    const size_t first = block * ROW_BLOCK * l->sizes.out_width;
    (void)thread;
    size_t count = smaller(ROW_BLOCK * l->sizes.out_width, l->sizes.rows * l->sizes.out_width - first);
    l->cpu->k->add(count, l->call->d_out + first, l->call->d_in[3] + first);
}

/* One part of the weight's (and the bias's) gradient. */
static void weight_part(void *context, size_t part, int thread)
{
    const struct linear *l = context;
    const struct op_linear *s = &l->sizes;
    const size_t in = s->in_width, out = s->out_width;
    const size_t first = part * l->split.rows, end = smaller(first + l->split.rows, s->rows);
    float *sum = l->partial + part * out * in;
    float *bias_sum = l->partial + l->split.parts * out * in + part * out;
    float *panels = l->blocks + (size_t)thread * SUM_ROWS * padded(l->cpu, in);
    for (size_t r = first; r < end; r += SUM_ROWS) {
        const size_t rows = smaller(SUM_ROWS, end - r);
        const float *d = l->call->d_out + r * out;
        if (l->call->d_in[1] != NULL) {
            l->cpu->k->pack_rows(rows, in, (const float *)l->call->in[0] + r * in, in, 1.0f, panels);
            struct product p = {.m = out,
                                .n = in,
                                .k = rows,
                                .a = d,
                                .a_row = 1,
                                .a_step = out,
                                .b = panels,
                                .c = sum,
                                .c_row = in,
                                .init = r == first ? NULL : sum,
                                .init_row = in};
            l->cpu->k->product(&p);
        }
        if (l->call->d_in[2] == NULL) continue;
        if (r == first)
            for (size_t j = 0; j < out; j++) bias_sum[j] = 0.0f;
        for (size_t i = 0; i < rows; i++) l->cpu->k->add(out, d + i * out, bias_sum);
    }
}

static size_t partial_floats(const struct op_linear *s)
{
    return cpu_split_parts_max(s->rows) * s->out_width * (s->in_width + 1);
}

static void linear_backward(void *state, const struct op_call *call)
{
    struct linear l = {.cpu = state, .call = call, .sizes = call->op->linear, .panels = call->scratch};
    const struct op_linear *s = &l.sizes;
    const struct cpu_kernels *k = l.cpu->k;
    if (call->d_in[0] != NULL) {
        k->pack_rows(s->out_width, s->in_width, call->in[1], s->in_width, 1.0f, l.panels);
        threads_run(l.cpu->pool, row_blocks(s->rows), input_block, &l);
    }
    if (call->d_in[1] != NULL || call->d_in[2] != NULL) {
        l.split = cpu_split_of(s->rows);
        l.partial = call->scratch;
        l.blocks = l.partial + round_up(partial_floats(s), 16);
        threads_run(l.cpu->pool, l.split.parts, weight_part, &l);
        if (call->d_in[1] != NULL)
            cpu_split_sum(l.cpu, l.split.parts, s->out_width * s->in_width, l.partial, call->d_in[1]);
        if (call->d_in[2] != NULL)
            cpu_split_sum(l.cpu, l.split.parts, s->out_width, l.partial + l.split.parts * s->out_width * s->in_width,
                          call->d_in[2]);
    }
    if (call->d_in[3] != NULL) threads_run(l.cpu->pool, row_blocks(s->rows), residual_block, &l);
}

static size_t forward_scratch(const void *state, const struct op *op)
{
    return padded(state, op->linear.out_width) * op->linear.in_width * sizeof(float);
}

static size_t backward_scratch(const void *state, const struct op *op)
{
    const struct cpu *cpu = state;
    const struct op_linear *s = &op->linear;
    size_t input = padded(cpu, s->in_width) * s->out_width;
    size_t weight = round_up(partial_floats(s), 16) + cpu->n_threads * SUM_ROWS * padded(cpu, s->in_width);
    return (input > weight ? input : weight) * sizeof(float);
}

const struct tensor_kernels cpu_linear = {forward_scratch, backward_scratch, linear_forward, linear_backward};
