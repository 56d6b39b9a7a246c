/* Operations of GPUs whose tensors are bf16, on the emulation: the bits of float32 tensors that hold the same numbers, rounded
 * where they are written so; every way in which a backend's table lets them be. And plans: which tensors are so. */
#define TABFT_TENSOR_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/cuda/cuda.h"
#include "tensor/tape_internal.h"
#include "unit.h"

static struct tabft_failure f;

static uint32_t random_state;
static float draw(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) / 8388608.0f - 1.0f;
}

static uint16_t bits_of(float x)
{
    uint32_t bits;
    if (isnan(x)) return 0x7fff;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
static float float_of(uint16_t upper)
{
    const uint32_t bits = (uint32_t)upper << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void *room(size_t bytes)
{
    void *x;
    MUST(memory_new_aligned(&x, bytes + 1, 1, "a test", &f));
    memset(x, 0xff, bytes); /* not a number */
    return x;
}

/* An operation, numbers that bf16 can hold for all that may be bf16, and what float32 tensors of them give. */
struct trial {
    const char *name;
    struct op op;
    size_t in[OP_INPUTS_MAX], out, out2;
    bool add; /* the gradients of parameters and residuals, and of what is no bf16 */
    float *x[OP_INPUTS_MAX], *d_out;
};

static void draw_data(struct trial *t, const struct op_bf16 *can)
{
    random_state = 5;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (t->in[i] == 0) continue;
        t->x[i] = room(t->in[i] * sizeof(float));
        for (size_t j = 0; j < t->in[i]; j++) t->x[i][j] = (can->in >> i & 1) != 0 ? float_of(bits_of(draw())) : draw();
    }
    t->d_out = room(t->out * sizeof(float));
    for (size_t j = 0; j < t->out; j++) t->d_out[j] = float_of(bits_of(draw()));
}

static void free_data(struct trial *t)
{
    for (int i = 0; i < OP_INPUTS_MAX; i++) free(t->x[i]);
    free(t->d_out);
}

/* A tensor as it is stored; of the same numbers. */
static void *stored(const float *x, size_t n, bool bf16)
{
    if (x == NULL) return NULL;
    void *to = room(n * (bf16 ? sizeof(uint16_t) : sizeof(float)));
    if (!bf16) return memcpy(to, x, n * sizeof *x);
    for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = bits_of(x[i]);
    return to;
}

struct made {
    void *out, *out2, *d_in[OP_INPUTS_MAX];
};
static void free_made(struct made *m)
{
    free(m->out);
    free(m->out2);
    for (int i = 0; i < OP_INPUTS_MAX; i++) free(m->d_in[i]);
}

/* round_out: what backward reads of the output is rounded before, though it is float32. */
static struct made run(const struct trial *t, struct op_bf16 storage, bool round_out)
{
    struct tensor_backend b;
    struct made made = {.out = room(t->out * sizeof(float)), .out2 = room(t->out2 * sizeof(float))};
    struct op op = t->op;
    struct op_call call = {.op = &op, .out = {made.out, t->out2 == 0 ? NULL : made.out2}};
    op.bf16 = storage;
    MUST(cuda_backend_open(&b, 0, TENSOR_BF16, &f));
    const struct tensor_kernels *k = &b.kernels[op.kind];
    for (int i = 0; i < OP_INPUTS_MAX; i++) call.in[i] = stored(t->x[i], t->in[i], (storage.in >> i & 1) != 0);
    for (int pass = 0; pass < 2; pass++) {
        call.scratch = room(pass == 0 ? k->forward_scratch(b.state, &op) : k->backward_scratch(b.state, &op));
        for (int i = 0; i < OP_INPUTS_MAX && pass == 1; i++) {
            if (t->in[i] == 0) continue;
            call.d_in[i] = made.d_in[i] = room(t->in[i] * sizeof(float));
            call.add[i] = t->add && (storage.d_in >> i & 1) == 0;
            for (size_t j = 0; j < t->in[i] && call.add[i]; j++) ((float *)made.d_in[i])[j] = 0.5f;
        }
        if (pass == 1) call.d_out = stored(t->d_out, t->out, storage.d_out);
        pass == 0 ? k->forward(b.state, &call) : k->backward(b.state, &call);
        MUST(b.vectors.finish(b.vectors.state, &f));
        for (size_t j = 0; j < t->out && round_out && pass == 0; j++)
            ((float *)made.out)[j] = float_of(bits_of(((float *)made.out)[j]));
        free(call.scratch);
    }
    for (int i = 0; i < OP_INPUTS_MAX; i++) free((void *)(uintptr_t)call.in[i]);
    free(call.d_out);
    b.close(b.state);
    return made;
}

/* `got`, stored so, against float32 `right`: the same bits, or, of a sum over rows that were rounded in other pieces, nearly. GELU
 * that is rounded is not as exact before: it may be rounded the other way. */
static void compare(const struct trial *t, const char *what, const void *got, bool bf16, const float *right, size_t n, bool nearly)
{
    for (size_t i = 0; i < n; i++) {
        const float x = bf16 ? float_of(((const uint16_t *)got)[i]) : ((const float *)got)[i];
        const float y = bf16 ? float_of(bits_of(right[i])) : right[i];
        const bool same = nearly                            ? fabsf(x - y) <= 1e-5f * (1 + fabsf(y))
                          : bf16 && t->op.kind == OP_GELU ? fabsf(x - right[i]) <= 0x1.01p-8f * fabsf(right[i]) + 1e-7f
                                                            : memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));
        ck_assert_msg(same, "%s: %s %zu is %.9g instead of %.9g", t->name, what, i, (double)x, (double)y);
    }
}

