/* Labels as classes, and which rows train. */
#define TABFT_IN_TRAIN_DATA
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/data_internal.h"
#include "train/split.h"

int data_find_classes(struct train_data *d, int32_t *class_of, struct tabft_failure *f)
{
    int error = 0;
    const struct table *t = d->table;
    TRY(memory_new(&d->label, t->n_labels, sizeof *d->label, "the labels", f));
    for (size_t k = 0; k < t->n_labels; k++) class_of[k] = -1;
    for (size_t i = 0; i < t->n_rows; i++) class_of[(size_t)t->target.value[i]] = 0;
    for (size_t k = 0; k < t->n_labels; k++)
        if (class_of[k] == 0) {
            class_of[k] = (int32_t)d->n_classes;
            d->label[d->n_classes++] = t->label[k];
        }
fail:
    return error;
}

/* The labels of --valid as classes of the training table, by their texts. */
static int match_labels(struct train_data *d, struct tabft_failure *f)
{
    int error = 0;
    const struct table *v = d->valid;
    int32_t *class_of = NULL;
    TRY(memory_new(&class_of, v->n_labels, sizeof *class_of, "the labels", f));
    for (size_t k = 0; k < v->n_labels; k++) {
        class_of[k] = -1;
        for (size_t c = 0; c < d->n_classes; c++)
            if (strcmp(v->label[k], d->label[c]) == 0) class_of[k] = (int32_t)c;
    }
    for (size_t i = 0; i < v->n_rows; i++) {
        size_t k = (size_t)v->target.value[i];
        if (class_of[k] < 0)
            FAIL(f, TABFT_INPUT,
                 "%s: record %zu has the label \"%s\", of which %s has no record; leave such records out", v->path,
                 i + 1, v->label[k], d->table->path);
        d->valid_row[i] = i;
        d->valid_label[i] = class_of[k];
    }
fail:
    free(class_of);
    return error;
}

/* ---- rows ---- */

size_t data_held_rows(const struct train_options *o, size_t n_rows, size_t n_classes)
{
    size_t n = (size_t)((double)n_rows * o->validation_split);
    if (n > TRAIN_VALIDATION_MAX) n = TRAIN_VALIDATION_MAX;
    return n > n_classes ? n : n_classes;
}

/* Row `row` of the table is the next that trains, or validates. */
static void put_row(const struct train_data *d, const int32_t *label, bool validates, size_t at, size_t row)
{
    (validates ? d->valid_row : d->train_row)[at] = row;
    if (d->is_regression) (validates ? d->valid_target : d->train_target)[at] = d->table->target.value[row];
    else (validates ? d->valid_label : d->train_label)[at] = label[row];
}

/* All rows train. */
static void keep_rows(struct train_data *d, const int32_t *label)
{
    d->n_train = d->table->n_rows;
    for (size_t i = 0; i < d->n_train; i++) put_row(d, label, false, i, i);
}

static int hold_rows_out(struct train_data *d, const struct train_options *o, const int32_t *label,
                         struct tabft_failure *f)
{
    int error = 0;
    const struct table *t = d->table;
    struct split split = {0};
    const char *reason = "none would be held out";
    size_t n = data_held_rows(o, t->n_rows, d->n_classes);
    bool possible = d->is_regression ? n > 0 : split_can_stratify(label, t->n_rows, d->n_classes, n, &reason);
    if (n >= t->n_rows || !possible)
        FAIL(f, TABFT_INPUT,
             "%s: %zu of %zu records cannot be held out for validation: %s; use --validation-split 0 or --valid",
             t->path, n, t->n_rows, n >= t->n_rows ? "none would be left" : reason);
    TRY(split_rows(&split, label, t->n_rows, d->n_classes, n, (uint32_t)o->seed, f));
    d->n_train = split.n_train;
    d->n_valid = split.n_test;
    for (size_t i = 0; i < d->n_train; i++) put_row(d, label, false, i, split.train[i]);
    for (size_t i = 0; i < d->n_valid; i++) put_row(d, label, true, i, split.test[i]);
fail:
    split_clear(&split);
    return error;
}

static int check_validation_classes(const struct train_data *d, const struct train_options *o, struct tabft_failure *f)
{
    if (d->n_valid == 0 || train_data_metric(d, o) != TRAIN_METRIC_ROC_AUC) return 0;
    for (size_t c = 0; c < d->n_classes; c++) {
        bool found = false;
        for (size_t i = 0; i < d->n_valid && !found; i++) found = (size_t)d->valid_label[i] == c;
        if (!found)
            return tabft_fail(f, TABFT_INPUT,
                              "%s: the %zu validation records have none of class \"%s\", so ROC AUC is undefined; "
                              "use --metric log_loss or hold out more",
                              d->valid != NULL ? d->valid->path : d->table->path, d->n_valid, d->label[c]);
    }
    return 0;
}

static int rows_new(size_t n, bool is_regression, size_t **row, int32_t **label, double **target,
                    struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(row, n, sizeof **row, "the rows of a table", f));
    if (is_regression) TRY(memory_new(target, n, sizeof **target, "the targets of a table", f));
    else TRY(memory_new(label, n, sizeof **label, "the labels of a table", f));
fail:
    return error;
}

/* All rows of --valid. */
static int take_valid(struct train_data *d, struct tabft_failure *f)
{
    const struct table *v = d->valid;
    d->n_valid = v->n_rows;
    if (!d->is_regression) return match_labels(d, f);
    for (size_t i = 0; i < v->n_rows; i++) {
        d->valid_row[i] = i;
        d->valid_target[i] = v->target.value[i];
    }
    return 0;
}

int data_take_rows(struct train_data *d, const struct train_options *o, const int32_t *class_of,
                   struct tabft_failure *f)
{
    int error = 0;
    const struct table *t = d->table;
    int32_t *label = NULL;
    bool splits = d->valid == NULL && o->validation_split > 0;
    TRY(rows_new(t->n_rows, d->is_regression, &d->train_row, &d->train_label, &d->train_target, f));
    if (d->valid != NULL || splits)
        TRY(rows_new(splits ? t->n_rows : d->valid->n_rows, d->is_regression, &d->valid_row, &d->valid_label,
                     &d->valid_target, f));
    if (!d->is_regression) {
        TRY(memory_new(&label, t->n_rows, sizeof *label, "the labels", f));
        for (size_t i = 0; i < t->n_rows; i++) label[i] = class_of[(size_t)t->target.value[i]];
    }
    if (splits) TRY(hold_rows_out(d, o, label, f));
    else keep_rows(d, label);
    if (d->valid != NULL) TRY(take_valid(d, f));
    TRY(check_validation_classes(d, o, f));
fail:
    free(label);
    return error;
}
