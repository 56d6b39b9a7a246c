/* From two tables and a model to class probabilities, one estimator at a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/available.h"
#include "base/memory.h"
#include "base/threads.h"
#include "ensemble/ensemble.h"
#include "eval/eval.h"
#include "eval/matrix.h"
#include "model/model.h"
#include "table/table.h"

/* What a prediction holds while it runs. */
struct work {
    const struct model *model;
    const struct table *train, *test;
    const struct eval_options *options;
    struct eval_matrix context, query;
    int32_t *y_context; /* [train->n_rows] classes */
    struct ensemble *ensemble;
    struct model_run *run;
    float *logits; /* [n_estimators][test->n_rows][outputs] */
};

/* The classes: labels that a training row has, in the table's order. y_context gets their codes, p->label their texts.
 */
static int find_classes(struct work *w, struct eval_prediction *p, struct tabft_failure *f)
{
    int error = 0;
    const struct table *train = w->train;
    int32_t *class_of = NULL; /* [n_labels] */
    if (!train->has_target || train->task != TABLE_CLASSIFICATION)
        FAIL(f, TABFT_INPUT, "%s: has no classification target; pack it with --target COLUMN --task classification",
             train->path);
    TRY(memory_new(&class_of, train->n_labels, sizeof *class_of, "labels", f));
    TRY(memory_new(&w->y_context, train->n_rows, sizeof *w->y_context, "labels", f));
    TRY(memory_new(&p->label, train->n_labels, sizeof *p->label, "labels", f));
    for (size_t i = 0; i < train->n_rows; i++) {
        if (isnan(train->target.value[i]))
            FAIL(f, TABFT_INPUT, "%s: row %zu (from 0) has no label; leave such rows out before packing", train->path,
                 i);
        class_of[(size_t)train->target.value[i]] = 1;
    }
    for (size_t c = 0; c < train->n_labels; c++) {
        if (class_of[c] == 0) continue;
        class_of[c] = (int32_t)p->n_classes;
        TRY(memory_copy_string(&p->label[p->n_labels], train->label[c], f));
        p->n_labels++;
        p->n_classes++;
    }
    for (size_t i = 0; i < train->n_rows; i++) w->y_context[i] = class_of[(size_t)train->target.value[i]];
    if (model_task(w->model) != MODEL_CLASSIFICATION)
        FAIL(f, TABFT_INPUT, "model: is for regression; take a classifier's");
    if (p->n_classes < 2)
        FAIL(f, TABFT_INPUT, "%s: all rows have one label; there is nothing to tell apart", train->path);
    if (p->n_classes > model_outputs(w->model))
        FAIL(f, TABFT_INPUT, "%s: has %zu labels, the model's head %zu; take a model with a larger head", train->path,
             p->n_classes, model_outputs(w->model));
fail:
    free(class_of);
    return error;
}

/* The rows' own labels, those that are no class behind the classes. */
static int find_truth(const struct table *train, const struct table *test, struct eval_prediction *p,
                      struct tabft_failure *f)
{
    int error = 0;
    int32_t *known = NULL;
    TRY(memory_new(&p->truth, test->n_rows, sizeof *p->truth, "labels", f));
    for (size_t i = 0; i < test->n_rows; i++) p->truth[i] = EVAL_NO_LABEL;
    if (!test->has_target) return 0;
    if (test->task != TABLE_CLASSIFICATION || strcmp(test->target.name, train->target.name) != 0)
        FAIL(f, TABFT_INPUT, "%s: its target is not the label column %.200s of %s; pack it with --schema %s",
             test->path, train->target.name, train->path, train->path);
    TRY(memory_new(&known, test->n_labels, sizeof *known, "labels", f));
    TRY(memory_grow(&p->label, p->n_classes + test->n_labels, sizeof *p->label, "labels", f));
    for (size_t c = 0; c < test->n_labels; c++) known[c] = EVAL_NO_LABEL;
    for (size_t i = 0; i < test->n_rows; i++) {
        if (isnan(test->target.value[i])) continue;
        size_t c = (size_t)test->target.value[i];
        for (size_t k = 0; known[c] == EVAL_NO_LABEL && k < p->n_classes; k++)
            if (strcmp(p->label[k], test->label[c]) == 0) known[c] = (int32_t)k;
        if (known[c] == EVAL_NO_LABEL) {
            TRY(memory_copy_string(&p->label[p->n_labels], test->label[c], f));
            known[c] = (int32_t)p->n_labels++;
        }
        p->truth[i] = known[c];
    }
fail:
    free(known);
    return error;
}

