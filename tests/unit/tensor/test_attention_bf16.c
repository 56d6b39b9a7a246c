/* Attention of GPUs in bf16, on the emulation, against float64: the result, what backward starts from and every
 * gradient. Against float64 of rounded inputs what is left is the rounding of weights and slopes; against that of the
 * inputs themselves it is all that bf16 costs. Shapes reach every way of the kernels: 16 and 32 rows a warp; operands
 * rounded in several runs of sequences; each width; with widths and strides that are no multiples. Tensors that are
 * bf16 themselves are test_bf16_storage's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/cuda.h"
#include "tensor/seen.h"
#include "unit.h"

static struct tabft_failure f;

static uint32_t random_state;
static float draw(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) / 8388608.0f - 1.0f;
}

static void *zeros(size_t n, size_t size) { return seen_new(n + 1, size, 0); }

static float to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Attention over a part of tensors that are wider than it: `pad` numbers lie before and behind its heads. */
struct shape {
    size_t sequences, n_context, n_query, n_keys, heads, width, context_kv, query_kv;
    bool interleaved; /* a sequence's tokens lie `sequences` rows apart */
    size_t pad;
};

enum { Q, K, V, O, TENSORS };
struct tensors {
    struct op op;
    size_t count[TENSORS], statistics;
    float *x[TENSORS], *d_out, *d_in[3], *out2; /* x[O]: what comes out */
};

static struct op_attention_stride strides(const struct shape *s, size_t tokens, size_t width)
{
    const size_t row = width + 2 * s->pad;
    return s->interleaved ? (struct op_attention_stride){row, s->sequences * row, s->pad}
                          : (struct op_attention_stride){tokens * row, row, s->pad};
}

static struct tensors make(const struct shape *s)
{
    const size_t tokens = s->n_context + s->n_query, kv = s->context_kv > s->query_kv ? s->context_kv : s->query_kv;
    struct op_attention a = {.sequences = s->sequences,
                             .n_context = s->n_context,
                             .n_query = s->n_query,
                             .n_keys = s->n_keys,
                             .heads = s->heads,
                             .width = s->width,
                             .context_kv_heads = s->context_kv,
                             .query_kv_heads = s->query_kv};
    struct tensors t = {.statistics = s->sequences * tokens * 2 * s->heads};
    a.q = a.o = strides(s, tokens, s->heads * s->width);
    a.k = a.v = strides(s, s->n_keys, kv * s->width);
    a.statistics = (struct op_attention_stride){tokens * 2 * s->heads, 2 * s->heads, 0};
    t.op = (struct op){.kind = OP_ATTENTION, .attention = a};
    t.count[Q] = t.count[O] = s->sequences * tokens * (s->heads * s->width + 2 * s->pad);
    t.count[K] = t.count[V] = s->sequences * s->n_keys * (kv * s->width + 2 * s->pad);
    random_state = 7;
    for (int i = 0; i < TENSORS; i++) {
        t.x[i] = zeros(t.count[i], sizeof(float));
        for (size_t j = 0; j < t.count[i] && i != O; j++) t.x[i][j] = 1.5f * draw();
        if (i < O) t.d_in[i] = zeros(t.count[i], sizeof(float));
    }
    t.d_out = zeros(t.count[O], sizeof(float));
    for (size_t j = 0; j < t.count[O]; j++) t.d_out[j] = draw();
    t.out2 = zeros(t.statistics, sizeof(float));
    return t;
}

static void free_tensors(struct tensors *t)
{
    for (int i = 0; i < TENSORS; i++) seen_free(t->x[i]);
    for (int i = 0; i < 3; i++) seen_free(t->d_in[i]);
    seen_free(t->d_out);
    seen_free(t->out2);
}

/* Forward and backward; outputs and gradients hold `before` first, and gradients are added to it where `add`. */
static void run(struct tensors *t, float before, bool add)
{
    struct tensor_backend b;
    struct op_call call = {
        .op = &t->op, .in = {t->x[Q], t->x[K], t->x[V]}, .out = {t->x[O], t->out2}, .d_out = t->d_out};
    MUST(cuda_backend_open(&b, 0, TENSOR_BF16, &f));
    const struct tensor_kernels *k = &b.kernels[OP_ATTENTION];
    const size_t sizes[] = {k->forward_scratch(b.state, &t->op), k->backward_scratch(b.state, &t->op)};
    for (size_t j = 0; j < t->count[O]; j++) t->x[O][j] = before;
    for (int pass = 0; pass < 2; pass++) {
        /* Of its own size, so that AddressSanitizer sees what lies beyond; not a number before it is written. */
        void *const scratch = seen_new(sizes[pass] + 1, 1, 0xff);
        call.scratch = scratch;
        for (int i = 0; i < 3 && pass == 1; i++) {
            call.d_in[i] = t->d_in[i];
            call.add[i] = add;
            for (size_t j = 0; j < t->count[i]; j++) t->d_in[i][j] = before;
        }
        pass == 0 ? k->forward(b.state, &call) : k->backward(b.state, &call);
        MUST(b.vectors.finish(b.vectors.state, &f));
        seen_free(scratch);
    }
    b.close(b.state);
}

