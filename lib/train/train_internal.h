/* What the sources of the loop share: one run's state. */
#ifndef TABFT_TRAIN_INTERNAL_H
#define TABFT_TRAIN_INTERNAL_H

#include "comm/reduce.h"
#include "ensemble/score.h"
#include "tensor/device.h"
#include "train/chunks.h"
#include "train/data.h"
#include "train/node_table.h"
#include "train/optimiser.h"
#include "train/plan.h"
#include "train/run_folder.h"
#include "train/train.h"

struct comm;
struct threads;

/* The memory of one work item, for the largest chunk. Of labels and targets only the task's are there. */
struct item_room {
    struct model_run *run;        /* NULL: an empty room */
    double *x_context, *x_query;  /* [rows][n_columns] */
    int32_t *y_context, *y_query; /* [rows] labels */
    double *t_context, *t_query;  /* [rows] targets as in the table */
    float *z_query;               /* [n_query] as an estimator sees them */
    double *own_borders;          /* [model_outputs + 1] what its buckets mean */
    bool *impossible;             /* [model_outputs] */
    const struct chunk *chunk;    /* whose rows lie in the matrices; NULL: none */
    struct ensemble *ensemble;    /* its estimators */
    struct ensemble_call call;    /* what one of them makes of it */
    size_t estimator;             /* that one */
    struct ensemble_columns parts[2];
};

/* Where a step's time went on this rank. Preprocessing may run beside the rest, so these need not sum up to the step's
 * time; reduce has waiting for other ranks in it. */
struct step_seconds {
    double preprocess, forward, backward, reduce, optimiser;
};

struct trainer {
    const struct train_options *o;
    struct comm *c;
    const struct train_report *report;
    struct train_result *result;
    struct threads *pool;
    struct run_folder *folder; /* on rank 0 */
    char *run_path;            /* rank 0's folder of the run, the same text on all ranks */
    bool resume;               /* rank 0's --resume */
    char kept[64];             /* the newest whole checkpoint of this run; "" if none */

    const struct tensor_device *device;
    enum tensor_precision precision;
    struct tensor_gpu gpu; /* its own, where device is cuda */
    int gpu_index;         /* of those that it sees */
    struct tensor_backend backend;
    struct model *model;
    float *weights; /* the model's own vector, on the host */
    size_t n_parameters;
    char base_digest[65];
    struct train_data data;
    struct neighbours near;
    struct node_table *node; /* the cells of `data`, unless they are streamed */
    struct train_sizes sizes;
    struct train_plan plan;
    struct model_shape train_shape, valid_shape;
    int32_t *permutation; /* of classification: [estimators][n_classes], the same in every chunk */
    double *borders;      /* of regression: [model_outputs + 1] */

    /* What a step changes lies in the memory of `vectors`: values, best, and what reduce and optimiser hold. */
    struct vectors vectors;
    float *values;         /* [n_parameters] the weights that are trained; on the host, `weights` themselves */
    struct reduce *reduce; /* for reduce_n items; steps of fewer chunks get their own */
    size_t reduce_n, slice_begin, slice_end;
    struct optimiser *optimiser; /* of the own slice */
    float *best;                 /* own slice of the best weights; NULL without early stopping */
    double *loss;                /* [items of a full step] */
    struct step_seconds seconds; /* of the step at hand */
    struct item_room room;       /* for training steps; empty on a rank without items and while validating */

    double begun;                  /* when the loop began, on trainer_clock */
    double first_step, first_rows; /* when this process's first step was done, and what rows had cost until then */
};

/* Where the loop is. */
struct progress {
    uint64_t epoch;         /* epochs done */
    uint64_t position;      /* chunks of the next epoch that are done */
    bool checked;           /* what follows those epochs is done: the validation, if one is due, and the time limit */
    uint64_t step, n_steps; /* steps done; of the whole run, as the first epoch's chunks say */
    uint64_t skipped;       /* chunks left out by the skip rule */
    double epoch_loss;      /* sum over the steps of this epoch */
    uint64_t epoch_steps;
    double started;       /* seconds of a clock that only runs forward */
    double best, initial; /* metric; larger is better; NaN without validation */
    uint64_t best_epoch, waited;
    const char *ended_by;
    /* The last checkpoint that was written or gone on from, or the start of the process. */
    uint64_t saved_step;
    bool saved_checked;
    double saved_at; /* on trainer_clock */
};

/* Every rank's code; returns the common one: 0, or that of the lowest rank that failed, with its message in *f on all.
 */
int trainer_agree(struct trainer *t, int code, struct tabft_failure *f) TABFT_MUST_CHECK;
/* A line for the report of rank 0. */
void trainer_say(const struct trainer *t, const char *format, ...) TABFT_PRINTF(2, 3);
/* Seconds of a clock that only runs forward; those since p->started. */
double trainer_clock(void);
double trainer_seconds(const struct progress *p);

/* ---- prepare.c ---- */
int trainer_open(struct trainer *t,
                 struct tabft_failure *f) TABFT_MUST_CHECK; /* all up to the first step; on failure close too */
void trainer_close(struct trainer *t);
/* Whether the model can be trained on such a table. */
int trainer_check_model(const struct model *m, const struct train_options *o, bool is_regression, size_t n_classes,
                        struct tabft_failure *f) TABFT_MUST_CHECK;
