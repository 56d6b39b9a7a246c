/* What the fuzzers share. Each fuzz_NAME.c has one LLVMFuzzerTestOneInput: libFuzzer's main calls it millions of times
 * (tests/fuzz/run), replay.c once for each stored input (`make check`). A reader that crashes, leaks, takes memory it
 * should not, or breaks a promise of its own (fuzz_hold) ends the program. */
#ifndef TABFT_TESTS_FUZZ_H
#define TABFT_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct prep_say;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file of that name in a folder of this process, which is in memory where there is /dev/shm and goes at exit; the
 * path of fuzz_file and fuzz_path is static storage, good until the eighth call after it. */
const char *fuzz_path(const char *name);
const char *fuzz_file(const char *name, const void *data, size_t size);

/* Aborts unless `held`, saying what was promised. */
void fuzz_hold(bool held, const char *promise);
/* The result of a reader: 0, or refused as an input is, with one printable line; clears *f. True if it was taken. */
bool fuzz_taken(int error, struct tabft_failure *f);
/* Both files have the same bytes. */
bool fuzz_same(const char *a, const char *b);

/* ---- tables (fuzz_table_file.c) ---- */
/* Takes reports and holds them to printable lines. */
extern const struct prep_say fuzz_say;
/* Reads a .tbf file in every way a tool does and holds the answers against each other. */
void fuzz_read_table(const char *path);

#endif
