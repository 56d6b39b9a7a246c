/* The architectures behind one face: what train and eval call. Each architecture is one file here that records
 * operations on a tape (tensor/); this header owns parameters as one flat float32 vector, and the memory of a run. */
#ifndef TABFT_MODEL_MODEL_H
#define TABFT_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "ckpt/ckpt.h"

struct tensor_backend;
struct model;

/* Numbered as enum table_task (table/table.h). */
enum model_task { MODEL_ANY_TASK = 0, MODEL_CLASSIFICATION = 1, MODEL_REGRESSION = 2 };
/* How much of what forward computes a run keeps for backward, by the bytes that it may take in all (struct model_plan's
 * total): as many of the last blocks as fit are kept whole, the others are computed again. NONE: all is kept, whatever
 * it takes; BLOCK: as little as can be, and what costs no byte more. */
#define MODEL_RECOMPUTE_NONE SIZE_MAX
#define MODEL_RECOMPUTE_BLOCK ((size_t)0)

struct model_parameter {
    const char *name; /* as in the checkpoint */
    int rank;
    size_t shape[4];
    size_t offset, count; /* in the flat vector, in elements */
};

/* Reads architecture and config from the metadata, checks every tensor's name and shape, copies the weights. v2 and
 * v2.5 are also read as they were published, without an architecture or as "base", with other names and layouts; they
 * are written with the metadata they came with and today's names, as TabPFN does.
 * `task` is what a network with a head for each task (v3.5) shall do; MODEL_ANY_TASK, for who computes nothing: it is
 * opened as a classifier. Weights of the other task's are kept and written, but are no parameters. A network with one
 * head has its own task whatever `task` says: see model_task.
 * Errors: TABFT_INPUT naming the tensor or key. `c` may be closed afterwards. */
int model_open(struct model **out, const struct ckpt *c, enum model_task task,
               struct tabft_failure *f) TABFT_MUST_CHECK;
/* The same in little more memory than the weights take: each tensor of `c` is forgotten (ckpt_forget) when it has been
 * copied, so that they are never there twice. */
