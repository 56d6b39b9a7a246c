#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/loaded.h"
#include "table/loop.h"
#include "tbf/tbf.h"

/* What of a table's cells is loaded. */
enum extent { EXTENT_NONE, EXTENT_TARGET, EXTENT_ALL };

static void take_values(const struct schema *s, size_t column, const struct cells *cells, size_t n, double *to)
{
    bool real = storage_is_real(s->column[column].storage);
    for (size_t i = 0; i < n; i++) {
        if (real) to[i] = slot_double(cells->slot[i]);
        else to[i] = cells->absent[i] ? (double)NAN : (double)slot_integer(cells->slot[i]);
    }
}

static void load_page(void *context, size_t column, size_t group, const struct cells *cells, size_t n)
{
    struct loaded *t = context;
    const struct schema *s = packed_reader_schema(t->reader);
    take_values(s, column, cells, n, t->value + column * s->n_rows + group * TABLE_GROUP_ROWS);
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

/* ---- one column ---- */

struct column_loop {
    const struct loaded *t;
    size_t column;                        /* in the schema */
    double *value;                        /* [n_rows] */
    struct cells *scratch;                /* one a thread */
    struct column_statistics *statistics; /* [groups] */
    struct loop_failure failure;
};

static void read_column_page(void *context, size_t group, int thread)
{
    struct column_loop *l = context;
    struct tabft_failure f = {0};
    const struct packed_reader *r = l->t->reader;
    struct cells *cells = &l->scratch[thread];
    if (packed_reader_page(r, thread, l->column, group, cells, &l->statistics[group], &f) < 0)
        loop_failure_keep(&l->failure, group, &f);
    else
        take_values(packed_reader_schema(r), l->column, cells, packed_reader_group_rows(r, group),
                    l->value + group * TABLE_GROUP_ROWS);
}

/* `place`: of the column in the schema. */
static int read_column(const struct loaded *t, size_t place, struct threads *pool, double *value,
                       struct tabft_failure *f)
{
    int error = 0;
    size_t n_groups = schema_groups(packed_reader_schema(t->reader));
    struct column_loop l = {.t = t, .column = place, .value = value};
    TRY(cells_new(&l.scratch, (size_t)threads_count(pool), TABLE_GROUP_ROWS, f));
    TRY(memory_new(&l.statistics, n_groups, sizeof *l.statistics, "statistics", f));
    loop_failure_open(&l.failure);
    threads_run(pool, n_groups, read_column_page, &l);
    TRY(loop_failure_close(&l.failure, f));
    TRY(packed_reader_check(t->reader, place, l.statistics, 1, f));
fail:
    cells_free(l.scratch);
    free(l.statistics);
    return error;
}

int table_read_column(const struct table *t, size_t column, struct threads *pool, double *value,
                      struct tabft_failure *f)
{
    return read_column(loaded_of(t), loaded_place(loaded_of(t), column), pool, value, f);
}

static int load_target(struct loaded *t, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    const struct schema *s = packed_reader_schema(t->reader);
    if (s->target == TABLE_NO_TARGET) return 0;
    TRY(memory_new_aligned(&t->value, s->n_rows, sizeof *t->value, "the target", f));
    TRY(read_column(t, (size_t)s->target, pool, t->value, f));
fail:
    return error;
}

/* ---- sizes ---- */

size_t loaded_codec_bytes(const struct loaded *t)
{
    const struct schema *s = packed_reader_schema(t->reader);
    const size_t group = s->n_rows < TABLE_GROUP_ROWS ? s->n_rows : TABLE_GROUP_ROWS;
    size_t most = 0;
    for (size_t c = 0; c < s->n_columns; c++) {
        const size_t bytes = page_size(s->column[c].storage, group, true);
        if (bytes > most) most = bytes;
    }
    return 2 * most;
}

size_t table_parts_bytes(const struct table *t, int n_threads)
{
    const struct loaded *l = loaded_of(t);
    const struct schema *s = packed_reader_schema(l->reader);
    size_t bytes = t->has_target ? t->n_rows * sizeof(double) : 0;
    bytes += schema_groups(s) * s->n_columns * sizeof(struct tbf_entry) + (size_t)n_threads * loaded_codec_bytes(l);
    for (size_t c = 0; c < t->n_columns; c++) {
        const struct table_column *column = &t->column[c];
        if (column->kind != TABLE_TEXT) continue;
        bytes += column->n_dictionary * sizeof(char *);
        for (size_t i = 0; column->dictionary != NULL && i < column->n_dictionary; i++)
            bytes += strlen(column->dictionary[i]) + 1;
    }
    return bytes;
}

/* ---- tables ---- */

static const double *values_of(const struct loaded *t, size_t c, enum extent extent)
{
    const struct schema *s = packed_reader_schema(t->reader);
    if (extent == EXTENT_ALL) return t->value + c * s->n_rows;
    return extent == EXTENT_TARGET && s->target == (ptrdiff_t)c ? t->value : NULL;
}

static struct table_column describe(const struct loaded *t, size_t c, enum extent extent)
{
    const struct schema *s = packed_reader_schema(t->reader);
    bool label = s->target == (ptrdiff_t)c && s->task == TABLE_CLASSIFICATION;
    const struct texts *texts = &packed_reader_texts(t->reader)[c];
    const struct column_statistics *seen = &packed_reader_statistics(t->reader)[c];
    bool real = storage_is_real(s->column[c].storage);
    return (struct table_column){.name = s->column[c].name,
                                 .kind = s->column[c].kind,
                                 .value = values_of(t, c, extent),
                                 .n_missing = seen->n_missing,
                                 .n_infinite = seen->n_infinite,
                                 .has_range = seen->any,
                                 .min = real ? seen->min : (double)seen->integer_min,
                                 .max = real ? seen->max : (double)seen->integer_max,
                                 .n_dictionary = schema_code_count(s, c),
                                 .dictionary = label ? (const char *const *)s->label
                                                     : (const char *const *)texts->text};
}

static int load(struct table **out, const char *path, enum extent extent, struct threads *pool, int n_threads,
                struct tabft_failure *f)
{
    int error = 0;
    struct loaded *t = NULL;
    TRY(memory_new(&t, 1, sizeof *t, "a table", f));
    t->n_threads = n_threads;
    TRY(packed_reader_open(&t->reader, path, t->n_threads, extent != EXTENT_NONE, f));
    const struct schema *s = packed_reader_schema(t->reader);
    if (extent == EXTENT_ALL) TRY(load_values(t, pool, f));
    if (extent == EXTENT_TARGET) TRY(load_target(t, pool, f));
    TRY(memory_new(&t->column, s->n_columns, sizeof *t->column, "a table", f));
    t->table = (struct table){
        .n_rows = s->n_rows, .has_target = s->target != TABLE_NO_TARGET, .task = s->task, .n_labels = s->n_labels};
    for (size_t c = 0; c < s->n_columns; c++) {
        if (s->target == (ptrdiff_t)c) t->table.target = describe(t, c, extent);
        else t->column[t->table.n_columns++] = describe(t, c, extent);
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
    return load(out, path, EXTENT_ALL, pool, threads_count(pool), f);
}

int table_open_parts(struct table **out, const char *path, struct threads *pool, struct tabft_failure *f)
{
    return load(out, path, EXTENT_TARGET, pool, threads_count(pool), f);
}

int table_open_schema(struct table **out, const char *path, struct tabft_failure *f)
{
    return load(out, path, EXTENT_NONE, NULL, 1, f);
}

int table_open_cells(struct table **out, const char *path, int n_threads, struct tabft_failure *f)
{
    return load(out, path, EXTENT_NONE, NULL, n_threads, f);
}

int table_unchanged(const struct table *t, struct tabft_failure *f)
{
    return packed_reader_unchanged(loaded_of(t)->reader, f);
}

int table_provenance(const struct table *t, char **json, struct tabft_failure *f)
{
    *json = json_dumps(packed_reader_provenance(loaded_of(t)->reader), JSON_COMPACT);
    return *json != NULL ? 0 : tabft_fail(f, TABFT_SYSTEM, "no memory for the provenance; give the job more memory");
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
