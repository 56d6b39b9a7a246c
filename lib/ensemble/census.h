/* The values of a category column among the context rows. */
#ifndef TABFT_ENSEMBLE_CENSUS_H
#define TABFT_ENSEMBLE_CENSUS_H

#include "base/failure.h"

/* A gap counts as a value, the last one; it is not in `value`. */
struct census {
    double *value; /* [n_values], ascending */
    size_t n_values, n_with_gap;
    size_t rarest; /* how often the rarest occurs */
};
int census_take(struct census *c, const double *value, size_t n, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The place of a value (n_values for a gap where there are gaps), n_with_gap where it was not seen. */
size_t census_rank(const struct census *c, double value);
void census_free(struct census *c);

#endif
