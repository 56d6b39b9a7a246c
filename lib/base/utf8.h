/* Is it UTF-8? Well-formed as RFC 3629 has it: no overlong forms, no surrogates, at most U+10FFFF. */
#ifndef TABFT_BASE_UTF8_H
#define TABFT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at p, which lies before `end`; 0 where there is none. */
static inline size_t utf8_character(const unsigned char *p, const unsigned char *end)
{
    const unsigned c = *p;
    unsigned low = 0x80, high = 0xBF;
    size_t n;
    if (c < 0x80) return 1;
    if (c >= 0xC2 && c <= 0xDF) n = 2;
    else if (c >= 0xE0 && c <= 0xEF) n = 3;
    else if (c >= 0xF0 && c <= 0xF4) n = 4;
    else return 0;
    if (c == 0xE0) low = 0xA0;
    else if (c == 0xED) high = 0x9F;
    else if (c == 0xF0) low = 0x90;
    else if (c == 0xF4) high = 0x8F;
    for (size_t i = 1; i < n; i++, low = 0x80, high = 0xBF)
        if (p + i == end || p[i] < low || p[i] > high) return 0;
    return n;
}

/* All of it, without NUL. */
static inline bool utf8_valid(const char *text, size_t length)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + length;
    while (p < end) {
        const size_t n = *p == 0 ? 0 : utf8_character(p, end);
        if (n == 0) return false;
        p += n;
    }
    return true;
}

#endif
