/* The fixed-shape reduction. A step has n_items work items (chunk-major: item = chunk * E + estimator); each leaves
 * one gradient vector of P floats. Their sum follows the binary tree of tree.h over [0, n_items), whose shape
 * depends on n_items alone, each node being left + right in float32. So its bits do not depend on the number of
 * ranks or threads. Ranks own contiguous runs of items and slices of the parameters; both may be empty, then a rank
 * only takes part in the collectives. Everything but reduce_share, reduce_bytes, reduce_items, reduce_slice,
 * reduce_place and reduce_placed is a collective. Gradients, slices and weights lie in the memory of a struct vectors, the host's or a GPU's;
 * what is written to them is there for operations that are called later, and for others after `finish`. Losses and norms
 * are the host's. */
#ifndef TABFT_COMM_REDUCE_H
#define TABFT_COMM_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"
#include "base/vectors.h"

struct comm;
struct reduce;

/* Slices are cut at multiples of this many parameters, and squared norms are summed over blocks of it. */
enum { REDUCE_BLOCK = VECTORS_BLOCK };

/* Contiguous shares: the first n % size ranks get one more. */
void reduce_share(size_t n, int size, int rank, size_t *begin, size_t *end);

/* Scratch for sums of `n_parameters` floats over `n_items` items, both at least 1. `c` NULL: a single process. Both it
 * and `v` are borrowed until reduce_close. Where v's memory is not the host's, the ranks' engine must take it
 * (comm_takes_device). Errors: TABFT_SYSTEM (memory), TABFT_USE (no items or parameters). */
int reduce_open(struct reduce **out, struct comm *c, const struct vectors *v, size_t n_items, size_t n_parameters,
                struct tabft_failure *f) TABFT_MUST_CHECK;
void reduce_items(const struct reduce *r, size_t *begin, size_t *end); /* the items of this rank (may be none) */
void reduce_slice(const struct reduce *r, size_t *begin, size_t *end); /* the parameters it owns (may be none) */
/* The bytes that reduce_open takes on that rank, all of them, for --plan; SIZE_MAX when they do not fit in size_t. (For
 * other memory than the host's, up to 8 bytes a REDUCE_BLOCK of them are taken on the host too.)
 * The vectors: log2 of the rank's items, rounded up, and at least 1 (a few more where its run is no block of the
 * tree). */
size_t reduce_bytes(size_t n_items, size_t n_parameters, int size, int rank);

/* Where an item's gradient (float32 [n_parameters]) goes: to *place, one of this rank's partial sums, and if *add it is
 * added to what is there, number by number, when it is whole; so it needs no vector of its own. Items come in ascending
 * order, each once: TABFT_SYSTEM when they do not. */
int reduce_place(struct reduce *r, size_t item, float **place, bool *add, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The gradient of the item last asked for is there. */
void reduce_placed(struct reduce *r);
/* Ships the partial sums and finishes the tree for the own slice: *slice [end - begin] of reduce_slice = sum over all
 * items (not divided by anything). It lies in r's memory until the next step's first item comes. */
int reduce_finish(struct reduce *r, float **slice, struct tabft_failure *f) TABFT_MUST_CHECK;
/* All ranks' slices of `values` [n_parameters] are brought to everyone (each rank has filled its own slice in
 * place). */
int reduce_gather(struct reduce *r, float *values, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Sum over all parameters of value^2 in float64, the squared gradient norm, the same bits on every rank whatever
 * the slices: in a block eight interleaved sums, then those pairwise; blocks along the tree of tree.h. `slice` as
 * above. */
int reduce_square_sum(struct reduce *r, const float *slice, double *sum, struct tabft_failure *f) TABFT_MUST_CHECK;
/* One double per item (losses): every rank has filled its own items in place, all get all [n_items]. */
int reduce_item_values(struct reduce *r, double *values, struct tabft_failure *f) TABFT_MUST_CHECK;
void reduce_close(struct reduce *r); /* NULL is fine */

#endif
