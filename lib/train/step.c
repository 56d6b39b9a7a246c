/* One training step: this rank's items one after the other, the sum over all ranks' items, the update. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "train/train_internal.h"

int step_room_open(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    const struct model_shape s = t->train_shape;
    size_t cells_context, cells_query, begin, end;
    reduce_share(t->plan.n_items, comm_size(t->c), comm_rank(t->c), &begin, &end);
    if (begin == end || t->run != NULL) return 0;
    if (!size_mul(s.n_context, t->data.n_columns, &cells_context) ||
        !size_mul(s.n_query, t->data.n_columns, &cells_query))
        FAIL(f, TABFT_SYSTEM, "a chunk of %zu rows and %zu columns is too large", s.n_context + s.n_query,
             t->data.n_columns);
    TRY(memory_new(&t->x_context, cells_context, sizeof *t->x_context, "a chunk's context", f));
    TRY(memory_new(&t->x_query, cells_query, sizeof *t->x_query, "a chunk's queries", f));
    TRY(memory_new(&t->y_context, s.n_context, sizeof *t->y_context, "a chunk's labels", f));
    TRY(memory_new(&t->y_query, s.n_query, sizeof *t->y_query, "a chunk's labels", f));
    TRY(model_run_open(&t->run, t->model, s, t->plan.recompute, true, t->pool, f));
    return 0;
fail:
    step_room_close(t);
    return error;
}

void step_room_close(struct trainer *t)
{
    model_run_close(t->run);
    t->run = NULL;
    free(t->x_context);
    free(t->x_query);
    free(t->y_context);
    free(t->y_query);
    t->x_context = t->x_query = NULL;
    t->y_context = t->y_query = NULL;
}

bool step_must_skip(const struct trainer *t, const struct chunk *chunk, size_t *missing)
{
    size_t n = t->data.n_classes;
    for (size_t class = 0; class < n; class ++) {
        bool asked = false, shown = false;
        for (size_t i = 0; i < chunk->n_query && !asked; i++)
            asked = (size_t)t->data.train_label[chunk->query[i]] == class;
        /* The context is compared as the networks see it, permuted, and the query as it is: TabPFN's rule. */
        for (size_t i = 0; asked && i < chunk->n_context && !shown; i++)
            for (size_t e = 0; e < (size_t)t->o->estimators && !shown; e++)
                shown = (size_t)t->permutation[e * n + (size_t)t->data.train_label[chunk->context[i]]] == class;
        if (asked && !shown) {
            *missing = class;
            return true;
        }
    }
    return false;
}

/* The chunk whose rows lie in the trainer's matrices, with its estimators. */
struct loaded {
    const struct chunk *chunk; /* NULL: none */
    struct ensemble *ensemble;
    struct ensemble_columns context, query;
};

static int load_chunk(struct trainer *t, struct loaded *l, const struct chunk *chunk, struct tabft_failure *f)
{
    int error = 0;
    const struct train_data *d = &t->data;
    struct ensemble_options options = trainer_ensemble(t, ENSEMBLE_FINETUNING);
    ensemble_close(l->ensemble);
    *l = (struct loaded){.context = {.n_rows = chunk->n_context, .n_columns = d->n_columns, .x = t->x_context},
                         .query = {.n_rows = chunk->n_query, .n_columns = d->n_columns, .x = t->x_query}};
    train_data_gather(d, false, chunk->context, chunk->n_context, t->x_context);
    train_data_gather(d, false, chunk->query, chunk->n_query, t->x_query);
    for (size_t i = 0; i < chunk->n_context; i++) t->y_context[i] = d->train_label[chunk->context[i]];
    for (size_t i = 0; i < chunk->n_query; i++) t->y_query[i] = d->train_label[chunk->query[i]];
    TRY(ensemble_open(&l->ensemble, &options, &l->context, t->y_context, &l->query, f));
    l->chunk = chunk;
fail:
    return error;
}

