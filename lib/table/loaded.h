/* A loaded table and what its pointers point into. Private to lib/table. */
#ifndef TABFT_TABLE_LOADED_H
#define TABFT_TABLE_LOADED_H

#include "table/packed.h"
#include "table/table.h"

struct loaded {
    struct table table;           /* first: callers hold a pointer to it */
    struct packed_reader *reader; /* names, labels, dictionaries, digest and path live here */
    struct table_column *column;  /* [n_columns without target] */
    double *value;                /* [all columns][n_rows] in file order, the target's [n_rows], or NULL */
    int n_threads;                /* that may read pages at a time */
};

static inline const struct loaded *loaded_of(const struct table *t) { return (const struct loaded *)t; }

/* What a thread that has read any page keeps: the largest as it lies in the file, and inflated. */
size_t loaded_codec_bytes(const struct loaded *t);

/* The place in the file's schema of column c of the table. */
static inline size_t loaded_place(const struct loaded *t, size_t c)
{
    const struct schema *s = packed_reader_schema(t->reader);
    return s->target != TABLE_NO_TARGET && c >= (size_t)s->target ? c + 1 : c;
}

#endif
