/* Some columns and rows of a packed table in memory, each column in the width that its numbers need: what training
 * gathers chunks from. The memory is the caller's and may be shared by processes, which fill it together. A 4,000,000 x
 * 200 table of float32 is 3.2 GB here, where table_open takes 6.4. */
#ifndef TABFT_TABLE_STORE_H
#define TABFT_TABLE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"

struct table;
struct threads;

/* What a store holds. */
struct table_part {
    const struct table *table; /* by table_open_parts or table_open_cells; outlives the store */
    const size_t *column;      /* [n_columns] places in table->column; NULL: all in their order */
    size_t n_columns;
    size_t n_rows; /* rows it has room for; all of the table's in their order if `whole` */
    bool whole;
};

/* Bytes that the cells take; SIZE_MAX for more than there can be. It follows from the schema and the statistics. */
size_t table_part_bytes(const struct table_part *part);

struct table_store;
/* A store in `memory` (table_part_bytes, aligned to 64, outlives the store). Its layout follows from `part` alone, so
 * every process that maps the memory opens it alike. *part is copied, with the columns. */
int table_store_open(struct table_store **out, const struct table_part *part, void *memory,
                     struct tabft_failure *f) TABFT_MUST_CHECK;
void table_store_close(struct table_store *s); /* NULL is fine */

/* Reads and inflates, on `pool` (no more threads than the table was opened for), and checks each page. Errors as of
 * table_open. A whole store: this caller's share of the pages; when all n_shares are filled (by any processes),
 * table_store_check holds what was read against the file's statistics. */
int table_store_fill(struct table_store *s, struct threads *pool, size_t share, size_t n_shares,
                     struct tabft_failure *f) TABFT_MUST_CHECK;
int table_store_check(const struct table_store *s, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Any store that is not whole: row[i] of the table becomes its row i, i < n_rows <= the room. Pages without such rows
 * are not read; of the others one a thread is in memory at a time. Once *stop (or NULL) is true no further page is
 * read, and the rows are worth nothing. */
int table_store_pick(struct table_store *s, struct threads *pool, const size_t *row, size_t n_rows,
                     const atomic_bool *stop, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Bytes that picking takes beside the store: the rows in the order of the file, and a page a thread. */
size_t table_pick_bytes(const struct table *t, size_t n_rows, int n_threads);

/* x [n_rows][n_columns]: the store's rows `row` (NULL: from `first` on) as table_column.value would have them. Thread
 * safe. */
void table_store_gather(const struct table_store *s, const size_t *row, size_t first, size_t n_rows, double *x);

/* The same straight from the file: rows `row` of the table, picked as above. */
int table_gather(const struct table *t, const size_t *column, size_t n_columns, const size_t *row, size_t n_rows,
                 struct threads *pool, double *x, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
