/* What each estimator does to a chunk before the network sees it, and what is done to logits after. A preprocessing
 * step is one file in this room. Everything is float64 and deterministic from the seed; no rank, no thread shows in it. */
#ifndef TABFT_ENSEMBLE_ENSEMBLE_H
#define TABFT_ENSEMBLE_ENSEMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct threads;

/* Rows of a table as a dense matrix: row-major [n_rows][n_columns], NaN where missing. */
struct ensemble_columns {
    size_t n_rows, n_columns;
    const double *x;
    const bool *is_text; /* [n_columns] or NULL: codes of a dictionary rather than numbers */
};

enum ensemble_phase {
    ENSEMBLE_FINETUNING, /* random column subsets, no outlier clipping, no row subsets: spec 1.5.3 */
    ENSEMBLE_PREDICTION  /* the configured subsets and the 12-sigma soft clip: spec 3.11 */
};

struct ensemble_options {
    size_t n_estimators;
    uint32_t seed;
    enum ensemble_phase phase;
    size_t n_classes;
    const char *architecture;     /* picks the preset where the checkpoint has no inference_config */
    const char *inference_config; /* JSON text or NULL */
};

/* The estimators for one fit: cleaned columns, drawn configs, pipeline seeds. */
struct ensemble;

/* Cleans the chunk (kinds, codes) on context+query as TabPFN's fine-tuning does (query may be NULL: prediction fits on the
 * context alone), draws configs. Errors: TABFT_INPUT when all columns are constant, too few rows, infinities. */
int ensemble_open(struct ensemble **out, const struct ensemble_options *options, const struct ensemble_columns *context,
                  const int32_t *y_context, const struct ensemble_columns *query, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Estimator's call of the network. Freed with ensemble_call_clear. */
struct ensemble_call {
    size_t n_context, n_query, n_columns;
    float *x;                   /* [n_context + n_query][n_columns] */
    float *y_context;           /* [n_context] permuted class codes */
    int32_t *class_permutation; /* [n_classes] */
    int fingerprint_column;     /* its index in x, -1 without; follows_svd tells whether its bits may differ (spec T23) */
    bool follows_svd;
};
/* Fits estimator's pipeline on the context, applies it to context and query. Thread safe for different estimators. */
int ensemble_call(const struct ensemble *e, size_t estimator, struct ensemble_call *call, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The same fitted pipeline on other query rows in blocks (prediction): x gets only the query part [n_rows][n_columns]. */
void ensemble_call_clear(struct ensemble_call *call);

/* Number of network columns of each estimator for given sizes, before data is there (an upper bound): for --plan. */
int ensemble_columns_max(const struct ensemble_options *options, size_t n_columns, size_t n_context, size_t *columns,
                         struct tabft_failure *f) TABFT_MUST_CHECK;

/* For the skip rule (spec 1.10) and reports. */
const int32_t *ensemble_class_permutation(const struct ensemble *e, size_t estimator);
void ensemble_close(struct ensemble *e);

/* logits [n_estimators][n_query][n_outputs] -> probabilities [n_query][n_classes]: un-permute, temperature, softmax,
 * mean over estimators, divide by the row sum (spec 4.1). */
int ensemble_probabilities(const struct ensemble *e, const float *logits, size_t n_query, size_t n_outputs,
                           double *probability, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
