/* What the files of lib/ckpt share. Not for other rooms. */
#ifndef TABFT_CKPT_SAFETENSORS_INTERNAL_H
#define TABFT_CKPT_SAFETENSORS_INTERNAL_H

#include "ckpt/ckpt.h"

#ifndef TABFT_IN_CKPT
#error "safetensors_internal.h belongs to lib/ckpt"
#endif

/* One tensor of a header; bytes [begin, end) count from the end of the header. */
struct safetensors_entry {
    struct ckpt_tensor tensor;
    uint64_t begin, end;
};

struct safetensors_pair {
    const char *key, *value;
};

/* A parsed header. Names and metadata point into `text`, which the parser rewrites in place. */
struct safetensors_header {
    char *text; /* owned; one byte longer than the header in the file */
    struct safetensors_entry *entry;
    size_t n_entries;
    struct safetensors_pair *pair;
    size_t n_pairs;
};

/* Parses `size` bytes of header->text and checks everything that can be checked without the data: grammar, names,
 * shapes against offsets, no holes, no overlaps. Leaves the entries in file order (by begin) and *data_size = the bytes
 * of data that they need. `path` is for messages. Errors: TABFT_INPUT, TABFT_SYSTEM. */
int safetensors_parse(struct safetensors_header *header, size_t size, const char *path, uint64_t *data_size,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
void safetensors_header_clear(struct safetensors_header *header);

/* The dtype with that name, or -1. */
int safetensors_dtype(const char *name);
/* Where a dtype stands in the order in which the library lays tensors out: larger first. */
int safetensors_dtype_order(enum ckpt_dtype dtype);
/* Bytes of the UTF-8 character at text[0..size), 0 where there is none (also for surrogates and overlong forms). */
size_t safetensors_utf8(const unsigned char *text, size_t size);

#endif
