#include "table/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/decimals.h"
#include "table/loaded.h"
#include "table/loop.h"

/* How a column lies in memory. Integers and decimals keep their width unless cells are missing, which only floats can
 * say; integers beyond int32 become doubles, as table_column.value rounds them. */
enum width { WIDTH_I8, WIDTH_I16, WIDTH_I32, WIDTH_F32, WIDTH_F64 };

/* Where the cells of a column go: row i at base + i * stride items. */
struct lane {
    enum width width;
    bool decimal; /* whole numbers over `power`, which else is 1 */
    double power;
    int32_t minus_zero; /* the decimal that is -0 */
    void *base;
    size_t stride;
};

struct table_store {
    const struct loaded *t;
    size_t n_columns, n_rows;
    bool whole;
    size_t *place;                        /* [n_columns] in the schema */
    struct lane *lane;                    /* [n_columns] */
    struct column_statistics *statistics; /* whole: [groups][n_columns], behind the cells */
};

/* A row that is wanted: its place in its group, and in the store. */
struct pick {
    uint32_t from, to;
};

static enum width width_of(enum page_storage storage, bool gaps)
{
    switch (storage) {
    case STORAGE_D8: return gaps ? WIDTH_F64 : WIDTH_I8;
    case STORAGE_D16: return gaps ? WIDTH_F64 : WIDTH_I16;
    case STORAGE_D32: return gaps ? WIDTH_F64 : WIDTH_I32;
    case STORAGE_I8: return gaps ? WIDTH_F32 : WIDTH_I8;
    case STORAGE_I16: return gaps ? WIDTH_F32 : WIDTH_I16;
    case STORAGE_I32: return gaps ? WIDTH_F64 : WIDTH_I32;
    case STORAGE_F32: return WIDTH_F32;
    default: return WIDTH_F64;
    }
}

static size_t width_bytes(enum width w) { return w == WIDTH_I8 ? 1 : w == WIDTH_I16 ? 2 : w == WIDTH_F64 ? 8 : 4; }

static enum width column_width(const struct loaded *t, size_t place)
{
    return width_of(packed_reader_schema(t->reader)->column[place].storage,
                    packed_reader_statistics(t->reader)[place].n_missing > 0);
}

/* ---- layout ---- */

static bool add_bytes(size_t *sum, size_t n, size_t size)
{
    size_t bytes;
    if (!size_mul(n, size, &bytes) || bytes > SIZE_MAX - 64 || *sum > SIZE_MAX - 64 - bytes) return false;
    *sum += (bytes + 63) / 64 * 64;
    return true;
}

static size_t part_column(const struct table_part *p, size_t c) { return p->column != NULL ? p->column[c] : c; }

size_t table_part_bytes(const struct table_part *p)
{
    const struct loaded *t = loaded_of(p->table);
    size_t sum = 0, n_pages;
    for (size_t c = 0; c < p->n_columns; c++) {
        enum width width = column_width(t, loaded_place(t, part_column(p, c)));
        if (!add_bytes(&sum, p->n_rows, width_bytes(width))) return SIZE_MAX;
    }
    if (!p->whole) return sum;
    if (!size_mul(schema_groups(packed_reader_schema(t->reader)), p->n_columns, &n_pages) ||
        !add_bytes(&sum, n_pages, sizeof(struct column_statistics)))
        return SIZE_MAX;
    return sum;
}

int table_store_open(struct table_store **out, const struct table_part *p, void *memory, struct tabft_failure *f)
{
    int error = 0;
    char *at = memory;
    struct table_store *s = NULL;
    TRY(memory_new(&s, 1, sizeof *s, "a table's cells", f));
    s->t = loaded_of(p->table);
    s->n_columns = p->n_columns;
    s->n_rows = p->n_rows;
    s->whole = p->whole;
    TRY(memory_new(&s->place, s->n_columns, sizeof *s->place, "a table's cells", f));
    TRY(memory_new(&s->lane, s->n_columns, sizeof *s->lane, "a table's cells", f));
    for (size_t c = 0; c < s->n_columns; c++) {
        s->place[c] = loaded_place(s->t, part_column(p, c));
        const struct schema_column *column = &packed_reader_schema(s->t->reader)->column[s->place[c]];
        bool decimal = storage_is_decimal(column->storage);
        s->lane[c] = (struct lane){.width = column_width(s->t, s->place[c]),
                                   .power = decimal_power(column->decimals),
                                   .decimal = decimal,
                                   .minus_zero = decimal ? decimal_minus_zero(storage_size(column->storage)) : 0,
                                   .base = at,
                                   .stride = 1};
        at += (s->n_rows * width_bytes(s->lane[c].width) + 63) / 64 * 64;
    }
    if (s->whole) s->statistics = (struct column_statistics *)(void *)at;
    *out = s;
    return 0;
fail:
    table_store_close(s);
    return error;
}

void table_store_close(struct table_store *s)
{
    if (s == NULL) return;
    free(s->place);
    free(s->lane);
    free(s);
}

/* ---- pages in ---- */

