/* Decimal numbers as whole ones: most columns of measurements and money have few places behind the point, so each cell
 * is a whole number over one power of ten. As such a number it takes 1, 2 or 4 bytes where a double takes 8, and the
 * double comes back bit for bit: i / 10^k is rounded once, to the nearest. Private to lib/table. */
#ifndef TABFT_TABLE_DECIMALS_H
#define TABFT_TABLE_DECIMALS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "table/number.h"
#include "table/schema.h"

/* 10^k for k <= TABLE_DECIMALS_MAX. */
double decimal_power(unsigned k);

/* What is known of some numbers of a column: the least k for which all are i / 10^k, and how large i becomes. It
 * depends on their values alone, not on how they were written or in which order they came. */
struct decimals {
    bool none; /* some number is none: more places, too large, infinite */
    uint8_t k;
    uint64_t largest[TABLE_DECIMALS_MAX + 1]; /* of numbers seen as i / 10^k: |i|, by k */
};

void decimals_add_value(struct decimals *d, double v);
/* Whole numbers from min to max. */
void decimals_add_range(struct decimals *d, int64_t min, int64_t max);
/* A scanned number, by its digits where these do not tell of more places; false where its value is asked for instead.
 */
static inline bool decimals_add(struct decimals *d, const struct number *n)
{
    uint64_t k = (uint64_t)-n->exponent;
    if (k > d->k) return d->none;
    if (n->mantissa > d->largest[k]) d->largest[k] = n->mantissa;
    return true;
}
void decimals_merge(struct decimals *to, const struct decimals *more);

/* The narrowest storage of them and k; where they are no decimals or need more than 32 bits both are left as they are.
 */
void decimals_storage(const struct decimals *d, enum page_storage *storage, unsigned *k);

/* -0 has no i: in its place stands the least number of as many bytes, whose negative the storage does not hold. */
static inline int32_t decimal_minus_zero(size_t bytes) { return INT32_MIN >> (32 - 8 * bytes); }

/* i of a value that is i / 10^k, |i| < 2^31: the product is off by less than a half, and the sum's last bits are i. */
static inline int32_t decimal_of(double v, double power, int32_t minus_zero)
{
    double shifted = v * power + 0x1.8p52;
    uint64_t bits, own;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&own, &v, sizeof own);
    return own == UINT64_C(1) << 63 ? minus_zero : (int32_t)(uint32_t)bits;
}

static inline double decimal_value(int32_t i, double power, int32_t minus_zero)
{
    return i == minus_zero ? -0.0 : (double)i / power;
}

#endif
