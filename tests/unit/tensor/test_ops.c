/* Every operation alone against a plain float64 computation of the same formula: the result, and each gradient
 * against central differences of it; on every instruction set of this machine, with gradients overwritten and added
 * to, and with bits that do not depend on the number of threads. Sizes are odd on purpose: they leave remainders in
 * every blocking. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "tensor/cpu/cpu.h"
#include "tensor/seen.h"
#include "unit.h"
#ifdef TABFT_TEST_CUDA
#include "base/vectors_check.h"
#endif

static struct tabft_failure f;

/* What is tested: the CPU's backend, or, where this file is compiled for it, that of GPUs under the emulation. */
#ifdef TABFT_TEST_CUDA
#include "tensor/cuda/cuda.h"
static const char *const isas[] = {"cuda"};
static bool has_isa(const char *isa)
{
    (void)isa;
    return true;
}
static void open_backend(struct tensor_backend *b, struct threads *pool)
{
    (void)pool;
    MUST(cuda_backend_open(b, 0, TENSOR_FLOAT32, &f));
}
#else
static const char *const isas[] = {"avx512", "avx2", "baseline"};
/* Pins it, where this processor has it. */
static bool has_isa(const char *isa)
{
    const char *pinned;
    setenv("TABFT_ISA", isa, 1);
    const bool has = tensor_isa(&pinned, &f) == 0;
    f = (struct tabft_failure){0};
    return has;
}
static void open_backend(struct tensor_backend *b, struct threads *pool) { MUST(cpu_backend_open(b, pool, &f)); }
#endif

/* The same operation in float64; inputs and output as in the record. */
typedef void reference(const struct op *op, double *const *in, double *out);

struct input {
    size_t count;
    bool no_gradient;
    int32_t n_codes; /* they are codes below it, and zeros in float64 */
};
struct trial {
    struct op op;
    reference *forward;
    struct input in[OP_INPUTS_MAX];
    size_t out, out2; /* floats of the outputs */
    double tolerance; /* of the largest entry */
};

static uint32_t random_state;
static double draw(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (double)(random_state >> 8) / 8388608.0 - 1.0;
}

/* Code j of an input of codes; the last code never occurs. */
static int32_t code_at(size_t j, int32_t n_codes) { return (int32_t)(j * j % 11) % (n_codes - 1); }

static void *zeros(size_t n, size_t size) { return seen_new(n, size, 0); }

/* Input data: float32 numbers, the same in float64. */
struct data {
    float *x[OP_INPUTS_MAX];
    double *wide[OP_INPUTS_MAX];
    float *d_out;
};

static struct data make_data(const struct trial *t)
{
    struct data d = {0};
    random_state = 7;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (t->in[i].count == 0) continue;
        d.x[i] = zeros(t->in[i].count, sizeof(float));
        d.wide[i] = zeros(t->in[i].count, sizeof(double));
        for (size_t j = 0; j < t->in[i].count && !t->in[i].no_gradient; j++)
            d.wide[i][j] = d.x[i][j] = (float)(1.5 * draw());
        for (size_t j = 0; j < t->in[i].count && t->in[i].n_codes > 0; j++)
            ((int32_t *)d.x[i])[j] = code_at(j, t->in[i].n_codes);
    }
    d.d_out = zeros(t->out, sizeof(float));
    for (size_t j = 0; j < t->out; j++) d.d_out[j] = (float)draw();
    return d;
}

static void free_data(struct data *d)
{
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        seen_free(d->x[i]);
        seen_free(d->wide[i]);
    }
    seen_free(d->d_out);
}

/* What a backend makes of it. */
struct made {
    float *out, *out2, *d_in[OP_INPUTS_MAX];
};

static struct made run(const struct trial *t, const struct data *d, int n_threads, float added)
{
    struct threads *pool;
    struct tensor_backend b;
    struct made made = {.out = zeros(t->out, sizeof(float)), .out2 = zeros(t->out2 + 1, sizeof(float))};
    struct op_call call = {.op = &t->op, .out = {made.out, made.out2}};
    MUST(threads_open(&pool, n_threads, &f));
    open_backend(&b, pool);
    const struct tensor_kernels *k = &b.kernels[t->op.kind];
    for (int i = 0; i < OP_INPUTS_MAX; i++) call.in[i] = d->x[i];
    const size_t sizes[] = {k->forward_scratch(b.state, &t->op), k->backward_scratch(b.state, &t->op)};
    char *scratch = zeros(sizes[0] > sizes[1] ? sizes[0] : sizes[1], 1);
    memset(scratch, 0xff, sizes[0]); /* not a number: nothing may be read before it is written */
    call.scratch = scratch;
    k->forward(b.state, &call);
    MUST(b.vectors.finish(b.vectors.state, &f));
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (t->in[i].count == 0 || t->in[i].no_gradient) continue;
        call.d_in[i] = made.d_in[i] = zeros(t->in[i].count, sizeof(float));
        /* The gradients of parameters and residuals are only ever added to. */
        const bool only_added = t->op.kind == OP_LINEAR ? i > 0 : t->op.kind == OP_RMS_NORM && i == 1;
        call.add[i] = only_added || added != 0;
        for (size_t j = 0; j < t->in[i].count; j++) made.d_in[i][j] = call.add[i] ? added : NAN;
    }
    if (t->op.kind == OP_SELECT) {
        for (size_t j = 0; j < t->in[0].count; j++) made.d_in[0][j] = added;
        call.add[0] = true;
    }
    call.d_out = d->d_out;
    memset(scratch, 0xff, sizes[1]);
    k->backward(b.state, &call);
    MUST(b.vectors.finish(b.vectors.state, &f));
    seen_free(scratch);
    b.close(b.state);
    threads_close(pool);
    return made;
}

static void free_made(struct made *m)
{
    seen_free(m->out);
    seen_free(m->out2);
    for (int i = 0; i < OP_INPUTS_MAX; i++) seen_free(m->d_in[i]);
}

static double largest(const double *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

/* The sum of d_out * out. */
static double weighted(const struct trial *t, const struct data *d, double *out)
{
    double sum = 0;
    t->forward(&t->op, d->wide, out);
    for (size_t i = 0; i < t->out; i++) sum += out[i] * d->d_out[i];
    return sum;
}

enum { PLACES = 40 };
/* The gradient of each input by central differences at up to PLACES places. */
struct slopes {
    double right[OP_INPUTS_MAX][PLACES], largest[OP_INPUTS_MAX];
    size_t at[OP_INPUTS_MAX][PLACES], n[OP_INPUTS_MAX];
};

static void find_slopes(const struct trial *t, const struct data *d, struct slopes *s)
{
    const double h = 1e-5;
    double *out = zeros(t->out, sizeof(double));
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        s->n[i] = t->in[i].no_gradient ? 0 : t->in[i].count < PLACES ? t->in[i].count : PLACES;
        for (size_t p = 0; p < s->n[i]; p++) {
            const size_t at = s->at[i][p] = p * t->in[i].count / s->n[i];
            const double x = d->wide[i][at];
            d->wide[i][at] = x + h;
            const double up = weighted(t, d, out);
            d->wide[i][at] = x - h;
            s->right[i][p] = (up - weighted(t, d, out)) / (2 * h);
            d->wide[i][at] = x;
        }
        s->largest[i] = largest(s->right[i], s->n[i]);
    }
    seen_free(out);
}

