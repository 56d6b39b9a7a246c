/* The regression side of the ensemble: targets in, the distribution over target buckets out. A network with n_borders -
 * 1 outputs gives logits of buckets between borders in the space of standardised targets (z); each estimator may see
 * the targets through a power transform of its own, so its buckets mean other intervals of z (spec 4.2, 4.3). */
#ifndef TABFT_ENSEMBLE_REGRESSION_H
#define TABFT_ENSEMBLE_REGRESSION_H

#include "ensemble/ensemble.h"

/* As ensemble_open, with numbers for targets; options->n_classes is 0. Closed with ensemble_close. ensemble_call's
 * y_context then holds the estimator's targets. Errors: also TABFT_INPUT for a target that is not a number. */
int ensemble_open_regression(struct ensemble **out, const struct ensemble_options *options,
                             const struct ensemble_columns *context, const double *y_context,
                             const struct ensemble_columns *query, struct tabft_failure *f) TABFT_MUST_CHECK;

/* z = (y - mean) / std of the context's targets (population); all equal: every prediction is their mean. */
struct ensemble_targets {
    double mean, std;
    bool all_equal;
};
struct ensemble_targets ensemble_targets(const struct ensemble *e);

/* n targets as the estimator sees them: standardised and transformed, for the loss. */
void ensemble_transform_targets(const struct ensemble *e, size_t estimator, const double *y, size_t n, float *out);

/* What the estimator's buckets mean in z: out[n_borders] ascending, and is_masked[n_borders - 1], the buckets that no
 * target can fall into (their logits count as minus infinity). Returns whether any is masked or moved. n_borders >= 4,
 * ascending. */
bool ensemble_borders(const struct ensemble *e, size_t estimator, const double *borders, size_t n_borders, double *out,
                      bool *is_masked);

/* logits [n_estimators][n_query][n_borders - 1] -> probability [n_query][n_borders - 1] of z's buckets: temperature,
 * mask, softmax, translation from each estimator's borders to z's, mean (of logarithms where average_before_softmax).
 * Errors: TABFT_INPUT for a logit that is not a number. */
int ensemble_distribution(const struct ensemble *e, const float *logits, size_t n_query, const double *borders,
                          size_t n_borders, double *probability, struct tabft_failure *f) TABFT_MUST_CHECK;

/* The same for one estimator's logits [n_query][n_borders - 1], added to what is there: the caller zeroes first and
 * calls ensemble_end_distribution after the last (ensemble_mean and ensemble_quantile need that only where
 * average_before_softmax is asked for). */
int ensemble_add_distribution(const struct ensemble *e, size_t estimator, const float *logits, size_t n_query,
                              const double *borders, size_t n_borders, double *probability,
                              struct tabft_failure *f) TABFT_MUST_CHECK;

int ensemble_end_distribution(const struct ensemble *e, size_t n_query, size_t n_borders, double *probability,
                              struct tabft_failure *f) TABFT_MUST_CHECK;

/* Adds the means of that estimator's distributions to mean [n_query], in the units of the targets. The mean of all
 * estimators' distribution is the mean of their means, so this is all that predictions without quantiles need; but not
 * where average_before_softmax is asked for: TABFT_USE. */
int ensemble_add_means(const struct ensemble *e, size_t estimator, const float *logits, size_t n_query,
                       const double *borders, size_t n_borders, double *mean, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Mean, and the quantile q in [0, 1] (0 and 1 are infinite), of one such distribution, in the units of the targets. The
 * outer buckets are halves of normal distributions with half their mass within the bucket. */
double ensemble_mean(struct ensemble_targets t, const double *borders, size_t n_borders, const double *probability);
double ensemble_quantile(struct ensemble_targets t, const double *borders, size_t n_borders, const double *probability,
                         double q);

#endif
