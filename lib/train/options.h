/* What a training run can be told: one table of options that gives the command line, its checks, --help and the
 * "options" of run.json. Nothing here acts on them. */
#ifndef TABFT_TRAIN_OPTIONS_H
#define TABFT_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "train/schedule.h"

enum train_device { TRAIN_DEVICE_AUTO = 1, TRAIN_DEVICE_CPU, TRAIN_DEVICE_CUDA };
/* enum tensor_precision behind `auto`. */
enum train_precision { TRAIN_PRECISION_AUTO = 1 };
enum train_recompute { TRAIN_RECOMPUTE_AUTO = 1, TRAIN_RECOMPUTE_NONE, TRAIN_RECOMPUTE_BLOCK };
enum train_metric { TRAIN_METRIC_AUTO = 1, TRAIN_METRIC_ROC_AUC, TRAIN_METRIC_LOG_LOSS, TRAIN_METRIC_MSE };
enum train_engine { TRAIN_ENGINE_AUTO = 1, TRAIN_ENGINE_SELF, TRAIN_ENGINE_MPI, TRAIN_ENGINE_NCCL };

/* Terms of a regressor's loss: their weights, and the most one row's terms can be (0: anything). TabPFN's names. */
struct train_losses {
    double ce, crps, crls, mse, mae;
    double mse_clip, mae_clip;
};

/* --checkpoint-every: so many steps or minutes; 0: only when asked to stop. */
struct train_interval {
    uint64_t n;
    bool minutes;
};

struct train_options {
    const char *model, *data, *valid, *out; /* paths, borrowed; valid may be NULL */
    uint64_t epochs, estimators, chunk_rows, chunks_per_step, seed;
    double learning_rate, weight_decay, clip;             /* clip 0: none */
    double query_fraction, validation_split;              /* validation_split 0: no validation (unless `valid`) */
    uint64_t validation_frequency, patience;              /* patience 0: no early stopping */
    double min_delta, time_limit;                         /* seconds; 0: none */
    struct train_losses losses;                           /* of regression */
    uint64_t schedule, metric, recompute, device, engine; /* the enums above and schedule_kind */
    uint64_t precision;                                   /* 1: auto, then as enum tensor_precision, and 1 */
    uint64_t threads, comm_timeout, ranks;                /* threads 0: all this process may use; ranks: of --plan */
    uint64_t memory;                                      /* bytes a rank may take; 0: what is found at the start */
    uint64_t gpu_memory;                                  /* of its GPU, in all; 0: all that it has */
    struct train_interval checkpoint_every;
    uint64_t stop_timeout; /* seconds that SIGTERM leaves; 0: no limit */
    uint64_t ranks_per_node; /* of --plan */
    uint64_t window;         /* bytes of a rank's rows that are read ahead with `stream` */
    bool stream, resume, force, plan;
};

/* TabPFN's defaults, with 8 estimators. */
void train_options_default(struct train_options *o);

/* ---- the table ---- */
struct train_option {
    const char *name;       /* without the dashes */
    const char *value_name; /* in --help; NULL: takes no value */
    const char *help;
};
size_t train_option_count(void);
struct train_option train_option_at(size_t i);
/* Sets option i from its text (NULL for those without a value). Errors: TABFT_USE "--name: ...", naming what it takes.
 */
int train_option_set(struct train_options *o, size_t i, const char *text, struct tabft_failure *f) TABFT_MUST_CHECK;

bool train_losses_equal(const struct train_losses *a, const struct train_losses *b);

/* What options must be together: the needed ones given, a seed that leaves room for the epochs.
 * Errors: TABFT_USE. */
int train_options_check(const struct train_options *o, struct tabft_failure *f) TABFT_MUST_CHECK;

/* --threads, or as many as there are processors for this process. */
int train_options_threads(const struct train_options *o);

/* All that bears on a result (`for_result`) or all, as a JSON object (key order of the table). The caller frees it. */
int train_options_json(const struct train_options *o, bool for_result, char **out,
                       struct tabft_failure *f) TABFT_MUST_CHECK;

/* Refuses (TABFT_USE, by name) options that would give a run with the recorded ones another result: what differs from
 * `recorded`, the "options" of a checkpoint or of run.json, a JSON object. Paths may differ, for digests speak for the
 * files; --time-limit may; --epochs may where the schedule does not depend on their number. */
struct json_t;
int train_options_compare(const struct train_options *o, const struct json_t *recorded,
                          struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