static void check_gradients(const struct trial *t, const struct slopes *s, const struct made *m, float added,
                            const char *what)
{
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (m->d_in[i] == NULL) continue;
        for (size_t p = 0; p < s->n[i]; p++) {
            const double got = (double)m->d_in[i][s->at[i][p]] - added;
            ck_assert_msg(fabs(got - s->right[i][p]) <= t->tolerance * (s->largest[i] + 0.02 + added),
                          "%s: gradient of input %d at %zu: %.9g instead of %.9g", what, i, s->at[i][p], got,
                          s->right[i][p]);
        }
    }
}

static void check(const struct trial *t, struct data *d, const char *what)
{
    double *right = zeros(t->out, sizeof(double));
    struct slopes slopes;
    t->forward(&t->op, d->wide, right);
    find_slopes(t, d, &slopes);
    const double scale = largest(right, t->out);
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        const char *isa = isas[i];
        if (!has_isa(isa)) continue;
        struct made one = run(t, d, 1, 0.0f), three = run(t, d, 3, 0.0f), added = run(t, d, 2, 0.5f);
        for (size_t j = 0; j < t->out; j++)
            ck_assert_msg(fabs(one.out[j] - right[j]) <= t->tolerance * scale,
                          "%s, %s: result %zu is %.9g instead of %.9g", what, isa, j, (double)one.out[j], right[j]);
        ck_assert_mem_eq(one.out, three.out, t->out * sizeof(float));
        for (int g = 0; g < OP_INPUTS_MAX; g++)
            if (one.d_in[g] != NULL) ck_assert_mem_eq(one.d_in[g], three.d_in[g], t->in[g].count * sizeof(float));
        check_gradients(t, &slopes, &one, 0.0f, what);
        check_gradients(t, &slopes, &added, 0.5f, what);
        free_made(&one);
        free_made(&three);
        free_made(&added);
    }
    unsetenv("TABFT_ISA");
    seen_free(right);
}

static void try(const struct trial *t, const char *what)
{
    struct data d = make_data(t);
    check(t, &d, what);
    free_data(&d);
}

/* ---- linear ---- */

static void linear(const struct op *op, double *const *in, double *out)
{
    const struct op_linear *s = &op->linear;
    for (size_t r = 0; r < s->rows; r++)
        for (size_t o = 0; o < s->out_width; o++) {
            double sum = in[2] == NULL ? 0 : in[2][o];
            if (in[3] != NULL) sum += in[3][r * s->out_width + o];
            for (size_t i = 0; i < s->in_width; i++) sum += in[0][r * s->in_width + i] * in[1][o * s->in_width + i];
            out[r * s->out_width + o] = sum;
        }
}

START_TEST(linear_is_right)
    {
        const size_t sizes[][3] = {{1, 1, 1}, {7, 5, 9}, {13, 33, 64}, {301, 24, 31}, {4200, 6, 10}, {40, 12, 21}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t rows = sizes[i][0], in = sizes[i][1], out = sizes[i][2];
            struct trial t = {.op = {.kind = OP_LINEAR, .linear = {rows, in, out}},
                              .forward = linear,
                              .in = {{.count = rows * in}, {.count = out * in}},
                              .out = rows * out,
                              .tolerance = 1e-5};
            try(&t, "linear");
            t.in[2].count = out;
            try(&t, "linear with bias");
            t.in[3].count = rows * out;
            try(&t, "linear with bias and residual");
            t.in[2].count = 0;
            try(&t, "linear with residual");
        }
    }
END_TEST

/* In a vector of all parameters a bias begins anywhere. */
START_TEST(a_bias_may_begin_anywhere)
    {
        const size_t rows = 37, in = 24, width = 32, count = rows * width;
        struct trial t = {.op = {.kind = OP_LINEAR, .linear = {rows, in, width}},
                          .in = {{.count = rows * in}, {.count = width * in}, {.count = width}},
                          .out = count};
        struct data d = make_data(&t);
        struct made right = run(&t, &d, 1, 0);
        struct tensor_backend b;
        float *moved = zeros(width + 4, sizeof *moved), *y = zeros(count, sizeof *y);
        struct op_call call = {.op = &t.op, .in = {d.x[0], d.x[1]}, .out = {y}};
        open_backend(&b, NULL);
        call.scratch = zeros(b.kernels[OP_LINEAR].forward_scratch(b.state, &t.op) + 1, 1);
        for (size_t by = 0; by < 4; by++) {
            memcpy(moved + by, d.x[2], width * sizeof *moved);
            call.in[2] = moved + by;
            b.kernels[OP_LINEAR].forward(b.state, &call);
            MUST(b.vectors.finish(b.vectors.state, &f));
            for (size_t i = 0; i < count; i++) ck_assert_float_eq_tol(y[i], right.out[i], 1e-5f);
        }
        seen_free(call.scratch);
        seen_free(moved);
        seen_free(y);
        b.close(b.state);
        free_made(&right);
        free_data(&d);
    }
END_TEST

/* y in the place of its residual has the bits of one beside it. */
START_TEST(linear_may_take_its_residuals_place)
    {
        const size_t rows = 37, in = 24, width = 31, count = rows * width;
        for (int with_bias = 0; with_bias < 2; with_bias++) {
            struct trial t = {.op = {.kind = OP_LINEAR, .linear = {rows, in, width}},
                              .in = {{.count = rows * in}, {.count = width * in}, {.count = with_bias ? width : 0}, {.count = count}},
                              .out = count};
            struct data d = make_data(&t);
            struct made beside = run(&t, &d, 1, 0);
            struct tensor_backend b;
            struct op_call call = {.op = &t.op, .in = {d.x[0], d.x[1], d.x[2], d.x[3]}, .out = {d.x[3]}};
            open_backend(&b, NULL);
            ck_assert_uint_ne(b.in_place[OP_LINEAR] & 1u << 3, 0);
            call.scratch = zeros(b.kernels[OP_LINEAR].forward_scratch(b.state, &t.op) + 1, 1);
            b.kernels[OP_LINEAR].forward(b.state, &call);
            MUST(b.vectors.finish(b.vectors.state, &f));
            ck_assert_mem_eq(d.x[3], beside.out, count * sizeof(float));
            seen_free(call.scratch);
            b.close(b.state);
            free_made(&beside);
            free_data(&d);
        }
    }
END_TEST

/* ---- attention: q, k and v are tensors of their own here; o and the statistics follow q's tokens ---- */

static void attention(const struct op *op, double *const *in, double *out)
{
    const struct op_attention *s = &op->attention;
    double *p = zeros(s->n_keys, sizeof *p);
    for (size_t sequence = 0; sequence < s->sequences; sequence++)
        for (size_t token = 0; token < s->n_context + s->n_query; token++)
            for (size_t head = 0; head < s->heads; head++) {
                const size_t kv = head / (s->heads / (token < s->n_context ? s->context_kv_heads : s->query_kv_heads));
                const double *q = in[0] + sequence * s->q.sequence + token * s->q.token + s->q.column + head * s->width;
                double sum = 0, top = -INFINITY;
                for (size_t j = 0; j < s->n_keys; j++) {
                    const double *k = in[1] + sequence * s->k.sequence + j * s->k.token + s->k.column + kv * s->width;
                    p[j] = 0;
                    for (size_t d = 0; d < s->width; d++) p[j] += q[d] * k[d] / sqrt((double)s->width);
                    top = fmax(top, p[j]);
                }
                for (size_t j = 0; j < s->n_keys; j++) sum += p[j] = exp(p[j] - top);
                double *o = out + sequence * s->o.sequence + token * s->o.token + s->o.column + head * s->width;
                for (size_t d = 0; d < s->width; d++) {
                    o[d] = 0;
                    for (size_t j = 0; j < s->n_keys; j++)
                        o[d] += p[j] / sum *
                                in[2][sequence * s->v.sequence + j * s->v.token + s->v.column + kv * s->width + d];
                }
            }
    seen_free(p);
}

