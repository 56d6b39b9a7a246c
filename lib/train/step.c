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

enum { MARK_SUM = MARK_CALLER, MARK_SUM_END, MARK_OPTIMISER = MARK_SUM + 4, MARK_OPTIMISER_END };

static void mark(struct trainer *t, unsigned place) { t->backend.mark(t->backend.state, place); }

static double seconds_of(struct trainer *t, unsigned place)
{
    return t->backend.between(t->backend.state, place, place + 1);
}

/* Of an item's sum; as items, two may be under way. */
static unsigned sum_of(size_t item) { return MARK_SUM + 2 * (unsigned)(item % 2); }

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

/* This rank's items of a step, in order: those before `done` have been waited for, those before `next` were started.
 * `gathering`: what came of gathering `next`. */
struct queue {
    struct trainer *t;
    const struct step *s;
    size_t done, next, end;
    bool encoded; /* `next` is */
    struct gathering gathering;
};

/* Its gradient goes straight into one of this rank's partial sums, and these are summed where the tree says so. */
static int start_item(struct trainer *t, size_t item, struct tabft_failure *f)
{
    int error = 0;
    float *gradient;
    bool add;
    TRY(reduce_place(t->reduce, item, &gradient, &add, f));
    TRY(item_start(t, gradient, add, f));
    mark(t, sum_of(item));
    reduce_placed(t->reduce);
    mark(t, sum_of(item) + 1);
fail:
    return error;
}

/* Starts the next item and gathers the one behind it, if there is one: its failure stays in `gathering`. A GPU takes no
 * more calls than it has room for, so that starting an item can take almost as long as computing it: the other one is
 * gathered in a thread meanwhile. */
static int start_and_gather(struct queue *q, struct tabft_failure *f)
{
    const bool more = q->next + 1 < q->end, beside = more && !q->t->backend.vectors.host;
    pthread_t thread;
    q->gathering = (struct gathering){.t = q->t, .s = q->s, .item = q->next + 1};
    if (beside) {
        const int cause = pthread_create(&thread, NULL, gather_beside, &q->gathering);
        if (cause != 0)
            return tabft_fail(f, TABFT_SYSTEM, "cannot start the thread that prepares: %s", strerror(cause));
    }
    const int error = of_item(q->t, q->s, q->next, start_item(q->t, q->next, f), f);
    if (beside) (void)pthread_join(thread, NULL);
    else if (error == 0 && more) (void)gather_beside(&q->gathering);
    q->next++;
    q->encoded = false;
    return error;
}

/* Encodes the next item where there is one and a place for it: that of the item before the last that was started. */
static int encode_next(struct queue *q, struct tabft_failure *f)
{
    if (q->next == q->end || q->encoded || q->next - q->done > 1) return 0;
    if (q->gathering.code < 0) return tabft_fail(f, q->gathering.code, "%s", q->gathering.f.message);
    q->encoded = true;
    return of_item(q->t, q->s, q->next, item_encode(q->t, q->t->reduce_n, f), f);
}

/* Waits for the first item that was started. */
static int finish_item(struct queue *q, struct tabft_failure *f)
{
    struct trainer *t = q->t;
    const size_t item = q->done++;
    int error = item_finish(t, &t->loss[item], f);
    if (error == 0) error = t->backend.wait(t->backend.state, sum_of(item) + 1, f);
    if (error < 0) return of_item(t, q->s, item, error, f);
    t->seconds.reduce += seconds_of(t, sum_of(item));
    return 0;
}

/* One more item is done. A GPU has all of the next one to do by then: it never waits for the host. */
static int compute_item(struct queue *q, struct tabft_failure *f)
{
    int error = 0;
    const size_t ahead = q->t->backend.vectors.host ? 0 : 1;
    while (q->next < q->end && q->next - q->done <= ahead) {
        TRY(start_and_gather(q, f));
        TRY(encode_next(q, f));
    }
    TRY(finish_item(q, f));
    TRY(encode_next(q, f));
fail:
    return error;
}

/* The first item of a step, before it is started. */
static int prepare_first(struct queue *q, struct tabft_failure *f)
{
    q->gathering = (struct gathering){.t = q->t, .s = q->s, .item = q->next};
    (void)gather_beside(&q->gathering);
    return encode_next(q, f);
}

/* Rounds of one item a rank. Between rounds the ranks agree, so that a failure is known soon and no rank waits longer
 * than one item takes, whatever the shares. */
static int compute_items(struct trainer *t, const struct step *s, struct tabft_failure *f)
{
    int error = 0;
    const size_t rounds = (t->reduce_n + (size_t)comm_size(t->c) - 1) / (size_t)comm_size(t->c);
    struct queue q = {.t = t, .s = s};
    reduce_items(t->reduce, &q.done, &q.end);
    q.next = q.done;
    for (size_t round = 0; round < rounds; round++) {
        int code = 0;
        if (q.done < q.end && round == 0) code = prepare_first(&q, f);
        if (q.done < q.end && code == 0) code = compute_item(&q, f);
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
    t->seconds.optimiser = seconds_of(t, MARK_OPTIMISER);
    t->seconds.reduce += trainer_clock() - start - t->seconds.optimiser;
    out->seconds = t->seconds;
fail:
    return error;
}
