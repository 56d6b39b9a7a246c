/* What the reader of PyTorch checkpoints is made of. Not for other rooms. */
#ifndef TABFT_CKPT_TORCH_INTERNAL_H
#define TABFT_CKPT_TORCH_INTERNAL_H

#include "ckpt/pickle_internal.h"
#include "ckpt/text_internal.h"
#include "ckpt/zip_internal.h"

/* Puts a value as Python's json.dumps(value, sort_keys=True) does and an end (NUL). `place` is for messages. Errors:
 * TABFT_INPUT for tensors and names, floats that are not finite, keys twice, more than 64 levels, and where *t grows
 * beyond 4 MiB (values that hold others several times may be endless); TABFT_SYSTEM. */
int torch_json(struct text *t, const struct pickle *p, uint32_t value, const char *place,
               struct tabft_failure *f) TABFT_MUST_CHECK;

/* A tensor of the pickle in its storage: offset and strides in elements. */
struct torch_view {
    uint64_t offset, stride[CKPT_RANK_MAX];
    struct zip_entry *storage;
    bool contiguous;
};

/* Dtype, shape and place of a value of PICKLE_TENSOR, checked against the archive: its elements lie within the storage
 * and no two share a place. tensor->name and data stay as they are. Errors: TABFT_INPUT. */
int torch_view(struct torch_view *view, struct ckpt_tensor *tensor, const struct pickle *p, uint32_t value,
               struct zip *z, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Copies the view's elements, one after the other in order of the shape, from the bytes of its storage to `to`. */
void torch_gather(const struct torch_view *view, const struct ckpt_tensor *tensor, const void *storage, void *to);

#endif
