/* One forward or backward at a time: a tape recorded for the shape at hand, run in memory planned for the largest; and
 * queries in blocks against a context that is kept. */
#define TABFT_MODEL_ROOM
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "model/model_internal.h"
#include "tensor/cpu/cpu.h"

struct model_run {
    const struct model *m;
    struct model_shape largest;
    struct tensor_backend backend;
    bool has_backend;
    struct tape_plan *forward, *backward; /* backward: NULL where only forward was asked for */
    struct tape_plan *context;            /* of a run that keeps contexts, whose forward is that of queries alone */
    bool keeps, has_context;
    struct model_shape kept; /* of the context that is kept */
    void *memory, *kept_memory;
    bool *used; /* [largest.n_columns] */
};

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
                     const struct tensor_backend *backend, bool with_backward, bool recompute, struct tape_plan **out,
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
                                         .recompute = recompute,
                                         .last = with_backward ? io.loss : io.logits};
    *sizes = (struct tape_sizes){0};
    if (options.last != TAPE_NONE) TRY(tape_plan_open(out, t, backend, options, sizes, f));
fail:
    tape_close(t);
    return error;
}

/* Both plans in one block of memory: the forward plan needs less, and they never run at the same time. */
static int make_plans(const struct model *m, struct model_shape largest, const struct tensor_backend *backend,
                      bool backward, bool recompute, struct tape_plan *plans[2], struct tape_sizes *sizes,
                      struct tabft_failure *f)
{
    struct tape_sizes one;
    int error = 0;
    TRY(check_shape(m, &largest, f));
    TRY(make_plan(m, largest, MODEL_WHOLE, backend, false, false, &plans[0], sizes, f));
    if (!backward) return 0;
    TRY(loss_check_borders(m, f));
    TRY(make_plan(m, largest, MODEL_WHOLE, backend, true, recompute, &plans[1], &one, f));
    if (one.total > sizes->total) *sizes = one;
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
    TRY(make_plan(m, largest, MODEL_QUERY, backend, false, false, &plans[0], sizes, f));
    TRY(make_plan(m, largest, MODEL_CONTEXT, backend, false, false, &plans[1], &context, f));
    assert(context.kept == sizes->kept);
    if (context.total > sizes->total) *sizes = context;
fail:
    return error;
}

int model_plan_kept(const struct model *m, struct model_shape largest, int n_threads, struct model_plan *plan,
                    struct tabft_failure *f)
{
    int error = 0;
    struct tensor_backend backend = {0};
    struct tape_plan *plans[2] = {NULL, NULL};
    struct tape_sizes sizes;
    TRY(cpu_backend_open_planning(&backend, n_threads, f));
    TRY(make_kept_plans(m, largest, &backend, plans, &sizes, f));
    *plan = (struct model_plan){.weights = m->n_values * sizeof(float), .scratch = sizes.scratch, .kept = sizes.kept};
    if (!size_add(sizes.activations, sizes.kept, &plan->activations) ||
        !size_add(sizes.total, sizes.kept, &plan->total))
        FAIL(f, TABFT_SYSTEM, "what is kept of a context does not fit this machine; use fewer rows");
fail:
    tape_plan_close(plans[0]);
    tape_plan_close(plans[1]);
    if (backend.close != NULL) backend.close(backend.state);
    return error;
}

int model_plan(const struct model *m, struct model_shape shape, enum model_recompute recompute, bool backward,
               int n_threads, struct model_plan *plan, struct tabft_failure *f)
{
    int error = 0;
    struct tensor_backend backend = {0};
    struct tape_plan *plans[2] = {NULL, NULL};
    struct tape_sizes sizes;
    TRY(cpu_backend_open_planning(&backend, n_threads, f));
    TRY(make_plans(m, shape, &backend, backward, recompute == MODEL_RECOMPUTE_BLOCK, plans, &sizes, f));
    *plan = (struct model_plan){.weights = m->n_values * sizeof(float),
                                .activations = sizes.activations,
                                .scratch = sizes.scratch,
                                .total = sizes.total};
fail:
    tape_plan_close(plans[0]);
    tape_plan_close(plans[1]);
    if (backend.close != NULL) backend.close(backend.state);
    return error;
}

/* A run without plans. On failure nothing is left. */
static int run_new(struct model_run **out, const struct model *m, struct model_shape largest, struct threads *pool,
                   struct tabft_failure *f)
{
    int error = 0;
    struct model_run *run = NULL;
    TRY(memory_new(&run, 1, sizeof *run, "a run", f));
    run->m = m;
    run->largest = largest;
    TRY(cpu_backend_open(&run->backend, pool, f));
    run->has_backend = true;
    TRY(memory_new(&run->used, largest.n_columns, sizeof *run->used, "a run", f));
    *out = run;
    run = NULL;
fail:
    model_run_close(run);
    return error;
}

int model_run_open(struct model_run **out, const struct model *m, struct model_shape largest,
                   enum model_recompute recompute, bool backward, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    struct model_run *run = NULL;
    struct tape_plan *plans[2] = {NULL, NULL};
    struct tape_sizes sizes;
    TRY(run_new(&run, m, largest, pool, f));
    error = make_plans(m, largest, &run->backend, backward, recompute == MODEL_RECOMPUTE_BLOCK, plans, &sizes, f);
    run->forward = plans[0];
    run->backward = plans[1];
    TRY(error);
    TRY(run->backend.memory_new(run->backend.state, &run->memory, sizes.total, f));
    *out = run;
    run = NULL;
fail:
    model_run_close(run);
    return error;
}

