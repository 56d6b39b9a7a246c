/* From two tables and a model to predictions: rows in blocks, one estimator at a time, whose logits wait in a
 * scratch file for those of the others. */
#define TABFT_IN_PREDICT
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ensemble/regression.h"
#include "eval/predict_internal.h"
#include "file/file.h"
#include "table/table.h"
#include "tensor/cpu/cpu.h"

/* ---- opening ---- */

/* Which rows are predicted. */
static int choose_rows(struct eval_predictor *p, struct tabft_failure *f)
{
    const size_t all = p->test->n_rows, first = p->options.first_row;
    if (all == 0) return tabft_fail(f, TABFT_INPUT, "%s: has no rows to predict; pack some", p->test->path);
    if (first >= all || p->options.n_rows > all - first)
        return tabft_fail(f, TABFT_USE, "%s: has %zu rows; rows %zu (from 0) and %zu more are not all there",
                          p->test->path, all, first, p->options.n_rows);
    p->head.n_rows = p->options.n_rows > 0 ? p->options.n_rows : all - first;
    return 0;
}

static int find_answers(struct eval_predictor *p, struct tabft_failure *f)
{
    int error = 0;
    if (!p->train->has_target)
        FAIL(f, TABFT_INPUT, "%s: has no target to learn from; pack it with --target COLUMN", p->train->path);
    if (p->train->n_rows == 0) FAIL(f, TABFT_INPUT, "%s: has no rows to learn from; pack some", p->train->path);
    if (p->train->task == TABLE_REGRESSION) return predict_numbers(p, f);
    TRY(predict_classes(p, f));
    TRY(predict_truths(p, f));
fail:
    return error;
}

int eval_predictor_open(struct eval_predictor **out, const struct model *model, const struct table *train,
                        const struct table *test, const struct eval_options *options, struct threads *pool,
                        struct tabft_failure *f)
{
    int error = 0;
    struct eval_predictor *p = NULL;
    TRY(memory_new(&p, 1, sizeof *p, "a prediction", f));
    p->model = model;
    p->train = train;
    p->test = test;
    p->options = *options;
    p->pool = pool;
    p->backend = options->backend;
    if (p->backend == NULL) {
        TRY(cpu_backend_open(&p->cpu, pool, f));
        p->backend = &p->cpu;
    }
    TRY(choose_rows(p, f));
    TRY(find_answers(p, f));
    TRY(eval_columns_open(&p->columns, train, test, pool, f));
    p->fit = (struct ensemble_options){.task = p->head.is_regression ? ENSEMBLE_REGRESSION : ENSEMBLE_CLASSIFICATION,
                                       .n_estimators = options->n_estimators,
                                       .seed = options->seed,
                                       .phase = ENSEMBLE_PREDICTION,
                                       .n_classes = p->head.n_classes,
                                       .architecture = model_architecture(model),
                                       .inference_config = model_inference_config(model),
                                       .softmax_temperature = options->softmax_temperature,
                                       .average_before_softmax = options->average_before_softmax,
                                       .balance_probabilities = options->balance_probabilities};
    if (p->fit.n_estimators == 0) TRY(ensemble_default_count(&p->fit, p->columns.n, &p->fit.n_estimators, f));
    p->options.n_estimators = p->fit.n_estimators;
    TRY(predict_plan(p, f));
    p->plan.n_estimators = p->fit.n_estimators;
    *out = p;
    p = NULL;
fail:
    eval_predictor_close(p);
    return error;
}

void eval_predictor_close(struct eval_predictor *p)
{
    if (p == NULL) return;
    if (p->cpu.close != NULL) p->cpu.close(p->cpu.state);
    eval_columns_clear(&p->columns);
    eval_prediction_clear(&p->head);
    free(p->y_context);
    free(p->borders);
    free(p->truth_of);
    free(p);
}

const struct eval_plan *eval_predictor_plan(const struct eval_predictor *p) { return &p->plan; }
const struct eval_prediction *eval_predictor_head(const struct eval_predictor *p) { return &p->head; }
const enum ensemble_use *eval_predictor_use(const struct eval_predictor *p) { return p->columns.use; }

/* ---- running ---- */

/* What a prediction holds while it runs. */
struct work {
    struct eval_predictor *p;
    struct model_run *run;
    float *values;                 /* the weights in the backend's memory, where that is not the host's; else NULL */
    size_t *row;                   /* [block_rows] */
    double *x;                     /* [block_rows][columns] */
    struct ensemble_call call;     /* of the block to come */
    float *logits;                 /* [block_rows][outputs] */
    float *gathered;               /* [n_estimators][result_rows][outputs] */
    double *distribution;          /* of regression: [result_rows][outputs] */
    struct eval_prediction result; /* of result_rows; labels and levels are the head's */
    struct file_scratch *scratch;  /* [n_estimators][rows of the group][outputs] */
};

