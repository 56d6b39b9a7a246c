/* Puts the steps together: what is decided once for a fit, and one estimator's way from rows to the network's input. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"
#include "ensemble/regression.h"

enum { ROWS_PER_BLOCK = 128 };

/* ---- Opening ---- */
static int check_options(const struct ensemble_options *o, const struct config *c, bool is_regression,
                         struct tabft_failure *f)
{
    if (o->n_estimators < 1) return tabft_fail(f, TABFT_USE, "estimators: 0 of them; use at least 1");
    if (!(o->softmax_temperature >= 0) || isinf(o->softmax_temperature))
        return tabft_fail(f, TABFT_USE, "softmax temperature: %g; use a number above 0", o->softmax_temperature);
    if (is_regression && o->balance_probabilities)
        return tabft_fail(f, TABFT_USE, "targets: numbers, whose probabilities cannot be balanced; leave that out");
    if (is_regression && o->n_classes == 0) return 0;
    if (is_regression) return tabft_fail(f, TABFT_USE, "targets: numbers and %zu classes at once", o->n_classes);
    if (o->n_classes < (o->phase == ENSEMBLE_PREDICTION ? 1 : 2))
        return tabft_fail(f, TABFT_INPUT, "labels: %zu class in the training table; at least 2 are needed",
                          o->n_classes);
    if (o->n_classes > c->max_classes)
        return tabft_fail(f, TABFT_INPUT,
                          "labels: %zu classes, the checkpoint was made for at most %zu; merge rare ones", o->n_classes,
                          c->max_classes);
    return 0;
}

static int check_finite(const struct ensemble *e, const struct ensemble_columns *part, const char *what,
                        struct tabft_failure *f)
{
    size_t n = part->n_rows * part->n_columns;
    for (size_t i = 0; !e->config.passes_infinities && i < n; i++)
        if (isinf(part->x[i]))
            return tabft_fail(f, TABFT_INPUT,
                              "%s row %zu (from 0), %s: infinite, and the checkpoint does not pass "
                              "infinities on (PASSTHROUGH_INF); replace it by a number or a gap",
                              what, i / part->n_columns, column_label(part, i % part->n_columns).text);
    return 0;
}

static int check_parts(const struct ensemble *e, struct tabft_failure *f)
{
    int error;
    if (e->context->n_rows < 2) FAIL(f, TABFT_INPUT, "estimators: %zu context row; use at least 2", e->context->n_rows);
    if (e->context->n_columns < 1)
        FAIL(f, TABFT_INPUT, "estimators: no column to learn from; give a table with one besides the target");
    if (e->query != NULL && e->query->n_columns != e->context->n_columns)
        FAIL(f, TABFT_INPUT, "estimators: %zu columns in the query, %zu in the context", e->query->n_columns,
             e->context->n_columns);
    TRY(check_finite(e, e->context, "context", f));
    if (e->query != NULL) TRY(check_finite(e, e->query, "query", f));
    for (size_t i = 0; e->y != NULL && i < e->context->n_rows; i++)
        if (e->y[i] < 0 || (size_t)e->y[i] >= e->n_classes)
            FAIL(f, TABFT_INPUT, "context row %zu (from 0): class code %d of %zu classes", i, e->y[i], e->n_classes);
    return 0;
fail:
    return error;
}

