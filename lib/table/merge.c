/* Packed tables of the same columns into one, equal to what one pack of all their inputs would have made where that can
 * be: kinds and dictionaries are united, codes renumbered, storage chosen anew. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/decimals.h"
#include "table/dictionary.h"
#include "table/labels.h"
#include "table/merge_parts.h"
#include "table/number.h"
#include "table/packed.h"
#include "table/prep.h"
#include "table/sink.h"

/* What a part's cells go through. */
struct conversion {
    bool to_real;   /* integers become doubles */
    uint32_t *code; /* [codes of the part] new codes, or NULL */
};

struct merge {
    size_t n_parts, n_columns;
    size_t base;                    /* the part whose target and task are the whole's */
    struct packed_reader **part;    /* [n_parts] in the order of rows */
    struct conversion **conversion; /* [n_parts][n_columns] */
    struct schema schema;
    struct texts *texts; /* [n_columns] */
    locale_t locale;
    uint64_t n_rounded; /* integers that became another number as doubles */
    struct threads *pool;
};

static const struct schema *schema_of(const struct merge *m, size_t part)
{
    return packed_reader_schema(m->part[part]);
}
static const char *path_of(const struct merge *m, size_t part) { return packed_reader_path(m->part[part]); }

static bool all_missing(const struct merge *m, size_t part, size_t c)
{
    return packed_reader_statistics(m->part[part])[c].n_missing == schema_of(m, part)->n_rows;
}

/* ---- provenance ---- */

/* True where all were packed by this version with the same options: then one pack of all inputs would give the same. */
static bool same_origin(const struct merge *m)
{
    const json_t *first = packed_reader_provenance(m->part[0]);
    for (size_t i = 0; i < m->n_parts; i++) {
        const json_t *p = packed_reader_provenance(m->part[i]);
        const char *tool = json_string_value(json_object_get(p, "tool"));
        if (tool == NULL || strcmp(tool, "tabft-prep pack") != 0 || !json_is_array(json_object_get(p, "inputs")))
            return false;
        if (!json_equal(json_object_get(p, "options"), json_object_get(first, "options"))) return false;
        if (!json_equal(json_object_get(p, "version"), json_object_get(first, "version"))) return false;
    }
    return true;
}

static int provenance(const struct merge *m, char **text, struct tabft_failure *f)
{
    size_t size;
    json_t *inputs, *all;
    if (merge_is_part(m->part[0])) {
        int error = merge_whole_provenance(m->part, m->n_parts, &all, f);
        return error < 0 ? error : json_text(all, text, &size, f);
    }
    inputs = json_array();
    if (same_origin(m)) {
        all = json_copy((json_t *)(uintptr_t)packed_reader_provenance(m->part[0]));
        for (size_t i = 0; i < m->n_parts; i++)
            json_array_extend(inputs, json_object_get(packed_reader_provenance(m->part[i]), "inputs"));
        json_object_set_new(all, "inputs", inputs);
        return json_text(all, text, &size, f);
    }
    for (size_t i = 0; i < m->n_parts; i++) {
        json_array_append_new(inputs, json_pack("{s:s, s:O}", "digest", packed_reader_digest(m->part[i]), "provenance",
                                                packed_reader_provenance(m->part[i])));
    }
    all = json_pack("{s:s, s:s, s:o}", "tool", "tabft-prep merge", "version", PACKAGE_VERSION, "tables", inputs);
    return json_text(all, text, &size, f);
}

/* ---- kinds ---- */