/* Room for the results of n rows; what all rows share is the head's. */
static int rows_new(struct eval_prediction *out, const struct eval_prediction *head, size_t n, struct tabft_failure *f)
{
    int error = 0;
    *out = *head;
    out->n_rows = n;
    if (head->is_regression) {
        TRY(memory_new(&out->target, n, sizeof *out->target, "targets", f));
        TRY(memory_new(&out->mean, n, sizeof *out->mean, "predictions", f));
        TRY(memory_new(&out->quantile, n, head->n_levels * sizeof *out->quantile, "quantiles", f));
    } else {
        TRY(memory_new(&out->probability, n, head->n_classes * sizeof *out->probability, "probabilities", f));
        TRY(memory_new(&out->truth, n, sizeof *out->truth, "labels", f));
    }
fail:
    return error;
}

static void rows_free(struct eval_prediction *p)
{
    free(p->probability);
    free(p->truth);
    free(p->target);
    free(p->mean);
    free(p->quantile);
}

static int place_weights(struct work *w, struct tabft_failure *f)
{
    int error = 0;
    const struct vectors *v = &w->p->backend->vectors;
    const size_t bytes = model_parameters(w->p->model) * sizeof *w->values;
    void *memory;
    if (v->host) return 0;
    TRY(v->memory_new(v->state, &memory, bytes, "the weights", f));
    w->values = memory;
    v->copy_in(v->state, w->values, model_values(w->p->model), bytes);
    TRY(v->finish(v->state, f));
fail:
    return error;
}

/* Reads the training rows, and prepares the estimators for them. */
static int fit(struct eval_predictor *p, struct tabft_failure *f)
{
    int error = 0;
    const struct table *train = p->train;
    TRY(memory_new(&p->x_context, train->n_rows, p->columns.n * sizeof *p->x_context, "a table's rows", f));
    TRY(eval_columns_context(&p->columns, p->pool, p->x_context, f));
    const struct ensemble_columns context = eval_columns_matrix(&p->columns, p->x_context, train->n_rows);
    error = p->head.is_regression
                ? ensemble_open_regression(&p->ensemble, &p->fit, &context, train->target.value, NULL, f)
                : ensemble_open(&p->ensemble, &p->fit, &context, p->y_context, NULL, f);
    if (error < 0) (void)tabft_fail_prefix(f, "%s", train->path);
fail:
    return error;
}

static void unfit(struct eval_predictor *p)
{
    ensemble_close(p->ensemble);
    free(p->x_context);
    p->ensemble = NULL;
    p->x_context = NULL;
}

static int work_open(struct work *w, struct tabft_failure *f)
{
    int error = 0;
    const struct eval_predictor *p = w->p;
    const struct eval_plan *plan = &p->plan;
    const size_t outputs = model_outputs(p->model), n = p->result_rows;
    const struct model_shape largest = {plan->n_context, plan->block_rows, plan->n_columns};
    TRY(memory_new(&w->row, plan->block_rows, sizeof *w->row, "a block of rows", f));
    TRY(memory_new(&w->x, plan->block_rows, p->columns.n * sizeof *w->x, "a block of rows", f));
    TRY(memory_new(&w->logits, plan->block_rows, outputs * sizeof *w->logits, "logits", f));
    TRY(memory_new(&w->gathered, n, p->options.n_estimators * outputs * sizeof *w->gathered, "logits", f));
    TRY(rows_new(&w->result, &p->head, n, f));
    if (p->head.is_regression)
        TRY(memory_new(&w->distribution, n, outputs * sizeof *w->distribution, "distributions", f));
    TRY(place_weights(w, f));
    if (plan->kept) TRY(model_run_open_kept(&w->run, p->model, largest, p->backend, f));
    else TRY(model_run_open(&w->run, p->model, largest, MODEL_RECOMPUTE_NONE, false, p->backend, f));
fail:
    return error;
}

static void work_close(struct work *w)
{
    file_scratch_close(w->scratch);
    ensemble_call_clear(&w->call);
    model_run_close(w->run);
    if (w->values != NULL) w->p->backend->vectors.memory_free(w->p->backend->vectors.state, w->values);
    free(w->row);
    free(w->x);
    free(w->logits);
    free(w->gathered);
    free(w->distribution);
    rows_free(&w->result);
}

