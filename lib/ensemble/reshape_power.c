/* power, safepower: Yeo-Johnson with lambda by likelihood, then standardised; gaps are filled with the mean. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>

#include "ensemble/power.h"
#include "ensemble/reshape.h"

static void straighten(const struct reshape *r, double *value, size_t n_context, size_t n_rows, uint64_t seed,
                       double *scratch)
{
    (void)r, (void)seed;
    struct power p;
    size_t i = 0;
    while (i < n_context && isnan(value[i])) i++;
    if (i == n_context) return;
    power_fit(&p, value, n_context, scratch);
    for (i = 0; i < n_rows; i++) value[i] = power_apply(&p, value[i]);
}

const struct reshape reshape_power = {.name = "power", .run = straighten, .is_inexact = true};
const struct reshape reshape_safepower = {.name = "safepower", .run = straighten, .is_inexact = true};
