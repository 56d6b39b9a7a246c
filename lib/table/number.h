/* Decimal numbers as text, without locale: scanned, turned into the nearest double (ties to even, every bit right) or
 * an exact int64, and written the shortest way that reads back the same. Private to lib/table.
 *
 * Grammar: [+-] digits [. digits*] | [+-] . digits, then [(e|E) [+-] digits]. A number with a leading zero that another
 * digit follows (007, 00.5) is none: such cells are codes. Nor are hexadecimal numbers, 1_000 or 1,000. */
#ifndef TABFT_TABLE_NUMBER_H
#define TABFT_TABLE_NUMBER_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

enum {
    NUMBER_TEXT_MAX = 1024, /* a longer cell is no number */
    NUMBER_PADDING = 8,
    NUMBER_PRINT_MAX = 40 /* bytes that number_print_* write at most, NUL included */
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
/* The same, faster, where NUMBER_PADDING more bytes can be read behind the text. */
const char *number_scan_padded(const char *p, char point, struct number *n);

/* The nearest double of a scanned number; text..end is what was scanned, read only where the digits need it. False
 * where it lies beyond the largest double. `c` is number_locale(). */
bool number_double(const struct number *n, const char *text, const char *end, char point, locale_t c, double *v);

/* The value of an `integer` number; false where it does not fit. */
bool number_int64(const struct number *n, int64_t *v);

/* The C locale, for number_double and number_print_double; freed with freelocale. */
int number_locale(locale_t *c, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Writes the shortest text that reads back as the same double, with a point or an exponent (1.0, -0.0, 1e+23, inf), so
 * that it reads back as no integer. Not NaN. Returns the length. */
size_t number_print_double(double v, locale_t c, char text[NUMBER_PRINT_MAX]);
size_t number_print_int64(int64_t v, char text[NUMBER_PRINT_MAX]);
/* A number as a label: as above, but whole numbers without ".0", and 0 for -0. */
size_t number_print_label(double v, locale_t c, char text[NUMBER_PRINT_MAX]);

#endif
