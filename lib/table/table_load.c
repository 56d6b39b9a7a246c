#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/packed.h"
#include "table/table.h"

/* A table and what its pointers point into. */
struct loaded {
    struct table table;
    struct packed_reader *reader; /* names, labels, dictionaries, digest and path live here */
    struct table_column *column;  /* [n_columns without target] */
    double *value;                /* [all columns][n_rows], in file order, or NULL */
};

static void load_page(void *context, size_t column, size_t group, const struct cells *cells, size_t n)
{
    struct loaded *t = context;
    const struct schema *s = packed_reader_schema(t->reader);
    bool real = storage_is_real(s->column[column].storage);
    double *to = t->value + column * s->n_rows + group * TABLE_GROUP_ROWS;
    for (size_t i = 0; i < n; i++) {
        if (real) to[i] = slot_double(cells->slot[i]);
        else to[i] = cells->absent[i] ? (double)NAN : (double)slot_integer(cells->slot[i]);
    }
}

static int load_values(struct loaded *t, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    const struct schema *s = packed_reader_schema(t->reader);
    size_t n;
    if (!size_mul(s->n_rows, s->n_columns, &n))
        FAIL(f, TABFT_SYSTEM, "no memory for %zu x %zu cells", s->n_rows, s->n_columns);
    TRY(memory_new_aligned(&t->value, n, sizeof *t->value, "the table", f));
    TRY(packed_reader_walk(t->reader, pool, load_page, t, f));
fail:
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
                                 .dictionary = label ? (const char *const *)s->label
                                                     : (const char *const *)texts->text};
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
    t->table = (struct table){
        .n_rows = s->n_rows, .has_target = s->target != TABLE_NO_TARGET, .task = s->task, .n_labels = s->n_labels};
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

int table_open_schema(struct table **out, const char *path, struct tabft_failure *f)
{
    return load(out, path, false, NULL, f);
}

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
        if (found == NULL)
            FAIL(f, TABFT_INPUT, "%s: column %s of %s is missing; pack a table that has it", test->path, a->name,
                 train->path);
        const struct table_column *b = &test->column[found->index];
        if (!kinds_match(train, a, b) && b->n_missing < test->n_rows) {
            FAIL(f, TABFT_INPUT,
                 "%s: column %s is %s and in %s it is %s; tabft-prep pack --schema gives both the same kinds",
                 test->path, a->name, kind_name(b->kind), train->path, kind_name(a->kind));
        }
        map[i] = found->index;
    }
fail:
    free(index);
    return error;
}
