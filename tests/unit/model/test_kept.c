/* A context encoded once, and blocks of query rows against it: the bits of one call, for every network. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "model/model.h"
#include "unit_backend.h"

static struct tabft_failure f;

enum { CONTEXT = 61, QUERY = 43, COLUMNS = 7, OUTPUTS_MAX = 64, ROWS = CONTEXT + QUERY };

/* Those of v3.5 are opened for both tasks. */
static const char *const networks[] = {"v2_cls",   "v2_reg",   "v2_5_cls", "v2_5_reg", "v2_5_mlp_cls",   "v2_5_mlp_reg",
                                       "v2_6_cls", "v2_6_reg", "v3_cls",   "v3_reg",   "v3_variant_cls", "v3_5",
                                       "v3_5_variant"};
enum { NETWORKS = sizeof networks / sizeof *networks };

static struct model *open_model(const char *name, enum model_task task)
{
    struct ckpt *c;
    struct model *m;
    char file[128];
    (void)snprintf(file, sizeof file, "reference/%s.model.safetensors", name);
    MUST(ckpt_open(&c, unit_data(file), &f));
    MUST(model_open(&m, c, task, &f));
    ckpt_close(c);
    ck_assert_uint_le(model_outputs(m), OUTPUTS_MAX);
    float *values = model_values_mutable(m);
    for (size_t i = 0; i < model_parameters(m); i++) values[i] += 0.01f * sinf((float)i); /* no weight left at zero */
    return m;
}

/* Gaps, infinities, a column that only query rows vary, one that only a query row's gap varies, one that is all one
 * number. */
static void fill(float *x, float *y)
{
    for (size_t i = 0; i < ROWS; i++)
        for (size_t c = 0; c < COLUMNS; c++) {
            float v = sinf((float)(i * COLUMNS + c) * 1.7f) * (float)(c + 1);
            if (c == 0 && i % 7 == 3) v = NAN;
            if (c == 1 && i % 11 == 5) v = i % 2 == 0 ? INFINITY : -INFINITY;
            if (c == 2) v = i < CONTEXT ? 4.0f : (float)i;
            if (c == 3) v = i == CONTEXT + 8 ? NAN : 2.0f;
            if (c == 4) v = 1.0f;
            x[i * COLUMNS + c] = v;
        }
    for (size_t i = 0; i < CONTEXT; i++) y[i] = (float)(i % 3);
}

/* Rows order[first..first + n) of the query in one call against what `run` keeps. */
static void forward_block(struct model_run *run, const struct model *m, const float *x, const float *y,
                          const size_t *order, size_t first, size_t n, float *logits)
{
    static float block[ROWS * COLUMNS], out[QUERY * OUTPUTS_MAX];
    const size_t width = model_outputs(m);
    const struct model_input input = {.shape = {CONTEXT, n, COLUMNS}, .x = block, .y_context = y};
    memcpy(block, x, CONTEXT * COLUMNS * sizeof *x);
    for (size_t i = 0; i < n; i++)
        memcpy(block + (CONTEXT + i) * COLUMNS, x + (CONTEXT + order[first + i]) * COLUMNS, COLUMNS * sizeof *x);
    MUST(model_forward(run, model_values(m), &input, out, &f));
    for (size_t i = 0; i < n; i++) memcpy(logits + order[first + i] * width, out + i * width, width * sizeof *out);
}

/* One call of all rows, each judged alone; then the same in blocks of every kind. */
static void check_blocks(const struct model *m, const char *name, int n_threads)
{
    static float x[ROWS * COLUMNS], y[CONTEXT], whole[QUERY * OUTPUTS_MAX], blocks[QUERY * OUTPUTS_MAX];
    static const size_t sizes[] = {QUERY, 1, 2, 5, 24};
    const size_t bytes = QUERY * model_outputs(m) * sizeof *whole;
    size_t order[QUERY];
    struct threads *pool;
    struct model_run *run;
    const struct model_shape largest = {CONTEXT + 3, QUERY + 2, COLUMNS + 1};
    const struct model_input input = {
        .shape = {CONTEXT, QUERY, COLUMNS}, .x = x, .y_context = y, .queries_alone = true};
    fill(x, y);
    MUST(threads_open(&pool, n_threads, &f));
    MUST(model_run_open(&run, m, largest, MODEL_RECOMPUTE_NONE, false, unit_cpu(pool), &f));
    MUST(model_forward(run, model_values(m), &input, whole, &f));
    model_run_close(run);
    MUST(model_run_open_kept(&run, m, largest, unit_cpu(pool), &f));
    MUST(model_keep_context(run, model_values(m), &input, &f));
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t i = 0; i < QUERY; i++) order[i] = s % 2 == 0 ? i : (i * 5 + 3) % QUERY;
        memset(blocks, 0, sizeof blocks);
        for (size_t i = 0; i < QUERY; i += sizes[s])
            forward_block(run, m, x, y, order, i, QUERY - i < sizes[s] ? QUERY - i : sizes[s], blocks);
        ck_assert_msg(memcmp(blocks, whole, bytes) == 0, "%s: other bits in blocks of %zu rows", name, sizes[s]);
    }
    model_run_close(run);
    threads_close(pool);
}

