/* A validation: the current weights predict the validation rows with all training rows as context. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "ensemble/regression.h"
#include "train/train_internal.h"

/* What a rank holds while it validates. Of classification every estimator's logits are kept and go to all ranks; of
 * regression, whose logits are many, the means of every estimator's distribution, and one estimator's logits. */
struct room {
    struct ensemble *ensemble;
    struct model_run *run;
    struct ensemble_columns context, query;
    struct ensemble_call call; /* of the estimator to come */
    double *x_context, *x_query;
    size_t begin, end;   /* this rank's estimators */
    size_t result_bytes; /* of one estimator's results */
    char *results;       /* [estimators], all ranks' in the end: float logits [n_valid][outputs] or double [n_valid] */
    float *logits;       /* of regression: [n_valid][outputs] */
    double *predicted;   /* probabilities [n_valid][n_classes] or numbers [n_valid] */
};

static int all_rows(size_t n, size_t **out, struct tabft_failure *f)
{
    int error = memory_new(out, n, sizeof **out, "the rows of a validation", f);
    for (size_t i = 0; error == 0 && i < n; i++) (*out)[i] = i;
    return error;
}

static int matrix_new(struct train_data *d, bool from_valid, size_t n_rows, double **x, struct tabft_failure *f)
{
    int error = 0;
    size_t *row = NULL, cells;
    if (!size_mul(n_rows, d->n_columns, &cells))
        FAIL(f, TABFT_SYSTEM, "a validation of %zu rows and %zu columns is too large", n_rows, d->n_columns);
    TRY(all_rows(n_rows, &row, f));
    TRY(memory_new(x, cells, sizeof **x, "the rows of a validation", f));
    TRY(train_data_gather(d, from_valid, row, n_rows, *x, f));
fail:
    free(row);
    return error;
}

static int results_new(struct room *r, const struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    const struct train_data *d = &t->data;
    size_t outputs = model_outputs(t->model), cells, logits;
    if (!size_mul(d->n_valid, outputs, &cells) || !size_mul(cells, sizeof *r->logits, &logits))
        FAIL(f, TABFT_SYSTEM, "a validation of %zu rows is too large", d->n_valid);
    r->result_bytes = d->is_regression ? d->n_valid * sizeof(double) : logits;
    TRY(memory_new(&r->results, (size_t)t->o->estimators, r->result_bytes, "the results of a validation", f));
    TRY(memory_new(&r->predicted, d->n_valid, (d->is_regression ? 1 : d->n_classes) * sizeof *r->predicted,
                   "the predictions of a validation", f));
    if (!d->is_regression || r->begin == r->end) return 0;
    TRY(memory_new(&r->logits, logits, 1, "the logits of a validation", f));
fail:
    return error;
}

static int room_open(struct room *r, struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    struct train_data *d = &t->data;
    reduce_share((size_t)t->o->estimators, comm_size(t->c), comm_rank(t->c), &r->begin, &r->end);
    TRY(results_new(r, t, f));
    TRY(matrix_new(d, false, d->n_train, &r->x_context, f));
    TRY(matrix_new(d, true, d->n_valid, &r->x_query, f));
    r->context = train_data_columns(d, r->x_context, d->n_train);
    r->query = train_data_columns(d, r->x_query, d->n_valid);
    TRY(trainer_ensemble_open(t, ENSEMBLE_VALIDATION, &r->context, d->train_label, d->train_target, NULL, &r->ensemble,
                              f));
    if (r->begin < r->end)
        TRY(model_run_open(&r->run, t->model, t->valid_shape, t->plan.recompute, false, &t->backend, f));
fail:
    return error;
}

static void room_close(struct room *r)
{
    ensemble_call_clear(&r->call);
    ensemble_close(r->ensemble);
    model_run_close(r->run);
    free(r->x_context);
    free(r->x_query);
    free(r->predicted);
    free(r->logits);
    free(r->results);
}

/* What an estimator makes of the rows, into r->call. */
static int prepare(struct trainer *t, struct room *r, size_t estimator, struct tabft_failure *f)
{
    const int error = ensemble_call(r->ensemble, estimator, &r->query, t->pool, &r->call, f);
    if (error < 0) (void)tabft_fail_prefix(f, "validation, estimator %zu", estimator);
    return error;
}

/* What was prepared, through the network; r->call is free then. */
static int start(struct trainer *t, struct room *r, struct tabft_failure *f)
{
    const struct model_input input = {
        .shape = {.n_context = r->call.n_context, .n_query = r->call.n_query, .n_columns = r->call.n_columns},
        .x = r->call.x,
        .y_context = r->call.y_context,
    };
    const int error = model_forward_start(r->run, t->values, &input, f);
    ensemble_call_clear(&r->call);
    return error;
}

