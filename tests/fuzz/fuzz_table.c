/* Packed tables and predictions inside a sound container: the input is a list of records, each type and width of items
 * (1 byte: type in the low 6 bits, strategy above), two tags and the payload's size (2 bytes each), payload. They are
 * written with the right numbers, sizes, CRCs and digest, so that what tables themselves promise is what is tried. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tbf/tbf.h"

enum { HEAD = 7 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t id[16] = {1};
    struct tabft_failure f = {0};
    struct tbf_writer *w = NULL;
    struct tbf_codec *c = NULL;
    const char *path = fuzz_path("in.tbf");
    fuzz_hold(tbf_codec_open(&c, 0, &f) == 0 && tbf_writer_open(&w, path, true, id, &f) == 0, "a writer opens");
    for (size_t at = 0; size - at >= HEAD;) {
        const uint8_t *head = data + at;
        size_t payload = head[5] | (size_t)head[6] << 8;
        at += HEAD;
        if (payload > size - at) payload = size - at;
        const struct tbf_record record = {.type = (head[0] & 63u) == 0 ? 1 : head[0] & 63u,
                                          .version = 1,
                                          .tag = {head[1] | (uint32_t)head[2] << 8, head[3] | (uint32_t)head[4] << 8},
                                          .data = data + at,
                                          .size = payload,
                                          .strategy = (enum tbf_strategy)((head[0] >> 6) % 3)};
        fuzz_hold(tbf_writer_put(w, c, &record, &f) == 0, "any record can be written");
        at += payload;
    }
    fuzz_hold(tbf_writer_close(w, &f) == 0 && tbf_verify(path, NULL, &f) == 0, "the container is sound");
    tbf_codec_close(c);
    fuzz_read_table(path);
    return 0;
}
