/* squashing_scaler_*: centred at the median, scaled by the quartiles, squeezed smoothly into (-B, B). The idea is
 * Holzmueller et al. 2024 (arXiv:2407.04491); gaps stay gaps. */
#define TABFT_ENSEMBLE_ROOM
#include <float.h>
#include <math.h>

#include "ensemble/reshape.h"

static void squash(const struct reshape *r, double *value, size_t n_context, size_t n_rows, uint64_t seed,
                   double *scratch)
{
    (void)seed;
    double *sorted = scratch;
    size_t m = numbers_sorted(value, n_context, sorted, scratch + n_context);
    if (m == 0) return;
    double least = sorted[0], most = sorted[m - 1];
    double low = numbers_quantile(sorted, m, 0.25), middle = numbers_quantile(sorted, m, 0.5);
    double high = numbers_quantile(sorted, m, 0.75), bound = r->parameter;
    bool flat = least == most, by_range = !flat && low == high;
    double range_scale = 2.0 / (most - least + DBL_MIN);
    for (size_t i = 0; i < n_rows; i++) {
        if (isnan(value[i])) continue;
        double z = flat ? 0.0 : by_range ? (value[i] - middle) * range_scale : (value[i] - middle) / (high - low);
        double share = z / bound;
        value[i] = z / sqrt(1 + share * share);
    }
}

const struct reshape reshape_squashing = {.name = "squashing_scaler_default", .run = squash, .parameter = 3.0};
const struct reshape reshape_squashing_max10 = {.name = "squashing_scaler_max10", .run = squash, .parameter = 10.0};
