/* The tables of a run as training sees them: which columns and labels take part, which rows train and which are held
 * out, and rows as the dense matrices that the ensemble takes. What cannot be trained on is refused here, by name. */
#ifndef TABFT_TRAIN_DATA_H
#define TABFT_TRAIN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "ensemble/ensemble.h"
#include "train/chunks.h"
#include "train/options.h"

struct ahead;
struct chunk;
struct table;
struct table_store;
struct threads;
struct train_sizes;

enum { TRAIN_VALIDATION_MAX = 50000 }; /* rows held out at most */

struct train_data {
    struct table *table, *valid; /* without cells but the target's; valid: of --valid, else NULL */
    struct table_store *cells, *valid_cells; /* [table->n_rows][n_columns], [valid->n_rows][n_columns] in memory, or */
    struct ahead *ahead;                     /* --stream: training rows read from disk in time */
    struct threads *pool;                    /* borrowed: reads what is not read ahead */
    size_t n_columns;            /* columns that take part */
    size_t *column;              /* [n_columns] their places in `table` */
    size_t *valid_column;        /* [n_columns] the same columns' places in `valid` */
    enum ensemble_use *use;      /* [table->n_columns] why others do not */
    bool *is_text;               /* [n_columns] */
    const char **name;           /* [n_columns] */
    double *missing_rank;        /* [n_columns] of text: see ensemble_columns */
    double **rank, **valid_rank; /* [n_columns] of text: [n_dictionary] ranks of the tables' codes; NULL for numbers */
    bool is_regression;          /* then there are targets, else classes and labels */
    size_t n_classes;            /* labels with rows in `table`, in the order of its label list */
    const char **label;          /* [n_classes], texts of the table's */
    size_t n_train, n_valid;     /* rows that train; rows that validate (0: no validation) */
    size_t *train_row;           /* [n_train] rows of `table`, in the order of the split */
    int32_t *train_label;        /* [n_train] class codes */
    double *train_target;        /* [n_train] as in the table */
    size_t *valid_row;           /* [n_valid] rows of `valid`, else of `table` */
    int32_t *valid_label;        /* [n_valid] */
    double *valid_target;        /* [n_valid] */
    double gather_seconds;
};

/* Opens and checks all but the cells of columns (node_table_open, train_data_stream). Errors: TABFT_INPUT for no or
 * too few records, one class or target value, a target with gaps, a class that the validation rows lack
 * where the metric needs it; TABFT_USE for options of the other task; what table_open says. */
int train_data_open(struct train_data *d, const struct train_options *o, struct threads *pool,
                    struct tabft_failure *f) TABFT_MUST_CHECK;
void train_data_clear(struct train_data *d);
/* For a network that takes no infinities. Errors: TABFT_INPUT with column and record. */
int train_data_check_finite(const struct train_data *d, struct tabft_failure *f) TABFT_MUST_CHECK;
/* --stream: from now on cells come from disk, those of expected chunks (train_data_expect) ahead of their time. */
int train_data_stream(struct train_data *d, const struct train_options *o, const struct train_sizes *sizes,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
/* The chunks that this rank is going to gather, in order: [n], copied; the chunks are borrowed until they are forgotten
 * or others expected. Nothing to do where cells are in memory. */
int train_data_expect(struct train_data *d, const struct chunk *const *chunk, size_t n,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
void train_data_forget(struct train_data *d);

/* The training or validation rows `row` [n_rows] (places among d->train_row or d->valid_row) as a matrix x
 * [n_rows][n_columns]. Texts become their ranks. Errors: of reading them where they are streamed. */
int train_data_gather(struct train_data *d, bool from_valid, const size_t *row, size_t n_rows, double *x,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
double train_data_seconds(const struct train_data *d); /* that gathering has taken so far */
/* Such a matrix as the ensemble takes it; borrows. */
struct ensemble_columns train_data_columns(const struct train_data *d, const double *x, size_t n_rows);

/* The metric of --metric, or its task's. */
enum train_metric train_data_metric(const struct train_data *d, const struct train_options *o);

/* Sizes that memory follows from, known from the data or, for --plan, from the table's schema alone. */
struct train_sizes {
    bool is_regression;
    size_t n_columns, n_classes; /* n_classes: 0 for regression */
    size_t n_texts;              /* columns of text */
    size_t n_train, n_valid;
    size_t target_bytes; /* the target's cells and the dictionaries of the tables */
    size_t cell_bytes;   /* the other cells: once a node */
    size_t window_bytes; /* --stream: of a rank, instead of those */
    struct chunks_sizes chunks;
};
int train_data_sizes(const struct train_data *d, const struct train_options *o, struct train_sizes *sizes,
                     struct tabft_failure *f) TABFT_MUST_CHECK;
/* Upper bounds: all columns take part, all labels have rows. */
int train_schema_sizes(const struct train_options *o, struct train_sizes *sizes,
                       struct tabft_failure *f) TABFT_MUST_CHECK;

/* The rules of the chunks of this run. */
struct chunks_rules train_data_rules(const struct train_data *d, const struct train_options *o);

#endif
