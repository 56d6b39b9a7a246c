#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/loop.h"
#include "table/packed.h"
#include "table/table.h"

/* A table and what its pointers point into. */
struct loaded {
    struct table table;
    struct packed_reader *reader;   /* names, labels, dictionaries, digest and path live here */
    struct table_column *column;    /* [n_columns without target] */
    double *value;                  /* [all columns][n_rows], in file order, or NULL */
};

struct load_loop {
    const struct packed_reader *r;
    double *value;
    struct cells *scratch; /* one a thread */
    struct column_statistics *statistics; /* [pages] */
    struct loop_failure failure;
};

static void load_page(void *context, size_t block, int thread)
{
    struct load_loop *l = context;
    const struct schema *s = packed_reader_schema(l->r);
    size_t column = block % s->n_columns, group = block / s->n_columns, n = packed_reader_group_rows(l->r, group);
    bool real = storage_is_real(s->column[column].storage);
    double *to = l->value + column * s->n_rows + group * TABLE_GROUP_ROWS;
    const struct cells *from = &l->scratch[thread];
    struct tabft_failure f = {0};
    if (packed_reader_page(l->r, thread, column, group, &l->scratch[thread], &l->statistics[block], &f) < 0) {
        loop_failure_keep(&l->failure, block, &f);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (real) to[i] = slot_double(from->slot[i]);
        else to[i] = from->absent[i] ? (double)NAN : (double)slot_integer(from->slot[i]);
    }
}

/* Statistics of pages together must be those of the file: training trusts the counts. */
static int check_statistics(const struct packed_reader *r, const struct column_statistics *page, struct tabft_failure *f)
{
    const struct schema *s = packed_reader_schema(r);
    for (size_t c = 0; c < s->n_columns; c++) {
        struct column_statistics sum = {0};
        for (size_t g = 0; g < schema_groups(s); g++) statistics_merge(&sum, &page[g * s->n_columns + c]);
        if (!statistics_equal(&sum, &packed_reader_statistics(r)[c], s->column[c].storage)) {
            return tabft_fail(f, TABFT_INPUT, "%s: the statistics of column %s are not those of its cells", packed_reader_path(r), s->column[c].name);
        }
    }
    return 0;
}

static int load_values(struct loaded *t, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    const struct schema *s = packed_reader_schema(t->reader);
    size_t n_pages = schema_groups(s) * s->n_columns, n;
    struct load_loop l = {.r = t->reader};
    if (!size_mul(s->n_rows, s->n_columns, &n)) FAIL(f, TABFT_SYSTEM, "no memory for %zu x %zu cells", s->n_rows, s->n_columns);
    TRY(memory_new_aligned(&t->value, n, sizeof *t->value, "the table", f));
    TRY(cells_new(&l.scratch, (size_t)threads_count(pool), TABLE_GROUP_ROWS, f));
    TRY(memory_new(&l.statistics, n_pages, sizeof *l.statistics, "statistics", f));
    l.value = t->value;
    loop_failure_open(&l.failure);
    threads_run(pool, n_pages, load_page, &l);
    TRY(loop_failure_close(&l.failure, f));
    TRY(check_statistics(t->reader, l.statistics, f));
    TRY(packed_reader_unchanged(t->reader, f));
fail:
    cells_free(l.scratch);
    free(l.statistics);
    return error;
}

static struct table_column describe(const struct loaded *t, size_t c)
{
    const struct schema *s = packed_reader_schema(t->reader);
    bool label = s->target == (ptrdiff_t)c && s->task == TABLE_CLASSIFICATION;
    const struct texts *texts = &packed_reader_texts(t->reader)[c];
    return (struct table_column){.name = s->column[c].name,
                                 .kind = s->column[c].kind,
                                 .value = t->value == NULL ? NULL : t->value + c * s->n_rows,
                                 .n_missing = packed_reader_statistics(t->reader)[c].n_missing,
                                 .n_dictionary = schema_code_count(s, c),
                                 .dictionary = label ? (const char *const *)s->label : (const char *const *)texts->text};
}

static int load(struct table **out, const char *path, bool values, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    struct loaded *t = NULL;
    TRY(memory_new(&t, 1, sizeof *t, "a table", f));
    TRY(packed_reader_open(&t->reader, path, threads_count(pool), values, f));
    const struct schema *s = packed_reader_schema(t->reader);
    if (values) TRY(load_values(t, pool, f));
    TRY(memory_new(&t->column, s->n_columns, sizeof *t->column, "a table", f));
    t->table = (struct table){.n_rows = s->n_rows, .has_target = s->target != TABLE_NO_TARGET, .task = s->task, .n_labels = s->n_labels};
    for (size_t c = 0; c < s->n_columns; c++) {
        if (s->target == (ptrdiff_t)c) t->table.target = describe(t, c);
        else t->column[t->table.n_columns++] = describe(t, c);
    }
    t->table.column = t->column;
    t->table.label = (const char *const *)s->label;
    t->table.digest = packed_reader_digest(t->reader);
    t->table.path = packed_reader_path(t->reader);
    *out = &t->table;
    return 0;
fail:
    if (t != NULL) table_close(&t->table);
    return error;
}

int table_open(struct table **out, const char *path, struct threads *pool, struct tabft_failure *f)
{
    return load(out, path, true, pool, f);
}

int table_open_schema(struct table **out, const char *path, struct tabft_failure *f) { return load(out, path, false, NULL, f); }

void table_close(struct table *table)
{
    struct loaded *t = (struct loaded *)table; /* its first member */
    if (t == NULL) return;
    packed_reader_close(t->reader);
    free(t->column);
    free(t->value);
    free(t);
}

struct by_name {
    const char *name;
    size_t index;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct by_name *)a)->name, ((const struct by_name *)b)->name);
}

static bool kinds_match(const struct table *train, const struct table_column *a, const struct table_column *b)
{
    if (a->n_missing == train->n_rows) return true;
    bool text_a = a->kind == TABLE_TEXT, text_b = b->kind == TABLE_TEXT;
    return text_a == text_b;
}

int table_match(const struct table *train, const struct table *test, size_t *map, struct tabft_failure *f)
{
    int error = 0;
    struct by_name *index = NULL;
    TRY(memory_new(&index, test->n_columns, sizeof *index, "a list of columns", f));
    for (size_t i = 0; i < test->n_columns; i++) index[i] = (struct by_name){test->column[i].name, i};
    qsort(index, test->n_columns, sizeof *index, compare_names);
    for (size_t i = 0; i < train->n_columns; i++) {
        const struct table_column *a = &train->column[i];
        struct by_name key = {a->name, 0};
        const struct by_name *found = bsearch(&key, index, test->n_columns, sizeof *index, compare_names);
        if (found == NULL) FAIL(f, TABFT_INPUT, "%s: column %s of %s is missing; pack a table that has it", test->path, a->name, train->path);
        const struct table_column *b = &test->column[found->index];
        if (!kinds_match(train, a, b) && b->n_missing < test->n_rows) {
            FAIL(f, TABFT_INPUT, "%s: column %s is %s and in %s it is %s; tabft-prep pack --schema gives both the same kinds", test->path, a->name,
                 kind_name(b->kind), train->path, kind_name(a->kind));
        }
        map[i] = found->index;
    }
fail:
    free(index);
    return error;
}
