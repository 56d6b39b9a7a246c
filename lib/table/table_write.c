#include <math.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/decimals.h"
#include "table/packed.h"
#include "table/table.h"
#include "tbf/tbf.h"

/* What values a column may have: any numbers, or whole ones from low to high. */
struct column_rule {
    const char *what;
    bool codes, whole;
    double low, high;
};

struct table_writer {
    struct packed_writer *packed;
    struct schema schema;
    struct column_rule *rule; /* [n_columns] */
    struct cells *cells;      /* [n_columns] of a group of rows */
    size_t n_cells;           /* rows in them */
    size_t n_rows;            /* put so far */
};

static struct column_rule rule_of(const struct table_output *t, size_t c)
{
    const struct table_column *column = &t->column[c];
    bool codes = column->kind == TABLE_TEXT || (t->target == c && t->task == TABLE_CLASSIFICATION);
    return (struct column_rule){.what = codes ? "coded" : kind_name(column->kind),
                                .codes = codes,
                                .whole = codes || column->kind != TABLE_FLOAT,
                                .low = codes || column->kind == TABLE_BOOLEAN ? 0 : -0x1p53,
                                .high = codes                           ? (double)column->n_dictionary - 1
                                        : column->kind == TABLE_BOOLEAN ? 1
                                                                        : 0x1p53};
}

/* Holds n values against the rule; the first of them is in row `first`. */
static int check_values(const struct column_rule *r, const char *name, const double *value, size_t first, size_t n,
                        struct tabft_failure *f)
{
    for (size_t i = 0; r->whole && i < n; i++) {
        double v = value[i];
        if (isnan(v) || (v >= r->low && v <= r->high && v == floor(v))) continue;
        return tabft_fail(f, TABFT_USE, "column %s, row %zu: %.17g is no value of a %s column", name, first + i, v,
                          r->what);
    }
    return 0;
}

/* The narrowest storage of the values at hand; for values that come later, one that holds any. */
static enum page_storage storage_of(const struct table_output *t, size_t c, const struct column_rule *r,
                                    unsigned *places)
{
    const struct table_column *column = &t->column[c];
    int64_t min = 0, max = 0;
    bool float32 = column->value != NULL;
    struct decimals decimals = {0};
    enum page_storage real = STORAGE_F64;
    if (r->codes) return storage_of_codes(column->n_dictionary);
    if (column->value == NULL && column->kind == TABLE_INTEGER) return STORAGE_I64;
    for (size_t i = 0; column->value != NULL && i < t->n_rows; i++) {
        double v = column->value[i];
        if (isnan(v)) continue;
        float32 = float32 && (double)(float)v == v;
        if (!r->whole) decimals_add_value(&decimals, v);
        if (!r->whole) continue;
        if ((int64_t)v < min) min = (int64_t)v;
        if ((int64_t)v > max) max = (int64_t)v;
    }
    if (column->kind != TABLE_FLOAT) return storage_of_range(min, max);
    if (float32) return STORAGE_F32;
    if (column->value != NULL) decimals_storage(&decimals, &real, places);
    return real;
}

static int describe_column(const struct table_output *t, size_t c, struct schema *s, struct texts *texts,
                           struct column_rule *rule, struct tabft_failure *f)
{
    int error = 0;
    const struct table_column *column = &t->column[c];
    struct schema_column *to = &s->column[c];
    bool label = t->target == c && t->task == TABLE_CLASSIFICATION;
    if (*column->name == '\0' || strlen(column->name) > TABLE_NAME_MAX)
        FAIL(f, TABFT_USE, "column %zu: its name is empty or too long", c);
    if (column->n_dictionary > (label ? (size_t)TABLE_LABELS_MAX : (size_t)INT32_MAX))
        FAIL(f, TABFT_USE, "column %s: %zu texts are too many", column->name, column->n_dictionary);
    for (size_t i = 0; i < column->n_dictionary; i++) {
        if (strlen(column->dictionary[i]) > TABLE_TEXT_MAX)
            FAIL(f, TABFT_USE, "column %s: text %zu is longer than %d bytes", column->name, i, (int)TABLE_TEXT_MAX);
    }
    *rule = rule_of(t, c);
    if (column->value != NULL) TRY(check_values(rule, column->name, column->value, 0, t->n_rows, f));
    TRY(memory_copy_string(&to->name, column->name, f));
    to->kind = column->kind;
    to->storage = storage_of(t, c, rule, &to->decimals);
    if (label) {
        TRY(memory_new(&s->label, column->n_dictionary, sizeof *s->label, "a label list", f));
        s->n_labels = column->n_dictionary;
        for (size_t i = 0; i < s->n_labels; i++) TRY(memory_copy_string(&s->label[i], column->dictionary[i], f));
    } else if (column->kind == TABLE_TEXT) {
        to->n_texts = column->n_dictionary;
        texts->n = column->n_dictionary;
        TRY(memory_new(&texts->text, texts->n, sizeof *texts->text, "a dictionary", f));
        for (size_t i = 0; i < texts->n; i++) texts->text[i] = (char *)(uintptr_t)column->dictionary[i]; /* only read */
    }
fail:
    return error;
}

static void digest_values(const struct table_output *t, uint8_t digest[32])
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    for (size_t c = 0; c < t->n_columns; c++) {
        const struct table_column *column = &t->column[c];
        for (size_t i = 0; i < column->n_dictionary; i++)
            sha256_update(&sha, strlen(column->dictionary[i]) + 1, (const uint8_t *)column->dictionary[i]);
        sha256_update(&sha, t->n_rows * sizeof *column->value, (const uint8_t *)column->value);
    }
    sha256_digest(&sha, 32, digest);
}