/* Sequences next to each other (rows: token stride = sequences * width) or one after the other. */
static void try_attention_over(size_t n_keys, size_t sequences, size_t n_context, size_t n_query, size_t heads,
                               size_t width, size_t context_kv, size_t query_kv, bool interleaved)
{
    const size_t tokens = n_context + n_query, kv = context_kv > query_kv ? context_kv : query_kv, e = heads * width,
                 ekv = kv * width;
    struct op_attention a = {.sequences = sequences,
                             .n_context = n_context,
                             .n_query = n_query,
                             .n_keys = n_keys,
                             .heads = heads,
                             .width = width,
                             .context_kv_heads = context_kv,
                             .query_kv_heads = query_kv};
    if (interleaved) {
        a.q = a.o = (struct op_attention_stride){e, sequences * e, 0};
        a.k = a.v = (struct op_attention_stride){ekv, sequences * ekv, 0};
        a.statistics = (struct op_attention_stride){2 * heads, sequences * 2 * heads, 0};
    } else {
        a.q = a.o = (struct op_attention_stride){tokens * e, e, 0};
        a.k = a.v = (struct op_attention_stride){n_keys * ekv, ekv, 0};
        a.statistics = (struct op_attention_stride){tokens * 2 * heads, 2 * heads, 0};
    }
    struct trial t = {.op = {.kind = OP_ATTENTION, .attention = a},
                      .forward = attention,
                      .in = {{.count = sequences * tokens * e},
                             {.count = sequences * n_keys * ekv},
                             {.count = sequences * n_keys * ekv}},
                      .out = sequences * tokens * e,
                      .out2 = sequences * tokens * 2 * heads,
                      .tolerance = 2e-5};
    char what[100];
    (void)snprintf(what, sizeof what, "attention %zu x %zu + %zu to %zu, %zu heads of %zu, %zu and %zu", sequences,
                   n_context, n_query, n_keys, heads, width, context_kv, query_kv);
    try(&t, what);
}

/* The keys are those of the context. */
static void try_attention(size_t sequences, size_t n_context, size_t n_query, size_t heads, size_t width,
                          size_t context_kv, size_t query_kv, bool interleaved)
{
    try_attention_over(n_context, sequences, n_context, n_query, heads, width, context_kv, query_kv, interleaved);
}

START_TEST(attention_is_right)
    {
        try_attention(1, 1, 0, 1, 1, 1, 1, false);
        try_attention(3, 5, 4, 4, 8, 4, 1, true);
        try_attention(2, 19, 7, 4, 16, 2, 2, true);
        try_attention(2, 19, 7, 4, 12, 2, 4, false);
        try_attention(9, 10, 0, 3, 64, 3, 3, false);
        try_attention(40, 33, 0, 2, 16, 2, 2, false);
    }
END_TEST

/* Tokens that attend to others than their own context. */
START_TEST(attention_to_other_keys_is_right)
    {
        try_attention_over(31, 3, 5, 0, 2, 8, 2, 2, false);
        try_attention_over(4, 3, 50, 0, 4, 4, 2, 2, true);
        try_attention_over(290, 2, 0, 7, 2, 3, 1, 1, true);
    }
END_TEST

/* More keys than a block holds, more rows than a unit of work holds. */
START_TEST(attention_over_many_blocks_is_right)
    {
        try_attention(1, 300, 9, 2, 4, 2, 1, true);
        try_attention(1, 530, 21, 1, 3, 1, 1, true);
    }
END_TEST

/* ---- row by row ---- */

/* ---- beyond 2^31 elements ---- */

/* Numbers of which few are touched: the rest takes no memory. */
static const size_t far_apart = ((size_t)1 << 31) + 96, far_bytes = (((size_t)1 << 32) + (1 << 20)) * sizeof(float);
static float *far_new(void)
{
    void *x = mmap(NULL, far_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_msg(x != MAP_FAILED, "%zu bytes of addresses cannot be had (ulimit -v, vm.overcommit_memory)", far_bytes);
    return x;
}

/* Two pieces of a tensor into one where they lie far apart. */
static void spread(float *to, const float *from, size_t piece)
{
    memcpy(to, from, piece * sizeof *to);
    memcpy(to + far_apart, from + piece, piece * sizeof *to);
}
static void check_spread(const float *far, const float *near, size_t piece, const char *what)
{
    ck_assert_msg(memcmp(far, near, piece * sizeof *far) == 0, "%s: the first piece", what);
    ck_assert_msg(memcmp(far + far_apart, near + piece, piece * sizeof *far) == 0, "%s: what lies behind 2^31", what);
}

/* Forward and backward of an operation whose inputs and outputs consist of two pieces, with strides `far` that put these
 * beyond 2^31 numbers: the bits of one with strides that do not. */
struct piece {
    size_t in[OP_INPUTS_MAX], out, out2;
    bool near_out; /* only its inputs are far */
};
static void try_far(const struct trial *t, const struct op *far, const struct piece *piece)
{
    struct data d = make_data(t);
    struct made near = run(t, &d, 1, 0);
    struct tensor_backend b;
    struct op_call call = {.op = far};
    float *tensor[2 * OP_INPUTS_MAX + 3];
    size_t n = 0;
    open_backend(&b, NULL);
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (piece->in[i] == 0) continue;
        spread(tensor[n] = far_new(), d.x[i], piece->in[i]);
        call.in[i] = tensor[n++];
        if (!t->in[i].no_gradient) call.d_in[i] = tensor[n++] = far_new();
    }
    call.out[0] = tensor[n++] = far_new();
    call.out[1] = tensor[n++] = far_new();
    call.d_out = tensor[n++] = far_new();
    if (piece->near_out) memcpy(call.d_out, d.d_out, t->out * sizeof(float));
    else spread(call.d_out, d.d_out, piece->out);
    call.add[0] = t->op.kind == OP_SELECT;
    const struct tensor_kernels *k = &b.kernels[far->kind];
    const size_t sizes[] = {k->forward_scratch(b.state, far), k->backward_scratch(b.state, far)};
    call.scratch = zeros(sizes[0] > sizes[1] ? sizes[0] : sizes[1], 1);
    k->forward(b.state, &call);
    k->backward(b.state, &call);
    MUST(b.vectors.finish(b.vectors.state, &f));
    if (piece->near_out) ck_assert_mem_eq(call.out[0], near.out, t->out * sizeof(float));
    else check_spread(call.out[0], near.out, piece->out, "the output");
    if (piece->out2 > 0) check_spread(call.out[1], near.out2, piece->out2, "the second output");
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (call.d_in[i] != NULL) check_spread(call.d_in[i], near.d_in[i], piece->in[i], "a gradient");
    seen_free(call.scratch);
    b.close(b.state);
    while (n > 0) munmap(tensor[--n], far_bytes);
    free_made(&near);
    free_data(&d);
}

