/* Tables as training and prediction see them: typed columns with names, a target, a label list; loaded from packed
 * tables and written to them. What tabft-prep does with them (text in and out, merge, split) is in prep.h. tbf(5) has
 * the bytes. */
#ifndef TABFT_TABLE_TABLE_H
#define TABFT_TABLE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct threads;

enum table_kind { TABLE_FLOAT = 1, TABLE_INTEGER = 2, TABLE_TEXT = 3, TABLE_BOOLEAN = 4 };
enum table_task { TABLE_NO_TASK = 0, TABLE_CLASSIFICATION = 1, TABLE_REGRESSION = 2 };

enum {
    TABLE_GROUP_ROWS = 65536,   /* rows of a group: a column's page holds at most so many cells */
    TABLE_COLUMNS_MAX = 100000, /* columns of a table */
    TABLE_LABELS_MAX = 4096,    /* labels of a classification target */
    TABLE_NAME_MAX = 65535      /* bytes of a column's name */
};

/* A column in memory. Missing cells are NaN in `value`. Text and labels are codes into `dictionary`, whose order is the
 * file's (pack sorts texts by code point); codes of two files are not comparable, texts are. */
struct table_column {
    const char *name; /* UTF-8, 1 to TABLE_NAME_MAX bytes */
    enum table_kind kind;
    const double
        *value; /* [n_rows]: the number; for text its code 0..n_dictionary-1, for booleans 0 or 1; NaN where
                   missing. Integers beyond 2^53 are rounded here (pack warns of them); the file has them exact */
    /* Known without values too: from the file's statistics. Smallest and largest finite value, of numbers and booleans
     * that are no classification target; has_range is false where there is none. */
    size_t n_missing, n_infinite;
    bool has_range;
    double min, max;
    size_t n_dictionary;
    const char *const
        *dictionary; /* [n_dictionary] UTF-8 without NUL; NULL from table_open_schema but for the target */
};

/* A packed table, loaded. Immutable; thread safe. */
struct table {
    size_t n_rows, n_columns;          /* columns without the target */
    const struct table_column *column; /* [n_columns] in file order */
    bool has_target;
    enum table_task task;       /* TABLE_NO_TASK exactly where there is no target */
    struct table_column target; /* classification: `value` are codes into the label list, which is its dictionary,
                                   whatever its kind (the kind of the cells: integer labels are TABLE_INTEGER) */
    size_t n_labels;
    const char *const *label; /* label texts in order: numbers by value, texts by code point. A number is written
                                 the shortest way (1 for 1.0), so that labels of two files compare as texts */
    const char *digest;       /* 64 hex digits: names the file's content (provenance in runs and reports) */
    const char *path;
};

/* Loads and checks a .tbf table (inflates in parallel; pool NULL is fine). Memory: 8 bytes a cell and the dictionaries.
 * Errors: TABFT_INPUT for anything not as tbf(5) says, TABFT_SYSTEM for memory. */
int table_open(struct table **out, const char *path, struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;
void table_close(struct table *t); /* NULL is fine */

/* Loads only shape, names, kinds, labels, counts of missing cells and digest: what --plan and checks need. value is
 * NULL. */
int table_open_schema(struct table **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;

/* The same, for reading cells where they are asked for (store.h) with up to n_threads threads at a time. */
int table_open_cells(struct table **out, const char *path, int n_threads, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Its dictionaries and the target's cells as well: `value` of all other columns is NULL. For the threads of `pool`. */
int table_open_parts(struct table **out, const char *path, struct threads *pool,
                     struct tabft_failure *f) TABFT_MUST_CHECK;
/* Bytes that table_open_parts takes and keeps: the target, the dictionaries (of a schema alone without their texts), the
 * list of pages; and what its readers keep once they have read, a page of the file a thread. */
size_t table_parts_bytes(const struct table *t, int n_threads);
/* All cells of one column of such a table, as `value` [n_rows] would have them. One call on a table at a time. */
int table_read_column(const struct table *t, size_t column, struct threads *pool, double *value,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
/* Fails (TABFT_INPUT) if the file changed since it was opened: call it after the last read. */
int table_unchanged(const struct table *t, struct tabft_failure *f) TABFT_MUST_CHECK;

/* What made the table: its provenance record, compact JSON text that the caller frees. Errors: TABFT_SYSTEM. */
int table_provenance(const struct table *t, char **json, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Columns of `test` in the order of `train`, by name: map[i] = index in test of train's column i. Extra columns in test
 * are ignored, a missing one is refused (TABFT_INPUT) by name, as is a text column where train has numbers or booleans,
 * and the other way round. A column of which train has no value at all matches any kind: nothing was learnt from it.
 * map is [train->n_columns], the caller's. */
int table_match(const struct table *train, const struct table *test, size_t *map,
                struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- writing a table that is in memory (predictions, generated tables) ---- */
struct table_output {
    size_t n_rows, n_columns;
    const struct table_column *column; /* [n_columns]; n_missing is not read. FLOAT: stored as float32 where every value
                                          is one exactly, else as float64. INTEGER, BOOLEAN: whole values within 2^53,
                                          or NaN. TEXT: codes into `dictionary` */
    size_t target;                     /* its index in column, or SIZE_MAX */
    enum table_task task;   /* with a target: classification (value are codes into column[target].dictionary, which
                               becomes the label list, for every kind) or regression */
    const char *provenance; /* JSON object as text: what made it (options, version, digests of inputs) */
};
/* Writes it to `path` ("-": stdout), whole or not at all; refuses an existing file without `force`. The same input
 * gives the same bytes, for every pool. Errors: TABFT_USE for what the struct must not hold, else those of tbf_writer.
 */
int table_write(const char *path, bool force, const struct table_output *output, struct threads *pool,
                struct tabft_failure *f) TABFT_MUST_CHECK;

/* The same with values that come as blocks of rows: column[].value is NULL in `output`, which need not outlive the
 * call. FLOAT is stored as float64, INTEGER as int64, and `provenance` must name the values (the file's identity is
 * made of it and the names). At most 65,536 rows are in memory. */
struct table_writer;
int table_writer_open(struct table_writer **out, const char *path, bool force, const struct table_output *output,
                      struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;
/* value[c][n_rows]: the next rows' cells of column c. Errors: TABFT_USE for a value that the column cannot have, and
 * for more rows than were announced. */
int table_writer_put(struct table_writer *w, const double *const *value, size_t n_rows,
                     struct tabft_failure *f) TABFT_MUST_CHECK;
/* Bytes that such a writer takes on a pool of n_threads when its row group is full. */
size_t table_writer_bytes(size_t n_rows, size_t n_columns, int n_threads);
/* Publishes the file; frees w in every case. */
int table_writer_close(struct table_writer *w, struct tabft_failure *f) TABFT_MUST_CHECK;
void table_writer_abandon(struct table_writer *w); /* NULL is fine */

#endif
