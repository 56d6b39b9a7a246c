/* What tabft-prep does, a function a verb. Reports come line by line through `say`; nothing is printed here. */
#ifndef TABFT_TABLE_PREP_H
#define TABFT_TABLE_PREP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "table/table.h"

struct threads;

/* Takes one line for the user, without newline. Called from the thread that called the verb. */
struct prep_say {
    void (*line)(void *context, bool warning, const char *text);
    void *context;
};

struct pack_options {
    const char *const *input; /* [n_inputs]; "-" is stdin */
    size_t n_inputs;
    const char *output;
    bool force;
    char delimiter; /* 0: tab for .tsv and .tab, else comma */
    char point;     /* '.' or ',' */
    bool no_header;
    bool fill_short;
    const char *target;      /* or NULL */
    enum table_task task;    /* TABLE_NO_TASK: by the target's values */
    bool classes;            /* the target's cells are class names, letter for letter */
    const char *const *text; /* [n_text] columns kept as text */
    size_t n_text;
    const char *const *numeric; /* [n_numeric] columns that must be numbers */
    size_t n_numeric;
    const char *const *na; /* [n_na] what is missing in number and boolean columns, besides the empty cell */
    size_t n_na;
    const char *const *text_na; /* [n_text_na] the same in text columns */
    size_t n_text_na;
    const char *schema;        /* a packed table whose kinds, target and task are taken over, or NULL */
    size_t part, n_parts;      /* this part of all; n_parts 0: all of it */
    const char *const *survey; /* [n_survey] other parts, whose cells count for the kinds too */
    size_t n_survey;
    size_t block_bytes;      /* of text that a thread takes at a time */
    uint64_t unpacked_limit; /* bytes that a gzipped input may unpack to; 0: 1 GiB or 100 times its own size */
};
enum { PACK_BLOCK_BYTES = 1 << 20, PACK_LEVEL = 1, PACK_NA_MAX = 64 };

int prep_pack(const struct pack_options *options, struct threads *pool, const struct prep_say *say,
              struct tabft_failure *f) TABFT_MUST_CHECK;

/* Joins packed tables of the same columns, in the order given; parts of one table (pack --part) in any order. */
int prep_merge(const char *const *input, size_t n_inputs, const char *output, bool force, struct threads *pool,
               const struct prep_say *say, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Writes a table as CSV to `output` ("-": stdout). */
int prep_cat(const char *input, const char *output, bool force, struct threads *pool,
             struct tabft_failure *f) TABFT_MUST_CHECK;

/* What a file holds, as text for people or as JSON; the caller frees *text. */
int prep_info(const char *input, bool json, char **text, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Reads every byte, and every cell against the statistics. */
int prep_verify(const char *input, struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;

struct split_options {
    const char *input, *train, *test;
    bool force;
    double fraction; /* of the rows for the test table, if rows is 0 */
    uint64_t rows;
    uint32_t seed;
};
/* Draws the rows of the test table: by class for a classification target, else from all rows. Order is kept. */
int prep_split(const struct split_options *options, struct threads *pool, const struct prep_say *say,
               struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