static int check_shape(const struct merge *m, size_t i, struct tabft_failure *f)
{
    const struct schema *a = schema_of(m, m->base), *b = schema_of(m, i);
    if (a->n_columns != b->n_columns) {
        return tabft_fail(f, TABFT_INPUT, "%s: %zu columns, and %s has %zu; merge tables of the same columns",
                          path_of(m, i), b->n_columns, path_of(m, 0), a->n_columns);
    }
    for (size_t c = 0; c < a->n_columns; c++) {
        if (strcmp(a->column[c].name, b->column[c].name) == 0) continue;
        return tabft_fail(f, TABFT_INPUT, "%s: column %zu is called %s, and %s in %s; merge tables of the same columns",
                          path_of(m, i), c + 1, b->column[c].name, a->column[c].name, path_of(m, 0));
    }
    if (a->target == b->target && (a->task == b->task || !merge_knows_task(m->part[i]))) return 0;
    return tabft_fail(f, TABFT_INPUT,
                      "%s: another target or task than in %s; pack both with the same --target and --task",
                      path_of(m, i), path_of(m, 0));
}

/* The kind of a column in the whole: parts without a value in it do not count. */
static int unite_kind(struct merge *m, size_t c, struct tabft_failure *f)
{
    enum table_kind kind = TABLE_FLOAT;
    size_t from = SIZE_MAX;
    for (size_t i = 0; i < m->n_parts; i++) {
        enum table_kind k = schema_of(m, i)->column[c].kind;
        if (all_missing(m, i, c) && k != TABLE_TEXT) continue;
        bool numbers = (kind == TABLE_FLOAT || kind == TABLE_INTEGER) && (k == TABLE_FLOAT || k == TABLE_INTEGER);
        if (from == SIZE_MAX) {
            kind = k;
            from = i;
        } else if (k != kind && numbers) {
            kind = TABLE_FLOAT;
        } else if (k != kind) {
            return tabft_fail(
                f, TABFT_INPUT,
                "%s: column %s is %s, and %s in %s; pack the parts with --text %s, or all with one --schema",
                path_of(m, i), m->schema.column[c].name, kind_name(k), kind_name(kind), path_of(m, from),
                m->schema.column[c].name);
        }
    }
    m->schema.column[c].kind = kind;
    return 0;
}

/* Are the integers of a part all float32 values? Counts those that are not even doubles. */
static int scan_integers(struct merge *m, size_t part, size_t c, bool *float32, struct tabft_failure *f)
{
    int error = 0;
    struct cells *cells = NULL;
    struct column_statistics unused;
    const struct column_statistics *n = &packed_reader_statistics(m->part[part])[c];
    *float32 = true;
    if (!n->any || (n->integer_min >= -(1 << 24) && n->integer_max <= 1 << 24)) return 0;
    TRY(cells_new(&cells, 1, TABLE_GROUP_ROWS, f));
    for (size_t g = 0; g < schema_groups(schema_of(m, part)); g++) {
        TRY(packed_reader_page(m->part[part], 0, c, g, cells, &unused, f));
        for (size_t i = 0; i < packed_reader_group_rows(m->part[part], g); i++) {
            if (cells->absent[i]) continue;
            int64_t v = slot_integer(cells->slot[i]);
            double d = (double)v;
            if ((double)(float)d != d) *float32 = false;
            if (d >= 0x1p63 || (int64_t)d != v) m->n_rounded++;
        }
    }
fail:
    cells_free(cells);
    return error;
}

/* Adds a part's numbers that are float32 all, so it was not asked whether they are decimals. */
static int scan_floats(const struct merge *m, size_t part, size_t c, struct decimals *d, struct tabft_failure *f)
{
    int error = 0;
    struct cells *cells = NULL;
    struct column_statistics unused;
    TRY(cells_new(&cells, 1, TABLE_GROUP_ROWS, f));
    for (size_t g = 0; !d->none && g < schema_groups(schema_of(m, part)); g++) {
        TRY(packed_reader_page(m->part[part], 0, c, g, cells, &unused, f));
        for (size_t i = 0; i < packed_reader_group_rows(m->part[part], g); i++)
            if (!cell_missing(cells, i, true)) decimals_add_value(d, slot_double(cells->slot[i]));
    }
fail:
    cells_free(cells);
    return error;
}

