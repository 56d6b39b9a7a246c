/* Input files of pack, readable at positions whatever they are: regular files as they lie, gzipped ones and pipes
 * through a scratch file. Text or NPY is told by the first bytes. Private to lib/table. */
#ifndef TABFT_TABLE_INPUT_H
#define TABFT_TABLE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "table/digest.h"

struct file_reader;
struct file_scratch;

struct input {
    const char *path; /* as given; "-" is called stdin in messages */
    const char *name; /* its last part, for provenance */
    struct file_reader *reader;
    struct file_scratch *scratch; /* instead of reader */
    uint64_t size;                /* bytes that input_get reads: unpacked */
    uint64_t stored_size;         /* bytes of the file as it lies */
    bool digested;                /* `digest` is known already (it went through a scratch file) */
    struct digest digest;         /* of the bytes as they lie */
    uint64_t start;               /* where text begins: after a byte-order mark */
    bool is_npy;
};

/* Only path, name and stored size, of a regular file; *plain: it is not gzipped, so it can be read anywhere. Refuses
 * pipes. */
int input_look(struct input *in, const char *path, bool *plain, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Opens and, where needed, unpacks. `near` is the output, beside which scratch files lie. Refuses UTF-16 and UTF-32 by
 * name. What unpacks to more than unpacked_limit bytes (0: 1 GiB or 100 times as many as it has packed) is refused
 * when it gets there, and so is a record of more than RECORD_MAX bytes. */
int input_open(struct input *in, const char *path, const char *near, uint64_t unpacked_limit,
               struct tabft_failure *f) TABFT_MUST_CHECK;
/* Exactly `size` bytes. Thread safe. */
int input_get(const struct input *in, uint64_t offset, void *data, size_t size,
              struct tabft_failure *f) TABFT_MUST_CHECK;
/* Fails where the file changed since open. */
int input_unchanged(const struct input *in, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Line and byte in it, from 1, of a byte; reads the file up to there. */
int input_place(const struct input *in, uint64_t offset, uint64_t *line, uint64_t *column,
                struct tabft_failure *f) TABFT_MUST_CHECK;
/* Records "path:line:column: message", TABFT_INPUT. */
int input_fail(const struct input *in, uint64_t offset, struct tabft_failure *f, const char *format, ...)
    TABFT_PRINTF(4, 5);
const char *input_said(const struct input *in);                  /* the path for messages */
bool input_named(const struct input *in, const char *extension); /* NAME.extension or NAME.extension.gz, any case */
void input_close(struct input *in);

#endif
