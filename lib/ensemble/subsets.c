/* Which columns and which context rows an estimator gets where it cannot or need not have all (spec 3.3). */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "ensemble/ensemble_internal.h"

enum { GINI_ROWS = 100000, GINI_COLUMNS = 200, GINI_IMPORTANT = 150 };

size_t subsets_added(const struct config *c, const struct preprocessor *p, size_t n_rows, size_t k, size_t n_numbers)
{
    size_t added = c->polynomials > 0 ? polynomials_count(c->polynomials, k) : 0;
    if (reshape_appends(p, k + added)) added += p->categories == CATEGORIES_NUMERIC ? k + added : n_numbers + added;
    if (p->svd_divisor > 0 && k + added >= 2) added += svd_count(p->svd_divisor, n_rows, k + added);
    return added + (c->fingerprint ? 1 : 0);
}

size_t subsets_budget(const struct config *c, const struct preprocessor *p, size_t n_rows, size_t n_columns,
                      const size_t *n_numbers)
{
    size_t k = n_columns < p->max_columns ? n_columns : p->max_columns;
    while (k > 0 && k + subsets_added(c, p, n_rows, k, n_numbers[k]) > p->max_columns) k--;
    return k;
}

/* Slots dealt from a pool that is refilled, shuffled, with those the estimator has not got yet. */
struct pool {
    size_t n_slots, n_left;
    size_t *left;   /* [n_slots]: the last n_left are to be dealt, in order from the front of them */
    bool *is_dealt; /* [n_slots] to this estimator */
};

static int pool_open(struct pool *p, size_t n_slots, struct tabft_failure *f)
{
    int error;
    *p = (struct pool){.n_slots = n_slots};
    TRY(memory_new(&p->left, n_slots, sizeof *p->left, "a pool of rows or columns", f));
    TRY(memory_new(&p->is_dealt, n_slots, sizeof *p->is_dealt, "a pool of rows or columns", f));
fail:
    return error;
}

static void pool_close(struct pool *p)
{
    free(p->left);
    free(p->is_dealt);
}

static void refill(struct pool *p, struct random_pcg *g)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_slots; i++)
        if (!p->is_dealt[i]) n++;
    p->n_left = n > 0 ? n : p->n_slots;
    size_t *to = p->left + p->n_slots - p->n_left;
    for (size_t i = 0; i < p->n_slots; i++)
        if (n == 0 || !p->is_dealt[i]) *to++ = i;
    random_pcg_shuffle(g, p->n_left, p->left + p->n_slots - p->n_left);
}

static void deal(struct pool *p, struct random_pcg *g, size_t n, size_t *out)
{
    memset(p->is_dealt, 0, p->n_slots * sizeof *p->is_dealt);
    for (size_t i = 0; i < n; i++) {
        if (p->n_left == 0) refill(p, g);
        out[i] = p->left[p->n_slots - p->n_left--];
        p->is_dealt[out[i]] = true;
    }
}

static int ascending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* ---- Columns ---- */

/* How many columns count as important among n. */
static double important(const struct config *c, size_t n)
{
    if (c->important_columns < 0) return fmax(1, ceil(-c->important_columns * (double)n));
    if (c->important_columns > 0) return c->important_columns;
    return n > GINI_COLUMNS ? GINI_IMPORTANT : (double)n;
}

/* Importance is asked for only where a preprocessor takes fewer columns by itself and some are not important. */
static enum column_subsets method_of(const struct config *c, enum ensemble_phase phase, size_t n_rows, size_t n_columns)
{
    if (phase == ENSEMBLE_FINETUNING) return SUBSETS_RANDOM;
    if (c->column_subsets != SUBSETS_AUTO && c->column_subsets != SUBSETS_GINI) return c->column_subsets;
    bool cuts = false;
    for (size_t i = 0; i < c->n_preprocessors; i++) cuts = cuts || c->preprocessor[i].max_columns < n_columns;
    bool asks = c->column_subsets == SUBSETS_GINI || n_rows > GINI_ROWS;
    return asks && cuts && important(c, n_columns) < (double)n_columns ? SUBSETS_GINI : SUBSETS_BALANCED;
}

