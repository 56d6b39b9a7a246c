/* Decimal numbers as text, without locale: scanned, turned into the nearest double (ties to even, every bit right) or
 * an exact int64, and written the shortest way that reads back the same. Private to lib/table.
 *
 * Grammar: [+-] digits [. digits*] | [+-] . digits, then [(e|E) [+-] digits]. A number with a leading zero that another
 * digit follows (007, 00.5) is none: such cells are codes. Nor are hexadecimal numbers, 1_000 or 1,000. */
#ifndef TABFT_TABLE_NUMBER_H
#define TABFT_TABLE_NUMBER_H

#include <emmintrin.h>
#include <locale.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/failure.h"

enum {
    NUMBER_TEXT_MAX = 1024, /* a longer cell is no number */
    NUMBER_PADDING = 40,
    NUMBER_DIGITS_MAX = 19, /* that a mantissa holds */
    NUMBER_PRINT_MAX = 40   /* bytes that number_print_* write at most, NUL included */
};

/* A number taken apart: (-1)^negative * mantissa * 10^exponent, but for digits beyond the 19th where n_digits > 19. */
struct number {
    uint64_t mantissa;
    int64_t exponent;
    uint32_t n_digits; /* at most 19: the mantissa has all of them; more: significant ones */
    bool negative;
    bool integer; /* no point, no exponent */
};

/* Scans the number at p. The text must end in a byte that belongs to no number (a delimiter, a line feed, NUL). Returns
 * the byte after the number, or NULL where there is none. */
const char *number_scan(const char *p, char point, struct number *n);

/* The nearest double of a scanned number; text..end is what was scanned, read only where the digits need it. False
 * where it lies beyond the largest double. `c` is number_locale(). */
bool number_double(const struct number *n, const char *text, const char *end, char point, locale_t c, double *v);

/* The value of an `integer` number; false where it does not fit. */
static inline bool number_int64(const struct number *n, int64_t *v)
{
    if (n->n_digits > NUMBER_DIGITS_MAX || n->mantissa > (uint64_t)INT64_MAX + n->negative) return false;
    *v = (int64_t)((n->mantissa ^ (0 - (uint64_t)n->negative)) + n->negative);
    return true;
}

/* The C locale, for number_double and number_print_double; freed with freelocale. */
int number_locale(locale_t *c, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Writes the shortest text that reads back as the same double, with a point or an exponent (1.0, -0.0, 1e+23, inf), so
 * that it reads back as no integer. Not NaN. Returns the length. */
size_t number_print_double(double v, locale_t c, char text[NUMBER_PRINT_MAX]);
size_t number_print_int64(int64_t v, char text[NUMBER_PRINT_MAX]);
/* A number as a label: as above, but whole numbers without ".0", and 0 for -0. */
size_t number_print_label(double v, locale_t c, char text[NUMBER_PRINT_MAX]);

/* ---- the same for numbers as most cells have them, inlined into the walk over cells ---- */

extern const double number_power[23];                            /* 10^i, exact */
extern const uint64_t number_whole_power[NUMBER_DIGITS_MAX + 1]; /* 10^i */

/* Bit i: byte i of the 32 at p is no digit. */
static inline uint32_t number_ends(const char *p)
{
    const __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9);
    uint32_t digits = 0;
    for (int half = 1; half >= 0; half--) {
        __m128i d = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * half)), zero);
        digits = digits << 16 | (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(d, nine), d));
    }
    return ~digits;
}

/* The value of eight digits, first byte first, each less '0': pairs, then fours, then eight, by multiplications that
 * add neighbours. Little-endian. */
static inline uint64_t number_of_eight(uint64_t digits)
{
    digits = digits * 10 + (digits >> 8);
    return ((digits & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x000F424000000064) +
            (digits >> 16 & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x0000271000000001)) >>
           32;
}

/* The value of the n digits at p, 1 to 19, behind which 8 bytes can be read. */
static inline uint64_t number_of_digits(const char *p, unsigned n)
{
    uint64_t bytes, v = 0;
    for (; n > 8; n -= 8, p += 8) {
        memcpy(&bytes, p, 8);
        v = v * 100000000 + number_of_eight(bytes - UINT64_C(0x3030303030303030));
    }
    memcpy(&bytes, p, 8);
    bytes = (bytes - UINT64_C(0x3030303030303030)) << (64 - 8 * n); /* zeros in front; borrows only reach what goes */
    return v * number_whole_power[n] + number_of_eight(bytes);
}

/* The value of whole digits at p, one byte between and `places` more, 2 to 8 together and none of both 0: the byte
 * between is left out, so that one conversion does. */
static inline uint64_t number_of_both(const char *p, unsigned whole, unsigned places)
{
    uint64_t before, behind, kept = (UINT64_C(1) << 8 * whole) - 1; /* whole is at most 7 */
    memcpy(&before, p, 8);
    memcpy(&behind, p + 1, 8);
    uint64_t digits = ((before & kept) | (behind & ~kept)) - UINT64_C(0x3030303030303030);
    return number_of_eight(digits << (64 - 8 * (whole + places)));
}

/* number_scan where NUMBER_PADDING more bytes can be read behind the text. What it does not know goes there: exponents,
 * more digits than a mantissa holds, no number at all. */
static inline const char *number_scan_padded(const char *p, char point, struct number *n)
{
    const char *digits = p + (*p == '-');
    uint32_t ends = number_ends(digits);
    unsigned whole = ends == 0 ? 32 : (unsigned)__builtin_ctz(ends), places = 0;
    if (whole - 1 >= NUMBER_DIGITS_MAX || (*digits == '0' && whole > 1)) return number_scan(p, point, n);
    const char *end = digits + whole;
    n->integer = *end != point;
    if (n->integer) {
        n->mantissa = number_of_digits(digits, whole);
    } else {
        ends &= ends - 1;
        places = (ends == 0 ? 32 : (unsigned)__builtin_ctz(ends)) - whole - 1;
        if (places - 1 >= NUMBER_DIGITS_MAX - whole) return number_scan(p, point, n);
        n->mantissa = whole + places <= 8 ? number_of_both(digits, whole, places)
                                          : number_of_digits(digits, whole) * number_whole_power[places] +
                                                number_of_digits(end + 1, places);
        end += 1 + places;
    }
    if ((*end | 0x20) == 'e') return number_scan(p, point, n);
    n->negative = *p == '-';
    n->exponent = -(int64_t)places;
    n->n_digits = whole + places;
    return end;
}

/* number_double without its text, where both the digits and the power of ten are exact doubles, so that one division
 * rounds once; else false. */
static inline bool number_short_double(const struct number *n, double *v)
{
    uint64_t places = (uint64_t)-n->exponent;
    if (n->mantissa > UINT64_C(1) << 53 || places > 22 || n->n_digits > NUMBER_DIGITS_MAX) return false;
    double x = (double)(int64_t)n->mantissa / number_power[places];
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits |= (uint64_t)n->negative << 63; /* signs come in no order: not by a branch */
    memcpy(v, &bits, sizeof bits);
    return true;
}

#endif
