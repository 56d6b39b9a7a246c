/* What the mains share: verbs, --help and --version, the error line, the exit status. Nothing here knows tables or
 * models. */
#ifndef TABFT_BIN_TOOL_H
#define TABFT_BIN_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "base/failure.h"

/* argv[0] is the verb, so that getopt_long can have it. Returns 0 or a code of enum tabft_error. */
typedef int tool_run(int argc, char **argv, struct tabft_failure *f);

struct tool_verb {
    const char *name; /* NULL ends a list */
    tool_run *run;
};

struct tool {
    const char *name; /* "tabft-eval" */
    const char *help; /* the whole text of --help */
    const struct tool_verb *verbs;
};

/* A main of a tool with verbs: signals, --help and --version wherever they stand before "--", the verb, tool_end. */
int tool_main(const struct tool *tool, int argc, char **argv);

/* Name, version and licence on stdout, in GNU's form. */
void tool_version(const char *name);
/* The error line on stderr if error < 0, stdout closed and checked; the exit status for main. */
int tool_end(const char *name, int error, struct tabft_failure *f);

/* The failure for what getopt_long returned (':' or '?' with opterr 0). */
int tool_bad_option(char **argv, int found, struct tabft_failure *f);
/* A whole number from min to max. `option` is for the message. */
int tool_integer(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out,
                 struct tabft_failure *f) TABFT_MUST_CHECK;

/* Bytes: a whole number, alone or with K, M, G or T (powers of 1024); at least 1. */
int tool_bytes(const char *option, const char *text, uint64_t *out, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Text from a file for a terminal: control bytes become '?'. */
void tool_put_text(FILE *to, const char *text);
/* Prints `root` (which it takes) and a newline on stdout. Errors: TABFT_SYSTEM where root is NULL or not whole
 * (memory). */
int tool_put_json(json_t *root, bool whole, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
