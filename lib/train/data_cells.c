/* Where the cells come from: memory that holds whole tables, or the disk. */
#define TABFT_IN_TRAIN_DATA
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/store.h"
#include "train/ahead.h"
#include "train/data_internal.h"

enum { GATHER_ROWS = 1024 }; /* rows that are looked up at a time */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- columns ---- */

int data_check_finite(const struct table *t, size_t column, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    double *value = NULL;
    size_t first = 0;
    if (t->column[column].n_infinite == 0) return 0;
    TRY(memory_new(&value, t->n_rows, sizeof *value, "a column", f));
    TRY(table_read_column(t, column, pool, value, f));
    while (first + 1 < t->n_rows && !isinf(value[first])) first++;
    FAIL(f, TABFT_INPUT,
         "%s: column \"%s\" is infinite in record %zu; this network takes finite numbers or gaps: mark such cells as "
         "missing",
         t->path, t->column[column].name, first + 1);
fail:
    free(value);
    return error;
}

/* ---- streams ---- */

struct ahead_rules data_ahead_rules(const struct table *t, const size_t *column, size_t n_columns,
                                    const struct train_options *o, const struct train_sizes *sizes)
{
    return (struct ahead_rules){.table = t,
                                .column = column,
                                .n_columns = n_columns,
                                .chunk_rows = sizes->chunks.n_context + sizes->chunks.n_query,
                                .window = o->window,
                                .n_threads = train_options_threads(o)};
}

int train_data_stream(struct train_data *d, const struct train_options *o, const struct train_sizes *sizes,
                      struct tabft_failure *f)
{
    struct ahead_rules rules = data_ahead_rules(d->table, d->column, d->n_columns, o, sizes);
    rules.train_row = d->train_row;
    return ahead_open(&d->ahead, &rules, d->n_train, f);
}

int train_data_expect(struct train_data *d, const struct chunk *const *chunk, size_t n, struct tabft_failure *f)
{
    return d->ahead == NULL ? 0 : ahead_expect(d->ahead, chunk, n, f);
}

void train_data_forget(struct train_data *d) { ahead_forget(d->ahead); }

/* ---- rows ---- */

/* Where rows of one of the tables are, and what their texts become. */
struct source {
    const struct table *table;
    const struct table_store *cells;
    const size_t *column, *place;
    double *const *rank;
};

static struct source source_of(const struct train_data *d, bool from_valid)
{
    const size_t *place = from_valid ? d->valid_row : d->train_row;
    if (from_valid && d->valid != NULL)
        return (struct source){d->valid, d->valid_cells, d->valid_column, place, d->valid_rank};
    return (struct source){d->table, d->cells, d->column, place, d->rank};
}

static void gather_from_memory(const struct source *s, size_t n_columns, const size_t *row, size_t n_rows, double *x)
{
    size_t at[GATHER_ROWS];
    for (size_t begin = 0; begin < n_rows; begin += GATHER_ROWS) {
        size_t n = n_rows - begin < GATHER_ROWS ? n_rows - begin : GATHER_ROWS;
        for (size_t i = 0; i < n; i++) at[i] = s->place[row[begin + i]];
        table_store_gather(s->cells, at, 0, n, x + begin * n_columns);
    }
}

static int gather_from_disk(const struct train_data *d, const struct source *s, const size_t *row, size_t n_rows,
                            double *x, struct tabft_failure *f)
{
    int error = 0;
    size_t *at = NULL;
    TRY(memory_new(&at, n_rows, sizeof *at, "the rows of a table", f));
    for (size_t i = 0; i < n_rows; i++) at[i] = s->place[row[i]];
    TRY(table_gather(s->table, s->column, d->n_columns, at, n_rows, d->pool, x, f));
fail:
    free(at);
    return error;
}

static void rank_cells(const struct train_data *d, const struct source *s, size_t n_rows, double *x)
{
    for (size_t c = 0; c < d->n_columns; c++) {
        const double *rank = s->rank[c];
        for (size_t i = 0; rank != NULL && i < n_rows; i++) {
            double *cell = &x[i * d->n_columns + c];
            if (!isnan(*cell)) *cell = rank[(size_t)*cell];
        }
    }
}

int train_data_gather(struct train_data *d, bool from_valid, const size_t *row, size_t n_rows, double *x,
                      struct tabft_failure *f)
{
    int error = 0;
    bool found = false;
    double start = now();
    const struct source s = source_of(d, from_valid);
    if (s.cells != NULL) {
        gather_from_memory(&s, d->n_columns, row, n_rows, x);
    } else {
        if (d->ahead != NULL && !from_valid) TRY(ahead_take(d->ahead, row, n_rows, x, &found, f));
        if (!found) TRY(gather_from_disk(d, &s, row, n_rows, x, f));
    }
    rank_cells(d, &s, n_rows, x);
fail:
    d->gather_seconds += now() - start;
    return error;
}

double train_data_seconds(const struct train_data *d) { return d->gather_seconds; }
