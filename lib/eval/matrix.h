/* Tables as the matrices that the ensemble takes. */
#ifndef TABFT_EVAL_MATRIX_H
#define TABFT_EVAL_MATRIX_H

#include "base/failure.h"
#include "ensemble/ensemble.h"

struct table;
struct threads;

/* The columns of a training table that tell rows apart, and the same of another table by name. A text cell becomes the
 * rank of its text among those of the training table's column, ENSEMBLE_UNSEEN where it is none. */
struct eval_columns {
    const struct table *train, *test; /* outlive it */
    enum ensemble_use *use;           /* [train->n_columns] */
    size_t n;
    size_t *train_column, *test_column; /* [n] places in the tables */
    bool *is_text;                      /* [n] */
    const char **name;                  /* [n] the training table's */
    double *missing_rank;               /* [n] */
    double **train_rank, **test_rank;   /* [n] by code; NULL for numbers */
};

/* Matches the columns. Both tables may come from table_open_parts, for the threads of `pool`. Errors: TABFT_INPUT where
 * columns do not match or none is left, TABFT_SYSTEM. */
int eval_columns_open(struct eval_columns *out, const struct table *train, const struct table *test,
                      struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;
void eval_columns_clear(struct eval_columns *c);

/* Bytes of the lists of ranks. */
size_t eval_columns_bytes(const struct eval_columns *c);

/* x [train->n_rows][n]: all rows of the training table, read from its file column by column. */
int eval_columns_context(const struct eval_columns *c, struct threads *pool, double *x,
                         struct tabft_failure *f) TABFT_MUST_CHECK;
/* x [n_rows][n]: rows `row` of the other table, read from its file. */
int eval_columns_rows(const struct eval_columns *c, const size_t *row, size_t n_rows, struct threads *pool, double *x,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
/* Such a matrix for the ensemble; points into `c`. */
struct ensemble_columns eval_columns_matrix(const struct eval_columns *c, const double *x, size_t n_rows);

#endif
