/* One forward or backward at a time: a tape recorded for the shape at hand, run in memory planned for the largest; and
 * queries in blocks against a context that is kept. What the network is given and what it gives cross between the
 * host's memory and the backend's here and nowhere else. */
#define TABFT_MODEL_ROOM
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/model_internal.h"

struct model_run {
    const struct model *m;
    struct model_shape largest;
    const struct tensor_backend *backend;
    struct tape_plan *forward, *backward; /* backward: NULL where only forward was asked for */
    struct tape_plan *context;            /* of a run that keeps contexts, whose forward is that of queries alone */
    bool keeps, has_context;
    struct model_shape kept; /* of the context that is kept */
    struct tape_memory memory;
    void *inputs[2];        /* of the host, in turn memory.inputs: one is filled while calls may still read the other; a
                               kept context's is the second */
    double *sums;           /* in the backend's block: of the gradient's squares, which tell whether all is finite */
    double *outcome[2];     /* on the host, in turn: the loss, then the sums */
    struct tape *prepared;  /* whose inputs are filled; NULL: none */
    size_t n_begun, n_done; /* gradients that were started, and waited for */
    size_t n_started;       /* logits of the forward call that was started; 0: none */
    bool *used;             /* [largest.n_columns] */
};

static size_t blocks_of(size_t n_parameters) { return (n_parameters + VECTORS_BLOCK - 1) / VECTORS_BLOCK; }

/* Records a call. */
static int record(const struct model *m, const struct model_call_shape *shape, struct tape **t, struct model_tape *io,
                  struct tabft_failure *f)
{
    int error = tape_open(t, f);
    io->logits = TAPE_NONE;
    io->part = shape->part;
    if (error == 0) m->architecture->record(m, shape, *t, io);
    return error;
}

/* A shape that the network can be called with: bounded so that no product of sizes wraps before the tape checks it. */
static int check_shape(const struct model *m, const struct model_shape *s, struct tabft_failure *f)
{
    const size_t most = (size_t)1 << 31;
    if (s->n_context < 1 || s->n_query < 1)
        return tabft_fail(f, TABFT_INPUT, "%zu context and %zu query rows: the network needs at least one of each",
                          s->n_context, s->n_query);
    if (s->n_context > most || s->n_query > most || s->n_columns > most)
        return tabft_fail(f, TABFT_SYSTEM, "%zu + %zu rows of %zu columns do not fit this machine; use fewer rows",
                          s->n_context, s->n_query, s->n_columns);
    if (m->config.groups_overlap && s->n_columns < 1)
        return tabft_fail(f, TABFT_INPUT, "no columns: the network needs at least one");
    size_t rows = s->n_context + s->n_query + m->config.thinking_rows, cells;
    if (!size_mul(rows, s->n_columns + m->config.group_features + m->config.stages.row_tokens + 1, &cells) ||
        cells > SIZE_MAX / 64 / (m->config.width + 64))
        return tabft_fail(f, TABFT_SYSTEM, "%zu rows of %zu columns do not fit this machine; use fewer rows", rows,
                          s->n_columns);
    return 0;
}

/* Plans a part of the network for the largest shape, with backward or forward alone. *out stays NULL for a part that
 * has nothing to compute. */
