/* The targets and buckets of a prediction of numbers. */
#define TABFT_IN_PREDICT
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "eval/predict_internal.h"
#include "table/table.h"

static int check_context(const struct eval_predictor *p, struct tabft_failure *f)
{
    const struct table *train = p->train;
    for (size_t i = 0; i < train->n_rows; i++)
        if (!isfinite(train->target.value[i]))
            return tabft_fail(f, TABFT_INPUT,
                              "%s: row %zu (from 0) has no finite target; leave such rows out before "
                              "packing",
                              train->path, i);
    if (model_task(p->model) != MODEL_REGRESSION)
        return tabft_fail(f, TABFT_INPUT, "model: is for classification; take a regressor's");
    if (model_borders(p->model) == NULL)
        return tabft_fail(f, TABFT_INPUT, "model: has no borders of target buckets; take the complete file");
    return 0;
}

static int check_rows(const struct eval_predictor *p, struct tabft_failure *f)
{
    const struct table *train = p->train, *test = p->test;
    if (!test->has_target) return 0;
    if (test->task != train->task || strcmp(test->target.name, train->target.name) != 0)
        return tabft_fail(f, TABFT_INPUT, "%s: its target is not the column %.200s of %s; pack it with --schema %s",
                          test->path, train->target.name, train->path, train->path);
    for (size_t i = 0; i < test->n_rows; i++)
        if (isinf(test->target.value[i]))
            return tabft_fail(f, TABFT_INPUT, "%s: row %zu (from 0) has an infinite target; mark it as missing",
                              test->path, i);
    return 0;
}

int predict_numbers(struct eval_predictor *p, struct tabft_failure *f)
{
    int error = 0;
    struct eval_prediction *head = &p->head;
    TRY(check_context(p, f));
    TRY(check_rows(p, f));
    size_t n = model_outputs(p->model) + 1;
    TRY(memory_new(&p->borders, n, sizeof *p->borders, "borders of buckets", f));
    for (size_t i = 0; i < n; i++) p->borders[i] = (double)model_borders(p->model)[i];
    head->is_regression = true;
    TRY(memory_new(&head->level, p->options.n_levels, sizeof *head->level, "quantiles", f));
    for (; head->n_levels < p->options.n_levels; head->n_levels++)
        head->level[head->n_levels] = p->options.level[head->n_levels];
fail:
    return error;
}