/* A block of rows for an estimator; `first` counts from the table's. */
struct block {
    size_t estimator, first, n;
    bool begins; /* the estimator's first of the group */
};

/* The block's rows as the estimator makes them, into w->call. */
static int prepare_block(struct work *w, const struct block *b, struct tabft_failure *f)
{
    int error = 0;
    const struct eval_predictor *p = w->p;
    for (size_t i = 0; i < b->n; i++) w->row[i] = b->first + i;
    TRY(eval_columns_rows(&p->columns, w->row, b->n, p->pool, w->x, f));
    const struct ensemble_columns query = eval_columns_matrix(&p->columns, w->x, b->n);
    error = ensemble_call(p->ensemble, b->estimator, &query, p->pool, &w->call, f);
    if (error < 0 && b->first > 0)
        (void)tabft_fail_prefix(f, "%s and, from row %zu (from 0) on, %s", p->train->path, b->first, p->test->path);
    else if (error < 0) (void)tabft_fail_prefix(f, "%s and %s", p->train->path, p->test->path);
fail:
    return error;
}

/* What was prepared, through the network; w->call is free then. */
static int start_block(struct work *w, const struct block *b, struct tabft_failure *f)
{
    int error = 0;
    const struct eval_predictor *p = w->p;
    const float *values = w->values != NULL ? w->values : model_values(p->model);
    const struct model_input input = {.shape = {w->call.n_context, w->call.n_query, w->call.n_columns},
                                      .x = w->call.x,
                                      .y_context = w->call.y_context,
                                      .queries_alone = true};
    if (p->plan.kept && b->begins) TRY(model_keep_context(w->run, values, &input, f));
    TRY(model_forward_start(w->run, values, &input, f));
fail:
    ensemble_call_clear(&w->call);
    return error;
}

static int finish_block(struct work *w, const struct block *b, struct tabft_failure *f)
{
    int error = 0;
    TRY(model_forward_finish(w->run, w->logits, f));
    TRY(file_scratch_put(w->scratch, w->logits, b->n * model_outputs(w->p->model) * sizeof *w->logits, f));
fail:
    return error;
}

static int finish_labels(struct work *w, size_t first, size_t n, struct tabft_failure *f)
{
    int error = 0;
    const struct eval_predictor *p = w->p;
    TRY(ensemble_probabilities(p->ensemble, w->gathered, n, model_outputs(p->model), w->result.probability, f));
    for (size_t i = 0; i < n; i++) {
        const double label = p->truth_of != NULL ? p->test->target.value[first + i] : (double)NAN;
        w->result.truth[i] = isnan(label) ? EVAL_NO_LABEL : p->truth_of[(size_t)label];
    }
fail:
    return error;
}

static int finish_numbers(struct work *w, size_t first, size_t n, struct tabft_failure *f)
{
    int error = 0;
    const struct eval_predictor *p = w->p;
    const struct ensemble_targets scale = ensemble_targets(p->ensemble);
    const size_t outputs = model_outputs(p->model), n_levels = p->head.n_levels;
    TRY(ensemble_distribution(p->ensemble, w->gathered, n, p->borders, outputs + 1, w->distribution, f));
    for (size_t i = 0; i < n; i++) {
        const double *row = w->distribution + i * outputs;
        w->result.target[i] = p->test->has_target ? p->test->target.value[first + i] : (double)NAN;
        w->result.mean[i] = ensemble_mean(scale, p->borders, outputs + 1, row);
        for (size_t k = 0; k < n_levels; k++)
            w->result.quantile[i * n_levels + k] = ensemble_quantile(scale, p->borders, outputs + 1, row,
                                                                     p->head.level[k]);
    }
fail:
    return error;
}

