/* Names of columns, and what options and a schema say of them, before any record is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "table/pack_internal.h"

/* Names of one input. */
struct names {
    size_t n, room;
    char **name;
};

static void names_clear(struct names *n)
{
    for (size_t i = 0; i < n->n; i++) free(n->name[i]);
    free(n->name);
    *n = (struct names){0};
}

static int add_name(struct names *n, const char *text, size_t length, struct tabft_failure *f)
{
    int error = 0;
    if (n->n == n->room) {
        size_t room = n->room == 0 ? 64 : 2 * n->room;
        TRY(memory_grow(&n->name, room, sizeof *n->name, "column names", f));
        n->room = room;
    }
    TRY(memory_new(&n->name[n->n], length + 1, 1, "a column name", f));
    memcpy(n->name[n->n], text, length);
    n->n++;
fail:
    return error;
}

/* Cells of the record; with no_header they are only counted, and named x0, x1, ... *nameless is where an empty one
 * lies. */
static int take_names(const struct pack *p, struct records *r, const char *begin, const char *end, const char *record,
                      struct names *names, const char **after, uint64_t *nameless, struct tabft_failure *f)
{
    int error = 0;
    enum scan_end ended = SCAN_NEXT;
    struct cell cell;
    for (const char *at = record; ended == SCAN_NEXT;) {
        char made[32];
        TRY(records_cell(r, begin, end, at, &cell, &ended, &at, f));
        r->failed_at = cell.offset;
        if (names->n == TABLE_COLUMNS_MAX)
            FAIL(f, TABFT_INPUT, "more than %d columns; pack those that matter", (int)TABLE_COLUMNS_MAX);
        if (p->options->no_header) {
            TRY(add_name(names, made, (size_t)snprintf(made, sizeof made, "x%zu", names->n), f));
        } else {
            if (cell.length == 0 && *nameless == UINT64_MAX) *nameless = cell.offset;
            if (cell.length > TABLE_NAME_MAX)
                FAIL(f, TABFT_INPUT, "column %zu has a name of %zu bytes; %d are taken", names->n + 1, cell.length,
                     (int)TABLE_NAME_MAX);
            if (!utf8_valid(cell.text, cell.length))
                FAIL(f, TABFT_INPUT, "the name of column %zu is not UTF-8; iconv makes it", names->n + 1);
            TRY(add_name(names, cell.text, cell.length, f));
        }
        *after = at;
    }
fail:
    return error;
}

/* Names where the header lacks a name, and the line whose records would put cells under none. */
static int fail_nameless(const struct input *in, uint64_t offset, uint64_t records, struct tabft_failure *f)
{
    uint64_t line = 0, column = 0;
    int error = input_place(in, records, &line, &column, f);
    if (error < 0) return error;
    return input_fail(
        in, offset, f,
        "a column has no name, so cells from line %llu on would have none; name it, or remove the delimiter too many",
        (unsigned long long)line);
}