static int make_plan(const struct model *m, struct model_shape largest, enum model_part part,
                     const struct tensor_backend *backend, bool with_backward, size_t room, struct tape_plan **out,
                     struct tape_sizes *sizes, struct tabft_failure *f)
{
    int error = 0;
    struct tape *t = NULL;
    struct model_tape io;
    const struct encode_sizes s = encode_sizes_of(m, &largest);
    const struct op_bar_loss bars = {.scale = 1.0, .temperature = 1.0, .ce = 1.0};
    const bool classifies = model_task(m) == MODEL_CLASSIFICATION;
    const struct model_call_shape shape = {.n_context = largest.n_context,
                                           .n_query = part == MODEL_CONTEXT ? 0 : largest.n_query,
                                           .n_groups = encode_groups(&s, largest.n_columns),
                                           .part = part,
                                           .n_classes = with_backward && classifies ? model_outputs(m) : 0,
                                           .scale = 1.0,
                                           .bars = with_backward && !classifies ? &bars : NULL};
    TRY(record(m, &shape, &t, &io, f));
    const struct tape_options options = {.backward = with_backward,
                                         .recompute = room != MODEL_RECOMPUTE_NONE,
                                         .room = room,
                                         .last = with_backward ? io.loss : io.logits};
    *sizes = (struct tape_sizes){0};
    if (options.last != TAPE_NONE) TRY(tape_plan_open(out, t, backend, options, sizes, f));
fail:
    tape_close(t);
    return error;
}

/* Of two plans that never run at the same time. */
static void take_larger(struct tape_sizes *sizes, const struct tape_sizes *other)
{
    const size_t inputs = sizes->inputs > other->inputs ? sizes->inputs : other->inputs;
    if (other->total > sizes->total) *sizes = *other;
    sizes->inputs = inputs;
}

static size_t sums_bytes(const struct model *m) { return blocks_of(m->n_values) * sizeof(double); }
static size_t outcome_bytes(const struct model *m) { return sums_bytes(m) + sizeof(double); }

/* Both plans in one block of memory: the forward plan needs less, and they never run at the same time. With backward,
 * the sums of the gradient's squares lie behind them. */
static int make_plans(const struct model *m, struct model_shape largest, const struct tensor_backend *backend,
                      bool backward, size_t recompute, struct tape_plan *plans[2], struct tape_sizes *sizes,
                      struct tabft_failure *f)
{
    struct tape_sizes one;
    int error = 0;
    TRY(check_shape(m, &largest, f));
    TRY(make_plan(m, largest, MODEL_WHOLE, backend, false, MODEL_RECOMPUTE_NONE, &plans[0], sizes, f));
    if (!backward) return 0;
    TRY(loss_check_borders(m, f));
    /* The room is the whole run's. */
    if (recompute != MODEL_RECOMPUTE_NONE) recompute = recompute > sums_bytes(m) ? recompute - sums_bytes(m) : 0;
    TRY(make_plan(m, largest, MODEL_WHOLE, backend, true, recompute, &plans[1], &one, f));
    take_larger(sizes, &one);
    sizes->work = one.work;
    if (!size_add(sizes->total, sums_bytes(m), &sizes->total))
        FAIL(f, TABFT_SYSTEM, "a run's memory does not fit this machine; use fewer rows");
fail:
    return error;
}

/* The plans of queries and of their context, which never run at the same time either, beside what is kept. */
static int make_kept_plans(const struct model *m, struct model_shape largest, const struct tensor_backend *backend,
                           struct tape_plan *plans[2], struct tape_sizes *sizes, struct tabft_failure *f)
{
    struct tape_sizes context;
    int error = 0;
    TRY(check_shape(m, &largest, f));
    TRY(make_plan(m, largest, MODEL_QUERY, backend, false, MODEL_RECOMPUTE_NONE, &plans[0], sizes, f));
    TRY(make_plan(m, largest, MODEL_CONTEXT, backend, false, MODEL_RECOMPUTE_NONE, &plans[1], &context, f));
    assert(context.kept == sizes->kept);
    take_larger(sizes, &context);
fail:
    return error;
}

/* What the host holds for a run: inputs for copies, with backward or a kept context two of them, and outcomes. */
static int host_bytes(const struct model *m, const struct tape_sizes *sizes, bool backward, bool keeps, size_t *out,
                      struct tabft_failure *f)
{
    if (size_mul(sizes->inputs, backward || keeps ? 2 : 1, out) &&
        size_add(*out, backward ? 2 * outcome_bytes(m) : 0, out))
        return 0;
    return tabft_fail(f, TABFT_SYSTEM, "the inputs do not fit this machine; use fewer rows");
}