/* ---- float64 ---- */

struct right {
    double *out[TENSORS], *top; /* by tensor: dq, dk, dv, o; [tokens x heads] log2 of the sum of the weights' powers */
};

static size_t at(const struct op_attention_stride *s, size_t sequence, size_t token)
{
    return sequence * s->sequence + token * s->token + s->column;
}

/* One row of one head: p and dp are room for n_keys numbers each. */
static void row_right(const struct tensors *t, size_t sequence, size_t token, size_t head, bool rounded, double *p,
                      double *dp, struct right *r)
{
    const struct op_attention *s = &t->op.attention;
    const size_t w = s->width,
                 kv = head / (s->heads / (token < s->n_context ? s->context_kv_heads : s->query_kv_heads)),
                 own = at(&s->q, sequence, token) + head * w;
    double sum = 0, top = -INFINITY, mean = 0;
#define IN(x) ((double)(rounded ? to_bf16(x) : (x)))
    for (size_t j = 0; j < s->n_keys; j++) {
        const size_t key = at(&s->k, sequence, j) + kv * w;
        p[j] = dp[j] = 0;
        for (size_t d = 0; d < w; d++) {
            p[j] += IN(t->x[Q][own + d]) * IN(t->x[K][key + d]) / sqrt((double)w);
            dp[j] += IN(t->d_out[own + d]) * IN(t->x[V][key + d]);
        }
        top = fmax(top, p[j]);
    }
    for (size_t j = 0; j < s->n_keys; j++) sum += p[j] = exp(p[j] - top);
    for (size_t j = 0; j < s->n_keys; j++) mean += (p[j] /= sum) * dp[j];
    for (size_t j = 0; j < s->n_keys; j++) {
        const size_t key = at(&s->k, sequence, j) + kv * w;
        const double slope = p[j] * (dp[j] - mean) / sqrt((double)w);
        for (size_t d = 0; d < w; d++) {
            r->out[O][own + d] += p[j] * IN(t->x[V][key + d]);
            r->out[Q][own + d] += slope * IN(t->x[K][key + d]);
            r->out[K][key + d] += slope * IN(t->x[Q][own + d]);
            r->out[V][key + d] += p[j] * IN(t->d_out[own + d]);
        }
    }
#undef IN
    r->top[at(&s->statistics, sequence, token) / 2 + head] = (top + log(sum)) / log(2);
}

/* Numbers that belong to a tensor's heads are 0 to begin with, those between them NaN. */
static double *zeros_in_heads(size_t count, const struct op_attention *s, const struct op_attention_stride *stride,
                              size_t tokens, size_t width)
{
    double *x = zeros(count, sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = NAN;
    for (size_t sequence = 0; sequence < s->sequences; sequence++)
        for (size_t token = 0; token < tokens; token++) memset(x + at(stride, sequence, token), 0, width * sizeof *x);
    return x;
}

static struct right right_of(const struct tensors *t, bool rounded)
{
    const struct op_attention *s = &t->op.attention;
    const size_t tokens = s->n_context + s->n_query,
                 kv = s->context_kv_heads > s->query_kv_heads ? s->context_kv_heads : s->query_kv_heads;
    struct right r = {.top = zeros(t->statistics / 2, sizeof(double))};
    double *p = zeros(s->n_keys, sizeof *p), *dp = zeros(s->n_keys, sizeof *dp);
    for (int i = 0; i < TENSORS; i++)
        r.out[i] = i == K || i == V ? zeros_in_heads(t->count[i], s, &s->k, s->n_keys, kv * s->width)
                                    : zeros_in_heads(t->count[i], s, &s->q, tokens, s->heads * s->width);
    for (size_t sequence = 0; sequence < s->sequences; sequence++)
        for (size_t token = 0; token < tokens; token++)
            for (size_t head = 0; head < s->heads; head++) row_right(t, sequence, token, head, rounded, p, dp, &r);
    seen_free(p);
    seen_free(dp);
    return r;
}

static void free_right(struct right *r)
{
    for (int i = 0; i < TENSORS; i++) seen_free(r->out[i]);
    seen_free(r->top);
}

/* The largest difference from `right` on top of `added`, by the largest number of all; between the heads there must be
 * what was there before. */
static double worst(const float *got, const double *right, size_t n, float before, double added)
{
    double most = 0.02, off = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(got[i])) return INFINITY;
        if (isnan(right[i])) {
            ck_assert_msg(got[i] == before, "something is written between the heads, at %zu", i);
            continue;
        }
        most = fmax(most, fabs(right[i]));
        off = fmax(off, fabs((double)got[i] - added - right[i]));
    }
    return off / most;
}