static int finish(struct trainer *t, struct room *r, size_t estimator, struct tabft_failure *f)
{
    int error = 0;
    void *result = r->results + estimator * r->result_bytes;
    TRY(model_forward_finish(r->run, t->data.is_regression ? r->logits : result, f));
    if (t->data.is_regression)
        TRY(ensemble_add_means(r->ensemble, estimator, r->logits, t->data.n_valid, t->borders,
                               model_outputs(t->model) + 1, result, f));
fail:
    return error;
}

/* One estimator, which is prepared unless it is this rank's first; while it runs, if it does so beside the host, the next
 * one is prepared. */
static int predict(struct trainer *t, struct room *r, size_t estimator, struct tabft_failure *f)
{
    int error = 0, next = 0;
    struct tabft_failure of_next = {0};
    if (estimator == r->begin) TRY(prepare(t, r, estimator, f));
    error = start(t, r, f);
    if (error == 0 && estimator + 1 < r->end) next = prepare(t, r, estimator + 1, &of_next);
    if (error == 0) error = finish(t, r, estimator, f);
    if (error < 0) (void)tabft_fail_prefix(f, "validation, estimator %zu", estimator);
    else if (next < 0) FAIL(f, next, "%s", of_next.message);
fail:
    return error;
}

/* Brings every rank's results to all. */
static int share_results(struct trainer *t, struct room *r, struct tabft_failure *f)
{
    int error = 0, n_ranks = comm_size(t->c);
    size_t begin, end, *bytes = NULL;
    char *own = NULL;
    if (n_ranks == 1) return 0;
    TRY(memory_new(&bytes, (size_t)n_ranks, sizeof *bytes, "the results of a validation", f));
    for (int i = 0; i < n_ranks; i++) {
        reduce_share((size_t)t->o->estimators, n_ranks, i, &begin, &end);
        bytes[i] = (end - begin) * r->result_bytes;
    }
    size_t own_bytes = bytes[comm_rank(t->c)];
    TRY(memory_new(&own, own_bytes, 1, "the results of a validation", f));
    memcpy(own, r->results + r->begin * r->result_bytes, own_bytes);
    TRY(comm_gather_all_v(t->c, own, bytes, r->results, f));
fail:
    free(bytes);
    free(own);
    return error;
}

static int judge_labels(struct trainer *t, struct room *r, struct validation *out, struct tabft_failure *f)
{
    int error = 0;
    const struct train_data *d = &t->data;
    struct tabft_failure undefined = {0};
    TRY(ensemble_probabilities(r->ensemble, (const float *)(const void *)r->results, d->n_valid,
                               model_outputs(t->model), r->predicted, f));
    out->log_loss = score_log_loss(r->predicted, d->valid_label, d->n_valid, d->n_classes);
    int code = score_roc_auc(r->predicted, d->valid_label, d->n_valid, d->n_classes, &out->roc_auc, &undefined);
    if (code == TABFT_NOT_HELD) out->roc_auc = NAN;
    else if (code < 0) FAIL(f, code, "%s", undefined.message);
    out->value = train_data_metric(d, t->o) == TRAIN_METRIC_ROC_AUC ? out->roc_auc : -out->log_loss;
fail:
    return error;
}

/* The mean of the estimators' mean distribution is the mean of theirs. */
static void judge_numbers(struct trainer *t, struct room *r, struct validation *out)
{
    const struct train_data *d = &t->data;
    const double *mean = (const double *)(const void *)r->results;
    size_t n_estimators = (size_t)t->o->estimators;
    for (size_t i = 0; i < d->n_valid; i++) {
        for (size_t e = 0; e < n_estimators; e++) r->predicted[i] += mean[e * d->n_valid + i];
        r->predicted[i] /= (double)n_estimators;
    }
    out->errors = score_errors(r->predicted, d->valid_target, d->n_valid);
    out->value = -out->errors.mse;
}

static int judge(struct trainer *t, struct room *r, struct validation *out, struct tabft_failure *f)
{
    *out = (struct validation){.roc_auc = NAN, .log_loss = NAN};
    if (!t->data.is_regression) return judge_labels(t, r, out, f);
    judge_numbers(t, r, out);
    return 0;
}

int validate(struct trainer *t, struct validation *out, struct tabft_failure *f)
{
    int error = 0;
    struct room r = {0};
    size_t n = (size_t)t->o->estimators, ranks = (size_t)comm_size(t->c), rounds = (n + ranks - 1) / ranks;
    item_room_close(t);
    TRY(trainer_agree(t, room_open(&r, t, f), f));
    for (size_t i = 0; i < rounds; i++) /* between rounds: no rank waits longer than one estimator takes */
        TRY(trainer_agree(t, r.begin + i < r.end ? predict(t, &r, r.begin + i, f) : 0, f));
    TRY(share_results(t, &r, f));
    TRY(trainer_agree(t, judge(t, &r, out, f), f));
    TRY(comm_broadcast(t->c, out, sizeof *out, 0, f));
    room_close(&r);
    r = (struct room){0};
    TRY(trainer_agree(t, item_room_open(t, f), f));
fail:
    room_close(&r);
    return error;
}