int model_plan_kept(const struct model *m, struct model_shape largest, const struct tensor_backend *backend,
                    struct model_plan *plan, struct tabft_failure *f)
{
    int error = 0;
    struct tape_plan *plans[2] = {NULL, NULL};
    struct tape_sizes sizes;
    TRY(make_kept_plans(m, largest, backend, plans, &sizes, f));
    *plan = (struct model_plan){.weights = m->n_values * sizeof(float), .scratch = sizes.scratch, .kept = sizes.kept};
    TRY(host_bytes(m, &sizes, false, true, &plan->host, f));
    if (!size_add(sizes.activations, sizes.kept, &plan->activations) ||
        !size_add(sizes.total, sizes.kept, &plan->total))
        FAIL(f, TABFT_SYSTEM, "what is kept of a context does not fit this machine; use fewer rows");
fail:
    tape_plan_close(plans[0]);
    tape_plan_close(plans[1]);
    return error;
}

int model_plan(const struct model *m, struct model_shape shape, size_t recompute, bool backward,
               const struct tensor_backend *backend, struct model_plan *plan, struct tabft_failure *f)
{
    int error = 0;
    struct tape_plan *plans[2] = {NULL, NULL};
    struct tape_sizes sizes;
    TRY(make_plans(m, shape, backend, backward, recompute, plans, &sizes, f));
    *plan = (struct model_plan){.weights = m->n_values * sizeof(float),
                                .activations = sizes.activations,
                                .scratch = sizes.total - sizes.activations,
                                .total = sizes.total,
                                .flops = sizes.work.flops,
                                .bytes = sizes.work.bytes};
    TRY(host_bytes(m, &sizes, backward, false, &plan->host, f));
fail:
    tape_plan_close(plans[0]);
    tape_plan_close(plans[1]);
    return error;
}

/* ---- opening ---- */

/* A run without plans. On failure nothing is left. */
static int run_new(struct model_run **out, const struct model *m, struct model_shape largest,
                   const struct tensor_backend *backend, struct tabft_failure *f)
{
    int error = 0;
    struct model_run *run = NULL;
    TRY(memory_new(&run, 1, sizeof *run, "a run", f));
    run->m = m;
    run->largest = largest;
    run->backend = backend;
    TRY(memory_new(&run->used, largest.n_columns, sizeof *run->used, "a run", f));
    *out = run;
    run = NULL;
fail:
    model_run_close(run);
    return error;
}

static int host_memory_new(struct model_run *run, void **out, size_t bytes, struct tabft_failure *f)
{
    const struct tensor_backend *b = run->backend;
    return b->vectors.host ? memory_new(out, bytes, 1, "a run", f) : b->staging_new(b->state, out, bytes, f);
}

static void host_memory_free(struct model_run *run, void *memory)
{
    const struct tensor_backend *b = run->backend;
    if (b->vectors.host) free(memory);
    else b->staging_free(b->state, memory);
}

static int take_memory(struct model_run *run, const struct tape_sizes *sizes, struct tabft_failure *f)
{
    int error = 0;
    const struct vectors *v = &run->backend->vectors;
    TRY(v->memory_new(v->state, &run->memory.block, sizes->total, "the tensors", f));
    if (sizes->kept > 0) TRY(v->memory_new(v->state, &run->memory.kept, sizes->kept, "what is kept of a context", f));
    for (int i = 0; !v->host && i < (run->backward != NULL || run->keeps ? 2 : 1); i++)
        TRY(host_memory_new(run, &run->inputs[i], sizes->inputs, f));
    run->memory.inputs = run->inputs[0];
    if (run->backward == NULL) return 0;
    run->sums = (double *)(void *)((char *)run->memory.block + (sizes->total - sums_bytes(run->m)));
    for (int i = 0; i < 2; i++) {
        void *outcome;
        TRY(host_memory_new(run, &outcome, outcome_bytes(run->m), f));
        run->outcome[i] = outcome;
    }
fail:
    return error;
}