/* Adds a part's numbers as far as its schema and statistics tell of them. */
static void add_part(const struct merge *m, size_t part, size_t c, struct decimals *d)
{
    const struct schema_column *column = &schema_of(m, part)->column[c];
    const struct column_statistics *n = &packed_reader_statistics(m->part[part])[c];
    struct decimals own = {.k = (uint8_t)column->decimals, .none = column->storage == STORAGE_F64 || n->n_infinite > 0};
    if (n->any && column->kind == TABLE_INTEGER) decimals_add_range(&own, n->integer_min, n->integer_max);
    if (n->any && storage_is_decimal(column->storage))
        own.largest[own.k] = (uint64_t)rint(fmax(fabs(n->min), fabs(n->max)) * decimal_power(own.k));
    decimals_merge(d, &own);
}

static int unite_real(struct merge *m, size_t c, struct tabft_failure *f)
{
    int error = 0;
    bool float32 = true;
    struct decimals d = {0};
    struct schema_column *to = &m->schema.column[c];
    for (size_t i = 0; i < m->n_parts; i++) {
        const struct schema_column *column = &schema_of(m, i)->column[c];
        bool part_float32 = column->storage == STORAGE_F32;
        m->conversion[i][c].to_real = column->kind != TABLE_FLOAT;
        if (all_missing(m, i, c)) continue;
        if (column->kind == TABLE_INTEGER) TRY(scan_integers(m, i, c, &part_float32, f));
        float32 = float32 && part_float32;
        add_part(m, i, c, &d);
    }
    to->storage = float32 ? STORAGE_F32 : STORAGE_F64;
    to->decimals = 0;
    if (float32) return 0;
    for (size_t i = 0; i < m->n_parts; i++)
        if (schema_of(m, i)->column[c].storage == STORAGE_F32 && !all_missing(m, i, c))
            TRY(scan_floats(m, i, c, &d, f));
    decimals_storage(&d, &to->storage, &to->decimals);
fail:
    return error;
}

static void unite_integer(struct merge *m, size_t c)
{
    struct column_statistics all = {0};
    for (size_t i = 0; i < m->n_parts; i++) {
        if (!all_missing(m, i, c)) statistics_merge(&all, &packed_reader_statistics(m->part[i])[c]);
    }
    m->schema.column[c].storage = storage_of_range(all.integer_min, all.integer_max);
}

/* The codes of a part in the whole; rank has the place of each text of d. */
static int renumber(struct merge *m, size_t part, size_t c, char *const *text, size_t n, const struct dictionary *d,
                    const uint32_t *rank, struct tabft_failure *f)
{
    int error = 0;
    uint32_t *code = NULL;
    TRY(memory_new(&code, n, sizeof *code, "codes", f));
    m->conversion[part][c].code = code;
    for (size_t i = 0; i < n; i++) code[i] = rank[dictionary_find(d, text[i], strlen(text[i]))];
fail:
    return error;
}

static int unite_texts(struct merge *m, size_t c, struct tabft_failure *f)
{
    int error = 0;
    struct dictionary d = {0};
    for (size_t i = 0; i < m->n_parts; i++) {
        const struct texts *t = &packed_reader_texts(m->part[i])[c];
        for (size_t k = 0; k < t->n; k++) TRY(dictionary_add(&d, t->text[k], strlen(t->text[k]), f));
    }
    TRY(dictionary_sort(&d, &m->texts[c], f));
    for (size_t i = 0; i < m->n_parts; i++) {
        const struct texts *t = &packed_reader_texts(m->part[i])[c];
        TRY(renumber(m, i, c, t->text, t->n, &d, d.rank, f));
    }
    m->schema.column[c].n_texts = d.n;
    m->schema.column[c].storage = storage_of_codes(d.n);
fail:
    dictionary_clear(&d);
    return error;
}

