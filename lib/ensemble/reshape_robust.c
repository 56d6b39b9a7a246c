/* robust: centred at the median, scaled so that the quartiles stand where a normal distribution's do. */
#define TABFT_ENSEMBLE_ROOM
#include <float.h>
#include <math.h>

#include "ensemble/reshape.h"

static void centre(const struct reshape *r, double *value, size_t n_context, size_t n_rows, uint64_t seed,
                   double *scratch)
{
    (void)seed;
    double *sorted = scratch;
    size_t m = numbers_sorted(value, n_context, sorted, scratch + n_context);
    if (m == 0) return;
    double middle = m % 2 ? sorted[m / 2] : (sorted[m / 2 - 1] + sorted[m / 2]) / 2;
    double range = numbers_quantile(sorted, m, 0.75) - numbers_quantile(sorted, m, 0.25);
    double scale = (fabs(range) < 10 * DBL_EPSILON ? 1.0 : range) / r->parameter;
    for (size_t i = 0; i < n_rows; i++) value[i] = (value[i] - middle) / scale;
}

/* The parameter: the distance of a standard normal distribution's quartiles. */
const struct reshape reshape_robust = {.name = "robust", .run = centre, .parameter = 1.3489795003921634};