/* ---- tests ---- */

/* Of a tensor's largest number, about twice what was measured: against float64 of the rounded inputs, and of the
 * inputs. */
static const struct bound {
    const char *name;
    double rounded, exact;
} bounds[TENSORS] = {
    [Q] = {"the gradient of q", 4.5e-3, 1.1e-2},
    [K] = {"the gradient of k", 4.5e-3, 1.1e-2},
    [V] = {"the gradient of v", 4.5e-3, 1.1e-2},
    [O] = {"the output", 4.5e-3, 1.1e-2},
};

static void check(const struct tensors *t, bool rounded, float before, bool add, const char *what)
{
    struct right r = right_of(t, rounded);
    for (int i = 0; i < TENSORS; i++) {
        const double bound = rounded ? bounds[i].rounded : bounds[i].exact;
        const double off = worst(i == O ? t->x[O] : t->d_in[i], r.out[i], t->count[i], before,
                                 add && i != O ? (double)before : 0);
        ck_assert_msg(off <= bound, "%s: %s is off by %.2e of the largest (%s)", what, bounds[i].name, off,
                      rounded ? "rounded inputs" : "inputs");
    }
    for (size_t i = 0; i < t->statistics / 2; i++) {
        const double top = (double)t->out2[2 * i] - log2((double)t->out2[2 * i + 1]), off = fabs(top - r.top[i]);
        ck_assert_msg(off <= (rounded ? 1e-5 : 2e-2), "%s: sum %zu is 2^%.9g instead of 2^%.9g", what, i, top,
                      r.top[i]);
    }
    free_right(&r);
}

static void try(const struct shape *s)
{
    struct tensors t = make(s), again = make(s), added = make(s);
    char what[160];
    (void)snprintf(what, sizeof what, "%zu x %zu + %zu to %zu, %zu heads of %zu, %zu and %zu", s->sequences,
                   s->n_context, s->n_query, s->n_keys, s->heads, s->width, s->context_kv, s->query_kv);
    run(&t, 1000.0f, false);
    run(&again, 1000.0f, false);
    run(&added, 0.5f, true);
    check(&t, true, 1000.0f, false, what);
    check(&added, false, 0.5f, true, what);
    for (int i = 0; i < TENSORS; i++)
        ck_assert_mem_eq(i == O ? t.x[i] : t.d_in[i], i == O ? again.x[i] : again.d_in[i], t.count[i] * sizeof(float));
    ck_assert_mem_eq(t.out2, again.out2, t.statistics * sizeof(float));
    free_tensors(&t);
    free_tensors(&again);
    free_tensors(&added);
}

static void try_all(const struct shape *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++) try(&shapes[i]);
}

START_TEST(short_sequences_are_right)
{
    static const struct shape shapes[] = {
        {1, 1, 0, 1, 1, 1, 1, 1, false, 0},    {3, 5, 4, 5, 4, 8, 4, 1, true, 0},
        {2, 19, 7, 19, 4, 12, 2, 4, false, 0}, {2, 0, 7, 31, 2, 3, 1, 1, true, 1},
        {5, 3, 0, 3, 2, 32, 2, 2, false, 4},   {3, 50, 0, 4, 4, 4, 2, 2, true, 0},
        {2, 34, 0, 34, 2, 16, 2, 2, false, 0}, {2, 68, 0, 68, 3, 64, 3, 3, false, 8},
        {1, 100, 9, 70, 2, 33, 2, 1, true, 3},
    };
    try_all(shapes, sizeof shapes / sizeof *shapes);
}
END_TEST

/* Of v3: a row's columns, the points of a column, and cells to points; wide heads. */
START_TEST(middle_sequences_are_right)
{
    static const struct shape shapes[] = {
        {1, 204, 0, 204, 2, 16, 2, 2, false, 0},  {2, 128, 0, 330, 2, 16, 2, 2, false, 0},
        {2, 330, 0, 128, 2, 16, 2, 2, true, 0},   {2, 140, 3, 140, 2, 128, 2, 1, true, 0},
        {1, 129, 0, 260, 1, 101, 1, 1, false, 1},
    };
    try_all(shapes, sizeof shapes / sizeof *shapes);
}
END_TEST

