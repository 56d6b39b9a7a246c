/* Tensors by name in files: safetensors in and out. Nothing here knows a network.
 *
 * The reader believes nothing a header says: sizes, offsets, shapes, names and text are checked before a tensor is
 * touched, and a file with bytes missing, bytes over, holes or overlaps is refused as a whole. Beyond the bytes of the
 * file itself it takes at most about 32 MiB. */
#ifndef TABFT_CKPT_CKPT_H
#define TABFT_CKPT_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

enum ckpt_dtype {
    CKPT_F32,
    CKPT_F64,
    CKPT_F16,
    CKPT_BF16,
    CKPT_I64,
    CKPT_I32,
    CKPT_I16,
    CKPT_I8,
    CKPT_U8,
    CKPT_BOOL,
    CKPT_U64,
    CKPT_U32,
    CKPT_U16,
    CKPT_DTYPES /* how many there are */
};

/* What a file may have at most; more is refused by name. The safetensors library has the same limit on headers. */
enum { CKPT_RANK_MAX = 8, CKPT_TENSORS_MAX = 100000, CKPT_METADATA_MAX = 10000, CKPT_HEADER_MAX = 100000000 };

struct ckpt_tensor {
    const char *name; /* UTF-8, ends in NUL, has none inside */
    enum ckpt_dtype dtype;
    int rank;
    uint64_t shape[CKPT_RANK_MAX];
    uint64_t count;   /* elements; 1 for rank 0 */
    const void *data; /* little-endian, contiguous; in a loaded file aligned to 64 bytes */
};

/* A loaded file: tensors sorted by name (bytes), metadata strings in file order (TabPFN stores JSON texts in them:
 * "architecture_name", "config", "inference_config"). Immutable but for ckpt_forget, so thread safe. */
struct ckpt;

/* Loads a file, data too. Errors: TABFT_INPUT naming the file and what is wrong in it (bytes found and bytes needed
 * where it is cut), TABFT_SYSTEM where it cannot be read or memory is short. */
int ckpt_open(struct ckpt **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The same checks, but every tensor's data stays NULL and is not read. */
int ckpt_open_header(struct ckpt **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
size_t ckpt_count(const struct ckpt *c);
const struct ckpt_tensor *ckpt_at(const struct ckpt *c, size_t i);
const struct ckpt_tensor *ckpt_find(const struct ckpt *c, const char *name); /* NULL if absent */
const char *ckpt_metadata(const struct ckpt *c, const char *key);            /* NULL if absent */
size_t ckpt_metadata_count(const struct ckpt *c);
void ckpt_metadata_at(const struct ckpt *c, size_t i, const char **key, const char **value);
const char *ckpt_path(const struct ckpt *c);
uint64_t ckpt_file_size(const struct ckpt *c); /* bytes */
/* SHA-256 of the file's bytes as 64 lower-case hex digits and the end; of ckpt_open only. */
void ckpt_digest(const struct ckpt *c, char hex[65]);
/* For who has copied them: gives a tensor's numbers back to the system, all else of the file stays. Its data are NULL
 * from then on. */
void ckpt_forget(struct ckpt *c, const struct ckpt_tensor *t);
void ckpt_close(struct ckpt *c); /* NULL is fine */

/* Element i of a loaded tensor as double, whatever the dtype; integers beyond 2^53 are rounded. */
double ckpt_value(const struct ckpt_tensor *t, uint64_t i);
const char *ckpt_dtype_name(enum ckpt_dtype dtype); /* as in the file: "F32" */
size_t ckpt_dtype_size(enum ckpt_dtype dtype);      /* bytes an element */

/* Writes the bytes that the safetensors library writes for the same tensors: sorted by dtype and name, metadata in the
 * order given (the library's own order is arbitrary), header padded to 8 bytes. Publishes the file whole or not at all;
 * an existing one is replaced only under `force`. metadata: pairs key, value. Errors: TABFT_INPUT for a doubled name,
 * text that is not UTF-8 or a count that is not the product of the shape; else what lib/file reports. */
int ckpt_write(const char *path, bool force, const struct ckpt_tensor *tensors, size_t n_tensors,
               const char *const (*metadata)[2], size_t n_metadata, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
