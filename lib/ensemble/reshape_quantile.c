/* quantile_uni*: a value becomes its quantile among the context's, by interpolation between a grid of quantiles. Values
 * beyond the grid become 0 or 1, or where it is extrapolated go on in a straight line to -1 and 2 at most. */
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

/* How many quantiles are taken of n values. */
static size_t count_of(const struct reshape *r, size_t n)
{
    size_t count = (size_t)((double)n / r->parameter);
    if (count < 2) count = 2;
    if (count > n) count = n;
    return count < QUANTILES_MAX ? count : QUANTILES_MAX;
}

static void to_quantiles(const struct reshape *r, double *value, size_t n_context, size_t n_rows, uint64_t seed,
                         double *scratch)
{
    double *sorted = scratch, *spare = scratch + n_context, *at = scratch + 2 * n_context;
    size_t m = fitted_values(value, n_context, seed, sorted, spare, (size_t *)(void *)at);
    if (m == 0) return;
    /* The ends of all values, of which the grid may see a share. */
    double least = INFINITY, most = -INFINITY, width;
    for (size_t i = 0; r->extrapolates && i < n_context; i++) {
        least = fmin(least, value[i]);
        most = fmax(most, value[i]);
    }
    width = most - least;
    size_t n = count_of(r, n_context);
    /* The way through per cent and back is TabPFN's (trap T36): it moves some positions by one bit. */
    for (size_t i = 0; i < n; i++) at[i] = numbers_quantile(sorted, m, level(i, n) * 100 / 100);
    for (size_t i = 0; i < n_rows; i++) {
        if (isnan(value[i])) continue;
        if (width > 0 && value[i] < least) value[i] = fmax((value[i] - least) / width, -1);
        else if (width > 0 && value[i] > most) value[i] = fmin(fmax((value[i] - least) / width, 1), 2);
        else value[i] = level_of(at, n, value[i]);
    }
}

/* ---- As torch does it, on float32 ---- */

static float level_single(size_t i, size_t n)
{
    float step = 1.0f / (float)(n - 1);
    return i < n / 2 ? step * (float)i : fmaf(-step, (float)(n - i - 1), 1.0f);
}

/* One of the two interpolations: `sign` -1 is that on the mirrored axis, whose grid is read from its end. */
static float interpolate(const float *at, size_t n, float x, float sign)
{
#define AT(i) (sign > 0 ? at[i] : -at[n - 1 - (i)])
#define LEVEL(i) (sign > 0 ? level_single(i, n) : -level_single(n - 1 - (i), n))
    x *= sign;
    if (AT(0) == AT(n - 1)) return 0.5f * (LEVEL(0) + LEVEL(n - 1));
    if (x >= AT(n - 1)) return LEVEL(n - 1);
    if (x <= AT(0)) return LEVEL(0);
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (AT(middle) < x) low = middle + 1;
        else high = middle;
    }
    if (low > n - 1) low = n - 1;
    if (low < 1) low = 1;
    float width = AT(low) - AT(low - 1), rise = LEVEL(low) - LEVEL(low - 1);
    float slope = rise / (width == 0 ? 1.0f : width), along = x - AT(low - 1);
    return LEVEL(low - 1) + slope * along;
#undef AT
#undef LEVEL
}

static float beyond(float x, float least, float width, float low, float high)
{
    return fminf(fmaxf((x - least) / width, low), high);
}

static void to_quantiles_single(const struct reshape *r, double *value, size_t n_context, size_t n_rows, uint64_t seed,
                                double *scratch)
{
    (void)seed;
    float *at = (float *)(void *)(scratch + 2 * n_context);
    size_t m = numbers_sorted(value, n_context, scratch, scratch + n_context), n = count_of(r, n_context);
    if (m == 0) return;
    for (size_t i = 0; i < n; i++) {
        at[i] = numbers_quantile_single(scratch, m, level_single(i, n));
        if (i > 0 && at[i] < at[i - 1]) at[i] = at[i - 1];
    }
    float width = at[n - 1] - at[0];
    for (size_t i = 0; i < n_rows; i++) {
        float x = (float)value[i];
        if (isnan(x)) continue;
        if (r->extrapolates && width > 0 && x < at[0]) value[i] = beyond(x, at[0], width, -1, 0);
        else if (r->extrapolates && width > 0 && x > at[n - 1]) value[i] = beyond(x, at[0], width, 1, 2);
        else value[i] = fminf(fmaxf(0.5f * (interpolate(at, n, x, 1) - interpolate(at, n, x, -1)), 0), 1);
    }
}

/* The parameter: context rows per quantile. */
#define QUANTILES(variable, its_name, rows, goes_on)                                                            \
    const struct reshape variable = {                                                                           \
        .name = its_name, .run = to_quantiles, .run_single = to_quantiles_single, .parameter = rows, .extrapolates = goes_on}
QUANTILES(reshape_quantile_coarse, "quantile_uni_coarse", 10, false);
QUANTILES(reshape_quantile, "quantile_uni", 5, false);
QUANTILES(reshape_quantile_fine, "quantile_uni_fine", 1, false);
QUANTILES(reshape_quantile_extrapolate, "quantile_uni_extrapolate", 5, true);
