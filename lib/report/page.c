/* A page of HTML: our words, and those of others made harmless. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "file/file.h"
#include "report/report_internal.h"

static void put(struct page *p, const char *text, size_t n)
{
    if (p->error == 0) p->error = file_writer_put(p->to, text, n, p->f);
}

void page_put(struct page *p, const char *format, ...)
{
    char text[1024]; /* longer than any of ours */
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (n > 0) put(p, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void page_words(struct page *p, const char *text) { put(p, text, strlen(text)); }

void page_text(struct page *p, const char *text)
{
    const unsigned char *s = (const unsigned char *)text, *end = s + strlen(text);
    put(p, "<bdi>", 5); /* directions end with it */
    while (s < end) {
        const size_t n = utf8_character(s, end);
        /* Control characters of Unicode, and its two non-characters, are allowed in no page. */
        const bool bad = n == 0 || *s < 0x20 || *s == 0x7f || (n == 2 && s[0] == 0xc2 && s[1] < 0xa0) ||
                         (n == 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe);
        if (bad) put(p, "\xef\xbf\xbd", 3);
        else if (*s == '&') put(p, "&amp;", 5);
        else if (*s == '<') put(p, "&lt;", 4);
        else if (*s == '>') put(p, "&gt;", 4);
        else if (*s == '"') put(p, "&quot;", 6);
        else if (*s == '\'') put(p, "&#39;", 5);
        else put(p, (const char *)s, n);
        s += n > 0 ? n : 1;
    }
    put(p, "</bdi>", 6);
}

void page_number(struct page *p, double v)
{
    if (isfinite(v)) page_put(p, "%.5g", v);
    else page_put(p, "–");
}

void page_bytes(struct page *p, double bytes)
{
    if (bytes >= 1e9) page_put(p, "%.2f GB", bytes / 1e9);
    else if (bytes >= 1e6) page_put(p, "%.1f MB", bytes / 1e6);
    else page_put(p, "%.1f kB", bytes / 1e3);
}

void page_json(struct page *p, const json_t *value)
{
    if (value == NULL) {
        page_put(p, "–");
    } else if (json_is_string(value)) {
        page_text(p, json_string_value(value));
    } else if (json_is_real(value)) {
        char text[32];
        const double v = json_real_value(value);
        (void)snprintf(text, sizeof text, "%.15g", v);
        page_put(p, strtod(text, NULL) == v ? "%.15g" : "%.17g", v);
    } else {
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        page_text(p, text != NULL ? text : "?");
        free(text);
    }
}
