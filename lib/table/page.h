/* Cells in slots and in pages. A slot is 8 bytes: the bits of a double for columns stored as f32, f64 or decimals (NaN
 * is missing), an int64 for the others, whose missing cells are marked in a byte array beside it. Private to lib/table.
 */
#ifndef TABFT_TABLE_PAGE_H
#define TABFT_TABLE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/failure.h"
#include "table/schema.h"

/* A run of cells of one column. */
struct cells {
    uint64_t *slot;  /* [n] */
    uint8_t *absent; /* [n] 1 where missing; for doubles not read, and all 0 after reading */
};

static inline uint64_t slot_of_double(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline double slot_double(uint64_t slot)
{
    double v;
    memcpy(&v, &slot, sizeof v);
    return v;
}

static inline int64_t slot_integer(uint64_t slot) { return (int64_t)slot; }

static inline bool cell_missing(const struct cells *c, size_t i, bool real)
{
    return real ? slot_double(c->slot[i]) != slot_double(c->slot[i]) : c->absent[i] != 0;
}

enum { PAGE_SIZE_MAX = TABLE_GROUP_ROWS * 8 + TABLE_GROUP_ROWS / 8 };

/* Bytes of a page of n cells without and with its bitmap of missing cells. */
size_t page_size(enum page_storage storage, size_t n, bool bitmap);

/* What the pages of a column are. */
struct page_form {
    enum page_storage storage;
    unsigned decimals; /* of decimals */
    bool codes;        /* no smallest and largest value is wanted */
    size_t n_codes;    /* codes must be below it when they are read */
};
struct page_form page_form_of(const struct schema *s, size_t column);

/* Writes n cells (n <= TABLE_GROUP_ROWS) as a page into `page` (PAGE_SIZE_MAX bytes), *size of it used, and what they
 * hold into *statistics. */
void page_encode(const struct page_form *form, const struct cells *cells, size_t n, void *page, size_t *size,
                 struct column_statistics *statistics);

/* The other way; *statistics as above. Errors: TABFT_INPUT. */
int page_decode(const struct page_form *form, const void *page, size_t size, struct cells *cells, size_t n,
                struct column_statistics *statistics, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
