/* The parts of a prediction that a job array made, into one table. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "eval/eval.h"
#include "table/store.h"
#include "table/table.h"

enum { ROWS_AT_ONCE = 4096 };

int eval_part_rows(const struct eval_part *part, size_t n_all, size_t *first, size_t *n, struct tabft_failure *f)
{
    const size_t of = part->of > 0 ? part->of : 1, i = part->index, share = n_all / of, rest = n_all % of;
    *first = i * share + (i < rest ? i : rest); /* the first `rest` parts have a row more */
    *n = share + (i < rest);
    if (of <= n_all) return 0;
    return tabft_fail(f, TABFT_USE, "part %zu of %zu: there are only %zu rows; use at most so many parts", i, of,
                      n_all);
}

/* One file: `whole` is its provenance without what makes it a part. */
struct piece {
    struct table *table;
    json_t *whole;
    struct eval_part part;
    size_t n_all; /* rows of all parts */
};

struct merge {
    struct piece *piece;
    size_t n;
    struct threads *pool;
};

static bool take_size(const json_t *object, const char *key, size_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (size_t)json_integer_value(value);
    return true;
}

static bool take_part(struct piece *p)
{
    const json_t *part = json_object_get(p->whole, "part"), *array = json_object_get(part, "array");
    const char *tool = json_string_value(json_object_get(p->whole, "tool"));
    bool whole = tool != NULL && strcmp(tool, "tabft-eval predict") == 0 && take_size(part, "index", &p->part.index) &&
                 take_size(part, "of", &p->part.of) && take_size(part, "rows", &p->n_all);
    if (array != NULL)
        whole = whole && take_size(array, "first", &p->part.first_task) && take_size(array, "step", &p->part.task_step);
    return whole && p->part.index < p->part.of && p->part.of <= p->n_all;
}

static int open_piece(struct piece *p, const char *path, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL;
    size_t first, n;
    TRY(table_open_parts(&p->table, path, pool, f));
    TRY(table_provenance(p->table, &text, f));
    p->whole = json_loads(text, 0, NULL);
    if (p->whole == NULL) FAIL(f, TABFT_SYSTEM, "no memory for the provenance; give the job more memory");
    if (!take_part(p))
        FAIL(f, TABFT_INPUT, "%s: not a part of a prediction; tabft-eval predict --part I/N makes one", path);
    TRY(eval_part_rows(&p->part, p->n_all, &first, &n, f));
    if (n != p->table->n_rows || p->table->has_target || p->table->n_columns < 1 ||
        strcmp(p->table->column[0].name, "row") != 0)
        FAIL(f, TABFT_INPUT, "%s: has %zu rows, part %zu of %zu has %zu; predict it again", path, p->table->n_rows,
             p->part.index, p->part.of, n);
    (void)json_object_del(p->whole, "part");
fail:
    free(text);
    return error;
}

static int by_index(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return x->part.index < y->part.index ? -1 : x->part.index > y->part.index;
}

/* What two parts that are not of one prediction differ in. */
static const char *difference(const struct piece *a, const struct piece *b)
{
    const char *key;
    json_t *value;
    json_object_foreach(a->whole, key, value) if (!json_equal(value, json_object_get(b->whole, key))) return key;
    json_object_foreach(b->whole, key, value) if (json_object_get(a->whole, key) == NULL) return key;
    return a->part.of != b->part.of ? "number of parts" : a->n_all != b->n_all ? "number of rows" : NULL;
}

/* "part 3 of 8, task 40 of the job array". */
static const char *name_of(const struct eval_part *p, size_t index, char name[96])
{
    int n = snprintf(name, 96, "part %zu of %zu", index, p->of);
    if (p->task_step > 0)
        (void)snprintf(name + n, 96 - (size_t)n, " (task %zu of the job array)", p->first_task + index * p->task_step);
    return name;
}

static int fail_missing(const struct eval_part *p, size_t index, struct tabft_failure *f)
{
    char name[96];
    return tabft_fail(f, TABFT_INPUT, "%s is missing; run that one again (predict --part %zu/%zu) and merge all",
                      name_of(p, index, name), index, p->of);
}

static int check_order(struct merge *m, struct tabft_failure *f)
{
    int error = 0;
    char name[96];
    const struct piece *first = &m->piece[0];
    for (size_t i = 1; i < m->n; i++) {
        const char *key = difference(first, &m->piece[i]);
        if (key != NULL)
            FAIL(f, TABFT_INPUT, "%s and %s: are parts of two predictions: they differ in %s; merge parts of one",
                 first->table->path, m->piece[i].table->path, key);
    }
    qsort(m->piece, m->n, sizeof *m->piece, by_index);
    for (size_t i = 0; i < m->n; i++) {
        const struct piece *p = &m->piece[i];
        if (p->part.index == i) continue;
        if (i > 0 && p->part.index == m->piece[i - 1].part.index)
            FAIL(f, TABFT_INPUT, "%s and %s: both are %s; name one of them", m->piece[i - 1].table->path,
                 p->table->path, name_of(&p->part, p->part.index, name));
        TRY(fail_missing(&p->part, i, f));
    }
    if (m->n < first->part.of) TRY(fail_missing(&m->piece[0].part, m->n, f));
fail:
    return error;
}

