#include "eval/matrix.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "table/store.h"
#include "table/table.h"

static int lists_new(struct eval_columns *c, size_t n, struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&c->train_column, n, sizeof *c->train_column, "a table's columns", f));
    TRY(memory_new(&c->test_column, n, sizeof *c->test_column, "a table's columns", f));
    TRY(memory_new(&c->is_text, n, sizeof *c->is_text, "a table's columns", f));
    TRY(memory_new(&c->name, n, sizeof *c->name, "a table's columns", f));
    TRY(memory_new(&c->missing_rank, n, sizeof *c->missing_rank, "a table's columns", f));
    TRY(memory_new(&c->train_rank, n, sizeof *c->train_rank, "a table's columns", f));
    TRY(memory_new(&c->test_rank, n, sizeof *c->test_rank, "a table's columns", f));
fail:
    return error;
}

static int rank_texts(struct eval_columns *c, size_t i, struct tabft_failure *f)
{
    int error = 0;
    const struct table_column *a = &c->train->column[c->train_column[i]], *b = &c->test->column[c->test_column[i]];
    if (a->kind != TABLE_TEXT) return 0;
    c->is_text[i] = true;
    TRY(memory_new(&c->train_rank[i], a->n_dictionary, sizeof **c->train_rank, "a dictionary", f));
    TRY(memory_new(&c->test_rank[i], b->n_dictionary, sizeof **c->test_rank, "a dictionary", f));
    TRY(ensemble_rank_texts(a, b, c->train_rank[i], c->test_rank[i], &c->missing_rank[i], f));
fail:
    return error;
}

int eval_columns_open(struct eval_columns *out, const struct table *train, const struct table *test,
                      struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    struct eval_columns c = {.train = train, .test = test};
    size_t *map = NULL;
    TRY(memory_new(&map, train->n_columns, sizeof *map, "a table's columns", f));
    TRY(memory_new(&c.use, train->n_columns, sizeof *c.use, "a table's columns", f));
    TRY(lists_new(&c, train->n_columns, f));
    TRY(table_match(train, test, map, f));
    TRY(ensemble_useful_columns(train, pool, c.use, c.train_column, &c.n, f));
    for (size_t i = 0; i < c.n; i++) {
        c.test_column[i] = map[c.train_column[i]];
        c.name[i] = train->column[c.train_column[i]].name;
        TRY(rank_texts(&c, i, f));
    }
    *out = c;
    c = (struct eval_columns){0};
fail:
    eval_columns_clear(&c);
    free(map);
    return error;
}

void eval_columns_clear(struct eval_columns *c)
{
    for (size_t i = 0; c->test_rank != NULL && i < c->n; i++) {
        free(c->train_rank[i]);
        free(c->test_rank[i]);
    }
    free(c->use);
    free(c->train_column);
    free(c->test_column);
    free(c->is_text);
    free(c->name);
    free(c->missing_rank);
    free(c->train_rank);
    free(c->test_rank);
    *c = (struct eval_columns){0};
}

static double cell(double value, const double *rank)
{
    return rank != NULL && !isnan(value) ? rank[(size_t)value] : value;
}

size_t eval_columns_bytes(const struct eval_columns *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->is_text[i])
            n += c->train->column[c->train_column[i]].n_dictionary + c->test->column[c->test_column[i]].n_dictionary;
    return n * sizeof(double);
}

int eval_columns_context(const struct eval_columns *c, struct threads *pool, double *x, struct tabft_failure *f)
{
    int error = 0;
    double *value = NULL;
    TRY(memory_new(&value, c->train->n_rows, sizeof *value, "a column", f));
    for (size_t i = 0; i < c->n; i++) {
        TRY(table_read_column(c->train, c->train_column[i], pool, value, f));
        for (size_t row = 0; row < c->train->n_rows; row++) x[row * c->n + i] = cell(value[row], c->train_rank[i]);
    }
fail:
    free(value);
    return error;
}

int eval_columns_rows(const struct eval_columns *c, const size_t *row, size_t n_rows, struct threads *pool, double *x,
                      struct tabft_failure *f)
{
    int error = table_gather(c->test, c->test_column, c->n, row, n_rows, pool, x, f);
    if (error < 0) return error;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < c->n; j++)
            if (c->test_rank[j] != NULL) x[i * c->n + j] = cell(x[i * c->n + j], c->test_rank[j]);
    return 0;
}

struct ensemble_columns eval_columns_matrix(const struct eval_columns *c, const double *x, size_t n_rows)
{
    return (struct ensemble_columns){.n_rows = n_rows,
                                     .n_columns = c->n,
                                     .x = x,
                                     .is_text = c->is_text,
                                     .missing_rank = c->missing_rank,
                                     .name = c->name};
}