/* Fills e->column with size of n_columns columns. `order` is a permutation of the columns from n_fixed on. */
static int choose_columns(struct estimator *e, enum column_subsets method, size_t n_columns, size_t n_fixed,
                          const size_t *order, struct pool *pool, struct random_pcg *g, struct tabft_failure *f)
{
    size_t size = e->n_columns, *all = NULL;
    int error;
    TRY(memory_new(&e->column, size, sizeof *e->column, "a subset of columns", f));
    if (method == SUBSETS_RANDOM) {
        TRY(memory_new(&all, n_columns, sizeof *all, "a subset of columns", f));
        random_pcg_permutation(g, n_columns, all);
        memcpy(e->column, all, size * sizeof *all);
    } else {
        size_t fixed = size < n_fixed ? size : n_fixed;
        for (size_t i = 0; i < fixed; i++) e->column[i] = i;
        if (size > fixed) deal(pool, g, size - fixed, e->column + fixed);
        for (size_t i = fixed; i < size; i++) e->column[i] = order[e->column[i]];
    }
    qsort(e->column, size, sizeof *e->column, ascending);
fail:
    free(all);
    return error;
}

int subsets_columns(struct estimator *estimator, size_t n, const struct config *c, enum ensemble_phase phase,
                    size_t n_rows, size_t n_columns, const size_t *n_numbers, uint64_t seed, struct tabft_failure *f)
{
    enum column_subsets method = method_of(c, phase, n_rows, n_columns);
    size_t *order = NULL, n_fixed = 0;
    struct pool pool = {0};
    struct random_pcg g;
    int error;
    random_pcg_seed(&g, seed);
    if (method == SUBSETS_CONSTANT_AND_BALANCED)
        n_fixed = c->constant_columns < n_columns ? c->constant_columns : n_columns;
    size_t n_dealt = n_columns - n_fixed;
    TRY(memory_new(&order, n_dealt, sizeof *order, "an order of columns", f));
    TRY(pool_open(&pool, n_dealt, f));
    if (method != SUBSETS_RANDOM) {
        random_pcg_permutation(&g, n_dealt, order);
        for (size_t i = 0; i < n_dealt; i++) order[i] += n_fixed;
    }
    for (size_t i = 0; i < n; i++) {
        size_t size = subsets_budget(c, estimator[i].preprocessor, n_rows, n_columns, n_numbers);
        estimator[i].n_columns = size < n_columns ? size : n_columns;
        if (size >= n_columns) continue;
        if (size == 0)
            FAIL(f, TABFT_INPUT, "estimators: max_features_per_estimator %zu leaves no room for a column",
                 estimator[i].preprocessor->max_columns);
        if (method == SUBSETS_GINI)
            FAIL(f, TABFT_INPUT,
                 "inference_config: FEATURE_SUBSAMPLING_METHOD gini_feature_importance is needed for %zu "
                 "columns, which TabFT cannot do; use at most %zu columns",
                 n_columns, size);
        TRY(choose_columns(&estimator[i], method, n_columns, n_fixed, order, &pool, &g, f));
    }
fail:
    pool_close(&pool);
    free(order);
    return error;
}

/* ---- Rows ---- */

/* How many of `size` rows each class gives: one each, the rest in proportion, what is left over to the largest
 * remainders. Ties of remainders go to the later class, which is what numpy's partition does for few classes. */
static void share_out(const size_t *count, size_t n_classes, size_t n_rows, size_t size, size_t *share,
                      double *remainder)
{
    size_t given = 0;
    for (size_t k = 0; k < n_classes; k++) {
        double exact = (double)count[k] / (double)n_rows * (double)(size - n_classes);
        share[k] = (size_t)floor(exact) + 1;
        remainder[k] = exact - floor(exact);
        given += share[k];
    }
    for (; given < size; given++) {
        size_t best = 0;
        for (size_t k = 1; k < n_classes; k++)
            if (remainder[k] >= remainder[best]) best = k;
        share[best]++;
        remainder[best] = -1;
    }
}