/* The inputs that have a gradient at all: those of which the table says so, and parameters and residuals of linear. */
static void try_storage(const struct trial *t, struct op_bf16 storage)
{
    const bool reads_out = tape_backward_reads_output(t->op.kind, 0);
    struct made right = run(t, (struct op_bf16){0}, reads_out && storage.out), got = run(t, storage, false);
    compare(t, "result", got.out, storage.out, right.out, t->out, false);
    compare(t, "second result", got.out2, false, right.out2, t->out2, false);
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        const bool bf16 = (storage.d_in >> i & 1) != 0;
        if (t->in[i] == 0 || (bf16 && t->add)) continue;
        compare(t, "gradient", got.d_in[i], bf16, right.d_in[i], t->in[i], t->op.kind == OP_LINEAR && i == 1);
    }
    free_made(&right);
    free_made(&got);
}

/* Every subset of what may be bf16, or all of it at once. */
static void try_some(struct trial t, bool every)
{
    struct tensor_backend b;
    MUST(cuda_backend_open(&b, 0, TENSOR_BF16, &f));
    struct op_bf16 can = b.bf16[t.op.kind];
    b.close(b.state);
    if (t.op.kind == OP_LINEAR && (t.in[2] > 0 || t.in[3] > 0)) can.out = can.d_out = false;
    ck_assert_msg(can.in != 0 || can.out, "%s: nothing may be bf16", t.name);
    draw_data(&t, &can);
    for (unsigned in = 0; in <= can.in; in++)
        for (unsigned d_in = 0; d_in <= can.d_in; d_in++)
            for (unsigned outs = 0; outs < 4; outs++) {
                const struct op_bf16 storage = {in, d_in, (outs & 1) != 0, (outs & 2) != 0};
                if ((in & ~can.in) != 0 || (d_in & ~can.d_in) != 0 || (storage.out && !can.out) ||
                    (storage.d_out && !can.d_out))
                    continue;
                if (!every && (in != can.in || d_in != can.d_in || outs != 3)) continue;
                try_storage(&t, storage);
            }
    free_data(&t);
}

static void try(struct trial t) { try_some(t, true); }

/* With rows that are rounded in several pieces. */
START_TEST(products)
    {
        const size_t sizes[][3] = {{1, 1, 1}, {7, 5, 9}, {13, 33, 64}, {301, 48, 56}, {700, 24, 31}, {3, 4000, 3}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t rows = sizes[i][0], in = sizes[i][1], out = sizes[i][2];
            struct trial t = {.name = "linear", .op = {.kind = OP_LINEAR, .linear = {rows, in, out}},
                              .in = {rows * in, out * in}, .out = rows * out};
            try(t);
            t.add = true;
            t.in[2] = out;
            t.in[3] = rows * out;
            try(t);
        }
    }
