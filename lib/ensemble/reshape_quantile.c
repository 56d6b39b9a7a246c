/* quantile_uni*: a value becomes its quantile among the context's, by interpolation between a grid of quantiles. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>

#include "base/random.h"
#include "ensemble/reshape.h"

enum { FIT_ROWS_MAX = 100000, QUANTILES_MAX = 20000 };

/* The values to fit on: all, or the first 100,000 of the shuffled rows. `order` is room for n indices. */
static size_t fitted_values(const double *value, size_t n, uint64_t seed, double *sorted, double *scratch,
                            size_t *order)
{
    if (n <= FIT_ROWS_MAX) return numbers_sorted(value, n, sorted, scratch);
    struct random_mt g;
    random_mt_seed(&g, (uint32_t)seed);
    random_mt_permutation(&g, n, order);
    size_t m = 0;
    for (size_t i = 0; i < FIT_ROWS_MAX; i++)
        if (!isnan(value[order[i]])) sorted[m++] = value[order[i]];
    numbers_sort(sorted, m, scratch);
    return m;
}

/* linspace(0, 1, n)[i]: the last point is exactly 1. */
static double level(size_t i, size_t n)
{
    if (n == 1) return 0.0;
    return i == n - 1 ? 1.0 : (double)i * (1.0 / (double)(n - 1));
}

/* The number of at[n], ascending, that are below x, or with `or_equal` not above it. */
static size_t count_below(const double *at, size_t n, double x, bool or_equal)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (at[middle] < x || (or_equal && at[middle] == x))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The level of x among the quantiles at[n]: the mean of two interpolations, upwards and on the mirrored axis downwards,
 * which differ where quantiles coincide. Each is numpy.interp, operation by operation. */
static double level_of(const double *at, size_t n, double x)
{
    if (x <= at[0]) return 0.0; /* the ends are set apart, the lower one last */
    if (x >= at[n - 1]) return 1.0;
    size_t low = count_below(at, n, x, true) - 1;
    if (at[low] == x) return 0.5 * (level(low, n) + level(count_below(at, low, x, false), n));
    double rise = level(low + 1, n) - level(low, n), run = at[low + 1] - at[low];
    double up = rise / run * (x - at[low]) + level(low, n);
    double down = rise / run * (at[low + 1] - x) - level(low + 1, n);
    return 0.5 * (up - down);
}

static void to_quantiles(const struct reshape *r, double *value, size_t n_context, size_t n_rows, uint64_t seed,
                         double *scratch)
{
    double *sorted = scratch, *spare = scratch + n_context, *at = scratch + 2 * n_context;
    size_t m = fitted_values(value, n_context, seed, sorted, spare, (size_t *)(void *)at);
    if (m == 0) return;
    size_t n = (size_t)((double)n_context / r->parameter);
    if (n < 2) n = 2;
    if (n > n_context) n = n_context;
    if (n > QUANTILES_MAX) n = QUANTILES_MAX;
    /* The way through per cent and back is TabPFN's (trap T36): it moves some positions by one bit. */
    for (size_t i = 0; i < n; i++) at[i] = numbers_quantile(sorted, m, level(i, n) * 100 / 100);
    for (size_t i = 0; i < n_rows; i++)
        if (!isnan(value[i])) value[i] = level_of(at, n, value[i]);
}

/* The parameter: context rows per quantile. */
const struct reshape reshape_quantile_coarse = {.name = "quantile_uni_coarse", .run = to_quantiles, .parameter = 10};
const struct reshape reshape_quantile = {.name = "quantile_uni", .run = to_quantiles, .parameter = 5};
const struct reshape reshape_quantile_fine = {.name = "quantile_uni_fine", .run = to_quantiles, .parameter = 1};