/* Results of rows [first, first + n), which lie `at` rows behind the group's begin. */
static int finish_rows(struct work *w, size_t first, size_t at, size_t n, size_t group, struct tabft_failure *f)
{
    int error = 0;
    const struct eval_predictor *p = w->p;
    const size_t outputs = model_outputs(p->model), row = outputs * sizeof *w->gathered;
    for (size_t e = 0; e < p->options.n_estimators; e++)
        TRY(file_scratch_get(w->scratch, (uint64_t)(e * group + at) * row, w->gathered + e * n * outputs, n * row, f));
    w->result.n_rows = n;
    TRY(p->head.is_regression ? finish_numbers(w, first, n, f) : finish_labels(w, first, n, f));
fail:
    return error;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Block number i of those that all estimators make of rows [first, first + n), one estimator after the other. */
static struct block block_of(const struct eval_predictor *p, size_t first, size_t n, size_t i)
{
    const size_t rows = p->plan.block_rows, each = (n + rows - 1) / rows, at = i % each * rows;
    return (struct block){.estimator = i / each, .first = first + at, .n = smaller(rows, n - at), .begins = at == 0};
}

/* All of them. While a block is computed, if that is beside the host, the next one is prepared. */
static int run_blocks(struct work *w, size_t first, size_t n, struct tabft_failure *f)
{
    int error = 0;
    const struct eval_predictor *p = w->p;
    const size_t n_blocks = p->options.n_estimators * ((n + p->plan.block_rows - 1) / p->plan.block_rows);
    struct block next = block_of(p, first, n, 0);
    TRY(prepare_block(w, &next, f));
    for (size_t i = 0; i < n_blocks; i++) {
        const struct block b = next;
        struct tabft_failure of_next = {0};
        int code = 0;
        TRY(start_block(w, &b, f));
        if (i + 1 < n_blocks) {
            next = block_of(p, first, n, i + 1);
            code = prepare_block(w, &next, &of_next);
        }
        TRY(finish_block(w, &b, f));
        if (code < 0) FAIL(f, code, "%s", of_next.message);
    }
fail:
    return error;
}

/* All estimators on rows [first, first + n), then their results. */
static int run_group(struct work *w, size_t first, size_t n, eval_rows_put *put, void *context, struct tabft_failure *f)
{
    int error = 0;
    const struct eval_predictor *p = w->p;
    TRY(file_scratch_open(&w->scratch, p->options.output != NULL ? p->options.output : "-", f));
    TRY(run_blocks(w, first, n, f));
    for (size_t at = 0; at < n; at += p->result_rows) {
        const size_t rows = smaller(p->result_rows, n - at);
        TRY(finish_rows(w, first + at, at, rows, n, f));
        TRY(put(context, first + at, &w->result, f));
    }
fail:
    file_scratch_close(w->scratch);
    w->scratch = NULL;
    return error;
}

int eval_predictor_run(struct eval_predictor *p, eval_rows_put *put, void *context, struct tabft_failure *f)
{
    int error = 0;
    struct work w = {.p = p};
    const size_t begin = p->options.first_row, end = begin + p->head.n_rows, group = p->plan.group_rows;
    TRY(eval_predictor_fits(p, f));
    if (p->backend->reserve != NULL) TRY(p->backend->reserve(p->backend->state, p->plan.gpu_run, f));
    TRY(fit(p, f));
    TRY(work_open(&w, f));
    for (size_t first = begin; first < end; first += group)
        TRY(run_group(&w, first, smaller(group, end - first), put, context, f));
fail:
    work_close(&w);
    unfit(p);
    return error;
}

/* ---- into memory ---- */

struct collector {
    size_t first_row;
    struct eval_prediction *p;
};

static int collect(void *context, size_t first, const struct eval_prediction *rows, struct tabft_failure *f)
{
    const struct collector *c = context;
    struct eval_prediction *all = c->p;
    const size_t at = first - c->first_row, n = rows->n_rows, k = rows->n_classes, n_levels = rows->n_levels;
    (void)f;
    if (rows->is_regression) {
        memcpy(all->target + at, rows->target, n * sizeof *rows->target);
        memcpy(all->mean + at, rows->mean, n * sizeof *rows->mean);
        memcpy(all->quantile + at * n_levels, rows->quantile, n * n_levels * sizeof *rows->quantile);
    } else {
        memcpy(all->probability + at * k, rows->probability, n * k * sizeof *rows->probability);
        memcpy(all->truth + at, rows->truth, n * sizeof *rows->truth);
    }
    return 0;
}

int eval_predict(const struct model *model, const struct table *train, const struct table *test,
                 const struct eval_options *options, struct threads *pool, struct eval_prediction *out,
                 struct tabft_failure *f)
{
    int error = 0;
    struct eval_predictor *p = NULL;
    struct eval_prediction all = {0};
    struct eval_options collecting = *options;
    collecting.collects = true;
    TRY(eval_predictor_open(&p, model, train, test, &collecting, pool, f));
    TRY(rows_new(&all, &p->head, p->head.n_rows, f));
    TRY(eval_predictor_run(p, collect, &(struct collector){options->first_row, &all}, f));
    *out = all;
    all = (struct eval_prediction){0};
    p->head = (struct eval_prediction){0}; /* its labels and levels are taken over */
fail:
    rows_free(&all);
    eval_predictor_close(p);
    return error;
}
