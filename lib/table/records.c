#include "table/records.h"

#include <stdlib.h>

#include "base/memory.h"

static int fail_at(struct records *r, uint64_t offset, struct tabft_failure *f, const char *message)
{
    r->failed_at = offset;
    return tabft_fail(f, TABFT_INPUT, "%s", message);
}

int records_quoted(struct records *r, const char *begin, const char *end, const char *p, struct cell *cell,
                   const char **after, struct tabft_failure *f)
{
    int error = 0;
    const char *from = p + 1, *quote = memchr(from, '"', (size_t)(end - from));
    size_t length = 0;
    cell->text = from;
    for (; quote != NULL && quote + 1 < end && quote[1] == '"'; quote = memchr(from, '"', (size_t)(end - from))) {
        size_t n = (size_t)(quote + 1 - from);
        if (r->room < length + n) TRY(memory_grow(&r->unquoted, 2 * (length + n), 1, "a cell", f));
        if (r->room < length + n) r->room = 2 * (length + n);
        memcpy(r->unquoted + length, from, n);
        length += n;
        from = quote + 2;
    }
    if (quote == NULL)
        return fail_at(r, (uint64_t)(p - begin), f,
                       "the quote that opens here is never closed; close it, or double quotes inside quotes");
    if (length > 0) {
        size_t n = (size_t)(quote - from);
        if (r->room < length + n + 1) TRY(memory_grow(&r->unquoted, 2 * (length + n + 1), 1, "a cell", f));
        if (r->room < length + n + 1) r->room = 2 * (length + n + 1);
        memcpy(r->unquoted + length, from, n);
        length += n;
        r->unquoted[length] = '\0';
        cell->text = r->unquoted;
        cell->length = length;
    } else {
        cell->length = (size_t)(quote - from);
    }
    *after = quote + 1;
fail:
    return error;
}

void records_trimmed_number(const struct records *r, struct cell *cell)
{
    const char *from = cell->text, *to = cell->text + cell->length;
    while (from < to && (*from == ' ' || *from == '\t')) from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t')) to--;
    if (from == to || (size_t)(to - from) > NUMBER_TEXT_MAX) return;
    const char *end = number_scan(from, r->format->point, &cell->number);
    cell->is_number = end == to;
    cell->number_text = from;
    cell->number_end = to;
}

int records_fail_end(struct records *r, const char *begin, const char *p, bool quoted, struct tabft_failure *f)
{
    uint64_t offset = (uint64_t)(p - begin);
    if (*p == '\r')
        return fail_at(r, offset, f,
                       "a carriage return without line feed; end lines with LF or CR LF, or quote the cell");
    if (quoted)
        return fail_at(r, offset, f,
                       "text after a closing quote; double the quotes that belong to the text, or check the delimiter");
    return fail_at(r, offset, f, "a quote inside an unquoted cell; quote the whole cell and double the quotes in it");
}

int records_fail_count(struct records *r, const char *begin, const char *end, const char *p, struct tabft_failure *f)
{
    int error = 0;
    enum scan_end ended = SCAN_NEXT;
    struct cell cell;
    const char *at = p, *extra = p;
    size_t n = 0;
    for (; ended == SCAN_NEXT; n++) {
        if (n == r->n_columns) extra = at;
        TRY(records_cell(r, begin, end, at, &cell, &ended, &at, f));
    }
    r->failed_at = (uint64_t)((n > r->n_columns ? extra : p) - begin);
    error = tabft_fail(f, TABFT_INPUT, "%zu fields, expected %zu; %s", n, r->n_columns,
                       n > r->n_columns
                           ? "a delimiter at the line's end makes one too many, and so does one in an unquoted text"
                           : "--fill-short takes missing ones at the end as empty");
fail:
    return error;
}
