/* The options of tabft-prep, of all its verbs. */
#ifndef TABFT_BIN_PREP_OPTIONS_H
#define TABFT_BIN_PREP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/failure.h"
#include "table/prep.h"

/* Codes of getopt_long beside 'o'. */
enum {
    OPT_FORCE = 256,
    OPT_THREADS,
    OPT_QUIET,
    OPT_TARGET,
    OPT_TASK,
    OPT_CLASSES,
    OPT_SCHEMA,
    OPT_TEXT,
    OPT_NUMERIC,
    OPT_NA,
    OPT_NA_TEXT,
    OPT_DELIMITER,
    OPT_DECIMAL,
    OPT_NO_HEADER,
    OPT_FILL_SHORT,
    OPT_PART,
    OPT_SURVEY,
    OPT_BLOCK_BYTES,
    OPT_UNPACKED,
    OPT_TEST,
    OPT_SEED,
    OPT_TRAIN_OUT,
    OPT_TEST_OUT,
    OPT_JSON
};

/* What the options say, for all verbs. */
struct given {
    struct pack_options pack;
    struct split_options split;
    const char *output;
    bool force, quiet, json;
    uint64_t threads;
    const char **text, **numeric, **survey; /* [argc] */
    char *na, *na_text;           /* copies that the lists point into */
    const char *na_list[PACK_NA_MAX], *na_text_list[PACK_NA_MAX];
};

/* The text of --help. */
extern const char prep_help[];

/* Reads the options of a verb: those in `allowed`, ended by 0. The arguments are argv[optind..argc). */
int prep_read_options(int argc, char **argv, const int *allowed, struct given *g,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
void prep_given_clear(struct given *g);

#endif
