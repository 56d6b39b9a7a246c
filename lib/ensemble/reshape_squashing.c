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

/* As torch does it. */
static void squash_single(const struct reshape *r, double *value, size_t n_context, size_t n_rows, uint64_t seed,
                          double *scratch)
{
    (void)seed;
    double *sorted = scratch;
    size_t m = numbers_sorted(value, n_context, sorted, scratch + n_context);
    if (m == 0) return;
    float least = (float)sorted[0], most = (float)sorted[m - 1], middle = numbers_quantile_single(sorted, m, 0.5);
    float low = numbers_quantile_single(sorted, m, 0.25), high = numbers_quantile_single(sorted, m, 0.75);
    float scale = low == high ? (most - least + FLT_MIN) / 2 : high - low, bound = (float)r->parameter;
    for (size_t i = 0; i < n_rows; i++) {
        if (isnan(value[i])) continue;
        float z = least == most ? 0 : ((float)value[i] - middle) / scale, share = z / bound;
        value[i] = z / sqrtf(share * share + 1);
    }
}

/* Inexact: torch's square root is that of a vector library, a bit off now and then. */
#define SQUASHING(variable, its_name, bound)                     \
    const struct reshape variable = {.name = its_name,           \
                                     .run = squash,              \
                                     .run_single = squash_single, \
                                     .parameter = bound,         \
                                     .is_inexact_single = true}
SQUASHING(reshape_squashing, "squashing_scaler_default", 3.0);
SQUASHING(reshape_squashing_max10, "squashing_scaler_max10", 10.0);
