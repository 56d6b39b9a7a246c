/* What each estimator does to a chunk before the network sees it, and what is done to logits after. A preprocessing
 * step is one file in this room (step_*.c), named by the checkpoint's inference_config; a name or value that is not
 * implemented is refused, never ignored. Everything is float64 and deterministic from the seed; no rank, no thread
 * count shows in it. What TabPFN 9.2.0 does is the measure throughout. */
#ifndef TABFT_ENSEMBLE_ENSEMBLE_H
#define TABFT_ENSEMBLE_ENSEMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct table;
struct table_column;
struct threads;

/* ---- Columns in ---- */

/* Rows of a table as a dense matrix: row-major [n_rows][n_columns], NaN where missing. */
struct ensemble_columns {
    size_t n_rows, n_columns;
    const double *x;
    /* [n_columns] or NULL where all are numbers. A text cell is the rank of its text among the training table's, by
     * code point; ENSEMBLE_UNSEEN for a text that is not among them. */
    const bool *is_text;
    /* [n_columns] or NULL: ensemble_missing_rank of each text column. TabPFN ranks the gaps of a text column with more
     * than 30 texts as one more text, which moves those behind it; without these ranks nothing moves. */
    const double *missing_rank;
    const char *const *name; /* [n_columns] or NULL: what failures call the columns */
};
#define ENSEMBLE_UNSEEN (-1.0)

/* How many of the sorted texts stand before TabPFN's text for a gap. */
double ensemble_missing_rank(const char *const *sorted, size_t n);

/* The texts of a training table's column, and of the same column of another table (NULL: none), as ranks among the
 * training table's: train_rank [train->n_dictionary], other_rank [other->n_dictionary], *missing_rank. */
