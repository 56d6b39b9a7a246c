#include "table/digest.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

int digest_open(struct digest *d, uint64_t bytes, struct tabft_failure *f)
{
    *d = (struct digest){.room = (size_t)digest_blocks(bytes) + 1};
    sha256_init(&d->block);
    return memory_new(&d->leaf, d->room, DIGEST_SIZE, "a file's digest", f);
}

static int close_block(struct digest *d, struct tabft_failure *f)
{
    int error = 0;
    if (d->n == d->room) {
        TRY(memory_grow(&d->leaf, 2 * d->room, DIGEST_SIZE, "a file's digest", f));
        d->room *= 2;
    }
    sha256_digest(&d->block, DIGEST_SIZE, d->leaf + DIGEST_SIZE * d->n++); /* and begins the next */
    d->filled = 0;
fail:
    return error;
}

int digest_add(struct digest *d, const void *data, size_t n, struct tabft_failure *f)
{
    int error = 0;
    const uint8_t *at = data;
    while (n > 0) {
        size_t take = n < DIGEST_BLOCK - d->filled ? n : DIGEST_BLOCK - d->filled;
        sha256_update(&d->block, take, at);
        d->filled += take;
        at += take;
        n -= take;
        if (d->filled == DIGEST_BLOCK) TRY(close_block(d, f));
    }
fail:
    return error;
}

int digest_cut(struct digest *d, const void *data, size_t n, struct digest_pieces *to, struct tabft_failure *f)
{
    int error = 0;
    const uint8_t *at = data;
    size_t head = d->filled == 0 ? 0 : DIGEST_BLOCK - d->filled;
    if (head > n) head = n;
    size_t ends = d->filled > 0 && d->filled + head == DIGEST_BLOCK, blocks = (n - head) / DIGEST_BLOCK,
           needed = d->n + ends + blocks + 1;
    *to = (struct digest_pieces){.edge = {at, at + head + blocks * DIGEST_BLOCK},
                                 .edge_size = {head, n - head - blocks * DIGEST_BLOCK},
                                 .whole = at + head,
                                 .n = blocks,
                                 .first = d->n + ends};
    if (needed > d->room) {
        TRY(memory_grow(&d->leaf, 2 * needed, DIGEST_SIZE, "a file's digest", f));
        d->room = 2 * needed;
    }
fail:
    return error;
}

void digest_edges(struct digest *d, const struct digest_pieces *p)
{
    sha256_update(&d->block, p->edge_size[0], p->edge[0]);
    d->filled += p->edge_size[0];
    if (d->filled == DIGEST_BLOCK) {
        sha256_digest(&d->block, DIGEST_SIZE, d->leaf + DIGEST_SIZE * d->n);
        d->filled = 0;
    }
    sha256_update(&d->block, p->edge_size[1], p->edge[1]);
    d->filled += p->edge_size[1];
}

void digest_whole(const struct digest *d, const struct digest_pieces *p, size_t i)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, DIGEST_BLOCK, p->whole + i * DIGEST_BLOCK);
    sha256_digest(&sha, DIGEST_SIZE, d->leaf + DIGEST_SIZE * (p->first + i));
}

void digest_join(struct digest *d, const struct digest_pieces *p) { d->n = p->first + p->n; }

int digest_end(struct digest *d, struct tabft_failure *f) { return d->filled > 0 ? close_block(d, f) : 0; }

void digest_root(const uint8_t *leaf, size_t n, char hex[2 * DIGEST_SIZE + 1])
{
    struct sha256_ctx root;
    uint8_t sum[DIGEST_SIZE];
    sha256_init(&root);
    sha256_update(&root, n * DIGEST_SIZE, leaf);
    sha256_digest(&root, DIGEST_SIZE, sum);
    for (size_t k = 0; k < DIGEST_SIZE; k++) (void)snprintf(hex + 2 * k, 3, "%02x", sum[k]);
}

void digest_clear(struct digest *d)
{
    free(d->leaf);
    *d = (struct digest){0};
}
