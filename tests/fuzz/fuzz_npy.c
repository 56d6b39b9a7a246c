/* NPY files, whole: what is packed of one is sound. */
#include <string.h>

#include "fuzz.h"
#include "table/prep.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char magic[] = "\x93NUMPY\1";
    struct tabft_failure f = {0};
    if (size < sizeof magic - 1 || memcmp(data, magic, 6) != 0) return 0;
    const char *input = fuzz_file("in.npy", data, size);
    const struct pack_options options = {.input = &input,
                                         .n_inputs = 1,
                                         .output = fuzz_path("out.tbf"),
                                         .force = true,
                                         .point = '.',
                                         .block_bytes = 4096};
    if (fuzz_taken(prep_pack(&options, NULL, &fuzz_say, &f), &f))
        fuzz_hold(prep_verify(options.output, NULL, &f) == 0, "what pack writes is sound");
    return 0;
}
