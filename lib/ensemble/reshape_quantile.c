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

/* numpy.interp at x with breakpoints sign * at[], heights sign * i / (n - 1), both ascending: for sign -1 they run
 * backwards. */
struct grid {
    const double *at;
    size_t n;
    double sign;
};

static double grid_at(const struct grid *g, size_t i)
{
    return g->sign < 0 ? -g->at[g->n - 1 - i] : g->at[i];
}

/* linspace(0, 1, n)[i]: the last point is exactly 1. */
static double level(size_t i, size_t n)
{
    if (n == 1) return 0.0;
    return i == n - 1 ? 1.0 : (double)i * (1.0 / (double)(n - 1));
}

static double grid_level(const struct grid *g, size_t i)
{
    return g->sign < 0 ? -level(g->n - 1 - i, g->n) : level(i, g->n);
}

static double interpolate(const struct grid *g, double x)
{
    if (x > grid_at(g, g->n - 1)) return grid_level(g, g->n - 1);
    if (x < grid_at(g, 0)) return grid_level(g, 0);
    size_t low = 0, high = g->n; /* the last breakpoint that is not above x */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (grid_at(g, middle) <= x)
            low = middle;
        else
            high = middle;
    }
    if (low == g->n - 1 || grid_at(g, low) == x) return grid_level(g, low);
    double slope = (grid_level(g, low + 1) - grid_level(g, low)) / (grid_at(g, low + 1) - grid_at(g, low));
    return slope * (x - grid_at(g, low)) + grid_level(g, low);
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
    const struct grid up = {at, n, 1}, down = {at, n, -1};
    for (size_t i = 0; i < n_rows; i++) {
        double x = value[i];
        if (isnan(x)) continue;
        value[i] = 0.5 * (interpolate(&up, x) - interpolate(&down, -x));
        if (x == at[n - 1]) value[i] = 1.0;
        if (x == at[0]) value[i] = 0.0;
    }
}

/* The parameter: context rows per quantile. */
const struct reshape reshape_quantile_coarse = {"quantile_uni_coarse", to_quantiles, 10};
const struct reshape reshape_quantile = {"quantile_uni", to_quantiles, 5};
const struct reshape reshape_quantile_fine = {"quantile_uni_fine", to_quantiles, 1};
