#include <math.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/packed.h"
#include "table/table.h"
#include "tbf/tbf.h"

/* The kind's rules for values; finds the range of whole ones and whether all are float32 values. */
struct scan {
    bool float32;
    int64_t min, max;
};

static int scan_column(const struct table_output *t, size_t c, struct scan *out, struct tabft_failure *f)
{
    const struct table_column *column = &t->column[c];
    bool codes = column->kind == TABLE_TEXT || (t->target == c && t->task == TABLE_CLASSIFICATION);
    double low = codes || column->kind == TABLE_BOOLEAN ? 0 : -0x1p53;
    double high = codes ? (double)column->n_dictionary - 1 : column->kind == TABLE_BOOLEAN ? 1 : 0x1p53;
    *out = (struct scan){.float32 = true};
    for (size_t i = 0; i < t->n_rows; i++) {
        double v = column->value[i];
        if (isnan(v)) continue;
        out->float32 = out->float32 && (double)(float)v == v;
        if (column->kind == TABLE_FLOAT && !codes) continue;
        if (v < low || v > high || v != floor(v)) {
            return tabft_fail(f, TABFT_USE, "column %s, row %zu: %.17g is no value of a %s column", column->name, i, v,
                              codes ? "coded" : kind_name(column->kind));
        }
        int64_t whole = (int64_t)v;
        if (whole < out->min) out->min = whole;
        if (whole > out->max) out->max = whole;
    }
    return 0;
}

static int describe_column(const struct table_output *t, size_t c, struct schema *s, struct texts *texts,
                           struct tabft_failure *f)
{
    int error = 0;
    const struct table_column *column = &t->column[c];
    struct schema_column *to = &s->column[c];
    bool label = t->target == c && t->task == TABLE_CLASSIFICATION;
    struct scan scan;
    if (*column->name == '\0' || strlen(column->name) > TABLE_NAME_MAX)
        FAIL(f, TABFT_USE, "column %zu: its name is empty or too long", c);
    if (column->n_dictionary > (label ? (size_t)TABLE_LABELS_MAX : (size_t)INT32_MAX))
        FAIL(f, TABFT_USE, "column %s: %zu texts are too many", column->name, column->n_dictionary);
    for (size_t i = 0; i < column->n_dictionary; i++) {
        if (strlen(column->dictionary[i]) > TABLE_TEXT_MAX)
            FAIL(f, TABFT_USE, "column %s: text %zu is longer than %d bytes", column->name, i, (int)TABLE_TEXT_MAX);
    }
    TRY(scan_column(t, c, &scan, f));
    TRY(memory_copy_string(&to->name, column->name, f));
    to->kind = column->kind;
    if (label || column->kind == TABLE_TEXT) to->storage = storage_of_codes(column->n_dictionary);
    else if (column->kind == TABLE_FLOAT) to->storage = scan.float32 ? STORAGE_F32 : STORAGE_F64;
    else to->storage = storage_of_range(scan.min, scan.max);
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

static void fill_group(const struct table_output *t, const struct schema *s, size_t row, size_t n, struct cells *cells)
{
    for (size_t c = 0; c < t->n_columns; c++) {
        const double *value = t->column[c].value + row;
        bool real = storage_is_real(s->column[c].storage);
        for (size_t i = 0; i < n; i++) {
            cells[c].absent[i] = !real && isnan(value[i]);
            cells[c].slot[i] = real ? slot_of_double(value[i]) : isnan(value[i]) ? 0 : (uint64_t)(int64_t)value[i];
        }
    }
}

int table_write(const char *path, bool force, const struct table_output *t, struct threads *pool,
                struct tabft_failure *f)
{
    int error = 0;
    struct schema s = {.target = TABLE_NO_TARGET};
    struct texts *texts = NULL;
    struct cells *cells = NULL;
    struct packed_writer *w = NULL;
    uint8_t digest[32];
    bool target = t->target != SIZE_MAX;
    if (t->n_columns < 1 || t->n_columns > TABLE_COLUMNS_MAX || (target && t->target >= t->n_columns) ||
        target != (t->task != TABLE_NO_TASK)) {
        FAIL(f, TABFT_USE, "%s: a table of %zu columns with target %zu cannot be written", path, t->n_columns,
             t->target);
    }
    TRY(memory_new(&s.column, t->n_columns, sizeof *s.column, "a schema", f));
    s.n_columns = t->n_columns;
    s.n_rows = t->n_rows;
    s.task = t->task;
    if (target) s.target = (ptrdiff_t)t->target;
    TRY(memory_new(&texts, t->n_columns, sizeof *texts, "dictionaries", f));
    for (size_t c = 0; c < t->n_columns; c++) TRY(describe_column(t, c, &s, &texts[c], f));
    digest_values(t, digest);
    TRY(packed_writer_open(&w, &(struct packed_start){path, force, TBF_LEVEL_DEFAULT, &s, texts, t->provenance, digest},
                           pool, f));
    TRY(cells_new(&cells, t->n_columns, TABLE_GROUP_ROWS, f));
    for (size_t row = 0; row < t->n_rows; row += TABLE_GROUP_ROWS) {
        size_t n = t->n_rows - row < TABLE_GROUP_ROWS ? t->n_rows - row : TABLE_GROUP_ROWS;
        fill_group(t, &s, row, n, cells);
        TRY(packed_writer_put(w, cells, n, f));
    }
    struct packed_writer *closing = w;
    w = NULL;
    TRY(packed_writer_close(closing, f));
fail:
    packed_writer_abandon(w);
    for (size_t c = 0; texts != NULL && c < t->n_columns; c++) texts_clear(&texts[c]);
    free(texts);
    cells_free(cells);
    schema_clear(&s);
    return error;
}
