#include "table/number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    uint64_t high, low;
} power_of_five[] = {
#include "table/number_powers.inc"
};
enum { POWER_MIN = -342, POWER_MAX = 308 };

const double number_power[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
const uint64_t number_whole_power[NUMBER_DIGITS_MAX + 1] = {
    UINT64_C(1),
    UINT64_C(10),
    UINT64_C(100),
    UINT64_C(1000),
    UINT64_C(10000),
    UINT64_C(100000),
    UINT64_C(1000000),
    UINT64_C(10000000),
    UINT64_C(100000000),
    UINT64_C(1000000000),
    UINT64_C(10000000000),
    UINT64_C(100000000000),
    UINT64_C(1000000000000),
    UINT64_C(10000000000000),
    UINT64_C(100000000000000),
    UINT64_C(1000000000000000),
    UINT64_C(10000000000000000),
    UINT64_C(100000000000000000),
    UINT64_C(1000000000000000000),
    UINT64_C(10000000000000000000),
};

static inline unsigned digit(char c) { return (unsigned)(unsigned char)c - '0'; }

/* Takes a run of digits into *value, modulo 2^64. */
static inline const char *take_digits(const char *p, uint64_t *value)
{
    uint64_t v = *value;
    for (; digit(*p) < 10; p++) v = v * 10 + digit(*p);
    *value = v;
    return p;
}

/* A number of more than 19 digits again: the first 19 significant ones go into the mantissa, the others are counted. */
static void take_long(const char *p, char point, struct number *n)
{
    int64_t exponent = 0;
    bool behind = false;
    n->mantissa = 0;
    n->n_digits = 0;
    for (; digit(*p) < 10 || (*p == point && !behind); p++) {
        if (*p == point) {
            behind = true;
            continue;
        }
        if (n->n_digits < NUMBER_DIGITS_MAX) {
            n->mantissa = n->mantissa * 10 + digit(*p);
            n->n_digits += n->mantissa != 0;
            exponent -= behind;
        } else {
            n->n_digits++;
            exponent += !behind;
        }
    }
    n->exponent = exponent;
}

static const char *take_exponent(const char *p, struct number *n)
{
    int64_t e = 0;
    bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    if (digit(*p) >= 10) return NULL;
    for (; digit(*p) < 10; p++) {
        if (e < 100000) e = e * 10 + digit(*p);
    }
    n->exponent += negative ? -e : e;
    return p;
}

const char *number_scan(const char *p, char point, struct number *n)
{
    uint64_t mantissa = 0;
    size_t n_digits;
    n->negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    const char *digits = p;
    if (*p == '0' && digit(p[1]) < 10) return NULL;
    p = take_digits(p, &mantissa);
    n_digits = (size_t)(p - digits);
    n->integer = *p != point;
    n->exponent = 0;
    if (!n->integer) {
        const char *fraction = ++p;
        p = take_digits(p, &mantissa);
        n->exponent = fraction - p;
        n_digits += (size_t)(p - fraction);
    }
    if (n_digits == 0) return NULL;
    n->mantissa = mantissa;
    n->n_digits = (uint32_t)(n_digits > UINT32_MAX ? UINT32_MAX : n_digits);
    if (n_digits > NUMBER_DIGITS_MAX) take_long(digits, point, n);
    if ((*p | 0x20) == 'e') {
        n->integer = false;
        return take_exponent(p + 1, n);
    }
    return p;
}

/* Lemire's algorithm: mantissa * 10^exponent with at most 19 digits, by one or two 64 x 64 products. False where its
 * proof does not reach (subnormal results, overflow, a product that does not decide). */
static bool multiply(uint64_t w, int64_t exponent, double *v)
{
    if (exponent < POWER_MIN || exponent > POWER_MAX) return false;
    int zeros = __builtin_clzll(w);
    w <<= zeros;
    size_t at = (size_t)(exponent - POWER_MIN);
    unsigned __int128 product = (unsigned __int128)w * power_of_five[at].high;
    uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
    if ((high & 0x1FF) == 0x1FF) {
        uint64_t more = (uint64_t)(((unsigned __int128)w * power_of_five[at].low) >> 64);
        low += more;
        high += low < more;
        if (low == UINT64_MAX && (exponent < -27 || exponent > 55)) return false;
    }
    int upper = (int)(high >> 63);
    uint64_t m = high >> (upper + 9);
    int64_t binary = ((217706 * exponent) >> 16) + 63 + upper - zeros +
                     1023; /* 217706 / 65536 is log2(10) closely enough */
    if (binary <= 0) return false;
    if (low <= 1 && exponent >= -4 && exponent <= 23 && (m & 3) == 1 && m << (upper + 9) == high)
        m &= ~UINT64_C(1); /* a tie: to even */
    m += m & 1;
    m >>= 1;
    if (m >= UINT64_C(2) << 52) {
        m = UINT64_C(1) << 52;
        binary++;
    }
    if (binary >= 0x7FF) return false;
    uint64_t bits = (m & ~(UINT64_C(1) << 52)) | (uint64_t)binary << 52;
    memcpy(v, &bits, sizeof *v);
    return true;
}

/* The slow and always right way. */
static bool ask_strtod(const char *text, const char *end, char point, locale_t c, double *v)
{
    char copy[NUMBER_TEXT_MAX + 1];
    size_t n = (size_t)(end - text);
    if (n > NUMBER_TEXT_MAX) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *comma = point == '.' ? NULL : strchr(copy, point);
    if (comma != NULL) *comma = '.';
    *v = strtod_l(copy, NULL, c);
    return isfinite(*v);
}

bool number_double(const struct number *n, const char *text, const char *end, char point, locale_t c, double *v)
{
    double x;
    if (number_short_double(n, v)) return true;
    if (n->n_digits > NUMBER_DIGITS_MAX) return ask_strtod(text, end, point, c, v);
    if (n->mantissa == 0) {
        *v = n->negative ? -0.0 : 0.0;
        return true;
    }
    if (n->mantissa <= UINT64_C(1) << 53 && n->exponent >= 0 && n->exponent <= 22) { /* both exact: one rounding */
        x = (double)n->mantissa * number_power[n->exponent];
    } else if (!multiply(n->mantissa, n->exponent, &x)) {
        return ask_strtod(text, end, point, c, v);
    }
    *v = n->negative ? -x : x;
    return true;
}

int number_locale(locale_t *c, struct tabft_failure *f)
{
    *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (*c == (locale_t)0) return tabft_fail(f, TABFT_SYSTEM, "no memory for the C locale; give the job more memory");
    return 0;
}

size_t number_print_int64(int64_t v, char text[NUMBER_PRINT_MAX])
{
    char reversed[NUMBER_PRINT_MAX];
    uint64_t left = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    size_t n = 0, length = 0;
    do {
        reversed[n++] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (v < 0) text[length++] = '-';
    while (n > 0) text[length++] = reversed[--n];
    text[length] = '\0';
    return length;
}

/* The fewest digits that give v back: 15 always survive a (normal) double, 17 always determine one. */
static size_t print_shortest(double v, locale_t c, char text[NUMBER_PRINT_MAX])
{
    locale_t before = uselocale(c);
    size_t length = 0;
    for (int digits = fabs(v) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        length = (size_t)snprintf(text, NUMBER_PRINT_MAX, "%.*g", digits, v);
        if (digits == 17 || strtod_l(text, NULL, c) == v) break;
    }
    uselocale(before);
    return length;
}

size_t number_print_double(double v, locale_t c, char text[NUMBER_PRINT_MAX])
{
    if (isinf(v)) {
        strcpy(text, v < 0 ? "-inf" : "inf");
        return strlen(text);
    }
    size_t length;
    if (fabs(v) < 1e15 && v == trunc(v) && (v != 0 || !signbit(v))) length = number_print_int64((int64_t)v, text);
    else length = print_shortest(v, c, text);
    if (strpbrk(text, ".e") == NULL) {
        memcpy(text + length, ".0", 3);
        length += 2;
    }
    return length;
}

size_t number_print_label(double v, locale_t c, char text[NUMBER_PRINT_MAX])
{
    size_t length = number_print_double(v == 0 ? 0.0 : v, c, text);
    if (length > 2 && memcmp(text + length - 2, ".0", 2) == 0) {
        length -= 2;
        text[length] = '\0';
    }
    return length;
}
