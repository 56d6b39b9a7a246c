/* Tables as the matrices that the ensemble takes. */
#ifndef TABFT_EVAL_MATRIX_H
#define TABFT_EVAL_MATRIX_H

#include "base/failure.h"
#include "ensemble/ensemble.h"

struct table;

/* Owns what `columns` points to. */
struct eval_matrix {
    struct ensemble_columns columns;
    double *x, *missing_rank;
    bool *is_text;
};

/* The columns of `train` that tell rows apart, and the same of `test` by name. A text cell becomes the rank of its text
 * among those of train's column, ENSEMBLE_UNSEEN where it is none. Errors: TABFT_INPUT where columns do not match or
 * none is left, TABFT_SYSTEM. */
int eval_matrices(const struct table *train, const struct table *test, struct eval_matrix *context,
                  struct eval_matrix *query, struct tabft_failure *f) TABFT_MUST_CHECK;
void eval_matrix_clear(struct eval_matrix *m);

#endif
