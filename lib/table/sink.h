/* Rows in any portions into a packed table, in whole groups. Private to lib/table. */
#ifndef TABFT_TABLE_SINK_H
#define TABFT_TABLE_SINK_H

#include "table/packed.h"

struct sink {
    struct packed_writer *w;
    size_t n_columns, n; /* rows waiting */
    struct cells *cells; /* room for two groups */
};

/* Opens the table as packed_writer_open does. */
int sink_open(struct sink *s, const struct packed_start *start, struct threads *pool,
              struct tabft_failure *f) TABFT_MUST_CHECK;
/* Appends the rows i < n (n <= TABLE_GROUP_ROWS) for which take[i] == wanted; take NULL: all. */
int sink_put(struct sink *s, const struct cells *cells, size_t n, const uint8_t *take, uint8_t wanted,
             struct tabft_failure *f) TABFT_MUST_CHECK;
int sink_close(struct sink *s, struct tabft_failure *f) TABFT_MUST_CHECK; /* publishes; clears s in every case */
void sink_abandon(struct sink *s);                                        /* all zero is fine */

#endif
