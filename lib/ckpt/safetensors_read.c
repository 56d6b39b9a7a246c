/* Loading a safetensors file: 8 bytes of header size, the header, the data. */
#define TABFT_IN_CKPT
#include "ckpt/safetensors_internal.h"
#include "ckpt/torch.h"

#include <assert.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file.h"

struct ckpt {
    char *path;
    struct safetensors_header header; /* entries by name once open */
    unsigned char *data;
    uint64_t file_size;
    bool loaded;
    char digest[65];
};

enum { PREFIX = 8, ALIGNMENT = 64, READ_SIZE = 4 << 20 };

/* Reads the size and the header; *data_start = where data begin. The file must have exactly what the header needs. */
static int read_header(struct ckpt *c, const struct file_reader *r, struct sha256_ctx *hash, uint64_t *data_start,
                       struct tabft_failure *f)
{
    int error = 0;
    uint64_t header_size, data_size, needed;
    unsigned long long found = file_reader_size(r);
    c->file_size = found;
    if (found < PREFIX)
        FAIL(f, TABFT_INPUT,
             "%s: cut short: %llu bytes found, at least %d needed; not a safetensors file, copy it again", c->path,
             found, PREFIX + 2);
    TRY(file_reader_get(r, 0, &header_size, PREFIX, f));
    if (torch_begins(&header_size, PREFIX))
        FAIL(f, TABFT_INPUT, "%s: a PyTorch checkpoint; first: tabft-model convert %s OUT.safetensors", c->path,
             c->path);
    if (header_size > CKPT_HEADER_MAX)
        FAIL(f, TABFT_INPUT,
             "%s: its first 8 bytes announce a header of %llu bytes, more than %d; not a safetensors file", c->path,
             (unsigned long long)header_size, CKPT_HEADER_MAX);
    *data_start = PREFIX + header_size;
    if (found < *data_start)
        FAIL(f, TABFT_INPUT, "%s: cut short in its header: %llu bytes found, at least %llu needed; copy it again",
             c->path, found, (unsigned long long)*data_start);
    TRY(memory_new(&c->header.text, (size_t)header_size + 1, 1, "header of a safetensors file", f));
    TRY(file_reader_get(r, PREFIX, c->header.text, (size_t)header_size, f));
    sha256_update(hash, PREFIX, (const uint8_t *)&header_size);
    sha256_update(hash, (size_t)header_size, (const uint8_t *)c->header.text);
    TRY(safetensors_parse(&c->header, (size_t)header_size, c->path, &data_size, f));
    if (__builtin_add_overflow(*data_start, data_size, &needed))
        FAIL(f, TABFT_INPUT, "%s: header: data of more than 2^64 bytes", c->path);
    if (found < needed)
        FAIL(f, TABFT_INPUT, "%s: cut short in its data: %llu bytes found, %llu needed; copy it again", c->path, found,
             (unsigned long long)needed);
    if (found > needed)
        FAIL(f, TABFT_INPUT, "%s: %llu bytes found, %llu needed: something was appended; copy it again", c->path, found,
             (unsigned long long)needed);
fail:
    return error;
}

/* Every tensor to an aligned place of its own (a file need not align), in file order, so that the digest sees the file.
 */
static int read_data(struct ckpt *c, const struct file_reader *r, struct sha256_ctx *hash, uint64_t data_start,
                     struct tabft_failure *f)
{
    int error = 0;
    size_t total = 0, place = 0;
    for (size_t i = 0; i < c->header.n_entries; i++) {
        size_t size = (size_t)(c->header.entry[i].end - c->header.entry[i].begin);
        if (!size_add(total, size, &total) || !size_add(total, ALIGNMENT - 1, &total))
            FAIL(f, TABFT_SYSTEM, "%s: too large for this machine's memory", c->path);
        total = total / ALIGNMENT * ALIGNMENT;
    }
    TRY(memory_new_aligned(&c->data, total, 1, "weights", f));
    for (size_t i = 0; i < c->header.n_entries; i++) {
        struct safetensors_entry *e = &c->header.entry[i];
        size_t size = (size_t)(e->end - e->begin);
        e->tensor.data = c->data + place;
        for (size_t done = 0, part; done < size; done += part) {
            part = size - done < READ_SIZE ? size - done : READ_SIZE;
            TRY(file_reader_get(r, data_start + e->begin + done, c->data + place + done, part, f));
            sha256_update(hash, part, c->data + place + done);
        }
        place += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
fail:
    return error;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_entry *)a)->tensor.name,
                  ((const struct safetensors_entry *)b)->tensor.name);
}