/* A sequence or two at once; keys of which the last tile is not whole. */
START_TEST(long_sequences_are_right)
{
    static const struct shape shapes[] = {
        {2, 300, 70, 300, 3, 64, 3, 1, true, 0},   {5, 300, 290, 300, 1, 16, 1, 1, true, 2},
        {1, 0, 530, 390, 4, 32, 1, 2, false, 0},   {1, 520, 0, 520, 2, 27, 2, 1, false, 1},
        {3, 270, 20, 270, 2, 100, 1, 2, false, 4},
    };
    try_all(shapes, sizeof shapes / sizeof *shapes);
}
END_TEST

/* From here on the emulation is a GPU of Hopper's kind; each test runs in a process of its own. */
static void be_hopper(void) { ck_assert_int_eq(setenv("CUDA_EMULATION_CAPABILITY", "90", 1), 0); }

/* Query rows in a call of their own come out with the same bits, whatever else the call has: predictions go by blocks.
 */
static void try_fewer_rows(const struct shape *many)
{
    struct tensors all = make(many);
    run(&all, 0.0f, false);
    for (size_t rows = 1; rows <= 129; rows += 64) {
        struct shape few = *many;
        few.n_query = rows;
        struct tensors some = make(&few);
        memcpy(some.x[K], all.x[K], all.count[K] * sizeof(float));
        memcpy(some.x[V], all.x[V], all.count[V] * sizeof(float));
        memcpy(some.x[Q], all.x[Q] + all.count[Q] - some.count[Q], some.count[Q] * sizeof(float));
        run(&some, 0.0f, false);
        ck_assert_mem_eq(some.x[O], all.x[O] + all.count[O] - some.count[O], some.count[O] * sizeof(float));
        free_tensors(&some);
    }
    free_tensors(&all);
}

START_TEST(rows_do_not_see_their_call)
{
    try_fewer_rows(&(struct shape){1, 0, 320, 200, 2, 24, 1, 1, false, 0});
    be_hopper();
    try_fewer_rows(&(struct shape){1, 0, 150, 270, 1, 64, 1, 1, false, 0});
}
END_TEST

/* Nor do sequences see each other: the second of two alone gives the bits that it gives behind the first. */
START_TEST(sequences_are_alone)
{
    const struct shape two = {2, 60, 20, 270, 2, 64, 2, 1, false, 0};
    struct shape one = two;
    one.sequences = 1;
    be_hopper();
    struct tensors both = make(&two), second = make(&one);
    for (int i = 0; i < 3; i++)
        memcpy(second.x[i], both.x[i] + second.count[i], second.count[i] * sizeof(float));
    memcpy(second.d_out, both.d_out + second.count[O], second.count[O] * sizeof(float));
    run(&both, 0.0f, false);
    run(&second, 0.0f, false);
    for (int i = 0; i < TENSORS; i++)
        ck_assert_mem_eq(i == O ? second.x[i] : second.d_in[i], (i == O ? both.x[i] : both.d_in[i]) + second.count[i],
                         second.count[i] * sizeof(float));
    free_tensors(&both);
    free_tensors(&second);
}
END_TEST

/* By Hopper's warpgroups, on a GPU if it has them: the shapes that go that way, and one that does not. Three groups of
 * rows, two of keys; blocks that are not full, last tiles that are not; more tiles than there are places; operands as
 * they are and rounded, in several runs of sequences. */
START_TEST(warpgroups_are_right)
{
    static const struct shape shapes[] = {
        {1, 193, 0, 256, 1, 64, 1, 1, false, 0},  {2, 66, 70, 300, 3, 64, 3, 1, true, 0},
        {1, 0, 130, 400, 2, 64, 1, 2, false, 8},  {1, 200, 1, 260, 4, 64, 2, 4, true, 4},
        {1, 150, 33, 321, 2, 40, 2, 1, false, 0}, {2, 65, 0, 257, 1, 51, 1, 1, true, 1},
        {1, 40, 20, 255, 2, 64, 2, 1, false, 0},  {4, 20, 64, 258, 1, 33, 1, 1, false, 3},
    };
    be_hopper();
    try_all(shapes, sizeof shapes / sizeof *shapes);
}
END_TEST

UNIT_MAIN("tensor/attention of GPUs in bf16", short_sequences_are_right, middle_sequences_are_right,
          long_sequences_are_right, warpgroups_are_right, rows_do_not_see_their_call, sequences_are_alone)
