#include "table/sink.h"

#include <string.h>

int sink_open(struct sink *s, const struct packed_start *start, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    *s = (struct sink){.n_columns = start->schema->n_columns};
    TRY(packed_writer_open(&s->w, start, pool, f));
    TRY(cells_new(&s->cells, s->n_columns, 2 * TABLE_GROUP_ROWS, f));
    return 0;
fail:
    sink_abandon(s);
    return error;
}

static int flush(struct sink *s, size_t n, struct tabft_failure *f)
{
    int error = packed_writer_put(s->w, s->cells, n, f);
    if (error < 0) return error;
    for (size_t c = 0; c < s->n_columns; c++) {
        memmove(s->cells[c].slot, s->cells[c].slot + n, (s->n - n) * sizeof *s->cells[c].slot);
        memmove(s->cells[c].absent, s->cells[c].absent + n, s->n - n);
    }
    s->n -= n;
    return 0;
}

int sink_put(struct sink *s, const struct cells *cells, size_t n, const uint8_t *take, uint8_t wanted,
             struct tabft_failure *f)
{
    size_t end = s->n;
    for (size_t c = 0; c < s->n_columns; c++) {
        end = s->n;
        for (size_t i = 0; i < n; i++) {
            if (take != NULL && take[i] != wanted) continue;
            s->cells[c].slot[end] = cells[c].slot[i];
            s->cells[c].absent[end++] = cells[c].absent[i];
        }
    }
    s->n = end;
    return s->n >= TABLE_GROUP_ROWS ? flush(s, TABLE_GROUP_ROWS, f) : 0;
}

int sink_close(struct sink *s, struct tabft_failure *f)
{
    int error = 0;
    TRY(flush(s, s->n, f));
    struct packed_writer *w = s->w;
    s->w = NULL;
    TRY(packed_writer_close(w, f));
fail:
    sink_abandon(s);
    return error;
}

void sink_abandon(struct sink *s)
{
    packed_writer_abandon(s->w);
    cells_free(s->cells);
    *s = (struct sink){0};
}