static int load(struct ckpt **out, const char *path, bool with_data, struct tabft_failure *f)
{
    int error = 0;
    struct ckpt *c = NULL;
    struct file_reader *r = NULL;
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE];
    uint64_t data_start = 0;
    sha256_init(&hash);
    TRY(memory_new(&c, 1, sizeof *c, "a safetensors file", f));
    TRY(memory_copy_string(&c->path, path, f));
    TRY(file_reader_open(&r, path, f));
    TRY(read_header(c, r, &hash, &data_start, f));
    if (with_data) {
        TRY(read_data(c, r, &hash, data_start, f));
        sha256_digest(&hash, sizeof digest, digest);
        for (size_t i = 0; i < sizeof digest; i++) {
            c->digest[2 * i] = "0123456789abcdef"[digest[i] >> 4];
            c->digest[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
        }
        c->loaded = true;
    }
    TRY(file_reader_unchanged(r, f));
    if (c->header.n_entries > 0) qsort(c->header.entry, c->header.n_entries, sizeof *c->header.entry, by_name);
    *out = c;
    c = NULL;
fail:
    file_reader_close(r);
    ckpt_close(c);
    return error;
}

int ckpt_open(struct ckpt **out, const char *path, struct tabft_failure *f) { return load(out, path, true, f); }
int ckpt_open_header(struct ckpt **out, const char *path, struct tabft_failure *f) { return load(out, path, false, f); }

void ckpt_forget(struct ckpt *c, const struct ckpt_tensor *t)
{
    for (size_t i = 0; i < c->header.n_entries; i++) {
        struct safetensors_entry *e = &c->header.entry[i];
        if (&e->tensor != t || t->data == NULL) continue;
        /* The pages that are this tensor's alone. */
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)t->data;
        const uintptr_t first = (at + page - 1) / page * page, end = (at + (size_t)(e->end - e->begin)) / page * page;
        e->tensor.data = NULL;
        if (first < end) (void)madvise((void *)first, end - first, MADV_DONTNEED); /* a wish */
    }
}

void ckpt_close(struct ckpt *c)
{
    if (c == NULL) return;
    safetensors_header_clear(&c->header);
    free(c->data);
    free(c->path);
    free(c);
}

size_t ckpt_count(const struct ckpt *c) { return c->header.n_entries; }

const struct ckpt_tensor *ckpt_at(const struct ckpt *c, size_t i)
{
    assert(i < c->header.n_entries);
    return &c->header.entry[i].tensor;
}

const struct ckpt_tensor *ckpt_find(const struct ckpt *c, const char *name)
{
    const struct safetensors_entry key = {.tensor = {.name = name}};
    if (c->header.n_entries == 0) return NULL;
    const struct safetensors_entry *e = bsearch(&key, c->header.entry, c->header.n_entries, sizeof key, by_name);
    return e != NULL ? &e->tensor : NULL;
}

const char *ckpt_metadata(const struct ckpt *c, const char *key)
{
    for (size_t i = 0; i < c->header.n_pairs; i++)
        if (strcmp(c->header.pair[i].key, key) == 0) return c->header.pair[i].value;
    return NULL;
}

size_t ckpt_metadata_count(const struct ckpt *c) { return c->header.n_pairs; }

void ckpt_metadata_at(const struct ckpt *c, size_t i, const char **key, const char **value)
{
    assert(i < c->header.n_pairs);
    *key = c->header.pair[i].key;
    *value = c->header.pair[i].value;
}

const char *ckpt_path(const struct ckpt *c) { return c->path; }
uint64_t ckpt_file_size(const struct ckpt *c) { return c->file_size; }

void ckpt_digest(const struct ckpt *c, char hex[65])
{
    assert(c->loaded);
    memcpy(hex, c->digest, sizeof c->digest);
}
