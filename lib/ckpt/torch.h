/* PyTorch checkpoints of TabPFN (.ckpt: a zip archive of stored entries, one of them a pickle), read without running
 * anything in them, and their way into safetensors. */
#ifndef TABFT_CKPT_TORCH_H
#define TABFT_CKPT_TORCH_H

#include "ckpt/ckpt.h"

struct torch_file {
    struct ckpt_tensor *tensor; /* [n_tensors] the state_dict, in its order; contiguous, data aligned to 64 bytes */
    size_t n_tensors;
    const char *(*metadata)[2]; /* [n_metadata] key and JSON text of all that lies beside the state_dict, in its order;
                                   the texts are those of Python's json.dumps with sorted keys */
    size_t n_metadata;
    struct torch_buffers *buffers; /* what the above points into */
};

/* Reads a file of torch.save. Refused are: archives with compressed entries, holes, overlaps, names twice, two sizes
 * for one thing or a wrong CRC-32; pickles with opcodes or names that tensors do not need; tensors outside their
 * storage, with elements that share a place, or with more bytes together than the file has; values that JSON has no word for.
 * At most about 64 MiB and twice the file's size in memory. Free *out with torch_close. Errors: TABFT_INPUT naming the
 * entry, opcode, name or tensor; TABFT_SYSTEM. */
int torch_open(struct torch_file *out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
void torch_close(struct torch_file *t);

/* Whether these first bytes of a file are those of a zip archive. */
bool torch_begins(const void *bytes, size_t size);

/* Writes the checkpoint in file `in` (safetensors, or PyTorch's) as safetensors, by the rules of ckpt_write. Errors: of
 * ckpt_open, torch_open and ckpt_write. */
int ckpt_convert(const char *in, const char *out, bool force, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