START_TEST(strides_reach_beyond_2_to_the_31)
    {
        if (on_gpu) return; /* memory that it does not see */
        enum { CONTEXT = 19, QUERY = 3, HEADS = 2, WIDTH = 8, E = HEADS * WIDTH };
        const size_t tokens = CONTEXT + QUERY;
        const struct piece attended = {{tokens * E, CONTEXT * E, CONTEXT * E, 0}, tokens * E, 2 * tokens * HEADS, false};
        struct trial t = {.op = {.kind = OP_ATTENTION,
                                 .attention = {2, CONTEXT, QUERY, CONTEXT, HEADS, WIDTH, 2, 1, {tokens * E, E, 0},
                                               {CONTEXT * E, E, 0}, {CONTEXT * E, E, 0}, {tokens * E, E, 0},
                                               {2 * tokens * HEADS, 2 * HEADS, 0}}},
                          .in = {{.count = 2 * tokens * E}, {.count = 2 * CONTEXT * E}, {.count = 2 * CONTEXT * E}},
                          .out = 2 * tokens * E,
                          .out2 = 4 * tokens * HEADS};
        struct op far = t.op;
        far.attention.q.sequence = far.attention.k.sequence = far.attention.v.sequence = far_apart;
        far.attention.o.sequence = far.attention.statistics.sequence = far_apart;
        try_far(&t, &far, &attended);
        /* Rows of a table: two tokens of far rows, in each of 11 sequences. */
        t = (struct trial){.op = {.kind = OP_ATTENTION,
                                  .attention = {11, 2, 0, 2, HEADS, WIDTH, 2, 2, {E, 11 * E, 0}, {E, 11 * E, 0},
                                                {E, 11 * E, 0}, {E, 11 * E, 0}, {2 * HEADS, 22 * HEADS, 0}}},
                           .in = {{.count = 22 * E}, {.count = 22 * E}, {.count = 22 * E}},
                           .out = 22 * E,
                           .out2 = 44 * HEADS};
        far = t.op;
        far.attention.q.token = far.attention.k.token = far.attention.v.token = far_apart;
        far.attention.o.token = far.attention.statistics.token = far_apart;
        try_far(&t, &far, &(struct piece){{11 * E, 11 * E, 11 * E, 0}, 11 * E, 22 * HEADS, false});
        /* Rows that are picked from a tensor of many. */
        t = (struct trial){.op = {.kind = OP_SELECT, .select = {0, 1, 1, 2, 8}}, .in = {{.count = 16}}, .out = 16};
        far = t.op;
        far.select.step = far_apart / 8;
        try_far(&t, &far, &(struct piece){{8}, 0, 0, true});
    }
END_TEST

static void rms_norm(const struct op *op, double *const *in, double *out)
{
    const struct op_rms_norm *s = &op->rms_norm;
    for (size_t r = 0; r < s->rows; r++) {
        double sum = 0;
        for (size_t j = 0; j < s->width; j++) sum += in[0][r * s->width + j] * in[0][r * s->width + j];
        for (size_t j = 0; j < s->width; j++)
            out[r * s->width + j] =
                in[1][j] * in[0][r * s->width + j] / sqrt(sum / (double)s->width + (double)s->epsilon);
    }
}

static void layer_norm(const struct op *op, double *const *in, double *out)
{
    const struct op_layer_norm *s = &op->layer_norm;
    for (size_t r = 0; r < s->rows; r++) {
        const double *x = in[0] + r * s->width;
        double mean = 0, variance = 0;
        for (size_t j = 0; j < s->width; j++) mean += x[j] / (double)s->width;
        for (size_t j = 0; j < s->width; j++) variance += (x[j] - mean) * (x[j] - mean) / (double)s->width;
        for (size_t j = 0; j < s->width; j++)
            out[r * s->width + j] = (x[j] - mean) / sqrt(variance + (double)s->epsilon) *
                                        (in[1] == NULL ? 1 : in[1][j]) +
                                    (in[2] == NULL ? 0 : in[2][j]);
    }
}

static void gelu(const struct op *op, double *const *in, double *out)
{
    for (size_t i = 0; i < op->gelu.rows * op->gelu.width; i++) out[i] = in[0][i] * 0.5 * erfc(-in[0][i] / sqrt(2.0));
}

START_TEST(norm_and_gelu_are_right)
    {
        const size_t sizes[][2] = {{1, 1}, {5, 3}, {140, 32}, {700, 37}, {3, 192}, {70, 300}, {70, 512}, {3, 1100}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t rows = sizes[i][0], width = sizes[i][1];
            struct trial t = {.op = {.kind = OP_RMS_NORM, .rms_norm = {rows, width, 1.1920929e-07f}},
                              .forward = rms_norm,
                              .in = {{.count = rows * width}, {.count = width}},
                              .out = rows * width,
                              .tolerance = 1e-5};
            try(&t, "rms_norm");
            t = (struct trial){.op = {.kind = OP_LAYER_NORM, .layer_norm = {rows, width, 1e-5f}},
                               .forward = layer_norm,
                               .in = {{.count = rows * width}},
                               .out = rows * width,
                               .tolerance = 1e-5};
            try(&t, "layer_norm");
            t.in[1].count = t.in[2].count = width;
            try(&t, "layer_norm with weights");
            t = (struct trial){.op = {.kind = OP_GELU, .gelu = {rows, width}},
                               .forward = gelu,
                               .in = {{.count = rows * width}},
                               .out = rows * width,
                               .tolerance = 1e-6};
            try(&t, "gelu");
        }
    }
END_TEST

/* Over the whole range: far tails, where the polynomials meet, and nothing in between missed. */
START_TEST(gelu_is_right_everywhere)
    {
        enum { COUNT = 20001 };
        struct trial t = {.op = {.kind = OP_GELU, .gelu = {1, COUNT}},
                          .forward = gelu,
                          .in = {{.count = COUNT}},
                          .out = COUNT,
                          .tolerance = 1e-6};
        struct data d = make_data(&t);
        for (size_t i = 0; i < COUNT; i++) d.wide[0][i] = d.x[0][i] = (float)((double)i - 10000) / 1000.0f;
        struct made m = run(&t, &d, 1, 0.0f);
        double *right = zeros(COUNT, sizeof *right);
        gelu(&t.op, d.wide, right);
        for (size_t i = 0; i < COUNT; i++) {
            const double x = d.wide[0][i], slope = 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
            ck_assert_msg(fabs(m.out[i] - right[i]) <= 3e-7 * fmax(1, fabs(x)), "gelu(%g) = %.9g instead of %.9g", x,
                          (double)m.out[i], right[i]);
            ck_assert_msg(fabs(m.d_in[0][i] - slope * d.d_out[i]) <= 5e-7, "slope at %g: %.9g", x,
                          (double)m.d_in[0][i]);
        }
        seen_free(right);
        free_made(&m);
        free_data(&d);
    }
END_TEST

/* ---- rows put together and picked out ---- */

static void assemble(const struct op *op, double *const *in, double *out)
{
    const struct op_assemble *s = &op->assemble;
    for (size_t r = 0; r < s->n_thinking + s->n_rows; r++)
        for (size_t c = 0; c <= s->n_groups; c++)
            for (size_t e = 0; e < s->width; e++, out++) {
                const size_t i = r - s->n_thinking;
                if (r < s->n_thinking)
                    *out = in[3][r * s->width + e];
                else if (c == s->n_groups)
                    *out = in[2][i * s->width + e];
                else
                    *out = in[0][(i * s->n_groups + c) * s->width + e] + in[1][c * s->width + e];
            }
}

static void select_rows(const struct op *op, double *const *in, double *out)
{
    const struct op_select *s = &op->select;
    for (size_t i = 0; i < s->rows * s->width; i++) {
        const size_t row = i / s->width;
        out[i] = in[0][(s->first + row / s->run * s->step + row % s->run) * s->width + i % s->width];
    }
}