static int unite_labels(struct merge *m, size_t c, struct tabft_failure *f)
{
    int error = 0;
    struct dictionary d = {0};
    const char **label = NULL;
    uint32_t *rank = NULL;
    for (size_t i = 0; i < m->n_parts; i++) {
        const struct schema *s = schema_of(m, i);
        for (size_t k = 0; k < s->n_labels; k++) TRY(dictionary_add(&d, s->label[k], strlen(s->label[k]), f));
    }
    if (d.n > TABLE_LABELS_MAX)
        FAIL(f, TABFT_INPUT, "together the tables have %zu labels; at most %d are taken", d.n, (int)TABLE_LABELS_MAX);
    TRY(memory_new(&label, d.n, sizeof *label, "labels", f));
    TRY(memory_new(&rank, d.n, sizeof *rank, "labels", f));
    for (size_t i = 0; i < d.n; i++) label[i] = d.bytes + d.offset[i];
    TRY(labels_sort(label, d.n, m->locale, f));
    TRY(memory_new(&m->schema.label, d.n, sizeof *m->schema.label, "labels", f));
    m->schema.n_labels = d.n;
    for (size_t i = 0; i < d.n; i++) {
        TRY(memory_copy_string(&m->schema.label[i], label[i], f));
        rank[dictionary_find(&d, label[i], strlen(label[i]))] = (uint32_t)i;
    }
    for (size_t i = 0; i < m->n_parts; i++)
        TRY(renumber(m, i, c, schema_of(m, i)->label, schema_of(m, i)->n_labels, &d, rank, f));
    m->schema.column[c].storage = storage_of_codes(d.n);
fail:
    free(label);
    free(rank);
    dictionary_clear(&d);
    return error;
}

static int unite(struct merge *m, struct tabft_failure *f)
{
    int error = 0;
    while (m->base + 1 < m->n_parts && !merge_knows_task(m->part[m->base])) m->base++;
    if (!merge_knows_task(m->part[m->base])) m->base = 0;
    for (size_t i = 0; i < m->n_parts; i++) TRY(check_shape(m, i, f));
    if (merge_is_part(m->part[0])) TRY(merge_check_kinds(m->part, m->n_parts, f));
    TRY(schema_copy(&m->schema, schema_of(m, m->base), f));
    for (size_t i = 0; i < m->schema.n_labels; i++) free(m->schema.label[i]);
    free(m->schema.label);
    m->schema.label = NULL;
    m->schema.n_labels = m->schema.n_rows = 0;
    for (size_t i = 0; i < m->n_parts; i++) m->schema.n_rows += schema_of(m, i)->n_rows;
    for (size_t c = 0; c < m->n_columns; c++) {
        bool label = m->schema.task == TABLE_CLASSIFICATION && m->schema.target == (ptrdiff_t)c;
        m->schema.column[c].n_texts = 0;
        m->schema.column[c].decimals = 0;
        TRY(unite_kind(m, c, f));
        enum table_kind kind = m->schema.column[c].kind;
        if (label) TRY(unite_labels(m, c, f));
        else if (kind == TABLE_TEXT) TRY(unite_texts(m, c, f));
        else if (kind == TABLE_FLOAT) TRY(unite_real(m, c, f));
        else if (kind == TABLE_INTEGER) unite_integer(m, c);
        else m->schema.column[c].storage = STORAGE_I8;
    }
fail:
    return error;
}

/* ---- rows ---- */

/* Cells of a part as cells of the whole, in place. */
static void convert(const struct merge *m, size_t part, size_t c, struct cells *cells, size_t n)
{
    const struct conversion *v = &m->conversion[part][c];
    bool from_real = storage_is_real(schema_of(m, part)->column[c].storage),
         to_real = storage_is_real(m->schema.column[c].storage);
    for (size_t i = 0; i < n; i++) {
        bool missing = cell_missing(cells, i, from_real);
        if (to_real && missing) cells->slot[i] = slot_of_double((double)NAN);
        else if (to_real && v->to_real) cells->slot[i] = slot_of_double((double)slot_integer(cells->slot[i]));
        else if (!to_real && missing) cells->slot[i] = 0;
        else if (v->code != NULL) cells->slot[i] = v->code[cells->slot[i]];
        cells->absent[i] = missing && !to_real;
    }
}

