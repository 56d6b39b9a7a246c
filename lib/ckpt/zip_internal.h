/* The zip archives that torch.save writes, read strictly: stored entries that fill the file from its first byte to the
 * directory without a hole or an overlap, every copy of a size, name or offset equal to the others. No name of an
 * archive is ever used as a path. Not for other rooms. */
#ifndef TABFT_CKPT_ZIP_INTERNAL_H
#define TABFT_CKPT_ZIP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

#ifndef TABFT_IN_CKPT
#error "zip_internal.h belongs to lib/ckpt"
#endif

struct zip_entry {
    const char *name; /* without the root folder: "data/0"; ends in NUL */
    uint64_t begin;   /* where its bytes begin in the file */
    uint32_t size, crc;
    bool checked; /* its bytes have been compared with crc */
};

struct zip; /* not thread safe */

/* Opens an archive and checks its form, but no entry's bytes. All entries lie in one root folder. At most 65534 entries
 * and 4 GiB. Errors: TABFT_INPUT naming the entry and what is wrong, TABFT_SYSTEM. */
int zip_open(struct zip **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
size_t zip_count(const struct zip *z);
uint64_t zip_file_size(const struct zip *z);
struct zip_entry *zip_at(struct zip *z, size_t i);           /* in the order of names */
struct zip_entry *zip_find(struct zip *z, const char *name); /* NULL if absent */
/* Reads an entry's bytes, data[size], and checks their CRC-32. */
int zip_get(struct zip *z, struct zip_entry *e, void *data, struct tabft_failure *f) TABFT_MUST_CHECK;
/* To be called last: checks the CRC-32 of every entry not read so far, and that the file did not change since. */
int zip_finish(struct zip *z, struct tabft_failure *f) TABFT_MUST_CHECK;
void zip_close(struct zip *z); /* NULL is fine */

#endif
