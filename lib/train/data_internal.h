/* What the files of data.h share. Not for others. */
#ifndef TABFT_TRAIN_DATA_INTERNAL_H
#define TABFT_TRAIN_DATA_INTERNAL_H

#ifndef TABFT_IN_TRAIN_DATA
#error "data_internal.h belongs to lib/train/data*.c"
#endif

#include "table/table.h"
#include "train/ahead.h"
#include "train/data.h"

/* ---- data_check.c: what a table must be. All refuse with TABFT_INPUT or, where options are at odds with it,
 * TABFT_USE.
 */
int data_check_task(const struct table *t, const struct train_options *o, struct tabft_failure *f) TABFT_MUST_CHECK;
/* n_classes: with rows; only: the label, where it is one. */
int data_check_records(const struct table *t, const struct train_options *o, size_t n_classes, const char *only,
                       struct tabft_failure *f) TABFT_MUST_CHECK;
/* No gaps, no infinities. */
int data_check_target(const struct table *t, struct tabft_failure *f) TABFT_MUST_CHECK;
int data_check_varied(const struct table *t, struct tabft_failure *f) TABFT_MUST_CHECK; /* a target of regression */

/* ---- data_cells.c: columns and rows, wherever the cells are ---- */
int data_check_finite(const struct table *t, size_t column, struct threads *pool,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
/* All but train_row. */
struct ahead_rules data_ahead_rules(const struct table *t, const size_t *column, size_t n_columns,
                                    const struct train_options *o, const struct train_sizes *sizes);

/* ---- data_rows.c: labels or targets, and which rows train ---- */
/* class_of [t->n_labels]: the class of a label with rows, -1 for one without. */
int data_find_classes(struct train_data *d, int32_t *class_of, struct tabft_failure *f) TABFT_MUST_CHECK;
int data_take_rows(struct train_data *d, const struct train_options *o, const int32_t *class_of,
                   struct tabft_failure *f) TABFT_MUST_CHECK;
/* How many of n_rows are held out by --validation-split. */
size_t data_held_rows(const struct train_options *o, size_t n_rows, size_t n_classes);

#endif