int model_open_moving(struct model **out, struct ckpt *c, enum model_task task,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
/* Random weights of an architecture by name and JSON config (NULL = published size), by `seed`; opened as above for
 * MODEL_ANY_TASK. */
int model_init(struct model **out, const char *architecture, const char *config_json, uint64_t seed,
               struct tabft_failure *f) TABFT_MUST_CHECK;
/* What a checkpoint is, from its header alone. */
struct model_summary {
    const char *architecture; /* as of model_architecture */
    size_t classes, buckets;  /* outputs for each task, 0 where it has no head for it */
    size_t parameters[3];     /* by enum model_task: floats that are trained for it, 0 where it has no head for it */
};
/* Errors: TABFT_INPUT for metadata that are no network's, without the file's name; tensors are not looked at. */
int model_summarise(const struct ckpt *c, struct model_summary *out, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Writes weights (flat vector `values`) with the metadata it was opened with. */
int model_write(const struct model *m, const float *values, const char *path, bool force,
                struct tabft_failure *f) TABFT_MUST_CHECK;
void model_close(struct model *m);

const char *model_architecture(const struct model *m);     /* "tabpfn_v2_6" */
const char *model_inference_config(const struct model *m); /* JSON text or NULL */
enum model_task model_task(const struct model *m);
size_t model_outputs(const struct model *m);         /* classes of the head, or buckets */
size_t model_parameters(const struct model *m);      /* floats in the flat vector */
size_t model_parameter_count(const struct model *m); /* tensors */
size_t model_weight_bytes(const struct model *m);    /* of all weights, those of the other task's among them */
const struct model_parameter *model_parameter_at(const struct model *m, size_t i);
/* Borders of a regressor's buckets [model_outputs + 1], ascending; NULL where its file has none, or for classifiers. */
const float *model_borders(const struct model *m);
const float *model_values(const struct model *m); /* the weights, [model_parameters] floats, 64-byte aligned */
/* The same memory, to train in place: the weights exist once in a process. Not while a run computes with them. */
float *model_values_mutable(struct model *m);

/* ---- one forward/backward at a time ---- */
struct model_shape {
    size_t n_context, n_query, n_columns;
}; /* as the network is called; n_columns before grouping */

/* One call of the network. All pointers are the caller's. */
struct model_input {
    struct model_shape shape;
    const float *x;         /* [n_context + n_query][n_columns] row-major, NaN = missing */
    const float *y_context; /* [n_context]: class code (permuted) or standardised target */
    /* Whether a column is constant, and so left out, is told by the context alone: query rows do not see each other
     * then, and a row's logits have the same bits with any other rows beside it. false: by all rows, as TabPFN does
     * where it is given both at once. */
    bool queries_alone;
};
/* Classification target for the loss. */
struct model_target {
    const int32_t *y_query;           /* [n_query] label codes, not permuted */
    const int32_t *class_permutation; /* [n_classes] or NULL: z'[c] = z[perm[c]] */
    size_t n_classes;
    double scale; /* the loss and its gradient are multiplied by it (1 / number of items) */
    bool add;     /* the gradient is added to what is there, with the bits of adding it afterwards; else it overwrites */
};

/* A regressor's target: numbers in the space of the model's borders (standardised, and transformed as the estimator
 * does). The terms are those of struct op_bar_loss (tensor/ops.h); their weighted sum is the loss. */
struct model_regression_target {
    const float *y_query;            /* [n_query], NaN: the row counts, with a loss of 0 */
    const bool *impossible;          /* [model_outputs] buckets that have no probability, or NULL */
    double temperature;              /* logits are divided by it */
    double ce, crps, crls, mse, mae; /* weights, at least 0 */
    double mse_most, mae_most;       /* bounds of one row's terms, INFINITY: none */
    double scale;                    /* as of struct model_target */
    bool add;                        /* as of struct model_target */
};

/* Exact peak bytes of a run for a shape. model_run_open allocates `total` of the backend's memory, and `host` of the
 * host's, before anything is computed; on a backend whose memory is the host's both are the host's. What the caller
 * holds is not in it: `weights` (also one gradient: as many bytes) are told for the sum of a process. `activations` is
 * what of the total lives longer than one operation at the fullest moment; `scratch` the rest. `backend`: one that
 * plans is enough. */
struct model_plan {
    size_t weights;
    size_t activations, scratch, total;
    size_t kept; /* of the activations: what of a context is kept for its queries (model_plan_kept) */
    size_t host;
    double flops, bytes; /* of one run: products of matrices, and what operations read and write (struct tape_work) */
};
int model_plan(const struct model *m, struct model_shape shape, size_t recompute, bool backward,
               const struct tensor_backend *backend, struct model_plan *plan, struct tabft_failure *f) TABFT_MUST_CHECK;

/* The memory for calls up to a planned size: a call may have fewer context rows, query rows or columns
 * than `largest`, none may be more. One run serves one call at a time; `m` and `backend` outlive it. backward = false:
 * model_gradient is refused, and far less memory is planned. Results depend neither on the number of threads nor on
 * `largest` or `recompute`. Errors: TABFT_INPUT when backward is asked for and a regressor has no borders; TABFT_SYSTEM
 * when memory is short. */
struct model_run;
int model_run_open(struct model_run **out, const struct model *m, struct model_shape largest,
                   size_t recompute, bool backward, const struct tensor_backend *backend,
                   struct tabft_failure *f) TABFT_MUST_CHECK;
/* Predictions in blocks of rows: a context is encoded once (model_keep_context: `input` with its query rows ignored),
 * what query rows need of each layer stays in the run's memory, and any number of blocks of query rows follow
 * (model_forward: `input` is that context again, with the block's rows behind it, which are judged alone, see struct
 * model_input). Gives the bits of a run that keeps nothing, with queries_alone. `largest` has the rows of a block. */
int model_plan_kept(const struct model *m, struct model_shape largest, const struct tensor_backend *backend,
                    struct model_plan *plan, struct tabft_failure *f) TABFT_MUST_CHECK;
int model_run_open_kept(struct model_run **out, const struct model *m, struct model_shape largest,
                        const struct tensor_backend *backend, struct tabft_failure *f) TABFT_MUST_CHECK;
int model_keep_context(struct model_run *run, const float *values, const struct model_input *input,
                       struct tabft_failure *f) TABFT_MUST_CHECK;
/* logits [n_query][model_outputs], on the host; values: flat weights, in the backend's memory as in all that follows.
 * Errors: of a run that keeps contexts also TABFT_USE for a context of another shape than the one that was kept. */
int model_forward(struct model_run *run, const float *values, const struct model_input *input, float *logits,
                  struct tabft_failure *f) TABFT_MUST_CHECK;
/* The same in two pieces, so that what comes next is prepared on the host while a backend that computes beside it does:
 * start (`input` is free again after it), then finish, which waits. model_keep_context does not wait, either. */
int model_forward_start(struct model_run *run, const float *values, const struct model_input *input,
                        struct tabft_failure *f) TABFT_MUST_CHECK;
int model_forward_finish(struct model_run *run, float *logits, struct tabft_failure *f) TABFT_MUST_CHECK;
/* loss (times scale) and the whole gradient of it into gradient [model_parameters], overwritten or added to, in the
 * backend's memory. Errors: TABFT_INPUT when the loss or a number of the gradient is not finite; what was added stays. */
int model_gradient(struct model_run *run, const float *values, const struct model_input *input,
                   const struct model_target *target, double *loss, float *gradient,
                   struct tabft_failure *f) TABFT_MUST_CHECK;
/* The same for regressors: TABFT_USE for a classifier, as model_gradient is for a regressor. */
int model_gradient_regression(struct model_run *run, const float *values, const struct model_input *input,
                              const struct model_regression_target *target, double *loss, float *gradient,
                              struct tabft_failure *f) TABFT_MUST_CHECK;

/* model_gradient in three pieces, so that a backend that computes beside the host need not wait for it: what is
 * prepared after a start is encoded on the host while the call before it still runs, and may be started before that one
 * is waited for. `input` and `target` are free again after prepare; what a target says of `add` is given to start. finish
 * waits for the first call that was started and not finished, and gives its loss. Two calls may be under way, prepared
 * ones among them: before a third is prepared, the first is finished. model_run_close may come at any time. */
int model_gradient_prepare(struct model_run *run, const struct model_input *input, const struct model_target *target,
                           struct tabft_failure *f) TABFT_MUST_CHECK;
int model_gradient_prepare_regression(struct model_run *run, const struct model_input *input,
                                      const struct model_regression_target *target,
                                      struct tabft_failure *f) TABFT_MUST_CHECK;
int model_gradient_start(struct model_run *run, const float *values, float *gradient, bool add,
                         struct tabft_failure *f) TABFT_MUST_CHECK;
int model_gradient_finish(struct model_run *run, double *loss, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The seconds that the last call to be finished took on the backend: forward to the loss, and backward. */
void model_run_seconds(const struct model_run *run, double *forward, double *backward);
void model_run_close(struct model_run *run); /* NULL is fine */

#endif
