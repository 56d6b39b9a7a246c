/* Pass 2: segments are read again, their cells go into slots by kind, full row groups into the packed table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/loop.h"
#include "table/pack_internal.h"

enum { BLOCKS_A_THREAD = 4, SLOTS_AT_ONCE = 8 << 20 };

enum action { FILL_REAL, FILL_INTEGER, FILL_BOOLEAN, FILL_TEXT, LABEL_REAL, LABEL_INTEGER, LABEL_BOOLEAN, LABEL_TEXT };

struct fill {
    struct pack *p;
    enum action *action;  /* [n_columns] */
    struct cells *cells;  /* [n_columns][room] */
    uint64_t base;        /* the row that slot 0 holds */
    size_t first_segment; /* of block 0 */
    char **text;          /* a buffer a thread */
    size_t *room;
    struct records *records; /* a thread */
    struct loop_failure failure;
};

/* A segment that is filled; what each cell needs is at hand. */
struct fill_context {
    const struct fill *x;
    const enum action *action;
    const struct cells *cells;
    uint64_t n_rows;
    size_t first_row; /* in cells */
};

/* ---- cells ---- */

static int changed(struct tabft_failure *f)
{
    return tabft_fail(f, TABFT_INPUT, "the file changed while it was read; run again when nothing writes to it");
}

static size_t label_of_integer(const struct pack *p, int64_t v)
{
    const int64_t *label = p->column[p->target].label_integer;
    for (size_t low = 0, high = p->schema.n_labels; low < high;) {
        size_t at = (low + high) / 2;
        if (label[at] == v) return at;
        if (label[at] < v) low = at + 1;
        else high = at;
    }
    return SIZE_MAX;
}

static size_t label_of_real(const struct pack *p, double v)
{
    const double *label = p->column[p->target].label_double;
    for (size_t low = 0, high = p->schema.n_labels; low < high;) {
        size_t at = (low + high) / 2;
        if (label[at] < v) low = at + 1;
        else if (label[at] > v) high = at;
        else return at;
    }
    return SIZE_MAX;
}

/* The value of a cell in a number or boolean column. */
static int cell_value(const struct pack *p, enum action action, const struct cell *cell, bool *missing,
                      int64_t *integer, double *real, struct tabft_failure *f)
{
    size_t spelling;
    *missing = false;
    if (cell->is_number) {
        if (action == FILL_REAL || action == LABEL_REAL) {
            if (number_double(&cell->number, cell->number_text, cell->number_end, p->format.point, p->locale, real))
                return 0;
        } else if ((action == FILL_INTEGER || action == LABEL_INTEGER) && cell->number.integer &&
                   number_int64(&cell->number, integer)) {
            return 0;
        }
        return changed(f);
    }
    switch (pack_classify(p, cell, &spelling, real)) {
    case CELL_EMPTY:
    case CELL_NA: *missing = true; return 0;
    case CELL_INFINITE: return action == FILL_REAL || action == LABEL_REAL ? 0 : changed(f);
    case CELL_TRUE:
    case CELL_FALSE:
        *integer = pack_classify(p, cell, &spelling, real) == CELL_TRUE;
        return action == FILL_BOOLEAN || action == LABEL_BOOLEAN ? 0 : changed(f);
    case CELL_TEXT: break;
    }
    return changed(f);
}

/* Puts a value where it belongs: a number, or the code of the label it is. */
static int put_value(const struct pack *p, enum action action, struct cells *cells, size_t row, bool missing,
                     int64_t integer, double real, struct tabft_failure *f)
{
    size_t code;
    cells->absent[row] = missing;
    switch (action) {
    case FILL_REAL: cells->slot[row] = slot_of_double(missing ? (double)NAN : real); return 0;
    case FILL_INTEGER:
    case FILL_BOOLEAN: cells->slot[row] = (uint64_t)integer; return 0;
    case LABEL_REAL: code = label_of_real(p, real); break;
    default: code = label_of_integer(p, integer); break;
    }
    if (missing) code = 0;
    cells->slot[row] = code;
    return code == SIZE_MAX ? changed(f) : 0;
}

static int put_text(const struct pack *p, size_t column, enum action action, const struct cell *cell, size_t row,
                    struct cells *cells, struct tabft_failure *f)
{
    const struct column_plan *plan = &p->column[column];
    size_t spelling;
    cells->slot[row] = 0;
    cells->absent[row] = pack_text_missing(p, cell, &spelling);
    if (cells->absent[row]) return 0;
    size_t i = dictionary_find(&plan->collected.texts, cell->text, cell->length);
    if (i == SIZE_MAX) return changed(f);
    cells->slot[row] = action == FILL_TEXT ? plan->collected.texts.rank[i] : plan->label_of_text[i];
    return 0;
}

