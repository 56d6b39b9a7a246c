/* Targets of regression: standardised, seen through the estimator's transform, and the way back for bucket borders. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"
#include "ensemble/power.h"
#include "ensemble/regression.h"

struct targets {
    struct ensemble_targets scale;
    double first, shift; /* their sum is the mean */
    double *z;           /* [n_context] */
    size_t n_estimators;
    struct power *power; /* [n_estimators], of those with a transform */
};

static int check(const double *y, size_t n, struct tabft_failure *f)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(y[i]))
            return tabft_fail(f, TABFT_INPUT, "context row %zu (from 0): the target is not a number; leave the row out", i);
    return 0;
}

static double standardised(const struct targets *t, double y) { return (y - t->first - t->shift) / t->scale.std; }

static void standardise(struct targets *t, const double *y, size_t n, enum ensemble_phase phase)
{
    t->scale.all_equal = true;
    for (size_t i = 1; i < n; i++) t->scale.all_equal = t->scale.all_equal && y[i] == y[0];
    /* Distances from the first target, so that adding a number to all of them changes nothing but the mean. */
    t->first = y[0];
    for (size_t i = 0; i < n; i++) t->z[i] = y[i] - t->first;
    t->shift = numbers_sum(t->z, n) / (double)n;
    t->scale.mean = t->first + t->shift;
    for (size_t i = 0; i < n; i++) t->z[i] = (y[i] - t->first - t->shift) * (y[i] - t->first - t->shift);
    double std = sqrt(numbers_sum(t->z, n) / (double)n);
    t->scale.std = phase != ENSEMBLE_FINETUNING ? std + 1e-20 : std < 1e-8 ? 1e-8 : std;
    for (size_t i = 0; i < n; i++) t->z[i] = standardised(t, y[i]);
}

int targets_open(struct targets **out, const double *y, size_t n, enum ensemble_phase phase,
                 const struct estimator *estimator, size_t n_estimators, struct tabft_failure *f)
{
    struct targets *t = NULL;
    double *scratch = NULL, *own = NULL;
    const struct power *whole = NULL; /* fitted to all rows: the same for every estimator that has them */
    int error;
    TRY(memory_new(&t, 1, sizeof *t, "targets", f));
    TRY(memory_new(&t->z, n, sizeof *t->z, "targets", f));
    TRY(memory_new(&t->power, n_estimators, sizeof *t->power, "targets", f));
    TRY(memory_new(&scratch, n, 2 * sizeof *scratch, "targets", f));
    TRY(memory_new(&own, n, sizeof *own, "targets", f));
    TRY(check(y, n, f));
    standardise(t, y, n, phase);
    t->n_estimators = n_estimators;
    for (size_t i = 0; i < n_estimators; i++) {
        if (estimator[i].target == TARGET_AS_IS) continue;
        if (estimator[i].row == NULL && whole != NULL) {
            t->power[i] = *whole;
            continue;
        }
        for (size_t k = 0; k < estimator[i].n_rows; k++)
            own[k] = t->z[estimator[i].row != NULL ? estimator[i].row[k] : k];
        power_fit(&t->power[i], own, estimator[i].n_rows, scratch);
        if (estimator[i].row == NULL) whole = &t->power[i];
    }
    *out = t;
    t = NULL;
fail:
    free(own);
    free(scratch);
    targets_close(t);
    return error;
}

void targets_close(struct targets *t)
{
    if (t == NULL) return;
    free(t->power);
    free(t->z);
    free(t);
}

double targets_value(const struct targets *t, const struct estimator *estimator, size_t which, size_t row)
{
    return estimator->target == TARGET_AS_IS ? t->z[row] : power_apply(&t->power[which], t->z[row]);
}

struct ensemble_targets ensemble_targets(const struct ensemble *e) { return e->targets->scale; }

void ensemble_transform_targets(const struct ensemble *e, size_t estimator, const double *y, size_t n, float *out)
{
    const struct targets *t = e->targets;
    bool as_is = e->estimator[estimator].target == TARGET_AS_IS;
    for (size_t i = 0; i < n; i++) {
        double z = standardised(t, y[i]);
        out[i] = (float)(as_is ? z : power_apply(&t->power[estimator], z));
    }
}

/* ---- Borders ---- */
static bool is_broken(double border) { return !(fabs(border) <= 1000); }

/* The runs of broken borders at the ends take the value of their sound neighbour, the outermost one beyond it. */
static void cancel_broken(double *border, size_t n, bool *is_masked)
{
    size_t first = 0, last = n - 1;
    while (first < n && is_broken(border[first])) first++;
    while (last > first && is_broken(border[last])) last--;
    for (size_t i = 0; i + 1 < n; i++) is_masked[i] = is_broken(border[i]) || is_broken(border[i + 1]);
    if (first == n) return; /* nothing is sound: no target at all, all masked */
    for (size_t i = 0; i < first; i++) border[i] = border[first];
    for (size_t i = last + 1; i < n; i++) border[i] = border[last];
    if (first > 0) border[0] = border[1] - 1;
    if (last + 1 < n) border[n - 1] = border[n - 2] + 1;
}

bool ensemble_borders(const struct ensemble *e, size_t estimator, const double *borders, size_t n_borders, double *out,
                      bool *is_masked)
{
    memcpy(out, borders, n_borders * sizeof *out);
    memset(is_masked, 0, (n_borders - 1) * sizeof *is_masked);
    if (e->estimator[estimator].target == TARGET_AS_IS) return false;
    const struct power *p = &e->targets->power[estimator];
    for (size_t i = 0; i < n_borders; i++) out[i] = power_inverse(p, borders[i]);
    cancel_broken(out, n_borders, is_masked);
    if (out[n_borders - 1] - out[n_borders - 2] < 1e-6) out[n_borders - 1] += fabs(out[n_borders - 1] * 0.1);
    if (out[0] == out[1]) out[0] -= fabs(out[0] * 0.1);
    return true;
}
