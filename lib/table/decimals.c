#include "table/decimals.h"

#include <math.h>

static const double powers[TABLE_DECIMALS_MAX + 1] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};

double decimal_power(unsigned k) { return powers[k]; }

void decimals_add_value(struct decimals *d, double v)
{
    if (d->none) return;
    for (unsigned k = d->k; k <= TABLE_DECIMALS_MAX; k++) {
        double i = rint(v * powers[k]);
        if (!(fabs(i) <= INT32_MAX)) break; /* nor would it with more places */
        if (i / powers[k] != v) continue;
        uint64_t magnitude = (uint64_t)fabs(i);
        d->k = (uint8_t)k;
        if (magnitude > d->largest[k]) d->largest[k] = magnitude;
        return;
    }
    d->none = true;
}

void decimals_merge(struct decimals *to, const struct decimals *more)
{
    to->none = to->none || more->none;
    if (more->k > to->k) to->k = more->k;
    for (size_t k = 0; k <= TABLE_DECIMALS_MAX; k++)
        if (more->largest[k] > to->largest[k]) to->largest[k] = more->largest[k];
}

void decimals_add_range(struct decimals *d, int64_t min, int64_t max)
{
    uint64_t low = min < 0 ? 0 - (uint64_t)min : (uint64_t)min, high = max < 0 ? 0 - (uint64_t)max : (uint64_t)max;
    uint64_t most = low > high ? low : high;
    if (most > d->largest[0]) d->largest[0] = most;
}

void decimals_storage(const struct decimals *d, enum page_storage *storage, unsigned *k)
{
    uint64_t most = 0;
    if (d->none) return;
    for (unsigned i = 0; i <= d->k; i++) { /* none has more places than k */
        if (d->largest[i] > INT32_MAX) return;
        uint64_t n = d->largest[i] * (uint64_t)powers[d->k - i];
        if (n > most) most = n;
    }
    if (most > INT32_MAX) return;
    *storage = most <= INT8_MAX ? STORAGE_D8 : most <= INT16_MAX ? STORAGE_D16 : STORAGE_D32;
    *k = d->k;
}
