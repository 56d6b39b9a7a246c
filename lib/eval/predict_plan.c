/* How a prediction fits the memory: rows in blocks, and whether what query rows need of an estimator's context is kept.
 * Kept, a context is encoded once; where that does not fit, it goes through the network again with each block, which
 * gives the same bits. */
#define TABFT_IN_PREDICT
#include <stdlib.h>

#include "base/available.h"
#include "base/memory.h"
#include "base/threads.h"
#include "eval/predict_internal.h"
#include "table/store.h"
#include "table/table.h"

enum {
    BLOCK_LEAST = 64, /* rows: below, a block costs as much as it brings */
    BLOCK_START = 256,
    BLOCK_MOST = 8192,
    RESULT_BYTES = 16 << 20, /* of logits that become results at a time */
    PROCESS_BYTES = 9 << 19, /* program and C library, of which 2 to 3.8 MB were seen; stack */
    THREAD_BYTES = 64 << 10  /* its stack, and where it allocates */
};
static const size_t disk_most = (size_t)1 << 30; /* of logits that wait */

/* What a predictor asks of the estimators: how wide they are and what they take, for a block. */
static int price_ensemble(struct eval_predictor *p, size_t block, size_t *width, size_t *bytes,
                          struct tabft_failure *f)
{
    const struct ensemble_options *eo = &p->fit;
    int error = 0;
    size_t *columns = NULL;
    *width = 0;
    TRY(memory_new(&columns, eo->n_estimators, sizeof *columns, "a plan", f));
    TRY(ensemble_columns_max(eo, p->columns.n, p->train->n_rows, block, threads_count(p->pool), columns, bytes, f));
    for (size_t i = 0; i < eo->n_estimators; i++)
        if (columns[i] > *width) *width = columns[i];
fail:
    free(columns);
    return error;
}

static size_t sum(size_t a, size_t b) { return size_add(a, b, &a) ? a : SIZE_MAX; }
static size_t product(size_t a, size_t b) { return size_mul(a, b, &a) ? a : SIZE_MAX; }

/* Of a row. */
static size_t result_bytes(const struct eval_prediction *head)
{
    return head->is_regression ? (2 + head->n_levels) * sizeof(double)
                               : head->n_classes * sizeof(double) + sizeof(int32_t);
}

/* Rows that are read, their logits, and results in between. */
static size_t price_rows(const struct eval_predictor *p, size_t block, size_t result_rows)
{
    const size_t outputs = model_outputs(p->model);
    const size_t read = sum(product(block, p->columns.n * sizeof(double) + sizeof(size_t)),
                            table_pick_bytes(p->test, block, threads_count(p->pool)));
    const size_t distribution = p->head.is_regression ? outputs * sizeof(double) : 0;
    const size_t results = product(result_rows, p->options.n_estimators * outputs * sizeof(float) + distribution +
                                                    result_bytes(&p->head));
    return sum(sum(read, product(block, outputs * sizeof(float))), results);
}

/* What is there however rows are blocked. */
static int price_rest(const struct eval_predictor *p, struct eval_plan *plan, struct tabft_failure *f)
{
    int error = 0;
    const int n_threads = threads_count(p->pool);
    const size_t rows = p->train->n_rows;
    size_t fitted;
    TRY(ensemble_bytes(&p->fit, rows, &fitted, f));
    plan->weights = model_weight_bytes(p->model);
    plan->tables = sum(table_parts_bytes(p->train, n_threads), table_parts_bytes(p->test, 0));
    plan->tables = sum(plan->tables, product(rows, p->columns.n * sizeof *p->x_context));
    plan->tables = sum(plan->tables, p->head.is_regression ? 0 : rows * sizeof *p->y_context);
    plan->tables = sum(sum(plan->tables, eval_columns_bytes(&p->columns)), fitted);
    plan->output = p->options.collects ? product(plan->n_rows, result_bytes(&p->head))
                                       : eval_prediction_writer_bytes(&p->head, n_threads);
    plan->process = sum(PROCESS_BYTES + (size_t)n_threads * THREAD_BYTES, p->options.held);
fail:
    return error;
}