static double cell_value(const struct cells *cells, size_t i, bool real)
{
    if (real) return slot_double(cells->slot[i]);
    return cells->absent[i] ? (double)NAN : (double)slot_integer(cells->slot[i]);
}

#define PUT_CELLS(type, made_of)                                                                   \
    for (size_t i = 0; i < n; i++) {                                                               \
        size_t from = pick != NULL ? pick[i].from : i, to = pick != NULL ? pick[i].to : first + i; \
        double v = cell_value(cells, from, real);                                                  \
        ((type *)lane->base)[to * lane->stride] = (type)(made_of);                                 \
    }

/* n cells: those of `pick`, else all of the page in order, from row `first` of the lane on. */
static void put_cells(const struct lane *lane, const struct cells *cells, bool real, const struct pick *pick, size_t n,
                      size_t first)
{
    switch (lane->width) {
    case WIDTH_I8: PUT_CELLS(int8_t, decimal_of(v, lane->power, lane->minus_zero)); break;
    case WIDTH_I16: PUT_CELLS(int16_t, decimal_of(v, lane->power, lane->minus_zero)); break;
    case WIDTH_I32: PUT_CELLS(int32_t, decimal_of(v, lane->power, lane->minus_zero)); break;
    case WIDTH_F32: PUT_CELLS(float, v); break;
    case WIDTH_F64: PUT_CELLS(double, v); break;
    }
}

/* A loop over pages of some columns, group after group as they lie in the file. */
struct page_loop {
    const struct loaded *t;
    const size_t *place; /* [n_columns] */
    const struct lane *lane;
    size_t n_columns, first;              /* first: page that block 0 is */
    const struct pick *pick;              /* sorted by group; NULL: all rows */
    const size_t *group_begin;            /* [groups + 1] in pick */
    struct column_statistics *statistics; /* [groups][n_columns] or NULL */
    struct cells *scratch;                /* one a thread */
    const atomic_bool *stop;              /* or NULL */
    struct loop_failure failure;
};

static int read_page(struct page_loop *l, size_t page, int thread, struct tabft_failure *f)
{
    int error = 0;
    const struct packed_reader *r = l->t->reader;
    size_t group = page / l->n_columns, c = page % l->n_columns, place = l->place[c];
    struct column_statistics seen;
    const struct cells *cells = &l->scratch[thread];
    const struct pick *pick = l->pick == NULL ? NULL : l->pick + l->group_begin[group];
    size_t n = l->pick == NULL ? packed_reader_group_rows(r, group) : l->group_begin[group + 1] - l->group_begin[group];
    if (n == 0) return 0;
    TRY(packed_reader_page(r, thread, place, group, &l->scratch[thread], &seen, f));
    if (seen.n_missing > packed_reader_statistics(r)[place].n_missing)
        FAIL(f, TABFT_INPUT, "%s: the statistics of column %s are not those of its cells", packed_reader_path(r),
             packed_reader_schema(r)->column[place].name);
    if (l->statistics != NULL) l->statistics[page] = seen;
    put_cells(&l->lane[c], cells, storage_is_real(packed_reader_schema(r)->column[place].storage), pick, n,
              group * TABLE_GROUP_ROWS);
fail:
    return error;
}

static void take_page(void *context, size_t block, int thread)
{
    struct page_loop *l = context;
    struct tabft_failure f = {0};
    if (l->stop != NULL && atomic_load_explicit(l->stop, memory_order_relaxed)) return;
    if (read_page(l, l->first + block, thread, &f) < 0) loop_failure_keep(&l->failure, block, &f);
}

static int run_pages(struct page_loop *l, struct threads *pool, size_t end, struct tabft_failure *f)
{
    int error = 0;
    if (threads_count(pool) > l->t->n_threads)
        FAIL(f, TABFT_USE, "%s: was opened for %d threads and is read by %d", packed_reader_path(l->t->reader),
             l->t->n_threads, threads_count(pool));
    TRY(cells_new(&l->scratch, (size_t)threads_count(pool), TABLE_GROUP_ROWS, f));
    loop_failure_open(&l->failure);
    threads_run(pool, end - l->first, take_page, l);
    TRY(loop_failure_close(&l->failure, f));
    TRY(packed_reader_unchanged(l->t->reader, f));
fail:
    cells_free(l->scratch);
    l->scratch = NULL;
    return error;
}

int table_store_fill(struct table_store *s, struct threads *pool, size_t share, size_t n_shares,
                     struct tabft_failure *f)
{
    size_t n = schema_groups(packed_reader_schema(s->t->reader)) * s->n_columns;
    struct page_loop l = {.t = s->t,
                          .place = s->place,
                          .lane = s->lane,
                          .n_columns = s->n_columns,
                          .first = n / n_shares * share + n % n_shares * share / n_shares,
                          .statistics = s->statistics};
    size_t end = n / n_shares * (share + 1) + n % n_shares * (share + 1) / n_shares;
    return run_pages(&l, pool, end, f);
}

