/* y = x w^T: w is packed once a call, rows go in blocks. The weight's gradient is a sum over rows: parts of fixed
 * size, each summed by one thread in blocks of SUM_ROWS, then added up in order; or, where the rows are fewer than the
 * numbers that the parts would have beside each other, x is packed whole and each thread takes some of the weight's
 * rows. */
#define TABFT_TENSOR_ROOM
#include "tensor/cpu/cpu_internal.h"

/* TILE and OUT_BLOCK: multiples of every tile's rows; SUM_ROWS: see CPU_SPLIT_ROWS. */
enum { ROW_BLOCK = 120, TILE = 12, OUT_BLOCK = 48, SUM_ROWS = 128 };

struct linear {
    struct cpu *cpu;
    const struct op_call *call;
    struct op_linear sizes;
    float *panels;  /* w packed for the product at hand */
    float *partial; /* [parts][out_width][in_width], or of the bias [parts][out_width] */
    float *blocks;  /* [threads][SUM_ROWS x in_width packed], or all rows packed */
    struct cpu_split split;
    size_t row_block; /* rows that one thread takes at a time, where rows are no sum */
};

/* About ROW_BLOCK rows, such that all threads end together. Which rows are in a block changes nothing but who computes
 * them. */
static size_t row_block_for(size_t rows, size_t n_threads)
{
    const size_t few = round_up((rows + ROW_BLOCK - 1) / ROW_BLOCK, n_threads);
    size_t best = ROW_BLOCK, least = SIZE_MAX;
    for (size_t n = few; rows > 0 && n <= few + 4 * n_threads; n += n_threads) {
        const size_t block = round_up((rows + n - 1) / n, TILE), longest = n / n_threads * block;
        if (longest >= least || block > ROW_BLOCK) continue;
        least = longest;
        best = block;
    }
    return best;
}

static struct linear linear_of(void *state, const struct op_call *call)
{
    struct linear l = {.cpu = state, .call = call, .sizes = call->op->linear};
    l.panels = l.partial = l.blocks = call->scratch;
    l.split = cpu_split_of(l.sizes.rows);
    l.row_block = row_block_for(l.sizes.rows, l.cpu->n_threads);
    return l;
}

