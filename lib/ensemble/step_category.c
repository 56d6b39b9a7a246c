/* Encodes category columns: ranks of the values seen in the context, in the estimator's own order where shuffled.
 * Chosen columns move to the front; the others follow and lose their kind. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "ensemble/ensemble_internal.h"

/* The distinct context values of a column, ascending, and how often the rarest occurs. A gap counts as a value. */
struct census {
    double *value;
    size_t n_values; /* without the gap */
    size_t n_with_gap;
    size_t rarest;
};

static int take_census(struct census *c, const double *value, size_t n, struct tabft_failure *f)
{
    double *scratch = NULL;
    int error;
    *c = (struct census){.rarest = n};
    TRY(memory_new(&c->value, n, sizeof *c->value, "the values of a category", f));
    TRY(memory_new(&scratch, n, sizeof *scratch, "the values of a category", f));
    size_t m = numbers_sorted(value, n, c->value, scratch);
    for (size_t i = 0; i < m;) {
        size_t end = i;
        while (end < m && c->value[end] == c->value[i]) end++;
        if (end - i < c->rarest) c->rarest = end - i;
        c->value[c->n_values++] = c->value[i];
        i = end;
    }
    c->n_with_gap = c->n_values + (m < n ? 1 : 0);
    if (m < n && n - m < c->rarest) c->rarest = n - m;
fail:
    free(scratch);
    return error;
}

static bool is_encoded(const struct census *c, const struct preprocessor *p, size_t n_context)
{
    return c->rarest >= p->least_count && (!p->fewer_than_tenth || c->n_with_gap < n_context / 10);
}

/* Rank of a value, or n_values where it is not among them. */
static size_t rank_of(const struct census *c, double value)
{
    size_t low = 0, high = c->n_values;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c->value[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n_values && c->value[low] == value ? low : c->n_values;
}

static void encode(double *value, size_t n_rows, const struct census *c, const size_t *order)
{
    for (size_t i = 0; i < n_rows; i++) {
        if (isnan(value[i])) continue;
        size_t rank = rank_of(c, value[i]);
        value[i] = rank == c->n_values ? (double)NAN : (double)(order != NULL ? order[rank] : rank);
    }
}

int step_category(struct frame *x, const struct preprocessor *p, uint64_t seed, struct tabft_failure *f)
{
    if (p->categories != CATEGORIES_ORDINAL) return 0;
    size_t *order = NULL, *shuffled = NULL, n_first = 0, n = x->n_columns;
    struct census census = {0};
    struct random_pcg g;
    random_pcg_seed(&g, seed);
    int error;
    TRY(memory_new(&order, n, sizeof *order, "an order of columns", f));
    TRY(memory_new(&shuffled, x->n_context + 1, sizeof *shuffled, "an order of categories", f));
    for (size_t i = 0; i < n; i++) {
        if (!x->column[i].is_category) continue;
        TRY(take_census(&census, x->column[i].value, x->n_context, f));
        x->column[i].is_category = is_encoded(&census, p, x->n_context);
        if (x->column[i].is_category) {
            if (p->shuffled) random_pcg_permutation(&g, census.n_with_gap, shuffled);
            encode(x->column[i].value, x->n_rows, &census, p->shuffled ? shuffled : NULL);
            order[n_first++] = i;
        }
        free(census.value);
        census.value = NULL;
    }
    if (n_first > 0) {
        size_t next = n_first;
        for (size_t i = 0; i < n; i++)
            if (!x->column[i].is_category) order[next++] = i;
        TRY(frame_select(x, order, n, f));
    }
fail:
    free(census.value);
    free(shuffled);
    free(order);
    return error;
}
