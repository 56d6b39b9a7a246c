/* What the tests against recorded values share: tensors by name, comparison column by column, the fingerprints' share.
 */
#ifndef TABFT_TESTS_ENSEMBLE_REFERENCE_H
#define TABFT_TESTS_ENSEMBLE_REFERENCE_H

#include <check.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "unit.h"

static inline const struct ckpt_tensor *tensor_of(const struct ckpt *c, const char *format, ...) TABFT_PRINTF(2, 3);
static inline const struct ckpt_tensor *tensor_of(const struct ckpt *c, const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const struct ckpt_tensor *t = ckpt_find(c, name);
    ck_assert_msg(t != NULL, "no tensor %s", name);
    return t;
}

struct tally {
    double bound;       /* 0: 1e-5 */
    size_t rows, equal; /* fingerprints set apart */
    double worst;
};

/* Rows [0, n) of x against a recorded matrix, within the bound (of the value where it is above 1); column `apart` (-1:
 * none) is only counted. */
static inline void compare(const float *x, const struct ckpt_tensor *t, size_t n, size_t n_columns, int apart,
                           struct tally *tally, const char *what)
{
    const double bound = tally->bound > 0 ? tally->bound : 1e-5;
    ck_assert_msg(t->count == n * n_columns, "%s: %zu x %zu values, %zu recorded", what, n, n_columns,
                  (size_t)t->count);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_columns; j++) {
            double ours = (double)x[i * n_columns + j], theirs = ckpt_value(t, i * n_columns + j);
            bool same = ours == theirs || (isnan(ours) && isnan(theirs)); /* infinities have no difference */
            double difference = same ? 0 : fabs(ours - theirs) / fmax(1, fabs(theirs));
            if ((int)j == apart) {
                tally->rows++;
                tally->equal += difference <= bound;
                continue;
            }
            ck_assert_msg(difference <= bound, "%s: row %zu column %zu is %.9g instead of %.9g", what, i, j, ours,
                          theirs);
            if (difference > tally->worst) tally->worst = difference;
        }
}

static inline void report(const char *what, const struct tally *t, double least)
{
    double share = t->rows > 0 ? (double)t->equal / (double)t->rows : 1;
    printf("%s: largest difference %.3g; fingerprints after SVD equal on %zu of %zu rows (%.2f %%)\n", what, t->worst,
           t->equal, t->rows, 100 * share);
    (void)fflush(stdout);
    ck_assert_msg(share >= least, "%s: fingerprints after SVD equal on %.2f %% of the rows", what, 100 * share);
}

#endif
