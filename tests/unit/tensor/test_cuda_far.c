/* Tensors of more than 2^32 numbers in one piece, on the emulation of GPUs: grids are as large as on a GPU, of which only the
 * last blocks are run, so that little memory is touched. What these compute of a tensor whose last numbers alone are not 0
 * has the bits of a tensor that consists of those. (Attention, whose strides say where its numbers lie: test_ops.) */
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "cuda_runtime_api.h"
#include "tensor/cuda/cuda.h"
#include "unit.h"

/* Numbers of the largest tensor, 4.8e9. The grid has 2^28 threads, so the last block has its last 256 numbers, and of a
 * tensor with half as many, too; where a warp has a row of WIDTH, the last 8 rows. */
enum { WIDTH = 32 };
static const size_t all_numbers = (size_t)18 << 28, all_rows = ((size_t)18 << 28) / WIDTH, grid_blocks = (size_t)1 << 20;

static struct tabft_failure f;

/* Memory of which nothing is touched yet: zeros. */
static void *untouched(size_t bytes)
{
    void *x = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_msg(x != MAP_FAILED, "%zu bytes of addresses cannot be had (ulimit -v, vm.overcommit_memory)", bytes);
    return x;
}

/* An input: as many numbers in the small tensor and in the large one, or these are the large one's last. */
struct part {
    size_t small, large;
    int32_t n_codes; /* they are codes below it */
    bool ascending, zeros;
    bool else_nan; /* the large one's others are no numbers */
    bool no_gradient;
};
struct trial {
    struct op small, large;
    struct part in[OP_INPUTS_MAX];
    size_t out, large_out; /* numbers of the result */
    size_t blocks; /* that are run; 0: the last alone */
};

static uint32_t random_state;
static float draw(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) / 8388608.0f - 1.0f;
}

struct tensors {
    float *in[OP_INPUTS_MAX], *d_in[OP_INPUTS_MAX], *out, *d_out;
    void *scratch;
    size_t scratch_bytes;
};

static void fill(const struct trial *t, struct tensors *m, bool large)
{
    random_state = 11;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        const struct part *p = &t->in[i];
        if (p->small == 0) continue;
        const size_t n = large ? p->large : p->small;
        m->in[i] = untouched(n * sizeof(float));
        if (!p->no_gradient) m->d_in[i] = untouched(n * sizeof(float));
        for (size_t j = 0; p->else_nan && j < n; j++) m->in[i][j] = NAN;
        for (size_t j = 0; j < p->small; j++) {
            const float x = p->zeros ? 0.0f : p->ascending ? (float)j / (float)p->small : draw();
            const size_t at = n - p->small + j;
            if (p->n_codes > 0) ((int32_t *)m->in[i])[at] = (int32_t)(j * j % 11) % p->n_codes;
            else m->in[i][at] = x;
        }
    }
    const size_t n = large ? t->large_out : t->out;
    m->out = untouched(n * sizeof(float));
    m->d_out = untouched(n * sizeof(float));
    for (size_t j = 0; j < t->out; j++) m->d_out[n - t->out + j] = draw();
}

static void compute(const struct trial *t, struct tensors *m, bool large)
{
    struct tensor_backend b;
    const struct op *op = large ? &t->large : &t->small;
    struct op_call call = {.op = op, .out = {m->out}, .d_out = m->d_out};
    emulation_run_last(large ? grid_blocks : 3, large ? (t->blocks > 0 ? t->blocks : 1) : 0);
    MUST(cuda_backend_open(&b, 0, TENSOR_FLOAT32, &f));
    const struct tensor_kernels *k = &b.kernels[op->kind];
    const size_t forward = k->forward_scratch(b.state, op), backward = k->backward_scratch(b.state, op);
    m->scratch_bytes = forward > backward ? forward : backward;
    call.scratch = m->scratch = untouched(m->scratch_bytes);
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        call.in[i] = m->in[i];
        call.d_in[i] = m->d_in[i];
        call.add[i] = true; /* to zeros */
    }
    k->forward(b.state, &call);
    MUST(b.vectors.finish(b.vectors.state, &f));
    if (forward > 0) ck_assert_int_eq(madvise(m->scratch, m->scratch_bytes, MADV_DONTNEED), 0);
    k->backward(b.state, &call);
    MUST(b.vectors.finish(b.vectors.state, &f));
    b.close(b.state);
}

