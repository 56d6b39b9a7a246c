/* The digest of an input file: SHA-256 of the SHA-256s of its blocks of 256 KiB, so that parts of a file, read by
 * different processes, give the digest of the whole. Private to lib/table. */
#ifndef TABFT_TABLE_DIGEST_H
#define TABFT_TABLE_DIGEST_H

#include <nettle/sha2.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

enum { DIGEST_BLOCK = 256 << 10, DIGEST_SIZE = 32 };
#define DIGEST_NAME "sha256_256k" /* in provenance */

struct digest {
    struct sha256_ctx block;
    size_t filled;  /* bytes of the block so far */
    size_t n, room; /* leaves */
    uint8_t *leaf;  /* [room][DIGEST_SIZE] */
};

static inline uint64_t digest_blocks(uint64_t bytes) { return bytes / DIGEST_BLOCK + (bytes % DIGEST_BLOCK > 0); }

/* Empty, with room for so many bytes from the begin of a block on. */
int digest_open(struct digest *d, uint64_t bytes, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Bytes in their order. More than there is room for: makes room first, which may fail. */
int digest_add(struct digest *d, const void *data, size_t n, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The same for threads: the edges, which end the block at hand and begin the next that is not full, and the n whole
 * blocks between. digest_cut makes room; then come digest_edges and, for each i < n, digest_whole, in any order and on
 * any thread, and digest_join when all of them are done. The data stay until then. */
struct digest_pieces {
    const uint8_t *edge[2], *whole;
    size_t edge_size[2], n, first; /* first: leaf of whole block 0 */
};
int digest_cut(struct digest *d, const void *data, size_t n, struct digest_pieces *to,
               struct tabft_failure *f) TABFT_MUST_CHECK;
void digest_edges(struct digest *d, const struct digest_pieces *p);
void digest_whole(const struct digest *d, const struct digest_pieces *p, size_t i);
void digest_join(struct digest *d, const struct digest_pieces *p);
/* The last block is complete; to be called once. */
int digest_end(struct digest *d, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Of n leaves, as 64 hex digits. */
void digest_root(const uint8_t *leaf, size_t n, char hex[2 * DIGEST_SIZE + 1]);
void digest_clear(struct digest *d);

#endif
