/* Tables as training and prediction see them: typed columns with names, a target, a label list. Readers of CSV, TSV and
 * NPY and the writer of packed tables are in this room too (text_reader.h, pack.h, ...); this header is what others use. */
#ifndef TABFT_TABLE_TABLE_H
#define TABFT_TABLE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct threads;

enum table_kind { TABLE_FLOAT = 1, TABLE_INTEGER = 2, TABLE_TEXT = 3, TABLE_BOOLEAN = 4 };
enum table_task { TABLE_NO_TASK = 0, TABLE_CLASSIFICATION = 1, TABLE_REGRESSION = 2 };

/* A column in memory. Missing cells are NaN in `value`. Text and labels are codes into `dictionary` (ordered: see tbf(5)). */
struct table_column {
    const char *name;        /* UTF-8, at most 65,535 bytes */
    enum table_kind kind;
    const double *value;     /* [n_rows]: the number; for text its code 0..n_dictionary-1; NaN where missing.
                                Integers beyond 2^53 lose bits here (pack warns); table_cell_* keep them exact */
    size_t n_missing;
    size_t n_dictionary;
    const char *const *dictionary;
};

/* A packed table, loaded. Immutable; thread safe. */
struct table {
    size_t n_rows, n_columns;          /* columns without the target */
    const struct table_column *column; /* [n_columns] in file order */
    bool has_target;
    enum table_task task;
    struct table_column target;        /* classification: codes into the label list */
    size_t n_labels;
    const char *const *label;          /* label texts in order: numbers by value, texts by code point */
    const char *digest;                /* 64 hex digits: names the file's content (provenance in runs and reports) */
    const char *path;
};

/* Loads and checks a .tbf table (inflates in parallel; pool NULL is fine). Errors: TABFT_INPUT for anything not as tbf(5) says. */
int table_open(struct table **out, const char *path, struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;
void table_close(struct table *t); /* NULL is fine */

/* Loads only shape, names, kinds, labels and digest (no values): what --plan and checks need. column[i].value is NULL. */
int table_open_schema(struct table **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Columns of `test` in the order of `train`, by name: map[i] = index in test of train's column i. Extra columns in test are
 * ignored, a missing one is refused (TABFT_INPUT) by name, as is a text column where train has numbers. */
int table_match(const struct table *train, const struct table *test, size_t *map, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