static int fill_any(const struct fill *x, size_t row, size_t column, const struct cell *cell, struct tabft_failure *f)
{
    const struct pack *p = x->p;
    struct cells *cells = &x->cells[column];
    enum action action = x->action[column];
    if (action == FILL_TEXT || action == LABEL_TEXT) return put_text(p, column, action, cell, row, cells, f);
    bool missing = false;
    int64_t integer = 0;
    double real = 0;
    int error = cell_value(p, action, cell, &missing, &integer, &real, f);
    return error < 0 ? error : put_value(p, action, cells, row, missing, integer, real, f);
}

static inline __attribute__((always_inline)) int fill_cell(void *context, uint64_t record, size_t column,
                                                           const struct cell *cell, struct tabft_failure *f)
{
    const struct fill_context *c = context;
    if (record >= c->n_rows) return changed(f);
    const struct cells *cells = &c->cells[column];
    size_t row = c->first_row + (size_t)record;
    double v;
    /* Most cells of most tables. */
    if (cell->is_number && c->action[column] == FILL_REAL && number_short_double(&cell->number, &v)) {
        cells->slot[row] = slot_of_double(v);
        return 0;
    }
    if (cell->is_number && c->action[column] == FILL_INTEGER && cell->number.integer &&
        number_int64(&cell->number, (int64_t *)&cells->slot[row])) {
        cells->absent[row] = 0;
        return 0;
    }
    return fill_any(c->x, row, column, cell, f);
}

static int fill_matrix(struct fill *x, const struct segment *s, const unsigned char *at, struct tabft_failure *f)
{
    const struct npy *n = &x->p->npy[s->input];
    int error = 0;
    for (uint64_t i = 0; i < s->n_rows * n->columns; i++, at += n->item) {
        size_t row = (size_t)(s->first_row + i / n->columns - x->base);
        size_t column = (size_t)(i % n->columns);
        int64_t integer = 0;
        double real = 0;
        if (!npy_cell(n, at, &integer, &real)) return changed(f);
        bool missing = n->type == 'f' && isnan(real);
        if (n->type == 'b') integer = integer != 0;
        if (n->type != 'f') real = (double)integer; /* a float column forced by --schema */
        if (x->action[column] == FILL_TEXT || x->action[column] == LABEL_TEXT) {
            char text[NUMBER_PRINT_MAX];
            struct cell cell = {.text = text};
            if (!missing)
                cell.length = n->type == 'f' ? number_print_double(real, x->p->locale, text)
                                             : number_print_int64(integer, text);
            error = put_text(x->p, column, x->action[column], &cell, row, &x->cells[column], f);
        } else {
            error = put_value(x->p, x->action[column], &x->cells[column], row, missing, integer, real, f);
        }
        if (error < 0) return error;
    }
    return 0;
}

/* ---- segments ---- */

static int fill_text(struct fill *x, const struct segment *s, int thread, struct tabft_failure *f)
{
    int error = 0;
    if (x->room[thread] < s->size) {
        TRY(memory_grow(&x->text[thread], s->size + RECORDS_PADDING, 1, "text", f));
        x->room[thread] = s->size;
    }
    char *text = x->text[thread];
    TRY(input_get(&x->p->input[s->input], s->offset, text, s->size, f));
    if (x->p->is_npy) return fill_matrix(x, s, (const unsigned char *)text, f);
    text[s->size] = text[s->size + 1] = '\n';
    struct fill_context c = {x, x->action, x->cells, s->n_rows, (size_t)(s->first_row - x->base)};
    struct records *r = &x->records[thread];
    r->n_records = 0;
    TRY(records_walk(r, text, text + s->size, fill_cell, &c, f));
    if (r->n_records != s->n_rows) TRY(changed(f));
fail:
    return error;
}

static void fill_segment(void *context, size_t block, int thread)
{
    struct fill *x = context;
    const struct segment *s = &x->p->segment[x->first_segment + block];
    struct tabft_failure f = {0};
    if (fill_text(x, s, thread, &f) == 0) return;
    tabft_fail_prefix(&f, "%s", input_said(&x->p->input[s->input]));
    loop_failure_keep(&x->failure, block, &f);
}

