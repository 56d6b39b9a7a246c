/* --stream: the rows of the chunks to come, read from disk by a thread of its own while the step before computes. Two
 * windows of bounded size: one holds rows that are being trained on, the other is filled. A chunk's rows lie anywhere
 * in the table, so a window takes as many chunks as it has room for in one pass over the file, and each page of the
 * file that has such rows is inflated once a window. */
#ifndef TABFT_TRAIN_AHEAD_H
#define TABFT_TRAIN_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct chunk;
struct table;

/* What is read. */
struct ahead_rules {
    const struct table *table; /* opened by table_open_parts; read through a handle of its own */
    const size_t *column;      /* [n_columns] places in table->column, borrowed */
    size_t n_columns;
    const size_t *train_row; /* the table's row of each training row, borrowed */
    size_t chunk_rows;       /* rows of the largest chunk */
    uint64_t window;         /* bytes of both windows: --window; a window has room for one chunk at least */
    int n_threads;           /* that read */
};

/* Bytes that both windows and their reading take, for chunks of so many rows of `epoch_rows`; SIZE_MAX: too many. */
size_t ahead_bytes(const struct ahead_rules *rules, size_t epoch_rows);

struct ahead;
int ahead_open(struct ahead **out, const struct ahead_rules *rules, size_t epoch_rows,
               struct tabft_failure *f) TABFT_MUST_CHECK;
/* From now on these chunks will be asked for, in this order; some may be left out. The list is copied, the chunks are
 * borrowed until the next call, or ahead_forget. */
int ahead_expect(struct ahead *a, const struct chunk *const *chunk, size_t n, struct tabft_failure *f) TABFT_MUST_CHECK;
void ahead_forget(struct ahead *a); /* waits for the thread; NULL is fine */
/* *found: whether `row` are the context or query rows of a chunk that is to come; then waits for them and gives them as
 * a matrix x [n_rows][n_columns], as they are in the table. Errors: what reading them met. */
int ahead_take(struct ahead *a, const size_t *row, size_t n_rows, double *x, bool *found,
               struct tabft_failure *f) TABFT_MUST_CHECK;
double ahead_waited(const struct ahead *a); /* seconds that ahead_take has waited in all */
void ahead_close(struct ahead *a);          /* NULL is fine */

#endif
