/* Deflate blocks of literals alone: a code for the bytes of a run, and no search for matches. What is in a byte plane
 * of numbers without order has uneven bytes but no repetitions, and looking for these is what deflate needs its time
 * for. */
#include "tbf/tbf_literals.h"

#include <string.h>

enum {
    LITERALS = 256,
    END_OF_BLOCK = LITERALS,
    SYMBOLS = LITERALS + 1,
    DISTANCES = 2, /* never used; two of one bit are a complete code, which every inflater takes */
    LENGTHS = SYMBOLS + DISTANCES,
    LENGTH_SYMBOLS = 19,
    CODE_MAX = 15,
    LENGTH_CODE_MAX = 7
};

/* ---- codes ---- */

struct leaf {
    uint32_t count;
    uint16_t symbol;
};

/* Sorts by count, then symbol, rarest first. */
static void sort_leaves(struct leaf *leaf, size_t n)
{
    for (size_t gap = n / 2; gap > 0; gap /= 2) {
        for (size_t i = gap; i < n; i++) {
            struct leaf moved = leaf[i];
            size_t at = i;
            for (; at >= gap && (leaf[at - gap].count > moved.count ||
                                 (leaf[at - gap].count == moved.count && leaf[at - gap].symbol > moved.symbol));
                 at -= gap)
                leaf[at] = leaf[at - gap];
            leaf[at] = moved;
        }
    }
}

/* Huffman's code of the sorted leaves, from two queues: leaves, and nodes as they are made. Returns the longest length.
 */
static unsigned code_lengths(const struct leaf *leaf, size_t n, uint8_t *length)
{
    uint32_t weight[SYMBOLS];
    uint16_t parent_of_leaf[SYMBOLS], parent_of_node[SYMBOLS];
    uint8_t depth[SYMBOLS];
    unsigned longest = 0;
    size_t next_leaf = 0, next_node = 0;
    for (size_t made = 0; made + 1 < n; made++) {
        weight[made] = 0;
        for (int child = 0; child < 2; child++) {
            if (next_leaf < n && (next_node == made || leaf[next_leaf].count <= weight[next_node])) {
                weight[made] += leaf[next_leaf].count;
                parent_of_leaf[next_leaf++] = (uint16_t)made;
            } else {
                weight[made] += weight[next_node];
                parent_of_node[next_node++] = (uint16_t)made;
            }
        }
    }
    depth[n - 2] = 0;
    for (size_t i = n - 2; i-- > 0;) depth[i] = (uint8_t)(depth[parent_of_node[i]] + 1);
    for (size_t i = 0; i < n; i++) {
        unsigned bits = depth[parent_of_leaf[i]] + 1u;
        length[leaf[i].symbol] = (uint8_t)bits;
        if (bits > longest) longest = bits;
    }
    return longest;
}

/* Lengths of a code for symbols that occur so often, at most `limit` bits, 0 for those that do not. At least two get
 * one. Where Huffman's own code is longer, rare symbols are taken for less rare. */
static void build_lengths(const uint32_t *count, size_t n, unsigned limit, uint8_t *length)
{
    struct leaf leaf[SYMBOLS];
    size_t used = 0;
    memset(length, 0, n);
    for (size_t i = 0; i < n; i++)
        if (count[i] > 0) leaf[used++] = (struct leaf){count[i], (uint16_t)i};
    for (size_t i = 0; used < 2; i++)
        if (count[i] == 0) leaf[used++] = (struct leaf){1, (uint16_t)i};
    for (;;) {
        sort_leaves(leaf, used);
        if (code_lengths(leaf, used, length) <= limit) return;
        for (size_t i = 0; i < used; i++) leaf[i].count = leaf[i].count / 2 + 1;
    }
}

static unsigned reversed(unsigned code, unsigned bits)
{
    unsigned r = 0;
    for (; bits > 0; bits--, code >>= 1) r = r << 1 | (code & 1);
    return r;
}

/* The canonical codes of RFC 1951, as they are put: first bit lowest. */
static void build_codes(const uint8_t *length, size_t n, uint16_t *code)
{
    unsigned count[CODE_MAX + 2] = {0}, next[CODE_MAX + 2] = {0};
    for (size_t i = 0; i < n; i++) count[length[i]]++;
    count[0] = 0;
    for (unsigned bits = 1; bits <= CODE_MAX; bits++) next[bits] = (next[bits - 1] + count[bits - 1]) << 1;
    for (size_t i = 0; i < n; i++)
        if (length[i] > 0) code[i] = (uint16_t)reversed(next[length[i]]++, length[i]);
}

/* ---- lengths of codes, as a block's header has them ---- */

struct length_code {
    uint8_t symbol, extra, extra_bits;
};

/* Runs: 16 repeats the one before 3 to 6 times, 17 and 18 stand for 3 to 10 and for 11 to 138 zeros. */
static size_t find_runs(const uint8_t *length, size_t n, struct length_code *to)
{
    size_t made = 0;
    for (size_t i = 0; i < n;) {
        size_t run = 1;
        while (i + run < n && length[i + run] == length[i]) run++;
        if (length[i] == 0 && run >= 3) {
            if (run > 138) run = 138;
            to[made++] = run < 11 ? (struct length_code){17, (uint8_t)(run - 3), 3}
                                  : (struct length_code){18, (uint8_t)(run - 11), 7};
            i += run;
            continue;
        }
        to[made++] = (struct length_code){length[i], 0, 0};
        i++;
        if (run < 4) continue;
        run = run - 1 < 6 ? run - 1 : 6;
        to[made++] = (struct length_code){16, (uint8_t)(run - 3), 2};
        i += run;
    }
    return made;
}

