/* The losses behind the logits: recorded, checked, and given their numbers. */
#define TABFT_MODEL_ROOM
#include <math.h>
#include <string.h>

#include "model/model_internal.h"

void model_record_loss(const struct model *m, const struct model_call_shape *s, struct tape *t, struct model_tape *io)
{
    io->labels = io->permutation = io->borders = io->impossible = io->loss = TAPE_NONE;
    if (s->n_classes == 0 && s->bars == NULL) return;
    io->labels = tape_input(t, s->n_query, 1);
    if (s->bars == NULL) {
        io->permutation = tape_input(t, s->n_classes, 1);
        io->loss = tape_cross_entropy(t, io->logits, io->labels, io->permutation, s->scale);
        return;
    }
    io->borders = tape_input(t, 1, m->config.buckets + 1);
    io->impossible = tape_input(t, 1, m->config.buckets);
    io->loss = tape_bar_loss(t, s->bars, io->logits, io->labels, io->borders, io->impossible);
}

/* ---- classifiers ---- */

static int check_classes(const struct model *m, const struct model_input *input, const struct model_target *target,
                         struct tabft_failure *f)
{
    const size_t outputs = model_outputs(m);
    if (model_task(m) != MODEL_CLASSIFICATION)
        return tabft_fail(f, TABFT_USE, "the model is a regressor; its loss needs numbers, not classes");
    if (target->n_classes < 1 || target->n_classes > outputs)
        return tabft_fail(f, TABFT_INPUT, "%zu classes; the network knows 1 to %zu", target->n_classes, outputs);
    for (size_t i = 0; i < input->shape.n_query; i++)
        if (target->y_query[i] < 0 || (size_t)target->y_query[i] >= target->n_classes)
            return tabft_fail(f, TABFT_INPUT, "query row %zu: class code %d of %zu classes", i, (int)target->y_query[i],
                              target->n_classes);
    if (target->class_permutation == NULL) return 0;
    for (size_t c = 0; c < target->n_classes; c++)
        if (target->class_permutation[c] < 0 || (size_t)target->class_permutation[c] >= target->n_classes)
            return tabft_fail(f, TABFT_INPUT, "class permutation: %d of %zu classes", (int)target->class_permutation[c],
                              target->n_classes);
    return 0;
}

static void fill_classes(const struct tape_plan *p, const struct tape_memory *memory, const struct model_tape *io,
                         const struct model_input *input, const struct model_target *target)
{
    memcpy(tape_plan_input(p, memory, io->labels), target->y_query, input->shape.n_query * sizeof *target->y_query);
    int32_t *permutation = tape_plan_input(p, memory, io->permutation);
    for (size_t c = 0; c < target->n_classes; c++)
        permutation[c] = target->class_permutation == NULL ? (int32_t)c : target->class_permutation[c];
}

/* ---- regressors ---- */

static int check_weights(const struct model_regression_target *t, struct tabft_failure *f)
{
    const double weights[] = {t->ce, t->crps, t->crls, t->mse, t->mae, t->mse_most, t->mae_most};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (!(weights[i] >= 0))
            return tabft_fail(f, TABFT_USE, "a loss's weight or bound is %g, not at least 0", weights[i]);
    for (size_t i = 0; i < 5; i++)
        if (isinf(weights[i])) return tabft_fail(f, TABFT_USE, "a loss's weight is infinite");
    if (!(t->temperature > 0) || isinf(t->temperature))
        return tabft_fail(f, TABFT_USE, "the temperature is %g, not a number above 0", t->temperature);
    return 0;
}

int loss_check_borders(const struct model *m, struct tabft_failure *f)
{
    if (model_task(m) == MODEL_CLASSIFICATION || m->borders != NULL) return 0;
    return tabft_fail(f, TABFT_INPUT, "the model has no tensor criterion.borders; without it a regressor has no loss");
}

static int check_numbers(const struct model *m, const struct model_input *input,
                         const struct model_regression_target *target, struct tabft_failure *f)
{
    int error = 0;
    if (model_task(m) != MODEL_REGRESSION)
        FAIL(f, TABFT_USE, "the model is a classifier; its loss needs classes, not numbers");
    TRY(loss_check_borders(m, f));
    TRY(check_weights(target, f));
    for (size_t i = 0; i < input->shape.n_query; i++)
        if (isinf(target->y_query[i])) FAIL(f, TABFT_INPUT, "query row %zu: its target is infinite", i);
fail:
    return error;
}

static void fill_numbers(const struct model *m, const struct tape_plan *p, const struct tape_memory *memory,
                         const struct model_tape *io, const struct model_input *input,
                         const struct model_regression_target *target)
{
    const size_t n = m->config.buckets;
    memcpy(tape_plan_input(p, memory, io->labels), target->y_query, input->shape.n_query * sizeof *target->y_query);
    memcpy(tape_plan_input(p, memory, io->borders), m->borders, (n + 1) * sizeof *m->borders);
    float *impossible = tape_plan_input(p, memory, io->impossible);
    for (size_t k = 0; k < n; k++)
        impossible[k] = target->impossible != NULL && target->impossible[k] ? 1.0f : 0.0f;
}

/* ---- either ---- */

int loss_check(const struct model *m, const struct model_input *input, const struct loss_target *target,
               struct tabft_failure *f)
{
    return target->classes != NULL ? check_classes(m, input, target->classes, f)
                                   : check_numbers(m, input, target->numbers, f);
}

void loss_shape(const struct loss_target *target, struct op_bar_loss *bars, struct model_call_shape *shape)
{
    const struct model_regression_target *n = target->numbers;
    if (target->classes != NULL) {
        shape->n_classes = target->classes->n_classes;
        shape->scale = target->classes->scale;
        return;
    }
    *bars = (struct op_bar_loss){.scale = n->scale,
                                 .temperature = n->temperature,
                                 .ce = n->ce,
                                 .crps = n->crps,
                                 .crls = n->crls,
                                 .mse = n->mse,
                                 .mae = n->mae,
                                 .mse_most = n->mse_most,
                                 .mae_most = n->mae_most};
    shape->bars = bars;
}

void loss_fill(const struct model *m, const struct tape_plan *p, const struct tape_memory *memory,
               const struct model_tape *io, const struct model_input *input, const struct loss_target *target)
{
    if (target->classes != NULL)
        fill_classes(p, memory, io, input, target->classes);
    else
        fill_numbers(m, p, memory, io, input, target->numbers);
}
