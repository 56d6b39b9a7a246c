/* Sizes before there is data. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"

enum { COUNT_LEAST = 8, COUNT_MOST = 32 };

int ensemble_default_count(const struct ensemble_options *options, size_t n_columns, size_t *n_estimators,
                           struct tabft_failure *f)
{
    struct config *c = NULL;
    int error;
    TRY(memory_new(&c, 1, sizeof *c, "the inference_config", f));
    TRY(config_read(c, options->architecture, options->inference_config, options->task == ENSEMBLE_REGRESSION, f));
    size_t fewest = SIZE_MAX;
    for (size_t i = 0; i < c->n_preprocessors; i++)
        if (c->preprocessor[i].max_columns < fewest) fewest = c->preprocessor[i].max_columns;
    size_t n = n_columns / fewest + (n_columns % fewest > 0 ? 1 : 0);
    if (n < COUNT_LEAST) n = COUNT_LEAST;
    if (n > COUNT_MOST) n = COUNT_MOST;
    *n_estimators = c->n_estimators > 0 ? c->n_estimators : n;
fail:
    free(c);
    return error;
}

int ensemble_bytes(const struct ensemble_options *options, size_t n_context, size_t *bytes, struct tabft_failure *f)
{
    struct config *c = NULL;
    const bool is_regression = options->task == ENSEMBLE_REGRESSION;
    int error;
    TRY(memory_new(&c, 1, sizeof *c, "the inference_config", f));
    TRY(config_read(c, options->architecture, options->inference_config, is_regression, f));
    const size_t rows = options->phase == ENSEMBLE_PREDICTION ? subsets_row_count(c, n_context) : n_context;
    *bytes = (rows < n_context ? options->n_estimators * rows * sizeof(size_t) : 0) +
             (is_regression ? n_context * sizeof(double) : 0);
fail:
    free(c);
    return error;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* One-hot encoding of k columns, each a category of the most values that one may have, with what follows it. */
static size_t one_hot(const struct config *c, const struct preprocessor *p, size_t n_context, size_t k)
{
    size_t values = larger(c->min_unique_number, c->max_unique_text_category), columns;
    size_t most = ONEHOT_CELLS_MAX / (n_context > 0 ? n_context : 1);
    if (reshape_appends(p, k)) k *= 2;
    if (!size_mul(k, values, &columns) || columns > most) columns = larger(k, most);
    if (p->svd_divisor > 0) columns += svd_count(p->svd_divisor, n_context, columns);
    return columns + (c->fingerprint ? 1 : 0);
}

/* The most columns that any number of varying ones up to `most` becomes. */
static size_t widest(const struct config *c, const struct preprocessor *p, size_t n_context, size_t most)
{
    size_t best = 0;
    for (size_t k = 1; k <= most; k++) {
        size_t columns = k + subsets_added(c, p, n_context, k, k);
        if (p->categories == CATEGORIES_ONEHOT) columns = larger(columns, one_hot(c, p, n_context, k));
        if (columns > best) best = columns;
    }
    return best;
}

/* What ensemble_call holds at its peak: its columns, and either the scratch of a step or the result. Counted in
 * doubles. */
static double bytes_of(size_t n_context, size_t n_rows, size_t n_columns, bool sketches, int n_threads)
{
    double context = (double)n_context, rows = (double)n_rows, columns = (double)n_columns, threads = (double)n_threads;
    double side = context < columns ? context : columns, block = context < columns ? context : SVD_ROWS_PER_BLOCK;
    double sorting = 3 * context * threads;
    double svd = fmax(context, 64 * columns) * threads + block * columns /* rows */
                 + 3 * side * side + 35 * side /* Gram matrix in extended precision, vectors, values, work */
                 + 2 * (2 * side + columns) * threads + columns * columns / 2; /* vectors refined and kept */
    if (sketches) svd += 2.5 * side * side; /* what a sketch of half the directions holds */
    double hashing = 12 * context + columns * threads;
    double result = (rows * columns + context) / 2 + context;
    double most = fmax(fmax(sorting, svd), fmax(hashing, result));
    double marks = rows * columns / sizeof(double); /* of infinities */
    return (double)sizeof(double) * (rows * columns + most + marks);
}

int ensemble_columns_max(const struct ensemble_options *options, size_t n_columns, size_t n_context, size_t n_query,
                         int n_threads, size_t *columns, size_t *bytes, struct tabft_failure *f)
{
    struct config *c = NULL;
    size_t *n_numbers = NULL, n_rows, most = 0;
    int error;
    TRY(memory_new(&c, 1, sizeof *c, "the inference_config", f));
    bool is_regression = options->task == ENSEMBLE_REGRESSION;
    TRY(config_read(c, options->architecture, options->inference_config, is_regression, f));
    TRY(memory_new(&n_numbers, n_columns + 1, sizeof *n_numbers, "kinds of columns", f));
    for (size_t k = 0; k <= n_columns; k++) n_numbers[k] = k;
    size_t n = options->n_estimators;
    for (size_t i = 0; i < n; i++) {
        size_t pair = draws_pair(i, n, c->n_preprocessors * c->n_targets);
        const struct preprocessor *p = &c->preprocessor[pair / c->n_targets];
        columns[i] = widest(c, p, n_context, subsets_budget(c, p, n_context, n_columns, n_numbers));
        most = larger(most, columns[i]);
    }
    if (!size_add(n_context, n_query, &n_rows)) FAIL(f, TABFT_USE, "estimators: too many rows");
    const bool sketches = c->is_single && options->phase == ENSEMBLE_PREDICTION;
    if (bytes != NULL) *bytes = (size_t)bytes_of(n_context, n_rows, most, sketches, n_threads);
fail:
    free(n_numbers);
    free(c);
    return error;
}
