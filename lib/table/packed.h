/* A packed table as a container of pages: written group by group, read page by page. Private to lib/table. */
#ifndef TABFT_TABLE_PACKED_H
#define TABFT_TABLE_PACKED_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "table/page.h"
#include "table/schema.h"

struct threads;

/* The texts of a dictionary, or of a label list. */
struct texts {
    size_t n;
    char **text; /* [n], into `block` */
    char *block;
    size_t bytes; /* of block, NULs included */
};
void texts_clear(struct texts *t);

/* ---- writing ---- */
struct packed_writer;

struct packed_start {
    const char *path;
    bool force;
    int level;                   /* of deflate */
    const struct schema *schema; /* with the final n_rows */
    const struct texts *texts;   /* [n_columns]; read for text columns that are no classification target */
    const char *provenance;      /* JSON object as text */
    const uint8_t *content;      /* 32 bytes of a digest of the values where provenance does not name them, or NULL */
};
/* Writes schema, provenance and dictionaries. The file id is a digest of them and `content`: the same table gives the
 * same bytes. `start` need not outlive the call, schema is copied; pool must outlive the writer (NULL is fine). */
int packed_writer_open(struct packed_writer **out, const struct packed_start *start, struct threads *pool,
                       struct tabft_failure *f) TABFT_MUST_CHECK;
/* Appends n_rows rows: cells[c] are column c's. n_rows is a multiple of TABLE_GROUP_ROWS but in the last call. */
int packed_writer_put(struct packed_writer *w, const struct cells *cells, size_t n_rows,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
const struct column_statistics *
packed_writer_statistics(const struct packed_writer *w); /* [n_columns], of the rows so far */
/* Writes the statistics and the end mark, and publishes the file. Frees w in every case. */
int packed_writer_close(struct packed_writer *w, struct tabft_failure *f) TABFT_MUST_CHECK;
void packed_writer_abandon(struct packed_writer *w); /* NULL is fine */

/* ---- reading ---- */
struct packed_reader;
/* Opens a file for `n_threads` callers at a time; checks schema, order and number of all records, dictionaries where
 * wanted. */
int packed_reader_open(struct packed_reader **out, const char *path, int n_threads, bool dictionaries,
                       struct tabft_failure *f) TABFT_MUST_CHECK;
const struct schema *packed_reader_schema(const struct packed_reader *r);
const struct column_statistics *packed_reader_statistics(const struct packed_reader *r); /* [n_columns] */
const struct texts *packed_reader_texts(const struct packed_reader *r); /* [n_columns], empty where there are none */
const json_t *packed_reader_provenance(const struct packed_reader *r);
const char *packed_reader_digest(const struct packed_reader *r); /* 64 hex digits */
const char *packed_reader_path(const struct packed_reader *r);
uint64_t packed_reader_file_size(const struct packed_reader *r);
size_t packed_reader_group_rows(const struct packed_reader *r, size_t group);
/* Cells of a column in a group, with *statistics of them. Thread safe with own `thread`. Errors: TABFT_INPUT, with the
 * place. */
int packed_reader_page(const struct packed_reader *r, int thread, size_t column, size_t group, struct cells *cells,
                       struct column_statistics *statistics, struct tabft_failure *f) TABFT_MUST_CHECK;
/* All columns of a group at once, in parallel: cells[c] has room for the group's rows. */
int packed_reader_group(const struct packed_reader *r, struct threads *pool, size_t group, struct cells *cells,
                        struct tabft_failure *f) TABFT_MUST_CHECK;
/* Every page, in parallel, and its numbers against the file's statistics. `body` (or NULL) is given each page's cells
 * once, in any order and thread; it must not fail. */
typedef void packed_page_body(void *context, size_t column, size_t group, const struct cells *cells, size_t n);
int packed_reader_walk(const struct packed_reader *r, struct threads *pool, packed_page_body *body, void *context,
                       struct tabft_failure *f) TABFT_MUST_CHECK;
/* The statistics of a column's pages, page[group * stride], must together be the file's: training trusts the counts. */
int packed_reader_check(const struct packed_reader *r, size_t column, const struct column_statistics *page,
                        size_t stride, struct tabft_failure *f) TABFT_MUST_CHECK;
int packed_reader_unchanged(const struct packed_reader *r, struct tabft_failure *f) TABFT_MUST_CHECK;
void packed_reader_close(struct packed_reader *r); /* NULL is fine */

/* ---- room for rows of all columns ---- */
/* cells[n_columns], each with room for n_rows; one allocation, freed with cells_free. */
enum { CELL_BYTES = 9 };
int cells_new(struct cells **out, size_t n_columns, size_t n_rows, struct tabft_failure *f) TABFT_MUST_CHECK;
void cells_free(struct cells *cells); /* NULL is fine */

#endif