/* digest: of the values, or NULL. */
static int writer_open(struct table_writer **out, const char *path, bool force, const struct table_output *t,
                       const uint8_t *digest, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    struct table_writer *w = NULL;
    struct texts *texts = NULL;
    bool target = t->target != SIZE_MAX;
    if (t->n_columns < 1 || t->n_columns > TABLE_COLUMNS_MAX || (target && t->target >= t->n_columns) ||
        target != (t->task != TABLE_NO_TASK)) {
        FAIL(f, TABFT_USE, "%s: a table of %zu columns with target %zu cannot be written", path, t->n_columns,
             t->target);
    }
    TRY(memory_new(&w, 1, sizeof *w, "a packed table", f));
    struct schema *s = &w->schema;
    s->target = target ? (ptrdiff_t)t->target : TABLE_NO_TARGET;
    s->task = t->task;
    s->n_rows = t->n_rows;
    TRY(memory_new(&s->column, t->n_columns, sizeof *s->column, "a schema", f));
    s->n_columns = t->n_columns;
    TRY(memory_new(&w->rule, t->n_columns, sizeof *w->rule, "a schema", f));
    TRY(memory_new(&texts, t->n_columns, sizeof *texts, "dictionaries", f));
    for (size_t c = 0; c < t->n_columns; c++) TRY(describe_column(t, c, s, &texts[c], &w->rule[c], f));
    TRY(packed_writer_open(
        &w->packed, &(struct packed_start){path, force, TBF_LEVEL_DEFAULT, s, texts, t->provenance, digest}, pool, f));
    TRY(cells_new(&w->cells, t->n_columns, t->n_rows < TABLE_GROUP_ROWS ? t->n_rows : TABLE_GROUP_ROWS, f));
    *out = w;
    w = NULL;
fail:
    for (size_t c = 0; texts != NULL && c < t->n_columns; c++) texts_clear(&texts[c]);
    free(texts);
    table_writer_abandon(w);
    return error;
}

size_t table_writer_bytes(size_t n_rows, size_t n_columns, int n_threads)
{
    enum { THREAD_BYTES = 360 << 10 }; /* a deflater of libdeflate at this level, and the stack of choosing how */
    const size_t group = n_rows < TABLE_GROUP_ROWS ? n_rows : TABLE_GROUP_ROWS;
    const size_t page = page_size(STORAGE_F64, group, true);
    /* Its cells and, when they are packed, their pages; a thread has one as it is, shuffled, and deflated. */
    return n_columns * (group * CELL_BYTES + page) + (size_t)n_threads * (3 * page + THREAD_BYTES);
}

int table_writer_open(struct table_writer **out, const char *path, bool force, const struct table_output *output,
                      struct threads *pool, struct tabft_failure *f)
{
    return writer_open(out, path, force, output, NULL, pool, f);
}

/* n values of column c into the group at hand. */
static void fill_cells(struct table_writer *w, size_t c, const double *value, size_t n)
{
    const bool real = storage_is_real(w->schema.column[c].storage);
    uint64_t *slot = w->cells[c].slot + w->n_cells;
    uint8_t *absent = w->cells[c].absent + w->n_cells;
    for (size_t i = 0; i < n; i++) {
        absent[i] = !real && isnan(value[i]);
        slot[i] = real ? slot_of_double(value[i]) : isnan(value[i]) ? 0 : (uint64_t)(int64_t)value[i];
    }
}

int table_writer_put(struct table_writer *w, const double *const *value, size_t n_rows, struct tabft_failure *f)
{
    int error = 0;
    const size_t all = w->schema.n_rows;
    if (n_rows > all - w->n_rows)
        FAIL(f, TABFT_USE, "%zu rows and %zu more are put where %zu were announced", w->n_rows, n_rows, all);
    for (size_t c = 0; c < w->schema.n_columns; c++)
        TRY(check_values(&w->rule[c], w->schema.column[c].name, value[c], w->n_rows, n_rows, f));
    for (size_t at = 0; at < n_rows;) {
        const size_t room = TABLE_GROUP_ROWS - w->n_cells, n = n_rows - at < room ? n_rows - at : room;
        for (size_t c = 0; c < w->schema.n_columns; c++) fill_cells(w, c, value[c] + at, n);
        w->n_cells += n;
        w->n_rows += n;
        at += n;
        if (w->n_cells < TABLE_GROUP_ROWS && w->n_rows < all) continue;
        TRY(packed_writer_put(w->packed, w->cells, w->n_cells, f));
        w->n_cells = 0;
    }
fail:
    return error;
}

int table_writer_close(struct table_writer *w, struct tabft_failure *f)
{
    struct packed_writer *packed = w->packed;
    w->packed = NULL;
    int error = packed_writer_close(packed, f); /* which counts the rows */
    table_writer_abandon(w);
    return error;
}

void table_writer_abandon(struct table_writer *w)
{
    if (w == NULL) return;
    packed_writer_abandon(w->packed);
    schema_clear(&w->schema);
    cells_free(w->cells);
    free(w->rule);
    free(w);
}

int table_write(const char *path, bool force, const struct table_output *t, struct threads *pool,
                struct tabft_failure *f)
{
    int error = 0;
    struct table_writer *w = NULL;
    const double **value = NULL;
    uint8_t digest[32];
    TRY(memory_new(&value, t->n_columns, sizeof *value, "a packed table", f));
    for (size_t c = 0; c < t->n_columns; c++) value[c] = t->column[c].value;
    digest_values(t, digest);
    TRY(writer_open(&w, path, force, t, digest, pool, f));
    TRY(table_writer_put(w, value, t->n_rows, f));
    struct table_writer *closing = w;
    w = NULL;
    TRY(table_writer_close(closing, f));
fail:
    table_writer_abandon(w);
    free(value);
    return error;
}
