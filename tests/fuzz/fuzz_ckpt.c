/* PyTorch checkpoints. An input that begins as a zip archive is read as it is, and with the CRC-32 of each entry made
 * right; any other is a pickle, put into a sound archive with two storages. What is taken converts to a safetensors file
 * that can be read. */
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/torch.h"
#include "fuzz.h"

static uint32_t number(const uint8_t *p, unsigned bytes)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < bytes; i++) v |= (uint32_t)p[i] << 8 * i;
    return v;
}

static void put(uint8_t *p, unsigned bytes, uint64_t v)
{
    for (unsigned i = 0; i < bytes; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static void read_checkpoint(const uint8_t *data, size_t size)
{
    struct tabft_failure f = {0};
    struct torch_file t = {0};
    struct ckpt *c = NULL;
    const char *path = fuzz_file("in.ckpt", data, size), *out = fuzz_path("out.safetensors");
    const bool taken = fuzz_taken(torch_open(&t, path, &f), &f);
    uint64_t sum = 0;
    for (size_t i = 0; taken && i < t.n_tensors; i++)
        for (uint64_t b = 0; b < t.tensor[i].count * ckpt_dtype_size(t.tensor[i].dtype); b++)
            sum += ((const uint8_t *)t.tensor[i].data)[b];
    fuzz_hold(sum < UINT64_MAX, "every byte of a tensor can be read");
    if (taken) torch_close(&t);
    if (torch_begins(data, size) && fuzz_taken(ckpt_convert(path, out, true, &f), &f)) {
        fuzz_hold(taken, "what is converted was taken");
        fuzz_hold(ckpt_open(&c, out, &f) == 0, "what is converted can be read");
        ckpt_close(c);
    }
}

/* Walks the directory and gives each stored entry its CRC-32, there and behind its bytes. */
static void repair(uint8_t *b, size_t size)
{
    for (size_t at = 0; at + 46 <= size; at++) {
        if (memcmp(b + at, "PK\1\2", 4) != 0) continue;
        const uint32_t bytes = number(b + at + 20, 4), local = number(b + at + 42, 4);
        if (local > size || size - local < 30) continue;
        const size_t begin = (size_t)local + 30 + number(b + local + 26, 2) + number(b + local + 28, 2);
        if (begin > size || bytes > size - begin) continue;
        const uint32_t crc = libdeflate_crc32(0, b + begin, bytes);
        put(b + at + 16, 4, crc);
        if (size - begin - bytes >= 8 && memcmp(b + begin + bytes, "PK\7\10", 4) == 0) put(b + begin + bytes + 4, 4, crc);
    }
}

/* ---- an archive around a pickle ---- */

struct bytes {
    uint8_t *at;
    size_t size;
};

static void add(struct bytes *z, const void *data, size_t size)
{
    if (size > 0) memcpy(z->at + z->size, data, size);
    z->size += size;
}

static void add_number(struct bytes *z, unsigned bytes, uint64_t v)
{
    put(z->at + z->size, bytes, v);
    z->size += bytes;
}

struct entry {
    const char *name;
    const void *data;
    size_t size, local;
};

static void add_entry(struct bytes *z, struct entry *e)
{
    e->local = z->size;
    add(z, "PK\3\4\0\0\x8\x8\0\0\0\0\0\0", 14);
    add(z, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
    add_number(z, 2, strlen(e->name));
    add_number(z, 2, 0);
    add(z, e->name, strlen(e->name));
    add(z, e->data, e->size);
    add(z, "PK\7\10", 4);
    add_number(z, 4, libdeflate_crc32(0, e->data, e->size));
    add_number(z, 4, e->size);
    add_number(z, 4, e->size);
}

static void add_directory(struct bytes *z, const struct entry *e, size_t n)
{
    const size_t begin = z->size;
    for (size_t i = 0; i < n; i++) {
        add(z, "PK\1\2\0\0\0\0\x8\x8\0\0\0\0\0\0", 16);
        add_number(z, 4, libdeflate_crc32(0, e[i].data, e[i].size));
        add_number(z, 4, e[i].size);
        add_number(z, 4, e[i].size);
        add_number(z, 2, strlen(e[i].name));
        add(z, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
        add_number(z, 4, e[i].local);
        add(z, e[i].name, strlen(e[i].name));
    }
    const size_t size = z->size - begin;
    add(z, "PK\5\6\0\0\0\0", 8);
    add_number(z, 2, n);
    add_number(z, 2, n);
    add_number(z, 4, size);
    add_number(z, 4, begin);
    add_number(z, 2, 0);
}

static void read_pickle(const uint8_t *data, size_t size)
{
    static const float storage[2][8] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    struct bytes z = {malloc(size + 2048), 0};
    struct entry e[4] = {{.name = "a/data.pkl", .data = data, .size = size},
                         {.name = "a/data/0", .data = storage[0], .size = 16},
                         {.name = "a/data/1", .data = storage[1], .size = 32},
                         {.name = "a/version", .data = "3\n", .size = 2}};
    if (z.at == NULL) return;
    for (size_t i = 0; i < 4; i++) add_entry(&z, &e[i]);
    add_directory(&z, e, 4);
    read_checkpoint(z.at, z.size);
    free(z.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || memcmp(data, "PK", 2) != 0) {
        read_pickle(data, size);
        return 0;
    }
    read_checkpoint(data, size);
    uint8_t *copy = malloc(size);
    if (copy == NULL) return 0;
    memcpy(copy, data, size);
    repair(copy, size);
    if (memcmp(copy, data, size) != 0) read_checkpoint(copy, size);
    free(copy);
    return 0;
}