static int copy_rows(struct merge *m, struct sink *to, struct tabft_failure *f)
{
    int error = 0;
    struct cells *cells = NULL;
    TRY(cells_new(&cells, m->n_columns, TABLE_GROUP_ROWS, f));
    for (size_t i = 0; i < m->n_parts; i++) {
        for (size_t g = 0; g < schema_groups(schema_of(m, i)); g++) {
            size_t n = packed_reader_group_rows(m->part[i], g);
            error = packed_reader_group(m->part[i], m->pool, g, cells, f);
            if (error < 0) merge_name_part(m->part[i], f);
            if (error < 0) goto fail;
            for (size_t c = 0; c < m->n_columns; c++) convert(m, i, c, &cells[c], n);
            TRY(sink_put(to, cells, n, NULL, 0, f));
        }
        TRY(packed_reader_unchanged(m->part[i], f));
    }
fail:
    cells_free(cells);
    return error;
}

static int open_parts(struct merge *m, const char *const *input, struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&m->part, m->n_parts, sizeof *m->part, "parts", f));
    TRY(memory_new(&m->conversion, m->n_parts, sizeof *m->conversion, "parts", f));
    TRY(merge_open_inputs(input, m->n_parts, threads_count(m->pool), m->part, f));
    TRY(merge_order_parts(m->part, m->n_parts, f));
    m->n_columns = schema_of(m, 0)->n_columns;
    TRY(memory_new(&m->texts, m->n_columns, sizeof *m->texts, "dictionaries", f));
    for (size_t i = 0; i < m->n_parts; i++)
        TRY(memory_new(&m->conversion[i], m->n_columns, sizeof **m->conversion, "parts", f));
fail:
    return error;
}

static void merge_clear(struct merge *m)
{
    for (size_t i = 0; m->conversion != NULL && i < m->n_parts; i++) {
        for (size_t c = 0; m->conversion[i] != NULL && c < m->n_columns; c++) free(m->conversion[i][c].code);
        free(m->conversion[i]);
    }
    for (size_t c = 0; m->texts != NULL && c < m->n_columns; c++) texts_clear(&m->texts[c]);
    for (size_t i = 0; m->part != NULL && i < m->n_parts; i++) packed_reader_close(m->part[i]);
    free(m->conversion);
    free(m->texts);
    free(m->part);
    schema_clear(&m->schema);
    if (m->locale != (locale_t)0) freelocale(m->locale);
}

int prep_merge(const char *const *input, size_t n_inputs, const char *output, bool force, struct threads *pool,
               const struct prep_say *say, struct tabft_failure *f)
{
    int error = 0;
    struct merge m = {.n_parts = n_inputs, .pool = pool};
    struct sink to = {0};
    char *made_by = NULL, line[256];
    m.schema.target = TABLE_NO_TARGET;
    if (n_inputs < 1) FAIL(f, TABFT_USE, "merge: no input; name packed tables");
    TRY(number_locale(&m.locale, f));
    TRY(open_parts(&m, input, f));
    TRY(unite(&m, f));
    TRY(provenance(&m, &made_by, f));
    TRY(sink_open(&to, &(struct packed_start){output, force, PACK_LEVEL, &m.schema, m.texts, made_by, NULL}, pool, f));
    TRY(copy_rows(&m, &to, f));
    TRY(sink_close(&to, f));
    (void)snprintf(line, sizeof line, "%llu integers among decimal numbers were rounded to float64",
                   (unsigned long long)m.n_rounded);
    if (m.n_rounded > 0) say->line(say->context, true, line);
    (void)snprintf(line, sizeof line, "%zu tables, %zu rows, %zu columns", n_inputs, m.schema.n_rows, m.n_columns);
    say->line(say->context, false, line);
fail:
    sink_abandon(&to);
    free(made_by);
    merge_clear(&m);
    return error;
}
