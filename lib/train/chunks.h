/* The rows of an epoch: shuffled, cut into chunks, each chunk cut into context and query, and the order in which the
 * steps take the chunks. Follows TabPFN's fine-tuning row for row: everything comes from the seed and the epoch,
 * nothing from ranks, threads or the number of chunks a step. */
#ifndef TABFT_TRAIN_CHUNKS_H
#define TABFT_TRAIN_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

enum { CHUNKS_REMAINDER_MIN = 2000 }; /* what is left after full chunks is a chunk of its own only from here on */

struct chunks_rules {
    size_t n_rows;         /* training rows N */
    size_t chunk_rows;     /* the largest chunk asked for; capped at N */
    double query_fraction; /* share of a chunk's rows that are queries, (0, 1) */
    size_t query_min;      /* at least so many query rows: the number of labels present, 1 for regression */
    uint32_t seed;
    const int32_t *label; /* [n_rows] codes 0..n_labels-1: chunks and splits keep their shares; NULL for regression */
    size_t n_labels;
};

struct chunk {
    size_t id; /* its place in the cutting order, from 0: what logs call it */
    size_t n_context, n_query;
    const size_t *context; /* [n_context] training rows, in the order the network gets them */
    const size_t *query;   /* [n_query] */
};

struct chunks;

/* Cuts the epoch (from 0). Errors: TABFT_INPUT when the rows give no chunk with context and query rows. */
int chunks_open(struct chunks **out, const struct chunks_rules *rules, uint32_t epoch,
                struct tabft_failure *f) TABFT_MUST_CHECK;
size_t chunks_count(const struct chunks *c);
/* The chunk taken at `position` of the epoch, 0 .. count - 1. */
const struct chunk *chunks_at(const struct chunks *c, size_t position);
void chunks_close(struct chunks *c); /* NULL is fine */

/* Before data is there (--plan): how many chunks an epoch has and the sizes of the largest. Exact for regression, and
 * for classification while every label has at least as many rows as there are chunks. `label` is not read. */
struct chunks_sizes {
    size_t n_chunks, n_context, n_query;
};
int chunks_sizes(const struct chunks_rules *rules, struct chunks_sizes *sizes,
                 struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