/* The estimators for rows with labels or, for regression, targets. Borrows all but t. */
int trainer_ensemble_open(const struct trainer *t, enum ensemble_phase phase, const struct ensemble_columns *context,
                          const int32_t *label, const double *target, const struct ensemble_columns *query,
                          struct ensemble **out, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- device.c ---- */
int trainer_device_open(struct trainer *t, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Collective: refuses ranks of different devices. */
int trainer_device_compare(struct trainer *t, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Bytes of this rank's GPU that are taken already, and that may be in all; on CPUs 0 and UINT64_MAX. */
int trainer_device_memory(const struct trainer *t, uint64_t *taken, uint64_t *budget,
                          struct tabft_failure *f) TABFT_MUST_CHECK;
/* Takes what the plan says of the GPU's memory. */
int trainer_device_reserve(struct trainer *t, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- values.c ---- */
int trainer_values_open(struct trainer *t, struct tabft_failure *f) TABFT_MUST_CHECK; /* on failure close too */
void trainer_values_close(struct trainer *t);
/* Keeps the own slice of the values as the best, where best ones are kept; takes it back. */
void trainer_best_keep(struct trainer *t);
void trainer_best_take(struct trainer *t);
/* Brings the trained values into t->weights. */
int trainer_weights_fetch(struct trainer *t, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- item.c ---- */
/* The memory of training steps: taken before the first and after a validation, given back before one. */
int item_room_open(struct trainer *t, struct tabft_failure *f) TABFT_MUST_CHECK;
void item_room_close(struct trainer *t);
/* One forward and backward of an estimator on a chunk, in four pieces: its rows and what the estimator makes of them, on
 * the host alone, which may be done in another thread while an item is started; from there as model_gradient_prepare,
 * the encoding, for a loss over `n_items`; the start, with the place of the gradient, which overwrites what is there or
 * is added to it; and the end of the first that was started, with the loss. */
int item_gather(struct trainer *t, const struct chunk *chunk, size_t estimator,
                struct tabft_failure *f) TABFT_MUST_CHECK;
int item_encode(struct trainer *t, size_t n_items, struct tabft_failure *f) TABFT_MUST_CHECK;
int item_start(struct trainer *t, float *gradient, bool add, struct tabft_failure *f) TABFT_MUST_CHECK;
int item_finish(struct trainer *t, double *loss, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Forgets the chunk that was computed last. */
void item_room_clear(struct trainer *t);

/* ---- coming.c ---- */
/* Tells the data what this rank gathers from position `first` of the epoch on. */
int trainer_expect(struct trainer *t, const struct chunks *chunks, size_t first,
                   struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- step.c ---- */
struct step {
    uint64_t number, epoch; /* from 1, for messages */
    const struct chunk *const *chunk;
    size_t n_chunks;
    double learning_rate;
};
struct step_outcome {
    double loss, norm; /* mean over the items; L2 norm before clipping */
    struct step_seconds seconds;
};
/* Computes this rank's items, sums, clips, updates the weights on all ranks. Nothing is changed on failure. */
int step_take(struct trainer *t, const struct step *s, struct step_outcome *out,
              struct tabft_failure *f) TABFT_MUST_CHECK;
/* Whether a chunk has a query class that no estimator's context shows (TabPFN skips those); names it in *missing. */
bool step_must_skip(const struct trainer *t, const struct chunk *chunk, size_t *missing);
/* Whether the context's targets of regression are all one number, so that its standard deviation is none. */
bool step_targets_equal(const struct trainer *t, const struct chunk *chunk);

/* ---- validate.c ---- */
struct validation {
    double roc_auc, log_loss;   /* of classification; roc_auc NaN where a class has no row */
    struct score_errors errors; /* of regression, in the target's units */
    double value;               /* of the metric asked for, larger is better: losses and errors are negative here */
};
/* Predicts all validation rows from all training rows; the estimators are shared by the ranks, the result is rank 0's.
 */
int validate(struct trainer *t, struct validation *out, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- checkpoint.c ---- */
/* What ranks tell each other between two steps. */
struct checkpoint_words {
    uint64_t peak; /* bytes; the largest of all ranks */
    int32_t stop;  /* the signal by which one of them was asked to stop, or 0 */
    int32_t save;  /* rank 0's clock or count says that a checkpoint is due */
};
int checkpoint_agree(struct trainer *t, const struct progress *p, struct checkpoint_words *out,
                     struct tabft_failure *f) TABFT_MUST_CHECK;
/* Writes the checkpoint that was agreed; where a stop was, TABFT_STOPPED follows on all ranks. */
int checkpoint_take(struct trainer *t, struct progress *p, const struct checkpoint_words *words,
                    struct tabft_failure *f) TABFT_MUST_CHECK;
void checkpoint_saved(struct progress *p); /* from here the next one is counted */

/* ---- record.c: nothing on other ranks than 0 ---- */
int record_step(struct trainer *t, const struct step *s, const struct step_outcome *out, double seconds, uint64_t peak,
                struct tabft_failure *f) TABFT_MUST_CHECK;
int record_validation(struct trainer *t, const struct progress *p, const struct validation *v, bool is_best,
                      double seconds, struct tabft_failure *f) TABFT_MUST_CHECK;
int record_skip(struct trainer *t, const struct progress *p, const struct chunk *chunk, size_t class,
                struct tabft_failure *f) TABFT_MUST_CHECK;
/* Whether a whole run lies in RUN/, which then must have had this run's options (TABFT_USE). */
int record_complete(struct trainer *t, bool *complete, struct tabft_failure *f) TABFT_MUST_CHECK;
/* All of RUN/, run.json last. */
int record_run(struct trainer *t, const struct progress *p, double seconds, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
