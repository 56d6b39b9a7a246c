/* Deflate blocks of literals alone (RFC 1951, dynamic codes), for runs of bytes in which no matches are worth a search.
 * Private to lib/tbf. */
#ifndef TABFT_TBF_LITERALS_H
#define TABFT_TBF_LITERALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the next bit goes. Up to TBF_BITS_AHEAD bytes behind what is put are written too. */
enum { TBF_BITS_AHEAD = 8 };
struct tbf_bits {
    uint8_t *at;
    uint64_t held; /* bits that no whole byte is made of yet */
    unsigned n;
};

/* The code of a run, and what the block takes with it. */
struct tbf_literals {
    uint8_t length[257];
    uint64_t bits;
};
void tbf_literals_plan(struct tbf_literals *l, const uint8_t *bytes, size_t n);
/* Puts the block; bytes that the plan was not made of are an error of the caller. */
void tbf_literals_put(struct tbf_bits *b, const struct tbf_literals *l, const uint8_t *bytes, size_t n, bool final);
/* Fills the byte at hand with zeros. */
void tbf_bits_align(struct tbf_bits *b);

#endif