START_TEST(assemble_and_select_are_right)
    {
        const size_t e = 12, rows = 333, groups = 3, thinking = 5;
        struct trial t = {
            .op = {.kind = OP_ASSEMBLE, .assemble = {thinking, rows, groups, e}},
            .forward = assemble,
            .in = {{.count = rows * groups * e}, {.count = groups * e}, {.count = rows * e}, {.count = thinking * e}},
            .out = (thinking + rows) * (groups + 1) * e,
            .tolerance = 1e-5};
        try(&t, "assemble");
        t.op.assemble.n_thinking = t.in[3].count = 0;
        t.out = rows * (groups + 1) * e;
        try(&t, "assemble without thinking rows");
        t = (struct trial){.op = {.kind = OP_SELECT, .select = {3, 4, 1, 9, e}},
                           .forward = select_rows,
                           .in = {{.count = 40 * e}},
                           .out = 9 * e,
                           .tolerance = 1e-6};
        try(&t, "select");
        t.op.select = (struct op_select){1, 5, 3, 21, e};
        t.out = 21 * e;
        try(&t, "select of runs");
    }
END_TEST

/* ---- tokens from elsewhere ---- */

static void prepend(const struct op *op, double *const *in, double *out)
{
    const struct op_prepend *s = &op->prepend;
    for (size_t r = 0; r < s->rows; r++)
        for (size_t t = 0; t < s->lead + s->columns; t++)
            for (size_t e = 0; e < s->width; e++)
                *out++ = t < s->lead ? in[0][t * s->width + e]
                                     : in[1][(r * s->columns + t - s->lead) * s->width + e];
}

static void add_rows(const struct op *op, double *const *in, double *out)
{
    const struct op_add_rows *s = &op->add_rows;
    for (size_t i = 0; i < s->tokens_in_all; i++)
        for (size_t e = 0; e < s->width; e++)
            out[i * s->width + e] =
                in[0][i * s->width + e] + (i / s->tokens < s->rows ? in[1][i / s->tokens * s->width + e] : 0);
}

static void lookup(const struct op *op, double *const *in, double *out)
{
    const struct op_lookup *s = &op->lookup;
    for (size_t i = 0; i < s->rows; i++)
        for (size_t e = 0; e < s->width; e++)
            out[i * s->width + e] = in[0][(size_t)code_at(i, (int32_t)s->entries) * s->width + e];
}

START_TEST(tokens_are_right)
    {
        const size_t e = 12, rows = 300, columns = 5;
        struct trial t = {.op = {.kind = OP_PREPEND, .prepend = {rows, 3, columns, e}},
                          .forward = prepend,
                          .in = {{.count = 3 * e}, {.count = rows * columns * e}},
                          .out = rows * (3 + columns) * e,
                          .tolerance = 1e-5};
        try(&t, "prepend");
        t.op.prepend.columns = t.in[1].count = 0;
        t.out = rows * 3 * e;
        try(&t, "prepend to nothing");
        t = (struct trial){.op = {.kind = OP_ADD_ROWS, .add_rows = {rows * columns, columns, 211, e}},
                           .forward = add_rows,
                           .in = {{.count = rows * columns * e}, {.count = 211 * e}},
                           .out = rows * columns * e,
                           .tolerance = 1e-6};
        try(&t, "add_rows");
        t = (struct trial){.op = {.kind = OP_LOOKUP, .lookup = {7, rows, e}},
                           .forward = lookup,
                           .in = {{.count = 7 * e}, {.count = rows, .no_gradient = true, .n_codes = 7}},
                           .out = rows * e,
                           .tolerance = 1e-5};
        try(&t, "lookup");
    }
END_TEST

/* ---- queries ---- */

/* The turns of the trial are zeros in make_data: these are theirs. */
static void fill_turns(struct data *d, size_t tokens, size_t head_width)
{
    for (size_t i = 0; i < tokens; i++)
        for (size_t j = 0; j < head_width; j++) {
            const double angle = (double)i / (1.0 + (double)(j % (head_width / 2)));
            d->x[1][i * head_width + j] = (float)(j < head_width / 2 ? cos(angle) : sin(angle));
            d->wide[1][i * head_width + j] = d->x[1][i * head_width + j];
        }
}

/* One head in place. */
static void norm_head(size_t width, const double *w, double epsilon, double *x)
{
    double sum = 0;
    for (size_t j = 0; j < width; j++) sum += x[j] * x[j];
    for (size_t j = 0; j < width; j++) x[j] *= w[j] / sqrt(sum / (double)width + epsilon);
}

static void heads(const struct op *op, double *const *in, double *out)
{
    const struct op_heads *s = &op->heads;
    const size_t w = s->head_width;
    for (size_t r = 0; r < s->rows; r++, out += s->width) {
        const double *x = in[0] + r * s->width;
        for (size_t i = 0; i < s->width; i++) {
            const size_t j = i % w;
            out[i] = x[i];
            if (in[1] == NULL || i >= s->heads * w) continue;
            const double *turns = in[1] + r % s->tokens * w;
            out[i] = j < w / 2 ? x[i] * turns[j] - x[i + w / 2] * turns[j + w / 2]
                               : x[i] * turns[j - w / 2] + x[i - w / 2] * turns[j];
        }
        for (size_t h = 0; h < s->heads && s->norms > 0; h++)
            norm_head(w, in[2] + h / (s->heads / s->norms) * w, (double)s->epsilon, out + h * w);
    }
}

static void fourier(const struct op *op, double *const *in, double *out)
{
    const struct op_fourier *s = &op->fourier;
    for (size_t r = 0; r < s->rows; r++)
        for (size_t j = 0; j < s->frequencies; j++) {
            double *sine = out + r * 2 * s->frequencies + j, *cosine = sine + s->frequencies;
            *sine = *cosine = 0;
            for (size_t i = 0; i < s->numbers; i++) {
                const double angle = in[0][r * s->x_width + i] * in[1][i * s->frequencies + j];
                *sine += sin(angle);
                *cosine += cos(angle);
            }
        }
}

static void modulate(const struct op *op, double *const *in, double *out)
{
    const struct op_modulate *s = &op->modulate;
    for (size_t i = 0; i < s->rows * s->width; i++) out[i] = in[0][i] * in[2][i % s->width] * (1 + tanh(in[1][i]));
}

/* As many heads at once as a GPU's warp has room for, and one more or fewer; points that it has no room for at once. */
static void heads_of_all_widths_are_right(void)
{
    const size_t sizes[][3] = {{1, 1, 1}, {1, 2, 1}, {33, 2, 3}, {5, 16, 1}, {4, 16, 2}, {3, 32, 3}, {2, 64, 1}, {3, 70, 1},
                               {17, 16, 1}, {15, 8, 3}, {1, 256, 1}, {1, 264, 1}, {3, 24, 1}, {4, 72, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i][0], width = sizes[i][1], norms = sizes[i][2], all = n * width + i % 3 * (width % 8 == 0 ? 4 : 1);
        const size_t tokens = 3, rows = 11 * tokens, turns = width % 2 == 0 ? tokens * width : 0;
        const struct trial t = {
            .op = {.kind = OP_HEADS, .heads = {rows, all, tokens, n, width, norms, 1e-3f}},
            .forward = heads,
            .in = {{.count = rows * all}, {.count = turns, .no_gradient = true}, {.count = norms * width}},
            .out = rows * all,
            .tolerance = 2e-5};
        struct data d = make_data(&t);
        if (turns > 0) fill_turns(&d, tokens, width);
        check(&t, &d, "heads of some width");
        free_data(&d);
    }
}

