/* The walk over the records of delimited text (RFC 4180), one cell after the other, numbers scanned on the way. It is
 * inlined into its two callers, which look at cells (survey.c) and store them (fill.c). Private to lib/table.
 *
 * Strict: a quote opens a cell at its first byte or not at all; after the closing quote comes a delimiter or the end of
 * the record; records end with LF or CR LF, a CR stands nowhere else outside quotes; each record has as many cells as
 * the header. A line without any byte is skipped and counted, also where the table has one column. */
#ifndef TABFT_TABLE_RECORDS_H
#define TABFT_TABLE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/failure.h"
#include "table/number.h"

enum { RECORD_MAX = 16 << 20 }; /* bytes of a record */

struct format {
    char delimiter;
    char point;      /* of decimal numbers */
    bool fill_short; /* missing cells at the end of a record are taken as empty */
};

/* A cell: its bytes without quotes, and its number if it is one (blanks around it do not count). */
struct cell {
    const char *text;
    size_t length;
    uint64_t offset; /* of its first byte in the segment, quote included */
    bool is_number;
    struct number number;
    const char *number_text, *number_end; /* what number_scan saw */
};

/* Records are walked in memory, which RECORDS_PADDING bytes follow; the first of them are two line feeds. */
enum { RECORDS_PADDING = 2 + NUMBER_PADDING };

struct records {
    const struct format *format;
    size_t n_columns;
    char *unquoted; /* room for the longest cell and a NUL; grown by the walk */
    size_t room;
    uint64_t n_records, n_blank, n_short; /* results */
    uint64_t failed_at;                   /* offset in the segment, where the walk failed */
};

enum scan_end { SCAN_NEXT, SCAN_RECORD, SCAN_FAILED };

/* Skips to the end of an unquoted cell. */
static inline const char *skip_plain(const char *p, char delimiter)
{
    while (*p != delimiter && *p != '\n' && *p != '\r' && *p != '"') p++;
    return p;
}

/* What ends a cell at p: moves *next behind it. */
static inline enum scan_end cell_end(const char *p, char delimiter, const char **next)
{
    if (*p == delimiter) {
        *next = p + 1;
        return SCAN_NEXT;
    }
    if (*p == '\n' || (*p == '\r' && p[1] == '\n')) {
        *next = p + (*p == '\n' ? 1 : 2);
        return SCAN_RECORD;
    }
    *next = p;
    return SCAN_FAILED;
}

/* Takes a quoted cell at p (its opening quote) up to the closing one. */
int records_quoted(struct records *r, const char *begin, const char *end, const char *p, struct cell *cell,
                   const char **after, struct tabft_failure *f) TABFT_MUST_CHECK;
/* A cell as a number with blanks around it, the rare way. */
void records_trimmed_number(const struct records *r, struct cell *cell);
/* Messages of the walk. */
int records_fail_end(struct records *r, const char *begin, const char *p, bool quoted,
                     struct tabft_failure *f) TABFT_MUST_CHECK;
int records_fail_count(struct records *r, const char *begin, const char *end, const char *p,
                       struct tabft_failure *f) TABFT_MUST_CHECK;

/* Takes any cell at p. *next is where the one after it begins. */
static inline __attribute__((always_inline)) int records_cell(struct records *r, const char *begin, const char *end,
                                                              const char *p, struct cell *cell, enum scan_end *ended,
                                                              const char **next, struct tabft_failure *f)
{
    const char delimiter = r->format->delimiter;
    cell->offset = (uint64_t)(p - begin);
    cell->text = p;
    const char *after = number_scan_padded(p, r->format->point, &cell->number);
    if (after != NULL) {
        *ended = cell_end(after, delimiter, next);
        if (*ended != SCAN_FAILED) {
            cell->length = (size_t)(after - p);
            cell->is_number = cell->length <= NUMBER_TEXT_MAX;
            cell->number_text = p;
            cell->number_end = after;
            return 0;
        }
    }
    bool quoted = *p == '"';
    cell->is_number = false;
    if (quoted) {
        int error = records_quoted(r, begin, end, p, cell, &after, f);
        if (error < 0) return error;
    } else {
        after = skip_plain(p, delimiter);
        cell->length = (size_t)(after - p);
    }
    *ended = cell_end(after, delimiter, next);
    if (*ended == SCAN_FAILED) return records_fail_end(r, begin, after, quoted, f);
    if (cell->length > 0) records_trimmed_number(r, cell);
    return 0;
}

/* What is done with a cell: record is its number in the segment. 0 or a failure at the cell. */
typedef int records_take(void *context, uint64_t record, size_t column, const struct cell *cell,
                         struct tabft_failure *f);

/* Walks from begin to end. On failure r->failed_at says where. */
__attribute__((always_inline)) static inline int records_walk(struct records *r, const char *begin, const char *end,
                                                              records_take *take, void *context,
                                                              struct tabft_failure *f)
{
    int error = 0;
    struct cell cell;
    const size_t n_columns = r->n_columns;
    for (const char *p = begin; p < end;) {
        if (*p == '\n' || (*p == '\r' && p[1] == '\n')) {
            p += *p == '\n' ? 1 : 2;
            r->n_blank++;
            continue;
        }
        const char *record = p;
        enum scan_end ended = SCAN_NEXT;
        size_t column = 0;
        for (; ended == SCAN_NEXT; column++) {
            if (column == n_columns) return records_fail_count(r, begin, end, record, f);
            error = records_cell(r, begin, end, p, &cell, &ended, &p, f);
            if (error < 0) return error;
            error = take(context, r->n_records, column, &cell, f);
            if (error < 0) {
                r->failed_at = cell.offset;
                return error;
            }
        }
        if (column < n_columns) {
            if (!r->format->fill_short) return records_fail_count(r, begin, end, record, f);
            r->n_short++;
            for (cell = (struct cell){.text = p, .offset = (uint64_t)(record - begin)}; column < n_columns; column++) {
                error = take(context, r->n_records, column, &cell, f);
                if (error < 0) return error;
            }
        }
        r->n_records++;
    }
    return 0;
}

#endif