int model_run_open(struct model_run **out, const struct model *m, struct model_shape largest, size_t recompute,
                   bool backward, const struct tensor_backend *backend, struct tabft_failure *f)
{
    int error = 0;
    struct model_run *run = NULL;
    struct tape_plan *plans[2] = {NULL, NULL};
    struct tape_sizes sizes;
    TRY(run_new(&run, m, largest, backend, f));
    error = make_plans(m, largest, backend, backward, recompute, plans, &sizes, f);
    run->forward = plans[0];
    run->backward = plans[1];
    TRY(error);
    TRY(take_memory(run, &sizes, f));
    *out = run;
    run = NULL;
fail:
    model_run_close(run);
    return error;
}

int model_run_open_kept(struct model_run **out, const struct model *m, struct model_shape largest,
                        const struct tensor_backend *backend, struct tabft_failure *f)
{
    int error = 0;
    struct model_run *run = NULL;
    struct tape_plan *plans[2] = {NULL, NULL};
    struct tape_sizes sizes;
    TRY(run_new(&run, m, largest, backend, f));
    run->keeps = true;
    error = make_kept_plans(m, largest, backend, plans, &sizes, f);
    run->forward = plans[0];
    run->context = plans[1];
    TRY(error);
    TRY(take_memory(run, &sizes, f));
    *out = run;
    run = NULL;
fail:
    model_run_close(run);
    return error;
}

void model_run_close(struct model_run *run)
{
    if (run == NULL) return;
    const struct vectors *v = &run->backend->vectors;
    v->memory_free(v->state, run->memory.block);
    v->memory_free(v->state, run->memory.kept);
    for (int i = 0; i < 2; i++) {
        host_memory_free(run, run->inputs[i]);
        host_memory_free(run, run->outcome[i]);
    }
    tape_close(run->prepared);
    tape_plan_close(run->forward);
    tape_plan_close(run->backward);
    tape_plan_close(run->context);
    free(run->used);
    free(run);
}

/* ---- forward ---- */

static int check_input(const struct model_run *run, const struct model_input *input, struct tabft_failure *f)
{
    const struct model_shape *s = &input->shape, *l = &run->largest;
    int error = check_shape(run->m, s, f);
    if (error < 0) return error;
    if (s->n_context > l->n_context || s->n_query > l->n_query || s->n_columns > l->n_columns)
        return tabft_fail(f, TABFT_USE,
                          "%zu + %zu rows of %zu columns in a run planned for %zu + %zu rows of %zu columns",
                          s->n_context, s->n_query, s->n_columns, l->n_context, l->n_query, l->n_columns);
    if (model_task(run->m) != MODEL_CLASSIFICATION) return 0;
    for (size_t i = 0; i < s->n_context; i++)
        if (!(input->y_context[i] >= 0 && input->y_context[i] < (float)model_outputs(run->m) &&
              input->y_context[i] == floorf(input->y_context[i])))
            return tabft_fail(f, TABFT_INPUT, "context row %zu: class code %g; the network knows 0 to %zu", i,
                              (double)input->y_context[i], model_outputs(run->m) - 1);
    return 0;
}

static struct model_call_shape call_shape(struct model_run *run, const struct model_input *input, enum model_part part)
{
    const struct encode_sizes s = encode_sizes_for(run->m, input, part);
    return (struct model_call_shape){.n_context = s.n_context,
                                     .n_query = s.n_query,
                                     .n_groups = encode_groups(&s, encode_columns(&s, input->x, run->used)),
                                     .part = part,
                                     .scale = 1.0};
}