END_TEST

START_TEST(norms_and_gelu)
    {
        const size_t sizes[][2] = {{1, 1}, {5, 3}, {140, 32}, {70, 192}, {9, 512}, {3, 1100}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t rows = sizes[i][0], width = sizes[i][1];
            struct trial t = {.name = "rms_norm", .op = {.kind = OP_RMS_NORM, .rms_norm = {rows, width, 1e-7f}},
                              .in = {rows * width, width}, .out = rows * width};
            try(t);
            t.add = true;
            try(t);
            t = (struct trial){.name = "layer_norm", .op = {.kind = OP_LAYER_NORM, .layer_norm = {rows, width, 1e-5f}},
                               .in = {rows * width, width, width}, .out = rows * width};
            try(t);
            t = (struct trial){.name = "gelu", .op = {.kind = OP_GELU, .gelu = {rows, width}},
                               .in = {rows * width}, .out = rows * width};
            try(t);
            t.add = true;
            try(t);
        }
    }
END_TEST

/* What bf16 is rounded from, over the whole range: nearer than bf16 itself, also in the tail. */
START_TEST(gelu_is_right_everywhere)
    {
        enum { COUNT = 4001 };
        struct trial t = {.name = "gelu", .op = {.kind = OP_GELU, .gelu = {1, COUNT}}, .in = {COUNT}, .out = COUNT};
        t.x[0] = room(COUNT * sizeof(float));
        t.d_out = room(COUNT * sizeof(float));
        for (size_t i = 0; i < COUNT; i++) {
            t.x[0][i] = float_of(bits_of(((float)i - 2000) / 300));
            t.d_out[i] = 1;
        }
        struct made made = run(&t, (struct op_bf16){1, 1, true, true}, false);
        for (size_t i = 0; i < COUNT; i++) {
            const double x = (double)t.x[0][i], below = 0.5 * erfc(-x / sqrt(2.0)), slope = below + x * exp(-x * x / 2) / sqrt(2 * M_PI);
            const double y = (double)float_of(((uint16_t *)made.out)[i]), dx = (double)float_of(((uint16_t *)made.d_in[0])[i]);
            ck_assert_msg(fabs(y - x * below) <= 0x1p-8 * fabs(x * below) + 2e-7 * fabs(x), "gelu(%g) = %g instead of %g", x, y, x * below);
            ck_assert_msg(fabs(dx - slope) <= 0x1p-8 * fabs(slope) + 2e-7, "slope at %g: %g instead of %g", x, dx, slope);
            if (x < -1 && x > -5)
                ck_assert_msg(fabs(y - x * below) <= 0x1.8p-8 * fabs(x * below), "gelu(%g) = %g instead of %g", x, y, x * below);
        }
        free_made(&made);
        free_data(&t);
    }
END_TEST

/* With turns, norms, both; a width that is no multiple of two, and numbers behind the heads. */
START_TEST(queries)
    {
        struct trial t = {.name = "heads", .op = {.kind = OP_HEADS, .heads = {35, 40, 7, 2, 16, 0, 1e-6f}},
                          .in = {35 * 40, 7 * 16}, .out = 35 * 40};
        try(t);
        t.op.heads.norms = 2;
        t.in[2] = 2 * 16;
        try(t);
        t.op.heads = (struct op_heads){35, 22, 1, 3, 7, 1, 1e-6f};
        t.in[0] = t.out = 35 * 22;
        t.in[1] = 0;
        t.in[2] = 7;
        try(t);
    }
END_TEST

/* Sequences beside each other; q, k and v lie `pad` numbers into their rows. Rows that begin at multiples of 8 numbers are read as
 * they lie, others are brought there; a sequence or two at once. */
