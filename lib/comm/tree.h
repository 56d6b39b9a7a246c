/* The one tree shape of all sums that must not depend on ranks: over the leaves [0, n), a node [b, e) of more than
 * one leaf splits after the largest power of two below e - b. So nodes are aligned blocks of 2^k leaves and the
 * cut-off ones at the right edge; a contiguous run of leaves is covered by at most 2*log2(n) of them, by one if the
 * run is such a block. */
#ifndef TABFT_COMM_TREE_H
#define TABFT_COMM_TREE_H

#include <stdbool.h>
#include <stddef.h>

enum { TREE_COVER_MAX = 128 }; /* nodes that cover a run, for any n of 64 bits */

struct tree_node {
    size_t begin, end;
};

/* Where [begin, end), of at least two leaves, splits. */
size_t tree_split(size_t begin, size_t end);

/* Whether [begin, end) is a node of the tree over [0, n). */
bool tree_is_node(size_t n, size_t begin, size_t end);

/* The largest nodes that lie in [begin, end) of the tree over [0, n), left to right, into cover; returns how many. */
size_t tree_cover(size_t n, size_t begin, size_t end, struct tree_node cover[TREE_COVER_MAX]);

/* The stack that summing leaves begin..end-1 in order needs: a leaf that completes its parent is added to its
 * sibling in place, any other takes a slot; then complete siblings on top are merged. */
size_t tree_stack_depth(size_t n, size_t begin, size_t end);

#endif
