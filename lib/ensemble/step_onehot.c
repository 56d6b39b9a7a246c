/* Encodes category columns as a column a value, one for two values; a gap is a value, an unseen value is none of them.
 * The new columns stand first. Left alone where the result would be too large, as TabPFN does. */
#define TABFT_ENSEMBLE_ROOM
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/census.h"
#include "ensemble/ensemble_internal.h"

/* The columns that `census` becomes: all values, or for two the second. */
static size_t width_of(const struct census *c) { return c->n_with_gap == 2 ? 1 : c->n_with_gap; }

/* Takes the census of each column to encode; *n_out columns would result. census[] of the others stays empty. */
static int choose(const struct frame *x, const struct preprocessor *p, struct census *census, size_t *n_out,
                  struct tabft_failure *f)
{
    int error;
    *n_out = 0;
    for (size_t i = 0; i < x->n_columns; i++) {
        if (x->column[i].is_category) TRY(census_take(&census[i], x->column[i].value, x->n_context, f));
        if (census[i].n_with_gap > p->max_onehot) census_free(&census[i]);
        *n_out += census[i].value != NULL ? width_of(&census[i]) : 1;
    }
    return 0;
fail:
    return error;
}

static int append_indicators(struct frame *x, size_t column, const struct census *c, struct tabft_failure *f)
{
    int error;
    for (size_t k = c->n_with_gap - width_of(c); k < c->n_with_gap; k++) {
        TRY(frame_append(x, true, f));
        double *out = x->column[x->n_columns - 1].value;
        const double *value = x->column[column].value;
        for (size_t i = 0; i < x->n_rows; i++) out[i] = census_rank(c, value[i]) == k ? 1 : 0;
    }
    return 0;
fail:
    return error;
}

int step_onehot(struct frame *x, const struct preprocessor *p, struct tabft_failure *f)
{
    size_t n = x->n_columns, n_out, n_cells, *order = NULL, next = 0;
    struct census *census = NULL;
    int error;
    TRY(memory_new(&census, n, sizeof *census, "the values of categories", f));
    TRY(choose(x, p, census, &n_out, f));
    if (!size_mul(n_out, x->n_context, &n_cells) || n_cells >= ONEHOT_CELLS_MAX) goto fail;
    TRY(memory_new(&order, n_out, sizeof *order, "an order of columns", f));
    for (size_t i = 0; i < n; i++)
        if (census[i].value != NULL) TRY(append_indicators(x, i, &census[i], f));
    for (size_t i = n; i < x->n_columns; i++) order[next++] = i;
    for (size_t i = 0; i < n; i++)
        if (census[i].value == NULL) order[next++] = i;
    TRY(frame_select(x, order, next, f));
fail:
    for (size_t i = 0; census != NULL && i < n; i++) census_free(&census[i]);
    free(census);
    free(order);
    return error;
}
