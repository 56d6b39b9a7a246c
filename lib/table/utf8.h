/* Is it UTF-8? Private to lib/table. */
#ifndef TABFT_TABLE_UTF8_H
#define TABFT_TABLE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF) without NUL. */
static inline bool utf8_valid(const char *text, size_t length)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + length;
    while (p < end) {
        unsigned c = *p++, low = 0x80, high = 0xBF;
        int more;
        if (c == 0) return false;
        if (c < 0x80) continue;
        if (c >= 0xC2 && c <= 0xDF) more = 1;
        else if (c >= 0xE0 && c <= 0xEF) more = 2;
        else if (c >= 0xF0 && c <= 0xF4) more = 3;
        else return false;
        if (c == 0xE0) low = 0xA0;
        else if (c == 0xED) high = 0x9F;
        else if (c == 0xF0) low = 0x90;
        else if (c == 0xF4) high = 0x8F;
        for (; more > 0; more--, low = 0x80, high = 0xBF) {
            if (p == end || *p < low || *p > high) return false;
            p++;
        }
    }
    return true;
}

#endif