static int plan_estimators(struct ensemble *e, uint32_t seed, struct tabft_failure *f)
{
    size_t n_columns = e->context->n_columns, n_rows = e->context->n_rows, *n_numbers = NULL;
    struct sub_seeds seeds;
    int error;
    TRY(draws_make(e->estimator, e->n_estimators, &e->config, seed, e->n_classes, e->permutations, &seeds, f));
    TRY(memory_new(&n_numbers, n_columns + 1, sizeof *n_numbers, "kinds of columns", f));
    for (size_t j = 0; j < n_columns; j++) { /* fine-tuning takes texts and constants for numbers here, prediction does
                                                not */
        bool is_number = e->phase == ENSEMBLE_FINETUNING ? e->kind[j].kind != KIND_CATEGORY
                                                         : e->kind[j].kind == KIND_NUMBER;
        n_numbers[j + 1] = n_numbers[j] + (is_number ? 1 : 0);
    }
    TRY(subsets_columns(e->estimator, e->n_estimators, &e->config, e->phase, n_rows, n_columns, n_numbers,
                        seeds.columns, f));
    if (e->phase == ENSEMBLE_FINETUNING)
        for (size_t i = 0; i < e->n_estimators; i++) e->estimator[i].n_rows = n_rows;
    else TRY(subsets_rows(e->estimator, e->n_estimators, &e->config, n_rows, e->y, e->n_classes, seeds.rows, f));
fail:
    free(n_numbers);
    return error;
}

/* Exactly one of y and target is there. */
static int open_any(struct ensemble **out, const struct ensemble_options *options,
                    const struct ensemble_columns *context, const int32_t *y, const double *target,
                    const struct ensemble_columns *query, struct tabft_failure *f)
{
    struct ensemble *e = NULL;
    size_t n_codes;
    int error;
    TRY(memory_new(&e, 1, sizeof *e, "the estimators", f));
    TRY(config_read(&e->config, options->architecture, options->inference_config, target != NULL, f));
    TRY(check_options(options, &e->config, target != NULL, f));
    if (options->phase != ENSEMBLE_PREDICTION) e->config.is_single = false;
    if (options->softmax_temperature > 0) e->config.temperature = options->softmax_temperature;
    e->average_before_softmax = options->average_before_softmax;
    e->balance_probabilities = options->balance_probabilities;
    e->phase = options->phase;
    e->n_classes = options->n_classes;
    e->parts[0] = *context;
    e->context = &e->parts[0];
    if (query != NULL) {
        e->parts[1] = *query;
        e->query = &e->parts[1];
    }
    e->y = y;
    if ((e->phase == ENSEMBLE_FINETUNING) != (query != NULL))
        FAIL(f, TABFT_USE, "estimators: fine-tuning takes its query rows at once, prediction with each call");
    TRY(check_parts(e, f));
    TRY(memory_new(&e->kind, context->n_columns, sizeof *e->kind, "kinds of columns", f));
    TRY(kinds_detect(e->kind, &e->config, context, query, f));
    TRY(memory_new(&e->estimator, options->n_estimators, sizeof *e->estimator, "the estimators", f));
    e->n_estimators = options->n_estimators;
    if (!size_mul(e->n_estimators, e->n_classes, &n_codes)) n_codes = SIZE_MAX;
    TRY(memory_new(&e->permutations, n_codes, sizeof *e->permutations, "class permutations", f));
    TRY(plan_estimators(e, options->seed, f));
    if (target != NULL)
        TRY(targets_open(&e->targets, target, context->n_rows, e->phase, e->estimator, e->n_estimators, f));
    *out = e;
    return 0;
fail:
    ensemble_close(e);
    return error;
}

int ensemble_open(struct ensemble **out, const struct ensemble_options *options, const struct ensemble_columns *context,
                  const int32_t *y_context, const struct ensemble_columns *query, struct tabft_failure *f)
{
    return open_any(out, options, context, y_context, NULL, query, f);
}

int ensemble_open_regression(struct ensemble **out, const struct ensemble_options *options,
                             const struct ensemble_columns *context, const double *y_context,
                             const struct ensemble_columns *query, struct tabft_failure *f)
{
    return open_any(out, options, context, NULL, y_context, query, f);
}

void ensemble_close(struct ensemble *e)
{
    if (e == NULL) return;
    for (size_t i = 0; i < e->n_estimators; i++) {
        free(e->estimator[i].column);
        free(e->estimator[i].row);
    }
    free(e->estimator);
    free(e->permutations);
    targets_close(e->targets);
    kinds_free(e->kind, e->context != NULL ? e->context->n_columns : 0);
    free(e);
}