static const uint8_t length_order[LENGTH_SYMBOLS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

/* A block's header: how many bits, and all that is put. */
struct header {
    struct length_code run[LENGTHS];
    size_t n_runs, n_lengths; /* n_lengths: of length_order that are put */
    uint8_t length[LENGTH_SYMBOLS];
    uint64_t bits;
};

static void build_header(struct header *h, const uint8_t *length)
{
    uint8_t all[LENGTHS];
    uint32_t count[LENGTH_SYMBOLS] = {0};
    memcpy(all, length, SYMBOLS);
    all[SYMBOLS] = all[SYMBOLS + 1] = 1;
    h->n_runs = find_runs(all, LENGTHS, h->run);
    for (size_t i = 0; i < h->n_runs; i++) count[h->run[i].symbol]++;
    build_lengths(count, LENGTH_SYMBOLS, LENGTH_CODE_MAX, h->length);
    h->n_lengths = LENGTH_SYMBOLS;
    while (h->n_lengths > 4 && h->length[length_order[h->n_lengths - 1]] == 0) h->n_lengths--;
    h->bits = 3 + 5 + 5 + 4 + 3 * (uint64_t)h->n_lengths;
    for (size_t i = 0; i < h->n_runs; i++) h->bits += h->length[h->run[i].symbol] + (uint64_t)h->run[i].extra_bits;
}

/* ---- bits out ---- */

static inline void put_bits(struct tbf_bits *b, uint64_t bits, unsigned n)
{
    b->held |= bits << b->n;
    b->n += n;
}

/* Whole bytes go out; 8 bytes are written in any case. At most 7 bits stay. */
static inline void put_bytes(struct tbf_bits *b)
{
    memcpy(b->at, &b->held, 8);
    b->at += b->n / 8;
    b->held >>= b->n & ~7u;
    b->n &= 7;
}

void tbf_bits_align(struct tbf_bits *b)
{
    if (b->n == 0) return;
    *b->at++ = (uint8_t)b->held;
    b->held = b->n = 0;
}

static void put_header(struct tbf_bits *b, const struct header *h, bool final)
{
    uint16_t code[LENGTH_SYMBOLS] = {0};
    put_bits(b, final, 1);
    put_bits(b, 2, 2); /* dynamic codes */
    put_bits(b, SYMBOLS - 257, 5);
    put_bits(b, DISTANCES - 1, 5);
    put_bits(b, h->n_lengths - 4, 4);
    put_bytes(b);
    for (size_t i = 0; i < h->n_lengths; i++) {
        put_bits(b, h->length[length_order[i]], 3);
        put_bytes(b);
    }
    build_codes(h->length, LENGTH_SYMBOLS, code);
    for (size_t i = 0; i < h->n_runs; i++) {
        put_bits(b, code[h->run[i].symbol], h->length[h->run[i].symbol]);
        put_bits(b, h->run[i].extra, h->run[i].extra_bits);
        put_bytes(b);
    }
}

/* ---- runs of bytes ---- */

void tbf_literals_plan(struct tbf_literals *l, const uint8_t *bytes, size_t n)
{
    uint32_t part[4][LITERALS] = {0}, count[SYMBOLS];
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t k = 0; k < 4; k++) part[k][bytes[i + k]]++;
    for (; i < n; i++) part[0][bytes[i]]++;
    for (size_t s = 0; s < LITERALS; s++) count[s] = part[0][s] + part[1][s] + part[2][s] + part[3][s];
    count[END_OF_BLOCK] = 1;
    build_lengths(count, SYMBOLS, CODE_MAX, l->length);
    struct header h;
    build_header(&h, l->length);
    l->bits = h.bits;
    for (size_t s = 0; s < SYMBOLS; s++) l->bits += (uint64_t)count[s] * l->length[s];
}

void tbf_literals_put(struct tbf_bits *b, const struct tbf_literals *l, const uint8_t *bytes, size_t n, bool final)
{
    struct header h;
    uint16_t code[SYMBOLS] = {0};
    uint32_t both[LITERALS]; /* the code, and above it its length */
    build_header(&h, l->length);
    put_header(b, &h, final);
    build_codes(l->length, SYMBOLS, code);
    for (size_t s = 0; s < LITERALS; s++) both[s] = code[s] | (uint32_t)l->length[s] << 16;
    size_t i = 0;
    for (; i + 3 <= n; i += 3) { /* 3 times 15 bits and 7 that were left */
        for (size_t k = 0; k < 3; k++) put_bits(b, both[bytes[i + k]] & 0xffff, both[bytes[i + k]] >> 16);
        put_bytes(b);
    }
    for (; i < n; i++) {
        put_bits(b, code[bytes[i]], l->length[bytes[i]]);
        put_bytes(b);
    }
    put_bits(b, code[END_OF_BLOCK], l->length[END_OF_BLOCK]);
    put_bytes(b);
}
