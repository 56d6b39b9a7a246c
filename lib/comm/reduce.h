/* The fixed-shape reduction. A step has n_items work items (chunk-major: item = chunk * E + estimator); each leaves one
 * gradient vector. Their sum follows a binary tree over [0, n_items) whose shape depends on n_items alone, so its bits do
 * not depend on the number of ranks. Ranks own contiguous runs of items and slices of the parameters. */
#ifndef TABFT_COMM_REDUCE_H
#define TABFT_COMM_REDUCE_H

#include <stddef.h>

#include "base/failure.h"

struct comm;
struct threads;
struct reduce;

/* Contiguous shares: the first n % size ranks get one more. */
void reduce_share(size_t n, int size, int rank, size_t *begin, size_t *end);

/* Scratch for sums of `n_parameters` floats over `n_items` items; parameter slices are cut at multiples of 64 elements. */
int reduce_open(struct reduce **out, struct comm *c, struct threads *pool, size_t n_items, size_t n_parameters,
                struct tabft_failure *f) TABFT_MUST_CHECK;
void reduce_items(const struct reduce *r, size_t *begin, size_t *end);  /* the items of this rank (may be none) */
void reduce_slice(const struct reduce *r, size_t *begin, size_t *end);  /* the parameters this rank owns (may be none) */
size_t reduce_bytes(size_t n_items, size_t n_parameters, int size, int rank); /* peak bytes it holds, for --plan */

/* Adds item's gradient (float32 [n_parameters]) into this rank's partial trees; items come in ascending order, each once. */
int reduce_add(struct reduce *r, size_t item, const float *gradient, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Ships the roots and finishes the tree for the own slice: slice_out [end - begin] of reduce_slice = sum over all items. */
int reduce_finish(struct reduce *r, float *slice_out, struct tabft_failure *f) TABFT_MUST_CHECK;
/* All ranks' slices of `values` [n_parameters] are brought to everyone (each rank has filled its own slice in place). */
int reduce_gather(struct reduce *r, float *values, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Sum over all parameters of value^2, from fixed blocks in a fixed order whatever the slices: the squared gradient norm. */
int reduce_square_sum(struct reduce *r, const float *slice, double *sum, struct tabft_failure *f) TABFT_MUST_CHECK;
/* One double per item (losses): every rank fills its own items, all get all [n_items]. */
int reduce_item_values(struct reduce *r, double *values, struct tabft_failure *f) TABFT_MUST_CHECK;
void reduce_close(struct reduce *r);

#endif