size_t ensemble_count(const struct ensemble *e) { return e->n_estimators; }
size_t ensemble_classes(const struct ensemble *e) { return e->n_classes; }
double ensemble_temperature(const struct ensemble *e) { return e->config.temperature; }

const int32_t *ensemble_class_permutation(const struct ensemble *e, size_t estimator)
{
    return e->estimator[estimator].class_permutation;
}

/* ---- Rows in ---- */
struct gathering {
    const struct ensemble *e;
    const struct estimator *estimator;
    const struct ensemble_columns *query;
    struct frame *x;
};

static const double *source_row(const struct gathering *g, size_t row)
{
    size_t n_context = g->x->n_context;
    if (row >= n_context) return g->query->x + (row - n_context) * g->query->n_columns;
    size_t from = g->estimator->row != NULL ? g->estimator->row[row] : row;
    return g->e->context->x + from * g->e->context->n_columns;
}

static void gather_block(void *context, size_t block, int thread)
{
    (void)thread;
    const struct gathering *g = context;
    size_t end = (block + 1) * ROWS_PER_BLOCK;
    if (end > g->x->n_rows) end = g->x->n_rows;
    for (size_t i = block * ROWS_PER_BLOCK; i < end; i++) {
        const double *from = source_row(g, i);
        for (size_t j = 0; j < g->x->n_columns; j++) {
            size_t column = g->estimator->column != NULL ? g->estimator->column[j] : j;
            g->x->column[j].value[i] = kinds_cell(&g->e->kind[column], from[column]);
        }
    }
}

