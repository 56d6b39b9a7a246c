/* One training step: this rank's items one after the other, the sum over all ranks' items, the update. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "comm/comm.h"
#include "train/train_internal.h"

bool step_must_skip(const struct trainer *t, const struct chunk *chunk, size_t *missing)
{
    size_t n = t->data.n_classes; /* none for regression */
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

bool step_targets_equal(const struct trainer *t, const struct chunk *chunk)
{
    if (!t->data.is_regression) return false;
    const double *target = t->data.train_target, first = target[chunk->context[0]];
    for (size_t i = 1; i < chunk->n_context; i++)
        if (target[chunk->context[i]] != first) return false;
    return true;
}

/* ---- time ---- */

enum { MARK_SUM = MARK_CALLER, MARK_SUM_END, MARK_OPTIMISER, MARK_OPTIMISER_END };

static void mark(struct trainer *t, unsigned place) { t->backend.mark(t->backend.state, place); }

static double seconds_of(struct trainer *t, unsigned place)
{
    return t->backend.between(t->backend.state, place, place + 1);
}

/* What the last item's sum took; the backend has finished since. */
static void read_sum(struct trainer *t)
{
    if (t->summing) t->seconds.reduce += seconds_of(t, MARK_SUM);
    t->summing = false;
}

/* ---- a step ---- */

static const struct chunk *chunk_of(const struct trainer *t, const struct step *s, size_t item)
{
    return s->chunk[item / (size_t)t->o->estimators];
}

/* Says of which item a failure is. */
static int of_item(const struct trainer *t, const struct step *s, size_t item, int code, struct tabft_failure *f)
{
    if (code < 0)
        (void)tabft_fail_prefix(f, "estimator %zu, chunk %zu, epoch %" PRIu64 ", step %" PRIu64,
                                item % (size_t)t->o->estimators, chunk_of(t, s, item)->id, s->epoch, s->number);
    return code;
}

static int gather_item(struct trainer *t, const struct step *s, size_t item, struct tabft_failure *f)
{
    return of_item(t, s, item, item_gather(t, chunk_of(t, s, item), item % (size_t)t->o->estimators, f), f);
}

/* An item that is gathered in a thread. */
struct gathering {
    struct trainer *t;
    const struct step *s;
    size_t item;
    int code;
    struct tabft_failure f;
};

static void *gather_beside(void *context)
{
    struct gathering *g = context;
    g->code = gather_item(g->t, g->s, g->item, &g->f);
    return NULL;
}

/* Its gradient goes straight into one of this rank's partial sums. */
static int start_item(struct trainer *t, size_t item, struct tabft_failure *f)
{
    float *gradient;
    bool add;
    const int error = reduce_place(t->reduce, item, &gradient, &add, f);
    return error < 0 ? error : item_start(t, gradient, add, f);
}

/* Starts an item and gathers the next one, if there is one: its failure stays in *next. A GPU takes no more calls than it
 * has room for, so that starting an item can take almost as long as computing it: the next one is gathered in a thread
 * meanwhile. */
static int start_and_gather(struct trainer *t, size_t item, bool has_next, struct gathering *next,
                            struct tabft_failure *f)
{
    const bool beside = has_next && !t->backend.vectors.host;
    pthread_t thread;
    if (beside) {
        const int cause = pthread_create(&thread, NULL, gather_beside, next);
        if (cause != 0) return tabft_fail(f, TABFT_SYSTEM, "cannot start the thread that prepares: %s", strerror(cause));
    }
    const int error = start_item(t, item, f);
    if (beside) (void)pthread_join(thread, NULL);
    else if (error == 0 && has_next) (void)gather_beside(next);
    return error;
}

/* One item, which is prepared unless it is the first; while it runs, if it does so beside the host, the next one before
 * `end` is prepared. */
static int compute_item(struct trainer *t, const struct step *s, size_t item, bool first, size_t end,
                        struct tabft_failure *f)
{
    int error = 0;
    const bool has_next = item + 1 < end;
    struct gathering next = {.t = t, .s = s, .item = item + 1};
    if (first) TRY(gather_item(t, s, item, f));
    if (first) TRY(of_item(t, s, item, item_encode(t, t->reduce_n, f), f));
    TRY(of_item(t, s, item, start_and_gather(t, item, has_next, &next, f), f));
    if (has_next && next.code == 0)
        next.code = of_item(t, s, item + 1, item_encode(t, t->reduce_n, &next.f), &next.f);
    TRY(of_item(t, s, item, item_finish(t, &t->loss[item], f), f));
    read_sum(t);
    mark(t, MARK_SUM);
    reduce_placed(t->reduce);
    mark(t, MARK_SUM_END);
    t->summing = true;
    if (next.code < 0) FAIL(f, next.code, "%s", next.f.message);
fail:
    return error;
}

/* Rounds of one item a rank. Between rounds the ranks agree, so that a failure is known soon and no rank waits longer
 * than one item takes, whatever the shares. */
static int compute_items(struct trainer *t, const struct step *s, struct tabft_failure *f)
{
    int error = 0;
    size_t begin, end, rounds = (t->reduce_n + (size_t)comm_size(t->c) - 1) / (size_t)comm_size(t->c);
    reduce_items(t->reduce, &begin, &end);
    for (size_t round = 0; round < rounds; round++) {
        int code = begin + round < end ? compute_item(t, s, begin + round, round == 0, end, f) : 0;
        TRY(trainer_agree(t, code, f));
    }
fail:
    item_room_clear(t);
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
    TRY(reduce_open(&t->reduce, t->c, &t->vectors, n_items, t->n_parameters, f));
fail:
    return error;
}

int step_take(struct trainer *t, const struct step *s, struct step_outcome *out, struct tabft_failure *f)
{
    int error = 0;
    double squares, loss = 0;
    float *gradient;
    t->seconds = (struct step_seconds){0};
    t->summing = false;
    TRY(trainer_agree(t, fit_reduction(t, s->n_chunks * (size_t)t->o->estimators, f), f));
    TRY(compute_items(t, s, f));
    const double start = trainer_clock();
    TRY(reduce_item_values(t->reduce, t->loss, f));
    for (size_t i = 0; i < t->reduce_n; i++) loss += t->loss[i];
    TRY(reduce_finish(t->reduce, &gradient, f));
    TRY(reduce_square_sum(t->reduce, gradient, &squares, f));
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
    mark(t, MARK_OPTIMISER);
    optimiser_step(t->optimiser, &update, t->values + t->slice_begin, gradient);
    mark(t, MARK_OPTIMISER_END);
    TRY(reduce_gather(t->reduce, t->values, f));
    TRY(t->vectors.finish(t->vectors.state, f));
    read_sum(t);
    t->seconds.optimiser = seconds_of(t, MARK_OPTIMISER);
    t->seconds.reduce += trainer_clock() - start - t->seconds.optimiser;
    out->seconds = t->seconds;
fail:
    return error;
}
