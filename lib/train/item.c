/* One work item: an estimator's forward and backward on a chunk. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "ensemble/regression.h"
#include "train/train_internal.h"

/* ---- memory ---- */

static int answers_new(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    struct item_room *r = &t->room;
    const struct model_shape s = t->train_shape;
    if (t->data.is_regression) {
        size_t n = model_outputs(t->model);
        TRY(memory_new(&r->t_context, s.n_context, sizeof *r->t_context, "a chunk's targets", f));
        TRY(memory_new(&r->t_query, s.n_query, sizeof *r->t_query, "a chunk's targets", f));
        TRY(memory_new(&r->z_query, s.n_query, sizeof *r->z_query, "a chunk's targets", f));
        TRY(memory_new(&r->own_borders, n + 1, sizeof *r->own_borders, "an estimator's buckets", f));
        TRY(memory_new(&r->impossible, n, sizeof *r->impossible, "an estimator's buckets", f));
    } else {
        TRY(memory_new(&r->y_context, s.n_context, sizeof *r->y_context, "a chunk's labels", f));
        TRY(memory_new(&r->y_query, s.n_query, sizeof *r->y_query, "a chunk's labels", f));
    }
fail:
    return error;
}

int item_room_open(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    struct item_room *r = &t->room;
    const struct model_shape s = t->train_shape;
    size_t cells_context, cells_query, begin, end;
    reduce_share(t->plan.n_items, comm_size(t->c), comm_rank(t->c), &begin, &end);
    if (begin == end || r->run != NULL) return 0;
    if (!size_mul(s.n_context, t->data.n_columns, &cells_context) ||
        !size_mul(s.n_query, t->data.n_columns, &cells_query))
        FAIL(f, TABFT_SYSTEM, "a chunk of %zu rows and %zu columns is too large", s.n_context + s.n_query,
             t->data.n_columns);
    TRY(memory_new(&r->x_context, cells_context, sizeof *r->x_context, "a chunk's context", f));
    TRY(memory_new(&r->x_query, cells_query, sizeof *r->x_query, "a chunk's queries", f));
    TRY(answers_new(t, f));
    TRY(model_run_open(&r->run, t->model, s, t->plan.recompute, true, &t->backend, f));
    return 0;
fail:
    item_room_close(t);
    return error;
}

void item_room_clear(struct trainer *t)
{
    ensemble_call_clear(&t->room.call);
    ensemble_close(t->room.ensemble);
    t->room.ensemble = NULL;
    t->room.chunk = NULL;
}

void item_room_close(struct trainer *t)
{
    struct item_room *r = &t->room;
    item_room_clear(t);
    model_run_close(r->run);
    free(r->x_context);
    free(r->x_query);
    free(r->y_context);
    free(r->y_query);
    free(r->t_context);
    free(r->t_query);
    free(r->z_query);
    free(r->own_borders);
    free(r->impossible);
    *r = (struct item_room){0};
}

/* ---- the chunk ---- */

static void gather_answers(const struct train_data *d, const size_t *row, size_t n, int32_t *label, double *target)
{
    for (size_t i = 0; i < n; i++) {
        if (d->is_regression) target[i] = d->train_target[row[i]];
        else label[i] = d->train_label[row[i]];
    }
}

static int load_chunk(struct trainer *t, const struct chunk *chunk, struct tabft_failure *f)
{
    int error = 0;
    struct train_data *d = &t->data;
    struct item_room *r = &t->room;
    item_room_clear(t);
    TRY(train_data_gather(d, false, chunk->context, chunk->n_context, r->x_context, f));
    TRY(train_data_gather(d, false, chunk->query, chunk->n_query, r->x_query, f));
    gather_answers(d, chunk->context, chunk->n_context, r->y_context, r->t_context);
    gather_answers(d, chunk->query, chunk->n_query, r->y_query, r->t_query);
    r->parts[0] = train_data_columns(d, r->x_context, chunk->n_context);
    r->parts[1] = train_data_columns(d, r->x_query, chunk->n_query);
    TRY(trainer_ensemble_open(t, ENSEMBLE_FINETUNING, &r->parts[0], r->y_context, r->t_context, &r->parts[1],
                              &r->ensemble, f));
    r->chunk = chunk;
fail:
    return error;
}

/* ---- the loss ---- */

static int prepare_labels(struct trainer *t, const struct model_input *input, size_t estimator, double scale,
                          struct tabft_failure *f)
{
    const struct item_room *r = &t->room;
    struct model_target target = {
        .y_query = r->y_query,
        .class_permutation = ensemble_class_permutation(r->ensemble, estimator),
        .n_classes = t->data.n_classes,
        .scale = scale,
    };
    return model_gradient_prepare(r->run, input, &target, f);
}

static int prepare_targets(struct trainer *t, const struct model_input *input, size_t estimator, double scale,
                           struct tabft_failure *f)
{
    const struct item_room *r = &t->room;
    const struct train_losses *w = &t->o->losses;
    ensemble_transform_targets(r->ensemble, estimator, r->t_query, input->shape.n_query, r->z_query);
    (void)ensemble_borders(r->ensemble, estimator, t->borders, model_outputs(t->model) + 1, r->own_borders,
                           r->impossible);
    struct model_regression_target target = {
        .y_query = r->z_query,
        .impossible = r->impossible,
        .temperature = ensemble_temperature(r->ensemble),
        .ce = w->ce,
        .crps = w->crps,
        .crls = w->crls,
        .mse = w->mse,
        .mae = w->mae,
        .mse_most = w->mse_clip > 0 ? w->mse_clip : (double)INFINITY,
        .mae_most = w->mae_clip > 0 ? w->mae_clip : (double)INFINITY,
        .scale = scale,
    };
    return model_gradient_prepare_regression(r->run, input, &target, f);
}

int item_gather(struct trainer *t, const struct chunk *chunk, size_t estimator, struct tabft_failure *f)
{
    int error = 0;
    struct item_room *r = &t->room;
    const double start = trainer_clock();
    if (r->chunk != chunk) TRY(load_chunk(t, chunk, f));
    TRY(ensemble_call(r->ensemble, estimator, NULL, t->pool, &r->call, f));
    r->estimator = estimator;
    t->seconds.preprocess += trainer_clock() - start;
fail:
    return error;
}

int item_encode(struct trainer *t, size_t n_items, struct tabft_failure *f)
{
    int error = 0;
    struct item_room *r = &t->room;
    const double start = trainer_clock(), scale = 1 / (double)n_items;
    const struct model_input input = {
        .shape = {.n_context = r->call.n_context, .n_query = r->call.n_query, .n_columns = r->call.n_columns},
        .x = r->call.x,
        .y_context = r->call.y_context,
    };
    if (t->data.is_regression) TRY(prepare_targets(t, &input, r->estimator, scale, f));
    else TRY(prepare_labels(t, &input, r->estimator, scale, f));
    t->seconds.preprocess += trainer_clock() - start;
fail:
    ensemble_call_clear(&r->call);
    return error;
}

int item_start(struct trainer *t, float *gradient, bool add, struct tabft_failure *f)
{
    return model_gradient_start(t->room.run, t->values, gradient, add, f);
}

int item_finish(struct trainer *t, double *loss, struct tabft_failure *f)
{
    double forward, backward;
    const int error = model_gradient_finish(t->room.run, loss, f);
    if (error < 0) return error;
    model_run_seconds(t->room.run, &forward, &backward);
    t->seconds.forward += forward;
    t->seconds.backward += backward;
    return 0;
}
