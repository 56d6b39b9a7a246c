/* Encodes category columns: ranks of the values seen in the context, in the estimator's own order where shuffled.
 * Chosen columns move to the front; the others follow and lose their kind. One-hot encoding is in step_onehot.c. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "ensemble/census.h"
#include "ensemble/ensemble_internal.h"

static bool is_encoded(const struct census *c, const struct preprocessor *p, size_t n_context)
{
    return c->rarest >= p->least_count && (!p->fewer_than_tenth || c->n_with_gap < n_context / 10);
}

static void encode(double *value, size_t n_rows, const struct census *c, const size_t *order)
{
    for (size_t i = 0; i < n_rows; i++) {
        if (isnan(value[i])) continue;
        size_t rank = census_rank(c, value[i]);
        value[i] = rank == c->n_with_gap ? (double)NAN : (double)(order != NULL ? order[rank] : rank);
    }
}

static int encode_ordinal(struct frame *x, const struct preprocessor *p, uint64_t seed, struct tabft_failure *f)
{
    size_t *order = NULL, *shuffled = NULL, n_first = 0, n = x->n_columns;
    struct census census = {0};
    struct random_pcg g;
    random_pcg_seed(&g, seed);
    int error;
    TRY(memory_new(&order, n, sizeof *order, "an order of columns", f));
    TRY(memory_new(&shuffled, x->n_context + 1, sizeof *shuffled, "an order of categories", f));
    for (size_t i = 0; i < n; i++) {
        if (!x->column[i].is_category) continue;
        TRY(census_take(&census, x->column[i].value, x->n_context, f));
        x->column[i].is_category = is_encoded(&census, p, x->n_context);
        if (x->column[i].is_category) {
            if (p->shuffled) random_pcg_permutation(&g, census.n_with_gap, shuffled);
            encode(x->column[i].value, x->n_rows, &census, p->shuffled ? shuffled : NULL);
            order[n_first++] = i;
        }
        census_free(&census);
    }
    if (n_first > 0) {
        size_t next = n_first;
        for (size_t i = 0; i < n; i++)
            if (!x->column[i].is_category) order[next++] = i;
        TRY(frame_select(x, order, n, f));
    }
fail:
    census_free(&census);
    free(shuffled);
    free(order);
    return error;
}

int step_category(struct frame *x, const struct preprocessor *p, uint64_t seed, struct tabft_failure *f)
{
    if (p->categories == CATEGORIES_ORDINAL) return encode_ordinal(x, p, seed, f);
    if (p->categories == CATEGORIES_ONEHOT) return step_onehot(x, p, f);
    return 0;
}