/* Reads from the start until a whole record is there. */
static int text_names(struct pack *p, struct input *in, struct names *names, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL;
    struct records r = {.format = &p->format};
    for (size_t room = 64 << 10;; room *= 4) {
        size_t n = in->size - in->start < room ? (size_t)(in->size - in->start) : room;
        TRY(memory_grow(&text, n + RECORDS_PADDING, 1, "a header", f));
        TRY(input_get(in, in->start, text, n, f));
        text[n] = text[n + 1] = '\n';
        const char *end = text + n, *record = text, *after = text;
        bool all = in->start + n == in->size;
        while (record < end && (*record == '\n' || (*record == '\r' && record[1] == '\n')))
            record += *record == '\n' ? 1 : 2;
        if (record >= end && all)
            FAIL(f, TABFT_INPUT,
                 "%s: no header: the file holds no table; name a file with column names in its first line",
                 input_said(in));
        if (record >= end && room >= RECORD_MAX)
            FAIL(f, TABFT_INPUT, "%s: no header: its first %zu bytes are blank lines; remove them", input_said(in), n);
        /* A cut record fails or ends behind the last byte: then more is read first. */
        struct tabft_failure cut = {0};
        names_clear(names);
        uint64_t nameless = UINT64_MAX;
        error = record >= end ? TABFT_INPUT : take_names(p, &r, text, end, record, names, &after, &nameless, &cut);
        if (!all && (error < 0 || after >= end) && room < RECORD_MAX) continue;
        if (error < 0) {
            error = cut.code == TABFT_INPUT ? input_fail(in, in->start + r.failed_at, f, "%s", cut.message)
                                            : tabft_fail(f, cut.code, "%s: %s", input_said(in), cut.message);
            goto fail;
        }
        uint64_t records = in->start + (uint64_t)((after > end ? end : after) - text);
        if (nameless != UINT64_MAX) TRY(fail_nameless(in, in->start + nameless, records, f));
        p->n_blank += (uint64_t)(record - text > 0);
        if (!p->options->no_header) in->start = records;
        break;
    }
fail:
    free(text);
    free(r.unquoted);
    return error;
}

static int compare_plans(const void *a, const void *b)
{
    return strcmp((*(const struct column_plan *const *)a)->name, (*(const struct column_plan *const *)b)->name);
}

static struct column_plan *find_column(const struct pack *p, struct column_plan *const *sorted, const char *name)
{
    struct column_plan key = {.name = (char *)(uintptr_t)name}, *wanted = &key;
    struct column_plan *const *found = bsearch(&wanted, sorted, p->n_columns, sizeof *sorted, compare_plans);
    return found == NULL ? NULL : *found;
}

static int need_column(const struct pack *p, struct column_plan *const *sorted, const char *option, const char *name,
                       struct column_plan **out, struct tabft_failure *f)
{
    *out = find_column(p, sorted, name);
    if (*out != NULL) return 0;
    return tabft_fail(f, TABFT_INPUT, "%s: %s %s: no such column; the first is called %s",
                      input_said(&p->input[p->first]), option, name, p->column[0].name);
}

/* Kinds, target and task of another table. A column that this table lacks is refused, but for the target. */
static int apply_schema(struct pack *p, struct column_plan *const *sorted, const char **target, struct tabft_failure *f)
{
    int error = 0;
    struct packed_reader *r = NULL;
    TRY(packed_reader_open(&r, p->options->schema, 1, false, f));
    const struct schema *s = packed_reader_schema(r);
    for (size_t c = 0; c < s->n_columns; c++) {
        struct column_plan *column = find_column(p, sorted, s->column[c].name);
        bool is_target = s->target == (ptrdiff_t)c;
        if (column == NULL && !is_target) {
            FAIL(f, TABFT_INPUT, "%s: column %s of %s is missing; add it, or pack without --schema",
                 input_said(&p->input[p->first]), s->column[c].name, p->options->schema);
        }
        if (column == NULL) continue;
        if (is_target && *target == NULL) {
            *target = column->name;
            if (p->task == TABLE_NO_TASK) p->task = s->task;
        }
        bool known = packed_reader_statistics(r)[c].n_missing < s->n_rows;
        if (!known) continue;
        column->force_text = s->column[c].kind == TABLE_TEXT;
        column->force_number = s->column[c].kind == TABLE_FLOAT || s->column[c].kind == TABLE_INTEGER;
        column->force_float = s->column[c].kind == TABLE_FLOAT;
    }
fail:
    packed_reader_close(r);
    return error;
}