START_TEST(queries_are_right)
    {
        const size_t tokens = 7, rows = 41 * tokens, head = 6;
        struct trial t = {.op = {.kind = OP_HEADS, .heads = {rows, 29, tokens, 4, head, 0, 1e-3f}},
                          .forward = heads,
                          .in = {{.count = rows * 29}, {.count = tokens * head, .no_gradient = true}},
                          .out = rows * 29,
                          .tolerance = 1e-6};
        for (size_t norms = 0; norms <= 2; norms++) { /* turned, and turned and normalised by one row, and by two */
            t.op.heads.norms = norms;
            t.in[2].count = norms * head;
            if (norms > 0) t.tolerance = 1e-5;
            struct data d = make_data(&t);
            fill_turns(&d, tokens, head);
            check(&t, &d, "heads turned");
            free_data(&d);
        }
        t.in[1].count = 0;
        try(&t, "heads normalised");
        t = (struct trial){.op = {.kind = OP_HEADS, .heads = {rows, 75, 1, 3, 25, 1, 1e-3f}},
                           .forward = heads,
                           .in = {{.count = rows * 75}, {0}, {.count = 25}},
                           .out = rows * 75,
                           .tolerance = 1e-5};
        try(&t, "heads of odd width normalised");
        heads_of_all_widths_are_right();
        t = (struct trial){.op = {.kind = OP_MODULATE, .modulate = {rows, 21}},
                           .forward = modulate,
                           .in = {{.count = rows * 21}, {.count = rows * 21}, {.count = 21}},
                           .out = rows * 21,
                           .tolerance = 1e-5};
        try(&t, "modulate");
    }
END_TEST

/* Frequencies that fill a vector's lanes and leave some; then angles near and far from 0. */
START_TEST(fourier_is_right)
    {
        const size_t sizes[][4] = {{1, 1, 1, 1}, {7, 5, 3, 6}, {300, 4, 2, 32}, {9, 3, 3, 37}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t *n = sizes[i];
            struct trial t = {.op = {.kind = OP_FOURIER, .fourier = {n[0], n[1], n[2], n[3]}},
                              .forward = fourier,
                              .in = {{.count = n[0] * n[1], .no_gradient = true}, {.count = n[2] * n[3]}},
                              .out = n[0] * 2 * n[3],
                              .tolerance = 3e-6};
            struct data d = make_data(&t);
            for (size_t j = 0; j < t.in[0].count; j++) d.wide[0][j] = d.x[0][j] = (float)(3 * draw());
            check(&t, &d, "fourier");
            free_data(&d);
        }
    }
END_TEST

/* Sines and cosines over the whole range: to the rounding of their angle, which is a product of float32. */
START_TEST(circles_are_right_everywhere)
    {
        enum { COUNT = 20001 };
        struct trial t = {.op = {.kind = OP_FOURIER, .fourier = {1, 1, 1, COUNT}},
                          .forward = fourier,
                          .in = {{.count = 1, .no_gradient = true}, {.count = COUNT}},
                          .out = 2 * COUNT};
        struct data d = make_data(&t);
        d.x[0][0] = 1;
        for (size_t k = 0; k < 3; k++) {
            const double step = k == 0 ? 1e-3 : k == 1 ? 0.81 : 12345;
            for (size_t i = 0; i < COUNT; i++) d.x[1][i] = (float)(((double)i - 10000) * step);
            struct made m = run(&t, &d, 1, 0.0f);
            for (size_t i = 0; i < COUNT; i++) {
                const double x = d.x[1][i];
                ck_assert_msg(fabs(m.out[i] - sin(x)) <= 1.2e-7 && fabs(m.out[COUNT + i] - cos(x)) <= 1.2e-7,
                              "circle at %g: %.9g, %.9g", x, (double)m.out[i], (double)m.out[COUNT + i]);
            }
            free_made(&m);
        }
        free_data(&d);
    }
END_TEST

static void vote(const struct op *op, double *const *in, double *out)
{
    const struct op_vote *s = &op->vote;
    const size_t e = s->heads * s->width;
    double *p = zeros(s->n_keys, sizeof *p);
    memset(out, 0, s->rows * s->n_classes * sizeof *out);
    for (size_t r = 0; r < s->rows; r++)
        for (size_t h = 0; h < s->heads; h++) {
            double sum = 0;
            for (size_t j = 0; j < s->n_keys; j++) {
                p[j] = 0;
                for (size_t i = h * s->width; i < (h + 1) * s->width; i++)
                    p[j] += in[0][r * e + i] * in[1][j * e + i] / sqrt((double)s->width);
                sum += p[j] = exp(p[j]);
            }
            for (size_t j = 0; j < s->n_keys; j++)
                out[r * s->n_classes + (size_t)code_at(j, (int32_t)s->n_classes)] += p[j] / sum / (double)s->heads;
        }
    for (size_t i = 0; i < s->rows * s->n_classes; i++) out[i] = log(fmax(out[i], 1e-5) + 3e-5);
    seen_free(p);
}

static struct trial vote_trial(size_t rows, size_t keys, size_t heads, size_t width, size_t classes)
{
    return (struct trial){.op = {.kind = OP_VOTE, .vote = {rows, keys, heads, width, classes}},
                          .forward = vote,
                          .in = {{.count = rows * heads * width},
                                 {.count = keys * heads * width},
                                 {.count = keys, .no_gradient = true, .n_codes = (int32_t)classes}},
                          .out = rows * classes,
                          .out2 = rows * heads * (2 + classes),
                          .tolerance = 2e-5};
}

/* The last class has no votes at all. More keys and rows than a block holds, too. */
START_TEST(votes_are_right)
    {
        const size_t sizes[][5] = {
            {1, 1, 1, 1, 2}, {5, 19, 3, 8, 4}, {13, 40, 2, 5, 70}, {101, 300, 2, 16, 12}, {130, 70, 1, 100, 60}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const struct trial t = vote_trial(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], sizes[i][4]);
            try(&t, "vote");
        }
    }
END_TEST

/* ---- the loss: its result is one double, so it is checked by itself ---- */

START_TEST(cross_entropy_is_right)
    {
        if (on_gpu) return; /* memory that it does not see */
        enum { ROWS = 9, WIDTH = 6, CLASSES = 4 };
        float z[ROWS * WIDTH], d[ROWS * WIDTH];
        int32_t label[ROWS], permutation[CLASSES] = {2, 0, 3, 1};
        double loss, right = 0;
        struct tensor_backend b;
        const struct op op = {.kind = OP_CROSS_ENTROPY, .cross_entropy = {ROWS, WIDTH, CLASSES, 0.25}};
        struct op_call call = {.op = &op, .in = {z, label, permutation}, .out = {&loss}, .d_in = {d}};
        random_state = 3;
        for (int i = 0; i < ROWS * WIDTH; i++) z[i] = (float)(4 * draw());
        for (int i = 0; i < ROWS; i++) label[i] = i % CLASSES;
        open_backend(&b, NULL);
        const struct tensor_kernels *k = &b.kernels[OP_CROSS_ENTROPY];
        call.scratch = zeros(k->forward_scratch(b.state, &op) + k->backward_scratch(b.state, &op) + 1, 1);
        k->forward(b.state, &call);
        k->backward(b.state, &call);
        for (int i = 0; i < ROWS; i++) {
            double sum = 0;
            for (int c = 0; c < CLASSES; c++) sum += exp(z[i * WIDTH + permutation[c]]);
            right -= log(exp(z[i * WIDTH + permutation[label[i]]]) / sum) * 0.25 / ROWS;
            for (int c = 0; c < WIDTH; c++) {
                double slope = 0;
                for (int p = 0; p < CLASSES; p++)
                    if (permutation[p] == c) slope = (exp(z[i * WIDTH + c]) / sum - (p == label[i])) * 0.25 / ROWS;
                ck_assert_double_eq_tol(d[i * WIDTH + c], slope, 1e-8);
            }
        }
        ck_assert_double_eq_tol(loss, right, 1e-12);
        seen_free(call.scratch);
        b.close(b.state);
    }