/* Both have as many numbers, or the small one is the large one's end. */
static void same(const float *small, size_t n_small, const float *large, size_t n_large, const char *what, const char *which)
{
    const float *end = large + (n_large - n_small);
    double most = 0;
    for (size_t i = 0; i < n_small; i++) {
        ck_assert_msg(memcmp(small + i, end + i, sizeof *small) == 0, "%s, %s: number %zu from behind is %.9g instead of %.9g",
                      what, which, n_small - i, (double)end[i], (double)small[i]);
        most = fmax(most, fabs((double)small[i]));
    }
    ck_assert_msg(most > 0, "%s, %s: nothing but zeros", what, which);
}

static void give_back(const struct trial *t, struct tensors *m, bool large)
{
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        const size_t bytes = (large ? t->in[i].large : t->in[i].small) * sizeof(float) + 1;
        if (m->in[i] != NULL) munmap(m->in[i], bytes);
        if (m->d_in[i] != NULL) munmap(m->d_in[i], bytes);
    }
    munmap(m->out, (large ? t->large_out : t->out) * sizeof(float) + 1);
    munmap(m->d_out, (large ? t->large_out : t->out) * sizeof(float) + 1);
    munmap(m->scratch, m->scratch_bytes + 1);
}

static void try(const struct trial *t, const char *what)
{
    struct tensors small = {0}, large = {0};
    fill(t, &small, false);
    fill(t, &large, true);
    compute(t, &small, false);
    compute(t, &large, true);
    same(small.out, t->out, large.out, t->large_out, what, "the result");
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (small.d_in[i] != NULL) same(small.d_in[i], t->in[i].small, large.d_in[i], t->in[i].large, what, "a gradient");
    give_back(t, &small, false);
    give_back(t, &large, true);
}

/* A tensor of as many rows as the small one has numbers, in the large one those of all_rows; of half as many rows. */
#define ROWS(n) {.small = (n) * (size_t)WIDTH, .large = all_numbers}
#define HALF(n) {.small = (n) * (size_t)WIDTH, .large = all_numbers / 2}
#define SAME(n) {.small = (n), .large = (n)}

START_TEST(rows_alone)
    {
        const size_t fours = (size_t)20 << 28; /* a thread has four numbers: the last block has the last of so many */
        struct trial t = {.small = {.kind = OP_GELU, .gelu = {8, WIDTH}}, .in = {{.small = 8 * WIDTH, .large = fours}},
                          .out = 256, .large_out = fours};
        t.large = t.small;
        t.large.gelu.rows = fours / WIDTH;
        try(&t, "gelu");
        t.in[0] = (struct part)ROWS(8);
        t.large_out = all_numbers;
        t.small = (struct op){.kind = OP_RMS_NORM, .rms_norm = {8, WIDTH, 1e-6f}};
        t.large = t.small;
        t.large.rms_norm.rows = all_rows;
        t.in[1] = (struct part)SAME(WIDTH);
        try(&t, "rms_norm");
        t.small = (struct op){.kind = OP_LAYER_NORM, .layer_norm = {8, WIDTH, 1e-5f}};
        t.large = t.small;
        t.large.layer_norm.rows = all_rows;
        t.in[2] = (struct part)SAME(WIDTH);
        try(&t, "layer_norm");
    }
END_TEST

