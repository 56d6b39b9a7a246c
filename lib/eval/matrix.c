#include "eval/matrix.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "table/table.h"

static int matrix_new(struct eval_matrix *m, const struct table *t, size_t n_columns, struct tabft_failure *f)
{
    int error = 0;
    size_t row;
    if (!size_mul(n_columns, sizeof *m->x, &row)) FAIL(f, TABFT_SYSTEM, "%s: too many columns", t->path);
    TRY(memory_new(&m->x, t->n_rows, row, "a table's rows", f));
    TRY(memory_new(&m->is_text, n_columns, sizeof *m->is_text, "a table's columns", f));
    TRY(memory_new(&m->missing_rank, n_columns, sizeof *m->missing_rank, "a table's columns", f));
    m->columns = (struct ensemble_columns){.n_rows = t->n_rows,
                                           .n_columns = n_columns,
                                           .x = m->x,
                                           .is_text = m->is_text,
                                           .missing_rank = m->missing_rank};
fail:
    return error;
}

/* Column `to` of a matrix from a column of a table; rank is for text, NULL for numbers. */
static void fill(struct eval_matrix *m, size_t to, const struct table_column *from, const double *rank)
{
    for (size_t i = 0; i < m->columns.n_rows; i++) {
        double value = from->value[i];
        m->x[i * m->columns.n_columns + to] = rank != NULL && !isnan(value) ? rank[(size_t)value] : value;
    }
    m->is_text[to] = rank != NULL;
}

static int fill_text(struct eval_matrix *context, struct eval_matrix *query, size_t to,
                     const struct table_column *train, const struct table_column *test, struct tabft_failure *f)
{
    int error = 0;
    double *train_rank = NULL, *test_rank = NULL, missing_rank;
    TRY(memory_new(&train_rank, train->n_dictionary, sizeof *train_rank, "a dictionary", f));
    TRY(memory_new(&test_rank, test->n_dictionary, sizeof *test_rank, "a dictionary", f));
    TRY(ensemble_rank_texts(train, test, train_rank, test_rank, &missing_rank, f));
    fill(context, to, train, train_rank);
    fill(query, to, test, test_rank);
    context->missing_rank[to] = query->missing_rank[to] = missing_rank;
fail:
    free(test_rank);
    free(train_rank);
    return error;
}

int eval_matrices(const struct table *train, const struct table *test, struct eval_matrix *context,
                  struct eval_matrix *query, struct tabft_failure *f)
{
    int error = 0;
    size_t *map = NULL, *used = NULL, n_used;
    enum ensemble_use *use = NULL;
    TRY(memory_new(&map, train->n_columns, sizeof *map, "a table's columns", f));
    TRY(memory_new(&used, train->n_columns, sizeof *used, "a table's columns", f));
    TRY(memory_new(&use, train->n_columns, sizeof *use, "a table's columns", f));
    TRY(table_match(train, test, map, f));
    TRY(ensemble_useful_columns(train, use, used, &n_used, f));
    TRY(matrix_new(context, train, n_used, f));
    TRY(matrix_new(query, test, n_used, f));
    for (size_t i = 0; i < n_used; i++) {
        const struct table_column *a = &train->column[used[i]], *b = &test->column[map[used[i]]];
        if (a->kind == TABLE_TEXT) TRY(fill_text(context, query, i, a, b, f));
        else {
            fill(context, i, a, NULL);
            fill(query, i, b, NULL);
        }
    }
fail:
    free(use);
    free(used);
    free(map);
    return error;
}

void eval_matrix_clear(struct eval_matrix *m)
{
    free(m->x);
    free(m->is_text);
    free(m->missing_rank);
    *m = (struct eval_matrix){0};
}