END_TEST

/* The formulas of ops.h, one after the other, without a thought for overflow. */
struct bars {
    struct op_bar_loss s;
    double *z;
    const float *target, *border, *impossible;
};

static double bar_term_ce(const struct bars *b, size_t at, double t, const double *p)
{
    const size_t last = b->s.width - 1;
    const double w = b->border[at + 1] - (double)b->border[at], s = w / 0.67448975019608171;
    double density = 1 / w, inner = t - b->border[last];
    if (at == 0) inner = b->border[1] - t;
    if (at == 0 || at == last) density = 0.79788456080286536 / s * exp(-inner * inner / (2 * s * s));
    return -log(p[at] * density);
}

static double bar_row(const struct bars *b, size_t row)
{
    const size_t n = b->s.width;
    const double t = b->target[row];
    double p[16], sum = 0, crps = 0, crls = 0, cumulative = 0, mean = 0;
    size_t at = 0;
    if (isnan(t)) return 0;
    for (size_t k = 0; k < n; k++) sum += p[k] = b->impossible[k] ? 0 : exp(b->z[row * n + k] / b->s.temperature);
    while (at + 1 < n && b->border[at + 1] < t) at++;
    for (size_t k = 0; k < n; k++) {
        const double w = b->border[k + 1] - (double)b->border[k], half = w / 0.67448975019608171 * 0.79788456080286536;
        cumulative += p[k] /= sum;
        crps += w * pow(cumulative - (k >= at), 2);
        const double inside = fmin(fmax(cumulative, 0x1p-23), 1 - 0x1p-23);
        crls -= w * log(k >= at ? inside : 1 - inside);
        mean += p[k] * (k == 0 ? b->border[1] - half : k == n - 1 ? b->border[k] + half : b->border[k] + w / 2);
    }
    double loss = b->s.crps * crps + b->s.crls * crls + b->s.mse * fmin(pow(mean - t, 2), b->s.mse_most) +
                  b->s.mae * fmin(fabs(mean - t), b->s.mae_most);
    return b->s.ce > 0 ? loss + b->s.ce * bar_term_ce(b, at, t, p) : loss;
}

static double bar_loss(const struct bars *b)
{
    double sum = 0;
    for (size_t i = 0; i < b->s.rows; i++) sum += bar_row(b, i);
    return sum * b->s.scale / (double)b->s.rows;
}

enum { BAR_ROWS = 35, BARS = 9 };

static void check_bars(struct bars *b, const float *z, int n_threads)
{
    const double h = 1e-5;
    const struct op op = {.kind = OP_BAR_LOSS, .bar_loss = b->s};
    float *d = zeros(BAR_ROWS * BARS, sizeof *d);
    double loss;
    struct threads *pool;
    struct tensor_backend backend;
    struct op_call call = {.op = &op, .in = {z, b->target, b->border, b->impossible}, .out = {&loss}, .d_in = {d}};
    MUST(threads_open(&pool, n_threads, &f));
    open_backend(&backend, pool);
    const struct tensor_kernels *k = &backend.kernels[OP_BAR_LOSS];
    call.scratch = zeros(k->forward_scratch(backend.state, &op) + k->backward_scratch(backend.state, &op), 1);
    k->forward(backend.state, &call);
    k->backward(backend.state, &call);
    const double right = bar_loss(b);
    ck_assert_double_eq_tol(loss, right, 1e-12 * (1 + fabs(right)));
    for (size_t i = 0; i < BAR_ROWS * BARS; i++) {
        const double x = b->z[i];
        b->z[i] = x + h;
        const double up = bar_loss(b);
        b->z[i] = x - h;
        const double slope = (up - bar_loss(b)) / (2 * h);
        b->z[i] = x;
        ck_assert_msg(fabs(d[i] - slope) <= 2e-7, "slope of logit %zu: %.9g instead of %.9g", i, (double)d[i], slope);
    }
    seen_free(call.scratch);
    seen_free(d);
    backend.close(backend.state);
    threads_close(pool);
}

/* Targets in every bucket, on borders, beyond both ends and missing; each term alone, then all with bounds. */
START_TEST(bar_loss_is_right)
    {
        if (on_gpu) return; /* memory that it does not see */
        const float border[BARS + 1] = {-3, -1.5f, -1, -0.25f, 0, 0.5f, 0.75f, 1.5f, 2, 4};
        float z[BAR_ROWS * BARS], target[BAR_ROWS], impossible[BARS] = {0};
        double wide[BAR_ROWS * BARS];
        const struct op_bar_loss none = {.rows = BAR_ROWS,
                                         .width = BARS,
                                         .scale = 0.25,
                                         .temperature = 0.9,
                                         .mse_most = INFINITY,
                                         .mae_most = INFINITY};
        random_state = 11;
        for (size_t i = 0; i < BAR_ROWS * BARS; i++) wide[i] = z[i] = (float)(3 * draw());
        for (size_t i = 0; i < BAR_ROWS; i++) target[i] = -5 + (float)i / 3.5f;
        for (size_t k = 0; k <= BARS; k++) target[3 * k] = border[k];
        target[10] = NAN;
        for (int term = 0; term < 7; term++) {
            struct bars b = {none, wide, target, border, impossible};
            b.s.ce = term == 0 || term >= 5 ? 0.75 : 0;
            b.s.crps = term == 1 || term >= 5;
            b.s.crls = term == 2 || term >= 5 ? 0.5 : 0;
            b.s.mse = term == 3 || term >= 5 ? 2 : 0;
            b.s.mae = term == 4 || term >= 5;
            if (term >= 5) {
                b.s.mse_most = 4;
                b.s.mae_most = 1.5;
            }
            impossible[3] = impossible[8] = term == 6;
            if (term == 6) b.s.ce = 0; /* a target in an impossible bucket has no density */
            check_bars(&b, z, 1 + term % 3);
        }
    }
END_TEST

/* Each term as TabPFN 9.2.0 computes it in float64, with its gradient; logits divided by 0.9. In crls it keeps
 * probabilities from 0 and 1 by the precision of its dtype, we by that of float32, in which it computes in use. */
