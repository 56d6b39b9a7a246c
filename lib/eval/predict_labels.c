/* The classes of a prediction, and what its rows are called in truth. */
#define TABFT_IN_PREDICT
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "eval/predict_internal.h"
#include "table/table.h"

/* The classes: labels that a training row has, in the table's order. y_context gets their codes, p->label their texts.
 */
int predict_classes(struct eval_predictor *w, struct tabft_failure *f)
{
    int error = 0;
    struct eval_prediction *p = &w->head;
    const struct table *train = w->train;
    int32_t *class_of = NULL; /* [n_labels] */
    if (w->options.n_levels > 0)
        FAIL(f, TABFT_USE, "quantiles: %s has a target of classes; they are for regression", train->path);
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
    if (p->n_classes > model_outputs(w->model))
        FAIL(f, TABFT_INPUT, "%s: has %zu labels, the model's head %zu; take a model with a larger head", train->path,
             p->n_classes, model_outputs(w->model));
fail:
    free(class_of);
    return error;
}

/* The rows' own labels: a code for each label of the test table, those that are no class behind the classes in the
 * order in which they come up among all rows, whichever of them are predicted. */
int predict_truths(struct eval_predictor *w, struct tabft_failure *f)
{
    int error = 0;
    struct eval_prediction *p = &w->head;
    const struct table *train = w->train, *test = w->test;
    if (!test->has_target) return 0;
    if (test->task != TABLE_CLASSIFICATION || strcmp(test->target.name, train->target.name) != 0)
        FAIL(f, TABFT_INPUT, "%s: its target is not the label column %.200s of %s; pack it with --schema %s",
             test->path, train->target.name, train->path, train->path);
    TRY(memory_new(&w->truth_of, test->n_labels, sizeof *w->truth_of, "labels", f));
    TRY(memory_grow(&p->label, p->n_classes + test->n_labels, sizeof *p->label, "labels", f));
    for (size_t c = 0; c < test->n_labels; c++) w->truth_of[c] = EVAL_NO_LABEL;
    for (size_t i = 0; i < test->n_rows; i++) {
        if (isnan(test->target.value[i])) continue;
        size_t c = (size_t)test->target.value[i];
        for (size_t k = 0; w->truth_of[c] == EVAL_NO_LABEL && k < p->n_classes; k++)
            if (strcmp(p->label[k], test->label[c]) == 0) w->truth_of[c] = (int32_t)k;
        if (w->truth_of[c] != EVAL_NO_LABEL) continue;
        TRY(memory_copy_string(&p->label[p->n_labels], test->label[c], f));
        w->truth_of[c] = (int32_t)p->n_labels++;
    }
fail:
    return error;
}