static int stratified_rows(struct estimator *estimator, size_t n, size_t n_rows, size_t size, const int32_t *y,
                           size_t n_classes, struct random_pcg *g, struct tabft_failure *f)
{
    struct pool *pool = NULL;
    size_t *member = NULL, *count = NULL, *start = NULL, *share = NULL, *dealt = NULL, present = 0;
    double *remainder = NULL;
    int error;
    TRY(memory_new(&pool, n_classes, sizeof *pool, "pools of rows", f));
    TRY(memory_new(&member, n_rows, sizeof *member, "rows by class", f));
    TRY(memory_new(&count, n_classes, sizeof *count, "rows by class", f));
    TRY(memory_new(&start, n_classes, sizeof *start, "rows by class", f));
    TRY(memory_new(&share, n_classes, sizeof *share, "rows by class", f));
    TRY(memory_new(&remainder, n_classes, sizeof *remainder, "rows by class", f));
    TRY(memory_new(&dealt, size, sizeof *dealt, "a subset of rows", f));
    for (size_t k = 0, at = 0; k < n_classes; k++) { /* classes without a row take no part */
        start[present] = at;
        for (size_t i = 0; i < n_rows; i++)
            if (y[i] == (int32_t)k) member[at++] = i;
        count[present] = at - start[present];
        if (count[present] > 0) present++;
    }
    if (size < present)
        FAIL(f, TABFT_INPUT, "inference_config: SUBSAMPLE_SAMPLES gives %zu rows for %zu classes; use more", size,
             present);
    share_out(count, present, n_rows, size, share, remainder);
    for (size_t k = 0; k < present; k++) TRY(pool_open(&pool[k], count[k], f));
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        TRY(memory_new(&estimator[i].row, size, sizeof *estimator[i].row, "a subset of rows", f));
        estimator[i].n_rows = size;
        for (size_t k = 0; k < present; k++) {
            deal(&pool[k], g, share[k], dealt);
            for (size_t j = 0; j < share[k]; j++) estimator[i].row[at++] = member[start[k] + dealt[j]];
        }
        qsort(estimator[i].row, size, sizeof *estimator[i].row, ascending);
    }
fail:
    for (size_t k = 0; pool != NULL && k < n_classes; k++) pool_close(&pool[k]);
    free(dealt);
    free(remainder);
    free(share);
    free(start);
    free(count);
    free(member);
    free(pool);
    return error;
}

static int balanced_rows(struct estimator *estimator, size_t n, size_t n_rows, size_t size, struct random_pcg *g,
                         struct tabft_failure *f)
{
    struct pool pool = {0};
    size_t *order = NULL;
    int error;
    TRY(memory_new(&order, n_rows, sizeof *order, "an order of rows", f));
    TRY(pool_open(&pool, n_rows, f));
    random_pcg_permutation(g, n_rows, order);
    for (size_t i = 0; i < n; i++) {
        TRY(memory_new(&estimator[i].row, size, sizeof *estimator[i].row, "a subset of rows", f));
        estimator[i].n_rows = size;
        deal(&pool, g, size, estimator[i].row);
        for (size_t j = 0; j < size; j++) estimator[i].row[j] = order[estimator[i].row[j]];
        qsort(estimator[i].row, size, sizeof *estimator[i].row, ascending);
    }
fail:
    pool_close(&pool);
    free(order);
    return error;
}

size_t subsets_row_count(const struct config *c, size_t n_rows)
{
    if (c->row_subset <= 0) return n_rows;
    const double wanted = c->row_subset < 1 ? floor(c->row_subset * (double)n_rows) + 1 : c->row_subset;
    return wanted < (double)n_rows ? (size_t)wanted : n_rows;
}

int subsets_rows(struct estimator *estimator, size_t n, const struct config *c, size_t n_rows, const int32_t *y,
                 size_t n_classes, uint64_t seed, struct tabft_failure *f)
{
    for (size_t i = 0; i < n; i++) estimator[i].n_rows = n_rows;
    if (c->row_subset <= 0) return 0;
    if (c->row_subsets == ROWS_MAJORITY)
        return tabft_fail(f, TABFT_INPUT,
                          "inference_config: SAMPLE_SUBSAMPLING_METHOD is majority_downsample, which TabFT "
                          "cannot do; use auto, stratified or balanced");
    const size_t wanted = subsets_row_count(c, n_rows);
    if (wanted == n_rows) return 0;
    struct random_pcg g;
    random_pcg_seed(&g, seed);
    if (y == NULL && c->row_subsets == ROWS_STRATIFIED)
        return tabft_fail(f, TABFT_INPUT,
                          "inference_config: SAMPLE_SUBSAMPLING_METHOD is stratified, which needs classes; use auto");
    if (c->row_subsets == ROWS_BALANCED || y == NULL) return balanced_rows(estimator, n, n_rows, wanted, &g, f);
    return stratified_rows(estimator, n, n_rows, wanted, y, n_classes, &g, f);
}