/* One forward and backward; its gradient joins this rank's partial sums. */
static int compute_item(struct trainer *t, const struct step *s, struct loaded *l, size_t item, struct tabft_failure *f)
{
    int error = 0;
    size_t estimator = item % (size_t)t->o->estimators;
    const struct chunk *chunk = s->chunk[item / (size_t)t->o->estimators];
    struct ensemble_call call = {0};
    if (l->chunk != chunk) TRY(load_chunk(t, l, chunk, f));
    TRY(ensemble_call(l->ensemble, estimator, NULL, t->pool, &call, f));
    struct model_input input = {
        .shape = {.n_context = call.n_context, .n_query = call.n_query, .n_columns = call.n_columns},
        .x = call.x,
        .y_context = call.y_context,
    };
    struct model_target target = {
        .y_query = t->y_query,
        .class_permutation = ensemble_class_permutation(l->ensemble, estimator),
        .n_classes = t->data.n_classes,
        .scale = 1 / (double)t->reduce_n,
    };
    TRY(model_gradient(t->run, t->weights, &input, &target, &t->loss[item], t->gradient, f));
    TRY(reduce_add(t->reduce, item, t->gradient, f));
fail:
    ensemble_call_clear(&call);
    if (error < 0)
        (void)tabft_fail_prefix(f, "estimator %zu, chunk %zu, epoch %" PRIu64 ", step %" PRIu64, estimator, chunk->id,
                                s->epoch, s->number);
    return error;
}

/* Rounds of one item a rank. Between rounds the ranks agree, so that a failure is known soon and no rank waits longer
 * than one item takes, whatever the shares. */
static int compute_items(struct trainer *t, const struct step *s, struct tabft_failure *f)
{
    int error = 0;
    struct loaded l = {0};
    size_t begin, end, rounds = (t->reduce_n + (size_t)comm_size(t->c) - 1) / (size_t)comm_size(t->c);
    reduce_items(t->reduce, &begin, &end);
    for (size_t round = 0; round < rounds; round++) {
        int code = begin + round < end ? compute_item(t, s, &l, begin + round, f) : 0;
        TRY(trainer_agree(t, code, f));
    }
fail:
    ensemble_close(l.ensemble);
    return error;
}

/* The last step of an epoch may have fewer chunks; slices do not depend on the number of items, so moments stay. */
static int fit_reduction(struct trainer *t, size_t n_items, struct tabft_failure *f)
{
    int error = 0;
    if (t->reduce_n == n_items) return 0;
    reduce_close(t->reduce);
    t->reduce = NULL;
    t->reduce_n = n_items;
    TRY(reduce_open(&t->reduce, t->c, t->pool, n_items, t->n_parameters, f));
fail:
    return error;
}

int step_take(struct trainer *t, const struct step *s, struct step_outcome *out, struct tabft_failure *f)
{
    int error = 0;
    double squares, loss = 0;
    TRY(trainer_agree(t, fit_reduction(t, s->n_chunks * (size_t)t->o->estimators, f), f));
    TRY(compute_items(t, s, f));
    TRY(reduce_item_values(t->reduce, t->loss, f));
    for (size_t i = 0; i < t->reduce_n; i++) loss += t->loss[i];
    TRY(reduce_finish(t->reduce, t->gradient, f));
    TRY(reduce_square_sum(t->reduce, t->gradient, &squares, f));
    *out = (struct step_outcome){.loss = loss, .norm = sqrt(squares)};
    if (!isfinite(out->norm)) {
        /* Every rank has the same bits here, so all say so. */
        error = tabft_fail(f, TABFT_INPUT,
                           "epoch %" PRIu64 ", step %" PRIu64 ": the gradient's norm is not finite; lower --lr",
                           s->epoch, s->number);
        TRY(trainer_agree(t, error, f));
    }
    struct optimiser_step update = {
        .learning_rate = s->learning_rate,
        .weight_decay = t->o->weight_decay,
        .clip = optimiser_clip(out->norm, t->o->clip),
    };
    optimiser_step(t->optimiser, &update, t->weights + t->slice_begin, t->gradient, t->pool);
    TRY(reduce_gather(t->reduce, t->weights, f));
fail:
    return error;
}