/* One way to run. */
static int price(struct eval_predictor *p, size_t block, bool kept, struct eval_plan *out, struct tabft_failure *f)
{
    int error = 0;
    struct model_plan m;
    struct eval_plan plan = *out;
    const size_t per_row = p->options.n_estimators * model_outputs(p->model) * sizeof(float);
    TRY(price_ensemble(p, block, &plan.n_columns, &plan.preprocessing, f));
    const struct model_shape largest = {plan.n_context, block, plan.n_columns};
    if (kept) TRY(model_plan_kept(p->model, largest, p->backend, &m, f));
    else TRY(model_plan(p->model, largest, MODEL_RECOMPUTE_NONE, false, p->backend, &m, f));
    plan.block_rows = block;
    plan.kept = kept;
    const bool on_gpu = !p->backend->vectors.host;
    plan.network = on_gpu ? m.host : sum(m.total, m.host);
    plan.gpu_run = on_gpu ? sum(m.weights, m.total) : 0;
    plan.gpu = on_gpu ? sum(plan.gpu_run, sum(p->backend->workspace, plan.gpu_taken)) : 0;
    plan.kept_bytes = m.kept;
    plan.group_rows = disk_most / per_row < block ? block : disk_most / per_row / block * block;
    if (plan.group_rows > plan.n_rows) plan.group_rows = plan.n_rows;
    plan.disk = product(plan.group_rows, per_row);
    p->result_rows = RESULT_BYTES / per_row < 1 ? 1 : RESULT_BYTES / per_row < block ? RESULT_BYTES / per_row : block;
    plan.rows = price_rows(p, block, p->result_rows);
    plan.total = sum(sum(plan.network, plan.preprocessing), plan.rows);
    plan.total = sum(sum(plan.total, plan.weights), sum(plan.tables, sum(plan.output, plan.process)));
    *out = plan;
fail:
    return error;
}

static bool fits(const struct eval_plan *plan)
{
    return plan->total <= plan->available && plan->gpu <= plan->gpu_available;
}

/* Which of two takes less, on the GPU if there is one. */
static bool is_less(const struct eval_plan *a, const struct eval_plan *b)
{
    return a->gpu != b->gpu ? a->gpu < b->gpu : a->total < b->total;
}

/* The first of a block of `rows` rows, of half as many, ... that fits; the last where none does. */
static int shrink(struct eval_predictor *p, size_t rows, bool kept, struct eval_plan *plan, struct tabft_failure *f)
{
    for (;; rows /= 2) {
        int error = price(p, rows, kept, plan, f);
        if (error < 0 || fits(plan) || p->options.block_rows > 0 || rows / 2 < BLOCK_LEAST) return error;
    }
}

int predict_plan(struct eval_predictor *p, struct tabft_failure *f)
{
    int error = 0;
    const uint64_t may = p->options.memory > 0 ? p->options.memory : memory_budget(1);
    struct eval_plan base = {.n_context = p->train->n_rows,
                             .n_rows = p->head.n_rows,
                             .available = may < SIZE_MAX ? (size_t)may : SIZE_MAX,
                             .gpu_taken = (size_t)p->options.gpu_taken,
                             .gpu_available = p->options.gpu_memory > 0 ? (size_t)p->options.gpu_memory : SIZE_MAX};
    TRY(price_rest(p, &base, f));
    struct eval_plan kept = base, whole = base;
    size_t block = p->options.block_rows;
    if (block == 0)
        block = base.n_context < BLOCK_START ? BLOCK_START : base.n_context > BLOCK_MOST ? BLOCK_MOST : base.n_context;
    if (block > base.n_rows) block = base.n_rows;
    TRY(shrink(p, block, true, &kept, f));
    TRY(shrink(p, block, false, &whole, f));
    const bool whole_is_less = is_less(&whole, &kept), one_block = whole.block_rows >= base.n_rows;
    /* In one block nothing is gained by keeping, and what takes less is taken. */
    p->plan = !fits(&kept) || (one_block && whole_is_less) ? whole : kept;
    if (!fits(&p->plan) && is_less(&kept, &p->plan)) p->plan = kept;
    TRY(price(p, p->plan.block_rows, p->plan.kept, &p->plan, f));
fail:
    return error;
}

size_t eval_plan_encodings(const struct eval_plan *plan)
{
    const size_t at_a_time = plan->kept ? plan->group_rows : plan->block_rows;
    return (plan->n_rows + at_a_time - 1) / at_a_time;
}

int eval_predictor_fits(const struct eval_predictor *p, struct tabft_failure *f)
{
    const struct eval_plan *plan = &p->plan;
    const double mib = 1 << 20;
    if (fits(plan)) return 0;
    if (plan->gpu > plan->gpu_available)
        return tabft_fail(
            f, TABFT_SYSTEM,
            "predicting %zu rows from %zu takes %.1f MiB of the GPU in blocks of %zu rows, %.1f MiB of which CUDA and others "
            "have taken, and it has %.1f MiB; take fewer training rows, smaller blocks, or --device cpu",
            plan->n_rows, plan->n_context, (double)plan->gpu / mib, plan->block_rows, (double)plan->gpu_taken / mib,
            (double)plan->gpu_available / mib);
    return tabft_fail(
        f, TABFT_SYSTEM,
        "predicting %zu rows from %zu takes %.1f MiB (weights %.1f, tables %.1f, network %.1f, preprocessing %.1f, "
        "rows %.1f) in blocks of %zu rows, %.1f MiB may be taken; give the job more memory, take fewer training rows, "
        "%sor fewer threads",
        plan->n_rows, plan->n_context, (double)plan->total / mib, (double)plan->weights / mib,
        (double)plan->tables / mib, (double)plan->network / mib, (double)plan->preprocessing / mib,
        (double)plan->rows / mib, plan->block_rows, (double)plan->available / mib,
        p->options.block_rows > 0 ? "smaller blocks, " : "");
}
