/* safetensors files: what is taken has tensors inside the file, and is the same after it was written again. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "ckpt/compare.h"
#include "fuzz.h"

static void write_again(const struct ckpt *c, const char *path)
{
    struct tabft_failure f = {0};
    struct ckpt_tensor *tensor = NULL;
    const char *(*metadata)[2] = NULL;
    const size_t n = ckpt_count(c), n_metadata = ckpt_metadata_count(c);
    fuzz_hold(memory_new(&tensor, n + 1, sizeof *tensor, "tensors", &f) == 0 &&
                  memory_new(&metadata, n_metadata + 1, sizeof *metadata, "metadata", &f) == 0,
              "there is memory");
    for (size_t i = 0; i < n; i++) tensor[i] = *ckpt_at(c, i);
    for (size_t i = 0; i < n_metadata; i++) ckpt_metadata_at(c, i, &metadata[i][0], &metadata[i][1]);
    const bool written =
        fuzz_taken(ckpt_write(path, true, tensor, n, (const char *const(*)[2])metadata, n_metadata, &f), &f);
    free(tensor);
    free(metadata);
    fuzz_hold(written, "what was read can be written");
    struct ckpt *again = NULL;
    struct ckpt_comparison comparison = {0};
    fuzz_hold(ckpt_open(&again, path, &f) == 0 && ckpt_compare(c, again, &comparison, &f) == 0 && comparison.identical,
              "what is written reads as it was");
    ckpt_comparison_clear(&comparison);
    ckpt_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tabft_failure f = {0};
    struct ckpt *c = NULL, *header = NULL;
    const char *path = fuzz_file("in.safetensors", data, size);
    const bool described = fuzz_taken(ckpt_open_header(&header, path, &f), &f), loaded = fuzz_taken(ckpt_open(&c, path, &f), &f);
    fuzz_hold(described == loaded, "the header alone decides");
    for (size_t i = 0; loaded && i < ckpt_count(c); i++) {
        const struct ckpt_tensor *t = ckpt_at(c, i);
        fuzz_hold(ckpt_find(c, t->name) == t, "a tensor is found by its name");
        if (t->count > 0) (void)ckpt_value(t, 0), (void)ckpt_value(t, t->count - 1);
    }
    if (loaded) write_again(c, fuzz_path("again.safetensors"));
    ckpt_close(header);
    ckpt_close(c);
    return 0;
}