int model_run_open_kept(struct model_run **out, const struct model *m, struct model_shape largest, struct threads *pool,
                        struct tabft_failure *f)
{
    int error = 0;
    struct model_run *run = NULL;
    struct tape_plan *plans[2] = {NULL, NULL};
    struct tape_sizes sizes;
    TRY(run_new(&run, m, largest, pool, f));
    run->keeps = true;
    error = make_kept_plans(m, largest, &run->backend, plans, &sizes, f);
    run->forward = plans[0];
    run->context = plans[1];
    TRY(error);
    TRY(run->backend.memory_new(run->backend.state, &run->memory, sizes.total, f));
    if (sizes.kept > 0) TRY(run->backend.memory_new(run->backend.state, &run->kept_memory, sizes.kept, f));
    *out = run;
    run = NULL;
fail:
    model_run_close(run);
    return error;
}

void model_run_close(struct model_run *run)
{
    if (run == NULL) return;
    if (run->has_backend) {
        if (run->memory != NULL) run->backend.memory_free(run->backend.state, run->memory);
        if (run->kept_memory != NULL) run->backend.memory_free(run->backend.state, run->kept_memory);
        run->backend.close(run->backend.state);
    }
    tape_plan_close(run->forward);
    tape_plan_close(run->backward);
    tape_plan_close(run->context);
    free(run->used);
    free(run);
}

const char *model_run_isa(const struct model_run *run) { return run->backend.isa; }

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
    run->m->architecture->fill(run->m, plan, run->memory, &io, input, run->used);
    if (run->keeps) TRY(tape_run_kept(plan, t, &run->backend, run->memory, run->kept_memory, values, f));
    else TRY(tape_run(plan, t, &run->backend, run->memory, values, NULL, f));
fail:
    tape_close(t);
    return error;
}

static void copy_logits(const struct model_run *run, const struct model_input *input, float *logits)
{
    const size_t n = input->shape.n_query * model_outputs(run->m);
    memcpy(logits, tape_plan_last(run->forward, run->memory), n * sizeof *logits);
}

int model_forward(struct model_run *run, const float *values, const struct model_input *input, float *logits,
                  struct tabft_failure *f)
{
    int error = 0;
    assert(!run->keeps);
    TRY(check_input(run, input, f));
    TRY(run_part(run, MODEL_WHOLE, run->forward, values, input, f));
    copy_logits(run, input, logits);
fail:
    return error;
}

int model_keep_context(struct model_run *run, const float *values, const struct model_input *input,
                       struct tabft_failure *f)
{
    int error = 0;
    struct model_input alone = *input;
    assert(run->keeps);
    alone.queries_alone = true;
    alone.shape.n_query = 1; /* none is looked at */
    run->has_context = false;
    TRY(check_input(run, &alone, f));
    alone.shape.n_query = 0;
    if (run->context != NULL) TRY(run_part(run, MODEL_CONTEXT, run->context, values, &alone, f));
    run->kept = alone.shape;
    run->has_context = true;
fail:
    return error;
}

int model_forward_kept(struct model_run *run, const float *values, const struct model_input *input, float *logits,
                       struct tabft_failure *f)
{
    int error = 0;
    struct model_input alone = *input;
    assert(run->keeps);
    alone.queries_alone = true;
    TRY(check_input(run, &alone, f));
    if (!run->has_context || input->shape.n_context != run->kept.n_context ||
        input->shape.n_columns != run->kept.n_columns)
        FAIL(f, TABFT_USE, "%zu context rows of %zu columns are not the context that was encoded",
             input->shape.n_context, input->shape.n_columns);
    TRY(run_part(run, MODEL_QUERY, run->forward, values, &alone, f));
    copy_logits(run, input, logits);
fail:
    return error;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static int gradient_of(struct model_run *run, const float *values, const struct model_input *input,
                       const struct loss_target *target, double *loss, float *gradient, struct tabft_failure *f)
{
    int error = 0;
    struct tape *t = NULL;
    struct model_tape io;
    struct op_bar_loss bars;
    if (run->backward == NULL) FAIL(f, TABFT_USE, "this run was planned without backward");
    TRY(check_input(run, input, f));
    TRY(loss_check(run->m, input, target, f));
    struct model_call_shape shape = call_shape(run, input, MODEL_WHOLE);
    loss_shape(target, &bars, &shape);
    TRY(record(run->m, &shape, &t, &io, f));
    run->m->architecture->fill(run->m, run->backward, run->memory, &io, input, run->used);
    loss_fill(run->m, run->backward, run->memory, &io, input, target);
    if (!loss_adds(target)) run->backend.zero(run->backend.state, gradient, run->m->n_values);
    TRY(tape_run(run->backward, t, &run->backend, run->memory, values, gradient, f));
    memcpy(loss, tape_plan_last(run->backward, run->memory), sizeof *loss);
    if (!isfinite(*loss))
        FAIL(f, TABFT_INPUT,
             "the loss is not a finite number; the weights or the table hold numbers that are too large");
    if (!all_finite(gradient, run->m->n_values))
        FAIL(f, TABFT_INPUT,
             "a gradient is not a finite number; the weights or the table hold numbers that are too large");
fail:
    tape_close(t);
    return error;
}

int model_gradient(struct model_run *run, const float *values, const struct model_input *input,
                   const struct model_target *target, double *loss, float *gradient, struct tabft_failure *f)
{
    return gradient_of(run, values, input, &(struct loss_target){.classes = target}, loss, gradient, f);
}

int model_gradient_regression(struct model_run *run, const float *values, const struct model_input *input,
                              const struct model_regression_target *target, double *loss, float *gradient,
                              struct tabft_failure *f)
{
    return gradient_of(run, values, input, &(struct loss_target){.numbers = target}, loss, gradient, f);
}
