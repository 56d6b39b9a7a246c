#define TABFT_ENSEMBLE_ROOM
#include "ensemble/census.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"

int census_take(struct census *c, const double *value, size_t n, struct tabft_failure *f)
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

size_t census_rank(const struct census *c, double value)
{
    if (isnan(value)) return c->n_values; /* n_with_gap where there are no gaps */
    size_t low = 0, high = c->n_values;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c->value[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n_values && c->value[low] == value ? low : c->n_with_gap;
}

void census_free(struct census *c)
{
    free(c->value);
    *c = (struct census){0};
}