START_TEST(products)
    {
        struct trial t = {.small = {.kind = OP_LINEAR, .linear = {8, WIDTH, WIDTH}},
                          .in = {ROWS(8), SAME(WIDTH * WIDTH), SAME(WIDTH), ROWS(8)},
                          .out = 256,
                          .large_out = all_numbers};
        t.large = t.small;
        t.large.linear.rows = all_rows;
        try(&t, "linear");
    }
END_TEST

START_TEST(rows_put_together)
    {
        struct trial t = {.small = {.kind = OP_SELECT, .select = {0, 1, 1, 8, WIDTH}}, .in = {ROWS(8)}, .out = 256,
                          .large_out = all_numbers};
        t.large = t.small;
        t.large.select.rows = all_rows;
        try(&t, "select");
        t = (struct trial){.small = {.kind = OP_PREPEND, .prepend = {4, 1, 1, WIDTH}}, .in = {SAME(WIDTH), HALF(4)}, .out = 256,
                           .large_out = all_numbers};
        t.large = t.small;
        t.large.prepend.rows = all_rows / 2;
        try(&t, "prepend");
        t = (struct trial){.small = {.kind = OP_ADD_ROWS, .add_rows = {8, 2, 4, WIDTH}}, .in = {ROWS(8), HALF(4)}, .out = 256,
                           .large_out = all_numbers};
        t.large = t.small;
        t.large.add_rows = (struct op_add_rows){all_rows, 2, all_rows / 2, WIDTH};
        try(&t, "add_rows");
        t = (struct trial){.small = {.kind = OP_ASSEMBLE, .assemble = {0, 4, 1, WIDTH}},
                           .large = {.kind = OP_ASSEMBLE, .assemble = {0, all_rows / 2, 1, WIDTH}},
                           .in = {HALF(4), SAME(WIDTH), HALF(4)},
                           .out = 256,
                           .large_out = all_numbers};
        try(&t, "assemble");
        /* Each entry's gradient is a column block of its own. */
        t = (struct trial){.small = {.kind = OP_LOOKUP, .lookup = {5, 8, WIDTH}},
                           .in = {SAME(5 * WIDTH), {.small = 8, .large = all_rows, .n_codes = 5, .no_gradient = true}},
                           .out = 256,
                           .large_out = all_numbers,
                           .blocks = 5};
        t.large = t.small;
        t.large.lookup.rows = all_rows;
        try(&t, "lookup");
    }
END_TEST

START_TEST(queries)
    {
        struct trial t = {.small = {.kind = OP_HEADS, .heads = {4, WIDTH, 4, 2, 16, 2, 1e-6f}},
                          .in = {ROWS(4), {.small = 64, .large = 64, .no_gradient = true}, SAME(WIDTH)},
                          .out = 128,
                          .large_out = all_numbers};
        t.large = t.small;
        t.large.heads.rows = all_rows;
        try(&t, "heads");
        t = (struct trial){.small = {.kind = OP_MODULATE, .modulate = {8, WIDTH}}, .in = {ROWS(8), ROWS(8), SAME(WIDTH)}, .out = 256,
                           .large_out = all_numbers};
        t.large = t.small;
        t.large.modulate.rows = all_rows;
        try(&t, "modulate");
        t = (struct trial){.small = {.kind = OP_FOURIER, .fourier = {8, 2, 2, 16}},
                           .in = {{.small = 16, .large = 2 * all_rows, .no_gradient = true}, SAME(WIDTH)},
                           .out = 256,
                           .large_out = all_numbers};
        t.large = t.small;
        t.large.fourier.rows = all_rows;
        try(&t, "fourier");
    }
END_TEST

