/* The memory of a run before it is taken: all sizes follow from shapes. --plan prints it, a run prints it first and
 * refuses to start where it does not fit. */
#ifndef TABFT_TRAIN_PLAN_H
#define TABFT_TRAIN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "model/model.h"
#include "tensor/ops.h"
#include "train/data.h"
#include "train/options.h"

/* Peak bytes of the fullest rank, by kind. With GPUs, what a step changes (weights to best_weights), activations and
 * scratch are bytes of the GPU, and the host holds the weights once more. */
struct train_plan {
    bool on_gpu;
    int n_ranks;
    size_t n_items; /* of a whole step */
    size_t recompute;                     /* as of lib/model/model.h */
    bool validating;                      /* the peak is in a validation, else in a training step */
    size_t n_context, n_query, n_columns; /* the largest call of the network in that phase */
    size_t weights, partial_sums, moments, best_weights;
    size_t table;                /* this rank's share of the cells that its node's ranks share */
    size_t window;               /* --stream: rows read ahead, instead of those */
    size_t data;                 /* targets, lists of rows, and the rows of one chunk or validation */
    size_t preprocessing;        /* one estimator's */
    size_t activations, scratch; /* of one forward and backward, whatever the number of estimators */
    size_t room;                 /* what the run that computes those may take (lib/model/model.h) within the budget */
    size_t checkpoint;           /* what writing one takes beyond the preprocessing, which is free then */
    size_t logits;               /* of a validation */
    size_t staging;              /* with GPUs: what is copied to and from them */
    size_t process;              /* program, libraries, ranks */
    size_t total;                /* of the host; with GPUs the larger of a step's and a validation's */
    size_t gpu_run;              /* of the GPU: the run's own memory, which is taken in one piece */
    size_t gpu_workspace;        /* of the GPU: what the backend works in */
    size_t gpu_taken;            /* of the GPU: by CUDA itself, its libraries and others */
    size_t gpu;                  /* of the GPU, in all */
    double item_flops, item_bytes; /* of a training step's largest item: struct model_plan's flops and bytes */
};

struct train_place {
    int n_ranks, n_local, n_threads; /* n_local: ranks of a node, the fewest */
    bool engine;     /* an engine with libraries of its own carries the ranks */
    uint64_t budget; /* bytes a rank may take in all; UINT64_MAX: not known */
    const struct tensor_backend *backend; /* of the rank; one that plans is enough */
    uint64_t gpu_taken;  /* bytes of its GPU that are taken before the run's, or are expected to be */
    uint64_t gpu_budget; /* bytes of its GPU that may be taken in all; UINT64_MAX: not known */
};

bool train_plan_fits(const struct train_plan *plan, const struct train_place *place);

/* "none", "block", or "auto" for what is between them. */
const char *train_recompute_name(size_t recompute);

/* Plans for the --recompute asked for; auto: as little as fits the budget. */
int train_plan_make(struct train_plan *plan, const struct model *m, const struct train_options *o,
                    const struct train_sizes *sizes, const struct train_place *place,
                    struct tabft_failure *f) TABFT_MUST_CHECK;

/* Shapes of the largest calls, for model_run_open: most columns of an estimator in each phase. */
int train_plan_shapes(const struct model *m, const struct train_options *o, const struct train_sizes *sizes,
                      struct model_shape *training, struct model_shape *validating,
                      struct tabft_failure *f) TABFT_MUST_CHECK;

/* The plan as lines "kind bytes" and, where it does not fit, a line that begins with "would fit: " and names options
 * that would do. The caller frees *text. */
int train_plan_text(const struct train_plan *plan, const struct model *m, const struct train_options *o,
                    const struct train_sizes *sizes, const struct train_place *place, char **text,
                    struct tabft_failure *f) TABFT_MUST_CHECK;

/* What a rank may take in all: --memory, else what memory_budget leaves each rank of the node. */
uint64_t train_plan_budget(const struct train_options *o, int local_ranks);

#endif