/* Holds the plan against what is there, and makes the run for the widest estimator. */
static int plan(struct work *w, const struct ensemble_options *eo, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    size_t *columns = NULL, bytes = 0;
    struct model_shape largest = {w->train->n_rows, w->test->n_rows, 0};
    struct model_plan p;
    const double mib = 1 << 20;
    TRY(memory_new(&columns, eo->n_estimators, sizeof *columns, "a plan", f));
    TRY(ensemble_columns_max(eo, w->context.columns.n_columns, largest.n_context, largest.n_query, threads_count(pool),
                             columns, &bytes, f));
    for (size_t i = 0; i < eo->n_estimators; i++)
        if (columns[i] > largest.n_columns) largest.n_columns = columns[i];
    TRY(model_plan(w->model, largest, MODEL_RECOMPUTE_NONE, false, threads_count(pool), &p, f));
    size_t logits;
    if (!size_mul(eo->n_estimators * sizeof *w->logits, largest.n_query, &logits) ||
        !size_mul(logits, model_outputs(w->model), &logits))
        FAIL(f, TABFT_SYSTEM, "%s: too many rows to predict at once; split it", w->test->path);
    const uint64_t may = w->options->memory > 0 ? w->options->memory : memory_available();
    const double needed = (double)p.total + (double)bytes + (double)logits;
    if (needed > (double)may)
        FAIL(f, TABFT_SYSTEM,
             "predicting %zu rows from %zu takes %.1f MiB (network %.1f, preprocessing %.1f, logits %.1f), %.1f MiB "
             "may be "
             "taken; give the job more memory, split %s, take fewer training rows, or fewer threads",
             largest.n_query, largest.n_context, needed / mib, (double)p.total / mib, (double)bytes / mib,
             (double)logits / mib, (double)may / mib, w->test->path);
    TRY(memory_new(&w->logits, logits, 1, "logits", f));
    TRY(model_run_open(&w->run, w->model, largest, MODEL_RECOMPUTE_NONE, false, pool, f));
fail:
    free(columns);
    return error;
}

static int run_estimators(struct work *w, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    const size_t per_estimator = w->test->n_rows * model_outputs(w->model);
    struct ensemble_call call = {0};
    for (size_t i = 0; i < w->options->n_estimators; i++) {
        error = ensemble_call(w->ensemble, i, &w->query.columns, pool, &call, f);
        if (error < 0) {
            (void)tabft_fail_prefix(f, "%s and %s", w->train->path, w->test->path);
            goto fail;
        }
        const struct model_input input = {.shape = {call.n_context, call.n_query, call.n_columns},
                                          .x = call.x,
                                          .y_context = call.y_context,
                                          .queries_alone = true};
        TRY(model_forward(w->run, model_values(w->model), &input, w->logits + i * per_estimator, f));
        ensemble_call_clear(&call);
        call = (struct ensemble_call){0};
    }
fail:
    ensemble_call_clear(&call);
    return error;
}

int eval_predict(const struct model *model, const struct table *train, const struct table *test,
                 const struct eval_options *options, struct threads *pool, struct eval_prediction *out,
                 struct tabft_failure *f)
{
    int error = 0;
    struct work w = {.model = model, .train = train, .test = test, .options = options};
    struct eval_prediction p = {.n_rows = test->n_rows};
    if (test->n_rows == 0) FAIL(f, TABFT_INPUT, "%s: has no rows to predict", test->path);
    TRY(find_classes(&w, &p, f));
    TRY(find_truth(train, test, &p, f));
    TRY(eval_matrices(train, test, &w.context, &w.query, f));
    const struct ensemble_options eo = {.n_estimators = options->n_estimators,
                                        .seed = options->seed,
                                        .phase = ENSEMBLE_PREDICTION,
                                        .n_classes = p.n_classes,
                                        .architecture = model_architecture(model),
                                        .inference_config = model_inference_config(model)};
    error = ensemble_open(&w.ensemble, &eo, &w.context.columns, w.y_context, NULL, f);
    if (error < 0) {
        (void)tabft_fail_prefix(f, "%s", train->path);
        goto fail;
    }
    TRY(plan(&w, &eo, pool, f));
    TRY(run_estimators(&w, pool, f));
    TRY(memory_new(&p.probability, test->n_rows, p.n_classes * sizeof *p.probability, "probabilities", f));
    TRY(ensemble_probabilities(w.ensemble, w.logits, test->n_rows, model_outputs(model), p.probability, f));
    *out = p;
    p = (struct eval_prediction){0};
fail:
    model_run_close(w.run);
    ensemble_close(w.ensemble);
    free(w.logits);
    free(w.y_context);
    eval_matrix_clear(&w.context);
    eval_matrix_clear(&w.query);
    eval_prediction_clear(&p);
    return error;
}
