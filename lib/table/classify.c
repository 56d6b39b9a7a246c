/* What a cell says that is no number. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "table/pack_internal.h"

static bool blank(char c) { return c == ' ' || c == '\t'; }

static bool is_word(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(text, word, n) == 0;
}

static bool is_infinite(const char *text, size_t n, double *v)
{
    static const char *const words[] = {"inf", "infinity"};
    bool negative = n > 0 && *text == '-';
    if (n > 0 && (*text == '-' || *text == '+')) text++, n--;
    for (size_t i = 0; i < 2; i++) {
        if (n != strlen(words[i]) || strncasecmp(text, words[i], n) != 0) continue;
        *v = negative ? (double)-INFINITY : (double)INFINITY;
        return true;
    }
    return false;
}

enum cell_class pack_classify(const struct pack *p, const struct cell *cell, size_t *spelling, double *infinite)
{
    static const char *const yes[] = {"true", "True", "TRUE"}, *const no[] = {"false", "False", "FALSE"};
    const char *text = cell->text;
    size_t n = cell->length;
    while (n > 0 && blank(*text)) text++, n--;
    while (n > 0 && blank(text[n - 1])) n--;
    if (n == 0) return CELL_EMPTY;
    for (size_t i = 0; i < p->options->n_na; i++) {
        if (!is_word(text, n, p->options->na[i])) continue;
        *spelling = i;
        return CELL_NA;
    }
    for (size_t i = 0; i < 3; i++) {
        if (is_word(text, n, yes[i])) return CELL_TRUE;
        if (is_word(text, n, no[i])) return CELL_FALSE;
    }
    return is_infinite(text, n, infinite) ? CELL_INFINITE : CELL_TEXT;
}

bool pack_text_missing(const struct pack *p, const struct cell *cell, size_t *spelling)
{
    *spelling = SIZE_MAX;
    if (cell->length == 0) return true;
    for (size_t i = 0; i < p->options->n_text_na; i++) {
        if (!is_word(cell->text, cell->length, p->options->text_na[i])) continue;
        *spelling = i;
        return true;
    }
    return false;
}