static void try_attention(size_t sequences, size_t tokens, size_t heads, size_t width, size_t pad, bool every)
{
    const size_t e = heads * width, row = e + 2 * pad, count = sequences * tokens * row;
    const struct op_attention_stride stride = {row, sequences * row, pad};
    const struct trial t = {.name = "attention",
                            .op = {.kind = OP_ATTENTION,
                                   .attention = {.sequences = sequences,
                                                 .n_context = tokens - tokens / 4,
                                                 .n_query = tokens / 4,
                                                 .n_keys = tokens - tokens / 4,
                                                 .heads = heads,
                                                 .width = width,
                                                 .context_kv_heads = heads,
                                                 .query_kv_heads = 1,
                                                 .q = stride,
                                                 .k = stride,
                                                 .v = stride,
                                                 .o = stride,
                                                 .statistics = {2 * heads, sequences * 2 * heads, 0}}},
                            .in = {count, count, count},
                            .out = count,
                            .out2 = sequences * tokens * heads * 2};
    try_some(t, every);
}

START_TEST(attended)
    {
        try_attention(2, 9, 2, 8, 0, true);
        try_attention(2, 9, 2, 12, 0, false);
        try_attention(2, 9, 2, 8, 4, false);
        try_attention(3, 100, 1, 32, 8, false);
        try_attention(3, 210, 2, 24, 0, false);
        try_attention(2, 330, 1, 64, 3, false);
        try_attention(1, 130, 2, 128, 0, false);
    }
END_TEST

/* ---- plans ---- */

static bool is_bf16(const struct tape_plan *p, int value) { return p->bf16[value]; }

/* A block as networks have it: what is read by products alone is bf16, and so are gradients that go to them; what is added to
 * or has a bias is not. */
START_TEST(plans_know_what_is_bf16)
    {
        enum { ROWS = 1000, E = 64 };
        struct tensor_backend b;
        struct tape *t;
        struct tape_plan *p, *wide;
        struct tape_sizes sizes, of_wide;
        MUST(tape_open(&t, &f));
        const int x = tape_input(t, ROWS, E), w = tape_parameter(t, 0, E, E), bias = tape_parameter(t, E * E, 1, E),
                  stream = tape_linear(t, x, ROWS, w, bias, TAPE_NONE), cells = tape_layer_norm(t, stream, TAPE_NONE, TAPE_NONE, 1e-5f),
                  hidden = tape_linear(t, cells, ROWS, w, TAPE_NONE, TAPE_NONE), active = tape_gelu(t, hidden),
                  sum = tape_linear(t, active, ROWS, w, TAPE_NONE, stream), answer = tape_gelu(t, sum),
                  labels = tape_input(t, ROWS, 1), permutation = tape_input(t, E, 1),
                  loss = tape_cross_entropy(t, answer, labels, permutation, 1.0);
        const struct tape_options options = {.backward = true, .last = loss};
        MUST(cuda_backend_open_planning(&b, TENSOR_BF16, &f));
        MUST(tape_plan_open(&p, t, &b, options, &sizes, &f));
        const int two[] = {cells, hidden, active}, four[] = {x, w, stream, sum, answer, loss};
        for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
            ck_assert(is_bf16(p, two[i]) && p->bf16_gradient[two[i]]);
            ck_assert_uint_eq(tape_plan_value_bytes(p, t, two[i]), ROWS * E * 2);
            ck_assert_uint_eq(tape_plan_gradient_bytes(p, t, two[i]), ROWS * E * 2);
        }
        for (size_t i = 0; i < sizeof four / sizeof *four; i++)
            ck_assert(!is_bf16(p, four[i]) && !p->bf16_gradient[four[i]]);
        b.close(b.state);
        MUST(cuda_backend_open_planning(&b, TENSOR_TF32, &f));
        MUST(tape_plan_open(&wide, t, &b, options, &of_wide, &f));
        for (size_t v = 0; v < p->n_values; v++) ck_assert(!wide->bf16[v] && !wide->bf16_gradient[v]);
        ck_assert_uint_lt(sizes.activations, of_wide.activations);
        ck_assert(sizes.work.bytes < of_wide.work.bytes && sizes.work.flops == of_wide.work.flops);
        b.close(b.state);
        tape_plan_close(p);
        tape_plan_close(wide);
        tape_close(t);
    }
END_TEST

UNIT_MAIN("tensor/bf16 storage", products, norms_and_gelu, gelu_is_right_everywhere, queries, attended, plans_know_what_is_bf16)