/* Records a part for an input, fills its inputs and computes it by the plan that is for it. */
static int run_part(struct model_run *run, enum model_part part, const struct tape_plan *plan, const float *values,
                    const struct model_input *input, struct tabft_failure *f)
{
    int error = 0;
    struct tape *t = NULL;
    struct model_tape io;
    const struct model_call_shape shape = call_shape(run, input, part);
    TRY(record(run->m, &shape, &t, &io, f));
    run->m->architecture->fill(run->m, plan, &run->memory, &io, input, run->used);
    TRY(tape_run(plan, t, run->backend, &run->memory, 0, values, NULL, f));
fail:
    tape_close(t);
    return error;
}

int model_keep_context(struct model_run *run, const float *values, const struct model_input *input,
                       struct tabft_failure *f)
{
    int error = 0;
    struct model_input alone = *input;
    assert(run->keeps && run->n_started == 0);
    alone.queries_alone = true;
    alone.shape.n_query = 1; /* none is looked at */
    run->has_context = false;
    TRY(check_input(run, &alone, f));
    alone.shape.n_query = 0;
    run->memory.inputs = run->inputs[1];
    if (run->context != NULL) TRY(run_part(run, MODEL_CONTEXT, run->context, values, &alone, f));
    run->kept = alone.shape;
    run->has_context = true;
fail:
    return error;
}

int model_forward_start(struct model_run *run, const float *values, const struct model_input *input,
                        struct tabft_failure *f)
{
    int error = 0;
    struct model_input own = *input;
    assert(run->prepared == NULL && run->n_started == 0);
    own.queries_alone = own.queries_alone || run->keeps;
    TRY(check_input(run, &own, f));
    if (run->keeps && (!run->has_context || input->shape.n_context != run->kept.n_context ||
                       input->shape.n_columns != run->kept.n_columns))
        FAIL(f, TABFT_USE, "%zu context rows of %zu columns are not the context that was encoded",
             input->shape.n_context, input->shape.n_columns);
    run->memory.inputs = run->inputs[0];
    TRY(run_part(run, run->keeps ? MODEL_QUERY : MODEL_WHOLE, run->forward, values, &own, f));
    run->n_started = input->shape.n_query * model_outputs(run->m);
fail:
    return error;
}

int model_forward_finish(struct model_run *run, float *logits, struct tabft_failure *f)
{
    const struct vectors *v = &run->backend->vectors;
    assert(run->n_started > 0);
    v->copy_out(v->state, logits, tape_plan_last(run->forward, &run->memory), run->n_started * sizeof *logits);
    run->n_started = 0;
    return v->finish(v->state, f);
}

int model_forward(struct model_run *run, const float *values, const struct model_input *input, float *logits,
                  struct tabft_failure *f)
{
    const int error = model_forward_start(run, values, input, f);
    return error < 0 ? error : model_forward_finish(run, logits, f);
}

/* ---- backward ---- */

static unsigned turn_of(size_t call) { return (unsigned)(call % 2); }

static int prepare(struct model_run *run, const struct model_input *input, const struct loss_target *target,
                   struct tabft_failure *f)
{
    int error = 0;
    struct tape *t = NULL;
    struct model_tape io;
    struct op_bar_loss bars;
    assert(run->prepared == NULL && run->n_begun - run->n_done < 2);
    if (run->backward == NULL) FAIL(f, TABFT_USE, "this run was planned without backward");
    TRY(check_input(run, input, f));
    TRY(loss_check(run->m, input, target, f));
    struct model_call_shape shape = call_shape(run, input, MODEL_WHOLE);
    loss_shape(target, &bars, &shape);
    TRY(record(run->m, &shape, &t, &io, f));
    run->memory.inputs = run->inputs[turn_of(run->n_begun)];
    run->m->architecture->fill(run->m, run->backward, &run->memory, &io, input, run->used);
    loss_fill(run->m, run->backward, &run->memory, &io, input, target);
    run->prepared = t;
    t = NULL;
fail:
    tape_close(t);
    return error;
}

