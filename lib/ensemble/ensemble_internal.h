/* What the files of this room share: the frame that steps work on, the parsed inference_config, the lists of steps. */
#ifndef TABFT_ENSEMBLE_INTERNAL_H
#define TABFT_ENSEMBLE_INTERNAL_H

#ifndef TABFT_ENSEMBLE_ROOM
#error "ensemble_internal.h belongs to lib/ensemble; others include ensemble/ensemble.h"
#endif

#include "base/failure.h"
#include "base/threads.h"
#include "ensemble/ensemble.h"

/* ---- The frame: columns of float64, context rows first, then query rows ---- */
struct frame_column {
    double *value;    /* [n_rows], owned by the frame; NaN where missing, always the positive quiet one */
    bool is_category; /* codes rather than a quantity, for the steps that tell them apart */
    bool waits;       /* is reshaped by step_single */
    size_t source;    /* the table's column that it is, reshaped or not; SIZE_MAX: computed from several */
    /* [n_rows] or NULL: 1 and -1 where the value was infinite; a gap stands there until step_infinities_back. */
    int8_t *infinity;
};
struct frame {
    size_t n_context, n_rows;
    size_t n_columns, room;
    struct frame_column *column;
    const struct ensemble_columns *table; /* whose columns `source` counts; for failures */
    size_t n_marks;
    int8_t **mark; /* [n_marks]: what the columns' `infinity` point to */
};
int frame_open(struct frame *x, size_t n_context, size_t n_rows, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Appends a zeroed column; its place is x->n_columns - 1 afterwards. */
int frame_append(struct frame *x, bool is_category, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Column i becomes the old column order[i]; columns that order does not name are dropped. n <= x->n_columns, no index
 * twice. */
int frame_select(struct frame *x, const size_t *order, size_t n, struct tabft_failure *f) TABFT_MUST_CHECK;
/* What a failure calls a column of a table. */
struct column_label {
    char text[96];
};
struct column_label column_label(const struct ensemble_columns *table, size_t column);
/* Records that a value is too large for float32. */
int frame_refuse_large(const struct frame *x, size_t row, size_t column, struct tabft_failure *f);
void frame_close(struct frame *x);

/* ---- Numbers as numpy computes them (numbers.c) ---- */
/* Sorts n values without NaN ascending; -0.0 before 0.0. scratch[n]. */
void numbers_sort(double *value, size_t n, double *scratch);
/* Copies the values that are there, sorted, to out[n]; returns their number. scratch[n]. */
size_t numbers_sorted(const double *value, size_t n, double *out, double *scratch);
/* percentile(100 q) of m >= 1 sorted values, method linear. */
double numbers_quantile(const double *sorted, size_t m, double q);
/* torch.nanquantile of m >= 1 sorted values of float32, computed there. */
float numbers_quantile_single(const double *sorted, size_t m, double q);
/* numpy's pairwise sum of contiguous values. */
double numbers_sum(const double *value, size_t n);
/* Softmax in place; minus infinity gives 0. False where there is nothing else or a value is not a number. */
bool numbers_softmax(double *value, size_t n);

/* ---- The inference_config (config.c) ---- */
/* One way to reshape a column, one entry of reshape_list. Runs on columns side by side, so it must not fail: `scratch`
 * holds 3 * n_context doubles. Fits on value[0..n_context) and transforms value[0..n_rows) in place. */
struct reshape;
typedef void reshape_run(const struct reshape *r, double *value, size_t n_context, size_t n_rows, uint64_t seed,
                         double *scratch);
struct reshape {
    const char *name;
    reshape_run *run;        /* NULL: leaves values as they are */
    reshape_run *run_single; /* as torch does it, on values of float32; NULL where torch has none */
    double parameter;        /* what the entries of one file differ in */
    bool extrapolates;       /* of quantiles */
    bool is_inexact;         /* equal to TabPFN's to about 1e-8, not to the last bit */
    bool is_inexact_single;  /* the same of run_single, to about 1e-7 */
};
extern const struct reshape *const reshape_list[]; /* ends in NULL */
extern const struct reshape reshape_none;

enum category_encoding { CATEGORIES_KEPT, CATEGORIES_NUMERIC, CATEGORIES_ORDINAL, CATEGORIES_ONEHOT };
enum append_original { APPEND_NO, APPEND_YES, APPEND_AUTO };
enum shift { SHIFT_NONE, SHIFT_ROTATE, SHIFT_SHUFFLE };
enum column_subsets { SUBSETS_RANDOM, SUBSETS_BALANCED, SUBSETS_CONSTANT_AND_BALANCED, SUBSETS_GINI, SUBSETS_AUTO };
enum row_subsets { ROWS_AUTO, ROWS_BALANCED, ROWS_STRATIFIED, ROWS_MAJORITY };

/* One record of PREPROCESS_TRANSFORMS. */
struct preprocessor {
    const struct reshape *reshape;
    enum category_encoding categories;
    bool shuffled;         /* ordinal codes in random order */
    size_t least_count;    /* ordinal only for columns whose rarest value occurs so often (0: all) */
    bool fewer_than_tenth; /* and with fewer distinct values than a tenth of the rows */
    size_t max_onehot;     /* one-hot only for columns with at most so many distinct values */
    enum append_original append;
    size_t max_columns;
    size_t svd_divisor; /* 0: no SVD columns; otherwise columns / svd_divisor of them */
};

enum target_transform { TARGET_AS_IS, TARGET_POWER };
enum { PREPROCESSORS_MAX = 32, TARGETS_MAX = 8 };
struct config {
    bool is_regression;
    size_t n_targets; /* of regression: each preprocessor meets each of them. 1, as it is, for classification */
    enum target_transform target[TARGETS_MAX];
    size_t n_preprocessors;
    struct preprocessor preprocessor[PREPROCESSORS_MAX];
    size_t min_unique_number, min_rows_to_infer, max_unique_text_category;
    size_t n_estimators; /* 0: as many as the columns need */
    double temperature;
    double outlier_std, outlier_auto; /* 0: no soft clip */
    enum shift column_shift, class_shift;
    size_t polynomials; /* at most so many products of columns, 0: none */
    bool fingerprint;
    enum column_subsets column_subsets;
    size_t constant_columns;
    double important_columns; /* that every estimator gets: 0 auto, below 0 a share of them */
    double row_subset; /* 0: all rows; below 1 a share; otherwise a count */
    enum row_subsets row_subsets;
    size_t max_classes;
    bool passes_infinities;
    bool is_single; /* ENABLE_GPU_PREPROCESSING: torch does the second half of a pipeline, in float32 */
};
/* Whether an architecture (as of struct ensemble_options) has v2's preset. */
bool config_is_v2(const char *architecture);
/* Reads the checkpoint's JSON, or the preset where it is NULL. */
int config_read(struct config *c, const char *architecture, const char *json, bool is_regression,
                struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- Column kinds and codes (kinds.c) ---- */
enum kind { KIND_NUMBER, KIND_CATEGORY, KIND_TEXT, KIND_CONSTANT };
struct column_kind {
    enum kind kind;
    double constant; /* the one value of KIND_CONSTANT */
    bool coded;      /* values become ranks in value[] */
    bool has_gap;    /* of a category: where it has none, a gap is a value that was not seen */
    size_t n_values; /* distinct values without missing, ascending */
    double *value;
    size_t gap_rank; /* where gaps take a rank of their own, so that those from here on move up by one; else SIZE_MAX */
};
/* kind[n_columns] from one or two parts with the same columns (second NULL: one). Freed with kinds_free. */
int kinds_detect(struct column_kind *kind, const struct config *c, const struct ensemble_columns *first,
                 const struct ensemble_columns *second, struct tabft_failure *f) TABFT_MUST_CHECK;
void kinds_free(struct column_kind *kind, size_t n_columns);
/* A cell as the pipeline sees it: the number, its code, ENSEMBLE_UNSEEN, or NaN. */
double kinds_cell(const struct column_kind *k, double cell);

/* ---- What is drawn (draws.c, subsets.c) ---- */
struct estimator {
    const struct preprocessor *preprocessor;
    enum target_transform target;
    size_t column_shift;        /* only "rotate" uses it */
    uint64_t seed;              /* of every step of this pipeline */
    int32_t *class_permutation; /* [n_classes] */
    size_t n_columns, *column;  /* which columns go in; NULL: all */
    size_t n_rows, *row;        /* which context rows; NULL: all */
};
struct sub_seeds {
    uint64_t pipelines, columns, rows;
};
/* Fills preprocessor, column_shift, seed and class_permutation of estimator[n]; permutations is their storage [n *
 * n_classes]. */
int draws_make(struct estimator *estimator, size_t n, const struct config *c, uint32_t seed, size_t n_classes,
               int32_t *permutations, struct sub_seeds *seeds, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Which of the pairs of preprocessor and target transform estimator i of n has: blocks, what is left over from the
 * front. */
size_t draws_pair(size_t i, size_t n, size_t n_pairs);

/* What the steps add to k columns, n_numbers of which are no categories. */
size_t subsets_added(const struct config *c, const struct preprocessor *p, size_t n_rows, size_t k, size_t n_numbers);
/* The most columns an estimator may take in (spec 3.3); n_numbers[k] = numbers among the first k columns. */
size_t subsets_budget(const struct config *c, const struct preprocessor *p, size_t n_rows, size_t n_columns,
                      const size_t *n_numbers);
int subsets_columns(struct estimator *estimator, size_t n, const struct config *c, enum ensemble_phase phase,
                    size_t n_rows, size_t n_columns, const size_t *n_numbers, uint64_t seed,
                    struct tabft_failure *f) TABFT_MUST_CHECK;
/* How many of n_rows context rows an estimator has. */
size_t subsets_row_count(const struct config *c, size_t n_rows);
int subsets_rows(struct estimator *estimator, size_t n, const struct config *c, size_t n_rows, const int32_t *y,
                 size_t n_classes, uint64_t seed, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- Targets of regression (targets.c) ---- */
struct targets;
int targets_open(struct targets **out, const double *y, size_t n, enum ensemble_phase phase,
                 const struct estimator *estimator, size_t n_estimators, struct tabft_failure *f) TABFT_MUST_CHECK;
void targets_close(struct targets *t);
double targets_value(const struct targets *t, const struct estimator *estimator, size_t which, size_t row);

/* ---- One fit ---- */
struct ensemble {
    struct config config;
    enum ensemble_phase phase;
    size_t n_classes; /* 0: regression */
    bool average_before_softmax, balance_probabilities;
    const struct ensemble_columns *context, *query;
    struct ensemble_columns parts[2]; /* what they point to: the matrices stay the caller's */
    const int32_t *y;                 /* classification */
    struct targets *targets;          /* regression */
    struct column_kind *kind;
    size_t n_estimators;
    struct estimator *estimator;
    int32_t *permutations;
};

/* ---- The steps, in the order of a pipeline; each fits on the context rows and applies to all ---- */
int step_infinities(struct frame *x, struct tabft_failure *f) TABFT_MUST_CHECK;
void step_infinities_back(struct frame *x);
int step_polynomials(struct frame *x, size_t limit, uint64_t seed, struct tabft_failure *f) TABFT_MUST_CHECK;
int step_constant(struct frame *x, struct tabft_failure *f) TABFT_MUST_CHECK;
/* `single`: what torch has is left to step_single, which comes behind the categories and makes float32 of everything;
 * the later steps then compute in it, too, where they are told so. */
int step_reshape(struct frame *x, const struct preprocessor *p, bool single, uint64_t seed, struct threads *pool,
                 struct tabft_failure *f) TABFT_MUST_CHECK;
int step_single(struct frame *x, const struct preprocessor *p, struct threads *pool,
                struct tabft_failure *f) TABFT_MUST_CHECK;
int step_category(struct frame *x, const struct preprocessor *p, uint64_t seed,
                  struct tabft_failure *f) TABFT_MUST_CHECK;
int step_onehot(struct frame *x, const struct preprocessor *p, struct tabft_failure *f) TABFT_MUST_CHECK;
int step_svd(struct frame *x, const struct preprocessor *p, bool single, uint64_t seed, struct threads *pool,
             struct tabft_failure *f) TABFT_MUST_CHECK;
int step_fingerprint(struct frame *x, bool single, struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Also moves *fingerprint, the index of that column (-1: none). */
int step_shuffle(struct frame *x, enum shift shift, size_t amount, uint64_t seed, int *fingerprint,
                 struct tabft_failure *f) TABFT_MUST_CHECK;
/* On the network's float32 matrix [n_rows][n_columns]: column j of it is clipped where clips[j]. */
void step_clip(float *x, size_t n_context, size_t n_rows, size_t n_columns, const bool *clips, double n_std,
               struct threads *pool);

size_t polynomials_count(size_t limit, size_t n_columns);
bool reshape_appends(const struct preprocessor *p, size_t n_columns);
enum { SVD_ROWS_PER_BLOCK = 1024, ONEHOT_CELLS_MAX = 1000000 };
size_t svd_count(size_t divisor, size_t n_rows, size_t n_columns);

#endif
