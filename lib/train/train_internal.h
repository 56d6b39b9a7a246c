/* What the sources of the loop share: one run's state. */
#ifndef TABFT_TRAIN_INTERNAL_H
#define TABFT_TRAIN_INTERNAL_H

#include "comm/reduce.h"
#include "train/chunks.h"
#include "train/data.h"
#include "train/optimiser.h"
#include "train/plan.h"
#include "train/run_folder.h"
#include "train/train.h"

struct comm;
struct threads;

struct trainer {
    const struct train_options *o;
    struct comm *c;
    const struct train_report *report;
    struct train_result *result;
    struct threads *pool;
    struct run_folder *folder; /* on rank 0 */

    struct model *model;
    float *weights; /* the model's own vector, trained in place */
    size_t n_parameters;
    char base_digest[65];
    struct train_data data;
    struct train_sizes sizes;
    struct train_plan plan;
    struct model_shape train_shape, valid_shape;
    int32_t *permutation; /* [estimators][n_classes]: the same in every chunk */

    struct reduce *reduce; /* for reduce_n items; steps of fewer chunks get their own */
    size_t reduce_n, slice_begin, slice_end;
    struct optimiser *optimiser; /* of the own slice */
    float *gradient;             /* [n_parameters]: an item's gradient, then the own slice of the sum */
    float *best;                 /* own slice of the best weights; NULL without early stopping */
    double *loss;                /* [items of a full step] */
    struct model_run *run;       /* for training steps; NULL on a rank without items and while validating */
    double *x_context, *x_query; /* [rows of the largest chunk][n_columns] */
    int32_t *y_context, *y_query;
};

/* Where the loop is. */
struct progress {
    uint64_t epoch;         /* epochs done */
    uint64_t step, n_steps; /* steps done; of the whole run, as the first epoch's chunks say */
    uint64_t skipped;       /* chunks left out by the skip rule */
    double epoch_loss;      /* sum over the steps of this epoch */
    uint64_t epoch_steps;
    double started;       /* seconds of a clock that only runs forward */
    double best, initial; /* metric; larger is better; NaN without validation */
    uint64_t best_epoch, waited;
    const char *ended_by;
};

/* Every rank's code; returns the common one: 0, or that of the lowest rank that failed, with its message in *f on all.
 */
int trainer_agree(struct trainer *t, int code, struct tabft_failure *f) TABFT_MUST_CHECK;
/* A line for the report of rank 0. */
void trainer_say(const struct trainer *t, const char *format, ...) TABFT_PRINTF(2, 3);

/* ---- prepare.c ---- */
int trainer_open(struct trainer *t,
                 struct tabft_failure *f) TABFT_MUST_CHECK; /* all up to the first step; on failure close too */
void trainer_close(struct trainer *t);
struct ensemble_options trainer_ensemble(const struct trainer *t, enum ensemble_phase phase);

/* ---- step.c ---- */
struct step {
    uint64_t number, epoch; /* from 1, for messages */
    const struct chunk *const *chunk;
    size_t n_chunks;
    double learning_rate;
};
struct step_outcome {
    double loss, norm; /* mean over the items; L2 norm before clipping */
};
/* The memory of training steps: taken before the first and after a validation, given back before one. */
int step_room_open(struct trainer *t, struct tabft_failure *f) TABFT_MUST_CHECK;
void step_room_close(struct trainer *t);
/* Computes this rank's items, sums, clips, updates the weights on all ranks. Nothing is changed on failure. */
int step_take(struct trainer *t, const struct step *s, struct step_outcome *out,
              struct tabft_failure *f) TABFT_MUST_CHECK;
/* Whether a chunk has a query class that no estimator's context shows (TabPFN skips those); names it in *missing. */
bool step_must_skip(const struct trainer *t, const struct chunk *chunk, size_t *missing);

/* ---- validate.c ---- */
struct validation {
    double roc_auc, log_loss; /* roc_auc NaN where a class has no row */
    double value;             /* of the metric asked for, larger is better */
};
/* Predicts all validation rows from all training rows; the estimators are shared by the ranks, the result is rank 0's.
 */
int validate(struct trainer *t, struct validation *out, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- record.c: nothing on other ranks than 0 ---- */
int record_step(struct trainer *t, const struct step *s, const struct step_outcome *out, double seconds, uint64_t peak,
                struct tabft_failure *f) TABFT_MUST_CHECK;
int record_validation(struct trainer *t, const struct progress *p, const struct validation *v, bool is_best,
                      double seconds, struct tabft_failure *f) TABFT_MUST_CHECK;
int record_skip(struct trainer *t, const struct progress *p, const struct chunk *chunk, size_t class,
                struct tabft_failure *f) TABFT_MUST_CHECK;
/* All of RUN/, run.json last. */
int record_run(struct trainer *t, const struct progress *p, double seconds, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