int model_gradient_prepare(struct model_run *run, const struct model_input *input, const struct model_target *target,
                           struct tabft_failure *f)
{
    return prepare(run, input, &(struct loss_target){.classes = target}, f);
}

int model_gradient_prepare_regression(struct model_run *run, const struct model_input *input,
                                      const struct model_regression_target *target, struct tabft_failure *f)
{
    return prepare(run, input, &(struct loss_target){.numbers = target}, f);
}

int model_gradient_start(struct model_run *run, const float *values, float *gradient, bool add, struct tabft_failure *f)
{
    int error = 0;
    const struct tensor_backend *b = run->backend;
    const struct vectors *v = &b->vectors;
    const size_t n = run->m->n_values;
    const unsigned turn = turn_of(run->n_begun);
    double *const outcome = run->outcome[turn];
    assert(run->prepared != NULL);
    if (!add) v->zero(v->state, gradient, n * sizeof *gradient);
    TRY(tape_run(run->backward, run->prepared, b, &run->memory, turn, values, gradient, f));
    v->square_sums(v->state, gradient, n, run->sums);
    v->copy_out(v->state, outcome, tape_plan_last(run->backward, &run->memory), sizeof *outcome);
    v->copy_out(v->state, outcome + 1, run->sums, sums_bytes(run->m));
    b->mark(b->state, turn * MARK_RUN + MARK_OUTCOME);
    run->n_begun++;
fail:
    tape_close(run->prepared);
    run->prepared = NULL;
    return error;
}

void model_run_seconds(const struct model_run *run, double *forward, double *backward)
{
    const struct tensor_backend *b = run->backend;
    const unsigned marks = turn_of(run->n_done - 1) * MARK_RUN;
    *forward = b->between(b->state, marks + MARK_FORWARD, marks + MARK_BACKWARD);
    *backward = b->between(b->state, marks + MARK_BACKWARD, marks + MARK_END);
}

int model_gradient_finish(struct model_run *run, double *loss, struct tabft_failure *f)
{
    int error = 0;
    const unsigned turn = turn_of(run->n_done);
    const double *const outcome = run->outcome[turn];
    assert(run->n_done < run->n_begun);
    run->n_done++;
    TRY(run->backend->wait(run->backend->state, turn * MARK_RUN + MARK_OUTCOME, f));
    *loss = outcome[0];
    if (!isfinite(*loss))
        FAIL(f, TABFT_INPUT,
             "the loss is not a finite number; the weights or the table hold numbers that are too large");
    /* A sum of finite numbers' squares is finite: float64 has room for far more of them. */
    for (size_t i = 0; i < blocks_of(run->m->n_values); i++)
        if (!isfinite(outcome[1 + i]))
            FAIL(f, TABFT_INPUT,
                 "a gradient is not a finite number; the weights or the table hold numbers that are too large");
fail:
    return error;
}

/* One gradient, when all is waited for. */
static int gradient_of(struct model_run *run, const float *values, const struct model_input *input,
                       const struct loss_target *target, bool add, double *loss, float *gradient,
                       struct tabft_failure *f)
{
    int error = 0;
    TRY(prepare(run, input, target, f));
    TRY(model_gradient_start(run, values, gradient, add, f));
    TRY(model_gradient_finish(run, loss, f));
fail:
    return error;
}

int model_gradient(struct model_run *run, const float *values, const struct model_input *input,
                   const struct model_target *target, double *loss, float *gradient, struct tabft_failure *f)
{
    return gradient_of(run, values, input, &(struct loss_target){.classes = target}, target->add, loss, gradient, f);
}

int model_gradient_regression(struct model_run *run, const float *values, const struct model_input *input,
                              const struct model_regression_target *target, double *loss, float *gradient,
                              struct tabft_failure *f)
{
    return gradient_of(run, values, input, &(struct loss_target){.numbers = target}, target->add, loss, gradient, f);
}
