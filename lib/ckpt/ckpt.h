/* Tensors by name in files: safetensors in and out. Nothing here knows a network. */
#ifndef TABFT_CKPT_CKPT_H
#define TABFT_CKPT_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

enum ckpt_dtype { CKPT_F32, CKPT_F64, CKPT_F16, CKPT_BF16, CKPT_I64, CKPT_I32, CKPT_I16, CKPT_I8, CKPT_U8, CKPT_BOOL };
enum { CKPT_RANK_MAX = 8 };

struct ckpt_tensor {
    const char *name;
    enum ckpt_dtype dtype;
    int rank;
    uint64_t shape[CKPT_RANK_MAX];
    uint64_t count;    /* elements */
    const void *data;  /* little-endian, contiguous */
};

/* A loaded file: tensors sorted by name, metadata strings (TabPFN stores JSON texts in them: "architecture_name",
 * "config", "inference_config"). Immutable. */
struct ckpt;
int ckpt_open(struct ckpt **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;        /* data loaded too */
int ckpt_open_header(struct ckpt **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK; /* data NULL */
size_t ckpt_count(const struct ckpt *c);
const struct ckpt_tensor *ckpt_at(const struct ckpt *c, size_t i);
const struct ckpt_tensor *ckpt_find(const struct ckpt *c, const char *name); /* NULL if absent */
const char *ckpt_metadata(const struct ckpt *c, const char *key);            /* NULL if absent */
size_t ckpt_metadata_count(const struct ckpt *c);
void ckpt_metadata_at(const struct ckpt *c, size_t i, const char **key, const char **value);
const char *ckpt_path(const struct ckpt *c);
/* SHA-256 of the file's bytes as 65 characters with the end; of ckpt_open only. */
void ckpt_digest(const struct ckpt *c, char hex[65]);
void ckpt_close(struct ckpt *c);

/* Element i of a tensor as double, whatever the dtype. */
double ckpt_value(const struct ckpt_tensor *t, uint64_t i);

/* Writes a file as TabPFN and the safetensors library write it (names sorted as they do, 8-byte alignment); publishes it
 * whole or not at all. metadata: pairs key, value. */
int ckpt_write(const char *path, bool force, const struct ckpt_tensor *tensors, size_t n_tensors,
               const char *const (*metadata)[2], size_t n_metadata, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