/* All have the columns and texts of the first: they are in the order of the first part's file. */
static int check_columns(const struct merge *m, struct tabft_failure *f)
{
    const struct table *a = m->piece[0].table;
    for (size_t i = 1; i < m->n; i++) {
        const struct table *b = m->piece[i].table;
        bool same = a->n_columns == b->n_columns;
        for (size_t c = 0; same && c < a->n_columns; c++) {
            const struct table_column *x = &a->column[c], *y = &b->column[c];
            same = strcmp(x->name, y->name) == 0 && x->kind == y->kind && x->n_dictionary == y->n_dictionary;
            for (size_t k = 0; same && k < x->n_dictionary; k++) same = strcmp(x->dictionary[k], y->dictionary[k]) == 0;
        }
        if (!same)
            return tabft_fail(f, TABFT_INPUT, "%s: other columns or labels than in %s; predict both again", b->path,
                              a->path);
    }
    return 0;
}

/* Rows on their way, ROWS_AT_ONCE of them. */
struct copy {
    size_t *row, *column;
    double *x, *by_column; /* as they are read, and as they are put */
    const double **value;  /* [columns], into by_column */
    size_t next;           /* row of the test table */
};

static int copy_open(struct copy *c, size_t n_columns, struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&c->row, ROWS_AT_ONCE, sizeof *c->row, "predictions", f));
    TRY(memory_new(&c->column, n_columns, sizeof *c->column, "predictions", f));
    TRY(memory_new(&c->value, n_columns, sizeof *c->value, "predictions", f));
    TRY(memory_new(&c->x, n_columns, ROWS_AT_ONCE * sizeof *c->x, "predictions", f));
    TRY(memory_new(&c->by_column, n_columns, ROWS_AT_ONCE * sizeof *c->by_column, "predictions", f));
    for (size_t i = 0; i < n_columns; i++) {
        c->column[i] = i;
        c->value[i] = c->by_column + i * ROWS_AT_ONCE;
    }
fail:
    return error;
}

static void copy_close(struct copy *c)
{
    free(c->row);
    free(c->column);
    free(c->value);
    free(c->x);
    free(c->by_column);
}

/* Each row says which row of the test table it is. */
static int copy_piece(struct copy *c, const struct table *t, struct threads *pool, struct table_writer *to,
                      struct tabft_failure *f)
{
    int error = 0;
    const size_t k = t->n_columns;
    for (size_t at = 0; at < t->n_rows; at += ROWS_AT_ONCE) {
        const size_t left = t->n_rows - at, n = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        for (size_t i = 0; i < n; i++) c->row[i] = at + i;
        TRY(table_gather(t, c->column, k, c->row, n, pool, c->x, f));
        for (size_t i = 0; i < n; i++, c->next++) {
            if (c->x[i * k] != (double)c->next)
                FAIL(f, TABFT_INPUT, "%s: row %zu of the test table is not where it belongs; predict that part again",
                     t->path, c->next);
            for (size_t j = 0; j < k; j++) c->by_column[j * ROWS_AT_ONCE + i] = c->x[i * k + j];
        }
        TRY(table_writer_put(to, c->value, n, f));
    }
fail:
    return error;
}

static int copy_rows(const struct merge *m, struct table_writer *to, struct tabft_failure *f)
{
    int error = 0;
    struct copy c = {0};
    TRY(copy_open(&c, m->piece[0].table->n_columns, f));
    for (size_t i = 0; i < m->n; i++) TRY(copy_piece(&c, m->piece[i].table, m->pool, to, f));
fail:
    copy_close(&c);
    return error;
}

/* The whole's description: columns without values, and the provenance of one process. */
static int open_whole(const struct merge *m, const char *path, bool force, struct table_writer **to,
                      struct tabft_failure *f)
{
    int error = 0;
    const struct piece *first = &m->piece[0];
    struct table_column *column = NULL;
    char *provenance = NULL;
    TRY(memory_new(&column, first->table->n_columns, sizeof *column, "predictions", f));
    for (size_t c = 0; c < first->table->n_columns; c++) {
        column[c] = first->table->column[c];
        column[c].value = NULL;
    }
    provenance = json_dumps(first->whole, JSON_COMPACT);
    if (provenance == NULL) FAIL(f, TABFT_SYSTEM, "no memory for the provenance; give the job more memory");
    const struct table_output output = {.n_rows = first->n_all,
                                        .n_columns = first->table->n_columns,
                                        .column = column,
                                        .target = SIZE_MAX,
                                        .task = TABLE_NO_TASK,
                                        .provenance = provenance};
    TRY(table_writer_open(to, path, force, &output, m->pool, f));
fail:
    free(provenance);
    free(column);
    return error;
}

int eval_merge(const char *const *part, size_t n_parts, const char *path, bool force, struct threads *pool,
               struct tabft_failure *f)
{
    int error = 0;
    struct merge m = {.n = n_parts, .pool = pool};
    struct table_writer *to = NULL;
    TRY(memory_new(&m.piece, n_parts, sizeof *m.piece, "parts", f));
    for (size_t i = 0; i < n_parts; i++) TRY(open_piece(&m.piece[i], part[i], pool, f));
    TRY(check_order(&m, f));
    TRY(check_columns(&m, f));
    TRY(open_whole(&m, path, force, &to, f));
    TRY(copy_rows(&m, to, f));
    struct table_writer *closing = to;
    to = NULL;
    TRY(table_writer_close(closing, f));
fail:
    table_writer_abandon(to);
    for (size_t i = 0; m.piece != NULL && i < n_parts; i++) {
        table_close(m.piece[i].table);
        json_decref(m.piece[i].whole);
    }
    free(m.piece);
    return error;
}
