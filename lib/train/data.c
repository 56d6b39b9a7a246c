#include "train/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/table.h"
#include "train/split.h"

/* ---- what a table must be ---- */

static int check_task(const struct table *t, struct tabft_failure *f)
{
    if (t->task == TABLE_CLASSIFICATION) return 0;
    if (t->task == TABLE_REGRESSION)
        return tabft_fail(f, TABFT_INPUT,
                          "%s: its target is for regression; this version trains classifiers only (pack with "
                          "--task classification if the target holds classes)",
                          t->path);
    return tabft_fail(f, TABFT_INPUT, "%s: has no target; pack it with --target COLUMN", t->path);
}

static bool has_validation(const struct train_options *o) { return o->valid != NULL || o->validation_split > 0; }

/* The least records that can be cut into context and query, and into rows held out, with every class on each side. */
static size_t least_records(const struct train_options *o, size_t n_classes)
{
    size_t classes = n_classes > 2 ? n_classes : 2;
    return classes * (o->valid == NULL && o->validation_split > 0 ? 3 : 2);
}

static int check_records(const struct table *t, const struct train_options *o, size_t n_classes, const char *only,
                         struct tabft_failure *f)
{
    size_t least = least_records(o, n_classes);
    const char *split = least > 2 * (n_classes > 2 ? n_classes : 2) ? " with a validation split" : "";
    if (t->n_rows == 0)
        return tabft_fail(f, TABFT_INPUT, "%s: has 0 records; training needs at least %zu%s and 2 classes", t->path,
                          least, split);
    if (n_classes < 2)
        return tabft_fail(f, TABFT_INPUT,
                          "%s: has %zu record%s and only one class (\"%s\"); training needs at least %zu records%s "
                          "and 2 classes",
                          t->path, t->n_rows, t->n_rows == 1 ? "" : "s", only, least, split);
    if (t->n_rows < least)
        return tabft_fail(f, TABFT_INPUT, "%s: has %zu records of %zu classes; training needs at least %zu%s", t->path,
                          t->n_rows, n_classes, least, split);
    return 0;
}

static int check_text(const struct train_data *d, struct tabft_failure *f)
{
    char names[512] = "";
    size_t n = 0, used = 0;
    for (size_t i = 0; i < d->n_columns; i++) {
        const struct table_column *c = &d->table->column[d->column[i]];
        if (c->kind != TABLE_TEXT) continue;
        int added = n < 5 ? snprintf(names + used, sizeof names - used, "%s%.60s", n > 0 ? ", " : "", c->name) : 0;
        used += (size_t)added;
        n++;
    }
    if (n == 0) return 0;
    return tabft_fail(f, TABFT_INPUT,
                      "%s: %zu column%s text, which this version cannot train on: %s%s; leave them out or write "
                      "them as numbers",
                      d->table->path, n, n == 1 ? " holds" : "s hold", names, n > 5 ? ", ..." : "");
}

static int check_finite(const struct table *t, size_t column, struct tabft_failure *f)
{
    const struct table_column *c = &t->column[column];
    for (size_t i = 0; i < t->n_rows; i++)
        if (isinf(c->value[i]))
            return tabft_fail(f, TABFT_INPUT,
                              "%s: column \"%s\" is infinite in record %zu; networks take finite numbers or gaps: "
                              "mark such cells as missing",
                              t->path, c->name, i + 1);
    return 0;
}

static int check_target(const struct table *t, struct tabft_failure *f)
{
    if (t->target.n_missing == 0) return 0;
    size_t first = 0;
    while (first + 1 < t->n_rows && !isnan(t->target.value[first])) first++;
    return tabft_fail(f, TABFT_INPUT,
                      "%s: the target \"%s\" is missing in %zu records, first in record %zu; leave them out", t->path,
                      t->target.name, t->target.n_missing, first + 1);
}

/* ---- labels ---- */

/* class_of [t->n_labels]: the class of a label with rows, -1 for one without. */
static int find_classes(struct train_data *d, int32_t *class_of, struct tabft_failure *f)
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

static size_t held_rows(const struct train_options *o, size_t n_rows, size_t n_classes)
{
    size_t n = (size_t)((double)n_rows * o->validation_split);
    if (n > TRAIN_VALIDATION_MAX) n = TRAIN_VALIDATION_MAX;
    return n > n_classes ? n : n_classes;
}

/* All rows train. */
static void keep_rows(struct train_data *d, const int32_t *label)
{
    d->n_train = d->table->n_rows;
    for (size_t i = 0; i < d->n_train; i++) d->train_row[i] = i;
    memcpy(d->train_label, label, d->n_train * sizeof *label);
}

