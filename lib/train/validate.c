/* A validation: the current weights predict the validation rows with all training rows as context. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "ensemble/score.h"
#include "train/train_internal.h"

/* What a rank holds while it validates. */
struct room {
    struct ensemble *ensemble;
    struct model_run *run;
    struct ensemble_columns context, query;
    double *x_context, *x_query, *probability;
    float *logits;     /* [estimators][n_valid][outputs], all ranks' in the end */
    float *own;        /* where this rank's estimators begin in it */
    size_t begin, end; /* its estimators */
};

static int all_rows(size_t n, size_t **out, struct tabft_failure *f)
{
    int error = memory_new(out, n, sizeof **out, "the rows of a validation", f);
    for (size_t i = 0; error == 0 && i < n; i++) (*out)[i] = i;
    return error;
}

static int matrix_new(const struct train_data *d, bool from_valid, size_t n_rows, double **x, struct tabft_failure *f)
{
    int error = 0;
    size_t *row = NULL, cells;
    if (!size_mul(n_rows, d->n_columns, &cells))
        FAIL(f, TABFT_SYSTEM, "a validation of %zu rows and %zu columns is too large", n_rows, d->n_columns);
    TRY(all_rows(n_rows, &row, f));
    TRY(memory_new(x, cells, sizeof **x, "the rows of a validation", f));
    train_data_gather(d, from_valid, row, n_rows, *x);
fail:
    free(row);
    return error;
}

static int room_open(struct room *r, struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    const struct train_data *d = &t->data;
    size_t each, all;
    struct ensemble_options options = trainer_ensemble(t, ENSEMBLE_PREDICTION);
    reduce_share((size_t)t->o->estimators, comm_size(t->c), comm_rank(t->c), &r->begin, &r->end);
    if (!size_mul(d->n_valid, model_outputs(t->model), &each) || !size_mul(each, (size_t)t->o->estimators, &all))
        FAIL(f, TABFT_SYSTEM, "a validation of %zu rows is too large", d->n_valid);
    TRY(memory_new(&r->logits, all, sizeof *r->logits, "the logits of a validation", f));
    r->own = r->logits + r->begin * each;
    TRY(memory_new(&r->probability, d->n_valid, d->n_classes * sizeof *r->probability,
                   "the predictions of a validation", f));
    TRY(matrix_new(d, false, d->n_train, &r->x_context, f));
    TRY(matrix_new(d, true, d->n_valid, &r->x_query, f));
    r->context = (struct ensemble_columns){.n_rows = d->n_train, .n_columns = d->n_columns, .x = r->x_context};
    r->query = (struct ensemble_columns){.n_rows = d->n_valid, .n_columns = d->n_columns, .x = r->x_query};
    TRY(ensemble_open(&r->ensemble, &options, &r->context, d->train_label, NULL, f));
    if (r->begin < r->end) TRY(model_run_open(&r->run, t->model, t->valid_shape, t->plan.recompute, false, t->pool, f));
fail:
    return error;
}

static void room_close(struct room *r)
{
    ensemble_close(r->ensemble);
    model_run_close(r->run);
    free(r->x_context);
    free(r->x_query);
    free(r->probability);
    free(r->logits);
}

static int predict(struct trainer *t, struct room *r, size_t estimator, struct tabft_failure *f)
{
    int error = 0;
    struct ensemble_call call = {0};
    TRY(ensemble_call(r->ensemble, estimator, &r->query, t->pool, &call, f));
    struct model_input input = {
        .shape = {.n_context = call.n_context, .n_query = call.n_query, .n_columns = call.n_columns},
        .x = call.x,
        .y_context = call.y_context,
    };
    float *logits = r->own + (estimator - r->begin) * t->data.n_valid * model_outputs(t->model);
    TRY(model_forward(r->run, t->weights, &input, logits, f));
fail:
    ensemble_call_clear(&call);
    if (error < 0) (void)tabft_fail_prefix(f, "validation, estimator %zu", estimator);
    return error;
}

/* Brings every rank's logits to all. */
static int share_logits(struct trainer *t, struct room *r, struct tabft_failure *f)
{
    int error = 0, n_ranks = comm_size(t->c);
    size_t each = t->data.n_valid * model_outputs(t->model) * sizeof *r->logits, begin, end, *bytes = NULL;
    float *own = NULL;
    if (n_ranks == 1) return 0;
    TRY(memory_new(&bytes, (size_t)n_ranks, sizeof *bytes, "the logits of a validation", f));
    for (int i = 0; i < n_ranks; i++) {
        reduce_share((size_t)t->o->estimators, n_ranks, i, &begin, &end);
        bytes[i] = (end - begin) * each;
    }
    size_t own_bytes = bytes[comm_rank(t->c)];
    TRY(memory_new(&own, own_bytes, 1, "the logits of a validation", f));
    memcpy(own, r->own, own_bytes);
    TRY(comm_gather_all_v(t->c, own, bytes, r->logits, f));
fail:
    free(bytes);
    free(own);
    return error;
}

static int judge(struct trainer *t, struct room *r, struct validation *out, struct tabft_failure *f)
{
    int error = 0;
    const struct train_data *d = &t->data;
    struct tabft_failure undefined = {0};
    TRY(ensemble_probabilities(r->ensemble, r->logits, d->n_valid, model_outputs(t->model), r->probability, f));
    out->log_loss = score_log_loss(r->probability, d->valid_label, d->n_valid, d->n_classes);
    int code = score_roc_auc(r->probability, d->valid_label, d->n_valid, d->n_classes, &out->roc_auc, &undefined);
    if (code == TABFT_NOT_HELD) out->roc_auc = NAN;
    else if (code < 0) FAIL(f, code, "%s", undefined.message);
    out->value = t->o->metric == TRAIN_METRIC_ROC_AUC ? out->roc_auc : -out->log_loss;
fail:
    return error;
}

int validate(struct trainer *t, struct validation *out, struct tabft_failure *f)
{
    int error = 0;
    struct room r = {0};
    size_t n = (size_t)t->o->estimators, ranks = (size_t)comm_size(t->c), rounds = (n + ranks - 1) / ranks;
    step_room_close(t);
    TRY(trainer_agree(t, room_open(&r, t, f), f));
    for (size_t i = 0; i < rounds; i++) /* between rounds: no rank waits longer than one estimator takes */
        TRY(trainer_agree(t, r.begin + i < r.end ? predict(t, &r, r.begin + i, f) : 0, f));
    TRY(share_logits(t, &r, f));
    TRY(trainer_agree(t, judge(t, &r, out, f), f));
    TRY(comm_broadcast(t->c, out, sizeof *out, 0, f));
    room_close(&r);
    r = (struct room){0};
    TRY(trainer_agree(t, step_room_open(t, f), f));
fail:
    room_close(&r);
    return error;
}