int ensemble_rank_texts(const struct table_column *train, const struct table_column *other, double *train_rank,
                        double *other_rank, double *missing_rank, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Why a column of a training table is left out: it cannot tell rows apart. Judged once, on the whole training table,
 * so that a run is the same with and without such columns. A column with gaps and one value is used: its gaps tell. */
enum ensemble_use { ENSEMBLE_USED = 0, ENSEMBLE_CONSTANT, ENSEMBLE_ALL_MISSING };
const char *ensemble_use_name(enum ensemble_use use); /* "used", "constant", "all missing" */

/* Judges every column of a training table: use[t->n_columns], and the indices of the used ones in order in
 * used[t->n_columns], *n_used of them. By the statistics of its file; where those do not tell, a column is read, one at
 * a time (`t` by table_open_parts or table_open, for the threads of `pool`). Errors: TABFT_INPUT when none is left. */
int ensemble_useful_columns(const struct table *t, struct threads *pool, enum ensemble_use *use, size_t *used,
                            size_t *n_used, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- The estimators of one fit ---- */

enum ensemble_phase {
    ENSEMBLE_FINETUNING, /* kinds and codes from context and query; random column subsets, no outlier clipping, no row
                            subsets (spec 1.5.3, 3.4) */
    ENSEMBLE_VALIDATION, /* kinds and codes from the context alone; the configured subsets and the soft clip (spec 3.11);
                            in float64 whatever the inference_config says, as TabPFN's fine-tuning predicts */
    ENSEMBLE_PREDICTION  /* the same, in float32 where ENABLE_GPU_PREPROCESSING is set, as TabPFN's torch does it */
};

enum ensemble_task { ENSEMBLE_CLASSIFICATION = 0, ENSEMBLE_REGRESSION }; /* regression.h has what regression adds */

struct ensemble_options {
    enum ensemble_task task; /* for ensemble_columns_max; the others know it from the function */
    size_t n_estimators;     /* >= 1 */
    uint32_t seed;           /* TabPFN's random_state with use_fixed_preprocessing_seed */
    enum ensemble_phase phase;
    size_t n_classes; /* >= 2, of ENSEMBLE_PREDICTION >= 1, at most the config's MAX_NUMBER_OF_CLASSES */
    /* The checkpoint's architecture_name (with or without the quotes of the metadata's JSON): picks the preset where
     * there is no inference_config. NULL or "tabpfn_v2": v2's preset, any other: v2.5's, as TabPFN does. */
    const char *architecture;
    const char *inference_config; /* the checkpoint's JSON text, or NULL where it has none */
    /* How predictions are put together; TabPFN's arguments of these names. */
    double softmax_temperature;  /* 0: the inference_config's */
    bool average_before_softmax; /* the mean over estimators is taken of logits (regression: of log probabilities) */
    bool balance_probabilities;  /* classes: each is divided by its share of the context's rows */
};

/* The estimators for one fit: column kinds and codes, drawn configs, pipeline seeds, column subsets. Immutable. */
struct ensemble;

/* Prepares the estimators for a context. `y_context` holds class codes in [0, n_classes). `query` belongs to
 * ENSEMBLE_FINETUNING (kinds and codes are taken from both parts) and is NULL in ENSEMBLE_PREDICTION. The matrices and
 * labels are borrowed until ensemble_close. Fits nothing yet: cheap next to ensemble_call.
 * Errors: TABFT_INPUT for infinities (but under PASSTHROUGH_INF), fewer than 2 rows, class codes or counts that cannot
 * be, and for anything in the inference_config that is unknown or not implemented. */
int ensemble_open(struct ensemble **out, const struct ensemble_options *options, const struct ensemble_columns *context,
                  const int32_t *y_context, const struct ensemble_columns *query,
                  struct tabft_failure *f) TABFT_MUST_CHECK;
void ensemble_close(struct ensemble *e); /* NULL is fine */

/* One estimator's call of the network: x and y_context are freed with ensemble_call_clear. */
struct ensemble_call {
    size_t n_context, n_query, n_columns;
    float *x;                    /* [n_context + n_query][n_columns], context first, NaN where missing */
    float *y_context;            /* [n_context] permuted class codes */
    size_t *context_row;         /* [n_context] which rows of the context, ascending; NULL: all of them in order */
    int fingerprint_column;      /* its index in x, or -1 */
    bool fingerprint_may_differ; /* from TabPFN's: it hashes the last bits of SVD columns or powers (trap T23) */
};

/* Fits the estimator's pipeline on the context and applies it to context and query. `query` NULL: the one given to
 * ensemble_open (none there either: n_query is 0). Blocks of many query rows are several calls; each fits anew and
 * gives the rows it would give in one call. `pool` spreads the columns and may be NULL; calls for different estimators
 * may run at the same time on different pools. *call need not be initialised; on failure nothing is left to free.
 * Errors: TABFT_INPUT where no column varies in the context, for infinities in `query`, for what float32 cannot hold.
 */
int ensemble_call(const struct ensemble *e, size_t estimator, const struct ensemble_columns *query,
                  struct threads *pool, struct ensemble_call *call, struct tabft_failure *f) TABFT_MUST_CHECK;
void ensemble_call_clear(struct ensemble_call *call);

/* [n_classes]: class c goes to the network as ensemble_class_permutation(e, i)[c]. For the skip rule (spec 1.10). */
const int32_t *ensemble_class_permutation(const struct ensemble *e, size_t estimator);
size_t ensemble_count(const struct ensemble *e);
size_t ensemble_classes(const struct ensemble *e);
double ensemble_temperature(const struct ensemble *e); /* softmax temperature of predictions */

/* ---- Before there is data ---- */

/* How many estimators a prediction takes where nobody says: the inference_config's N_ESTIMATORS, or 8, and up to 32
 * where a column would be left to none. Only architecture, inference_config and task of the options count. */
int ensemble_default_count(const struct ensemble_options *options, size_t n_columns, size_t *n_estimators,
                           struct tabft_failure *f) TABFT_MUST_CHECK;

/* Bytes that ensemble_open keeps of a context: subsets of rows, standardised targets. */
int ensemble_bytes(const struct ensemble_options *options, size_t n_context, size_t *bytes,
                   struct tabft_failure *f) TABFT_MUST_CHECK;

/* Upper bounds for --plan from the options and sizes alone (n_classes may be 0 where it is not known): columns[i] is
 * the most network columns estimator i can have, and *bytes (may be NULL) the most memory one ensemble_call of any of
 * them holds at its peak on a pool of n_threads, its result included. */
int ensemble_columns_max(const struct ensemble_options *options, size_t n_columns, size_t n_context, size_t n_query,
                         int n_threads, size_t *columns, size_t *bytes, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- Logits out ---- */

/* logits [n_estimators][n_query][n_outputs], n_outputs >= n_classes -> probability [n_query][n_classes]: un-permute,
 * temperature, softmax, mean over estimators (or mean, then softmax), balance where asked for, divide by the row sum
 * (spec 4.1). Errors: TABFT_INPUT for a logit that is not finite, and where a class to balance has no context row. */
int ensemble_probabilities(const struct ensemble *e, const float *logits, size_t n_query, size_t n_outputs,
                           double *probability, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
