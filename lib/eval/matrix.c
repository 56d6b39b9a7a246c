#include "eval/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/table.h"

static int matrix_new(struct eval_matrix *m, const struct table *t, size_t n_columns, struct tabft_failure *f)
{
    int error = 0;
    size_t row;
    if (!size_mul(n_columns, sizeof *m->x, &row)) FAIL(f, TABFT_SYSTEM, "%s: too many columns", t->path);
    TRY(memory_new(&m->x, t->n_rows, row, "a table's rows", f));
    TRY(memory_new(&m->is_text, n_columns, sizeof *m->is_text, "a table's columns", f));
    m->columns =
        (struct ensemble_columns){.n_rows = t->n_rows, .n_columns = n_columns, .x = m->x, .is_text = m->is_text};
fail:
    return error;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* rank[i] = where text i of `dictionary` stands among the sorted texts, ENSEMBLE_UNSEEN if it is none of them. */
static void rank_texts(const char *const *sorted, size_t n, const char *const *dictionary, size_t n_dictionary,
                       double *rank)
{
    for (size_t i = 0; i < n_dictionary; i++) {
        const char *const *found = n > 0 ? bsearch(&dictionary[i], sorted, n, sizeof *sorted, by_text) : NULL;
        rank[i] = found != NULL ? (double)(found - sorted) : ENSEMBLE_UNSEEN;
    }
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
    const char **sorted = NULL;
    double *rank = NULL;
    size_t most = train->n_dictionary > test->n_dictionary ? train->n_dictionary : test->n_dictionary;
    TRY(memory_new(&sorted, train->n_dictionary, sizeof *sorted, "a dictionary", f));
    TRY(memory_new(&rank, most, sizeof *rank, "a dictionary", f));
    for (size_t i = 0; i < train->n_dictionary; i++) sorted[i] = train->dictionary[i];
    if (train->n_dictionary > 0) qsort(sorted, train->n_dictionary, sizeof *sorted, by_text);
    rank_texts(sorted, train->n_dictionary, train->dictionary, train->n_dictionary, rank);
    fill(context, to, train, rank);
    rank_texts(sorted, train->n_dictionary, test->dictionary, test->n_dictionary, rank);
    fill(query, to, test, rank);
fail:
    free(rank);
    free(sorted);
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
    *m = (struct eval_matrix){0};
}