static size_t row_blocks(const struct linear *l) { return (l->sizes.rows + l->row_block - 1) / l->row_block; }

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
    const size_t first = block * l->row_block;
    const float *bias = l->call->in[2], *residual = l->call->in[3];
    (void)thread;
    struct product p = {.m = smaller(l->row_block, s->rows - first),
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

static void linear_forward(void *state, const struct op_call *call)
{
    struct linear l = linear_of(state, call);
    threads_run(l.cpu->pool, padded(l.cpu, l.sizes.out_width) / l.cpu->k->nr, pack_weight_block, &l);
    threads_run(l.cpu->pool, row_blocks(&l), forward_block, &l);
}

/* ---- backward ---- */

static void input_block(void *context, size_t block, int thread)
{
    const struct linear *l = context;
    const struct op_linear *s = &l->sizes;
    const size_t first = block * l->row_block;
    (void)thread;
    struct product p = {.m = smaller(l->row_block, s->rows - first),
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

static void pack_input_panel(void *context, size_t panel, int thread)
{
    const struct linear *l = context;
    const size_t nr = l->cpu->k->nr, in = l->sizes.in_width, out = l->sizes.out_width, first = panel * nr;
    (void)thread;
    l->cpu->k->pack_rows(out, smaller(nr, in - first), (const float *)l->call->in[1] + first, in, 1.0f,
                         l->panels + first * out);
}

static void residual_block(void *context, size_t block, int thread)
{
    const struct linear *l = context;
    const size_t first = block * l->row_block * l->sizes.out_width;
    (void)thread;
    size_t count = smaller(l->row_block * l->sizes.out_width, l->sizes.rows * l->sizes.out_width - first);
    l->cpu->k->add(count, l->call->d_out + first, l->call->d_in[3] + first);
}

/* ---- the weight's gradient by its rows ---- */

static bool goes_by_rows(const struct op_linear *s) { return s->rows < cpu_split_of(s->rows).parts * s->out_width; }

static size_t sum_blocks(size_t rows) { return (rows + SUM_ROWS - 1) / SUM_ROWS; }

/* SUM_ROWS rows of x. */
static void pack_rows_block(void *context, size_t block, int thread)
{
    const struct linear *l = context;
    const size_t in = l->sizes.in_width, first = block * SUM_ROWS;
    (void)thread;
    l->cpu->k->pack_rows(smaller(SUM_ROWS, l->sizes.rows - first), in, (const float *)l->call->in[0] + first * in, in,
                         1.0f, l->blocks + first * padded(l->cpu, in));
}

/* OUT_BLOCK rows of the weight's gradient. */
static void weight_block(void *context, size_t block, int thread)
{
    const struct linear *l = context;
    const struct op_linear *s = &l->sizes;
    const size_t in = s->in_width, first = block * OUT_BLOCK, n = smaller(OUT_BLOCK, s->out_width - first);
    float *const to = l->call->d_in[1] + first * in;
    (void)thread;
    for (size_t r = 0; r < s->rows; r += SUM_ROWS)
        l->cpu->k->product(&(struct product){.m = n,
                                             .n = in,
                                             .k = smaller(SUM_ROWS, s->rows - r),
                                             .a = l->call->d_out + r * s->out_width + first,
                                             .a_row = 1,
                                             .a_step = s->out_width,
                                             .b = l->blocks + r * padded(l->cpu, in),
                                             .c = to,
                                             .c_row = in,
                                             .init = r == 0 && !l->call->add[1] ? NULL : to,
                                             .init_row = in});
}

static void weight_by_rows(struct linear *l)
{
    threads_run(l->cpu->pool, sum_blocks(l->sizes.rows), pack_rows_block, l);
    threads_run(l->cpu->pool, (l->sizes.out_width + OUT_BLOCK - 1) / OUT_BLOCK, weight_block, l);
}

/* ---- the weight's gradient by parts of the sum ---- */

static void weight_part(void *context, size_t part, int thread)
{
    const struct linear *l = context;
    const struct op_linear *s = &l->sizes;
    const size_t in = s->in_width, out = s->out_width;
    const size_t first = part * l->split.rows, end = smaller(first + l->split.rows, s->rows);
    float *sum = l->partial + part * out * in, *panels = l->blocks + (size_t)thread * SUM_ROWS * padded(l->cpu, in);
    for (size_t r = first; r < end; r += SUM_ROWS) {
        const size_t rows = smaller(SUM_ROWS, end - r);
        l->cpu->k->pack_rows(rows, in, (const float *)l->call->in[0] + r * in, in, 1.0f, panels);
        l->cpu->k->product(&(struct product){.m = out,
                                             .n = in,
                                             .k = rows,
                                             .a = l->call->d_out + r * out,
                                             .a_row = 1,
                                             .a_step = out,
                                             .b = panels,
                                             .c = sum,
                                             .c_row = in,
                                             .init = r == first ? NULL : sum,
                                             .init_row = in});
    }
}

static void weight_by_parts(struct linear *l)
{
    const size_t numbers = l->sizes.out_width * l->sizes.in_width;
    l->blocks = l->partial + round_up(l->split.parts * numbers, 16);
    threads_run(l->cpu->pool, l->split.parts, weight_part, l);
    cpu_split_sum(l->cpu, l->split.parts, numbers, l->partial, l->call->d_in[1]);
}

static void bias_part(void *context, size_t part, int thread)
{
    const struct linear *l = context;
    const size_t out = l->sizes.out_width, first = part * l->split.rows;
    float *sum = l->partial + part * out;
    (void)thread;
    for (size_t j = 0; j < out; j++) sum[j] = 0.0f;
    for (size_t i = first; i < smaller(first + l->split.rows, l->sizes.rows); i++)
        l->cpu->k->add(out, l->call->d_out + i * out, sum);
}

static void linear_backward(void *state, const struct op_call *call)
{
    struct linear l = linear_of(state, call);
    const struct op_linear *s = &l.sizes;
    if (call->d_in[0] != NULL) {
        threads_run(l.cpu->pool, padded(l.cpu, s->in_width) / l.cpu->k->nr, pack_input_panel, &l);
        threads_run(l.cpu->pool, row_blocks(&l), input_block, &l);
    }
    if (call->d_in[1] != NULL && goes_by_rows(s)) weight_by_rows(&l);
    else if (call->d_in[1] != NULL) weight_by_parts(&l);
    if (call->d_in[2] != NULL) {
        threads_run(l.cpu->pool, l.split.parts, bias_part, &l);
        cpu_split_sum(l.cpu, l.split.parts, s->out_width, l.partial, call->d_in[2]);
    }
    if (call->d_in[3] != NULL) threads_run(l.cpu->pool, row_blocks(&l), residual_block, &l);
}

static size_t forward_scratch(const void *state, const struct op *op)
{
    return padded(state, op->linear.out_width) * op->linear.in_width * sizeof(float);
}

static size_t backward_scratch(const void *state, const struct op *op)
{
    const struct cpu *cpu = state;
    const struct op_linear *s = &op->linear;
    /* Fewer rows may go the other way: so either's numbers are bounded by the lesser of the two. */
    const size_t parts = cpu_split_parts_max(s->rows) * s->out_width, width = padded(cpu, s->in_width),
                 input = width * s->out_width,
                 weight = smaller(s->rows, parts) * width + 16 + cpu->n_threads * SUM_ROWS * width;
    return (input > weight ? (input > parts ? input : parts) : (weight > parts ? weight : parts)) * sizeof(float);
}

const struct tensor_kernels cpu_linear = {forward_scratch, backward_scratch, linear_forward, linear_backward};