int table_store_check(const struct table_store *s, struct tabft_failure *f)
{
    int error = 0;
    for (size_t c = 0; c < s->n_columns; c++)
        TRY(packed_reader_check(s->t->reader, s->place[c], s->statistics + c, s->n_columns, f));
fail:
    return error;
}

/* ---- chosen rows in ---- */

size_t table_pick_bytes(const struct table *t, size_t n_rows, int n_threads)
{
    const size_t group = t->n_rows < TABLE_GROUP_ROWS ? t->n_rows : TABLE_GROUP_ROWS;
    return n_rows * sizeof(struct pick) +
           (size_t)n_threads * (group * CELL_BYTES + loaded_codec_bytes(loaded_of(t)));
}

/* Sorts the rows by their group (in each, as they come): group_begin[groups + 1] and pick[n_rows]. */
static int sort_rows(const struct loaded *t, const size_t *row, size_t n_rows, struct pick **pick, size_t **group_begin,
                     struct tabft_failure *f)
{
    int error = 0;
    size_t n_groups = schema_groups(packed_reader_schema(t->reader)), *begin;
    if (n_rows > UINT32_MAX) FAIL(f, TABFT_SYSTEM, "%zu rows are too many to be picked at once", n_rows);
    TRY(memory_new(pick, n_rows, sizeof **pick, "the rows of a chunk", f));
    TRY(memory_new(group_begin, n_groups + 2, sizeof **group_begin, "the rows of a chunk", f));
    begin = *group_begin + 1; /* begin[g] moves from the group's begin to its end */
    for (size_t i = 0; i < n_rows; i++) begin[row[i] / TABLE_GROUP_ROWS + 1]++;
    for (size_t g = 0; g < n_groups; g++) begin[g + 1] += begin[g];
    for (size_t i = 0; i < n_rows; i++)
        (*pick)[begin[row[i] / TABLE_GROUP_ROWS]++] = (struct pick){.from = (uint32_t)(row[i] % TABLE_GROUP_ROWS),
                                                                    .to = (uint32_t)i};
fail:
    return error;
}

static int pick_rows(struct page_loop *l, struct threads *pool, const size_t *row, size_t n_rows,
                     struct tabft_failure *f)
{
    int error = 0;
    struct pick *pick = NULL;
    size_t *group_begin = NULL;
    TRY(sort_rows(l->t, row, n_rows, &pick, &group_begin, f));
    l->pick = pick;
    l->group_begin = group_begin;
    TRY(run_pages(l, pool, schema_groups(packed_reader_schema(l->t->reader)) * l->n_columns, f));
fail:
    free(pick);
    free(group_begin);
    return error;
}

int table_store_pick(struct table_store *s, struct threads *pool, const size_t *row, size_t n_rows,
                     const atomic_bool *stop, struct tabft_failure *f)
{
    struct page_loop l = {.t = s->t, .place = s->place, .lane = s->lane, .n_columns = s->n_columns, .stop = stop};
    return pick_rows(&l, pool, row, n_rows, f);
}

int table_gather(const struct table *table, const size_t *column, size_t n_columns, const size_t *row, size_t n_rows,
                 struct threads *pool, double *x, struct tabft_failure *f)
{
    int error = 0;
    const struct loaded *t = loaded_of(table);
    size_t *place = NULL;
    struct lane *lane = NULL;
    TRY(memory_new(&place, n_columns, sizeof *place, "the rows of a chunk", f));
    TRY(memory_new(&lane, n_columns, sizeof *lane, "the rows of a chunk", f));
    for (size_t c = 0; c < n_columns; c++) {
        place[c] = loaded_place(t, column[c]);
        lane[c] = (struct lane){.width = WIDTH_F64, .power = 1, .base = x + c, .stride = n_columns};
    }
    struct page_loop l = {.t = t, .place = place, .lane = lane, .n_columns = n_columns};
    TRY(pick_rows(&l, pool, row, n_rows, f));
fail:
    free(place);
    free(lane);
    return error;
}

/* ---- rows out ---- */

#define GATHER_CELLS(type, made_of)                                               \
    for (size_t i = 0; i < n_rows; i++) {                                         \
        type item = ((const type *)lane->base)[row != NULL ? row[i] : first + i]; \
        x[i * s->n_columns + c] = lane->decimal ? (made_of) : (double)item;       \
    }

void table_store_gather(const struct table_store *s, const size_t *row, size_t first, size_t n_rows, double *x)
{
    for (size_t c = 0; c < s->n_columns; c++) {
        const struct lane *lane = &s->lane[c];
        switch (lane->width) {
        case WIDTH_I8: GATHER_CELLS(int8_t, decimal_value(item, lane->power, lane->minus_zero)); break;
        case WIDTH_I16: GATHER_CELLS(int16_t, decimal_value(item, lane->power, lane->minus_zero)); break;
        case WIDTH_I32: GATHER_CELLS(int32_t, decimal_value(item, lane->power, lane->minus_zero)); break;
        case WIDTH_F32: GATHER_CELLS(float, (double)item); break;
        case WIDTH_F64: GATHER_CELLS(double, item); break;
        }
    }
}
