/* .tbf files: as the bytes are, and once more with every CRC-32 and the digest made right, so that what lies behind them
 * is reached. The three ways of reading a container agree. */
#include <libdeflate.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tbf/tbf_internal.h"

static bool read_by_index(const char *path)
{
    struct tabft_failure f = {0};
    struct tbf_reader *r = NULL;
    struct tbf_codec *c = NULL;
    fuzz_hold(tbf_codec_open(&c, 0, &f) == 0, "there is memory for a codec");
    bool taken = fuzz_taken(tbf_reader_open(&r, path, &f), &f);
    for (size_t i = 0; taken && i < tbf_reader_count(r); i++) {
        struct tbf_record record;
        void *data = NULL;
        taken = fuzz_taken(tbf_reader_get(r, c, i, &record, &data, &f), &f);
        fuzz_hold(!taken || (record.size <= TBF_PAYLOAD_MAX && record.type != TBF_TYPE_INDEX), "records are bounded");
        free(data);
    }
    tbf_reader_close(r);
    tbf_codec_close(c);
    return taken;
}

static bool read_as_stream(const char *path)
{
    struct tabft_failure f = {0};
    struct tbf_stream *s = NULL;
    bool end = false, taken = fuzz_taken(tbf_stream_open(&s, path, &f), &f);
    while (taken && !end) {
        struct tbf_record record;
        void *data = NULL;
        taken = fuzz_taken(tbf_stream_get(s, &record, &data, &end, &f), &f);
        free(data);
    }
    tbf_stream_close(s);
    return taken;
}

static void read_all(const uint8_t *data, size_t size)
{
    struct tabft_failure f = {0};
    const char *path = fuzz_file("in.tbf", data, size);
    const bool by_index = read_by_index(path), as_stream = read_as_stream(path);
    const bool verified = fuzz_taken(tbf_verify(path, NULL, &f), &f);
    fuzz_hold(verified == as_stream && (!verified || by_index), "verify, a stream and the index agree");
    fuzz_read_table(path);
}

/* The member at `m`, of at most `left` bytes: CRCs made right. Its size, 0 where there is none. */
static size_t repair_member(struct libdeflate_decompressor *d, uint8_t *m, size_t left, uint8_t leaf[SHA256_DIGEST_SIZE])
{
    if (left < TBF_MEMBER_MIN) return 0;
    const size_t packed = get_u32(m + 16), raw = get_u32(m + 20), size = TBF_HEAD_SIZE + packed + TBF_TAIL_SIZE;
    if (size > left) return 0;
    put_u32(m + 24, libdeflate_crc32(0, m + TBF_HEAD_SIZE, packed));
    size_t got = 0;
    uint8_t *content = raw <= 1 << 20 ? malloc(raw + 1) : NULL;
    if (content != NULL && libdeflate_deflate_decompress(d, m + TBF_HEAD_SIZE, packed, content, raw, &got) == LIBDEFLATE_SUCCESS) {
        put_u32(m + TBF_HEAD_SIZE + packed, libdeflate_crc32(0, content, got));
        put_u32(m + TBF_HEAD_SIZE + packed + 4, (uint32_t)raw);
    }
    free(content);
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, size, m);
    sha256_digest(&sha, SHA256_DIGEST_SIZE, leaf);
    return size;
}

/* Members one after the other; what follows the last whole one is left alone. The last is taken for the index. */
static void repair(uint8_t *bytes, size_t size)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    uint8_t leaf[SHA256_DIGEST_SIZE], crc[64][4];
    struct sha256_ctx sha;
    size_t at = 0, last = 0, n = 0;
    sha256_init(&sha);
    for (size_t part; (part = repair_member(d, bytes + at, size - at, leaf)) > 0; at += part, n++) {
        last = at;
        if (at + part == size) break;
        if (n < 64) memcpy(crc[n], bytes + at + 24, 4);
        sha256_update(&sha, sizeof leaf, leaf);
    }
    uint8_t *payload = bytes + last + TBF_HEAD_SIZE + 5 + TBF_RECORD_HEADER;
    const size_t left = n > 0 && size - last > 5 + TBF_RECORD_HEADER + TBF_HEAD_SIZE ? size - (size_t)(payload - bytes) : 0;
    if (left >= TBF_INDEX_HEADER) {
        sha256_digest(&sha, SHA256_DIGEST_SIZE, payload + 32);
        for (size_t i = 0; i < n && i < 64 && TBF_INDEX_HEADER + (i + 1) * TBF_ENTRY_SIZE + TBF_TAIL_SIZE <= left; i++)
            memcpy(payload + TBF_INDEX_HEADER + i * TBF_ENTRY_SIZE + 8, crc[i], 4);
        (void)repair_member(d, bytes + last, size - last, leaf);
    }
    libdeflate_free_decompressor(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_all(data, size);
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL) return 0;
    if (size > 0) memcpy(copy, data, size);
    repair(copy, size);
    if (size > 0 && memcmp(copy, data, size) != 0) read_all(copy, size);
    free(copy);
    return 0;
}
