/* Predictions of a model on a table, files of them, and their scores. The verdict on two runs is in parity.h. */
#ifndef TABFT_EVAL_EVAL_H
#define TABFT_EVAL_EVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "ensemble/ensemble.h"
#include "ensemble/score.h"

struct model;
struct table;
struct tensor_backend;
struct threads;

enum { EVAL_NO_LABEL = -1 };

/* What is predicted of a table's rows, and what the rows have: of classification probabilities and labels, of
 * regression numbers. Only one of the two is there. */
struct eval_prediction {
    bool is_regression;
    size_t n_rows;
    /* classification */
    size_t n_classes;
    size_t n_labels;     /* n_classes and behind them the labels of rows that are no class: the model never saw them */
    char **label;        /* [n_labels] texts, all different; class c is label[c] */
    double *probability; /* [n_rows][n_classes] */
    int32_t *truth;      /* [n_rows] index into label, or EVAL_NO_LABEL where the row has none */
    /* regression */
    double *target; /* [n_rows] NaN where the row has none */
    double *mean;   /* [n_rows] of the predicted distribution */
    size_t n_levels;
    double *level;    /* [n_levels] in (0, 1), all different */
    double *quantile; /* [n_rows][n_levels] */
};
void eval_prediction_clear(struct eval_prediction *p);

struct eval_options {
    size_t n_estimators; /* 0: what the checkpoint asks for, mostly 8, and more for very many columns */
    uint32_t seed;
    double softmax_temperature; /* 0: the checkpoint's */
    bool average_before_softmax, balance_probabilities; /* as of struct ensemble_options */
    uint64_t memory;          /* bytes that may be taken; 0: what is available */
    size_t block_rows;        /* rows that go through the network at a time; 0: as many as suit the memory */
    size_t first_row, n_rows; /* which rows of the test table; n_rows 0: all from first_row on */
    const char *output;       /* the file to be made: what must wait for the other estimators lies beside it while the
                                 prediction runs, without a name; NULL: in $TMPDIR or /tmp */
    size_t n_levels;          /* of regression: quantiles to predict beside the mean */
    const double *level;      /* [n_levels] in (0, 1), all different; outlives the predictor */
    const struct tensor_backend *backend; /* what the network runs on; NULL: the CPU, on the threads of the pool. For a
                                             plan alone one that plans is enough */
    uint64_t gpu_memory; /* of a backend with memory of its own: bytes of it that may be taken in all; 0: not known */
    uint64_t gpu_taken;  /* bytes of it that are taken already, or are expected to be */
    size_t held;         /* bytes that the process holds beside the model, the tables and the prediction */
    bool collects;       /* all results stay in memory (eval_predict sees to it); else a prediction writer takes them */
};

/* How a prediction will run. Sizes in bytes. A row's prediction has the same bits whatever stands here. */
struct eval_plan {
    size_t n_estimators;
    size_t n_context, n_rows, n_columns; /* of the training table; to be predicted; the most that a network sees */
    size_t block_rows;                   /* rows that go through the network at a time */
    size_t group_rows;                   /* rows whose logits wait on disk for those of all estimators */
    bool kept;                           /* an estimator's context is encoded once a group, else with each block */
    size_t weights;                      /* the model */
    size_t tables;                       /* what is loaded of both, the training rows as a matrix among it */
    size_t network, kept_bytes;          /* what the network takes; of it, what is kept of the context */
    size_t preprocessing, rows;          /* of one estimator; rows and results in between */
    size_t output;                       /* the writer's row group, or all results */
    size_t process;                      /* program, C library, threads, what the caller holds; not what CUDA takes */
    size_t total, available, disk;       /* total: the most of these at a time */
    size_t gpu_run;   /* of a GPU: weights and network, of which the host then has copies' alone; taken in one piece */
    size_t gpu_taken; /* of it: by CUDA itself, its libraries and others */
    size_t gpu, gpu_available; /* those, and what the backend works in */
};
/* Encodings of its context that an estimator needs, of n_context rows each. */
size_t eval_plan_encodings(const struct eval_plan *plan);

/* Predictions in blocks of rows. Fitted on all rows of `train`; one estimator's memory at a time. The target of `train`
 * says what; classes are those of its labels that a row has, in its order. Columns are matched by name; those that tell
 * nothing in `train` (constant, all missing) are left out. `test` needs no target. Both may come from table_open_parts,
 * opened for as many threads as `pool` has: opening reads no cells but targets (and columns that the statistics do not
 * judge), running reads the training rows, and the others in blocks. Rows to be predicted never influence each other.
 * All arguments outlive the predictor. pool NULL: one thread; the result does not depend on it. Errors: TABFT_INPUT for
 * tables and a model that do not go together. */
struct eval_predictor;
int eval_predictor_open(struct eval_predictor **out, const struct model *model, const struct table *train,
                        const struct table *test, const struct eval_options *options, struct threads *pool,
                        struct tabft_failure *f) TABFT_MUST_CHECK;
