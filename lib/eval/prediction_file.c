/* Predictions from packed tables. */
#define TABFT_IN_PREDICTION_FILES
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "eval/eval.h"
#include "eval/prediction_internal.h"
#include "table/table.h"

void eval_prediction_clear(struct eval_prediction *p)
{
    for (size_t i = 0; p->label != NULL && i < p->n_labels; i++) free(p->label[i]);
    free(p->label);
    free(p->probability);
    free(p->truth);
    free(p->target);
    free(p->mean);
    free(p->level);
    free(p->quantile);
    *p = (struct eval_prediction){0};
}

/* The labels: names of the class columns, behind them texts of the label column that are none of these. */
static int read_labels(const struct table *t, struct eval_prediction *p, struct tabft_failure *f)
{
    int error = 0;
    const struct table_column *own = &t->column[LABEL];
    int32_t *known = NULL;
    TRY(memory_new(&p->truth, t->n_rows, sizeof *p->truth, "labels", f));
    TRY(memory_new(&p->label, p->n_classes + own->n_dictionary, sizeof *p->label, "labels", f));
    TRY(memory_new(&known, own->n_dictionary, sizeof *known, "labels", f));
    for (; p->n_labels < p->n_classes; p->n_labels++)
        TRY(memory_copy_string(&p->label[p->n_labels], t->column[FIRST_CLASS + p->n_labels].name, f));
    for (size_t c = 0; c < own->n_dictionary; c++) known[c] = EVAL_NO_LABEL;
    for (size_t i = 0; i < t->n_rows; i++) {
        p->truth[i] = EVAL_NO_LABEL;
        if (isnan(own->value[i])) continue;
        size_t c = (size_t)own->value[i];
        for (size_t k = 0; known[c] == EVAL_NO_LABEL && k < p->n_classes; k++)
            if (strcmp(p->label[k], own->dictionary[c]) == 0) known[c] = (int32_t)k;
        if (known[c] == EVAL_NO_LABEL) {
            TRY(memory_copy_string(&p->label[p->n_labels], own->dictionary[c], f));
            known[c] = (int32_t)p->n_labels++;
        }
        p->truth[i] = known[c];
    }
fail:
    free(known);
    return error;
}

static int read_probabilities(const struct table *t, struct eval_prediction *p, struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&p->probability, t->n_rows, p->n_classes * sizeof *p->probability, "probabilities", f));
    for (size_t i = 0; i < t->n_rows; i++) {
        double sum = 0;
        for (size_t c = 0; c < p->n_classes; c++) {
            double value = t->column[FIRST_CLASS + c].value[i];
            if (!(value >= 0 && value <= 1))
                FAIL(f, TABFT_INPUT, "%s: row %zu (from 0): %g is no probability; predict again", t->path, i, value);
            p->probability[i * p->n_classes + c] = value;
            sum += value;
        }
        if (!(fabs(sum - 1) <= 1e-6))
            FAIL(f, TABFT_INPUT, "%s: row %zu (from 0): its probabilities sum to %g; predict again", t->path, i, sum);
    }
fail:
    return error;
}

static int check_rows(const struct table *t, struct tabft_failure *f)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->column[ROW].value[i] != (double)i)
            return tabft_fail(f, TABFT_INPUT, "%s: row %zu (from 0) is missing or out of order; predict again", t->path,
                              i);
    return 0;
}

static bool has_numbers(const struct table *t)
{
    bool fits = t->n_columns >= FIRST_QUANTILE && strcmp(t->column[TARGET].name, "target") == 0 &&
                strcmp(t->column[MEAN].name, "mean") == 0;
    for (size_t c = TARGET; fits && c < t->n_columns; c++) fits = t->column[c].kind == TABLE_FLOAT;
    for (size_t c = FIRST_QUANTILE; fits && c < t->n_columns; c++) {
        char *end;
        const char *name = t->column[c].name;
        fits = strncmp(name, PREDICTION_QUANTILE, strlen(PREDICTION_QUANTILE)) == 0;
        double level = fits ? strtod(name + strlen(PREDICTION_QUANTILE), &end) : 0;
        fits = fits && *end == '\0' && level > 0 && level < 1;
    }
    return fits;
}