static int hold_rows_out(struct train_data *d, const struct train_options *o, const int32_t *label,
                         struct tabft_failure *f)
{
    int error = 0;
    const struct table *t = d->table;
    struct split split = {0};
    const char *reason;
    size_t n = held_rows(o, t->n_rows, d->n_classes);
    if (n >= t->n_rows || !split_can_stratify(label, t->n_rows, d->n_classes, n, &reason))
        FAIL(f, TABFT_INPUT,
             "%s: %zu of %zu records cannot be held out for validation: %s; use --validation-split 0 or --valid",
             t->path, n, t->n_rows, n >= t->n_rows ? "none would be left" : reason);
    TRY(split_rows(&split, label, t->n_rows, d->n_classes, n, (uint32_t)o->seed, f));
    d->n_train = split.n_train;
    d->n_valid = split.n_test;
    for (size_t i = 0; i < d->n_train; i++) {
        d->train_row[i] = split.train[i];
        d->train_label[i] = label[split.train[i]];
    }
    for (size_t i = 0; i < d->n_valid; i++) {
        d->valid_row[i] = split.test[i];
        d->valid_label[i] = label[split.test[i]];
    }
fail:
    split_clear(&split);
    return error;
}

static int check_validation_classes(const struct train_data *d, const struct train_options *o, struct tabft_failure *f)
{
    if (d->n_valid == 0 || o->metric != TRAIN_METRIC_ROC_AUC) return 0;
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

static int take_rows(struct train_data *d, const struct train_options *o, const int32_t *class_of,
                     struct tabft_failure *f)
{
    int error = 0;
    const struct table *t = d->table;
    int32_t *label = NULL;
    size_t n_valid = d->valid != NULL ? d->valid->n_rows : t->n_rows;
    TRY(memory_new(&label, t->n_rows, sizeof *label, "the labels", f));
    TRY(memory_new(&d->train_row, t->n_rows, sizeof *d->train_row, "the training rows", f));
    TRY(memory_new(&d->train_label, t->n_rows, sizeof *d->train_label, "the training rows", f));
    if (has_validation(o)) {
        TRY(memory_new(&d->valid_row, n_valid, sizeof *d->valid_row, "the validation rows", f));
        TRY(memory_new(&d->valid_label, n_valid, sizeof *d->valid_label, "the validation rows", f));
    }
    for (size_t i = 0; i < t->n_rows; i++) label[i] = class_of[(size_t)t->target.value[i]];
    if (d->valid != NULL) {
        keep_rows(d, label);
        d->n_valid = n_valid;
        TRY(match_labels(d, f));
    } else if (has_validation(o)) {
        TRY(hold_rows_out(d, o, label, f));
    } else {
        keep_rows(d, label);
    }
    TRY(check_validation_classes(d, o, f));
fail:
    free(label);
    return error;
}

/* ---- loading ---- */

static int load_valid(struct train_data *d, const struct train_options *o, struct threads *pool,
                      struct tabft_failure *f)
{
    int error = 0;
    size_t *map = NULL;
    TRY(table_open(&d->valid, o->valid, pool, f));
    TRY(check_task(d->valid, f));
    if (d->valid->n_rows == 0) FAIL(f, TABFT_INPUT, "%s: has 0 records to validate on", o->valid);
    TRY(check_target(d->valid, f));
    TRY(memory_new(&map, d->table->n_columns, sizeof *map, "the columns", f));
    TRY(memory_new(&d->valid_column, d->n_columns, sizeof *d->valid_column, "the columns", f));
    TRY(table_match(d->table, d->valid, map, f));
    for (size_t i = 0; i < d->n_columns; i++) {
        d->valid_column[i] = map[d->column[i]];
        TRY(check_finite(d->valid, d->valid_column[i], f));
    }
fail:
    free(map);
    return error;
}

int train_data_open(struct train_data *d, const struct train_options *o, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    int32_t *class_of = NULL;
    *d = (struct train_data){0};
    TRY(table_open(&d->table, o->data, pool, f));
    const struct table *t = d->table;
    TRY(check_task(t, f));
    if (t->n_rows == 0) TRY(check_records(t, o, 0, "", f));
    TRY(check_target(t, f));
    TRY(memory_new(&class_of, t->n_labels, sizeof *class_of, "the labels", f));
    TRY(find_classes(d, class_of, f));
    TRY(check_records(t, o, d->n_classes, d->label[0], f));
    TRY(memory_new(&d->use, t->n_columns, sizeof *d->use, "the columns", f));
    TRY(memory_new(&d->column, t->n_columns, sizeof *d->column, "the columns", f));
    TRY(ensemble_useful_columns(t, d->use, d->column, &d->n_columns, f));
    TRY(check_text(d, f));
    for (size_t i = 0; i < d->n_columns; i++) TRY(check_finite(t, d->column[i], f));
    if (o->valid != NULL) TRY(load_valid(d, o, pool, f));
    TRY(take_rows(d, o, class_of, f));
fail:
    free(class_of);
    if (error < 0) train_data_clear(d);
    return error;
}

void train_data_clear(struct train_data *d)
{
    table_close(d->table);
    table_close(d->valid);
    free(d->column);
    free(d->valid_column);
    free(d->use);
    free(d->label);
    free(d->train_row);
    free(d->train_label);
    free(d->valid_row);
    free(d->valid_label);
    *d = (struct train_data){0};
}

void train_data_gather(const struct train_data *d, bool from_valid, const size_t *row, size_t n_rows, double *x)
{
    bool other = from_valid && d->valid != NULL;
    const struct table *t = other ? d->valid : d->table;
    const size_t *column = other ? d->valid_column : d->column, *place = from_valid ? d->valid_row : d->train_row;
    for (size_t c = 0; c < d->n_columns; c++) {
        const double *value = t->column[column[c]].value;
        for (size_t i = 0; i < n_rows; i++) x[i * d->n_columns + c] = value[place[row[i]]];
    }
}

/* ---- sizes ---- */

static struct chunks_rules rules_of(const struct train_options *o, size_t n_rows, size_t n_classes,
                                    const int32_t *label)
{
    return (struct chunks_rules){
        .n_rows = n_rows,
        .chunk_rows = (size_t)o->chunk_rows,
        .query_fraction = o->query_fraction,
        .query_min = n_classes,
        .seed = (uint32_t)o->seed,
        .label = label,
        .n_labels = n_classes,
    };
}

struct chunks_rules train_data_rules(const struct train_data *d, const struct train_options *o)
{
    return rules_of(o, d->n_train, d->n_classes, d->train_label);
}

static size_t cells_bytes(const struct table *t)
{
    return t == NULL ? 0 : (t->n_columns + 1) * t->n_rows * sizeof(double);
}

int train_data_sizes(const struct train_data *d, const struct train_options *o, struct train_sizes *sizes,
                     struct tabft_failure *f)
{
    int error = 0;
    struct chunks_rules rules = train_data_rules(d, o);
    struct chunks *chunks = NULL;
    *sizes = (struct train_sizes){.n_columns = d->n_columns,
                                  .n_classes = d->n_classes,
                                  .n_train = d->n_train,
                                  .n_valid = d->n_valid,
                                  .table_bytes = cells_bytes(d->table) + cells_bytes(d->valid)};
    /* Every epoch is cut into the same sizes, so those of the first are exact. */
    TRY(chunks_open(&chunks, &rules, 0, f));
    sizes->chunks.n_chunks = chunks_count(chunks);
    for (size_t i = 0; i < chunks_count(chunks); i++) {
        const struct chunk *c = chunks_at(chunks, i);
        if (c->n_context > sizes->chunks.n_context) sizes->chunks.n_context = c->n_context;
        if (c->n_query > sizes->chunks.n_query) sizes->chunks.n_query = c->n_query;
    }
fail:
    chunks_close(chunks);
    return error;
}

int train_schema_sizes(const struct train_options *o, struct train_sizes *sizes, struct tabft_failure *f)
{
    int error = 0;
    struct table *t = NULL, *v = NULL;
    TRY(table_open_schema(&t, o->data, f));
    TRY(check_task(t, f));
    TRY(check_records(t, o, t->n_labels, t->n_labels == 1 ? t->label[0] : "", f));
    if (o->valid != NULL) TRY(table_open_schema(&v, o->valid, f));
    *sizes = (struct train_sizes){.n_columns = t->n_columns,
                                  .n_classes = t->n_labels,
                                  .n_train = t->n_rows,
                                  .table_bytes = cells_bytes(t) + cells_bytes(v)};
    if (v != NULL) {
        sizes->n_valid = v->n_rows;
    } else if (o->validation_split > 0) {
        sizes->n_valid = held_rows(o, t->n_rows, t->n_labels);
        sizes->n_train -= sizes->n_valid;
    }
    struct chunks_rules rules = rules_of(o, sizes->n_train, sizes->n_classes, NULL);
    TRY(chunks_sizes(&rules, &sizes->chunks, f));
fail:
    table_close(t);
    table_close(v);
    return error;
}
