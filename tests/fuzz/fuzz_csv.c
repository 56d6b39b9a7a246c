/* Text, NPY and gzip inputs of pack. Three bytes choose the options, the rest is the file. The blocks that threads take
 * do not show in what is packed, and what is packed is sound. */
#include <string.h>

#include "fuzz.h"
#include "table/prep.h"

enum { OPTIONS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char delimiters[] = {0, ',', ';', '\t', '|', ' ', ':', 0};
    static const char *const targets[] = {NULL, NULL, "y", "a"};
    static const char *const words[] = {"a", "b", "", "NA", "-"};
    struct tabft_failure f = {0};
    if (size < OPTIONS) return 0;
    const uint8_t *o = data;
    const char *input = fuzz_file("in.csv", data + OPTIONS, size - OPTIONS);
    const char *out[2] = {fuzz_path("small.tbf"), fuzz_path("large.tbf")};
    struct pack_options options = {.input = &input,
                                   .n_inputs = 1,
                                   .force = true,
                                   .delimiter = delimiters[o[0] & 7],
                                   .point = o[0] & 8 ? ',' : '.',
                                   .no_header = (o[0] & 16) != 0,
                                   .fill_short = (o[0] & 32) != 0,
                                   .classes = (o[0] & 64) != 0,
                                   .target = targets[o[1] & 3],
                                   .task = (enum table_task)((o[1] >> 2) % 3),
                                   .text = words,
                                   .n_text = o[1] & 16 ? 1 : 0,
                                   .numeric = words + 1,
                                   .n_numeric = o[1] & 32 ? 1 : 0,
                                   .na = words + 2,
                                   .n_na = o[1] & 64 ? 3 : 0,
                                   .text_na = words + 3,
                                   .n_text_na = o[1] & 128 ? 1 : 0,
                                   .n_parts = o[2] & 7,
                                   .part = 0};
    if (options.n_parts > 0) options.part = (size_t)(o[2] >> 3) % options.n_parts;
    bool taken[2];
    for (int i = 0; i < 2; i++) {
        options.output = out[i];
        options.block_bytes = i == 0 ? 64 : PACK_BLOCK_BYTES;
        taken[i] = fuzz_taken(prep_pack(&options, NULL, &fuzz_say, &f), &f);
    }
    fuzz_hold(taken[0] == taken[1] && (!taken[0] || fuzz_same(out[0], out[1])), "the blocks of text do not show");
    if (!taken[0]) return 0;
    fuzz_hold(prep_verify(out[0], NULL, &f) == 0, "what pack writes is sound");
    fuzz_read_table(out[0]);
    return 0;
}