static int read_numbers(const struct table *t, struct eval_prediction *p, struct tabft_failure *f)
{
    int error = 0;
    p->n_levels = t->n_columns - FIRST_QUANTILE;
    TRY(memory_new(&p->target, t->n_rows, sizeof *p->target, "targets", f));
    TRY(memory_new(&p->mean, t->n_rows, sizeof *p->mean, "predictions", f));
    TRY(memory_new(&p->level, p->n_levels, sizeof *p->level, "quantiles", f));
    TRY(memory_new(&p->quantile, t->n_rows, p->n_levels * sizeof *p->quantile, "quantiles", f));
    for (size_t k = 0; k < p->n_levels; k++)
        p->level[k] = strtod(t->column[FIRST_QUANTILE + k].name + strlen(PREDICTION_QUANTILE), NULL);
    for (size_t i = 0; i < t->n_rows; i++) {
        p->target[i] = t->column[TARGET].value[i];
        p->mean[i] = t->column[MEAN].value[i];
        bool finite = isfinite(p->mean[i]) && !isinf(p->target[i]);
        for (size_t k = 0; k < p->n_levels; k++) {
            p->quantile[i * p->n_levels + k] = t->column[FIRST_QUANTILE + k].value[i];
            finite = finite && isfinite(p->quantile[i * p->n_levels + k]);
        }
        if (!finite) FAIL(f, TABFT_INPUT, "%s: row %zu (from 0) is not finite; predict again", t->path, i);
    }
fail:
    return error;
}

static bool has_classes(const struct table *t)
{
    bool fits = t->n_columns >= FIRST_CLASS + 2 && strcmp(t->column[LABEL].name, "label") == 0 &&
                t->column[LABEL].kind == TABLE_TEXT;
    for (size_t c = FIRST_CLASS; fits && c < t->n_columns; c++) fits = t->column[c].kind == TABLE_FLOAT;
    return fits;
}

/* A part is good for merging alone: its first row may be any. */
static int refuse_part(const struct table *t, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL;
    TRY(table_provenance(t, &text, f));
    json_t *provenance = json_loads(text, 0, NULL), *part = json_object_get(provenance, "part");
    if (part != NULL)
        error = tabft_fail(f, TABFT_INPUT,
                           "%s: has part %lld of %lld of a prediction; put them together with tabft-eval merge",
                           t->path, (long long)json_integer_value(json_object_get(part, "index")),
                           (long long)json_integer_value(json_object_get(part, "of")));
    json_decref(provenance);
fail:
    free(text);
    return error;
}

int eval_prediction_open(const char *path, struct threads *pool, struct eval_prediction *out, struct tabft_failure *f)
{
    int error = 0;
    struct table *t = NULL;
    struct eval_prediction p = {0};
    TRY(table_open(&t, path, pool, f));
    bool fits = !t->has_target && t->n_rows > 0 && t->n_columns > 0 && strcmp(t->column[ROW].name, "row") == 0 &&
                t->column[ROW].kind == TABLE_INTEGER;
    p.is_regression = fits && has_numbers(t);
    if (!fits || !(p.is_regression || has_classes(t)))
        FAIL(f, TABFT_INPUT, "%s: not a table of predictions; make one with tabft-eval predict", path);
    TRY(refuse_part(t, f));
    TRY(check_rows(t, f));
    p.n_rows = t->n_rows;
    if (p.is_regression) TRY(read_numbers(t, &p, f));
    else {
        p.n_classes = t->n_columns - FIRST_CLASS;
        TRY(read_labels(t, &p, f));
        TRY(read_probabilities(t, &p, f));
    }
    *out = p;
    p = (struct eval_prediction){0};
fail:
    eval_prediction_clear(&p);
    table_close(t);
    return error;
}
