/* A packed table as CSV: RFC 4180 with LF, numbers the shortest way that reads back the same. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "file/file.h"
#include "table/loop.h"
#include "table/packed.h"
#include "table/number.h"
#include "table/prep.h"

enum { PIECE_ROWS = 2048 };

/* Text that grows. */
struct text {
    char *bytes;
    size_t n, room;
};

struct cat {
    const struct packed_reader *r;
    const struct cells *cells; /* of a group */
    size_t n_rows;             /* of it */
    struct text *piece;        /* [pieces of a group] */
    locale_t locale;
    struct loop_failure failure;
};

static int reserve(struct text *t, size_t more, struct tabft_failure *f)
{
    if (t->room - t->n >= more) return 0;
    size_t room = 2 * t->room > t->n + more ? 2 * t->room : t->n + more + 4096;
    int error = memory_grow(&t->bytes, room, 1, "CSV text", f);
    if (error == 0) t->room = room;
    return error;
}

/* A text, in quotes where it must be: where it holds a quote, a comma or an end of line. */
static int put_text(struct text *to, const char *text, struct tabft_failure *f)
{
    size_t n = strlen(text);
    int error = reserve(to, 2 * n + 2, f);
    if (error < 0) return error;
    if (strpbrk(text, "\",\r\n") == NULL && n > 0) {
        memcpy(to->bytes + to->n, text, n);
        to->n += n;
        return 0;
    }
    to->bytes[to->n++] = '"';
    for (; *text != '\0'; text++) {
        if (*text == '"') to->bytes[to->n++] = '"';
        to->bytes[to->n++] = *text;
    }
    to->bytes[to->n++] = '"';
    return 0;
}

/* A label of a float column is written as the float it stands for. */
static int put_label(struct text *to, const char *label, bool real, struct tabft_failure *f)
{
    int error = put_text(to, label, f);
    if (error < 0 || !real || strpbrk(label, ".en") != NULL) return error;
    error = reserve(to, 2, f);
    if (error < 0) return error;
    memcpy(to->bytes + to->n, ".0", 2);
    to->n += 2;
    return 0;
}

static int put_cell(const struct cat *x, struct text *to, size_t c, size_t row, struct tabft_failure *f)
{
    const struct schema *s = packed_reader_schema(x->r);
    const struct schema_column *column = &s->column[c];
    const struct cells *cells = &x->cells[c];
    uint64_t slot = cells->slot[row];
    if (cell_missing(cells, row, storage_is_real(column->storage))) {
        /* A line without any byte would be skipped by pack. */
        return s->n_columns == 1 ? put_text(to, "", f) : 0;
    }
    if (schema_is_code(s, c)) {
        bool label = s->task == TABLE_CLASSIFICATION && s->target == (ptrdiff_t)c;
        if (label) return put_label(to, s->label[slot], column->kind == TABLE_FLOAT, f);
        return put_text(to, packed_reader_texts(x->r)[c].text[slot], f);
    }
    if (column->kind == TABLE_BOOLEAN) return put_text(to, slot != 0 ? "true" : "false", f);
    int error = reserve(to, NUMBER_PRINT_MAX, f);
    if (error < 0) return error;
    if (column->kind == TABLE_FLOAT) to->n += number_print_double(slot_double(slot), x->locale, to->bytes + to->n);
    else to->n += number_print_int64(slot_integer(slot), to->bytes + to->n);
    return 0;
}

static int put_separator(const struct schema *s, struct text *to, size_t c, struct tabft_failure *f)
{
    int error = reserve(to, 1, f);
    if (error == 0) to->bytes[to->n++] = c + 1 < s->n_columns ? ',' : '\n';
    return error;
}

static void put_piece(void *context, size_t block, int thread)
{
    struct cat *x = context;
    const struct schema *s = packed_reader_schema(x->r);
    struct text *to = &x->piece[block];
    size_t from = block * PIECE_ROWS, end = from + PIECE_ROWS < x->n_rows ? from + PIECE_ROWS : x->n_rows;
    struct tabft_failure f = {0};
    int error = 0;
    (void)thread;
    to->n = 0;
    for (size_t row = from; row < end && error == 0; row++) {
        for (size_t c = 0; c < s->n_columns && error == 0; c++) {
            error = put_cell(x, to, c, row, &f);
            if (error == 0) error = put_separator(s, to, c, &f);
        }
    }
    if (error < 0) loop_failure_keep(&x->failure, block, &f);
}

static int put_header(const struct cat *x, struct file_writer *w, struct tabft_failure *f)
{
    int error = 0;
    struct text line = {0};
    const struct schema *s = packed_reader_schema(x->r);
    for (size_t c = 0; c < s->n_columns; c++) {
        TRY(put_text(&line, s->column[c].name, f));
        TRY(put_separator(s, &line, c, f));
    }
    TRY(file_writer_put(w, line.bytes, line.n, f));
fail:
    free(line.bytes);
    return error;
}

static int put_groups(struct cat *x, struct file_writer *w, struct cells *cells, struct threads *pool,
                      struct tabft_failure *f)
{
    int error = 0;
    for (size_t g = 0; g < schema_groups(packed_reader_schema(x->r)); g++) {
        TRY(packed_reader_group(x->r, pool, g, cells, f));
        x->cells = cells;
        x->n_rows = packed_reader_group_rows(x->r, g);
        size_t pieces = (x->n_rows + PIECE_ROWS - 1) / PIECE_ROWS;
        loop_failure_open(&x->failure);
        threads_run(pool, pieces, put_piece, x);
        TRY(loop_failure_close(&x->failure, f));
        for (size_t i = 0; i < pieces; i++) TRY(file_writer_put(w, x->piece[i].bytes, x->piece[i].n, f));
    }
fail:
    return error;
}

int prep_cat(const char *input, const char *output, bool force, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    enum { PIECES = TABLE_GROUP_ROWS / PIECE_ROWS };
    struct cat x = {0};
    struct packed_reader *r = NULL;
    struct cells *cells = NULL;
    struct file_writer *w = NULL, *closing;
    TRY(number_locale(&x.locale, f));
    TRY(packed_reader_open(&r, input, threads_count(pool), true, f));
    const struct schema *s = packed_reader_schema(r);
    x.r = r;
    TRY(memory_new(&x.piece, PIECES, sizeof *x.piece, "CSV text", f));
    TRY(cells_new(&cells, s->n_columns, s->n_rows < TABLE_GROUP_ROWS ? s->n_rows : TABLE_GROUP_ROWS, f));
    TRY(file_writer_open(&w, output, force, false, 0, f));
    TRY(put_header(&x, w, f));
    TRY(put_groups(&x, w, cells, pool, f));
    TRY(packed_reader_unchanged(r, f));
    closing = w;
    w = NULL;
    TRY(file_writer_close(closing, f));
fail:
    file_writer_abandon(w);
    cells_free(cells);
    for (size_t i = 0; x.piece != NULL && i < PIECES; i++) free(x.piece[i].bytes);
    free(x.piece);
    packed_reader_close(r);
    if (x.locale != (locale_t)0) freelocale(x.locale);
    return error;
}
