/* The verdict on two training runs: whether one run gives what another gives. It fails closed: what cannot be compared
 * is not held. */
#ifndef TABFT_EVAL_PARITY_H
#define TABFT_EVAL_PARITY_H

#include <jansson.h>
#include <stdbool.h>

#include "base/failure.h"

struct threads;

/* What may differ; each bound is held when the figure is not beyond it (a NaN never is). */
struct parity_tolerance {
    double prediction_agreement;           /* at least */
    double probability_max_abs_difference; /* at most, as the rest */
    double probability_mean_abs_difference;
    double weight_max_abs_difference;
    bool bit_identical; /* weights, probabilities and losses must be */
};
/* "exact", "published" (agreement 0.9975, 0.0120, 0.00037, 5.5e-5: what estimator sharding in PyTorch was published
 * with), or the name of a JSON file with the first four fields, all of them, and "bit_identical" if wanted. Errors:
 * TABFT_INPUT. */
int parity_tolerance_read(const char *name, struct parity_tolerance *out, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Compares the runs in two folders: what they were told, what they were given, their losses, their weights, and what
 * both models predict for the table `test` fitted on the table `train` (NULL: the one that BASE's record names).
 * *report is the JSON object, the published fields first, *held the verdict; reasons against it are in the report.
 * Errors (no verdict): TABFT_INPUT for files that cannot be read at all, TABFT_SYSTEM. */
int parity_compare(const char *base, const char *other, const char *test, const char *train,
                   const struct parity_tolerance *tolerance, struct threads *pool, json_t **report, bool *held,
                   struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