void eval_predictor_close(struct eval_predictor *p); /* NULL is fine */
const struct eval_plan *eval_predictor_plan(const struct eval_predictor *p);
/* What all rows share: n_rows is of those to be predicted, what is [n_rows] is NULL. */
const struct eval_prediction *eval_predictor_head(const struct eval_predictor *p);

/* What of the training table is used: [train->n_columns]. */
const enum ensemble_use *eval_predictor_use(const struct eval_predictor *p);

/* TABFT_SYSTEM where the plan's total is more than is available, with the bytes and the ways out. */
int eval_predictor_fits(const struct eval_predictor *p, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Takes rows [first, first + rows->n_rows) of the test table, in order. */
typedef int eval_rows_put(void *context, size_t first, const struct eval_prediction *rows, struct tabft_failure *f);
/* Predicts. Errors: as eval_predictor_fits, before anything is allocated; TABFT_INPUT for rows that cannot be. */
int eval_predictor_run(struct eval_predictor *p, eval_rows_put *put, void *context,
                       struct tabft_failure *f) TABFT_MUST_CHECK;

/* All of it, into memory. */
int eval_predict(const struct model *model, const struct table *train, const struct table *test,
                 const struct eval_options *options, struct threads *pool, struct eval_prediction *out,
                 struct tabft_failure *f) TABFT_MUST_CHECK;

/* A prediction as a packed table: `row` (of the test table, from 0), then `label` (missing where the row has none) and
 * one column of probabilities a class, named by its label; or `target`, `mean` and `quantile_LEVEL` for each level.
 * provenance: JSON text that names the values (see table_writer_open). An existing file is replaced only under `force`.
 * `head` has labels or levels and n_rows, and need not outlive the call; eval_prediction_writer_put is an eval_rows_put
 * that gets the writer as its context. */
struct eval_prediction_writer;
int eval_prediction_writer_open(struct eval_prediction_writer **out, const struct eval_prediction *head,
                                const char *path, bool force, const char *provenance, struct threads *pool,
                                struct tabft_failure *f) TABFT_MUST_CHECK;
int eval_prediction_writer_put(void *writer, size_t first, const struct eval_prediction *rows,
                               struct tabft_failure *f) TABFT_MUST_CHECK;
int eval_prediction_writer_close(struct eval_prediction_writer *w, struct tabft_failure *f) TABFT_MUST_CHECK;
void eval_prediction_writer_abandon(struct eval_prediction_writer *w); /* NULL is fine */
/* Bytes that such a writer takes on a pool of n_threads. */
size_t eval_prediction_writer_bytes(const struct eval_prediction *head, int n_threads);
/* All rows at once. */
int eval_prediction_write(const struct eval_prediction *p, const char *path, bool force, const char *provenance,
                          struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Which share of a test table's rows a prediction is of. */
struct eval_part {
    size_t index, of;             /* of 0: of all */
    size_t first_task, task_step; /* the task of a job array that makes part i is first_task + i * task_step; step 0:
                                     there is no array */
};
/* The part's rows [*first, *first + *n) of n_all. Errors: TABFT_USE where it has none. */
int eval_part_rows(const struct eval_part *part, size_t n_all, size_t *first, size_t *n,
                   struct tabft_failure *f) TABFT_MUST_CHECK;

/* Puts the parts of one prediction together, in any order: the bytes that one process would have written. Errors:
 * TABFT_INPUT for a part of another model, table or run, for one that is there twice, and for one that is missing, with
 * the number of the task to run again. */
int eval_merge(const char *const *part, size_t n_parts, const char *path, bool force, struct threads *pool,
               struct tabft_failure *f) TABFT_MUST_CHECK;

/* Reads one back. Errors: TABFT_INPUT for any other table, missing or doubled rows, and numbers that are no
 * probabilities. */
int eval_prediction_open(const char *path, struct threads *pool, struct eval_prediction *out,
                         struct tabft_failure *f) TABFT_MUST_CHECK;

/* How good a prediction is. Rows without a label or target count nowhere. A row whose label is no class counts as wrong
 * in accuracy; its label counts as one with recall 0 in balanced_accuracy; log_loss and roc_auc are over the other rows
 * alone. */
struct eval_scores {
    size_t n_rows, n_labelled, n_unseen; /* n_unseen: labelled rows whose label is no class */
    /* classification */
    double accuracy;          /* of n_labelled */
    double balanced_accuracy; /* mean over the labels that occur of the share of their rows that are right */
    double log_loss;          /* of n_labelled - n_unseen; NaN where there is none */
    double roc_auc; /* two classes: of the second; more: mean of each against the rest; NaN where a class has no row */
    /* regression */
    struct score_errors errors; /* of the means */
};
/* Errors: TABFT_INPUT when no row has a label or target, TABFT_SYSTEM. */
int eval_score(const struct eval_prediction *p, struct eval_scores *out, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