START_TEST(blocks_give_the_same_bits)
{
    for (size_t i = 0; i < 2 * NETWORKS; i++) {
        const enum model_task task = i < NETWORKS ? MODEL_CLASSIFICATION : MODEL_REGRESSION;
        const char *const name = networks[i % NETWORKS];
        if (task == MODEL_REGRESSION && strncmp(name, "v3_5", 4) != 0) continue; /* it has one head */
        struct model *m = open_model(name, task);
        check_blocks(m, name, 1);
        check_blocks(m, name, 3);
        model_close(m);
    }
}
END_TEST

/* A column that query rows alone vary is no column for a row judged alone, and one where TabPFN sees all at once: so a
 * row's logits depend on its neighbours there. Without such columns both are the same. */
START_TEST(query_rows_judge_no_column)
{
    static float x[ROWS * COLUMNS], y[CONTEXT], joint[QUERY * OUTPUTS_MAX], alone[QUERY * OUTPUTS_MAX];
    struct model *m = open_model("v2_6_cls", MODEL_ANY_TASK);
    struct model_run *run;
    struct model_input input = {.shape = {CONTEXT, QUERY, COLUMNS}, .x = x, .y_context = y};
    const size_t bytes = QUERY * model_outputs(m) * sizeof *joint;
    fill(x, y);
    MUST(model_run_open(&run, m, input.shape, MODEL_RECOMPUTE_NONE, false, unit_cpu(NULL), &f));
    for (int varied = 1; varied >= 0; varied--) {
        for (size_t i = CONTEXT; !varied && i < ROWS; i++) x[i * COLUMNS + 2] = 4.0f, x[i * COLUMNS + 3] = 2.0f;
        input.queries_alone = false;
        MUST(model_forward(run, model_values(m), &input, joint, &f));
        input.queries_alone = true;
        MUST(model_forward(run, model_values(m), &input, alone, &f));
        ck_assert_int_eq(memcmp(joint, alone, bytes) != 0, varied);
    }
    model_run_close(run);
    model_close(m);
}
END_TEST

/* What is kept grows with the context and not with the block; other contexts than the kept one are refused. */
START_TEST(plans_and_refusals)
{
    static float x[ROWS * COLUMNS], y[CONTEXT], logits[QUERY * OUTPUTS_MAX];
    struct model *m = open_model("v2_6_cls", MODEL_ANY_TASK);
    struct model_plan small, large, twice;
    struct model_run *run;
    struct model_input input = {.shape = {CONTEXT, QUERY, COLUMNS}, .x = x, .y_context = y};
    fill(x, y);
    MUST(model_plan_kept(m, (struct model_shape){1000, 10, 30}, unit_cpu(NULL), &small, &f));
    MUST(model_plan_kept(m, (struct model_shape){1000, 500, 30}, unit_cpu(NULL), &large, &f));
    MUST(model_plan_kept(m, (struct model_shape){2000, 10, 30}, unit_cpu(NULL), &twice, &f));
    ck_assert_uint_gt(small.kept, 0);
    ck_assert_uint_eq(small.kept, large.kept);
    ck_assert_uint_gt(twice.kept, small.kept);
    ck_assert_uint_eq(small.total, large.total); /* a block that is no larger than its context costs nothing */
    ck_assert_uint_gt(small.activations, small.kept);
    ck_assert_uint_eq(small.activations + small.scratch, small.total);
    MUST(model_run_open_kept(&run, m, input.shape, unit_cpu(NULL), &f));
    MUST_FAIL(model_forward(run, model_values(m), &input, logits, &f), TABFT_USE, "not the context");
    MUST(model_keep_context(run, model_values(m), &input, &f));
    MUST(model_forward(run, model_values(m), &input, logits, &f));
    input.shape.n_columns--;
    MUST_FAIL(model_forward(run, model_values(m), &input, logits, &f), TABFT_USE, "not the context");
    input.shape.n_columns++;
    y[2] = 99;
    MUST_FAIL(model_keep_context(run, model_values(m), &input, &f), TABFT_INPUT, "context row 2");
    y[2] = 0;
    MUST_FAIL(model_forward(run, model_values(m), &input, logits, &f), TABFT_USE, "not the context");
    model_run_close(run);
    model_close(m);
}
END_TEST

UNIT_MAIN("model, kept contexts", blocks_give_the_same_bits, query_rows_judge_no_column, plans_and_refusals)