/* The loss, one double, is the mean over rows; the scales make it the sum. */
START_TEST(losses)
    {
        const size_t rows = (size_t)1 << 28, bar_rows = 1024 * 900;
        enum { CLASSES = 10, LOGITS = 18, BUCKETS = 5000 };
        struct trial t = {.small = {.kind = OP_CROSS_ENTROPY, .cross_entropy = {256, LOGITS, CLASSES, 256}},
                          .large = {.kind = OP_CROSS_ENTROPY, .cross_entropy = {rows, LOGITS, CLASSES, (double)rows}},
                          .in = {{.small = 256 * LOGITS, .large = rows * LOGITS},
                                 {.small = 256, .large = rows, .n_codes = CLASSES, .no_gradient = true},
                                 {.small = CLASSES, .large = CLASSES, .n_codes = CLASSES, .no_gradient = true}},
                          .out = 2,
                          .large_out = 2};
        ck_assert_uint_gt(rows * LOGITS, (size_t)1 << 32);
        try(&t, "cross-entropy");
        /* The last of 1,024 blocks has every 1,024th row, of which one is not left out. */
        const struct op_bar_loss bar = {.rows = 1, .width = BUCKETS, .scale = 1, .temperature = 0.9, .ce = 1, .crps = 0.5,
                                        .crls = 0.25, .mse = 0.125, .mae = 0.5, .mse_most = INFINITY, .mae_most = INFINITY};
        t = (struct trial){.small = {.kind = OP_BAR_LOSS, .bar_loss = bar},
                           .large = {.kind = OP_BAR_LOSS, .bar_loss = bar},
                           .in = {{.small = BUCKETS, .large = bar_rows * BUCKETS},
                                  {.small = 1, .large = bar_rows, .else_nan = true, .no_gradient = true},
                                  {.small = BUCKETS + 1, .large = BUCKETS + 1, .ascending = true, .no_gradient = true},
                                  {.small = BUCKETS, .large = BUCKETS, .zeros = true, .no_gradient = true}},
                           .out = 2,
                           .large_out = 2};
        t.large.bar_loss.rows = bar_rows;
        t.large.bar_loss.scale = (double)bar_rows;
        ck_assert_uint_gt(bar_rows * BUCKETS, (size_t)1 << 32);
        try(&t, "bar loss");
    }
END_TEST

START_TEST(whole_vectors)
    {
        struct tensor_backend b;
        const size_t small = 32 * (size_t)VECTORS_BLOCK, blocks = all_numbers / VECTORS_BLOCK;
        float *x[2][4];
        double *sums[2];
        const size_t n[2] = {small, all_numbers};
        MUST(cuda_backend_open(&b, 0, TENSOR_FLOAT32, &f));
        for (int large = 0; large < 2; large++) {
            emulation_run_last(large ? grid_blocks : 3, (size_t)large);
            random_state = 5;
            sums[large] = untouched(blocks * sizeof(double));
            for (int i = 0; i < 4; i++) {
                x[large][i] = untouched(n[large] * sizeof(float));
                for (size_t j = 0; j < small; j++) x[large][i][n[large] - small + j] = fabsf(draw());
            }
            b.vectors.square_sums(b.vectors.state, x[large][0], n[large], sums[large]);
            b.vectors.add(b.vectors.state, x[large][0], x[large][1], n[large]);
            const struct vectors_adamw step = {n[large], 0.9f, 0.5f, 0.1f, 0.99f, 0.01f, 0.7f, 1e-8f, 1e-2f,
                                               x[large][1], x[large][2], x[large][3], x[large][0]};
            b.vectors.adamw(b.vectors.state, &step);
            MUST(b.vectors.finish(b.vectors.state, &f));
        }
        ck_assert_mem_eq(sums[0], sums[1] + blocks - 32, 32 * sizeof(double));
        ck_assert(sums[0][31] > 0);
        for (int i = 0; i < 4; i++) same(x[0][i] + small - 256, 256, x[1][i], all_numbers, "vectors", "its last numbers");
        for (int large = 0; large < 2; large++) {
            for (int i = 0; i < 4; i++) munmap(x[large][i], n[large] * sizeof(float) + 1);
            munmap(sums[large], blocks * sizeof(double) + 1);
        }
        b.close(b.state);
    }
END_TEST

UNIT_MAIN("tensor/far", rows_alone, products, rows_put_together, queries, losses, whole_vectors)
