#define TABFT_IN_TRAIN_DATA
#include "train/data.h"

#include <stdlib.h>

#include "base/memory.h"
#include "table/store.h"
#include "table/table.h"
#include "train/data_internal.h"

static int load_valid(struct train_data *d, const struct train_options *o, struct threads *pool,
                      struct tabft_failure *f)
{
    int error = 0;
    size_t *map = NULL;
    TRY(table_open_parts(&d->valid, o->valid, pool, f));
    TRY(data_check_task(d->valid, o, f));
    if (d->valid->task != d->table->task)
        FAIL(f, TABFT_INPUT, "%s: its target is %s, that of %s is not; pack it with --schema %s", o->valid,
             d->is_regression ? "of classes" : "for regression", o->data, o->data);
    if (d->valid->n_rows == 0)
        FAIL(f, TABFT_INPUT, "%s: has 0 records to validate on; give one with rows, or --validation-split", o->valid);
    TRY(data_check_target(d->valid, f));
    TRY(memory_new(&map, d->table->n_columns, sizeof *map, "the columns", f));
    TRY(memory_new(&d->valid_column, d->n_columns, sizeof *d->valid_column, "the columns", f));
    TRY(table_match(d->table, d->valid, map, f));
    for (size_t i = 0; i < d->n_columns; i++) d->valid_column[i] = map[d->column[i]];
fail:
    free(map);
    return error;
}

/* The ranks of the texts of column i, in both tables. */
static int rank_column(struct train_data *d, size_t i, struct tabft_failure *f)
{
    int error = 0;
    const struct table_column *train = &d->table->column[d->column[i]];
    const struct table_column *valid = d->valid != NULL ? &d->valid->column[d->valid_column[i]] : NULL;
    TRY(memory_new(&d->rank[i], train->n_dictionary, sizeof **d->rank, "a dictionary", f));
    if (valid != NULL)
        TRY(memory_new(&d->valid_rank[i], valid->n_dictionary, sizeof **d->valid_rank, "a dictionary", f));
    TRY(ensemble_rank_texts(train, valid, d->rank[i], valid != NULL ? d->valid_rank[i] : NULL, &d->missing_rank[i], f));
fail:
    return error;
}

static int rank_texts(struct train_data *d, struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&d->is_text, d->n_columns, sizeof *d->is_text, "the columns", f));
    TRY(memory_new(&d->name, d->n_columns, sizeof *d->name, "the columns", f));
    TRY(memory_new(&d->missing_rank, d->n_columns, sizeof *d->missing_rank, "the columns", f));
    TRY(memory_new(&d->rank, d->n_columns, sizeof *d->rank, "the columns", f));
    TRY(memory_new(&d->valid_rank, d->n_columns, sizeof *d->valid_rank, "the columns", f));
    for (size_t i = 0; i < d->n_columns; i++) {
        d->is_text[i] = d->table->column[d->column[i]].kind == TABLE_TEXT;
        d->name[i] = d->table->column[d->column[i]].name;
        if (d->is_text[i]) TRY(rank_column(d, i, f));
    }
fail:
    return error;
}

int train_data_open(struct train_data *d, const struct train_options *o, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    int32_t *class_of = NULL;
    *d = (struct train_data){.pool = pool};
    TRY(table_open_parts(&d->table, o->data, pool, f));
    const struct table *t = d->table;
    TRY(data_check_task(t, o, f));
    d->is_regression = t->task == TABLE_REGRESSION;
    if (t->n_rows == 0) TRY(data_check_records(t, o, 0, "", f));
    TRY(data_check_target(t, f));
    if (!d->is_regression) {
        TRY(memory_new(&class_of, t->n_labels, sizeof *class_of, "the labels", f));
        TRY(data_find_classes(d, class_of, f));
    }
    TRY(data_check_records(t, o, d->n_classes, d->is_regression ? "" : d->label[0], f));
    if (d->is_regression) TRY(data_check_varied(t, f));
    TRY(memory_new(&d->use, t->n_columns, sizeof *d->use, "the columns", f));
    TRY(memory_new(&d->column, t->n_columns, sizeof *d->column, "the columns", f));
    TRY(ensemble_useful_columns(t, pool, d->use, d->column, &d->n_columns, f));
    if (o->valid != NULL) TRY(load_valid(d, o, pool, f));
    TRY(rank_texts(d, f));
    TRY(data_take_rows(d, o, class_of, f));
fail:
    free(class_of);
    if (error < 0) train_data_clear(d);
    return error;
}

int train_data_check_finite(const struct train_data *d, struct tabft_failure *f)
{
    int error = 0;
    for (size_t i = 0; i < d->n_columns; i++) TRY(data_check_finite(d->table, d->column[i], d->pool, f));
    for (size_t i = 0; d->valid != NULL && i < d->n_columns; i++)
        TRY(data_check_finite(d->valid, d->valid_column[i], d->pool, f));
fail:
    return error;
}

void train_data_clear(struct train_data *d)
{
    ahead_close(d->ahead);
    table_store_close(d->cells);
    table_store_close(d->valid_cells);
    table_close(d->table);
    table_close(d->valid);
    for (size_t i = 0; d->rank != NULL && i < d->n_columns; i++) free(d->rank[i]);
    for (size_t i = 0; d->valid_rank != NULL && i < d->n_columns; i++) free(d->valid_rank[i]);
    free(d->rank);
    free(d->valid_rank);
    free(d->is_text);
    free(d->name);
    free(d->missing_rank);
    free(d->column);
    free(d->valid_column);
    free(d->use);
    free(d->label);
    free(d->train_row);
    free(d->train_label);
    free(d->train_target);
    free(d->valid_row);
    free(d->valid_label);
    free(d->valid_target);
    *d = (struct train_data){0};
}

struct ensemble_columns train_data_columns(const struct train_data *d, const double *x, size_t n_rows)
{
    return (struct ensemble_columns){.n_rows = n_rows,
                                     .n_columns = d->n_columns,
                                     .x = x,
                                     .is_text = d->is_text,
                                     .missing_rank = d->missing_rank,
                                     .name = d->name};
}

enum train_metric train_data_metric(const struct train_data *d, const struct train_options *o)
{
    if (o->metric != TRAIN_METRIC_AUTO) return (enum train_metric)o->metric;
    return d->is_regression ? TRAIN_METRIC_MSE : TRAIN_METRIC_ROC_AUC;
}