static int gather(const struct gathering *g, struct threads *pool, struct tabft_failure *f)
{
    int error;
    for (size_t j = 0; j < g->estimator->n_columns; j++) {
        size_t column = g->estimator->column != NULL ? g->estimator->column[j] : j;
        TRY(frame_append(g->x, g->e->kind[column].kind == KIND_CATEGORY, f));
        g->x->column[j].source = column;
    }
    threads_run(pool, (g->x->n_rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK, gather_block, (void *)(uintptr_t)g);
    return 0;
fail:
    return error;
}

/* ---- The network's input out ---- */
struct casting {
    const struct frame *x;
    float *out;
};

static void cast_block(void *context, size_t block, int thread)
{
    (void)thread;
    const struct casting *c = context;
    size_t n = c->x->n_columns, end = (block + 1) * ROWS_PER_BLOCK;
    if (end > c->x->n_rows) end = c->x->n_rows;
    for (size_t j = 0; j < n; j++)
        for (size_t i = block * ROWS_PER_BLOCK; i < end; i++) c->out[i * n + j] = (float)c->x->column[j].value[i];
}

static int cast(const struct frame *x, float *out, struct threads *pool, struct tabft_failure *f)
{
    struct casting c = {x, out};
    threads_run(pool, (x->n_rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK, cast_block, &c);
    for (size_t i = 0; i < x->n_rows * x->n_columns; i++)
        if (isinf(out[i]) && !isinf(x->column[i % x->n_columns].value[i / x->n_columns]))
            return frame_refuse_large(x, i / x->n_columns, i % x->n_columns, f);
    return 0;
}

static int clip(const struct config *c, const struct frame *x, float *out, struct threads *pool,
                struct tabft_failure *f)
{
    bool *clips = NULL;
    int error;
    TRY(memory_new(&clips, x->n_columns, sizeof *clips, "a list of columns", f));
    for (size_t j = 0; j < x->n_columns; j++) clips[j] = !x->column[j].is_category;
    step_clip(out, x->n_context, x->n_rows, x->n_columns, clips, c->outlier_std, pool);
fail:
    free(clips);
    return error;
}

/* ---- One estimator ---- */
static bool reshape_is_inexact(const struct reshape *r, bool single)
{
    return single && r->run_single != NULL ? r->is_inexact_single : r->is_inexact;
}

static int run_steps(const struct ensemble *e, const struct estimator *s, struct frame *x, struct threads *pool,
                     struct ensemble_call *call, struct tabft_failure *f)
{
    const bool single = e->config.is_single;
    int error;
    if (e->config.passes_infinities) TRY(step_infinities(x, f));
    TRY(step_polynomials(x, e->config.polynomials, s->seed, f));
    TRY(step_constant(x, f));
    TRY(step_reshape(x, s->preprocessor, single, s->seed, pool, f));
    TRY(step_category(x, s->preprocessor, s->seed, f));
    if (single) TRY(step_single(x, s->preprocessor, pool, f));
    size_t before = x->n_columns;
    TRY(step_svd(x, s->preprocessor, single, s->seed, pool, f));
    call->fingerprint_may_differ = x->n_columns > before || reshape_is_inexact(s->preprocessor->reshape, single);
    call->fingerprint_column = -1;
    if (e->config.fingerprint) {
        call->fingerprint_column = (int)x->n_columns;
        TRY(step_fingerprint(x, single, pool, f));
    }
    TRY(step_shuffle(x, e->config.column_shift, s->column_shift, s->seed, &call->fingerprint_column, f));
    step_infinities_back(x);
fail:
    return error;
}

static int take_labels(const struct ensemble *e, const struct estimator *s, struct ensemble_call *call,
                       struct tabft_failure *f)
{
    int error;
    TRY(memory_new(&call->y_context, call->n_context, sizeof *call->y_context, "labels of an estimator", f));
    for (size_t i = 0; i < call->n_context; i++) {
        size_t row = s->row != NULL ? s->row[i] : i;
        call->y_context[i] = e->y != NULL ? (float)s->class_permutation[e->y[row]]
                                          : (float)targets_value(e->targets, s, (size_t)(s - e->estimator), row);
    }
    if (s->row != NULL) {
        TRY(memory_new(&call->context_row, call->n_context, sizeof *call->context_row, "rows of an estimator", f));
        memcpy(call->context_row, s->row, call->n_context * sizeof *s->row);
    }
    return 0;
fail:
    return error;
}

int ensemble_call(const struct ensemble *e, size_t estimator, const struct ensemble_columns *query,
                  struct threads *pool, struct ensemble_call *call, struct tabft_failure *f)
{
    const struct estimator *s = &e->estimator[estimator];
    struct frame x = {0};
    size_t n_rows, n_cells;
    int error;
    *call = (struct ensemble_call){.n_context = s->n_rows};
    if (query != NULL && query->n_columns != e->context->n_columns)
        FAIL(f, TABFT_INPUT, "estimators: %zu columns in the query, %zu in the context", query->n_columns,
             e->context->n_columns);
    if (query != NULL) TRY(check_finite(e, query, "query", f));
    if (query == NULL) query = e->query;
    call->n_query = query != NULL ? query->n_rows : 0;
    if (!size_add(call->n_context, call->n_query, &n_rows)) n_rows = SIZE_MAX;
    TRY(frame_open(&x, call->n_context, n_rows, f));
    x.table = e->context;
    struct gathering g = {e, s, query, &x};
    TRY(gather(&g, pool, f));
    TRY(run_steps(e, s, &x, pool, call, f));
    call->n_columns = x.n_columns;
    if (!size_mul(n_rows, x.n_columns, &n_cells)) n_cells = SIZE_MAX;
    TRY(memory_new(&call->x, n_cells, sizeof *call->x, "the input of an estimator", f));
    TRY(cast(&x, call->x, pool, f));
    if (e->phase != ENSEMBLE_FINETUNING && e->config.outlier_std > 0) TRY(clip(&e->config, &x, call->x, pool, f));
    TRY(take_labels(e, s, call, f));
    frame_close(&x);
    return 0;
fail:
    frame_close(&x);
    ensemble_call_clear(call);
    return error;
}

void ensemble_call_clear(struct ensemble_call *call)
{
    free(call->x);
    free(call->y_context);
    free(call->context_row);
    *call = (struct ensemble_call){0};
}
