/* How good predictions are, as scikit-learn's metrics count it: validation during training and tabft-eval's scores.
 * probability [n][n_classes] row-major, rows sum to 1; label [n] codes in [0, n_classes). Sums run in row order, so
 * results depend on nothing but the numbers. Thread safe. */
#ifndef TABFT_ENSEMBLE_SCORE_H
#define TABFT_ENSEMBLE_SCORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

/* The predicted class of a row: the first of the largest. */
size_t score_predicted(const double *probability, size_t n_classes);

/* Share of rows whose predicted class is the label; n >= 1. */
double score_accuracy(const double *probability, const int32_t *label, size_t n, size_t n_classes);

/* The mean over the labels that occur of the share of their rows that are predicted right; n >= 1.
 * Errors: TABFT_SYSTEM for memory. */
int score_balanced_accuracy(const double *probability, const int32_t *label, size_t n, size_t n_classes, double *out,
                            struct tabft_failure *f) TABFT_MUST_CHECK;

/* Mean of -log(probability of the label), the probability held within [2^-52, 1 - 2^-52]; n >= 1. */
double score_log_loss(const double *probability, const int32_t *label, size_t n, size_t n_classes);

/* Area under the ROC curve, ties counting half: of class 1 for two classes, else the mean of every class against the
 * rest. Errors: TABFT_NOT_HELD when a class has no row or all rows, so that the area is undefined (the message names
 * its code); TABFT_SYSTEM for memory. */
int score_roc_auc(const double *probability, const int32_t *label, size_t n, size_t n_classes, double *out,
                  struct tabft_failure *f) TABFT_MUST_CHECK;

/* How good numbers are: predicted [n] against truth [n], n >= 1. */
struct score_errors {
    double mse, mae;
    double r2; /* 1 - mse / the truth's variance; NaN where the truth does not vary */
};
struct score_errors score_errors(const double *predicted, const double *truth, size_t n);

#endif