START_TEST(bar_loss_is_tabpfns)
    {
        if (on_gpu) return; /* memory that it does not see */
        static const char *const terms[] = {"ce", "crps", "crls", "mse", "mae"};
        const float impossible[BARS] = {0};
        struct ckpt *c;
        struct tensor_backend b;
        MUST(ckpt_open(&c, unit_data("reference/bar_losses.vectors.safetensors"), &f));
        open_backend(&b, NULL);
        const struct ckpt_tensor *z = ckpt_find(c, "logits"), *target = ckpt_find(c, "targets"),
                                 *border = ckpt_find(c, "borders");
        ck_assert(z->dtype == CKPT_F32 && target->dtype == CKPT_F32 && border->count == BARS + 1);
        float *d = zeros(z->count, sizeof *d);
        for (int term = 0; term < 5; term++) {
            char name[2][32];
            struct op op = {.kind = OP_BAR_LOSS,
                            .bar_loss = {.rows = target->count,
                                         .width = BARS,
                                         .scale = 1,
                                         .temperature = 0.9,
                                         .ce = term == 0,
                                         .crps = term == 1,
                                         .crls = term == 2,
                                         .mse = term == 3,
                                         .mae = term == 4,
                                         .mse_most = 4,
                                         .mae_most = 1.5}};
            const struct tensor_kernels *k = &b.kernels[OP_BAR_LOSS];
            double loss;
            struct op_call call = {
                .op = &op, .in = {z->data, target->data, border->data, impossible}, .out = {&loss}, .d_in = {d}};
            call.scratch = zeros(k->forward_scratch(b.state, &op) + k->backward_scratch(b.state, &op), 1);
            k->forward(b.state, &call);
            k->backward(b.state, &call);
            (void)snprintf(name[0], sizeof name[0], "%s.loss", terms[term]);
            (void)snprintf(name[1], sizeof name[1], "%s.gradient", terms[term]);
            ck_assert_double_eq_tol(loss, ckpt_value(ckpt_find(c, name[0]), 0), term == 2 ? 1e-6 : 1e-12);
            for (size_t i = 0; i < z->count; i++) {
                const double right = ckpt_value(ckpt_find(c, name[1]), i);
                ck_assert_msg(fabs(d[i] - right) <= 2e-8, "%s of logit %zu: %.9g instead of %.9g", name[1], i,
                              (double)d[i], right);
            }
            seen_free(call.scratch);
        }
        seen_free(d);
        b.close(b.state);
        ckpt_close(c);
    }
END_TEST

#ifndef TABFT_TEST_CUDA
/* A row has the same bits alone and among others, wherever it stands. */
START_TEST(rows_do_not_see_their_block)
    {
        enum { ROWS = 100, IN = 40, OUT = 50 };
        struct tensor_backend b;
        float *x = zeros(ROWS * IN, sizeof *x), *w = zeros(OUT * IN, sizeof *w), *y = zeros(ROWS * OUT, sizeof *y),
              *one = zeros(OUT, sizeof *one);
        random_state = 5;
        for (size_t i = 0; i < ROWS * IN; i++) x[i] = (float)draw();
        for (size_t i = 0; i < OUT * IN; i++) w[i] = (float)draw();
        open_backend(&b, NULL);
        struct op all = {.kind = OP_LINEAR, .linear = {ROWS, IN, OUT}},
                  single = {.kind = OP_LINEAR, .linear = {1, IN, OUT}};
        void *scratch = zeros(b.kernels[OP_LINEAR].forward_scratch(b.state, &all), 1);
        b.kernels[OP_LINEAR].forward(b.state,
                                     &(struct op_call){.op = &all, .in = {x, w}, .out = {y}, .scratch = scratch});
        for (size_t r = 0; r < ROWS; r++) {
            b.kernels[OP_LINEAR].forward(
                b.state, &(struct op_call){.op = &single, .in = {x + r * IN, w}, .out = {one}, .scratch = scratch});
            ck_assert_mem_eq(one, y + r * OUT, OUT * sizeof *one);
        }
        void *all_memory[] = {x, w, y, one, scratch};
        for (size_t i = 0; i < sizeof all_memory / sizeof *all_memory; i++) seen_free(all_memory[i]);
        b.close(b.state);
    }
END_TEST

START_TEST(instruction_sets_are_named)
    {
        const char *isa;
        setenv("TABFT_ISA", "baseline", 1);
        MUST(tensor_isa(&isa, &f));
        ck_assert_str_eq(isa, "baseline");
        setenv("TABFT_ISA", "sse9", 1);
        MUST_FAIL(tensor_isa(&isa, &f), TABFT_USE, "sse9");
        unsetenv("TABFT_ISA");
        MUST(tensor_isa(&isa, &f));
    }
END_TEST

#endif

#define TESTS_OF_ANY_BACKEND                                                                                           \
    linear_is_right, a_bias_may_begin_anywhere, linear_may_take_its_residuals_place, attention_is_right,               \
        attention_to_other_keys_is_right, attention_over_many_blocks_is_right, strides_reach_beyond_2_to_the_31,       \
        norm_and_gelu_are_right, gelu_is_right_everywhere, assemble_and_select_are_right, tokens_are_right,           \
        queries_are_right, fourier_is_right, circles_are_right_everywhere, votes_are_right, cross_entropy_is_right,   \
        bar_loss_is_right, bar_loss_is_tabpfns
#ifdef TABFT_TEST_CUDA
/* The bits of the host, for all that is done to whole vectors. */
START_TEST(vectors_are_the_hosts)
{
    struct tensor_backend b;
    open_backend(&b, NULL);
    vectors_check(&b.vectors);
    b.close(b.state);
}
END_TEST

/* A block of compute capability 8.6 has 99 KiB of shared memory, one of 8.0 has 163, one of 9.0 has 227: no more is asked for,
 * and what is computed does not depend on it. */
START_TEST(gpus_have_less_shared_memory)
{
    static const char *const capabilities[] = {"80", "86", "90"};
    const struct trial t = vote_trial(130, 70, 1, 100, 60), most = vote_trial(3, 5, 1, 100, 231),
                       more = vote_trial(3, 5, 1, 100, 232);
    struct data d = make_data(&t), few = make_data(&most), other = make_data(&more);
    struct made first = {0}, m;
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(setenv("CUDA_EMULATION_CAPABILITY", capabilities[i], 1), 0);
        m = run(&t, &d, 1, 0.0f);
        if (i == 0) {
            first = m;
        } else {
            ck_assert_mem_eq(m.out, first.out, t.out * sizeof *m.out);
            for (int j = 0; j < 2; j++) ck_assert_mem_eq(m.d_in[j], first.d_in[j], t.in[j].count * sizeof(float));
            free_made(&m);
        }
    }
    ck_assert_int_eq(setenv("CUDA_EMULATION_CAPABILITY", "86", 1), 0);
    m = run(&most, &few, 1, 0.0f);
    free_made(&m);
    struct tensor_backend b;
    float *out = zeros(more.out, sizeof *out), *out2 = zeros(more.out2, sizeof *out2);
    open_backend(&b, NULL);
    const struct op_call call = {
        .op = &more.op, .in = {other.x[0], other.x[1], other.x[2]}, .out = {out, out2}};
    b.kernels[OP_VOTE].forward(b.state, &call);
    MUST_FAIL(b.vectors.finish(b.vectors.state, &f), TABFT_INPUT,
              "232 classes: attention takes 101632 bytes of shared memory, a block has 101376");
    b.close(b.state);
    seen_free(out);
    seen_free(out2);
    free_made(&first);
    free_data(&d);
    free_data(&few);
    free_data(&other);
    unsetenv("CUDA_EMULATION_CAPABILITY");
}
END_TEST

UNIT_MAIN("tensor/ops of GPUs", TESTS_OF_ANY_BACKEND, vectors_are_the_hosts, gpus_have_less_shared_memory)
#else
UNIT_MAIN("tensor/ops", TESTS_OF_ANY_BACKEND, rows_do_not_see_their_block, instruction_sets_are_named)
#endif
