/* Predictions as packed tables, block by block: row, label, a column of probabilities a class; or row, target, mean,
 * quantiles. */
#define TABFT_IN_PREDICTION_FILES
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "eval/eval.h"
#include "eval/prediction_internal.h"
#include "table/table.h"

enum { ROWS_AT_ONCE = 1024, LEVEL_NAME = 48 };

struct eval_prediction_writer {
    struct table_writer *table;
    bool is_regression;
    size_t n_classes, n_levels;
    double *values;       /* [columns][ROWS_AT_ONCE] */
    const double **value; /* [columns], into values */
};

/* The columns of classification; row 0 is the first. */
static void describe_classes(const struct eval_prediction *head, struct table_column *column)
{
    column[LABEL] = (struct table_column){.name = "label",
                                          .kind = TABLE_TEXT,
                                          .n_dictionary = head->n_labels,
                                          .dictionary = (const char *const *)head->label};
    for (size_t c = 0; c < head->n_classes; c++)
        column[FIRST_CLASS + c] = (struct table_column){.name = head->label[c], .kind = TABLE_FLOAT};
}

static void describe_numbers(const struct eval_prediction *head, char (*name)[LEVEL_NAME], struct table_column *column)
{
    column[TARGET] = (struct table_column){.name = "target", .kind = TABLE_FLOAT};
    column[MEAN] = (struct table_column){.name = "mean", .kind = TABLE_FLOAT};
    for (size_t k = 0; k < head->n_levels; k++) {
        for (int digits = 1; digits <= 17; digits++) { /* the shortest that reads back as the same */
            (void)snprintf(name[k], sizeof name[k], PREDICTION_QUANTILE "%.*g", digits, head->level[k]);
            if (strtod(name[k] + strlen(PREDICTION_QUANTILE), NULL) == head->level[k]) break;
        }
        column[FIRST_QUANTILE + k] = (struct table_column){.name = name[k], .kind = TABLE_FLOAT};
    }
}

static size_t columns_of(const struct eval_prediction *head)
{
    return head->is_regression ? FIRST_QUANTILE + head->n_levels : FIRST_CLASS + head->n_classes;
}

size_t eval_prediction_writer_bytes(const struct eval_prediction *head, int n_threads)
{
    const size_t n = columns_of(head);
    return n * ROWS_AT_ONCE * sizeof(double) + table_writer_bytes(head->n_rows, n, n_threads);
}

static int open_table(struct eval_prediction_writer *w, const struct eval_prediction *head, const char *path,
                      bool force, const char *provenance, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    const size_t n_columns = columns_of(head);
    struct table_column *column = NULL;
    char(*name)[LEVEL_NAME] = NULL;
    TRY(memory_new(&column, n_columns, sizeof *column, "predictions", f));
    TRY(memory_new(&name, head->n_levels, sizeof *name, "predictions", f));
    column[ROW] = (struct table_column){.name = "row", .kind = TABLE_INTEGER};
    if (head->is_regression) describe_numbers(head, name, column);
    else describe_classes(head, column);
    const struct table_output output = {.n_rows = head->n_rows,
                                        .n_columns = n_columns,
                                        .column = column,
                                        .target = SIZE_MAX,
                                        .task = TABLE_NO_TASK,
                                        .provenance = provenance};
    TRY(table_writer_open(&w->table, path, force, &output, pool, f));
fail:
    free(name);
    free(column);
    return error;
}

int eval_prediction_writer_open(struct eval_prediction_writer **out, const struct eval_prediction *head,
                                const char *path, bool force, const char *provenance, struct threads *pool,
                                struct tabft_failure *f)
{
    int error = 0;
    struct eval_prediction_writer *w = NULL;
    const size_t n_columns = columns_of(head);
    TRY(memory_new(&w, 1, sizeof *w, "predictions", f));
    w->is_regression = head->is_regression;
    w->n_classes = head->n_classes;
    w->n_levels = head->n_levels;
    TRY(memory_new(&w->values, n_columns, ROWS_AT_ONCE * sizeof *w->values, "predictions", f));
    TRY(memory_new(&w->value, n_columns, sizeof *w->value, "predictions", f));
    for (size_t c = 0; c < n_columns; c++) w->value[c] = w->values + c * ROWS_AT_ONCE;
    TRY(open_table(w, head, path, force, provenance, pool, f));
    *out = w;
    w = NULL;
fail:
    eval_prediction_writer_abandon(w);
    return error;
}

static double *column_of(const struct eval_prediction_writer *w, size_t c) { return w->values + c * ROWS_AT_ONCE; }

/* Rows [at, at + n) of a block as columns behind ROW. */
static void put_classes(const struct eval_prediction_writer *w, const struct eval_prediction *rows, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t truth = rows->truth[at + i];
        column_of(w, LABEL)[i] = truth == EVAL_NO_LABEL ? (double)NAN : (double)truth;
        for (size_t c = 0; c < w->n_classes; c++)
            column_of(w, FIRST_CLASS + c)[i] = rows->probability[(at + i) * w->n_classes + c];
    }
}

static void put_numbers(const struct eval_prediction_writer *w, const struct eval_prediction *rows, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        column_of(w, TARGET)[i] = rows->target[at + i];
        column_of(w, MEAN)[i] = rows->mean[at + i];
        for (size_t k = 0; k < w->n_levels; k++)
            column_of(w, FIRST_QUANTILE + k)[i] = rows->quantile[(at + i) * w->n_levels + k];
    }
}

int eval_prediction_writer_put(void *writer, size_t first, const struct eval_prediction *rows, struct tabft_failure *f)
{
    struct eval_prediction_writer *w = writer;
    for (size_t at = 0; at < rows->n_rows; at += ROWS_AT_ONCE) {
        const size_t n = rows->n_rows - at < ROWS_AT_ONCE ? rows->n_rows - at : ROWS_AT_ONCE;
        for (size_t i = 0; i < n; i++) column_of(w, ROW)[i] = (double)(first + at + i);
        if (w->is_regression) put_numbers(w, rows, at, n);
        else put_classes(w, rows, at, n);
        int error = table_writer_put(w->table, w->value, n, f);
        if (error < 0) return error;
    }
    return 0;
}

int eval_prediction_writer_close(struct eval_prediction_writer *w, struct tabft_failure *f)
{
    struct table_writer *table = w->table;
    w->table = NULL;
    eval_prediction_writer_abandon(w);
    return table_writer_close(table, f);
}

void eval_prediction_writer_abandon(struct eval_prediction_writer *w)
{
    if (w == NULL) return;
    table_writer_abandon(w->table);
    free(w->values);
    free(w->value);
    free(w);
}

int eval_prediction_write(const struct eval_prediction *p, const char *path, bool force, const char *provenance,
                          struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    struct eval_prediction_writer *w = NULL;
    TRY(eval_prediction_writer_open(&w, p, path, force, provenance, pool, f));
    TRY(eval_prediction_writer_put(w, 0, p, f));
    struct eval_prediction_writer *closing = w;
    w = NULL;
    TRY(eval_prediction_writer_close(closing, f));
fail:
    eval_prediction_writer_abandon(w);
    return error;
}
