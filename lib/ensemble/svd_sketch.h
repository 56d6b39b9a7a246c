/* Leading singular vectors from a random sketch, where torch.svd_lowrank takes one: it is not their exact directions that
 * are wanted but those that it finds from its random numbers. */
#ifndef TABFT_ENSEMBLE_SVD_SKETCH_H
#define TABFT_ENSEMBLE_SVD_SKETCH_H

#include "base/threads.h"
#include "ensemble/ensemble_internal.h"

/* How many random directions are drawn for k singular vectors of an n x m table; 0: none, the table is decomposed. */
size_t svd_sketch_size(size_t n, size_t m, size_t k);

/* vectors[k][m], the largest first, from the table's symmetric Gram matrix sum[m][m] of its shorter side, `size` random
 * directions and two rounds of powers. `by_rows`: that side is the rows, and a vector holds the weights of the rows that
 * add up to it. Not of length 1; zeros where the table has no more directions. */
int svd_sketch(const long double *sum, size_t m, size_t size, size_t k, bool by_rows, uint64_t seed,
               struct threads *pool, double *vectors, struct tabft_failure *f) TABFT_MUST_CHECK;

/* LAPACK's eigenvalues, ascending, and vectors of a symmetric matrix, in place: vector c is a[c][n]. */
int svd_eigen(double *a, size_t n, double *values, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
