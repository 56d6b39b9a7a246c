/* What the files of the reduction share: the sizes that follow from a step's shape, and how ranks divide it. */
#ifndef TABFT_COMM_REDUCE_INTERNAL_H
#define TABFT_COMM_REDUCE_INTERNAL_H

#include <stddef.h>

#include "comm/reduce.h"
#include "comm/tree.h"

/* One addition of the tree above the ranks' roots: row `to` += row `from`. */
struct reduce_merge {
    size_t to, from;
};

/* Every size that follows from (n_items, n_parameters, size, rank): what is allocated and what --plan prints. */
struct reduce_layout {
    size_t item_begin, item_end;
    size_t slice_begin, slice_end;
    size_t n_slots, stride;        /* partial sums: n_slots vectors of `stride` floats */
    size_t n_own_roots, n_roots;   /* of this rank, of all ranks */
    size_t piece, n_pieces;        /* floats of each slice that travel at once, and how often */
    size_t send_floats, receive_floats;
    size_t n_blocks;               /* REDUCE_BLOCKs in the own slice */
};

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Slices: shares of whole blocks, the last one cut at the end. */
void reduce_slice_of(size_t n_parameters, int size, int rank, size_t *begin, size_t *end);
/* The roots of a rank: the largest nodes in its run of items. Returns how many. */
size_t reduce_roots_of(size_t n_items, int size, int rank, struct tree_node cover[TREE_COVER_MAX]);
void reduce_layout_of(size_t n_items, size_t n_parameters, int size, int rank, struct reduce_layout *l);
size_t reduce_struct_bytes(void); /* of struct reduce */

#endif
