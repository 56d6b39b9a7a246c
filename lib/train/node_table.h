/* The cells of a run's tables in memory, once a node: the node's ranks inflate a share each into memory that they all
 * map. A rank that is alone on its node keeps them in memory of its own. */
#ifndef TABFT_TRAIN_NODE_TABLE_H
#define TABFT_TRAIN_NODE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct trainer;
struct train_data;
struct node_table;

/* The ranks of this node. */
struct neighbours {
    int n, place; /* how many, and which of them this one is */
    int leader;   /* rank of the first */
};
/* Collective. */
int neighbours_find(struct trainer *t, struct neighbours *out, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Bytes of both tables' columns that take part; SIZE_MAX: more than there can be. */
size_t node_table_bytes(const struct train_data *d);

/* Takes the memory and fills it; from then on t->data has its cells. Collective: what one rank meets fails all.
 * Refused (TABFT_SYSTEM) before anything is taken where the node (machine or cgroup) or /dev/shm has too little left. */
int node_table_open(struct trainer *t, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Peak resident bytes of this rank so far: its own, and its share of what the node's ranks share. */
uint64_t trainer_memory_peak(const struct trainer *t);
void node_table_close(struct node_table *n);          /* NULL is fine */

#endif