/* Segments [first, *end) make the next batch; *rows: those up to its end. */
static void next_segments(const struct fill *x, size_t first, size_t at_once, size_t *end, uint64_t *rows)
{
    const struct pack *p = x->p;
    uint64_t from = p->segment[first].first_row;
    size_t i = first;
    while (i < p->n_segments && i - first < at_once && p->segment[i].first_row < p->n_rows) {
        uint64_t n = p->segment[i].first_row + p->segment[i].n_rows - from;
        if (i > first && n * p->n_columns > SLOTS_AT_ONCE) break;
        i++;
    }
    *end = i;
    *rows = p->segment[i - 1].first_row + p->segment[i - 1].n_rows;
}

/* The most rows that lie in slots at a time: what is left of a group, and a batch. */
static size_t room_needed(const struct fill *x, size_t at_once)
{
    uint64_t most = 0, done = 0;
    for (size_t i = 0; done < x->p->n_rows;) {
        uint64_t before = done;
        next_segments(x, i, at_once, &i, &done);
        uint64_t n = done - before / TABLE_GROUP_ROWS * TABLE_GROUP_ROWS;
        if (n > most) most = n;
    }
    return (size_t)most;
}

static void keep_rest(struct fill *x, size_t done, size_t n)
{
    for (size_t c = 0; c < x->p->n_columns; c++) {
        memmove(x->cells[c].slot, x->cells[c].slot + done, (n - done) * sizeof *x->cells[c].slot);
        memmove(x->cells[c].absent, x->cells[c].absent + done, n - done);
    }
}

static int fill_all(struct fill *x, struct packed_writer *w, size_t at_once, struct tabft_failure *f)
{
    int error = 0;
    uint64_t rows = 0;
    size_t end = 0;
    while (rows < x->p->n_rows) {
        x->first_segment = end;
        next_segments(x, end, at_once, &end, &rows);
        loop_failure_open(&x->failure);
        threads_run(x->p->pool, end - x->first_segment, fill_segment, x);
        TRY(loop_failure_close(&x->failure, f));
        size_t n = (size_t)(rows - x->base);
        size_t whole = rows == x->p->n_rows ? n : n / TABLE_GROUP_ROWS * TABLE_GROUP_ROWS;
        TRY(packed_writer_put(w, x->cells, whole, f));
        if (whole > 0) keep_rest(x, whole, n);
        x->base += whole;
    }
fail:
    return error;
}

static void choose_actions(struct fill *x)
{
    const struct pack *p = x->p;
    for (size_t c = 0; c < p->n_columns; c++) {
        bool label = p->task == TABLE_CLASSIFICATION && p->target == (ptrdiff_t)c;
        switch (p->schema.column[c].kind) {
        case TABLE_FLOAT: x->action[c] = label ? LABEL_REAL : FILL_REAL; break;
        case TABLE_INTEGER: x->action[c] = label ? LABEL_INTEGER : FILL_INTEGER; break;
        case TABLE_BOOLEAN: x->action[c] = label ? LABEL_BOOLEAN : FILL_BOOLEAN; break;
        case TABLE_TEXT: x->action[c] = label ? LABEL_TEXT : FILL_TEXT; break;
        }
    }
}

int pack_fill(struct pack *p, struct packed_writer *w, struct tabft_failure *f)
{
    int error = 0;
    size_t n_threads = (size_t)threads_count(p->pool), at_once = n_threads * BLOCKS_A_THREAD;
    struct fill x = {.p = p};
    TRY(memory_new(&x.action, p->n_columns, sizeof *x.action, "columns", f));
    TRY(memory_new(&x.text, n_threads, sizeof *x.text, "text", f));
    TRY(memory_new(&x.room, n_threads, sizeof *x.room, "text", f));
    TRY(memory_new(&x.records, n_threads, sizeof *x.records, "text", f));
    for (size_t i = 0; i < n_threads; i++)
        x.records[i] = (struct records){.format = &p->format, .n_columns = p->n_columns};
    choose_actions(&x);
    TRY(cells_new(&x.cells, p->n_columns, room_needed(&x, at_once), f));
    TRY(fill_all(&x, w, at_once, f));
fail:
    cells_free(x.cells);
    for (size_t i = 0; x.records != NULL && i < n_threads; i++) free(x.records[i].unquoted);
    for (size_t i = 0; x.text != NULL && i < n_threads; i++) free(x.text[i]);
    free(x.records);
    free(x.text);
    free(x.room);
    free(x.action);
    return error;
}
