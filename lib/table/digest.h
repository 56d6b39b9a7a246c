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
    size_t filled;   /* bytes of the block so far */
    size_t n, room;  /* leaves */
    uint8_t *leaf;   /* [room][DIGEST_SIZE] */
};

static inline uint64_t digest_blocks(uint64_t bytes) { return bytes / DIGEST_BLOCK + (bytes % DIGEST_BLOCK > 0); }

/* Empty, with room for so many bytes from the begin of a block on. */
int digest_open(struct digest *d, uint64_t bytes, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Bytes in their order. More than there is room for: makes room first, which may fail. */
int digest_add(struct digest *d, const void *data, size_t n, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The last block is complete; to be called once. */
int digest_end(struct digest *d, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Of n leaves, as 64 hex digits. */
void digest_root(const uint8_t *leaf, size_t n, char hex[2 * DIGEST_SIZE + 1]);
void digest_clear(struct digest *d);

#endif