static int apply_options(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    struct column_plan **sorted = NULL, *column;
    const struct pack_options *o = p->options;
    const char *target = o->target;
    TRY(memory_new(&sorted, p->n_columns, sizeof *sorted, "column names", f));
    for (size_t c = 0; c < p->n_columns; c++) sorted[c] = &p->column[c];
    qsort(sorted, p->n_columns, sizeof *sorted, compare_plans);
    for (size_t c = 1; c < p->n_columns; c++) {
        if (strcmp(sorted[c - 1]->name, sorted[c]->name) == 0) {
            FAIL(f, TABFT_INPUT, "%s: two columns are called %s; give each a name of its own",
                 input_said(&p->input[p->first]), sorted[c]->name);
        }
    }
    if (o->schema != NULL) TRY(apply_schema(p, sorted, &target, f));
    for (size_t i = 0; i < o->n_text; i++) {
        TRY(need_column(p, sorted, "--text", o->text[i], &column, f));
        column->force_text = true;
        column->force_number = column->force_float = false;
    }
    for (size_t i = 0; i < o->n_numeric; i++) {
        TRY(need_column(p, sorted, "--numeric", o->numeric[i], &column, f));
        if (column->force_text && o->schema == NULL)
            FAIL(f, TABFT_USE, "--text and --numeric both name column %s; name it once", column->name);
        column->force_number = true;
        column->force_text = false;
    }
    if (target != NULL) {
        TRY(need_column(p, sorted, "--target", target, &column, f));
        p->target = column - p->column;
        if (o->classes) column->force_text = true;
    }
    for (size_t c = 0; c < p->n_columns; c++) {
        p->column[c].collect = p->column[c].force_text || (p->target == (ptrdiff_t)c && p->task != TABLE_REGRESSION);
    }
fail:
    free(sorted);
    return error;
}

static int set_columns(struct pack *p, struct names *names, struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&p->column, names->n, sizeof *p->column, "columns", f));
    p->n_columns = names->n;
    for (size_t c = 0; c < names->n; c++) {
        p->column[c].name = names->name[c];
        names->name[c] = NULL;
        TRY(memory_new(&p->column[c].na, p->options->n_na + 1, sizeof *p->column[c].na, "counts", f));
        TRY(memory_new(&p->column[c].text_na, p->options->n_text_na + 1, sizeof *p->column[c].text_na, "counts", f));
    }
fail:
    return error;
}

/* All inputs must have the columns of the first. */
static int check_names(const struct pack *p, const struct input *in, const struct names *names, struct tabft_failure *f)
{
    if (names->n != p->n_columns) {
        return tabft_fail(f, TABFT_INPUT, "%s: %zu columns, and %s has %zu; files of one table have the same columns",
                          input_said(in), names->n, input_said(&p->input[p->first]), p->n_columns);
    }
    for (size_t c = 0; c < names->n; c++) {
        if (strcmp(names->name[c], p->column[c].name) == 0) continue;
        return tabft_fail(f, TABFT_INPUT,
                          "%s: column %zu is called %s, and %s in %s; files of one table have the same header",
                          input_said(in), c + 1, names->name[c], p->column[c].name, input_said(&p->input[p->first]));
    }
    return 0;
}

int pack_header(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    struct names names = {0};
    p->is_npy = p->input[p->first].is_npy;
    for (size_t i = 0; i < p->options->n_inputs; i++) {
        struct input *in = &p->input[i];
        if (!p->range[i].used && i != p->first) continue;
        if (in->is_npy != p->is_npy)
            FAIL(f, TABFT_INPUT, "%s: text and NPY files do not make one table; pack them one by one", input_said(in));
        if (p->is_npy) {
            TRY(npy_open(&p->npy[i], in, f));
            if (p->npy[i].type != p->npy[p->first].type)
                FAIL(f, TABFT_INPUT, "%s: holds other numbers than %s; save both as one type", input_said(in),
                     input_said(&p->input[p->first]));
            for (size_t c = 0; c < p->npy[i].columns; c++) {
                char made[32];
                TRY(add_name(&names, made, (size_t)snprintf(made, sizeof made, "x%zu", c), f));
            }
        } else {
            TRY(text_names(p, in, &names, f));
        }
        if (i == p->first) TRY(set_columns(p, &names, f));
        else TRY(check_names(p, in, &names, f));
        names_clear(&names);
    }
    TRY(apply_options(p, f));
fail:
    names_clear(&names);
    return error;
}
